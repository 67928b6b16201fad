// CUDA_CHECK and CUBLAS_CHECK: every call into the CUDA libraries is checked where it stands.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>

namespace stepladder {

/// Throws what `error` means: OutOfMemoryError; UnsupportedError where the device, the driver or this build's
/// architectures cannot run the call; Error otherwise. Clears the error unless the context is lost.
[[noreturn]] void throw_cuda_error(cudaError_t error, const char* expression, const char* file, int line);
[[noreturn]] void throw_cublas_error(cublasStatus_t status, const char* expression, const char* file,
                                     int line);
/// For destructors: one line on stderr.
void report_cuda_error(cudaError_t error, const char* expression, const char* file, int line) noexcept;
void report_cublas_error(cublasStatus_t status, const char* expression, const char* file, int line) noexcept;

}  // namespace stepladder

#define CUDA_CHECK(expr)                                                           \
  do {                                                                             \
    const cudaError_t cuda_check_error = (expr);                                   \
    if (cuda_check_error != cudaSuccess)                                           \
      ::stepladder::throw_cuda_error(cuda_check_error, #expr, __FILE__, __LINE__); \
  } while (false)

#define CUDA_CHECK_NOEXCEPT(expr)                                                   \
  do {                                                                              \
    const cudaError_t cuda_check_error = (expr);                                    \
    if (cuda_check_error != cudaSuccess)                                            \
      ::stepladder::report_cuda_error(cuda_check_error, #expr, __FILE__, __LINE__); \
  } while (false)

#define CUBLAS_CHECK(expr)                                                              \
  do {                                                                                  \
    const cublasStatus_t cublas_check_status = (expr);                                  \
    if (cublas_check_status != CUBLAS_STATUS_SUCCESS)                                   \
      ::stepladder::throw_cublas_error(cublas_check_status, #expr, __FILE__, __LINE__); \
  } while (false)

#define CUBLAS_CHECK_NOEXCEPT(expr)                                                      \
  do {                                                                                   \
    const cublasStatus_t cublas_check_status = (expr);                                   \
    if (cublas_check_status != CUBLAS_STATUS_SUCCESS)                                    \
      ::stepladder::report_cublas_error(cublas_check_status, #expr, __FILE__, __LINE__); \
  } while (false)
