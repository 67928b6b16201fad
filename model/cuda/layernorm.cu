// LayerNorm (Ba et al. 2016) and its gradients.
//
// A row of at most kMaxHeldCols elements stays in registers between its statistics and its use, spread over
// one warp, or several where that leaves fewer lanes idle. Longer rows are read again from cache.
#include <optional>

#include "model/cuda/cuda.h"
#include "model/cuda/fp8.cuh"
#include "model/cuda/kernels.cuh"
#include "model/cuda/wide.cuh"

namespace stepladder {
namespace {

constexpr int kMaxHeldCols = 3840;           // the three column sums of a block take 46 KB of shared memory
constexpr int kHeldFew = 8, kHeldMany = 24;  // elements of a row in a lane
constexpr int kMaxRowWarps = 8;

struct RowLayout {
  int held;   // elements in a lane
  int warps;  // warps that share a row
};

/// The layout with fewer idle lanes; at a tie, the one with fewer warps to synchronise.
RowLayout row_layout(int cols) {
  const auto warps = [cols](int held) { return static_cast<int>(ceil_div(cols, 32 * held)); };
  const int few = warps(kHeldFew), many = warps(kHeldMany);
  if (few > kMaxRowWarps || many * kHeldMany <= few * kHeldFew) return {kHeldMany, many};
  return {kHeldFew, few};
}

/// f(integral_constant<int, held>{}): one branch for each number of held elements that kernels are compiled
/// for.
template <class F>
void with_held(int held, F&& f) {
  if (held == kHeldMany) {
    f(std::integral_constant<int, kHeldMany>{});
  } else {
    f(std::integral_constant<int, kHeldFew>{});
  }
}

/// Sums each of x over the warps that share a row; every lane gets the sums. All of these warps must call
/// this, and wait for no others. `of_warp` has a place for each warp of the block; two calls in succession
/// need different arrays.
template <int kSums>
__device__ void sum_over_row(float (&x)[kSums], float (*of_warp)[kSums], int warps) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
#pragma unroll
    for (int k = 0; k < kSums; ++k) x[k] += __shfl_xor_sync(0xffffffffU, x[k], mask);
  }
  if (warps == 1) return;
  const int warp = static_cast<int>(threadIdx.x / 32), group = warp / warps;
  if (threadIdx.x % 32 == 0) {
#pragma unroll
    for (int k = 0; k < kSums; ++k) of_warp[warp][k] = x[k];
  }
  named_barrier_sync(1 + group, 32 * warps);
  const int first = group * warps;
#pragma unroll
  for (int k = 0; k < kSums; ++k) {
    x[k] = 0.0F;
    for (int i = 0; i < warps; ++i) x[k] += of_warp[first + i][k];
  }
}

template <class T>
struct Forward {
  T* out;
  float *mean, *rstd;
  const T *x, *w, *b;
};

/// Further destinations of a result: none (NoCopy), or FP8 in `to` by way of `tile` (Fp8Copy), besides or
/// instead of the result's tensor. rows() is the number of rows that a block takes: as many as it works on at
/// once, or those of a tile.
struct NoCopy {
  static constexpr bool kFp8 = false;
  __host__ __device__ int rows(int at_once) const { return at_once; }
  int bytes() const { return 0; }
  __device__ void begin(void*) {}
  template <int kWidth>
  __device__ void put(int64_t, int, int, const float (&)[kWidth]) {}
  __device__ void end() const {}
};
template <class Q>
struct Fp8Copy {
  static constexpr bool kFp8 = true;
  Fp8Output to;
  Fp8Tile tile;
  float inv_scale = 0.0F;
  uint32_t amax = 0;
  __host__ __device__ int rows(int) const { return tile.rows(); }
  int bytes() const { return tile.bytes(); }
  __device__ void begin(void* shared) {
    tile.words = static_cast<uint32_t*>(shared);
    inv_scale = 1.0F / *to.scale;
  }
  /// Stores v as elements c, c + 1, ... of a row that begins at `offset` and is row `at` of the tile.
  __device__ void put(int64_t offset, int at, int c, const float (&v)[8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) amax = larger_magnitude(amax, v[i]);
    const uint2 bytes = fp8_pack<Q>(v, inv_scale);
    if (to.rows) *reinterpret_cast<uint2*>(to.rows + offset + c) = bytes;
    tile.put(at, c, bytes);
  }
  __device__ void end() const {
    update_amax(to.amax, amax);
  }
};

