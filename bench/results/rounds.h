// Runs held against each other, those of the same round first of all.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "bench/base/statistics.h"
#include "bench/results/results.h"

namespace stepladder {

/// Runs of a variant on a workload, by round.
using Rounds = std::map<int64_t, const Run*>;

/// The runs of a variant on a workload.
Rounds rounds_of(const Results& results, const std::string& variant, const std::string& workload);

/// Leaves out the rounds in which the device was throttled.
void drop_throttled(Rounds& rounds);

/// How many times faster `after` is than `before` by time per token, over the rounds that both took part in.
/// Every run must be ok. Nothing where no round is common.
std::optional<Estimate> speedup(const Rounds& before, const Rounds& after);

/// By how many ms a step is longer than `than`'s, over the rounds that both took part in; nothing where none
/// is.
std::optional<Estimate> longer(const Rounds& rounds, const Rounds& than);

/// What a run took besides its steps: start-up, sampling between them, evaluation, and the end.
double besides_steps_ms(const Run& run);

/// Where the loss of `run` first leaves `baseline`'s by more than `tolerance`, relative:
/// "step 7: loss 4.51, 00_fp32_baseline has 4.49 (...)"; "" while it does not.
std::string divergence(const Run& baseline, const Run& run, double tolerance);

}  // namespace stepladder
