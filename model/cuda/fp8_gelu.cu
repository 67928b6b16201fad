// Linear layers in FP8 whose results are rounded to FP8 without a detour through memory: gelu of the sums, or
// the sums times gelu'. On Hopper in one kernel, elsewhere in two.
//
// A block keeps kTileN rows of the weights in shared memory throughout and goes through tiles of kTileM rows
// of the input, which a producer warp copies into a buffer for each step along K. Two consumer warpgroups
// take turns with the tiles: while one multiplies, the other rounds and writes its sums. The two blocks of a
// cluster have neighbouring weights and the same inputs, of which each copies half to both.
//
// Rows are permuted on their way into shared memory so that a thread's elements lie side by side: of every 16
// rows of the input the even ones come first, which gives a thread two neighbouring rows; rows of the weights
// are dealt so that a thread has eight neighbouring columns of every 32.
//
// Hopper's FP8 tensor cores accumulate in fewer bits than f32 has. For a gradient cuBLASLt adds up partial
// sums in f32, this kernel doesn't: over kMaxK products the error is far below that of rounding to e5m2.
#include <vector>

#include "model/cuda/cuda.h"
#include "model/cuda/fp8.cuh"
#include "model/cuda/gelu.cuh"
#include "model/cuda/hopper.cuh"
#include "model/cuda/kernels.cuh"
#include "model/cuda/matmul_plans.h"
#include "model/cuda/wide.cuh"

namespace stepladder {
namespace {

constexpr int kTileM = 64, kTileN = 192, kTileK = 128, kMaxK = 768;  // elements, of a byte each
constexpr int kChunk = 32, kChunks = kTileN / kChunk;                // columns that are finished at a time
constexpr int kGroup = 128, kConsumers = 2;                          // threads of a warpgroup; warpgroups
constexpr int kBlockThreads = (kConsumers + 1) * kGroup;
constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;  // registers of a thread
constexpr int kCluster = 2;
constexpr int kCopiedRows = kTileM / kCluster;  // rows of a tile that each block copies

/// A product x (N,K) w^T, w (C,K), and its FP8 output.
struct Layer {
  int N, C;
  const float *x_scale, *w_scale;
  Fp8Output to;
};

/// v = gelu(y), y = the sums plus a bias. `kept` is y, rounded to bf16 before GELU, or e4m3 slopes.
template <class K>
struct ForwardGelu {
  using X = Float8E4M3;
  using Kept = K;
  Kept* kept;
  const BFloat16* bias;
};
/// v = sum * gelu'(y); partials (gridDim.y,C): sums of v over the rows of a block.
template <class K>
struct BackwardGelu {
  using X = Float8E5M2;
  using Kept = K;
  const Kept* kept;
  float* partials;
};

constexpr int kSteps = kMaxK / kTileK;  // beyond K, copies bring zeros

struct Shared {
  uint8_t weights[kSteps][kTileN * kTileK];
  uint8_t input[kSteps][kTileM * kTileK];
  uint8_t columns[kConsumers][2][kChunk][kTileM];  // columns of two chunks; in the end, sums of columns
  SharedBarrier full[kSteps], empty[kSteps];       // each tile of the block is a phase
};
static_assert(sizeof(Shared) <= 227 << 10);
static_assert(sizeof(Shared::columns) >= kConsumers * 4 * kTileN * sizeof(float));

#ifdef STEPLADDER_HOPPER
constexpr int kPack = 8;                         // neighbouring columns that a thread has
constexpr int kSums = kTileM * kTileN / kGroup;  // sums of a thread
/// Named barriers of the block: of kStaged and of kTurn one for each consumer warpgroup, of kAllDone one.
constexpr int kStaged = 1, kTurn = kStaged + kConsumers, kAllDone = kTurn + kConsumers;

/// Copies the weights of step `step`, for the tile of columns that begins at row 32 * chunk of the weights.
__device__ void copy_weights(void* to, const CUtensorMap& map, SharedBarrier& full, int step, int chunk) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4, %4, %4, %5}], [%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(full.address()), "r"(step * kTileK), "r"(0), "r"(chunk)
      : "memory");
}
/// Copies half of a tile's input to the same place in both blocks of the cluster.
__device__ void copy_input(void* to, const CUtensorMap& map, SharedBarrier& full, int step, int row) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%3, %4, %4, %5}], [%2], %6;" ::"r"(shared_address(to)),
      "l"(&map), "r"(full.address()), "r"(step * kTileK), "r"(0), "r"(row / 16),
      "h"(static_cast<uint16_t>((1 << kCluster) - 1))
      : "memory");
}

