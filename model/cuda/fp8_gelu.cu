// Linear layers in FP8 whose sums become FP8 again without a detour through memory: gelu of them, or their
// product with gelu'. On Hopper in one kernel, elsewhere in two.
//
// A block keeps kTileN rows of the weights in shared memory for good and goes through tiles of kTileM rows of
// the input, which a producer warp copies into a ring of stages. Three consumer warpgroups take turns with
// the tiles: while one multiplies, the others round and write what they have. The two blocks of a cluster
// have neighbouring weights and the same inputs, of which each copies half to both.
//
// Rows are permuted on their way into shared memory so that what a thread has lies side by side: of every 16
// rows of the input the even ones come first, which gives it two neighbouring rows; rows of the weights are
// dealt so that it has eight neighbouring columns of every 32.
//
// Sums are what Hopper's FP8 tensor cores keep of them, fewer bits than f32 has, also where cuBLASLt would
// take partial sums of a gradient to f32: over kMaxK products that is far less than rounding to e5m2 takes
// off.
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
constexpr int kGroup = 128, kConsumers = 3;                          // threads of a warpgroup; warpgroups
constexpr int kBlockThreads = (kConsumers + 1) * kGroup;
constexpr int kCluster = 2;
constexpr int kCopiedRows = kTileM / kCluster;  // of a tile, by each block

/// x (N,K) w^T, w (C,K), and where FP8 of it goes.
struct Layer {
  int N, C, steps;  // of kTileK along K
  const float *x_scale, *w_scale;
  Fp8Output to;
};

/// v = gelu(y), y = the sums and a bias, rounded to bf16.
struct ForwardGelu {
  using X = Float8E4M3;
  BFloat16* y;
  const BFloat16* bias;
};
/// v = sum * gelu'(y); partials (gridDim.y,C): sums of v over the rows of a block.
struct BackwardGelu {
  using X = Float8E5M2;
  const BFloat16* y;
  float* partials;
};

constexpr int kStages = 6, kMaxSteps = kMaxK / kTileK;
constexpr int kSums = kTileM * kTileN / kGroup;  // of a thread

struct Shared {
  uint8_t weights[kMaxSteps][kTileN * kTileK];
  uint8_t input[kStages][kTileM * kTileK];
  uint8_t columns[kConsumers][2][kChunk][kTileM];  // of two chunks; in the end, sums of columns
  alignas(kWideBytes) BFloat16 bias[kTileN];
  SharedBarrier has_weights[kMaxSteps], full[kStages], empty[kStages];
};
static_assert(sizeof(Shared) <= 227 << 10);
static_assert(sizeof(Shared::columns) >= kConsumers * 4 * kTileN * sizeof(float));

#ifdef STEPLADDER_HOPPER
constexpr int kPack = 8;  // neighbouring columns of a thread
/// Barriers of the block, each but the last one with one for each warpgroup.
constexpr int kStaged = 1, kTurn = kStaged + kConsumers, kAllDone = kTurn + kConsumers;

/// The step's weights, of tiles that begin at row 32 * chunk.
__device__ void copy_weights(void* to, const CUtensorMap& map, SharedBarrier& full, int step, int chunk) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4, %4, %4, %5}], [%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(full.address()), "r"(step * kTileK), "r"(0), "r"(chunk)
      : "memory");
}
/// Half of a tile's input, to the same place in both blocks of the cluster.
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
  uint32_t columns[4];  // of each pair of columns four rows of one, as transpose_8x8() deals them

  __device__ Quantized(const float (&v)[2][kPack], float per_scale) {
    constexpr auto kKind = Q::kMantissa == 3 ? __NV_E4M3 : __NV_E5M2;
    uint32_t pairs[4];  // two rows of one column, then of the next
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto both_rows = [&](int c) {
        return uint32_t{
            __nv_cvt_float2_to_fp8x2({v[0][c] * per_scale, v[1][c] * per_scale}, __NV_SATFINITE, kKind)};
      };
      pairs[i] = both_rows(2 * i) | both_rows(2 * i + 1) << 16;
      columns[i] = transpose_8x8(pairs[i]);
    }
    rows[0] = {__byte_perm(pairs[0], pairs[1], 0x6420), __byte_perm(pairs[2], pairs[3], 0x6420)};
    rows[1] = {__byte_perm(pairs[0], pairs[1], 0x7531), __byte_perm(pairs[2], pairs[3], 0x7531)};
  }
};

/// Sums over the eight lanes with the same lane % 4: that of v[i] for lane / 4 = i.
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

