// Prefetching batches: a second stream copies the next batch while the ops of this step run.
#include <algorithm>

#include "model/cuda/cuda.h"

namespace stepladder {

std::shared_ptr<void> Cuda::allocate_host(size_t bytes) {
  void* block = nullptr;
  const cudaError_t error = cudaHostAlloc(&block, std::max<size_t>(bytes, 1), cudaHostAllocDefault);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw OutOfMemoryError(cat("out of page-locked host memory: ", bytes, " bytes wanted"));
  }
  CUDA_CHECK(error);
  return {block, [](void* p) { CUDA_CHECK_NOEXCEPT(cudaFreeHost(p)); }};
}

void Upload::run(Cuda& cuda) const {
  CUDA_CHECK(cudaMemcpyAsync(dst.data, host, dst.bytes(), cudaMemcpyHostToDevice, cuda.stream.get()));
  CUDA_CHECK(
      cudaStreamSynchronize(cuda.stream.get()));  // some systems read pageable memory after the call returns
}

void Download::run(Cuda& cuda) const {
  CUDA_CHECK(cudaMemcpyAsync(host, src.data, src.bytes(), cudaMemcpyDeviceToHost, cuda.stream.get()));
  CUDA_CHECK(cudaStreamSynchronize(cuda.stream.get()));
}

void Zero::run(Cuda& cuda) const {
  CUDA_CHECK(cudaMemsetAsync(x.data, 0, x.bytes(), cuda.stream.get()));
}

void Stage::run(Cuda& cuda) const {
  CUDA_CHECK(cudaEventSynchronize(cuda.staged.get()));
  CUDA_CHECK(cudaStreamWaitEvent(cuda.copy_stream.get(), cuda.received.get(), cudaEventWaitDefault));
  CUDA_CHECK(
      cudaMemcpyAsync(staged.data, pinned, staged.bytes(), cudaMemcpyHostToDevice, cuda.copy_stream.get()));
  CUDA_CHECK(cudaEventRecord(cuda.staged.get(), cuda.copy_stream.get()));
}

void Receive::run(Cuda& cuda) const {
  // Stage is not recorded, so a graph waits for and records these events anew at each launch.
  const bool in_graph = is_capturing(cuda.stream.get());
  CUDA_CHECK(cudaStreamWaitEvent(cuda.stream.get(), cuda.staged.get(),
                                 in_graph ? cudaEventWaitExternal : cudaEventWaitDefault));
  CUDA_CHECK(
      cudaMemcpyAsync(dst.data, staged.data, dst.bytes(), cudaMemcpyDeviceToDevice, cuda.stream.get()));
  CUDA_CHECK(cudaEventRecordWithFlags(cuda.received.get(), cuda.stream.get(),
                                      in_graph ? cudaEventRecordExternal : cudaEventRecordDefault));
}

}  // namespace stepladder
