// When a plan has enough rounds.
#pragma once

#include <optional>
#include <string>

#include "bench/results/results.h"

namespace stepladder {

/// Fewer rounds never end a plan by their interval: the range of n rounds holds the median with a probability
/// of 1 - 2^(1-n), which reaches 95 % at 6.
inline constexpr int64_t kLeastRoundsForInterval = 6;

struct Stopping {
  int64_t rounds = 1;                // at least, and all without until_ci
  std::optional<double> until_ci;    // percent; go on until every interval's half-width is within it ..
  int64_t max_rounds = 30;           // .. or there are that many
  std::optional<double> max_time_s;  // of the runs together; no round is begun that would exceed it
};

/// Half the width of the widest 95 % interval of a variant's median step, in percent of the median; of the
/// variants that are ok. Nothing while there is no interval.
std::optional<double> widest_interval_percent(const Results& results);

/// Seconds that the runs took together.
double spent_s(const Results& results);

/// Why no further round is due after `rounds` of them: "rounds", "interval", "max_rounds", "max_time",
/// "failed" (no variant is ok, so that no interval would ever narrow); "" while one is.
std::string stop_reason(const Stopping& stopping, const Results& results, int64_t rounds);

}  // namespace stepladder
