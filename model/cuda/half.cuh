// Loads and stores that convert: memory holds f32, bf16 or f16, arithmetic is f32. A store rounds to nearest
// even.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

#include "model/tensor.h"

namespace stepladder {

__device__ inline float load(const float* from) {
  return *from;
}
__device__ inline float load(const BFloat16* from) {
  return __uint_as_float(uint32_t{from->bits} << 16);
}
__device__ inline float load(const Float16* from) {
  return __half2float(__ushort_as_half(from->bits));
}

__device__ inline void store(float* to, float x) {
  *to = x;
}
__device__ inline void store(BFloat16* to, float x) {
  to->bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
__device__ inline void store(Float16* to, float x) {
  to->bits = __half_as_ushort(__float2half_rn(x));
}

}  // namespace stepladder