constexpr int kNormWidth = 8;         // elements of a pack that becomes FP8
constexpr int kQuantizingBlocks = 2;  // blocks of a multiprocessor

/// Largest block of layernorm_forward_kernel, in threads: doubled if it writes FP8 and a lane holds kHeldFew
/// elements of a row.
template <class Copy>
constexpr int forward_threads(int held) {
  return Copy::kFp8 && held == kHeldFew ? 2 * kThreads : kThreads;
}

/// The first column of a lane that holds kHeld elements of a row, in packs of kWidth: a warp has neighbouring
/// columns, and a lane's packs are 32 * kWidth columns apart.
template <int kHeld, int kWidth>
__device__ int first_column_of(int lane) {
  return lane / 32 * 32 * kHeld + lane % 32 * kWidth;
}

// mean = sum_c x / C, rstd = 1 / sqrt(sum_c (x - mean)^2 / C + eps), out = (x - mean) * rstd * w + b. With
// FP8, a group of warps takes several rows at once, to keep enough bytes in flight.
template <class T, int kWidth, int kHeld, class Copy>
__global__ void __launch_bounds__(forward_threads<Copy>(kHeld), Copy::kFp8 ? kQuantizingBlocks : 0)
    layernorm_forward_kernel(Forward<T> f, Copy copy, int64_t rows, int cols, int warps) {
  await_predecessor();
  using Values = Pack<T, kWidth>;
  constexpr int kPacks = kHeld / kWidth, kRows = Copy::kFp8 ? 4 : 1;
  extern __shared__ uint4 shared[];
  __shared__ float of_warp[2][forward_threads<Copy>(kHeld) / 32][kRows];
  const int lanes = 32 * warps, lane = static_cast<int>(threadIdx.x) % lanes;
  const int group = static_cast<int>(threadIdx.x) / lanes, groups = static_cast<int>(blockDim.x) / lanes;
  const int first_column = first_column_of<kHeld, kWidth>(lane);
  const auto column = [=](int j) { return first_column + j * 32 * kWidth; };
  const int set = copy.rows(groups);
  const int64_t first_row = blockIdx.x * int64_t{set};
  copy.begin(shared);

  for (int begin = 0; begin < set; begin += groups * kRows) {
    const int at = begin + group * kRows;  // first row in the set
    const int64_t row = first_row + at, offset = row * cols;
    // Either all of these rows exist or none does; warps without a row still meet the others at barriers.
    const int end = at < set && row < rows ? cols : 0;
    Values x[kRows][kPacks];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int j = 0; j < kPacks; ++j) {
        if (column(j) >= end) continue;
        x[r][j] = Values::load_once(f.x + offset + r * cols + column(j));
      }
    }
    float v[kWidth], mean[kRows] = {}, rstd[kRows] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int j = 0; j < kPacks; ++j) {
        if (column(j) >= end) continue;
        x[r][j].get(v);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) mean[r] += v[i];
      }
    }
    sum_over_row(mean, of_warp[0], warps);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      mean[r] /= static_cast<float>(cols);