/// A thread's two rows of eight columns in FP8.
template <class Q>
struct Quantized {
  uint2 rows[2];
  uint32_t columns[4];  // [i]: four rows of one of a pair of columns; stage_columns() says which

  __device__ Quantized(const float (&v)[2][kPack], float inv_scale) {
    uint32_t pairs[4];  // two rows of one column, then of the next
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto both_rows = [&](int c) {
        return fp8_pair<Q>(scaled(v[0][c], inv_scale), scaled(v[1][c], inv_scale));
      };
      pairs[i] = both_rows(2 * i) | both_rows(2 * i + 1) << 16;
      columns[i] = transpose_8x8(pairs[i]);
    }
    rows[0] = {__byte_perm(pairs[0], pairs[1], 0x6420), __byte_perm(pairs[2], pairs[3], 0x6420)};
    rows[1] = {__byte_perm(pairs[0], pairs[1], 0x7531), __byte_perm(pairs[2], pairs[3], 0x7531)};
  }
};

/// Sums over the eight lanes with the same lane % 4: lane / 4 = i gets the sum of v[i].
__device__ float sum_over_rows(float (&v)[kPack], int lane) {
#pragma unroll
  for (int width = kPack / 2; width > 0; width /= 2) {
    const bool upper = (lane & 4 * width) != 0;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float kept = upper ? v[i + width] : v[i], sent = upper ? v[i] : v[i + width];
      v[i] = kept + __shfl_xor_sync(0xffffffffU, sent, 4 * width);
    }
  }
  return v[0];
}

/// A consumer thread's work on the sums of its tiles.
template <class F>
struct Epilogue {
  using X = typename F::X;
  using Row = Pack<BFloat16, kPack>;
  static constexpr bool kForward = std::is_same_v<F, ForwardGelu<typename F::Kept>>;
  static constexpr bool kSlopes = std::is_same_v<typename F::Kept, Float8E4M3>;
  using Met = std::conditional_t<!kForward && kSlopes, uint2, Row>;

  const Layer& layer;
  const F& f;
  Shared& shared;
  const int group, warp, lane, first_col, chunks;
  const float sum_scale, unit, inv_scale;  // v is in multiples of `unit`
  float amax = 0.0F;
  float of_columns[kForward ? 1 : kChunks] = {};  // sums of v
  Met met[kChunks][kForward ? 1 : 2];  // the sums' second operands: the bias, or the values kept of the tile

  __device__ Epilogue(const Layer& layer, const F& f, Shared& shared, int thread, int first_col)
      : layer(layer),
        f(f),
        shared(shared),
        group(thread / kGroup),
        warp(thread % kGroup / 32),
        lane(thread % 32),
        first_col(first_col),
        chunks(min(kChunks, (layer.C - first_col) / kChunk)),
        sum_scale(*layer.x_scale * *layer.w_scale),
        unit(kForward ? 1.0F : sum_scale),
        inv_scale(unit / *layer.to.scale) {
    if constexpr (kForward) load(f.bias + first_col + lane % 4 * kPack, 0);
  }

  /// Facts about a tile; where all are constants, the compiler drops most branches.
  struct Known {
    bool whole, rows, columns;  // whether surely all rows are inside; whether each layout is wanted
  };