/// What a thread of a consumer does with the sums of its tiles.
template <class F>
struct Epilogue {
  using X = typename F::X;
  using Row = Pack<BFloat16, kPack>;
  struct Rows {
    Row row[2];
  };
  static constexpr bool kForward = std::is_same_v<F, ForwardGelu>;
  /// What a chunk's sums meet: the bias, or y.
  using Operand = std::conditional_t<kForward, Row, Rows>;

  const Layer& layer;
  const F& f;
  Shared& shared;
  const int group, warp, lane, first_col;
  const float sum_scale, unit, per_scale;  // v is in multiples of `unit`
  float amax = 0.0F;
  float of_columns[kForward ? 1 : kChunks] = {};  // sums of v

  __device__ Epilogue(const Layer& layer, const F& f, Shared& shared, int thread, int first_col)
      : layer(layer),
        f(f),
        shared(shared),
        group(thread / kGroup),
        warp(thread % kGroup / 32),
        lane(thread % 32),
        first_col(first_col),
        sum_scale(*layer.x_scale * *layer.w_scale),
        unit(kForward ? 1.0F : sum_scale),
        per_scale(unit / *layer.to.scale) {}

  __device__ bool inside(int row, int chunk) const {
    return row < layer.N && first_col + chunk * kChunk < layer.C;
  }
  /// Of a chunk whose first element here is element `at` of y.
  __device__ Operand operand(int row, int64_t at, int chunk) const {
    if constexpr (kForward) {
      return Row::load(&shared.bias[chunk * kChunk + lane % 4 * kPack]);
    } else {
      if (!inside(row, chunk)) return {};
      return {{Row::load(f.y + at), Row::load(f.y + at + layer.C)}};
    }
  }

  __device__ void operator()(const float (&sums)[kSums], int first_row) {
    const int row = first_row + warp * 16 + lane / 4 * 2;  // and the next one
    int64_t at = int64_t{row} * layer.C + first_col + lane % 4 * kPack;
    Operand next = operand(row, at, 0);
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk, at += kChunk) {
      const bool stored = inside(row, chunk);
      const Operand met = next;
      if (chunk + 1 < kChunks) next = operand(row, at + kChunk, chunk + 1);
      float v[2][kPack];
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int i = 0; i < kPack; ++i) v[r][i] = sums[(chunk * 4 + i / 2) * 4 + 2 * r + i % 2];

      if constexpr (kForward) {
        float bias[kPack];
        met.get(bias);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
#pragma unroll
          for (int i = 0; i < kPack; ++i) v[r][i] = fmaf(v[r][i], sum_scale, bias[i]);
          const Row y = Row::of(v[r]);
          if (stored) y.store(f.y + at + r * layer.C);
          y.get(v[r]);
        }
      }
      if constexpr (kForward) {
#pragma unroll
        for (int r = 0; r < 2; ++r)
#pragma unroll
          for (int i = 0; i < kPack; ++i) v[r][i] = gelu(v[r][i]);
      } else {
        float both[kPack];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float y[kPack];
          met.row[r].get(y);
#pragma unroll
          for (int i = 0; i < kPack; ++i) {
            v[r][i] *= gelu_slope(y[i]);
            both[i] = r == 0 ? v[0][i] : both[i] + v[1][i];
          }
        }
        of_columns[chunk] += sum_over_rows(both, lane);
      }

      uint4 column{};
      if (layer.to.columns && chunk > 0) column = await_column(chunk - 1);
      float largest = 0.0F;
#pragma unroll
      for (int i = 0; i < kPack; ++i) largest = larger_or_nan(larger_or_nan(largest, v[0][i]), v[1][i]);
      if (stored) amax = larger_or_nan(amax, largest);
      if (!(largest < HUGE_VALF)) {  // seldom: NaN for what is infinite, which saturating would hide
#pragma unroll
        for (int r = 0; r < 2; ++r)
#pragma unroll
          for (int i = 0; i < kPack; ++i) v[r][i] += v[r][i] - v[r][i];
      }
      const Quantized<X> quantized(v, per_scale);
      if (layer.to.rows && stored) {
#pragma unroll
        for (int r = 0; r < 2; ++r)
          *reinterpret_cast<uint2*>(layer.to.rows + at + r * layer.C) = quantized.rows[r];
      }
      if (layer.to.columns) {
        if (chunk > 0) store_column(column, chunk - 1, first_row);
        stage_columns(quantized, chunk);
      }
    }
    if (layer.to.columns) store_column(await_column(kChunks - 1), kChunks - 1, first_row);
  }

  // Columns go through shared memory, so that each is written 64 bytes at a time: a chunk's while the next
  // one is computed.

  __device__ void stage_columns(const Quantized<X>& quantized, int chunk) const {
    const int pack = lane / 8, of_pair = lane / 4 % 2, word = lane % 4;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      *reinterpret_cast<uint32_t*>(
          &shared.columns[group][chunk % 2][pack * kPack + 2 * i + of_pair][(warp ^ pack) * 16 + word * 4]) =
          quantized.columns[i];
  }
  /// 16 rows of a column, once all of the warpgroup have staged theirs.
  __device__ uint4 await_column(int chunk) const {
    await_threads(kStaged + group, kGroup);
    const int c = warp * 8 + lane / 4, part = lane % 4 ^ c / kPack;
    return *reinterpret_cast<const uint4*>(&shared.columns[group][chunk % 2][c][part * 16]);
  }
  __device__ void store_column(uint4 rows, int chunk, int first_row) const {
    const int c = warp * 8 + lane / 4, row = first_row + lane % 4 * 16;
    if (inside(row, chunk))
      *reinterpret_cast<uint4*>(layer.to.columns + int64_t{first_col + chunk * kChunk + c} * layer.N + row) =
          rows;
  }
};
#endif

