// Options of the CUDA backend under test.
#pragma once

#include <cstdlib>
#include <string>

#include "model/ops.h"

namespace stepladder {

/// `options` limited to the compute capability in STEPLADDER_TEST_COMPUTE_CAPABILITY: 75 runs the code paths
/// of a T4 on any device.
inline OpsOptions gpu_test_options(OpsOptions options = {}) {
  if (const char* capability = std::getenv("STEPLADDER_TEST_COMPUTE_CAPABILITY"))
    options.compute_capability = std::stoi(capability);
  return options;
}

}  // namespace stepladder
