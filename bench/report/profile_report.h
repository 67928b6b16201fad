// A profile as people read it.
#pragma once

#include "bench/base/section.h"
#include "bench/results/json.h"

namespace stepladder {

/// Tables of a profile file as docs/results-schema.md has it: phases, kernel types, kernels, and ops against
/// their floors. What takes long comes first; the file has the rest.
Section section_of_profile(const Json& file);

}  // namespace stepladder
