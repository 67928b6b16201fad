// Causal attention without the (T,T) matrix (Dao et al. 2022, Dao 2023), on tensor cores from sm_75 on.
//
//   S = Q K^T,  P = softmax(scale * S) over s <= t,  O = P V,  scale = 1/sqrt(HS)
//   dV = P^T dO,  dP = dO V^T,  dS = P * (dP - D),  D = rowsum(dO * O)
//   dQ = scale * dS K,  dK = scale * dS^T Q
//
// A block of four warps has 64 queries (or keys) of one head, 16 to a warp, and walks over the tiles of keys
// (or queries) that causality leaves. S, P, dP and dS live in registers only: an accumulator's layout is that
// of the next multiplication's left operand. Nothing is summed by atomics: dQ has a kernel of its own, so the
// same operands give the same bits. Exponentials are to base 2, with scale * log2(e) in their argument.
//
// Rows beyond T and columns beyond HS are zeros in shared memory; causality keeps keys beyond T out.
#include <cmath>
#include <type_traits>

#include "model/cuda/fused_attention.h"
#include "model/cuda/kernels.cuh"
#include "model/cuda/wide.cuh"

namespace stepladder {
namespace {

constexpr int kWarps = 4;
constexpr int kRows = 16 * kWarps;  // queries or keys of a block

/// Distance between rows in shared memory, such that eight successive rows start in different banks.
template <int kHS>
constexpr int kStride = kHS + 8;

/// Rows of a tile that a backward kernel walks over: as many as fit into sm_75's 64 KB beside the block's own
/// rows.
template <int kHS>
constexpr int kWalked = kHS <= 64 ? 64 : 32;

struct Heads {
  int T, NH, HS, tiles;  // tiles of kRows in T
  float scale;
};

/// Copies 16 bytes to shared memory, or writes 16 zero bytes; asynchronous from sm_80 on. The library's copy
/// takes the number of zeros at compile time only.
__device__ void copy_or_zero(void* to, const void* from, bool inside) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(inside ? 16 : 0)
               : "memory");
#else
  *static_cast<uint4*>(to) = inside ? *static_cast<const uint4*>(from) : uint4{};
#endif
}

/// Copies rows [first, first + kCount) of x, `distance` elements apart, to a tile (kCount,kHS).
template <int kHS, int kCount, class T>
__device__ void load_tile(T* tile, const T* x, int64_t distance, int first, const Heads& heads) {
  constexpr int kChunks = kHS / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kCount * kChunks; i += 32 * kWarps) {
    const int row = i / kChunks, c = i % kChunks * 8;
    const bool inside = first + row < heads.T && c < heads.HS;
    copy_or_zero(tile + row * kStride<kHS> + c, inside ? x + (first + row) * distance + c : x, inside);
  }
}

// ---- tensor cores: fragments as the PTX manual lays them out over a warp, g = lane / 4, q = lane % 4.
// An accumulator (16,8) holds elements (g,2q), (g,2q+1), (g+8,2q), (g+8,2q+1).

/// c (16,8) += a (16,16) b (16,8). sm_75's instruction has half the depth, so two are used.
template <class T>
__device__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, Float16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  if constexpr (std::is_same_v<T, Float16>) {
    const auto half = [&](uint32_t a0, uint32_t a1, uint32_t b) {
      asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a0), "r"(a1), "r"(b));
    };
    half(a[0], a[1], b0);
    half(a[2], a[3], b1);
  } else {
    __trap();  // sm_75 has no bf16: the op refuses it
  }
#endif
}

/// A left operand (16,kHS), in the registers of a warp. (nvcc 12.4 dies on alias templates of arrays.)
template <int kHS>
struct Left {
  __device__ uint32_t (&operator[](int k))[4] { return registers[k]; }
  __device__ const uint32_t (&operator[](int k) const)[4] { return registers[k]; }
  uint32_t registers[kHS / 16][4];
};
/// An accumulator (16,kCols), in the registers of a warp.
template <int kCols>
struct Accumulator {
  __device__ float (&operator[](int n))[4] { return registers[n]; }
  __device__ const float (&operator[](int n) const)[4] { return registers[n]; }
  float registers[kCols / 8][4];
};

