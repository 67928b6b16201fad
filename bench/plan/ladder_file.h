// Ladder files, which docs/trainer-reference.md describes, and the ladders that results files record.
#pragma once

#include <string>
#include <vector>

#include "bench/plan/ladder.h"
#include "bench/results/lines.h"

namespace stepladder {

/// Reads a ladder file, or ladder.json in a folder. Throws InputError naming the file and what is wrong.
Ladder load_ladder(const std::string& path);
/// A ladder of ours by its name, the ladder of time for "", else what load_ladder() reads.
Ladder ladder_at(const std::string& path);
/// The commit that a ladder file's folder is at, with "-dirty" where tracked files differ; "" where the
/// folder is no checkout.
std::string commit_of(const Ladder& ladder);
/// The ladder that results record; the ladder of time where they record none.
Ladder ladder_of(const Results& results);
/// Call load_results() and load_parts(), and check the ladder that the file records. Throw InputError, naming
/// the file, also where that ladder makes no sense.
Results load_measured(const std::string& path);
std::vector<Part> load_measured_parts(const std::string& path);

}  // namespace stepladder
