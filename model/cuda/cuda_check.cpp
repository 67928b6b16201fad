#include "model/cuda/cuda_check.h"

#include <cstdio>
#include <cstring>
#include <string>

#include "model/cuda/cublas.h"
#include "model/error.h"

namespace stepladder {
namespace {

const char* file_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash ? slash + 1 : path;
}

}  // namespace

void throw_error(cudaError_t error, const char* expression, const char* file, int line) {
  cudaGetLastError();
  const std::string what =
      cat("CUDA: ", cudaGetErrorString(error), " in ", expression, " at ", file_name(file), ':', line);
  switch (error) {
    case cudaErrorMemoryAllocation:
      throw OutOfMemoryError(what);
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorDevicesUnavailable:
      throw UnsupportedError(what);
    default:
      throw Error(what);
  }
}

void throw_error(cublasStatus_t status, const char* expression, const char* file, int line) {
  const std::string what = cat("cuBLAS: ", cublas().get_status_string(status), " in ", expression, " at ",
                               file_name(file), ':', line);
  if (status == CUBLAS_STATUS_ALLOC_FAILED) throw OutOfMemoryError(what);
  if (status == CUBLAS_STATUS_ARCH_MISMATCH) throw UnsupportedError(what);
  throw Error(what);
}

void report_error(cudaError_t error, const char* expression, const char* file, int line) noexcept {
  cudaGetLastError();
  std::fprintf(stderr, "CUDA: %s in %s at %s:%d\n", cudaGetErrorString(error), expression, file_name(file),
               line);
}

void report_error(cublasStatus_t status, const char* expression, const char* file, int line) noexcept {
  std::fprintf(stderr, "cuBLAS: %s in %s at %s:%d\n", cublas().get_status_string(status), expression,
               file_name(file), line);
}

}  // namespace stepladder
