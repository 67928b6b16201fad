// The report of a results file.
#pragma once

#include <string>

#include "bench/base/section.h"
#include "bench/report/notes.h"
#include "bench/report/speedups.h"

namespace stepladder {

/// The answer (the fastest rung, in how much memory, and against whom), what was measured on what, the
/// tables, and the notes. `ratios_only` leaves out milliseconds, tokens and bytes, which don't compare with
/// those of another device.
Section section_of(const Findings& file, bool ratios_only = false);

/// What each rung of an ablation is worth.
Table ablations_table(const Findings& file, bool ratios_only);

/// What each two switches are worth together.
Table interactions_table(const std::vector<AblatedPair>& rows);

/// The rows of two rungs, and how many times faster `after` is on each workload that both were measured on.
Section two_rungs(const Findings& file, const std::string& before, const std::string& after);

}  // namespace stepladder
