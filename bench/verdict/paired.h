// How much slower, and how certainly: statistics of pairs of runs, one of each of two builds.
//
// A pair's observation is x = log(new / base), the logarithm of the ratio of what the two runs took: a median
// or mean step, cycles, joules or bytes. Pairs are measured in the order A B, B A, ..., so without a change x
// is as likely to be positive as negative, whatever the machine does to both.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "bench/results/mean.h"

namespace stepladder {

/// Mean of x over pairs and the bounds that the change lies above and below.
struct PairedChange {
  double log_ratio = 0.0, lo = 0.0, hi = 0.0;
  /// Probability of a mean this far above, below, or on either side of 0 if nothing had changed; t tests.
  double p_slower = 1.0, p_faster = 1.0, p_changed = 1.0;
  size_t pairs = 0;
};

/// The confidence of each bound by itself; both together hold with 80 %.
inline constexpr double kBoundConfidence = 0.9;
/// Fewest pairs for a change: fewer tell too little of their spread.
inline constexpr size_t kMinPairs = 3;
/// Fewest pairs for a certain change. A machine with two speeds gives a pair one of two differences, or none:
/// all n pairs are equal with a probability of up to 4^-n, and a t test takes equal pairs for no noise at
/// all.
inline constexpr size_t kMinCertainPairs = 6;

/// The mean change with its bounds: the lower one holds with kBoundConfidence, the upper one with
/// `upper_confidence`. Throws std::invalid_argument on fewer than kMinPairs, or a value that is not finite.
PairedChange paired_change(std::span<const double> log_ratios, double upper_confidence = kBoundConfidence);

/// Holm's step-down test: which null hypotheses are rejected so that the probability to reject any true one
/// is at most `alpha`, however the p-values depend on each other (Holm 1979).
std::vector<bool> holm(std::span<const double> p_values, double alpha);

/// Which changes are certain in the direction of the p-value `p`: Holm's test over all at `alpha`. A change
/// from fewer than kMinCertainPairs pairs is never certain.
std::vector<bool> certain_by(std::span<const PairedChange> changes, double alpha, double PairedChange::*p);

/// The part of `alpha` that a look at the data after `pairs` may spend when looks are taken after each pair
/// from `first` to `last`: alpha ((n/last)^2 - ((n-1)/last)^2) after n pairs, and at the first look all that
/// is due by then. The parts sum to alpha, so that by the union bound all looks together alarm falsely no
/// more often than one look would.
double alpha_at(size_t pairs, size_t first, size_t last, double alpha);

/// Whether the look after `pairs` may find a PASS: after `first`, 2 first, 4 first, ... and `last` pairs.
/// These looks are few, so that each may spend an equal and large part of the error allowed to all together.
bool may_pass_at(size_t pairs, size_t first, size_t last);
/// The confidence of the upper bound at each look that may find a PASS, such that all of them together hold
/// with `confidence`, by the union bound.
double upper_confidence(size_t first, size_t last, double confidence);

/// How large a change of the mean over `pairs` a machine shows where nothing changed: the 99th percentile of
/// |mean| over 10,000 draws from the x of A/A pairs, the same draws every time. Throws
/// std::invalid_argument on no samples or no pairs.
double noise_floor(std::span<const double> log_ratios, size_t pairs);

}  // namespace stepladder
