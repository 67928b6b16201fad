// Rounding to FP8, the largest magnitude of a tensor, and transposing FP8 in shared memory.
#pragma once

#include <cuda_fp8.h>

#include <cstdint>

#include "model/cuda/kernels.cuh"
#include "model/cuda/wide.cuh"

namespace stepladder {

class Cuda;

/// Two FP8 numbers, `low` in the lower byte, saturated, infinities too.
template <class Q>
__device__ uint32_t fp8_pair(float low, float high) {
  constexpr auto kKind = Q::kMantissa == 3 ? __NV_E4M3 : __NV_E5M2;
  return __nv_cvt_float2_to_fp8x2(float2{low, high}, __NV_SATFINITE, kKind);
}
/// Eight FP8 numbers, the first in the lowest byte.
template <class Q>
__device__ uint2 fp8_pack(const float (&v)[8]) {
  const auto word = [&](int i) {
    return fp8_pair<Q>(v[i], v[i + 1]) | fp8_pair<Q>(v[i + 2], v[i + 3]) << 16;
  };
  return {word(0), word(4)};
}

/// x * inv_scale; NaN where x is infinite, since saturation would hide the infinity. The addend -(x - x) is
/// -0 or NaN.
__device__ inline float scaled(float x, float inv_scale) {
  return fmaf(x, inv_scale, -(x - x));
}
/// fp8_pack() of v * inv_scale, NaN where v is not finite.
template <class Q>
__device__ uint2 fp8_pack(const float (&v)[8], float inv_scale) {
  float of_scale[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) of_scale[i] = scaled(v[i], inv_scale);
  return fp8_pack<Q>(of_scale);
}

/// v = the eight FP8 numbers that fp8_pack() packed.
template <class Q>
__device__ void fp8_unpack(uint2 packed, float (&v)[8]) {
  constexpr auto kKind = Q::kMantissa == 3 ? __NV_E4M3 : __NV_E5M2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t word = i < 2 ? packed.x : packed.y;
    const auto pair = static_cast<__nv_fp8x2_storage_t>(word >> (i % 2 * 16));
    const float2 both = __half22float2(__half2{__nv_cvt_fp8x2_to_halfraw2(pair, kKind)});
    v[2 * i] = both.x, v[2 * i + 1] = both.y;
  }
}

/// max(amax, |x|), with magnitudes as bits, NaN above all.
__device__ inline uint32_t larger_magnitude(uint32_t amax, float x) {
  return max(amax, __float_as_uint(x) & 0x7FFFFFFFU);
}

/// max(amax, |x|), with magnitudes as floats, NaN above all; one instruction from sm_80 on.
__device__ inline float larger_or_nan(float amax, float x) {
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(amax) : "f"(fabsf(x)));
  return amax;
}

/// *amax = the largest of *amax and of all threads' magnitudes. Every warp of the block must call this,
/// whole.
__device__ inline void update_amax(float* amax, uint32_t mine) {
  __shared__ uint32_t of_warp[32];
  mine = warp_reduce(mine, [](uint32_t a, uint32_t b) { return max(a, b); });
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int i = 1; i < static_cast<int>(blockDim.x / 32); ++i) mine = max(mine, of_warp[i]);
  atomicMax(reinterpret_cast<unsigned int*>(amax), mine);
}

/// The FP8 output of a kernel: rows (N,C) and columns (C,N). Either may be null.
struct Fp8Output {
  uint8_t *rows, *columns;
  const float* scale;
  float* amax;
};

/// Rows and columns of an FP8 matrix are multiples of this: kernels store 16 bytes at a time.
constexpr int kFp8Multiple = 16;

/// q, or qt where q is empty.
inline const Tensor& one_of(const Tensor& q, const Tensor& qt) {
  return q.data ? q : qt;
}

/// The destinations q and qt for values in the shape of x, which holds `layers` matrices. Throws
/// std::invalid_argument unless kernels can access them 128 bits at a time.
inline Fp8Output fp8_output(const char* op, const Tensor& q, const Tensor& qt, const Tensor& x,
                            int64_t layers = 1) {
  const int64_t C = x.cols(), N = x.rows() / layers;
  const Tensor& either = one_of(q, qt);
  check(N % kFp8Multiple == 0 && C % kFp8Multiple == 0 && wide_rows(C, {q, qt, x}), op, ": ", x,
        ": FP8 needs extents that are multiples of ", kFp8Multiple, ": choose another ",
        C % kFp8Multiple != 0 ? "--channels or --model" : "--batch or --seq");
  return {static_cast<uint8_t*>(q.data), static_cast<uint8_t*>(qt.data), either.scale, either.amax};
}

/// dbias (C) += the sum of Cuda::partials (chunks,C) in a fixed order.
void add_partials(Cuda& cuda, const Tensor& dbias, int64_t chunks);  // fp8.cu

/// Neighbouring FP8 rows in shared memory, from which a block writes columns. A thread reads one word of each
/// of 16 rows and writes 16 bytes of each of four columns. Rows are padded to a multiple of 32 words, and
/// words are XOR-swizzled by the group of 16 rows that they are in: the lanes of a warp read different banks.
struct Fp8Tile {
  uint32_t* words;
  int words_of_row;  // words_for(its columns)
  int log2_parts;    // log2 of the number of parts, of 16 rows each; at most 8 parts

  __host__ __device__ static constexpr int words_for(int cols) { return (cols + 127) / 128 * 32; }
  __host__ __device__ int rows() const { return 16 << log2_parts; }
  int bytes() const { return rows() * words_of_row * static_cast<int>(sizeof(uint32_t)); }

  __device__ uint32_t* at(int row, int word) const {
    const int part = row / 16, swizzled = word ^ (part << (5 - log2_parts));
    return words + row * words_of_row + swizzled;
  }
  /// Stores eight neighbours of a row; `col` is a multiple of 8.
  __device__ void put(int row, int col, uint2 bytes) const {
    *reinterpret_cast<uint2*>(at(row, col / 4)) = bytes;
  }
  /// Writes the tile's rows, of which the first is row `first_row`, to columns (cols,N). All warps of the
  /// block, each of them whole, call this after the block has put its rows.
  __device__ void store_columns(uint8_t* columns, int64_t first_row, int64_t N, int cols) const {
    const int parts = 1 << log2_parts;
    for (int i = static_cast<int>(threadIdx.x); i < cols / 4 * parts; i += static_cast<int>(blockDim.x)) {
      const int part = i % parts, word = i / parts;
      const int64_t row = first_row + part * 16;
      if (row >= N) continue;
      uint32_t turned[4][4];  // [column][k]: bytes of four rows
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        uint32_t in[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) in[r] = *at(part * 16 + 4 * k + r, word);
        const uint32_t low01 = __byte_perm(in[0], in[1], 0x5140), low23 = __byte_perm(in[2], in[3], 0x5140);
        const uint32_t high01 = __byte_perm(in[0], in[1], 0x7362), high23 = __byte_perm(in[2], in[3], 0x7362);
        turned[0][k] = __byte_perm(low01, low23, 0x5410), turned[1][k] = __byte_perm(low01, low23, 0x7632);
        turned[2][k] = __byte_perm(high01, high23, 0x5410),
        turned[3][k] = __byte_perm(high01, high23, 0x7632);
      }
#pragma unroll
      for (int c = 0; c < 4; ++c)
        *reinterpret_cast<uint4*>(columns + (int64_t{4} * word + c) * N + row) =
            uint4{turned[c][0], turned[c][1], turned[c][2], turned[c][3]};
    }
  }
};

}  // namespace stepladder
