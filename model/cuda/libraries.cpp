#include "model/cuda/libraries.h"

#include <cuda_runtime_api.h>

#include "model/device.h"

namespace stepladder {

const CudaLibraries& cuda_libraries() {
  static const CudaLibraries chosen = [] {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess) cudaGetLastError();
    return choose_cuda_libraries(cuda_library_places(), driver);
  }();
  return chosen;
}

DynamicLibrary open_library(CudaPart part) {
  const CudaLibraries& all = cuda_libraries();
  const auto found = all.paths.find(part);
  if (found == all.paths.end()) throw UnsupportedError(all.missing(part));
  return {found->second, cat(name_of(part), " could not be loaded")};
}

void open_for_others(std::initializer_list<CudaPart> parts) {
  const CudaLibraries& all = cuda_libraries();
  for (const CudaPart part : parts)
    if (const auto found = all.paths.find(part); found != all.paths.end())
      dlopen(found->second.c_str(), RTLD_NOW);
}

}  // namespace stepladder
