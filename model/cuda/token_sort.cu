// Sorting of tokens, alone in this file because CUB is slow to compile.
#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "model/cuda/cuda.h"
#include "model/cuda/kernels.cuh"

namespace stepladder {
namespace {

__global__ void __launch_bounds__(kThreads) iota_kernel(int32_t* out, int n) {
  await_predecessor();
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i < n) out[i] = i;
}

}  // namespace

size_t Cuda::sort_bytes(int64_t n, int64_t V) {
  size_t bytes = 0;
  const int32_t* in = nullptr;
  int32_t* out = nullptr;
  CUDA_CHECK(cub::DeviceRadixSort::SortPairs(nullptr, bytes, in, out, in, out, static_cast<int>(n), 0,
                                             std::bit_width(static_cast<uint64_t>(V))));
  return bytes;
}

void Cuda::sort_tokens(const int32_t* tokens, int64_t n, int64_t V) {
  const int count = column_count(n);
  int32_t* unsorted = positions.ptr<int32_t>();
  launch(queue, iota_kernel, grid_size(ceil_div(n, kThreads)), kThreads, 0, unsorted, count);

  // The sort is stable and looks only at the bits that a token below V can have.
  size_t bytes = sort_scratch.bytes();
  CUDA_CHECK(cub::DeviceRadixSort::SortPairs(sort_scratch.data, bytes, tokens, sorted_tokens.ptr<int32_t>(),
                                             unsorted, sorted_positions.ptr<int32_t>(), count, 0,
                                             std::bit_width(static_cast<uint64_t>(V)), stream.get()));
}

}  // namespace stepladder
