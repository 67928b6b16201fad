// Carrying out a plan: round after round, until there are enough.
#pragma once

#include "bench/plan/plan.h"
#include "bench/results/file.h"

namespace stepladder {

/// Measures what `file` does not hold yet. Returns why it ended: the results' "stopped".
Json carry_out(const Plan& plan, const DeviceInfo& device, double timeout_s, ResultsFile& file);

}  // namespace stepladder
