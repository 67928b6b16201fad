// Products of a matrix and its transpose, which are symmetric. On Hopper a kernel computes only the tiles on
// and above the diagonal, and writes each twice: as it is, and transposed. Elsewhere, and in other types than
// bf16, the libraries compute the whole product.
//
// A block computes one tile. A producer warp copies two strips of a, those of the tile's rows and of its
// columns, into a ring of stages, kBox elements along K to a stage; two warpgroups multiply them, each for
// half of the tile's rows. The sums are rounded into shared memory, from which both copies of the tile are
// written 16 bytes at a time. Two blocks share a multiprocessor: while one writes, the other multiplies.
#include <algorithm>
#include <climits>

#include "model/cuda/cuda.h"
#include "model/cuda/hopper.cuh"
#include "model/cuda/kernels.cuh"
#include "model/cuda/matmul_plans.h"
#include "model/cuda/wide.cuh"

namespace stepladder {
namespace {

constexpr int kTile = 128, kStages = 3;
constexpr int kBox = 64;  // rows and columns that TMA copies at a time, 128 bytes to a row; depth of a stage
constexpr int kBoxBytes = kBox * kBox * 2;
constexpr int kGroup = 128, kGroups = 2;  // threads of a warpgroup; warpgroups that multiply
constexpr int kBlockThreads = kGroups * kGroup + 32;
constexpr int kSums = kTile / kGroups * kTile / kGroup;  // sums of a thread

struct Shared {
  uint8_t strips[kStages][2][2 * kBoxBytes];  // strips of the tile's rows and of its columns
  SharedBarrier full[kStages], empty[kStages];
};

struct Product {
  BFloat16* out;
  int S, K;
  bool added;  // whether there is an addend
  float alpha, beta;
};

#ifdef STEPLADDER_HOPPER
/// Named barriers of the block: kMultiplied for both warpgroups, of kStaged one for each.
constexpr int kMultiplied = 1, kStaged = 2;

/// Copies two boxes of the block's matrix, the first at (row,col) and the second beside or below it.
template <bool kBeside>
__device__ void copy_boxes(uint8_t* to, const CUtensorMap& map, SharedBarrier& full, int row, int col) {
  for (int i = 0; i < 2; ++i)
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
        "[%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(to + i * kBoxBytes)),
        "l"(&map), "r"(full.address()), "r"(2 * (col + (kBeside ? i * kBox : 0))),
        "r"(row + (kBeside ? 0 : i * kBox)), "r"(blockIdx.y)
        : "memory");
}

/// The byte at which element (r,c) of a warpgroup's staged half of a tile lies, two boxes of 64 columns. The
/// 16-byte chunks of a row are permuted so that neither loads of rows nor transposing loads meet in a bank.
__device__ constexpr int staged_at(int r, int c) {
  const int chunk = c / 8 % 8, swizzle = (r % 8) ^ (r / 8 % 4 * 2);
  return c / kBox * kBoxBytes + r * 128 + (chunk ^ swizzle) * 16 + c % 8 * 2;
}

/// Writes a warpgroup's half of a tile, and its transpose if asked, to out (S,S): it begins at (row,col).
__device__ void write(const uint8_t* staged, BFloat16* out, int S, int row, int col, bool transposed) {
  const int thread = static_cast<int>(threadIdx.x) % kGroup, lane = thread % 32;
#pragma unroll 4
  for (int i = thread; i < kBox * kTile / 8; i += kGroup) {
    const int r = i / (kTile / 8), c = i % (kTile / 8) * 8;
    const auto values = *reinterpret_cast<const uint4*>(staged + staged_at(r, c));
    if (row + r < S && col + c < S) *reinterpret_cast<uint4*>(out + int64_t{row + r} * S + col + c) = values;
  }
  if (!transposed) return;
  // A load gives a lane two neighbours in column lane / 4 of each of four matrices. Lanes point to rows in an
  // order that makes these the eight neighbours that begin at row lane % 4 * 8.
  const int matrix = lane / 8, in_matrix = lane % 8;
  const int pointed = in_matrix / 2 * 8 + matrix * 2 + in_matrix % 2;
#pragma unroll 2
  for (int c = thread / 32 * 8; c < kTile; c += kGroup / 32 * 8) {
#pragma unroll
    for (int r = 0; r < kBox; r += 32) {
      uint32_t v[4];
      load_matrices<true>(v, staged + staged_at(r + pointed, c));
      const int to_row = col + c + lane / 4, to_col = row + r + lane % 4 * 8;
      if (to_row < S && to_col < S)
        *reinterpret_cast<uint4*>(out + int64_t{to_row} * S + to_col) = {v[0], v[1], v[2], v[3]};
    }
  }
}
#endif

// blockIdx.x is a tile on or above the diagonal, in the order of rows; blockIdx.y is a matrix.
template <bool kTransposed>
__global__ void __launch_bounds__(kBlockThreads, 2)
    symmetric_matmul_kernel(const __grid_constant__ CUtensorMap a_map,
                            const __grid_constant__ CUtensorMap addend_map,
                            const __grid_constant__ Product p) {
  await_predecessor();
#ifdef STEPLADDER_HOPPER
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  // The shuffle tells the compiler that the group is uniform, so that descriptors are computed once a warp.
  const int group = __shfl_sync(0xffffffffU, thread / kGroup, 0);
  const int tiles = (p.S + kTile - 1) / kTile, steps = (p.K + kBox - 1) / kBox;
  int row = 0, col = static_cast<int>(blockIdx.x) * kTile;
  for (int length = tiles * kTile; col >= length; length -= kTile) col -= length, row += kTile;
  col += row;
  const bool diagonal = row == col;  // then both strips are the same, and one is copied
  if (thread == 0) {
    for (SharedBarrier& barrier : shared.full) barrier.init(1);
    for (SharedBarrier& barrier : shared.empty) barrier.init(kGroups * kGroup / 32);  // warps
    publish_barriers();
  }
  __syncthreads();

  if (group == kGroups) {
    for (int step = 0; lane == 0 && step < steps + (p.added ? 1 : 0); ++step) {
      const int stage = step % kStages, k = step * kBox;
      SharedBarrier& full = shared.full[stage];
      if (step >= kStages) shared.empty[stage].await(static_cast<uint32_t>(step / kStages - 1));
      const int strips = diagonal && step < steps ? 1 : 2;
      full.arrive_expecting(strips * 2 * kBoxBytes);
      for (int i = 0; i < strips; ++i) {
        const int first = i == 0 ? row : col;
        if (step < steps) {
          copy_boxes<kTransposed>(shared.strips[stage][i], a_map, full, kTransposed ? k : first,
                                  kTransposed ? first : k);
        } else {  // last comes the addend's tile
          copy_boxes<false>(shared.strips[stage][i], addend_map, full, row, col + i * kBox);
        }
      }
    }
    return;
  }

  constexpr uint64_t kNext = (kTransposed ? 16 * 128 : 32) / 16;  // next 16 along K, in a descriptor's units
  float sums[kSums];
  for (int step = 0; step < steps; ++step) {
    const int stage = step % kStages;
    const auto& strips = shared.strips[stage];
    shared.full[stage].await(static_cast<uint32_t>(step / kStages));
    const uint64_t x = wgmma_operand<kTransposed>(strips[0] + group * kBoxBytes),
                   y = wgmma_operand<kTransposed>(strips[diagonal ? 0 : 1]);
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < kBox / 16; ++k) wgmma<kTransposed>(sums, x + k * kNext, y + k * kNext, step + k > 0);
    wgmma_commit();
    wgmma_wait<1>();
    if (step > 0 && lane == 0) shared.empty[(step - 1) % kStages].arrive_at(0);  // alone in its cluster
  }
  wgmma_wait_for(sums);
  named_barrier_sync(kMultiplied, kGroups * kGroup);  // the strips but the addend's may be overwritten