#pragma unroll
      for (int j = 0; j < kPacks; ++j) {
        if (column(j) >= end) continue;
        x[r][j].get(v);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) rstd[r] += (v[i] - mean[r]) * (v[i] - mean[r]);
      }
    }
    sum_over_row(rstd, of_warp[1], warps);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      rstd[r] = 1.0F / sqrtf(rstd[r] / static_cast<float>(cols) + kLayerNormEps);
      if (lane == 0 && end > 0) {
        f.mean[row + r] = mean[r];
        f.rstd[row + r] = rstd[r];
      }
    }
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      if (column(j) >= end) continue;
      float w[kWidth], b[kWidth];
      Values::load(f.w + column(j)).get(w);
      Values::load(f.b + column(j)).get(b);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        x[r][j].get(v);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) v[i] = (v[i] - mean[r]) * rstd[r] * w[i] + b[i];
        if constexpr (!Copy::kFp8) Values::of(v).store(f.out + offset + r * cols + column(j));
        copy.put(offset + r * cols, at + r, column(j), v);
      }
    }
  }
  if constexpr (Copy::kFp8) {
    __syncthreads();
    if (copy.to.columns) copy.tile.store_columns(copy.to.columns, first_row, rows, cols);
  }
  copy.end();
}

// layernorm_forward_kernel for rows too long for registers. A block has a row and reads it three times.
template <class T, int kWidth>
__global__ void __launch_bounds__(kMaxThreads) layernorm_forward_long_kernel(Forward<T> f, int cols) {
  await_predecessor();
  const int64_t row = blockIdx.x, offset = row * cols;
  const int first = static_cast<int>(threadIdx.x) * kWidth, step = static_cast<int>(blockDim.x) * kWidth;
  float v[kWidth], sum = 0.0F, squares = 0.0F;
  for (int c = first; c < cols; c += step) {
    Pack<T, kWidth>::load(f.x + offset + c).get(v);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum += v[i];
  }
  const float mean = block_reduce(sum, Sum{}) / static_cast<float>(cols);
  for (int c = first; c < cols; c += step) {
    Pack<T, kWidth>::load(f.x + offset + c).get(v);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) squares += (v[i] - mean) * (v[i] - mean);
  }
  const float rstd = 1.0F / sqrtf(block_reduce(squares, Sum{}) / static_cast<float>(cols) + kLayerNormEps);
  if (threadIdx.x == 0) {
    f.mean[row] = mean;
    f.rstd[row] = rstd;
  }
  for (int c = first; c < cols; c += step) {
    float w[kWidth], b[kWidth];
    Pack<T, kWidth>::load(f.x + offset + c).get(v);
    Pack<T, kWidth>::load(f.w + c).get(w);
    Pack<T, kWidth>::load(f.b + c).get(b);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) v[i] = (v[i] - mean) * rstd * w[i] + b[i];
    Pack<T, kWidth>::of(v).store(f.out + offset + c);
  }
}

template <class T>
struct Backward {
  T* dx;
  const T *dout, *x;
  const float *mean, *rstd;
  const T* w;
};

constexpr int kColumnSums = 3;  // dw = sum_n dout * xhat, db = sum_n dout, dbias = sum_n of the new dx

constexpr int kRowsRead = 3;         // dout, x and dx
constexpr int kStaticShared = 1024;  // bytes; more than the static shared memory of these kernels

/// Most threads of a block of layernorm_backward_kernel. 128-bit packs of 16-bit elements take the fewest
/// registers: those of 12 warps, or of 24 where a lane holds kHeldFew elements of a row, then suffice for the
/// warps' column sums and a row each.
constexpr int backward_threads(int width, int held) {
  return (width == 8 ? 384 : 256) * (held == kHeldFew ? 2 : 1);
}