  __device__ bool inside(Known known, int row) const { return known.whole || row < layer.N; }
  /// The first of this thread's two rows of a tile.
  __device__ int row_of(int first_row) const { return first_row + warp * 16 + lane / 4 * 2; }
  __device__ int64_t first_element(int row) const {
    return int64_t{row} * layer.C + first_col + lane % 4 * kPack;
  }
  /// Loads the operands of the tile that begins at `first_row`, while its sums are computed.
  __device__ void prepare(int first_row) {
    if constexpr (!kForward) load(f.kept + first_element(row_of(first_row)), row_of(first_row));
  }
  template <class T>
  __device__ void load(const T* from, int row) {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk)
#pragma unroll
      for (int r = 0; r < static_cast<int>(std::size(met[0])); ++r)
        met[chunk][r] = chunk < chunks && row < layer.N
                            ? *reinterpret_cast<const Met*>(from + chunk * kChunk + r * layer.C)
                            : Met{};
  }

  __device__ void operator()(const float (&sums)[kSums], int first_row) {
    const bool whole = first_row + kTileM <= layer.N;
    if (whole && layer.to.rows && layer.to.columns) {
      finish(sums, first_row, {true, true, true});
    } else if (kForward && whole && layer.to.rows) {
      finish(sums, first_row, {true, true, false});
    } else {
      finish(sums, first_row, {false, layer.to.rows != nullptr, layer.to.columns != nullptr});
    }
  }

  __device__ __forceinline__ void finish(const float (&sums)[kSums], int first_row, Known known) {
    const int row = row_of(first_row);
    const bool stored = inside(known, row);
    int64_t at = first_element(row);
    uint32_t columns[4];  // FP8 columns of the previous chunk
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk, at += kChunk) {
      if (chunk >= chunks) break;
      const bool follows = known.columns && chunk > 0;
      float v[2][kPack], x[kPack];
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int i = 0; i < kPack; ++i) v[r][i] = sums[(chunk * 4 + i / 2) * 4 + 2 * r + i % 2];

      if constexpr (kForward) {
        met[chunk][0].get(x);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
#pragma unroll
          for (int i = 0; i < kPack; ++i) v[r][i] = fmaf(v[r][i], sum_scale, x[i]);
          if constexpr (!kSlopes) {
            const Row y = Row::of(v[r]);
            if (stored) y.store(f.kept + at + r * layer.C);
            y.get(v[r]);
          }
        }
        if (follows) stage_columns(columns, chunk - 1);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
#pragma unroll
          for (int i = 0; i < kPack; ++i) v[r][i] = kSlopes ? gelu_and_slope(v[r][i], x[i]) : gelu(v[r][i]);
          if constexpr (kSlopes) {
            if (stored) *reinterpret_cast<uint2*>(f.kept + at + r * layer.C) = fp8_pack<Float8E4M3>(x);
          }
        }
      } else {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          if constexpr (kSlopes) {
            fp8_unpack<Float8E4M3>(met[chunk][r], x);
          } else {
            met[chunk][r].get(x);
          }
#pragma unroll
          for (int i = 0; i < kPack; ++i) v[r][i] *= kSlopes ? x[i] : gelu_slope(x[i]);
        }
        if (follows) stage_columns(columns, chunk - 1);
#pragma unroll
        for (int i = 0; i < kPack; ++i) x[i] = v[0][i] + v[1][i];
        of_columns[chunk] += sum_over_rows(x, lane);
      }

      uint4 column{};
      if (follows) column = await_column(chunk - 1);
      float largest = 0.0F;
#pragma unroll
      for (int i = 0; i < kPack; ++i) largest = larger_or_nan(larger_or_nan(largest, v[0][i]), v[1][i]);
      if (stored) amax = larger_or_nan(amax, largest);
      const Quantized<X> quantized(v, inv_scale);
      if (known.rows && stored) {
#pragma unroll
        for (int r = 0; r < 2; ++r)
          *reinterpret_cast<uint2*>(layer.to.rows + at + r * layer.C) = quantized.rows[r];
      }
      if (follows) store_column(known, column, chunk - 1, first_row);
