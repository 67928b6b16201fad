// Statistics of a row, summed in double.
#pragma once

#include <cmath>
#include <cstdint>

#include "model/cpu/exp.h"
#include "model/cpu/floats.h"
#include "model/cpu/parallel.h"

namespace stepladder {

template <class T>
float mean_of(Floats<T> row, int64_t C) {
  return static_cast<float>(sum(C, [=](int64_t c) { return row[c]; }) / static_cast<double>(C));
}

/// 1 / sqrt(var + eps) of a row.
template <class T>
float rstd_of(Floats<T> row, int64_t C, float mean, float eps) {
  const double m = mean;
  const double squares = sum(C, [=](int64_t c) { return (row[c] - m) * (row[c] - m); });
  return static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(C) + eps));
}

/// The largest element of a row and the sum of e^(x - largest).
struct ExpSum {
  float top;
  double sum;
  double log() const { return top + std::log(sum); }
};

/// ExpSum of scale * row.
template <class Row>
ExpSum exp_sum(Row row, int64_t n, float scale = 1.0F) {
  const float top = max(n, [=](int64_t i) { return scale * row[i]; });
  return {top, sum(n, [=](int64_t i) { return exp_float(scale * row[i] - top); })};
}

}  // namespace stepladder
