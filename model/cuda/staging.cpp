// Prefetching batches: a second stream copies the next batch while the ops of this step run.
#include <algorithm>

#include "model/cuda/cuda_ops.h"
#include "model/cuda/range.h"

namespace stepladder {
std::shared_ptr<void> CudaOps::allocate_host(size_t bytes) {
  void* block = nullptr;
  const cudaError_t error = cudaHostAlloc(&block, std::max<size_t>(bytes, 1), cudaHostAllocDefault);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw OutOfMemoryError(cat("out of page-locked host memory: ", bytes, " bytes wanted"));
  }
  CUDA_CHECK(error);
  return {block, [](void* p) { CUDA_CHECK_NOEXCEPT(cudaFreeHost(p)); }};
}

void CudaOps::stage(Tensor staged, const void* pinned) {
  const Range range("stage");
  CUDA_CHECK(cudaEventSynchronize(staged_.get()));
  CUDA_CHECK(cudaStreamWaitEvent(copy_stream_.get(), received_.get(), cudaEventWaitDefault));
  CUDA_CHECK(
      cudaMemcpyAsync(staged.data, pinned, staged.bytes(), cudaMemcpyHostToDevice, copy_stream_.get()));
  CUDA_CHECK(cudaEventRecord(staged_.get(), copy_stream_.get()));
}

void CudaOps::receive(Tensor dst, Tensor staged) {
  const Range range("receive");
  check(dst.shape == staged.shape && dst.dtype == staged.dtype, "receive: ", dst, " from ", staged);
  // stage() is not recorded, so a graph waits for and records these events anew at each launch.
  const bool in_graph = is_capturing(stream_.get());
  CUDA_CHECK(cudaStreamWaitEvent(stream_.get(), staged_.get(),
                                 in_graph ? cudaEventWaitExternal : cudaEventWaitDefault));
  CUDA_CHECK(cudaMemcpyAsync(dst.data, staged.data, dst.bytes(), cudaMemcpyDeviceToDevice, stream_.get()));
  CUDA_CHECK(cudaEventRecordWithFlags(received_.get(), stream_.get(),
                                      in_graph ? cudaEventRecordExternal : cudaEventRecordDefault));
}

}  // namespace stepladder
