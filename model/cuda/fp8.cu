// Quantising to FP8, each tensor by its scale, both as stored and transposed in one pass; and the scales.
//
// A block takes kTileCols columns, kTileRows rows of them at a time. A thread reads kRows neighbouring rows
// of a pack of kPack columns, writes them as FP8, and leaves their bytes in shared memory; from there the
// block writes columns, 128 bits at a time.
#include "model/cuda/cuda.h"
#include "model/cuda/fp8.cuh"
#include "model/cuda/gelu.cuh"
#include "model/cuda/kernels.cuh"
#include "model/cuda/wide.cuh"

namespace stepladder {
namespace {

constexpr int kRows = 4, kPack = 8;
constexpr int kTileRows = 128, kTileCols = 64;
constexpr int kPacks = kTileCols / kPack, kRowGroups = kTileRows / kRows;  // threads along a row; a column
static_assert(kPacks * kRowGroups == kThreads && kTileRows * kTileCols == 2 * kThreads * kWideBytes);
constexpr int kMaxWindow = 1024;

using Input = Pack<BFloat16, kPack>;

// Sources of the values to quantise, a pack at a time: load() loads the operands, get() computes the values
// from them, and may write other results for the same elements.

/// F applied to each element of the operands.
template <class F, int kCount>
struct Values {
  Pointers<BFloat16, kCount> in;

  struct Loaded {
    Input in[kCount];
  };
  __device__ Loaded load(int64_t at) const {
    Loaded loaded;
#pragma unroll
    for (int k = 0; k < kCount; ++k) loaded.in[k] = Input::load(in.at[k] + at);
    return loaded;
  }
  __device__ void get(const Loaded& loaded, int64_t /*at*/, float (&v)[kPack]) const {
    float x[kCount][kPack];
#pragma unroll
    for (int k = 0; k < kCount; ++k) loaded.in[k].get(x[k]);
#pragma unroll
    for (int i = 0; i < kPack; ++i) v[i] = apply(F{}, x, i);
  }
};

/// gelu(x) as values; also writes gelu's slopes.
struct GeluAndSlopes : Values<Unchanged, 1> {
  Float8E4M3* slopes;

  __device__ void get(const Loaded& loaded, int64_t at, float (&v)[kPack]) const {
    float slope[kPack];
    loaded.in[0].get(v);
#pragma unroll
    for (int i = 0; i < kPack; ++i) v[i] = gelu_and_slope(v[i], slope[i]);
    *reinterpret_cast<uint2*>(slopes + at) = fp8_pack<Float8E4M3>(slope);
  }
};

/// dout times slopes as values.
struct TimesSlopes {
  const BFloat16* dout;
  const Float8E4M3* slopes;

  struct Loaded {
    Input dout;
    uint2 slopes;
  };
  __device__ Loaded load(int64_t at) const {
    return {Input::load(dout + at), *reinterpret_cast<const uint2*>(slopes + at)};
  }
  __device__ void get(const Loaded& loaded, int64_t /*at*/, float (&v)[kPack]) const {
    float slope[kPack];
    loaded.dout.get(v);
    fp8_unpack<Float8E4M3>(loaded.slopes, slope);
#pragma unroll
    for (int i = 0; i < kPack; ++i) v[i] *= slope[i];
  }
};

struct Quantized {
  Fp8Output to;
  float* partials;  // null, or (gridDim.y, C): sums over the rows of a block
  int64_t N;
  int C;
};

/// A tile's bytes by column: an element has 16 rows of one column, and a column's elements are XOR-swizzled
/// by its pack. Fp8Tile holds bytes by row; used here, it would make an FP8 step 0.8 % slower.
using Turned = uint4[kTileCols][kTileRows / kWideBytes];

/// Stores the thread's kRows rows of kPack bytes transposed: byte i of four words becomes word i of four
/// bytes.
__device__ void store_transposed(Turned& tile, int pack, int group,
                                 const uint32_t (&bytes)[kRows][kPack / 4]) {
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const uint32_t pick = static_cast<uint32_t>(i % 4) * 0x11U + 0x40U;  // byte i of both operands
    const uint32_t low = __byte_perm(bytes[0][i / 4], bytes[1][i / 4], pick),
                   high = __byte_perm(bytes[2][i / 4], bytes[3][i / 4], pick);
    auto* words = reinterpret_cast<uint32_t*>(&tile[pack * kPack + i][group / 4 ^ pack]);
    words[group % 4] = (low & 0xFFFFU) | high << 16;
  }
}

/// Writes the tile to columns (C,N).
__device__ void store_columns(const Turned& tile, uint8_t* columns, int first_col, int64_t first_row, int C,
                              int64_t N) {
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const int c = static_cast<int>(threadIdx.x) / 8 + part * (kTileCols / 2),
              at = static_cast<int>(threadIdx.x) % 8;
    const int64_t n = first_row + at * kWideBytes;
    if (first_col + c < C && n < N)
      *reinterpret_cast<uint4*>(columns + (first_col + c) * N + n) = tile[c][at ^ c / kPack];
  }
}