#pragma unroll
      for (int i = 0; i < 4; ++i) columns[i] = quantized.columns[i];
    }
    if (known.columns && chunks > 0) {
      stage_columns(columns, chunks - 1);
      store_column(known, await_column(chunks - 1), chunks - 1, first_row);
    }
  }

  // Columns go through shared memory, so that each is written 64 bytes at a time: the columns of a chunk are
  // written while the next chunk is computed. The break above keeps chunks apart: without it the compiler
  // computes all chunks before it stores any.

  __device__ void stage_columns(const uint32_t (&columns)[4], int chunk) const {
    const int pack = lane / 8, of_pair = lane / 4 % 2, word = lane % 4;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      *reinterpret_cast<uint32_t*>(
          &shared.columns[group][chunk % 2][pack * kPack + 2 * i + of_pair][(warp ^ pack) * 16 + word * 4]) =
          columns[i];
  }
  /// 16 rows of a column, after all threads of the warpgroup have staged their columns.
  __device__ uint4 await_column(int chunk) const {
    named_barrier_sync(kStaged + group, kGroup);
    const int c = warp * 8 + lane / 4, part = lane % 4 ^ c / kPack;
    return *reinterpret_cast<const uint4*>(&shared.columns[group][chunk % 2][c][part * 16]);
  }
  __device__ void store_column(Known known, uint4 rows, int chunk, int first_row) const {
    const int c = warp * 8 + lane / 4, row = first_row + lane % 4 * 16;
    if (inside(known, row))
      *reinterpret_cast<uint4*>(layer.to.columns + int64_t{first_col + chunk * kChunk + c} * layer.N + row) =
          rows;
  }
};
#endif