// dx += rstd * (dxhat - mean_c(dxhat) - xhat * mean_c(dxhat * xhat)), dxhat = dout * w, xhat = (x - mean) *
// rstd; partials[block] (3,C) = the block's share of the column sums.
//
// Each block takes every gridDim-th set of rows, so that a lane keeps the sums of its columns in registers to
// the end; then the warps add up their sums in a fixed order. dx, dout and x are read once, dx written once.
// While a row is computed with, the next is on its way to shared memory. A set is a row for each group of
// warps, or a tile of FP8.
template <class T, int kWidth, int kHeld, class Copy>
__global__ void __launch_bounds__(backward_threads(kWidth, kHeld), 1)
    layernorm_backward_kernel(Backward<T> f, Copy copy, float* partials, int64_t rows, int cols, int warps,
                              int slots, int staged_bytes) {
  await_predecessor();
  constexpr int kPacks = kHeld / kWidth;
  // Shared memory holds the next row, (3 * kPacks, threads) packs, and at the end column sums,
  // (slots, 3 * kHeld, lanes) floats. The FP8 tile follows both, at `staged_bytes`.
  extern __shared__ uint4 shared[];
  __shared__ float of_warp[2][backward_threads(kWidth, kHeld) / 32][2];
  const int lanes = 32 * warps, lane = static_cast<int>(threadIdx.x) % lanes;
  const int group = static_cast<int>(threadIdx.x) / lanes, groups = static_cast<int>(blockDim.x) / lanes;
  const int first_column = first_column_of<kHeld, kWidth>(lane);
  const auto column = [=](int j) { return first_column + j * 32 * kWidth; };

  auto* const staged = reinterpret_cast<Pack<T, kWidth>*>(shared) + threadIdx.x;  // this thread's part
  const auto place = [=](int operand, int j) { return staged + (operand * kPacks + j) * blockDim.x; };
  float next_mean = 0.0F, next_rstd = 0.0F;
  const int set = copy.rows(groups);
  const auto exists = [=](int64_t first, int at) { return (!Copy::kFp8 || at < set) && first + at < rows; };
  const auto fetch = [&](int64_t first, int at) {
    if (!exists(first, at)) return;
    const int64_t row = first + at, offset = row * cols;
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      if (column(j) >= cols) continue;
      Pack<T, kWidth>::copy_async(place(0, j), f.dout + offset + column(j));
      Pack<T, kWidth>::copy_async(place(1, j), f.x + offset + column(j));
      Pack<T, kWidth>::copy_async(place(2, j), f.dx + offset + column(j));
    }
    __pipeline_commit();
    next_mean = f.mean[row];
    next_rstd = f.rstd[row];
  };

  copy.begin(shared + staged_bytes / kWideBytes);
  float sums[kColumnSums][kPacks][kWidth] = {};
  int turn = 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * set;
  int64_t first = static_cast<int64_t>(blockIdx.x) * set;
  fetch(first, group);
  for (int at = group; first < rows;) {  // `at` in the set
    const bool last = !Copy::kFp8 || at - group + groups >= set;
    const int64_t offset = (first + at) * cols, next_first = last ? first + step : first;
    const int next_at = last ? group : at + groups, end = exists(first, at) ? cols : 0;
    // Elements past a row's end are 0, since a branch would separate the sums and cost registers.
    Pack<T, kWidth> dout[kPacks] = {}, x[kPacks] = {}, dx[kPacks] = {};
    const float mean = end > 0 ? next_mean : 0.0F, rstd = end > 0 ? next_rstd : 0.0F;
    await_copies(0);
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      if (column(j) >= end) continue;
      dout[j] = *place(0, j);
      x[j] = *place(1, j);
      dx[j] = *place(2, j);
    }
    fetch(next_first, next_at);

    float xhat[kPacks][kWidth], dxhat[kPacks][kWidth];
    float means[2] = {};  // means of dxhat and of dxhat * xhat
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      float weight[kWidth];
      x[j].get(xhat[j]);
      dout[j].get(dxhat[j]);
      (column(j) < end ? Pack<T, kWidth>::load(f.w + column(j)) : Pack<T, kWidth>{}).get(weight);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        xhat[j][i] = (xhat[j][i] - mean) * rstd;
        sums[0][j][i] += dxhat[j][i] * xhat[j][i];
        sums[1][j][i] += dxhat[j][i];
        dxhat[j][i] *= weight[i];
        means[0] += dxhat[j][i];
        means[1] += dxhat[j][i] * xhat[j][i];
      }
    }
    sum_over_row(means, of_warp[turn], warps);
    turn ^= 1;
    means[0] /= static_cast<float>(cols);
    means[1] /= static_cast<float>(cols);