// blockIdx.x is a tile of columns, blockIdx.y stands for every gridDim.y-th tile of rows, blockIdx.z is a
// matrix.
template <class Q, class V>
__global__ void __launch_bounds__(kThreads) quantize_kernel(Quantized q, V values) {
  await_predecessor();
  __shared__ Turned tile;
  __shared__ float of_warp[kThreads / 32][kTileCols];
  const int thread = static_cast<int>(threadIdx.x), pack = thread % kPacks, group = thread / kPacks;
  const int first_col = static_cast<int>(blockIdx.x) * kTileCols, col = first_col + pack * kPack;
  const int64_t matrix = blockIdx.z * q.N * q.C;
  const float inv_scale = 1.0F / q.to.scale[blockIdx.z * kScaleStride];

  uint32_t amax = 0;
  float sums[kPack] = {};
  for (int64_t first_row = blockIdx.y * int64_t{kTileRows}; first_row < q.N;
       first_row += gridDim.y * int64_t{kTileRows}) {
    const int64_t row = first_row + group * kRows;
    if (col < q.C && row < q.N) {
      const int64_t at = matrix + row * q.C + col;
      typename V::Loaded loaded[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) loaded[r] = values.load(at + r * q.C);
      uint32_t bytes[kRows][kPack / 4];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float v[kPack];
        values.get(loaded[r], at + r * q.C, v);
#pragma unroll
        for (int i = 0; i < kPack; ++i) {
          amax = larger_magnitude(amax, v[i]);
          sums[i] += v[i];
        }
        const uint2 quantized = fp8_pack<Q>(v, inv_scale);
        bytes[r][0] = quantized.x, bytes[r][1] = quantized.y;
      }
      // After all rows are computed: where each is stored at once, ptxas of CUDA 12.4 leaves rows uncomputed.
      if (q.to.rows) {
#pragma unroll
        for (int r = 0; r < kRows; ++r)
          *reinterpret_cast<uint2*>(q.to.rows + at + r * q.C) = {bytes[r][0], bytes[r][1]};
      }
      store_transposed(tile, pack, group, bytes);
    }
    __syncthreads();
    if (q.to.columns) store_columns(tile, q.to.columns + matrix, first_col, first_row, q.C, q.N);
    __syncthreads();
  }
  update_amax(q.to.amax + blockIdx.z, amax);

  if (!q.partials) return;
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    for (int mask = kPacks; mask < 32; mask *= 2) sums[i] += __shfl_xor_sync(0xffffffffU, sums[i], mask);
    if (thread % 32 < kPacks) of_warp[thread / 32][pack * kPack + i] = sums[i];
  }
  __syncthreads();
  if (thread >= kTileCols || first_col + thread >= q.C) return;
  float sum = 0.0F;
  for (int i = 0; i < kThreads / 32; ++i) sum += of_warp[i][thread];
  q.partials[static_cast<int64_t>(blockIdx.y) * q.C + first_col + thread] = sum;
}

// columns (C,N) = rows (N,C) transposed, bytes; blockIdx: tile of columns, tile of rows.
__global__ void __launch_bounds__(kThreads)
    transpose_kernel(uint8_t* columns, const uint8_t* rows, int64_t N, int C) {
  await_predecessor();
  __shared__ Turned tile;
  const int pack = static_cast<int>(threadIdx.x) % kPacks, group = static_cast<int>(threadIdx.x) / kPacks;
  const int first_col = static_cast<int>(blockIdx.x) * kTileCols, col = first_col + pack * kPack;
  const int64_t first_row = blockIdx.y * int64_t{kTileRows}, row = first_row + group * kRows;
  if (col < C && row < N) {
    uint32_t bytes[kRows][kPack / 4];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const uint2 word = *reinterpret_cast<const uint2*>(rows + (row + r) * C + col);
      bytes[r][0] = word.x, bytes[r][1] = word.y;
    }
    store_transposed(tile, pack, group, bytes);
  }
  __syncthreads();
  store_columns(tile, columns, first_col, first_row, C, N);
}

