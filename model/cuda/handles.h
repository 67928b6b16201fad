// Owners of CUDA library objects: move-only, released by their destructors.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <type_traits>

#include "model/cuda/cublas.h"
#include "model/cuda/cuda_check.h"

namespace stepladder {

struct HandleDeleter {
  void operator()(cudaStream_t stream) const noexcept { CUDA_CHECK_NOEXCEPT(cudaStreamDestroy(stream)); }
  void operator()(cudaEvent_t event) const noexcept { CUDA_CHECK_NOEXCEPT(cudaEventDestroy(event)); }
  void operator()(cudaGraph_t graph) const noexcept { CUDA_CHECK_NOEXCEPT(cudaGraphDestroy(graph)); }
  void operator()(cudaGraphExec_t graph) const noexcept { CUDA_CHECK_NOEXCEPT(cudaGraphExecDestroy(graph)); }
  void operator()(cublasHandle_t blas) const noexcept { CUBLAS_CHECK_NOEXCEPT(cublas().destroy(blas)); }
};

template <class T>
using Handle = std::unique_ptr<std::remove_pointer_t<T>, HandleDeleter>;
using Stream = Handle<cudaStream_t>;
using Event = Handle<cudaEvent_t>;
using CapturedGraph = Handle<cudaGraph_t>;
using GraphExec = Handle<cudaGraphExec_t>;
using Blas = Handle<cublasHandle_t>;

enum class Priority { usual, high };

/// A stream that does not wait for the legacy default stream.
inline Stream make_stream(Priority priority = Priority::usual) {
  int usual = 0, highest = 0;
  CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&usual, &highest));
  cudaStream_t stream = nullptr;
  CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                          priority == Priority::high ? highest : usual));
  return Stream(stream);
}

/// An event that records time; one with cudaEventDisableTiming only orders work, and is cheaper to wait for.
inline Event make_event(unsigned flags = cudaEventDefault) {
  cudaEvent_t event = nullptr;
  CUDA_CHECK(cudaEventCreateWithFlags(&event, flags));
  return Event(event);
}

/// The stream on which kernels are queued, and whether they may start early.
struct Queue {
  cudaStream_t stream = nullptr;
  /// Use programmatic dependent launch: in a recorded graph, a kernel may start while the kernel before it
  /// ends. Set while such a graph is recorded.
  bool early = false;
  bool can_be_early = false;  // device, driver and options allow it
  int launched_early = 0;     // kernels launched early so far
};

/// Whether `stream` is being captured and the next node will depend on one kernel and nothing else.
bool follows_kernel(cudaStream_t stream);

inline bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

/// A cuBLAS handle whose work is queued on `stream` and whose sums stay in f32 throughout.
inline Blas make_blas(cudaStream_t stream) {
  cublasHandle_t handle = nullptr;
  CUBLAS_CHECK(cublas().create(&handle));
  Blas blas(handle);
  CUBLAS_CHECK(cublas().set_stream(handle, stream));
  CUBLAS_CHECK(cublas().set_math_mode(handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION));
  return blas;
}

}  // namespace stepladder