#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      if (column(j) >= end) continue;
      float v[kWidth];
      dx[j].get(v);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) v[i] += rstd * (dxhat[j][i] - means[0] - xhat[j][i] * means[1]);
      dx[j] = Pack<T, kWidth>::of(v);
      dx[j].store(f.dx + offset + column(j));
      dx[j].get(v);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sums[2][j][i] += v[i];
      copy.put(offset, at, column(j), v);
    }
    if constexpr (Copy::kFp8) {
      if (last && copy.to.columns) {
        __syncthreads();
        copy.tile.store_columns(copy.to.columns, first, rows, cols);
        __syncthreads();
      }
    }
    first = next_first, at = next_at;
  }
  copy.end();

  // Groups add up in a fixed order, `slots` of them at a time, each in a place of its own.
  __syncthreads();
  auto* const shared_sums = reinterpret_cast<float*>(shared);
  const int slot_size = kColumnSums * kHeld * lanes;
  float* const slot = shared_sums + group % slots * slot_size + lane;
  for (int begin = 0; begin < groups; begin += slots) {
    if (group >= begin && group < begin + slots) {
#pragma unroll
      for (int at = 0; at < kColumnSums * kHeld; ++at) {
        const float sum = sums[at / kHeld][at % kHeld / kWidth][at % kWidth];
        slot[at * lanes] = begin == 0 ? sum : slot[at * lanes] + sum;
      }
    }
    __syncthreads();
  }
  constexpr int kChunk = kWidth % 4 == 0 ? 4 : 1;  // floats of a store
  for (int i = static_cast<int>(threadIdx.x); i < slot_size / kChunk; i += static_cast<int>(blockDim.x)) {
    const int at = i / lanes * kChunk, l = i % lanes;  // sums `at` and on of lane l
    const int k = at / kHeld, pack = at % kHeld / kWidth, element = at % kWidth;
    const int c = first_column_of<kHeld, kWidth>(l) + pack * 32 * kWidth + element;
    if (c >= cols) continue;
    float sum[kChunk] = {};
    for (int s = 0; s < slots; ++s) {
#pragma unroll
      for (int e = 0; e < kChunk; ++e) sum[e] += shared_sums[s * slot_size + (at + e) * lanes + l];
    }
    Pack<float, kChunk>::of(sum).store(partials +
                                       (static_cast<int64_t>(blockIdx.x) * kColumnSums + k) * cols + c);
  }
}

// layernorm_backward_kernel for rows too long for registers; a block has a row at a time. A thread has the
// same columns in every row, and keeps their sums in partials[block] itself.
template <class T, int kWidth>
__global__ void __launch_bounds__(kMaxThreads)
    layernorm_backward_long_kernel(Backward<T> f, float* partials, int64_t rows, int cols) {
  await_predecessor();
  const int begin = static_cast<int>(threadIdx.x) * kWidth, step = static_cast<int>(blockDim.x) * kWidth;
  float* sums = partials + static_cast<int64_t>(blockIdx.x) * kColumnSums * cols;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t offset = row * cols;
    const float mean = f.mean[row], rstd = f.rstd[row];
    float xhat[kWidth], dout[kWidth], w[kWidth], v[kWidth];
    const auto load = [&](int c) {
      Pack<T, kWidth>::load(f.x + offset + c).get(xhat);
      Pack<T, kWidth>::load(f.dout + offset + c).get(dout);
      Pack<T, kWidth>::load(f.w + c).get(w);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) xhat[i] = (xhat[i] - mean) * rstd;
    };
    float mean_dxhat = 0.0F, mean_dxhat_xhat = 0.0F;
    for (int c = begin; c < cols; c += step) {
      load(c);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        mean_dxhat += dout[i] * w[i];
        mean_dxhat_xhat += dout[i] * w[i] * xhat[i];
      }
    }
    mean_dxhat = block_reduce(mean_dxhat, Sum{}) / static_cast<float>(cols);
    mean_dxhat_xhat = block_reduce(mean_dxhat_xhat, Sum{}) / static_cast<float>(cols);

    for (int c = begin; c < cols; c += step) {
      load(c);
      Pack<T, kWidth>::load(f.dx + offset + c).get(v);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        v[i] += rstd * (dout[i] * w[i] - mean_dxhat - xhat[i] * mean_dxhat_xhat);
      const auto dx = Pack<T, kWidth>::of(v);
      dx.store(f.dx + offset + c);
      dx.get(v);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float add[kColumnSums] = {dout[i] * xhat[i], dout[i], v[i]};
#pragma unroll
        for (int k = 0; k < kColumnSums; ++k) {
          float& sum = sums[static_cast<int64_t>(k) * cols + c + i];
          sum = row == blockIdx.x ? add[k] : sum + add[k];
        }
      }
    }
  }
}

