// Rows held against each other: how many times faster a rung is than those below it and than its peers.
#pragma once

#include <vector>

#include "bench/results/rounds.h"

namespace stepladder {

/// Rows with their speed-ups, in the order of the ladder, workload by workload as they first appear; peers
/// after the rungs.
std::vector<ResultRow> aggregate(const Results& results);

/// A whole results file: what was measured, and the rows that follow from it.
Json results_file_json(const Results& results);

}  // namespace stepladder