/// a = the warp's 16 rows of a tile.
template <int kHS, class T>
__device__ void load_left(Left<kHS>& a, const T* tile) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const T* row = tile + (16 * warp + lane % 16) * kStride<kHS> + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kHS / 16; ++k) load_matrices<false>(a[k], row + 16 * k);
}

/// c (16,kCols) = a (16,kHS) x^T, x a tile (kCols,kHS).
template <int kHS, int kCols, class T>
__device__ void multiply_transposed(Accumulator<kCols>& c, const Left<kHS>& a, const T* x) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const T* row = x + (lane / 16 * 8 + lane % 8) * kStride<kHS> + lane / 8 % 2 * 8;
#pragma unroll
  for (int n = 0; n < kCols / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) c[n][i] = 0.0F;
#pragma unroll
  for (int k = 0; k < kHS / 16; ++k) {
#pragma unroll
    for (int n = 0; n < kCols / 8; n += 2) {
      uint32_t b[4];
      load_matrices<false>(b, row + 8 * n * kStride<kHS> + 16 * k);
      mma<T>(c[n], a[k], b[0], b[1]);
      mma<T>(c[n + 1], a[k], b[2], b[3]);
    }
  }
}

/// c (16,kHS) += p (16,kCols) x, p rounded to 16 bits, x a tile (kCols,kHS).
template <int kHS, int kCols, class T>
__device__ void multiply(Accumulator<kHS>& c, const Accumulator<kCols>& p, const T* x) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const T* row = x + lane % 16 * kStride<kHS> + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kCols / 16; ++k) {
    const float(&left)[4] = p[2 * k], (&right)[4] = p[2 * k + 1];
    const uint32_t a[4] = {narrow_pair<T>(left[0], left[1]), narrow_pair<T>(left[2], left[3]),
                           narrow_pair<T>(right[0], right[1]), narrow_pair<T>(right[2], right[3])};
#pragma unroll
    for (int n = 0; n < kHS / 8; n += 2) {
      uint32_t b[4];
      load_matrices<true>(b, row + 16 * k * kStride<kHS> + 8 * n);
      mma<T>(c[n], a, b[0], b[1]);
      mma<T>(c[n + 1], a, b[2], b[3]);
    }
  }
}

/// Stores factor * c as the warp's 16 of rows [first, first + kRows) of y. The values go through the warp's
/// rows of a tile that is no longer needed, so that whole lines are written instead of pairs.
template <int kHS, class T>
__device__ void store_rows(T* y, int64_t distance, int first, const Accumulator<kHS>& c,
                           const float (&factor)[2], T* tile, const Heads& heads) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  T* rows = tile + 16 * warp * kStride<kHS>;
  __syncwarp();
#pragma unroll
  for (int n = 0; n < kHS / 8; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      T* pair = rows + (lane / 4 + 8 * r) * kStride<kHS> + 8 * n + lane % 4 * 2;
      *reinterpret_cast<uint32_t*>(pair) =
          narrow_pair<T>(c[n][2 * r] * factor[r], c[n][2 * r + 1] * factor[r]);
    }
  }
  __syncwarp();
  constexpr int kChunks = kHS / 8;
#pragma unroll
  for (int i = lane; i < 16 * kChunks; i += 32) {
    const int row = i / kChunks, at = i % kChunks * 8, t = first + 16 * warp + row;
    if (t < heads.T && at < heads.HS)
      *reinterpret_cast<uint4*>(y + t * distance + at) =
          *reinterpret_cast<const uint4*>(rows + row * kStride<kHS> + at);
  }
}