template <class T>
struct ColumnSums {
  T* at[kColumnSums];  // (C); the last may be null
};

// out[k][c] += sum over blocks of partials (blocks,3,C). A block has 32 columns; each of its warps loads
// every 32nd block's share, all at once, then sums one column.
constexpr int kSharesPerWarp = kNormBlocks / 32;
static_assert(kNormBlocks % 32 == 0);

template <class T>
__global__ void __launch_bounds__(kMaxThreads)
    add_column_sums_kernel(ColumnSums<T> out, const float* partials, int blocks, int cols) {
  await_predecessor();
  __shared__ float of_warp[32][33];  // 33 columns, so that a warp reads a column without bank conflicts
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int total = kColumnSums * cols;
  const int mine = static_cast<int>(blockIdx.x) * 32 + lane;
  float share[kSharesPerWarp];
#pragma unroll
  for (int j = 0; j < kSharesPerWarp; ++j) {
    const int block = j * 32 + warp;
    share[j] = block < blocks && mine < total ? partials[static_cast<int64_t>(block) * total + mine] : 0.0F;
  }
  float sum = 0.0F;
#pragma unroll
  for (int j = 0; j < kSharesPerWarp; ++j) sum += share[j];
  of_warp[warp][lane] = sum;
  __syncthreads();

  sum = warp_reduce(of_warp[lane][warp], Sum{});
  const int i = static_cast<int>(blockIdx.x) * 32 + warp, k = i / cols;
  if (lane != 0 || i >= total || !out.at[k]) return;
  T& to = out.at[k][i % cols];
  to = narrow<T>(widen(to) + sum);
}

/// The data of `t`; null for an empty tensor.
template <class T>
T* optional_ptr(const Tensor& t) {
  return t.data ? t.ptr<T>() : nullptr;
}

template <int kWidth, class T, class Copy>
void launch_forward(Queue& queue, const Forward<T>& f, const Copy& copy, int64_t rows, int cols) {
  if constexpr (!Copy::kFp8) {
    if (cols > kMaxHeldCols)
      return launch(queue, layernorm_forward_long_kernel<T, kWidth>, grid_size(rows), kMaxThreads, 0, f,
                    cols);
  }
  const RowLayout layout = row_layout(cols);
  with_held(layout.held, [&](auto held) {
    const int groups = forward_threads<Copy>(held) / 32 / layout.warps;
    const auto kernel = layernorm_forward_kernel<T, kWidth, held(), Copy>;
    if constexpr (Copy::kFp8)
      CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, copy.bytes()));
    launch(queue, kernel, grid_size(ceil_div(rows, copy.rows(groups))),
           static_cast<unsigned>(groups * layout.warps * 32), static_cast<size_t>(copy.bytes()), f, copy,
           rows, cols, layout.warps);
  });
}

constexpr int kForwardParts = 2, kBackwardParts = 3;  // log2 of a tile's groups of 16 rows, at most

