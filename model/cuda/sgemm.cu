// Sgemm: products of f32 matrices by a kernel of this project.
//
// A block computes a tile of out, 128 rows by 128 or 64 columns, from tiles of a and b that are 8 deep. It
// holds two of each in shared memory: while it multiplies one pair, its threads load the next from global
// memory. Tiles lie in shared memory with k outermost, so that a thread reads neighbouring rows of a, and
// columns of b, in one access. A thread keeps 8x8 sums in registers: two times four rows and two times four
// columns.
#include <algorithm>
#include <climits>
#include <limits>
#include <type_traits>

#include "model/cuda/cuda.h"
#include "model/cuda/kernels.cuh"
#include "model/cuda/wide.cuh"

namespace stepladder {
namespace {

constexpr int kTileM = 128,
              kDepth = 8;  // rows of a block's tile of out; rows of k that a block loads at a time
constexpr int kWarpM = 32, kWarpN = 64;  // a warp's part of the tile
constexpr int kPack = 4;                 // neighbours that a thread loads together
constexpr int kSums = 8;                 // rows, and columns, of a thread's sums
// Tiles of this many rows share their columns of b with the blocks that run at the same time.
constexpr int64_t kGroup = 16;
// Splits of k: each multiplies at least kMinSplit of it.
constexpr int64_t kMaxSplits = 16, kMinSplit = 512;
constexpr int kThreadsPerMultiprocessor = 512;  // what registers have room for

template <int kTileN>
constexpr int kBlockThreads = kTileM / kWarpM*(kTileN / kWarpN) * 32;

/// Where an operand's element (i, k) lies, i being a row of op(a) or a column of op(b).
enum class Contiguous { along_k, along_i };

/// What a thread loads of an operand's tile, kExtent x kDepth, on its way from global to shared memory.
/// kWidth elements are loaded in one access.
template <Contiguous kOrder, int kExtent, int kThreadCount, int kWidth>
class Staged {
 public:
  /// A row of k in shared memory; packs stay aligned, and stores along k hit different banks.
  using Row = float[kExtent + kPack];

  /// Loads from the tile at `from`, of whose rows, `stride` apart, `left_i` and `left_k` are within the
  /// matrix.
  __device__ void load(const float* from, int64_t stride, int left_i, int left_k) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int i = row(p), k = depth(p);
#pragma unroll
      for (int e = 0; e < kPack; e += kWidth) {
        const int at_i = kAlongK ? i : i + e, at_k = kAlongK ? k + e : k;
        float x[kWidth] = {};
        if (at_i < left_i && at_k < left_k)
          Pack<float, kWidth>::load(from + (kAlongK ? at_i * stride + at_k : at_k * stride + at_i)).get(x);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) values_[p][e + j] = x[j];
      }
    }
  }

  __device__ void store(Row* tile) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if constexpr (kAlongK) {
#pragma unroll
        for (int e = 0; e < kPack; ++e) tile[depth(p) + e][row(p)] = values_[p][e];
      } else {
        Pack<float, kPack>::of(values_[p]).store(&tile[depth(p)][row(p)]);
      }
    }
  }

 private:
  static constexpr bool kAlongK = kOrder == Contiguous::along_k;
  static constexpr int kPacks = kExtent * kDepth / kPack / kThreadCount;
  static_assert(kPacks * kPack * kThreadCount == kExtent * kDepth);
  /// Packs in one row of the stored matrix.
  static constexpr int kPerRow = (kAlongK ? kDepth : kExtent) / kPack;

  /// The first element (i, k) of this thread's pack `p`.
  static __device__ int row(int p) {
    const int pack = p * kThreadCount + static_cast<int>(threadIdx.x);
    return kAlongK ? pack / kPerRow : pack % kPerRow * kPack;
  }
  static __device__ int depth(int p) {
    const int pack = p * kThreadCount + static_cast<int>(threadIdx.x);
    return kAlongK ? pack % kPerRow * kPack : pack / kPerRow;
  }

  float values_[kPacks][kPack];
};

/// out = op(a) op(b), or += where `add`. With several splits out has a matrix for each, of which each is the
/// sum over `split` of k.
struct Product {
  float* out;
  const float *a, *b;
  int64_t M, N, K;
  int64_t a_stride, b_stride;  // elements from a stored row to the next
  int64_t a_size, b_size;      // elements of a matrix of the batch
  int64_t split;               // a multiple of kDepth
  bool add;
};

