#include "model/cuda_libraries.h"
#include "model/device.h"
#include "model/ops.h"

namespace stepladder {

#ifndef STEPLADDER_CUDA
std::unique_ptr<Ops> make_cuda_ops(int, const OpsOptions&) {
  throw UnsupportedError("this build has no CUDA backend: configure with -DSTEPLADDER_CUDA=ON");
}

int cuda_device_count() {
  return 0;
}

const CudaLibraries& cuda_libraries() {
  static const CudaLibraries none;
  return none;
}
#endif

int device_count(const std::string& backend) {
  const int devices = backend == "cpu" ? 0 : cuda_device_count();
  return devices > 0 ? devices : 1;
}

std::unique_ptr<Ops> make_ops(const std::string& backend, int device, const OpsOptions& options) {
  if (backend == "cpu") return make_cpu_ops();
  if (backend == "cuda") return make_cuda_ops(device, options);
  if (backend != "auto") throw InputError(cat("unknown backend '", backend, "': use auto, cpu or cuda"));
  try {
    return make_cuda_ops(device, options);
  } catch (const UnsupportedError&) {
    if (device != 0) throw;  // a device was asked for
    return make_cpu_ops();
  }
}

}  // namespace stepladder