// ---- kernels; qkv and dqkv (B,T,3C), out and dout (B,T,C), lse and delta (B,NH,T), C = NH*HS

/// The head and the tile that a block computes, and where the head lies.
struct Place {
  int64_t b, h;
  int tile;
  int64_t C, qkv, out, row;  // C, and offsets of (b,0,h,0) in qkv, in out and of (b,h,0) in lse

  __device__ explicit Place(const Heads& heads) {
    const int64_t bh = blockIdx.x / heads.tiles;
    tile = static_cast<int>(blockIdx.x % heads.tiles);
    b = bh / heads.NH, h = bh % heads.NH;
    C = static_cast<int64_t>(heads.NH) * heads.HS;
    out = b * heads.T * C + h * heads.HS;
    qkv = b * heads.T * 3 * C + h * heads.HS;
    row = bh * heads.T;
  }
};

template <int kHS>
constexpr size_t kForwardShared = 3 * kRows* kStride<kHS> * sizeof(uint16_t);

// O = P V, lse = log sum_s exp(scale * S). The maximum and the sum of a row are kept as tiles of keys come
// by, and the sums so far are scaled down when the maximum grows.
template <class T, int kHS>
__global__ void __launch_bounds__(32 * kWarps)
    forward_kernel(T* __restrict__ out, float* __restrict__ lse, const T* qkv, Heads heads) {
  await_predecessor();
  extern __shared__ uint4 shared[];
  T* Q = reinterpret_cast<T*>(shared);
  T* K = Q + kRows * kStride<kHS>;
  T* V = K + kRows * kStride<kHS>;
  const Place at(heads);
  const T *q = qkv + at.qkv, *k = q + at.C, *v = k + at.C;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int last = heads.tiles - 1 - at.tile, first = last * kRows;  // long rows first
  const int query = first + 16 * warp + lane / 4;                    // and query + 8
  const float scale2 = heads.scale * kLog2E;

  load_tile<kHS, kRows>(Q, q, 3 * at.C, first, heads);
  load_tile<kHS, kRows>(K, k, 3 * at.C, 0, heads);
  __pipeline_commit();
  load_tile<kHS, kRows>(V, v, 3 * at.C, 0, heads);
  __pipeline_commit();

  Left<kHS> Q_left;
  Accumulator<kHS> O = {};
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  for (int tile = 0; tile <= last; ++tile) {
    await_copies(1);
    __syncthreads();  // K is there
    if (tile == 0) load_left<kHS>(Q_left, Q);
    Accumulator<kRows> S;
    multiply_transposed<kHS, kRows>(S, Q_left, K);
    await_copies(0);
    __syncthreads();  // K is no longer needed, V is there
    if (tile < last) load_tile<kHS, kRows>(K, k, 3 * at.C, (tile + 1) * kRows, heads);
    __pipeline_commit();

    if (tile == last) {
#pragma unroll
      for (int n = 0; n < kRows / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (tile * kRows + 8 * n + lane % 4 * 2 + i % 2 > query + i / 2 * 8) S[n][i] = -INFINITY;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float new_max = max[r];
#pragma unroll
      for (int n = 0; n < kRows / 8; ++n) new_max = fmaxf(new_max, fmaxf(S[n][2 * r], S[n][2 * r + 1]));
      new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffffU, new_max, 1));
      new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffffU, new_max, 2));
      const float shrink = exp2_fast((max[r] - new_max) * scale2), shift = new_max * scale2;
      max[r] = new_max;
      sum[r] *= shrink;
#pragma unroll
      for (int n = 0; n < kRows / 8; ++n) {
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i) {
          S[n][i] = exp2_fast(fmaf(S[n][i], scale2, -shift));  // P, before division by the row's sum
          sum[r] += S[n][i];
        }
      }
