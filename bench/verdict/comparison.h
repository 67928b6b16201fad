// Compares two results of the same workloads on the same device model: is NEW slower, or does it take more
// memory? Or, for runs until a loss: does NEW reach the loss sooner?
#pragma once

#include <map>
#include <span>

#include "bench/results/results.h"
#include "bench/verdict/comparable.h"
#include "bench/verdict/compared.h"

namespace stepladder {

/// The limit, a ratio less 1: `threshold`, or the noise_floor() over `pairs` if larger, which counts up to
/// kMaxNoiseLimit.
double raised_limit(double threshold, std::span<const double> noise, size_t pairs);

/// Pairs runs of the same rung and workload by round, or by seed where they train until a loss, and judges
/// each rung and workload. Peers are left out. Throws Error with kExitNotComparable as require_comparable()
/// does.
Comparison compare(const Results& base, const Results& next, const Limits& limits);

/// Verdicts while pairs are added: looks after `first` to `last` pairs. A REGRESSION spends alpha_at() of
/// limits.alpha; a PASS is possible where may_pass_at() holds, by an upper bound with upper_confidence(). So
/// both kinds of error are, over all looks together, no more frequent than with a single look.
class Looks {
 public:
  Looks(size_t first, size_t last, Limits limits);

  /// Looks once more, after `pairs`. A row with a verdict keeps it: each further look would be one more
  /// chance of a false alarm. `final` says that no look follows, so this look may PASS in place of the next
  /// one that could; a final look may come after fewer pairs than `first`.
  Comparison look(const Results& base, const Results& next, size_t pairs, bool final = false);

 private:
  size_t first_, last_;
  Limits limits_;
  std::map<RowKey, ComparedRow> decided_;
};

}  // namespace stepladder
