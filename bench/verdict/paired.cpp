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

/// Holm's test over p(change), which counts for nothing below kMinCertainPairs.
template <class P>
std::vector<bool> certain(std::span<const PairedChange> changes, double alpha, P p) {
  std::vector<double> p_values;
  for (const PairedChange& change : changes)
    p_values.push_back(change.pairs < kMinCertainPairs ? 1.0 : p(change));
  return holm(p_values, alpha);
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

PairedChange paired_change(std::span<const double> log_ratios, double upper_confidence) {
  check(log_ratios.size() >= kMinPairs, "a change from ", log_ratios.size(), " pairs");
  const auto n = static_cast<double>(log_ratios.size());
  const int df = static_cast<int>(log_ratios.size()) - 1;
  const double mean = mean_of(log_ratios);
  check(std::isfinite(mean), "a change from ratios that are not finite");
  double squares = 0.0;
  for (double x : log_ratios) squares += (x - mean) * (x - mean);
  const double error = std::sqrt(squares / df / n);
  const auto p_above = [&](double x) {  // equal to the last bit, pairs leave no doubt
    return error > 0.0 ? student_t_cdf(-x / error, df) : x > 0.0 ? 0.0 : 1.0;
  };
  return {.log_ratio = mean,
          .lo = mean - student_t_quantile(kBoundConfidence, df) * error,
          .hi = mean + student_t_quantile(upper_confidence, df) * error,
          .p_slower = p_above(mean),
          .p_faster = p_above(-mean),
          .pairs = log_ratios.size()};
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

std::vector<bool> certainly_slower(std::span<const PairedChange> changes, double alpha) {
  return certain(changes, alpha, [](const PairedChange& change) { return change.p_slower; });
}

std::vector<bool> certainly_faster(std::span<const PairedChange> changes, double alpha) {
  return certain(changes, alpha, [](const PairedChange& change) { return change.p_faster; });
}

std::vector<bool> certainly_changed(std::span<const PairedChange> changes, double alpha) {
  return certain(changes, alpha,
                 [](const PairedChange& change) { return 2 * std::min(change.p_slower, change.p_faster); });
}

double alpha_at(size_t pairs, size_t first, size_t last, double alpha) {
  check(first <= pairs && pairs <= last, "a look after ", pairs, " pairs of ", first, " to ", last);
  const auto spent = [&](size_t n) {
    const double share = static_cast<double>(n) / static_cast<double>(last);
    return alpha * share * share;
  };
  return spent(pairs) - (pairs == first ? 0.0 : spent(pairs - 1));
}

bool may_pass_at(size_t pairs, size_t first, size_t last) {
  for (size_t look = first; look < last; look *= 2)
    if (pairs == look) return true;
  return pairs == last;
}

double upper_confidence(size_t first, size_t last, double confidence) {
  check(first > 0 && first <= last, "looks after ", first, " to ", last, " pairs");
  int looks = 1;
  for (size_t look = first; look < last; look *= 2) ++looks;
  return 1.0 - (1.0 - confidence) / looks;
}

double noise_floor(std::span<const double> log_ratios, size_t pairs) {
  constexpr int kResamples = 10'000;
  constexpr uint64_t kBootstrapSeed = 1337;  // the same draws every time
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
