#include "bench/results/mean.h"

#include <cmath>
#include <numeric>

#include "model/error.h"

namespace stepladder {
namespace {

struct Sample {
  double n = 0.0, mean = 0.0, squares = 0.0;  // sum of squared distances from the mean
};

Sample sample_of(std::span<const double> x) {
  check(!x.empty(), "the mean of no values");
  Sample sample{.n = static_cast<double>(x.size())};
  sample.mean = std::accumulate(x.begin(), x.end(), 0.0) / sample.n;
  check(std::isfinite(sample.mean), "the mean of values that are not finite");
  for (const double value : x) sample.squares += (value - sample.mean) * (value - sample.mean);
  return sample;
}

}  // namespace

double Mean::error() const {
  return std::sqrt(variance);
}

Mean mean_of(std::span<const double> samples) {
  const Sample x = sample_of(samples);
  check(samples.size() > 1, "the spread of a single value");
  const double df = x.n - 1;
  return {.value = x.mean, .variance = x.squares / df / x.n, .df = df};
}

Mean operator+(const Mean& one, const Mean& other) {
  const double variance = one.variance + other.variance;
  const double shares = one.variance * one.variance / one.df + other.variance * other.variance / other.df;
  return {.value = one.value + other.value,
          .variance = variance,
          .df = shares > 0.0 ? variance * variance / shares : one.df + other.df};
}

Mean difference_of_means(std::span<const double> base, std::span<const double> next) {
  const Sample was = sample_of(base), is = sample_of(next);
  const double df = was.n + is.n - 2;
  check(df > 0, "the spread of two single values");
  const double pooled = (was.squares + is.squares) / df;
  return {.value = is.mean - was.mean, .variance = pooled * (1 / was.n + 1 / is.n), .df = df};
}

double p_above(const Mean& mean, double limit) {
  const double distance = mean.value - limit, rounding = 1e-12 * std::max(1.0, std::abs(limit));
  if (!(mean.variance > rounding * rounding)) return distance > rounding ? 0.0 : 1.0;
  return student_t_cdf(-distance / mean.error(), mean.df);
}

double p_below(const Mean& mean, double limit) {
  return p_above({.value = -mean.value, .variance = mean.variance, .df = mean.df}, -limit);
}

double bound(const Mean& mean, double p) {
  return mean.value + student_t_quantile(p, mean.df) * mean.error();
}

Interval interval_of(const Mean& mean, double confidence) {
  const double tail = (1 - confidence) / 2;
  return {bound(mean, tail), bound(mean, 1 - tail)};
}

}  // namespace stepladder
