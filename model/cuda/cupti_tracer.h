// A tracer that sees every kernel, through CUPTI.
#pragma once

#include <memory>
#include <string>

#include "model/trace.h"

namespace stepladder {

/// Kernels, copies and memsets as CUPTI's activity records have them. Nothing where that can't be had, and
/// then `why` names what is missing. One at a time in a process.
std::unique_ptr<Tracer> make_cupti_tracer(std::string& why);

}  // namespace stepladder