/// The row or column (0 to 7) of a thread's sums, within the warp's part. A thread has two quarters of 4,
/// half the part apart; `lane` is the thread's place among those that share the part's other extent.
template <int kExtent>
__device__ int place(int lane, int i) {
  return i / kPack * (kExtent / 2) + lane * kPack + i % kPack;
}

template <MatOp kOp, int kTileN, int kWidth>
__global__ void __launch_bounds__(kBlockThreads<kTileN>, kThreadsPerMultiprocessor / kBlockThreads<kTileN>)
    sgemm_kernel(Product f) {
  await_predecessor();
  constexpr int kThreadCount = kBlockThreads<kTileN>;
  constexpr Contiguous kOrderA = kOp == MatOp::TN ? Contiguous::along_i : Contiguous::along_k;
  constexpr Contiguous kOrderB = kOp == MatOp::NT ? Contiguous::along_k : Contiguous::along_i;
  using StagedA = Staged<kOrderA, kTileM, kThreadCount, kWidth>;
  using StagedB = Staged<kOrderB, kTileN, kThreadCount, kWidth>;
  __shared__ __align__(kWideBytes) typename StagedA::Row tiles_a[2][kDepth];
  __shared__ __align__(kWideBytes) typename StagedB::Row tiles_b[2][kDepth];

  // Blocks run about in their order: they take kGroup rows of tiles, column by column, before the next
  // kGroup.
  const int64_t down = (f.M + kTileM - 1) / kTileM, across = (f.N + kTileN - 1) / kTileN;
  const int64_t matrix = blockIdx.x / (down * across), tile = blockIdx.x % (down * across);
  const int64_t group = tile / (kGroup * across), in_group = tile % (kGroup * across);
  const int64_t rows = down - group * kGroup < kGroup ? down - group * kGroup : kGroup;
  const int64_t m = (group * kGroup + in_group % rows) * kTileM, n = in_group / rows * kTileN;
  const int64_t begin = blockIdx.y * f.split, end = begin + f.split < f.K ? begin + f.split : f.K;

  const int64_t a_step = kOrderA == Contiguous::along_k ? 1 : f.a_stride;
  const int64_t b_step = kOrderB == Contiguous::along_k ? 1 : f.b_stride;
  const float* a =
      f.a + matrix * f.a_size + m * (kOrderA == Contiguous::along_k ? f.a_stride : 1) + begin * a_step;
  const float* b =
      f.b + matrix * f.b_size + n * (kOrderB == Contiguous::along_k ? f.b_stride : 1) + begin * b_step;

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_m = warp % (kTileM / kWarpM) * kWarpM, warp_n = warp / (kTileM / kWarpM) * kWarpN;
  // 4 x 8 lanes, such that neighbours read the same elements of a or of b, which shared memory then serves at
  // once.
  const int lane_m = lane / 16 * 2 + lane % 2, lane_n = lane / 2 % 8;

  StagedA staged_a;
  StagedB staged_b;
  const int left_m = f.M - m < kTileM ? static_cast<int>(f.M - m) : kTileM;
  const int left_n = f.N - n < kTileN ? static_cast<int>(f.N - n) : kTileN;
  int left_k =
      static_cast<int>(end - begin);  // not loaded yet; below 0 where the last splits have nothing to do
  const auto load = [&] {
    staged_a.load(a, f.a_stride, left_m, left_k);
    staged_b.load(b, f.b_stride, left_n, left_k);
    a += kDepth * a_step, b += kDepth * b_step, left_k -= kDepth;
  };
  const auto store = [&](int buffer) { staged_a.store(tiles_a[buffer]), staged_b.store(tiles_b[buffer]); };

  float sums[kSums][kSums] = {};
  load();
  store(0);
  __syncthreads();
  int now = 0;
  for (bool more = true; more; now = 1 - now) {
    more = left_k > 0;
    if (more) load();
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      float x[kSums / kPack][kPack], y[kSums / kPack][kPack];
#pragma unroll
      for (int half = 0; half < kSums / kPack; ++half) {
        Pack<float, kPack>::load(&tiles_a[now][d][warp_m + place<kWarpM>(lane_m, half * kPack)]).get(x[half]);
        Pack<float, kPack>::load(&tiles_b[now][d][warp_n + place<kWarpN>(lane_n, half * kPack)]).get(y[half]);
      }
#pragma unroll
      for (int i = 0; i < kSums; ++i)
#pragma unroll
        for (int j = 0; j < kSums; ++j)
          sums[i][j] = fmaf(x[i / kPack][i % kPack], y[j / kPack][j % kPack], sums[i][j]);
    }
    if (more) store(1 - now);  // nobody has read this buffer since the barrier before
    __syncthreads();
  }

  float* out = f.out + (matrix + blockIdx.y) * f.M * f.N;  // either the batch or the splits are of one
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const int64_t row = m + warp_m + place<kWarpM>(lane_m, i);
#pragma unroll
    for (int j = 0; j < kSums; j += kWidth) {
      const int64_t col = n + warp_n + place<kWarpN>(lane_n, j);
      if (row >= f.M || col >= f.N) continue;
      float x[kWidth] = {};
      if (f.add) Pack<float, kWidth>::load(out + row * f.N + col).get(x);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) x[e] += sums[i][j + e];
      Pack<float, kWidth>::of(x).store(out + row * f.N + col);
    }
  }
}