/// A tile of 16 << `log2_parts` rows of x; fewer, but at least 32, if they do not fit into `shared_limit` or
/// would leave more than a quarter of `blocks` without a tile. Empty if not even 32 fit.
std::optional<Fp8Tile> fp8_tile(const Tensor& x, int log2_parts, int shared_limit, int blocks) {
  Fp8Tile tile{nullptr, Fp8Tile::words_for(column_count(x.cols())), log2_parts};
  while (tile.log2_parts > 1 &&
         (tile.bytes() > shared_limit || 4 * ceil_div(x.rows(), tile.rows()) < 3 * int64_t{blocks}))
    --tile.log2_parts;
  if (tile.bytes() > shared_limit || x.cols() > kMaxHeldCols) return {};
  return tile;
}

/// How layernorm_backward_kernel is launched.
struct BackwardLayout {
  RowLayout row;
  int groups, slots;
  int staged_bytes;
};

/// The layout for rows of `cols` elements of `element_bytes` bytes, in packs of `width`, with `shared_limit`
/// bytes of shared memory.
BackwardLayout backward_layout(int cols, int width, int element_bytes, int shared_limit) {
  const RowLayout row = row_layout(cols);
  const int threads = backward_threads(width, row.held);
  const int lanes = 32 * row.warps;
  const int row_bytes = kRowsRead * row.held * lanes * element_bytes;
  const int slot_bytes = kColumnSums * row.held * lanes * static_cast<int>(sizeof(float));
  const int groups = std::min(threads / lanes, shared_limit / row_bytes);
  const int slots = std::clamp(groups * row_bytes / slot_bytes, 1, groups);
  return {row, groups, slots, std::max(groups * row_bytes, slots * slot_bytes)};
}

/// Launches the backward kernel. Returns how many blocks, at most `max_blocks`, leave their column sums in
/// partials.
template <class T, int kWidth, class Copy>
int launch_backward(Cuda& cuda, const Backward<T>& f, const Copy& copy, float* partials, int64_t rows,
                    int cols, int64_t max_blocks) {
  int blocks = 0;
  if (cols > kMaxHeldCols) {
    blocks = static_cast<int>(std::min<int64_t>({max_blocks, rows, 2 * int64_t{cuda.multiprocessors}}));
    launch(cuda.queue, layernorm_backward_long_kernel<T, kWidth>, static_cast<unsigned>(blocks), kMaxThreads,
           0, f, partials, rows, cols);
  } else {
    const BackwardLayout layout =
        backward_layout(cols, kWidth, static_cast<int>(sizeof(T)), cuda.shared_limit - kStaticShared);
    const int threads = layout.groups * layout.row.warps * 32, shared = layout.staged_bytes + copy.bytes();
    with_held(layout.row.held, [&](auto held) {
      const auto kernel = layernorm_backward_kernel<T, kWidth, held(), Copy>;
      CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
      int resident = 0;  // blocks that a multiprocessor has room for
      CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads,
                                                               static_cast<size_t>(shared)));
      blocks = static_cast<int>(std::min<int64_t>({max_blocks, ceil_div(rows, copy.rows(layout.groups)),
                                                   std::max(resident, 1) * int64_t{cuda.multiprocessors}}));
      launch(cuda.queue, kernel, static_cast<unsigned>(blocks), static_cast<unsigned>(threads),
             static_cast<size_t>(shared), f, copy, partials, rows, cols, layout.row.warps, layout.slots,
             layout.staged_bytes);
    });
  }
  return blocks;
}