// blockIdx: tile of columns, every gridDim.y-th tile of rows.
template <class F>
__global__ void STEPLADDER_CLUSTER(kCluster) __launch_bounds__(kBlockThreads, 1)
    linear_gelu_kernel(const __grid_constant__ CUtensorMap x_map, const __grid_constant__ CUtensorMap w_map,
                       const __grid_constant__ Layer layer, const __grid_constant__ F f) {
  await_predecessor();
#ifdef STEPLADDER_HOPPER
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  const int thread = static_cast<int>(threadIdx.x), group = thread / kGroup;
  const int first_col = static_cast<int>(blockIdx.x) * kTileN, first_tile = static_cast<int>(blockIdx.y);
  const int steps = layer.steps, tiles = (layer.N + kTileM - 1) / kTileM,
            stride = static_cast<int>(gridDim.y);
  if (thread == 0) {
    for (SharedBarrier& barrier : shared.has_weights) barrier.init(1);
    for (SharedBarrier& barrier : shared.full) barrier.init(1);
    for (SharedBarrier& barrier : shared.empty) barrier.init(4 * kCluster);  // warps
    publish_barriers();
  }
  if constexpr (Epilogue<F>::kForward) {
    if (thread < kTileN)
      shared.bias[thread] = first_col + thread < layer.C ? f.bias[first_col + thread] : BFloat16{};
  }
  await_cluster();

  if (group == kConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
    if (thread == kConsumers * kGroup) {
      const int first_copied = static_cast<int>(cluster_rank()) * kCopiedRows;
      uint32_t copied = 0;
      for (int tile = first_tile; tile < tiles; tile += stride) {
        for (int step = 0; step < steps; ++step, ++copied) {
          if (tile == first_tile) {
            shared.has_weights[step].arrive_expecting(kTileN * kTileK);
            copy_weights(shared.weights[step], w_map, shared.has_weights[step], step, first_col / kChunk);
          }
          const uint32_t stage = copied % kStages, round = copied / kStages;
          if (round > 0) shared.empty[stage].await(round - 1);
          shared.full[stage].arrive_expecting(kTileM * kTileK);
          copy_input(&shared.input[stage][first_copied * kTileK], x_map, shared.full[stage], step,
                     tile * kTileM + first_copied);
        }
      }
    }
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
    const int lane = thread % 32;
    Epilogue<F> epilogue(layer, f, shared, thread, first_col);
    float sums[kSums];
    auto used = static_cast<uint32_t>(group * steps);  // stages
    for (int tile = first_tile + group * stride; tile < tiles; tile += kConsumers * stride) {
      const auto release = [&](uint32_t stage) {
        if (lane < kCluster) shared.empty[stage].arrive_at(static_cast<uint32_t>(lane));
      };
      // In turns, so that nobody waits for a phase that is two ahead of its barrier.
      if (tile != first_tile) await_threads(kTurn + group, 2 * kGroup);
      for (int step = 0; step < steps; ++step, ++used) {
        const uint32_t stage = used % kStages;
        if (tile == first_tile + group * stride) shared.has_weights[step].await(0);
        shared.full[stage].await(used / kStages);
        const uint64_t x = wgmma_operand(shared.input[stage]), w = wgmma_operand(shared.weights[step]);
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < kTileK / 32; ++k) wgmma<typename F::X>(sums, x + 2 * k, w + 2 * k, step + k > 0);
        wgmma_commit();
        wgmma_wait<1>();
        if (step > 0) release((used - 1) % kStages);
      }
      if (tile + stride < tiles) pass_threads(kTurn + (group + 1) % kConsumers, 2 * kGroup);
      wgmma_wait<0>();
      release((used - 1) % kStages);
      used += static_cast<uint32_t>((kConsumers - 1) * steps);
      epilogue(sums, tile * kTileM);
    }
    const uint32_t amax = warp_reduce(__float_as_uint(epilogue.amax * epilogue.unit),
                                      [](uint32_t a, uint32_t b) { return max(a, b); });
    if (lane == 0) atomicMax(reinterpret_cast<unsigned int*>(layer.to.amax), amax);
    if constexpr (!Epilogue<F>::kForward) {
      auto* of_warp = reinterpret_cast<float(*)[kTileN]>(&shared.columns);
      await_threads(kAllDone, kConsumers * kGroup);
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk)
        of_warp[thread / 32][chunk * kChunk + lane % 4 * kPack + lane / 4] = epilogue.of_columns[chunk];
      await_threads(kAllDone, kConsumers * kGroup);
      if (thread < kTileN && first_col + thread < layer.C) {
        float sum = 0.0F;
        for (int i = 0; i < kConsumers * 4; ++i) sum += of_warp[i][thread];
        f.partials[int64_t{blockIdx.y} * layer.C + first_col + thread] = sum * epilogue.unit;
      }
    }
  }
  await_cluster();  // the other block may still copy and arrive here
