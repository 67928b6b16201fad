// Summaries of samples: order statistics, and intervals over rounds; Student's t and the sign test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace stepladder {

/// Quantile `q` in [0,1] by linear interpolation between order statistics (type 7 of Hyndman and Fan 1996,
/// the default of R and NumPy). Throws std::invalid_argument on no samples, a q outside [0,1], or a NaN.
double quantile(std::span<const double> samples, double q);

/// quantile(samples, 0.5).
double median(std::span<const double> samples);

/// The bounds of an estimate. Of a median over rounds interval_name(rounds) says how surely they hold; a
/// single round has none.
struct Interval {
  double lo = 0.0, hi = 0.0;

  bool contains(double x) const { return lo <= x && x <= hi; }
};
struct Estimate {
  double value = 0.0;
  std::optional<Interval> interval;
  int64_t rounds = 0;
};

/// An estimate in another unit: value and interval times `factor`.
Estimate scaled(Estimate estimate, double factor);
std::optional<Estimate> scaled(const std::optional<Estimate>& estimate, double factor);

/// Fewest rounds that have a 95 % interval: the range of n rounds holds the true median with a probability of
/// 1 - 2^(1-n).
inline constexpr int64_t kLeastRoundsForInterval = 6;
/// What an interval over so many rounds is called: "95 % interval" from six rounds on, "range (75 %)" for two
/// to five; "interval" for one round, which has no interval.
std::string interval_name(int64_t rounds);

/// Median over rounds with its 95 % interval: the k-th smallest and largest of n rounds, where fewer than k
/// rounds are below the true median with a probability of at most 2.5 % (Binomial(n, 1/2), whatever the
/// distribution). Up to eight rounds the interval is their range. Rounds are the unit because the steps
/// within a run are correlated. Throws std::invalid_argument on no rounds.
Estimate median_over_rounds(std::span<const double> rounds);

/// How many first steps of a run its summary leaves out: at least `requested`, and more while one of the last
/// two left out lies outside the range of the steps kept, up to half of the steps after `requested`. All
/// steps when the run is no longer than `requested`.
size_t warmup_steps(std::span<const double> step_ms, size_t requested);

/// Distribution function of Student's t with `df` degrees of freedom, and its inverse for p in (0,1). Throw
/// std::invalid_argument unless df > 0 and p lies in (0,1).
double student_t_cdf(double t, double df);
double student_t_quantile(double p, double df);

/// P(X >= heads) of X from Binomial(heads + tails, 1/2): the one-sided p-value of a sign test; 1 without
/// heads.
double sign_test(size_t heads, size_t tails);

}  // namespace stepladder
