// FP8 as kernels make it: rounded two at a time, and the largest magnitude of a tensor.
#pragma once

#include <cuda_fp8.h>

#include <cstdint>

namespace stepladder {

/// Two FP8 numbers, `low` in the lower byte, saturated; NaN for what is not finite.
template <class Q>
__device__ uint32_t fp8_pair(float low, float high) {
  constexpr auto kKind = Q::kMantissa == 3 ? __NV_E4M3 : __NV_E5M2;
  // x - x is 0, or NaN where x is infinite, which saturating would hide.
  return __nv_cvt_float2_to_fp8x2(float2{low + (low - low), high + (high - high)}, __NV_SATFINITE, kKind);
}

/// The larger of two magnitudes as bits, NaN above all.
__device__ inline uint32_t raise(uint32_t amax, float x) {
  return max(amax, __float_as_uint(x) & 0x7FFFFFFFU);
}

/// *amax = max(*amax, that of the block); it has whole warps, all of which take part.
__device__ inline void raise_over_block(float* amax, uint32_t mine) {
  __shared__ uint32_t of_warp[32];
  for (int mask = 16; mask > 0; mask /= 2) mine = max(mine, __shfl_xor_sync(0xffffffffU, mine, mask));
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int i = 1; i < static_cast<int>(blockDim.x / 32); ++i) mine = max(mine, of_warp[i]);
  atomicMax(reinterpret_cast<unsigned int*>(amax), mine);
}

}  // namespace stepladder