#pragma unroll
      for (int n = 0; n < kHS / 8; ++n) O[n][2 * r] *= shrink, O[n][2 * r + 1] *= shrink;
    }
    multiply<kHS, kRows>(O, S, V);
    __syncthreads();  // V is no longer needed
    if (tile < last) load_tile<kHS, kRows>(V, v, 3 * at.C, (tile + 1) * kRows, heads);
    __pipeline_commit();
  }

  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] += __shfl_xor_sync(0xffffffffU, sum[r], 1);
    sum[r] += __shfl_xor_sync(0xffffffffU, sum[r], 2);
    factor[r] = 1.0F / sum[r];
    if (lane % 4 == 0 && query + 8 * r < heads.T)
      lse[at.row + query + 8 * r] = max[r] * heads.scale + logf(sum[r]);
  }
  store_rows<kHS>(out + at.out, at.C, first, O, factor, Q, heads);
}

// delta = D = rowsum(dO * O); a thread has a row of a head.
template <class T>
__global__ void __launch_bounds__(kThreads)
    delta_kernel(float* delta, const T* dout, const T* out, int64_t n, Heads heads) {
  await_predecessor();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;  // (b * T + t) * NH + h
  if (i >= n) return;
  const int64_t h = i % heads.NH, bt = i / heads.NH, b = bt / heads.T, t = bt % heads.T;
  float sum = 0.0F;
  for (int64_t at = i * heads.HS; at < (i + 1) * heads.HS; at += 8) {
    float x[8], y[8];
    Pack<T, 8>::load(dout + at).get(x);
    Pack<T, 8>::load(out + at).get(y);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += x[j] * y[j];
  }
  delta[(b * heads.NH + h) * heads.T + t] = sum;
}

template <int kHS>
constexpr size_t kBackwardShared = 2 * (kRows + kWalked<kHS>)*kStride<kHS> * sizeof(uint16_t) +
                                   2 * kWalked<kHS> * sizeof(float);

// dV = P^T dO and dK = scale * dS^T Q of 64 keys, over the queries from the first of these keys on. Rows of
// the fragments are keys and columns queries: the fragments hold S^T, P^T, dP^T and dS^T.
template <class T, int kHS>
__global__ void __launch_bounds__(32 * kWarps)
    key_value_backward_kernel(T* __restrict__ dqkv, const T* dout, const float* lse, const float* delta,
                              const T* qkv, Heads heads) {
  await_predecessor();
  constexpr int kQueries = kWalked<kHS>;
  extern __shared__ uint4 shared[];
  T* K = reinterpret_cast<T*>(shared);
  T* V = K + kRows * kStride<kHS>;
  T* Q = V + kRows * kStride<kHS>;
  T* dO = Q + kQueries * kStride<kHS>;
  auto* lse2 = reinterpret_cast<float*>(dO + kQueries * kStride<kHS>);
  float* D = lse2 + kQueries;
  const Place at(heads);
  const T *q = qkv + at.qkv, *k = q + at.C, *v = k + at.C;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int first = at.tile * kRows, key = first + 16 * warp + lane / 4;  // and key + 8
  const float scale2 = heads.scale * kLog2E;

  const auto load_dO = [&](int from) {  // also loads lse and D of the same queries
    load_tile<kHS, kQueries>(dO, dout + at.out, at.C, from, heads);
    const int i = static_cast<int>(threadIdx.x), t = from + i;
    if (i < kQueries) {
      lse2[i] = t < heads.T ? lse[at.row + t] * kLog2E : INFINITY;  // P = 0 beyond T
      D[i] = t < heads.T ? delta[at.row + t] : 0.0F;
    }
  };
  load_tile<kHS, kRows>(K, k, 3 * at.C, first, heads);
  load_tile<kHS, kRows>(V, v, 3 * at.C, first, heads);
  load_tile<kHS, kQueries>(Q, q, 3 * at.C, first, heads);
  load_dO(first);
  __pipeline_commit();

  Accumulator<kHS> dK = {}, dV = {};
  for (int from = first; from < heads.T; from += kQueries) {
    const bool more = from + kQueries < heads.T;
    await_copies(0);
    __syncthreads();
    Accumulator<kQueries> P, dS;
    Left<kHS> left;
    load_left<kHS>(left, K);
    multiply_transposed<kHS, kQueries>(P, left, Q);  // S^T
    load_left<kHS>(left, V);
    multiply_transposed<kHS, kQueries>(dS, left, dO);  // dP^T
    const bool diagonal = from < first + kRows;
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int query = 8 * n + lane % 4 * 2 + i % 2;
        P[n][i] = exp2_fast(fmaf(P[n][i], scale2, -lse2[query]));
        if (diagonal && key + i / 2 * 8 > from + query) P[n][i] = 0.0F;
        dS[n][i] = P[n][i] * (dS[n][i] - D[query]);
      }
    }
    multiply<kHS, kQueries>(dV, P, dO);
    __syncthreads();  // dO is no longer needed
    if (more) load_dO(from + kQueries);
    multiply<kHS, kQueries>(dK, dS, Q);
    __syncthreads();  // Q is no longer needed
    if (more) load_tile<kHS, kQueries>(Q, q, 3 * at.C, from + kQueries, heads);
    __pipeline_commit();
  }

  T* dk = dqkv + at.qkv + at.C;
  store_rows<kHS>(dk, 3 * at.C, first, dK, {heads.scale, heads.scale}, K, heads);
  store_rows<kHS>(dk + at.C, 3 * at.C, first, dV, {1.0F, 1.0F}, V, heads);
}