  const auto& addend = shared.strips[steps % kStages];
  if (p.added) shared.full[steps % kStages].await(static_cast<uint32_t>(steps / kStages));
  uint8_t* const staged = shared.strips[(steps + 1) % kStages][group];
  const int first_r = thread % kGroup / 32 * 16 + lane / 4, first_c = lane % 4 * 2;  // as wgmma() has them
#pragma unroll
  for (int i = 0; i < kSums; i += 2) {
    const int r = first_r + i / 2 % 2 * 8, c = first_c + i / 4 * 8;
    float low = p.alpha * sums[i], high = p.alpha * sums[i + 1];
    if (p.added) {
      const int chunk = (c / 8 % 8) ^ (r % 8);  // as TMA swizzles them
      const auto pair = *reinterpret_cast<const uint32_t*>(
          &addend[c / kBox][(group * kBox + r) * 128 + chunk * 16 + c % 8 * 2]);
      low = fmaf(p.beta, widen(BFloat16{static_cast<uint16_t>(pair)}), low);
      high = fmaf(p.beta, widen(BFloat16{static_cast<uint16_t>(pair >> 16)}), high);
    }
    *reinterpret_cast<uint32_t*>(staged + staged_at(r, c)) = narrow_pair<BFloat16>(low, high);
  }
  named_barrier_sync(kStaged + group, kGroup);
  write(staged, p.out + int64_t{blockIdx.y} * p.S * p.S, p.S, row + group * kBox, col, !diagonal);
#endif
}

