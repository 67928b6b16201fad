// Options of the CUDA backend under test.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
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

/// `cuda` = ops on the device under test; skips the test where there is none, and leaves `cuda` empty.
inline void open_device(std::unique_ptr<Ops>& cuda, const OpsOptions& options = {}) {
  try {
    cuda = make_cuda_ops(0, gpu_test_options(options));
  } catch (const UnsupportedError& error) {
    GTEST_SKIP() << error.what();
  }
}

}  // namespace stepladder