// blockIdx.x is a tile of columns, blockIdx.y stands for every gridDim.y-th tile of rows.
template <class F>
__global__ void STEPLADDER_CLUSTER(kCluster) __launch_bounds__(kBlockThreads, 1)
    linear_gelu_kernel(const __grid_constant__ CUtensorMap x_map, const __grid_constant__ CUtensorMap w_map,
                       const __grid_constant__ Layer layer, const __grid_constant__ F f) {
  await_predecessor();
#ifdef STEPLADDER_HOPPER
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  const int thread = static_cast<int>(threadIdx.x);
  // The group of the whole warp. The shuffle tells the compiler that it is uniform, so that descriptors are
  // computed once for all threads of a warp.
  const int group = __shfl_sync(0xffffffffU, thread / kGroup, 0);
  const int first_col = static_cast<int>(blockIdx.x) * kTileN, first_tile = static_cast<int>(blockIdx.y);
  const int tiles = (layer.N + kTileM - 1) / kTileM, stride = static_cast<int>(gridDim.y);
  if (thread == 0) {
    for (SharedBarrier& barrier : shared.full) barrier.init(1);
    for (SharedBarrier& barrier : shared.empty) barrier.init(4 * kCluster);  // warps
    publish_barriers();
  }
  await_cluster();

  if (group == kConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    if (thread == kConsumers * kGroup) {
      const int first_copied = static_cast<int>(cluster_rank()) * kCopiedRows;
      uint32_t phase = 0;
      for (int tile = first_tile; tile < tiles; tile += stride, ++phase) {
        for (int step = 0; step < kSteps; ++step) {
          SharedBarrier& full = shared.full[step];
          if (phase > 0) shared.empty[step].await(phase - 1);
          full.arrive_expecting((phase == 0 ? kTileM + kTileN : kTileM) * kTileK);
          if (phase == 0) copy_weights(shared.weights[step], w_map, full, step, first_col / kChunk);
          copy_input(&shared.input[step][first_copied * kTileK], x_map, full, step,
                     tile * kTileM + first_copied);
        }
      }
    }
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    const int lane = thread % 32;
    Epilogue<F> epilogue(layer, f, shared, thread, first_col);
    float sums[kSums];
    auto phase = static_cast<uint32_t>(group);
    for (int tile = first_tile + group * stride; tile < tiles;
         tile += kConsumers * stride, phase += kConsumers) {
      const auto release = [&](int step) {
        if (lane < kCluster) shared.empty[step].arrive_at(static_cast<uint32_t>(lane));
      };
      epilogue.prepare(tile * kTileM);
      // Groups take turns: a group may await a phase only once the phase before has ended. Turns also keep
      // the columns that a group stages of one tile apart from those of the next.
      if (phase > 0) named_barrier_sync(kTurn + group, 2 * kGroup);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        shared.full[step].await(phase);
        const uint64_t x = wgmma_operand(shared.input[step]), w = wgmma_operand(shared.weights[step]);
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < kTileK / 32; ++k) wgmma<typename F::X>(sums, x + 2 * k, w + 2 * k, step + k > 0);
        wgmma_commit();
        wgmma_wait<1>();
        if (step > 0) release(step - 1);
      }
      if (tile + stride < tiles) named_barrier_arrive(kTurn + (group + 1) % kConsumers, 2 * kGroup);
      wgmma_wait_for(sums);
      release(kSteps - 1);
      epilogue(sums, tile * kTileM);
    }
    const uint32_t amax = warp_reduce(__float_as_uint(epilogue.amax * epilogue.unit),
                                      [](uint32_t a, uint32_t b) { return max(a, b); });
    if (lane == 0) atomicMax(reinterpret_cast<unsigned int*>(layer.to.amax), amax);
    if constexpr (!Epilogue<F>::kForward) {
      auto* of_warp = reinterpret_cast<float(*)[kTileN]>(&shared.columns);
      named_barrier_sync(kAllDone, kConsumers * kGroup);
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk)
        of_warp[thread / 32][chunk * kChunk + lane % 4 * kPack + lane / 4] = epilogue.of_columns[chunk];
      named_barrier_sync(kAllDone, kConsumers * kGroup);
      if (thread < kTileN && first_col + thread < layer.C) {
        float sum = 0.0F;
        for (int i = 0; i < kConsumers * 4; ++i) sum += of_warp[i][thread];
        f.partials[int64_t{blockIdx.y} * layer.C + first_col + thread] = sum * epilogue.unit;
      }
    }
  }
  await_cluster();  // the other block's warps may still arrive at barriers here
#endif
}

/// Whether the kernel can compute x (N,K) w^T, w (C,K): this build has it for the device, and the weights
/// fit.
template <class F>
bool has_kernel(const Cuda& cuda, const Tensor& x, const Tensor& w) {
  if (cuda.compute_capability != 90 || w.cols() > kMaxK || w.rows() % kChunk != 0) return false;
  if (x.rows() > INT_MAX / 2 || w.rows() > INT_MAX / 2) return false;
  // Built without Hopper's instructions, the kernel is empty; with too few registers, consumers would wait
  // for registers for ever.
  return attributes_of(linear_gelu_kernel<F>).numRegs * kBlockThreads >=
         kGroup * (kProducerRegisters + kConsumers * kConsumerRegisters);
}

/// The number of blocks that share a tile of columns, so that the blocks of all tiles are about as many as
/// the device holds.
int64_t blocks_of_columns(const Cuda& cuda, const Tensor& x, const Tensor& w) {
  const int64_t columns = ceil_div(w.rows(), kCluster * kTileN) * kCluster;
  return std::clamp<int64_t>(cuda.multiprocessors / columns, 1, ceil_div(x.rows(), kTileM));
}

