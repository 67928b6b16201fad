// When a plan has enough rounds.
#pragma once

#include <optional>
#include <string>

#include "bench/results/results.h"

namespace stepladder {

struct Stopping {
  int64_t rounds = 1;  // at least, and all without until_ci
  /// Percent; on until every row's numbers are of kLeastRoundsForInterval rounds and its interval's
  /// half-width is within it ..
  std::optional<double> until_ci;
  int64_t max_rounds = 30;           // .. or there are that many
  std::optional<double> max_time_s;  // of the runs together; no round is begun that would exceed it
};

/// Half the width of the widest interval of a variant's median step, in percent of the median; of the
/// variants that are ok. Infinite where one's numbers are of fewer rounds than `least_rounds`; nothing while
/// there is no interval.
std::optional<double> widest_interval_percent(const Results& results, int64_t least_rounds = 0);

/// Seconds that the runs took together.
double spent_s(const Results& results);

/// Why no further round is due after `rounds` of them: "rounds", "interval", "max_rounds", "max_time",
/// "failed" (no variant is ok, so that no interval would ever narrow); "" while one is.
std::string stop_reason(const Stopping& stopping, const Results& results, int64_t rounds);

}  // namespace stepladder
