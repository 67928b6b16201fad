// How many devices there are.
#pragma once

#include <string>

namespace stepladder {

/// How many devices `backend` has: 1 for the CPU; for CUDA, or auto where it is there, those that this
/// process may use. Makes no context on any.
int device_count(const std::string& backend);

int cuda_device_count();

}  // namespace stepladder
