// When a plan has enough rounds.
#pragma once

#include <optional>
#include <string>

#include "bench/results/results.h"

namespace stepladder {

struct Stopping {
  int64_t rounds = 1;  // fewest rounds; without until_ci, all rounds
  /// Stop once every row has kLeastRoundsForInterval rounds and its interval's half-width is at most this, in
  /// percent ..
  std::optional<double> until_ci;
  int64_t max_rounds = 30;           // .. or after this many rounds
  std::optional<double> max_time_s;  // of all runs together; no round that would exceed it is begun
};

/// Half the width of the widest interval of a variant's median step, in percent of the median, over the
/// variants that are ok. Infinite where a variant's numbers come from fewer than `least_rounds` rounds;
/// nothing while no variant has an interval.
std::optional<double> widest_interval_percent(const Results& results, int64_t least_rounds = 0);

/// Seconds that the runs took together.
double spent_s(const Results& results);

/// Why no further round is due after `rounds` rounds: "rounds", "interval", "max_rounds", "max_time",
/// "failed" (no variant is ok in all of its rounds); "" while a further round is due.
std::string stop_reason(const Stopping& stopping, const Results& results, int64_t rounds);

}  // namespace stepladder
