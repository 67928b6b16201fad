// Loads and stores that convert: memory holds f32, bf16 or f16, arithmetic is f32. A store rounds to nearest
// even.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

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

/// kN elements that one instruction moves.
template <class T, int kN>
struct alignas(kN * sizeof(T)) Wide {
  static_assert(kN * sizeof(T) <= 16);
  T at[kN];
};

/// x = kN elements in one access; `from` is aligned to all of them.
template <int kN, class T>
__device__ void load(float (&x)[kN], const T* from) {
  const auto wide = *reinterpret_cast<const Wide<T, kN>*>(from);
#pragma unroll
  for (int k = 0; k < kN; ++k) x[k] = load(wide.at + k);
}

/// kN elements = x in one access; `to` is aligned to all of them.
template <int kN, class T>
__device__ void store(T* to, const float (&x)[kN]) {
  Wide<T, kN> wide;
#pragma unroll
  for (int k = 0; k < kN; ++k) store(wide.at + k, x[k]);
  *reinterpret_cast<Wide<T, kN>*>(to) = wide;
}

}  // namespace stepladder