// out (C) += sum of partials (chunks,C) in a fixed order; 32 columns a block.
constexpr int kWarps = 32;
template <class Sum>
__global__ void __launch_bounds__(32 * kWarps)
    add_bias_partials_kernel(Sum* out, const float* partials, int chunks, int C) {
  await_predecessor();
  __shared__ float of_warp[kWarps][33];
  const int c = static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.x);
  float sum = 0.0F;
  for (int i = static_cast<int>(threadIdx.y); i < chunks && c < C; i += kWarps)
    sum += partials[int64_t{i} * C + c];
  of_warp[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || c >= C) return;
  for (int i = 1; i < kWarps; ++i) sum += of_warp[i][threadIdx.x];
  store(out + c, load(out + c) + sum);
}

// amax[m] = max |x| over matrix m of n elements, by gridDim.x blocks for each matrix; amax must be 0 before.
__global__ void __launch_bounds__(kThreads) max_magnitude_kernel(float* amax, const BFloat16* x, int64_t n) {
  await_predecessor();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads * kPack;
  uint32_t largest = 0;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack; i < n; i += step) {
    float v[kPack];
    Input::load(x + blockIdx.y * n + i).get(v);
#pragma unroll
    for (int k = 0; k < kPack; ++k) largest = larger_magnitude(largest, v[k]);
  }
  update_amax(amax + blockIdx.y, largest);
}

/// The least power of two s with amax <= s * largest_number; 1 if amax is 0, NaN if it is not finite.
__device__ float fitting_scale(float amax, float largest_number) {
  if (!isfinite(amax)) return NAN;
  if (amax == 0.0F) return 1.0F;
  int exponent = 0;
  const float mantissa = frexpf(amax / largest_number, &exponent);  // in [0.5,1)
  return ldexpf(1.0F, max(mantissa == 0.5F ? exponent - 1 : exponent, -126));
}

// One thread for each tensor: its amax, if it was written, enters the history in front; the history's largest
// value gives the scale.
__global__ void __launch_bounds__(kThreads)
    update_scales_kernel(float* scale, float* history, const float* amax, int tensors, int window,
                         float largest_number) {
  await_predecessor();
  const int t = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (t >= tensors) return;
  const float newest = amax[t];
  uint32_t largest = 0;
  if (window == 0) {
    largest = larger_magnitude(largest, newest);
  } else {
    float* values = history + static_cast<int64_t>(t) * window;
    const bool written = newest != 0.0F;
    for (int w = window - 1; w >= 0; --w) {
      const float value = !written ? values[w] : w > 0 ? values[w - 1] : newest;
      values[w] = value;
      largest = larger_magnitude(largest, value);
    }
  }
  scale[t * kScaleStride] = fitting_scale(__uint_as_float(largest), largest_number);
}

/// q and qt = `values` in FP8, in the shape of x; dbias (or empty) += the values' sums over rows.
template <class V>
void quantize_values(Cuda& cuda, const char* op, Tensor q, Tensor qt, Tensor dbias, const V& values, Tensor x,
                     int64_t layers) {
  const int64_t C = x.cols(), N = x.rows() / layers;
  const Fp8Output to = fp8_output(op, q, qt, x, layers);
  if (x.numel() == 0) return;
  const auto chunks = static_cast<unsigned>(std::min(ceil_div(N, kTileRows), kMaxRowChunks));
  float* partials = nullptr;
  if (dbias.data) {
    check(cuda.partials.data && cuda.partials.numel() >= chunks * C, op,
          " needs a workspace: call bind_workspace() first");
    partials = cuda.partials.ptr<float>();
  }
  const Quantized output{to, partials, N, column_count(C)};
  const dim3 grid(grid_size(ceil_div(C, kTileCols)), chunks, static_cast<unsigned>(layers));
  with_fp8_type(one_of(q, qt).dtype, [&](auto type) {
    launch(cuda.queue, quantize_kernel<decltype(type), V>, grid, kThreads, 0, output, values);
  });
  if (dbias.data) add_partials(cuda, dbias, chunks);
}

}  // namespace

