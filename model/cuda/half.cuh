// Conversions at loads and stores: memory holds f32, bf16 or f16, arithmetic is f32. A store rounds to
// nearest even.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "model/tensor.h"

namespace stepladder {

__device__ inline float widen(float x) {
  return x;
}
__device__ inline float widen(BFloat16 x) {
  return __uint_as_float(uint32_t{x.bits} << 16);
}
__device__ inline float widen(Float16 x) {
  return __half2float(__half_raw{x.bits});
}

/// x rounded to T.
template <class T>
__device__ T narrow(float x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return {static_cast<__nv_bfloat16_raw>(__float2bfloat16_rn(x)).x};
  } else if constexpr (std::is_same_v<T, Float16>) {
    return {static_cast<__half_raw>(__float2half_rn(x)).x};
  } else {
    return x;
  }
}

template <class T>
__device__ float load(const T* from) {
  return widen(*from);
}
template <class T>
__device__ void store(T* to, float x) {
  *to = narrow<T>(x);
}

}  // namespace stepladder