/// Launches the kernels of `norm`, with `copy` of the new dx: the backward kernel, and the sum of its blocks'
/// column sums.
template <class T, int kWidth, class Copy>
void launch_gradients(Cuda& cuda, const char* op, const LayerNormBackward& norm, const Copy& copy) {
  const Tensor& x = norm.input.x;
  const Backward<T> f{norm.dx.ptr<T>(),
                      norm.dout.ptr<T>(),
                      x.ptr<T>(),
                      norm.input.mean.ptr<float>(),
                      norm.input.rstd.ptr<float>(),
                      norm.w.ptr<T>()};
  if (x.numel() == 0) return;
  const int cols = column_count(kColumnSums * x.cols()) / kColumnSums;  // all three sums are counted in ints
  const int64_t max_blocks = std::min(kNormBlocks, cuda.partials.numel() / (kColumnSums * cols));
  check(max_blocks > 0, op, " needs a workspace for ", cols, " channels: call bind_workspace() first");
  float* partials = cuda.partials.ptr<float>();
  const int blocks = launch_backward<T, kWidth>(cuda, f, copy, partials, x.rows(), cols, max_blocks);
  const NormParams& to = norm.dparams;
  const auto add_to = [&]<class Sum>(Sum) {
    const ColumnSums<Sum> sums{{to.w.ptr<Sum>(), to.b.ptr<Sum>(), optional_ptr<Sum>(norm.dbias)}};
    launch(cuda.queue, add_column_sums_kernel<Sum>, grid_size(ceil_div(kColumnSums * cols, 32)), kMaxThreads,
           0, sums, partials, blocks, cols);
  };
  to.w.dtype == x.dtype ? add_to(T{}) : add_to(float{});
}

}  // namespace

void LayerNormForward::run(Cuda& cuda) const {
  with_pack({out, x, w, b}, cuda.options.wide_access, [&]<class T>(T, auto width) {
    const Forward<T> f{out.ptr<T>(), mean.ptr<float>(), rstd.ptr<float>(),
                       x.ptr<T>(),   w.ptr<T>(),        b.ptr<T>()};
    if (x.numel() > 0) launch_forward<width()>(cuda.queue, f, NoCopy{}, x.rows(), column_count(x.cols()));
  });
}

void QuantizeLayerNorm::run(Cuda& cuda) const {
  const Fp8Output to = fp8_output(kName, q, qt, x);
  stepladder::check(wide_rows(x.cols(), {w, b}), kName, ": operands are not aligned to ", kWideBytes,
                    " bytes");
  const Forward<BFloat16> f{nullptr,           mean.ptr<float>(), rstd.ptr<float>(),
                            x.ptr<BFloat16>(), w.ptr<BFloat16>(), b.ptr<BFloat16>()};
  if (x.numel() == 0) return;
  const auto tile =
      fp8_tile(x, kForwardParts, cuda.shared_limit - kStaticShared, kQuantizingBlocks * cuda.multiprocessors);
  stepladder::check(tile.has_value(), kName, ": rows of ", x,
                    " are too long for this device's shared memory");
  with_fp8_type(one_of(q, qt).dtype, [&](auto type) {
    launch_forward<kNormWidth>(cuda.queue, f, Fp8Copy<decltype(type)>{to, *tile}, x.rows(),
                               column_count(x.cols()));
  });
}

void LayerNormBackward::run(Cuda& cuda) const {
  with_pack({dx, dout, input.x, w}, cuda.options.wide_access,
            [&]<class T>(T, auto width) { launch_gradients<T, width()>(cuda, kName, *this, NoCopy{}); });
}

void QuantizeLayerNormBackward::run(Cuda& cuda) const {
  using T = BFloat16;
  const Tensor q = quantized.q, qt = quantized.qt, x = input.x;
  const Fp8Output to = fp8_output(kName, q, qt, x);
  stepladder::check(wide_rows(x.cols(), {dx, dout, w}), kName, ": operands are not aligned to ", kWideBytes,
                    " bytes");
  const int limit = cuda.shared_limit - kStaticShared;
  std::optional<Fp8Tile> tile;
  if (x.numel() > 0 && x.cols() <= kMaxHeldCols) {
    const BackwardLayout layout = backward_layout(static_cast<int>(x.cols()), kNormWidth, sizeof(T), limit);
    tile = fp8_tile(x, kBackwardParts, limit - layout.staged_bytes, cuda.multiprocessors);
  }
  if (!tile) {
    norm().run(cuda);
    Quantize{q, qt, dx}.run(cuda);
    return;
  }
  with_fp8_type(one_of(q, qt).dtype, [&]<class Q>(Q) {
    launch_gradients<T, kNormWidth>(cuda, kName, norm(), Fp8Copy<Q>{to, *tile});
  });
}

}  // namespace stepladder
