// Sums over rows (N,C), in two stages and one order: the columns of a chunk of rows, then of all chunks.
//
// A block takes 32 packs of columns of one chunk, each of its kLanes warps every kLanes-th row. A lane loads
// kPacksInFlight packs before it adds the first.
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/cuda/cuda_ops.h"
#include "model/cuda/kernels.cuh"
#include "model/cuda/wide.cuh"

namespace stepladder {

constexpr int kLanes = 8;
constexpr int kPacksInFlight = 8;
constexpr int64_t kBlocksPerMultiprocessor = 8;

/// out[chunk][c] = or += sum over the chunk's rows of f's terms
template <class T, int kWidth, class Out, class F>
__global__ void __launch_bounds__(32 * kLanes, 4)
    sum_rows_kernel(Out* out, Write write, int64_t rows, int64_t cols, int64_t rows_per_chunk, F f) {
  constexpr int kOperands = sizeof(f.from) / sizeof(f.from[0]), kDepth = kPacksInFlight / kOperands;
  __shared__ float of_lane[kLanes][kWidth][32];
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int64_t c = (static_cast<int64_t>(blockIdx.x) * 32 + lane) * kWidth;
  // From the last rows on, which whoever wrote them has left in L2.
  const int64_t chunk = gridDim.y - 1 - blockIdx.y;
  const int64_t begin = chunk * rows_per_chunk;
  const int64_t end = begin + rows_per_chunk < rows ? begin + rows_per_chunk : rows;

  float sum[kWidth] = {};
  for (int64_t first = begin + warp; c < cols && first < end; first += kDepth * kLanes) {
    Pack<T, kWidth> packs[kDepth][kOperands];
#pragma unroll
    for (int j = 0; j < kDepth; ++j) {
      const int64_t row = first + j * kLanes;
      if (row >= end) continue;
#pragma unroll
      for (int k = 0; k < kOperands; ++k) packs[j][k] = Pack<T, kWidth>::load(f.from[k] + row * cols + c);
    }
#pragma unroll
    for (int j = 0; j < kDepth; ++j) {
      const int64_t row = first + j * kLanes;
      if (row >= end) continue;
      float x[kOperands][kWidth], v[kWidth];
#pragma unroll
      for (int k = 0; k < kOperands; ++k) packs[j][k].get(x[k]);
      f.terms(row * cols + c, x, v);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum[i] += v[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) of_lane[warp][i][lane] = sum[i];
  __syncthreads();

  for (int i = warp; i < kWidth && c < cols; i += kLanes) {
    float total = 0.0F;
#pragma unroll
    for (int k = 0; k < kLanes; ++k) total += of_lane[k][i][lane];
    Out* to = out + chunk * cols + c + i;
    store(to, write == Write::add ? load(to) + total : total);
  }
}

/// x as stored: what the second stage sums.
template <class T, int kWidth>
struct AsStored {
  const T* from[1];
  __device__ void terms(int64_t, const float (&x)[1][kWidth], float (&v)[kWidth]) const {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) v[i] = x[0][i];
  }
};

template <class T, int kWidth, class Out, class F>
void sum_chunks(cudaStream_t stream, Out* out, Write write, int64_t rows, int64_t cols, int64_t chunks,
                const F& f) {
  const dim3 grid(grid_size(ceil_div(cols, 32 * kWidth)), grid_size(chunks));
  sum_rows_kernel<T, kWidth>
      <<<grid, dim3(32, kLanes), 0, stream>>>(out, write, rows, cols, ceil_div(rows, chunks), f);
  CUDA_CHECK(cudaGetLastError());
}

/// out (C) = or += sum over rows of what f.terms(i, x, v) makes, v, of kWidth neighbours from element i on of
/// each operand f.from (N,C), x; it may write them somewhere too. `partials` is f32 scratch.
template <class T, int kWidth, class F>
void sum_over_rows(cudaStream_t stream, int multiprocessors, const Tensor& partials, T* out, Write write,
                   int64_t rows, int64_t cols, const F& f) {
  // Enough chunks to fill the device, no more than scratch holds.
  const int64_t blocks = kBlocksPerMultiprocessor * multiprocessors;
  const int64_t chunks = std::min({ceil_div(rows, kRowChunk), kMaxRowChunks,
                                   ceil_div(blocks, ceil_div(cols, 32 * kWidth)), partials.numel() / cols});
  if (chunks < 2) return sum_chunks<T, kWidth>(stream, out, write, rows, cols, 1, f);
  float* sums = partials.ptr<float>();
  sum_chunks<T, kWidth>(stream, sums, Write::set, rows, cols, chunks, f);
  sum_chunks<float, 1>(stream, out, write, chunks, cols, 1, AsStored<float, 1>{{sums}});
}

}  // namespace stepladder
