// CUDA_CHECK and CUBLAS_CHECK: every call into the CUDA libraries is checked where it stands.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>

namespace stepladder {

/// Throws the exception for `error`: OutOfMemoryError; UnsupportedError where the device, the driver or this
/// build's architectures cannot run the call; Error otherwise. Clears the error unless the context is lost.
[[noreturn]] void throw_error(cudaError_t error, const char* expression, const char* file, int line);
[[noreturn]] void throw_error(cublasStatus_t status, const char* expression, const char* file, int line);
/// Prints one line on stderr, for destructors, which can't throw.
void report_error(cudaError_t error, const char* expression, const char* file, int line) noexcept;
void report_error(cublasStatus_t status, const char* expression, const char* file, int line) noexcept;

}  // namespace stepladder

#define CUDA_CHECK(expr)                                                    \
  do {                                                                      \
    const auto status_of_call = (expr);                                     \
    if (static_cast<int>(status_of_call) != 0)                              \
      ::stepladder::throw_error(status_of_call, #expr, __FILE__, __LINE__); \
  } while (false)

#define CUDA_CHECK_NOEXCEPT(expr)                                            \
  do {                                                                       \
    const auto status_of_call = (expr);                                      \
    if (static_cast<int>(status_of_call) != 0)                               \
      ::stepladder::report_error(status_of_call, #expr, __FILE__, __LINE__); \
  } while (false)

#define CUBLAS_CHECK CUDA_CHECK
#define CUBLAS_CHECK_NOEXCEPT CUDA_CHECK_NOEXCEPT