void add_partials(Cuda& cuda, const Tensor& dbias, int64_t chunks) {
  const int64_t C = dbias.numel();
  const auto add_to = [&]<class Sum>(Sum* sums) {
    launch(cuda.queue, add_bias_partials_kernel<Sum>, grid_size(ceil_div(C, 32)), dim3(32, kWarps), 0, sums,
           cuda.partials.ptr<float>(), static_cast<int>(chunks), column_count(C));
  };
  dbias.dtype == DType::f32 ? add_to(dbias.ptr<float>()) : add_to(dbias.ptr<BFloat16>());
}

void Quantize::run(Cuda& cuda) const {
  quantize_values(cuda, kName, q, qt, dbias, Values<Unchanged, 1>{{{x.ptr<BFloat16>()}}}, x, 1);
}

void Transpose::run(Cuda& cuda) const {
  if (q.numel() == 0) return;
  const int64_t N = q.rows(), C = q.cols();
  stepladder::check(N % kFp8Multiple == 0 && C % kFp8Multiple == 0 && aligned(q.data) && aligned(qt.data),
                    kName, ": ", qt, " of ", q);
  const auto tiles = ceil_div(N, kTileRows);
  stepladder::check(tiles <= 65535, kName, ": ", q, " has too many rows");
  launch(cuda.queue, transpose_kernel, dim3(grid_size(ceil_div(C, kTileCols)), static_cast<unsigned>(tiles)),
         kThreads, 0, static_cast<uint8_t*>(qt.data), static_cast<const uint8_t*>(q.data), N,
         column_count(C));
}

void QuantizeGelu::run(Cuda& cuda) const {
  const Pointers<BFloat16, 1> in{{x.ptr<BFloat16>()}};
  if (present(slopes)) {
    stepladder::check(aligned(slopes.data), kName, ": ", slopes, " is not aligned to ", kWideBytes, " bytes");
    quantize_values(cuda, kName, q, qt, {}, GeluAndSlopes{{in}, slopes.ptr<Float8E4M3>()}, x, 1);
  } else {
    quantize_values(cuda, kName, q, qt, {}, Values<Gelu, 1>{in}, x, 1);
  }
}

void QuantizeGeluBackward::run(Cuda& cuda) const {
  stepladder::check(aligned(x.data), kName, ": ", x, " is not aligned to ", kWideBytes, " bytes");
  const auto* from = dout.ptr<BFloat16>();
  if (is_fp8(x.dtype)) {
    quantize_values(cuda, kName, q, qt, dbias, TimesSlopes{from, x.ptr<Float8E4M3>()}, dout, 1);
  } else {
    const Pointers<BFloat16, 2> in{{from, x.ptr<BFloat16>()}};
    quantize_values(cuda, kName, q, qt, dbias, Values<GeluBackwardFunctor, 2>{in}, dout, 1);
  }
}

void QuantizeToFit::run(Cuda& cuda) const {
  stepladder::check(x.numel() > 0 && aligned(x.data) && x.shape[1] * x.shape[2] % kPack == 0, kName, ": ", q,
                    " and ", qt, " of ", x);
  const int64_t layers = x.shape[0], n = x.numel() / layers;
  CUDA_CHECK(cudaMemsetAsync(q.amax, 0, static_cast<size_t>(layers) * sizeof(float), cuda.stream.get()));
  const int64_t blocks =
      std::min(ceil_div(n, kThreads * kPack), ceil_div(8 * int64_t{cuda.multiprocessors}, layers));
  launch(cuda.queue, max_magnitude_kernel, dim3(grid_size(blocks), static_cast<unsigned>(layers)), kThreads,
         0, q.amax, x.ptr<BFloat16>(), n);
  launch(cuda.queue, update_scales_kernel, grid_size(ceil_div(layers, kThreads)), kThreads, 0, q.scale,
         nullptr, q.amax, static_cast<int>(layers), 0, largest_of(q.dtype));
  quantize_values(cuda, kName, q, qt, {}, Values<Unchanged, 1>{{{x.ptr<BFloat16>()}}}, x, layers);
}

void UpdateScales::run(Cuda& cuda) const {
  stepladder::check(history.cols() <= kMaxWindow, kName, ": ", history, ", at most ", kMaxWindow, " steps");
  const int tensors = column_count(amax.numel());
  if (tensors == 0) return;
  launch(cuda.queue, update_scales_kernel, grid_size(ceil_div(tensors, kThreads)), kThreads, 0,
         scale.ptr<float>(), history.ptr<float>(), amax.ptr<float>(), tensors,
         static_cast<int>(history.cols()), largest_of(type));
}

}  // namespace stepladder
