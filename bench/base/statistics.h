// Summaries of samples: order statistics, and bootstrap intervals over rounds.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace stepladder {

/// Quantile `q` in [0,1] by linear interpolation between order statistics (type 7 of Hyndman and Fan 1996,
/// the default of R and NumPy). Throws std::invalid_argument on no samples, a q outside [0,1], or a NaN.
double quantile(std::span<const double> samples, double q);

/// quantile(samples, 0.5).
double median(std::span<const double> samples);

/// A value and the interval it lies in with 95 % confidence; none from a single round, which tells no spread.
struct Interval {
  double lo = 0.0, hi = 0.0;
};
struct Estimate {
  double value = 0.0;
  std::optional<Interval> interval;
};

/// The same in another unit: times `factor`.
Estimate scaled(Estimate estimate, double factor);

inline constexpr int kResamples = 10'000;
inline constexpr uint64_t kBootstrapSeed = 1337;

/// Median over rounds with its percentile bootstrap interval: kResamples draws of rounds with replacement,
/// the same draws every time. Rounds are the unit because the steps within a run are correlated. Throws
/// std::invalid_argument on no rounds.
Estimate median_over_rounds(std::span<const double> rounds);

/// How many times faster `after` is than `before`: median over rounds of before[r] / after[r], times of the
/// same round, so that drift between rounds cancels. Throws std::invalid_argument on no rounds, unequal
/// counts, or a time that is not positive.
Estimate speedup(std::span<const double> before, std::span<const double> after);

/// Steps at the head of a run to leave out of its summary: at least `requested`, and more while one of the
/// last two left out lies outside the range of the steps kept, up to half of those that were to be timed. All
/// steps when the run is no longer than `requested`.
size_t warmup_steps(std::span<const double> step_ms, size_t requested);

}  // namespace stepladder