template <class F>
void linear_gelu(Cuda& cuda, const Tensor& x, const Tensor& w, const Fp8Output& to, const F& f) {
  const auto N = static_cast<uint64_t>(x.rows()), C = static_cast<uint64_t>(w.rows()),
             K = static_cast<uint64_t>(w.cols());
  // Row 16 a + 2 i + b of the input comes as row 16 a + 8 b + i, row 32 a + 8 b + 2 c + d of the weights as
  // row 32 a + 8 c + 2 b + d.
  const auto x_map =
      tensor_map<4>(x, {K, 8, 2, N / 16}, {2 * K, K, 16 * K}, {kTileK, 8, 2, kCopiedRows / 16});
  const auto w_map =
      tensor_map<5>(w, {K, 2, 4, 4, C / kChunk}, {K, 8 * K, 2 * K, kChunk * K}, {kTileK, 2, 4, 4, kChunks});
  const Layer layer{column_count(x.rows()), column_count(w.rows()), x.scale, w.scale, to};
  const auto kernel = linear_gelu_kernel<F>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)));
  const dim3 grid(grid_size(ceil_div(w.rows(), kCluster * kTileN) * kCluster),
                  static_cast<unsigned>(blocks_of_columns(cuda, x, w)));
  launch(cuda.queue, kernel, grid, kBlockThreads, sizeof(Shared), x_map, w_map, layer, f);
}

}  // namespace

void LinearQuantizeGelu::run(Cuda& cuda) const {
  if (y.numel() == 0) return;
  const LtMatmul product = cuda.product(kName, y, x, w, MatOp::NT, Write::set);
  const Fp8Output to = fp8_output(kName, q, qt, present(slopes) ? slopes : y);
  const auto multiply = [&](auto* kept) {
    using F = ForwardGelu<std::remove_pointer_t<decltype(kept)>>;
    std::vector<MatmulStrategy> strategies;
    if (has_kernel<F>(cuda, x, w) && wide_rows(b.numel(), {b}))
      strategies.push_back({"one kernel", {}, [&] {
                              linear_gelu(cuda, x, w, to, F{kept, b.ptr<BFloat16>()});
                            }});
    strategies.push_back({"separate", {}, [&] {
                            LinearForward{y, x, w, b}.run(cuda);
                            QuantizeGelu{q, qt, y, slopes}.run(cuda);
                          }});
    cuda.matmul_plans->perform(product.with(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, b.data, y.data), strategies);
  };
  present(slopes) ? multiply(slopes.ptr<Float8E4M3>()) : multiply(y.ptr<BFloat16>());
}

void LinearQuantizeGeluBackward::run(Cuda& cuda) const {
  if (y.numel() == 0) return;
  const LtMatmul product = cuda.product(kName, dy, dout, wt, MatOp::NT, Write::set);
  const Fp8Output to = fp8_output(kName, q, qt, y);
  const int64_t chunks = blocks_of_columns(cuda, dout, wt);
  const auto multiply = [&](const auto* kept) {
    using F = BackwardGelu<std::remove_const_t<std::remove_pointer_t<decltype(kept)>>>;
    std::vector<MatmulStrategy> strategies;
    if (has_kernel<F>(cuda, dout, wt) && cuda.partials.data && cuda.partials.numel() >= chunks * y.cols())
      strategies.push_back({"one kernel", {}, [&] {
                              linear_gelu(cuda, dout, wt, to, F{kept, cuda.partials.ptr<float>()});
                              add_partials(cuda, dbias, chunks);
                            }});
    strategies.push_back({"separate", {}, [&] {
                            Matmul{dy, dout, wt, MatOp::NT}.run(cuda);
                            QuantizeGeluBackward{q, qt, dbias, dy, y}.run(cuda);
                          }});
    cuda.matmul_plans->perform(product.with(CUBLASLT_EPILOGUE_DGELU_BGRAD, dbias.data, y.data), strategies);
  };
  is_fp8(y.dtype) ? multiply(y.ptr<Float8E4M3>()) : multiply(y.ptr<BFloat16>());
}

}  // namespace stepladder