#endif
}

/// Whether the kernel can compute x (N,K) w^T, w (C,K): this build has it for the device, and the weights
/// fit.
template <class F>
bool has_kernel(const Cuda& cuda, const Tensor& x, const Tensor& w) {
  if (cuda.compute_capability != 90 || w.cols() > kMaxK || w.rows() % kChunk != 0) return false;
  if (x.rows() > INT_MAX - kTileM || w.rows() > INT_MAX / 2) return false;
  cudaFuncAttributes attributes;
  CUDA_CHECK(cudaFuncGetAttributes(&attributes, linear_gelu_kernel<F>));
  return attributes.numRegs > kSums;  // without Hopper's instructions it is empty
}

/// Blocks that share a tile of columns: with those of all tiles about as many as the device holds.
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
  const Layer layer{column_count(x.rows()),
                    column_count(w.rows()),
                    static_cast<int>(ceil_div(w.cols(), kTileK)),
                    x.scale,
                    w.scale,
                    to};
  const auto kernel = linear_gelu_kernel<F>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)));
  const dim3 grid(grid_size(ceil_div(w.rows(), kCluster * kTileN) * kCluster),
                  static_cast<unsigned>(blocks_of_columns(cuda, x, w)));
  launch(cuda.queue, kernel, grid, kBlockThreads, sizeof(Shared), x_map, w_map, layer, f);
}

}  // namespace

void LinearQuantizeGelu::run(Cuda& cuda) const {
  const LtMatmul product = cuda.product(kName, y, x, w, MatOp::NT, Write::set);
  const Fp8Output to = fp8_output(kName, q, qt, y);
  std::vector<MatmulStrategy> strategies;
  if (has_kernel<ForwardGelu>(cuda, x, w))
    strategies.push_back({"one kernel", {}, [&] {
                            linear_gelu(cuda, x, w, to, ForwardGelu{y.ptr<BFloat16>(), b.ptr<BFloat16>()});
                          }});
  strategies.push_back({"separate", {}, [&] {
                          LinearForward{y, x, w, b}.run(cuda);
                          QuantizeGelu{q, qt, y}.run(cuda);
                        }});
  cuda.matmul_plans->perform(product.with(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, b.data, y.data), strategies);
}

void LinearQuantizeGeluBackward::run(Cuda& cuda) const {
  const LtMatmul product = cuda.product(kName, dy, dout, wt, MatOp::NT, Write::set);
  const Fp8Output to = fp8_output(kName, q, qt, y);
  const int64_t chunks = blocks_of_columns(cuda, dout, wt);
  std::vector<MatmulStrategy> strategies;
  if (has_kernel<BackwardGelu>(cuda, dout, wt) && cuda.partials.data &&
      cuda.partials.numel() >= chunks * y.cols())
    strategies.push_back(
        {"one kernel", {}, [&] {
           linear_gelu(cuda, dout, wt, to, BackwardGelu{y.ptr<BFloat16>(), cuda.partials.ptr<float>()});
           add_partials(cuda, dbias, chunks);
         }});
  strategies.push_back({"separate", {}, [&] {
                          Matmul{dy, dout, wt, MatOp::NT}.run(cuda);
                          QuantizeGeluBackward{q, qt, dbias, dy, y}.run(cuda);
                        }});
  cuda.matmul_plans->perform(product.with(CUBLASLT_EPILOGUE_DGELU_BGRAD, dbias.data, y.data), strategies);
}

}  // namespace stepladder
