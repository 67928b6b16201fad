// A tracer that sees every kernel, through CUPTI.
#pragma once

#include <memory>
#include <string>

#include "model/trace.h"

namespace stepladder {

/// A tracer of kernels, copies and memsets by CUPTI's activity records. Null where CUPTI can't be used; then
/// `why` names what is missing. Only one may exist at a time in a process.
std::unique_ptr<Tracer> make_cupti_tracer(std::string& why);

}  // namespace stepladder
