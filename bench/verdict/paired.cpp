#include "bench/verdict/paired.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>

#include "bench/base/statistics.h"
#include "model/error.h"
#include "model/random.h"

namespace stepladder {
namespace {

double mean_of(std::span<const double> x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

}  // namespace

double student_t_cdf(double t, int df) {
  check(df > 0, "Student's t with ", df, " degrees of freedom");
  return cdf(boost::math::students_t(df), t);
}

double student_t_quantile(double p, int df) {
  check(df > 0 && p > 0.0 && p < 1.0, "quantile ", p, " of Student's t with ", df, " degrees of freedom");
  return quantile(boost::math::students_t(df), p);
}

PairedChange paired_change(std::span<const double> log_ratios) {
  check(log_ratios.size() >= kMinPairs, "a change from ", log_ratios.size(), " pairs");
  const auto n = static_cast<double>(log_ratios.size());
  const int df = static_cast<int>(log_ratios.size()) - 1;
  const double mean = mean_of(log_ratios);
  check(std::isfinite(mean), "a change from ratios that are not finite");
  double squares = 0.0;
  for (double x : log_ratios) squares += (x - mean) * (x - mean);
  const double error = std::sqrt(squares / df / n);
  const double margin = student_t_quantile(kBoundConfidence, df) * error;
  // Equal to the last bit, pairs leave no doubt.
  const double p = error > 0.0 ? student_t_cdf(-mean / error, df) : mean > 0.0 ? 0.0 : 1.0;
  return {mean, mean - margin, mean + margin, p};
}

std::vector<bool> holm(std::span<const double> p_values, double alpha) {
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p_values[a] < p_values[b]; });
  std::vector<bool> rejected(p_values.size(), false);
  for (size_t k = 0; k < order.size(); ++k) {
    if (!(p_values[order[k]] <= alpha / static_cast<double>(order.size() - k))) break;
    rejected[order[k]] = true;
  }
  return rejected;
}

double alpha_at(size_t pairs, size_t first, size_t last, double alpha) {
  check(first <= pairs && pairs <= last, "a look after ", pairs, " pairs of ", first, " to ", last);
  const auto spent = [&](size_t n) {
    const double share = static_cast<double>(n) / static_cast<double>(last);
    return alpha * share * share;
  };
  return spent(pairs) - (pairs == first ? 0.0 : spent(pairs - 1));
}

double noise_floor(std::span<const double> log_ratios, size_t pairs) {
  check(!log_ratios.empty() && pairs > 0, "a noise floor of nothing");
  const auto n = static_cast<double>(log_ratios.size());
  std::vector<double> sizes(kResamples), draw(pairs);
  uint64_t counter = 0;
  for (double& size : sizes) {
    for (double& x : draw) x = log_ratios[static_cast<size_t>(random_uniform(kBootstrapSeed, counter++) * n)];
    size = std::abs(mean_of(draw));
  }
  return quantile(sizes, 0.99);
}

}  // namespace stepladder