/// The number of parts of k for which blocks, `per_wave` at a time, are done soonest: products of few tiles,
/// such as gradients of weights, would leave multiprocessors idle. Each part writes a matrix of its own into
/// scratch.
int64_t splits_for(int64_t tiles, int64_t per_wave, int64_t K, int64_t most) {
  int64_t best = 1;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t splits = 1; splits <= std::min({kMaxSplits, most, std::max<int64_t>(1, K / kMinSplit)});
       ++splits) {
    const double time = static_cast<double>(ceil_div(tiles * splits, per_wave)) / static_cast<double>(splits);
    if (time < least) best = splits, least = time;
  }
  return best;
}

template <MatOp kOp, int kTileN, int kWidth>
void multiply(Cuda& cuda, Product f, int64_t batch, const Tensor& out) {
  constexpr int kThreadCount = kBlockThreads<kTileN>;
  const int64_t tiles = ceil_div(f.M, kTileM) * ceil_div(f.N, kTileN) * batch;
  const int64_t per_wave = cuda.multiprocessors * (kThreadsPerMultiprocessor / kThreadCount);
  const Tensor& scratch = cuda.gemm_scratch;
  const int64_t room = batch == 1 && present(scratch) ? scratch.numel() / (f.M * f.N) : 1;
  const int64_t splits = splits_for(tiles, per_wave, f.K, room);
  f.split = ceil_div(ceil_div(f.K, splits), kDepth) * kDepth;
  const dim3 grid(grid_size(tiles), grid_size(splits));
  if (splits == 1) return launch(cuda.queue, sgemm_kernel<kOp, kTileN, kWidth>, grid, kThreadCount, 0, f);
  const Write write = f.add ? Write::add : Write::set;
  f.out = scratch.ptr<float>(), f.add = false;
  launch(cuda.queue, sgemm_kernel<kOp, kTileN, kWidth>, grid, kThreadCount, 0, f);
  const int64_t size = f.M * f.N;
  sum_rows_into(cuda, out.view({size}), scratch.first({splits * size}).view({splits, size}), write);
}

}  // namespace

void Sgemm::run(Cuda& cuda) const {
  if (out.numel() == 0) return;
  const MatmulShape s = matmul_shape(out, a, b, op);
  stepladder::check(s.K <= INT_MAX, kName, " of ", s.K, " terms, at most ", INT_MAX);
  const Product f{.out = out.ptr<float>(),
                  .a = a.ptr<float>(),
                  .b = b.ptr<float>(),
                  .M = s.M,
                  .N = s.N,
                  .K = s.K,
                  .a_stride = s.a_cols,
                  .b_stride = s.b_cols,
                  .a_size = s.a_rows * s.a_cols,
                  .b_size = s.b_rows * s.b_cols,
                  .split = 0,
                  .add = write == Write::add};
  const bool wide = cuda.options.wide_access && wide_rows(s.a_cols, {a}) && wide_rows(s.b_cols, {b}) &&
                    wide_rows(s.N, {out});
  const auto by_tile = [&](auto how, auto width) {
    if (s.N <= kWarpN) return multiply<how(), kWarpN, width()>(cuda, f, s.batch, out);
    multiply<how(), 2 * kWarpN, width()>(cuda, f, s.batch, out);
  };
  const auto by_width = [&](auto how) {
    if (wide) return by_tile(how, std::integral_constant<int, kPack>{});
    by_tile(how, std::integral_constant<int, 1>{});
  };
  if (op == MatOp::NN) return by_width(std::integral_constant<MatOp, MatOp::NN>{});
  if (op == MatOp::NT) return by_width(std::integral_constant<MatOp, MatOp::NT>{});
  by_width(std::integral_constant<MatOp, MatOp::TN>{});
}

}  // namespace stepladder