// dQ = scale * dS K of 64 queries, over the keys up to the last of these queries.
template <class T, int kHS>
__global__ void __launch_bounds__(32 * kWarps)
    query_backward_kernel(T* __restrict__ dqkv, const T* dout, const float* lse, const float* delta,
                          const T* qkv, Heads heads) {
  await_predecessor();
  constexpr int kKeys = kWalked<kHS>;
  extern __shared__ uint4 shared[];
  T* Q = reinterpret_cast<T*>(shared);
  T* dO = Q + kRows * kStride<kHS>;
  T* K = dO + kRows * kStride<kHS>;
  T* V = K + kKeys * kStride<kHS>;
  const Place at(heads);
  const T *q = qkv + at.qkv, *k = q + at.C, *v = k + at.C;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int first = (heads.tiles - 1 - at.tile) * kRows;  // long rows first
  const int query = first + 16 * warp + lane / 4;         // and query + 8
  const int end = min(first + kRows, heads.T);            // end of the keys
  const float scale2 = heads.scale * kLog2E;

  load_tile<kHS, kRows>(Q, q, 3 * at.C, first, heads);
  load_tile<kHS, kRows>(dO, dout + at.out, at.C, first, heads);
  load_tile<kHS, kKeys>(K, k, 3 * at.C, 0, heads);
  load_tile<kHS, kKeys>(V, v, 3 * at.C, 0, heads);
  __pipeline_commit();

  float lse2[2], D[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool inside = query + 8 * r < heads.T;
    lse2[r] = inside ? lse[at.row + query + 8 * r] * kLog2E : INFINITY;  // P = 0 beyond T
    D[r] = inside ? delta[at.row + query + 8 * r] : 0.0F;
  }

  Accumulator<kHS> dQ = {};
  for (int from = 0; from < end; from += kKeys) {
    const bool more = from + kKeys < end;
    await_copies(0);
    __syncthreads();
    Accumulator<kKeys> S, dS;
    Left<kHS> left;
    load_left<kHS>(left, Q);
    multiply_transposed<kHS, kKeys>(S, left, K);
    load_left<kHS>(left, dO);
    multiply_transposed<kHS, kKeys>(dS, left, V);  // dP
    const bool diagonal = from + kKeys > first;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = i / 2;
        float P = exp2_fast(fmaf(S[n][i], scale2, -lse2[r]));
        if (diagonal && from + 8 * n + lane % 4 * 2 + i % 2 > query + 8 * r) P = 0.0F;
        dS[n][i] = P * (dS[n][i] - D[r]);
      }
    }
    __syncthreads();  // V is no longer needed
    if (more) load_tile<kHS, kKeys>(V, v, 3 * at.C, from + kKeys, heads);
    multiply<kHS, kKeys>(dQ, dS, K);
    __syncthreads();  // K is no longer needed
    if (more) load_tile<kHS, kKeys>(K, k, 3 * at.C, from + kKeys, heads);
    __pipeline_commit();
  }
  store_rows<kHS>(dqkv + at.qkv, 3 * at.C, first, dQ, {heads.scale, heads.scale}, Q, heads);
}

