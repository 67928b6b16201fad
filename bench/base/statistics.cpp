#include "bench/base/statistics.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <vector>

#include "model/error.h"

namespace stepladder {

double quantile(std::span<const double> samples, double q) {
  check(!samples.empty(), "quantile of no samples");
  check(q >= 0.0 && q <= 1.0, "quantile ", q, " is outside [0,1]");
  check(std::ranges::none_of(samples, [](double x) { return std::isnan(x); }),
        "quantile of samples with a NaN");
  std::vector<double> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted);
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], at - static_cast<double>(below));
}

double median(std::span<const double> samples) {
  return quantile(samples, 0.5);
}

Estimate scaled(Estimate estimate, double factor) {
  estimate.value *= factor;
  if (auto& interval = estimate.interval) *interval = {interval->lo * factor, interval->hi * factor};
  return estimate;
}

std::optional<Estimate> scaled(const std::optional<Estimate>& estimate, double factor) {
  return estimate ? std::optional(scaled(*estimate, factor)) : std::nullopt;
}

std::string interval_name(int64_t rounds) {
  if (rounds >= kLeastRoundsForInterval) return "95 % interval";
  if (rounds < 2) return "interval";
  return cat("range (", std::lround(100 * (1 - std::exp2(static_cast<double>(1 - rounds)))), " %)");
}

Estimate median_over_rounds(std::span<const double> rounds) {
  Estimate estimate{median(rounds), std::nullopt, std::ssize(rounds)};
  const size_t n = rounds.size();
  if (n < 2) return estimate;
  std::vector<double> sorted(rounds.begin(), rounds.end());
  std::ranges::sort(sorted);
  // How many rounds to leave out at each end: the largest k such that, in at most 2.5 % of cases, k rounds or
  // fewer lie below the true median.
  const boost::math::binomial lie_below(static_cast<double>(n), 0.5);
  const auto out = static_cast<size_t>(quantile(lie_below, 0.025));
  estimate.interval = Interval{sorted[out], sorted[n - 1 - out]};
  return estimate;
}

size_t warmup_steps(std::span<const double> step_ms, size_t requested) {
  if (requested == 0) return 0;
  if (requested >= step_ms.size()) return step_ms.size();
  const size_t limit = requested + (step_ms.size() - requested) / 2;
  std::vector<double> least(step_ms.begin(), step_ms.end()), most = least;  // of each step and those after it
  for (size_t i = step_ms.size() - 1; i-- > requested;) {
    least[i] = std::min(least[i], least[i + 1]);
    most[i] = std::max(most[i], most[i + 1]);
  }
  size_t w = requested;
  for (; w < limit; ++w) {
    const auto settled = [&](double ms) { return ms >= least[w] && ms <= most[w]; };
    if (std::all_of(step_ms.begin() + (w - std::min<size_t>(w, 2)), step_ms.begin() + w, settled)) break;
  }
  return w;
}

double student_t_cdf(double t, double df) {
  check(df > 0, "Student's t with ", df, " degrees of freedom");
  return cdf(boost::math::students_t(df), t);
}

double student_t_quantile(double p, double df) {
  check(df > 0 && p > 0.0 && p < 1.0, "quantile ", p, " of Student's t with ", df, " degrees of freedom");
  return quantile(boost::math::students_t(df), p);
}

double sign_test(size_t heads, size_t tails) {
  if (heads == 0) return 1.0;
  const boost::math::binomial fair(static_cast<double>(heads + tails), 0.5);
  return cdf(complement(fair, static_cast<double>(heads - 1)));
}

}  // namespace stepladder
