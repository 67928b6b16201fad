// Building blocks of the fused kernels: elements in packs of 128 bits.
//
// A kernel has the width of its packs as a template parameter: as many elements as 128 bits hold, or one, for
// rows that do not start on 16 bytes and for OpsOptions::wide_access = false. Nothing else differs.
#pragma once

#include <cuda_pipeline_primitives.h>

#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "model/cuda/half.cuh"
#include "model/tensor.h"

namespace stepladder {

/// Bytes of the widest access to memory.
constexpr int kWideBytes = 16;
/// Elements of the widest access.
template <class T>
constexpr int kWide = kWideBytes / static_cast<int>(sizeof(T));

/// Whether all `pointers` are aligned for 128-bit accesses. A null pointer counts as aligned.
template <class... T>
bool aligned(const T*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % kWideBytes == 0) && ...);
}

/// Two 16-bit floats as a word, `low` first in memory; the hardware rounds both at once.
template <class T>
__device__ uint32_t narrow_pair(float low, float high) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return std::bit_cast<uint32_t>(static_cast<__nv_bfloat162_raw>(__floats2bfloat162_rn(low, high)));
  } else {
    return std::bit_cast<uint32_t>(static_cast<__half2_raw>(__floats2half2_rn(low, high)));
  }
}

/// kWidth neighbours, moved in one access and kept as stored until they are used: 16-bit elements then take
/// half the registers of floats. `from` and `to` are aligned to the pack. Half a pack of 16-bit elements
/// matches a whole pack of floats.
template <class T, int kWidth>
class Pack {
  static constexpr int kBytes = kWidth * static_cast<int>(sizeof(T));
  static_assert(kWidth == 1 || kBytes == kWideBytes || kBytes == kWideBytes / 2);
  using Scalar = std::conditional_t<sizeof(T) == 2, unsigned short, unsigned int>;
  using Vector = std::conditional_t<kBytes == kWideBytes, uint4, uint2>;
  using Bits = std::conditional_t<kWidth == 1, Scalar, Vector>;

 public:
  static __device__ Pack load(const T* from) {
    Pack p;
    p.bits_ = *reinterpret_cast<const Bits*>(from);
    return p;
  }
  /// load() of elements that are not needed again soon: their cache lines are evicted first.
  static __device__ Pack load_once(const T* from) {
    Pack p;
    p.bits_ = __ldcs(reinterpret_cast<const Bits*>(from));
    return p;
  }
  /// *to, in shared memory, = the pack at `from`: this thread may read it after __pipeline_wait_prior(). From
  /// sm_80 on the copy takes no registers (cp.async). A pack of less than 4 bytes is copied at once.
  static __device__ void copy_async(Pack* to, const T* from) {
    if constexpr (kBytes >= 4) {
      __pipeline_memcpy_async(to, from, kBytes);
    } else {
      *to = load(from);
    }
  }
  __device__ void store(T* to) const { *reinterpret_cast<Bits*>(to) = bits_; }

  __device__ void get(float (&x)[kWidth]) const {
    if constexpr (sizeof(T) == sizeof(float)) {
      const auto values = std::bit_cast<std::array<float, kWidth>>(bits_);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) x[i] = values[i];
    } else if constexpr (kWidth == 1) {
      x[0] = widen(T{bits_});
    } else {
      const auto words = std::bit_cast<std::array<uint32_t, kWidth / 2>>(bits_);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) x[i] = widen(T{static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16))});
    }
  }
  /// x rounded to T.
  static __device__ Pack of(const float (&x)[kWidth]) {
    Pack p;
    if constexpr (kWidth == 1) {
      p.bits_ = std::bit_cast<Bits>(narrow<T>(x[0]));
    } else if constexpr (sizeof(T) == sizeof(float)) {
      p.bits_ = std::bit_cast<Bits>(std::array<float, kWidth>{x[0], x[1], x[2], x[3]});
    } else {
      std::array<uint32_t, kWidth / 2> words;
#pragma unroll
      for (int i = 0; i < kWidth / 2; ++i) words[i] = narrow_pair<T>(x[2 * i], x[2 * i + 1]);
      p.bits_ = std::bit_cast<Bits>(words);
    }
    return p;
  }

 private:
  Bits bits_;
};

/// f({x[0][i], x[1][i], ...})
template <class F, int kOperands, int kWidth>
__device__ float apply(const F& f, const float (&x)[kOperands][kWidth], int i) {
  float of_element[kOperands];
#pragma unroll
  for (int k = 0; k < kOperands; ++k) of_element[k] = x[k][i];
  return f(of_element);
}

/// Waits until at most `pending` of this thread's committed groups of copies are still on their way. The
/// library's wait alone does not keep the compiler from moving reads before the wait.
__device__ inline void await_copies(int pending) {
  __pipeline_wait_prior(pending);
  asm volatile("" ::: "memory");
}

/// Whether every row of `cols` elements of each tensor starts on 16 bytes; empty tensors are ignored.
inline bool wide_rows(int64_t cols, std::initializer_list<Tensor> tensors) {
  for (const Tensor& t : tensors)
    if (reinterpret_cast<uintptr_t>(t.data) % kWideBytes != 0 ||
        cols * static_cast<int64_t>(size_of(t.dtype)) % kWideBytes != 0)
      return false;
  return true;
}

/// f(T{}, std::integral_constant<int, kWidth>{}) for the C++ type T of a floating dtype and the width of a
/// pack.
template <class F>
void with_pack(DType dtype, bool wide, F&& f) {
  with_float_type(dtype, [&](auto type) {
    if (wide) {
      f(type, std::integral_constant<int, kWideBytes / static_cast<int>(sizeof(type))>{});
    } else {
      f(type, std::integral_constant<int, 1>{});
    }
  });
}

/// with_pack() for operands of one type, with rows of equal length: wide if `wide_access` is set and all rows
/// start on 16 bytes.
template <class F>
void with_pack(std::initializer_list<Tensor> operands, bool wide_access, F&& f) {
  const Tensor& first = *operands.begin();
  with_pack(first.dtype, wide_access && wide_rows(first.cols(), operands), std::forward<F>(f));
}

/// 2^x within 2^-22 of its value, 0 where 2^x is subnormal: the instruction behind the fused kernels'
/// exponentials.
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// e^x = 2^(kLog2E x)
constexpr float kLog2E = 1.44269504F;

}  // namespace stepladder
