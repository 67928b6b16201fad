#include <cmath>

#include "model/cpu/cpu.h"

namespace stepladder {
namespace {

/// Calls body(first element of the head in qkv, index of its rstd, row of the table at its position or null)
/// for each head of q and k.
template <class Body>
void each_head(const Cpu& cpu, const Tensor& qkv, int64_t NH, const Tensor& table, const Body& body) {
  const int64_t T = qkv.shape[1], row = qkv.cols(), HS = row / 3 / NH;
  const float* angles = present(table) ? table.ptr<float>() : nullptr;
  cpu.each_row(rows_of(qkv), row, [=](int64_t n) {
    for (int64_t h = 0; h < 2 * NH; ++h)
      body(n * row + h * HS, n * 2 * NH + h, angles ? angles + n % T * HS : nullptr);
  });
}

}  // namespace

void RotaryTable::run(Cpu&) const {
  const int64_t T = table.shape[0], half = table.shape[1];
  float* to = table.ptr<float>();
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t i = 0; i < half; ++i) {
      const double frequency = std::pow(double{base}, -static_cast<double>(i) / static_cast<double>(half));
      const double angle = static_cast<double>(t) * frequency;
      to[(t * half + i) * 2] = static_cast<float>(std::cos(angle));
      to[(t * half + i) * 2 + 1] = static_cast<float>(std::sin(angle));
    }
  }
}

void QkNormRotaryForward::run(Cpu& cpu) const {
  const int64_t NH = qk_heads(qkv, rstd, table), HS = qkv.cols() / 3 / NH, half = HS / 2;
  float* prstd = present(rstd) ? rstd.ptr<float>() : nullptr;
  with_float_type(qkv.dtype, [&]<class T>(T) {
    const auto fqkv = floats<T>(qkv);
    each_head(cpu, qkv, NH, table, [=](int64_t at, int64_t head, const float* angles) {
      const auto x = fqkv + at;
      float factor = 1.0F;
      if (prstd) {
        const double squares = sum(HS, [=](int64_t i) { return static_cast<double>(x[i]) * x[i]; });
        factor = static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(HS) + kRmsNormEps));
        prstd[head] = factor;
      }
      for (int64_t i = 0; i < half; ++i) {
        const float cos = angles ? angles[2 * i] : 1.0F, sin = angles ? angles[2 * i + 1] : 0.0F;
        const float x1 = x[i] * factor, x2 = x[half + i] * factor;
        x.set(i, x1 * cos - x2 * sin);
        x.set(half + i, x2 * cos + x1 * sin);
      }
    });
  });
}

void QkNormRotaryBackward::run(Cpu& cpu) const {
  const int64_t NH = qk_heads(dqkv, rstd, table), HS = dqkv.cols() / 3 / NH, half = HS / 2;
  const float* prstd = present(rstd) ? rstd.ptr<float>() : nullptr;
  with_float_type(dqkv.dtype, [&]<class T>(T) {
    const auto fdqkv = floats<T>(dqkv), fqkv = prstd ? floats<T>(qkv) : Floats<T>{};
    each_head(cpu, dqkv, NH, table, [=](int64_t at, int64_t head, const float* angles) {
      const auto dx = fdqkv + at, y = fqkv + (prstd ? at : 0);
      float factor = 1.0F, mean = 0.0F;
      if (prstd) {
        const double products = sum(HS, [=](int64_t i) { return static_cast<double>(dx[i]) * y[i]; });
        mean = static_cast<float>(products / static_cast<double>(HS));
        factor = prstd[head];
      }
      const auto inward = [=](int64_t i) { return prstd ? dx[i] - y[i] * mean : dx[i]; };
      for (int64_t i = 0; i < half; ++i) {
        const float cos = angles ? angles[2 * i] : 1.0F, sin = angles ? angles[2 * i + 1] : 0.0F;
        const float d1 = inward(i), d2 = inward(half + i);
        dx.set(i, factor * (d1 * cos + d2 * sin));
        dx.set(half + i, factor * (d2 * cos - d1 * sin));
      }
    });
  });
}

}  // namespace stepladder