/// A view of n matrices (rows,cols) for copies of boxes.
CUtensorMap boxes_of(const Tensor& t, int64_t n, int64_t rows, int64_t cols) {
  const auto bytes = static_cast<uint64_t>(2 * cols), height = static_cast<uint64_t>(rows);
  return tensor_map<3>(t, {bytes, height, static_cast<uint64_t>(n)}, {bytes, bytes * height},
                       {2 * kBox, kBox, 1});
}

}  // namespace

void SymmetricMatmul::run(Cuda& cuda) const {
  const MatmulShape s = matmul_shape(out, a, a, op);
  const auto kernel = op == MatOp::TN ? symmetric_matmul_kernel<true> : symmetric_matmul_kernel<false>;
  const auto has_kernel = [&] {
    if (cuda.compute_capability != 90 || !all_of_type(DType::bf16, out, a) || s.K == 0) return false;
    if (s.batch > 65535 || std::max(s.M, s.K) > INT_MAX / 4) return false;
    if (!wide_rows(s.M, {out, addend}) || !wide_rows(a.cols(), {a})) return false;
    return attributes_of(kernel).numRegs > kSums;  // built without Hopper's instructions, the kernel is empty
  };
  if (out.numel() == 0 || !has_kernel()) return run_whole(cuda);
  LtMatmul product = cuda.product(kName, out, a, a, op, Write::set);
  if (present(addend)) product = product.plus(addend.data);
  product.key.symmetric = true;
  const auto half = [&] {
    const CUtensorMap a_map = boxes_of(a, s.batch, s.a_rows, s.a_cols),
                      addend_map = present(addend) ? boxes_of(addend, s.batch, s.M, s.M) : a_map;
    const int64_t tiles = ceil_div(s.M, kTile);
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)));
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                    cudaSharedmemCarveoutMaxShared));  // room for two blocks
    launch(cuda.queue, kernel, dim3(grid_size(tiles * (tiles + 1) / 2), static_cast<unsigned>(s.batch)),
           kBlockThreads, sizeof(Shared), a_map, addend_map,
           Product{out.ptr<BFloat16>(), static_cast<int>(s.M), static_cast<int>(s.K), present(addend), alpha,
                   beta});
  };
  const MatmulStrategy strategies[] = {{"half", {}, half}, {"whole", {}, [&] { run_whole(cuda); }}};
  cuda.matmul_plans->perform(product, strategies);
}

}  // namespace stepladder
