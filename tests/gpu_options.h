// Options of the CUDA backend under test.
#pragma once

#include <cstdlib>
#include <string>

#include "model/ops.h"

namespace stepladder {

/// `options`, with features of devices newer than STEPLADDER_TEST_COMPUTE_CAPABILITY left unused: 75 runs the
/// code paths of a T4 on any device.
inline OpsOptions gpu_test_options(OpsOptions options = {}) {
  if (const char* capability = std::getenv("STEPLADDER_TEST_COMPUTE_CAPABILITY"))
    options.compute_capability = std::stoi(capability);
  return options;
}

}  // namespace stepladder
