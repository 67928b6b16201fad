// The report of a profile.
#pragma once

#include "bench/base/section.h"
#include "bench/results/json.h"

namespace stepladder {

/// Tables of a profile file as docs/results-schema.md has it: phases, kernel types, kernels, and ops against
/// their floors. The longest come first; the rest is in the file.
Section section_of_profile(const Json& file);

}  // namespace stepladder
