// Building blocks of the primitive kernels: a map over elements, a map over rows, a sum over each row.
//
// All of them are bound by memory. A thread issues kItems scalar loads, each coalesced over its warp, before
// it uses the first: one load at a time keeps too few bytes in flight to fill HBM.
#pragma once

#include <algorithm>
#include <cfloat>
#include <climits>
#include <cstdint>

#include "model/cuda/cuda_check.h"
#include "model/error.h"
#include "model/tensor.h"

namespace stepladder {

constexpr int kThreads = 256;
constexpr int kMaxThreads = 1024;
constexpr int kItems = 4;

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

inline unsigned grid_size(int64_t blocks) {
  check(blocks <= INT_MAX, blocks, " blocks in a grid, at most ", INT_MAX);
  return static_cast<unsigned>(blocks);
}

/// Columns as the row kernels count them, with room to step past the end.
inline int column_count(int64_t cols) {
  check(cols <= INT_MAX / 2, "a row of ", cols, " elements, at most ", INT_MAX / 2);
  return static_cast<int>(cols);
}

/// Threads of a block that has a row to itself. Few blocks share an SM when rows are long, so that a row is
/// still in L2 when it is read again.
inline unsigned row_threads(int64_t cols) {
  if (cols > 8 * kThreads * kItems) return kMaxThreads;
  return static_cast<unsigned>(32 * std::clamp<int64_t>(ceil_div(cols, 32 * kItems), 1, kThreads / 32));
}

template <class... Others>
void check_same_shape(const char* op, const Tensor& first, const Others&... others) {
  (check(others.shape == first.shape, op, ": ", others, " beside ", first), ...);
}

template <int kOperands>
struct Operands {
  const float* at[kOperands];
};

/// out[i] = f({operand[0][i], operand[1][i], ...})
template <class F, int kOperands>
__global__ void __launch_bounds__(kThreads) map_kernel(float* out, int64_t n, Operands<kOperands> in, F f) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kItems) + threadIdx.x;
  float x[kItems][kOperands];
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int64_t i = first + j * kThreads;
#pragma unroll
    for (int k = 0; k < kOperands; ++k) x[j][k] = i < n ? in.at[k][i] : 0.0F;
  }
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int64_t i = first + j * kThreads;
    if (i < n) out[i] = f(x[j]);
  }
}

/// Maps f over operands of out's shape; out may be one of them.
template <class F, class... In>
void map(cudaStream_t stream, const char* op, Tensor out, F f, In... in) {
  check_same_shape(op, out, in...);
  float* to = out.ptr<float>();
  const Operands<sizeof...(In)> from{{in.template ptr<float>()...}};
  const int64_t n = out.numel();
  if (n == 0) return;
  map_kernel<<<grid_size(ceil_div(n, kThreads * kItems)), kThreads, 0, stream>>>(to, n, from, f);
  CUDA_CHECK(cudaGetLastError());
}

/// out[i] = f.row(row)(i, c), i = row * cols + c; a block has a row.
template <class F>
__global__ void __launch_bounds__(kMaxThreads) map_rows_kernel(float* out, int cols, F f) {
  const int64_t row = blockIdx.x;
  const int64_t offset = row * cols;
  const int step = static_cast<int>(blockDim.x);
  const auto value = f.row(row);
  for (int first = static_cast<int>(threadIdx.x); first < cols; first += kItems * step) {
    const auto tile = [&](auto inside) {
      float y[kItems];
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        const int c = first + j * step;
        if (inside(c)) y[j] = value(offset + c, c);
      }
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        const int c = first + j * step;
        if (inside(c)) out[offset + c] = y[j];
      }
    };
    if (first + (kItems - 1) * step < cols) {
      tile([](int) { return true; });  // no branch between the loads
    } else {
      tile([cols](int c) { return c < cols; });
    }
  }
}

/// Maps over the rows of out. f.row(row) loads what the row's elements share and gives the function of one
/// element, which may read of out's memory only the element that it computes.
template <class F>
void map_rows(cudaStream_t stream, Tensor out, F f) {
  float* to = out.ptr<float>();
  if (out.numel() == 0) return;
  map_rows_kernel<<<grid_size(out.rows()), row_threads(out.cols()), 0, stream>>>(to, column_count(out.cols()),
                                                                                 f);
  CUDA_CHECK(cudaGetLastError());
}

struct Sum {
  static constexpr float kIdentity = 0.0F;
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Max {
  static constexpr float kIdentity = -FLT_MAX;
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// Reduces x over the block and gives the result to every thread. The block has whole warps, all of which
/// take part.
template <class Op>
__device__ float block_reduce(float x, Op op) {
  __shared__ float of_warp[32];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  for (int mask = 16; mask > 0; mask /= 2) x = op(x, __shfl_xor_sync(0xffffffffU, x, mask));
  __syncthreads();  // of_warp may still be read by the reduction before this one
  if (lane == 0) of_warp[warp] = x;
  __syncthreads();
  x = lane < static_cast<int>(blockDim.x / 32) ? of_warp[lane] : Op::kIdentity;
  for (int mask = 16; mask > 0; mask /= 2) x = op(x, __shfl_xor_sync(0xffffffffU, x, mask));
  return x;
}

/// f.write(row, sum over c of f.row(row)(i)), i = row * cols + c < n; a block has a row.
template <class F>
__global__ void __launch_bounds__(kMaxThreads) sum_each_row_kernel(int64_t n, int cols, F f) {
  const int64_t row = blockIdx.x;
  const int64_t offset = row * cols;
  const int length = n - offset < cols ? static_cast<int>(n - offset) : cols;
  const int step = static_cast<int>(blockDim.x);
  const auto value = f.row(row);
  float sum = 0.0F;
  for (int first = static_cast<int>(threadIdx.x); first < length; first += kItems * step) {
    float x[kItems] = {};
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const int c = first + j * step;
      if (c < length) x[j] = value(offset + c);
    }
#pragma unroll
    for (int j = 0; j < kItems; ++j) sum += x[j];
  }
  sum = block_reduce(sum, Sum{});
  if (threadIdx.x == 0) f.write(row, sum);
}

/// Sums n elements by rows of cols, of which the last may be short.
template <class F>
void sum_each_row(cudaStream_t stream, int64_t n, int64_t cols, F f) {
  if (n == 0) return;
  sum_each_row_kernel<<<grid_size(ceil_div(n, cols)), row_threads(cols), 0, stream>>>(n, column_count(cols),
                                                                                      f);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace stepladder
