// A traced step as a timeline, in the Trace Event Format that Perfetto and chrome://tracing open.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/tracing.h"

namespace stepladder {

/// JSON: a slice for each phase, each op and each kernel of `step`, on tracks of their own, in microseconds
/// since the step began. Kernels that run at the same time get a track each. An op's slice tells its phase,
/// bytes, FLOPs and types. `calls` are Tracing::calls(), `title` names the process.
std::string timeline(const Tracing::Step& step, const std::vector<OpCall>& calls, const std::string& title);

/// The field `timeline` of a profile (docs/results-schema.md): stretches of `step` that are of one phase and
/// one type of kernel, in their order. Gaps of at most 5 us are closed; of overlapping spans, the later
/// begins where the earlier ends.
nlohmann::ordered_json stretches(const Tracing::Step& step, const std::vector<OpCall>& calls);

}  // namespace stepladder