// ---- launchers

/// f(T{}, std::integral_constant<int, kHS>{}), kHS the least of 32, 64 and 128 that HS fits.
template <class F>
void with_kernel(const AttentionShape& shape, F f) {
  const auto with_type = [&](auto type) {
    if (shape.HS <= 32) return f(type, std::integral_constant<int, 32>{});
    if (shape.HS <= 64) return f(type, std::integral_constant<int, 64>{});
    return f(type, std::integral_constant<int, 128>{});
  };
  if (shape.dtype == DType::f16)
    with_type(Float16{});
  else
    with_type(BFloat16{});
}

Heads heads_of(const AttentionShape& shape) {
  return {.T = column_count(shape.T),
          .NH = column_count(shape.NH),
          .HS = static_cast<int>(shape.HS),
          .tiles = static_cast<int>(ceil_div(shape.T, kRows)),
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.HS)))};
}

/// Launches one block for each tile of each head.
template <class... Parameters, class... Args>
void launch_tiles(Queue& queue, void (*kernel)(Parameters...), size_t shared, const AttentionShape& shape,
                  Args... args) {
  constexpr size_t kWithoutAsking = 48 << 10;
  if (shared > kWithoutAsking)
    CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)));
  const Heads heads = heads_of(shape);
  launch(queue, kernel, grid_size(shape.B * shape.NH * heads.tiles), 32 * kWarps, shared, args..., heads);
}

}  // namespace

void flash_attention_forward(Queue& queue, const AttentionShape& shape, Tensor out, Tensor lse, Tensor qkv) {
  with_kernel(shape, [&]<class T>(T, auto size) {
    constexpr int kHS = size;
    launch_tiles(queue, forward_kernel<T, kHS>, kForwardShared<kHS>, shape, out.ptr<T>(), lse.ptr<float>(),
                 qkv.ptr<T>());
  });
}

void flash_attention_backward(Queue& queue, const AttentionShape& shape, Tensor dqkv, Tensor dout, Tensor out,
                              Tensor lse, Tensor qkv, Tensor delta) {
  const int64_t rows = shape.B * shape.T * shape.NH;
  check(delta.numel() >= rows, "attention_backward: scratch for ", delta.numel(), " rows, wanted ", rows);
  with_kernel(shape, [&]<class T>(T, auto size) {
    constexpr int kHS = size;
    launch(queue, delta_kernel<T>, grid_size(ceil_div(rows, kThreads)), kThreads, 0, delta.ptr<float>(),
           dout.ptr<T>(), out.ptr<T>(), rows, heads_of(shape));
    launch_tiles(queue, key_value_backward_kernel<T, kHS>, kBackwardShared<kHS>, shape, dqkv.ptr<T>(),
                 dout.ptr<T>(), lse.ptr<float>(), delta.ptr<float>(), qkv.ptr<T>());
    launch_tiles(queue, query_backward_kernel<T, kHS>, kBackwardShared<kHS>, shape, dqkv.ptr<T>(),
                 dout.ptr<T>(), lse.ptr<float>(), delta.ptr<float>(), qkv.ptr<T>());
  });
}

}  // namespace stepladder
