// Clipping by the global norm.
#include "model/cuda/cuda.h"
#include "model/cuda/kernels.cuh"
#include "model/cuda/multi_tensor.cuh"
#include "model/cuda/wide.cuh"

namespace stepladder {
namespace {

template <class T>
struct SquaresOfPart {  // sum of x^2
  float* partials;
  const T* x;
  __device__ auto row(int64_t) const {
    return [x = x](int64_t i) {
      const float value = load(x + i);
      return value * value;
    };
  }
  __device__ void write(int64_t row, float sum) const { partials[row] = sum; }
};

struct SumOfParts {  // sum of parts
  float* out;
  const float* parts;
  __device__ auto row(int64_t) const {
    return [parts = parts](int64_t i) { return parts[i]; };
  }
  __device__ void write(int64_t, float sum) const { *out = sum; }
};

// norm = sqrt(sum of parts), factor = min(1, max_norm / (norm + 1e-6)); NaN stays NaN. With a loss scaler the
// parts are those of scaled gradients: norm is that of the unscaled ones, and factor also unscales.
struct ClipFactorFunctor {
  float *factor, *norm;
  const float* parts;
  float max_norm;
  LossScaler* loss_scaler;  // may be null
  __device__ auto row(int64_t) const {
    return [parts = parts](int64_t i) { return parts[i]; };
  }
  __device__ void write(int64_t, float sum) const {
    const float scale = loss_scaler ? loss_scaler->scale : 1.0F;
    *norm = sqrtf(sum) / scale;
    const float ratio = max_norm / (*norm + 1e-6F);
    *factor = (ratio > 1.0F ? 1.0F : ratio) / scale;
    if (loss_scaler) update(*loss_scaler, isfinite(*norm));
  }
  __device__ static void update(LossScaler& s, bool is_good) {
    s.overflow = is_good ? 0.0F : 1.0F;
    if (!is_good) {
      s.scale *= 0.5F;
      s.good_steps = 0.0F;
      s.skipped_steps += 1.0F;
    } else if (++s.good_steps >= kGoodSteps) {
      s.scale = fminf(2.0F * s.scale, kLargestScale);
      s.good_steps = 0.0F;
    }
  }
};

template <class T>
struct Gradient {
  const T* x;
  int64_t n;
  bool wide;
};

template <class T>
constexpr int kTile = kThreads* kItems* kWide<T>;

// partials[block] = or += sum of x^2 over every gridDim-th tile
template <Write kWrite, class T>
__global__ void __launch_bounds__(kThreads)
    sum_of_squares_kernel(float* partials, const __grid_constant__ TensorBatch<Gradient<T>> batch,
                          int tiles) {
  await_predecessor();
  float sum = 0.0F;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    const int i = tensor_of(batch, tile);
    const int64_t begin = static_cast<int64_t>(tile - batch.first_tile[i]) * kTile<T>;
    const int64_t rest = batch.at[i].n - begin;
    const T* from = batch.at[i].x + begin;
    if (batch.at[i].wide && rest >= kTile<T>) {
      using Wide = Pack<T, kWide<T>>;
      Wide packs[kItems];
#pragma unroll
      for (int j = 0; j < kItems; ++j) packs[j] = Wide::load(from + (j * kThreads + threadIdx.x) * kWide<T>);
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        float x[kWide<T>];
        packs[j].get(x);
#pragma unroll
        for (int k = 0; k < kWide<T>; ++k) sum += x[k] * x[k];
      }
    } else {
      const int length = rest < kTile<T> ? static_cast<int>(rest) : kTile<T>;
#pragma unroll 8
      for (int k = static_cast<int>(threadIdx.x); k < length; k += kThreads) {
        const float x = load(from + k);
        sum += x * x;
      }
    }
  }
  sum = block_reduce(sum, Sum{});
  float* to = partials + blockIdx.x;
  if (threadIdx.x == 0) *to = kWrite == Write::add ? *to + sum : sum;
}

}  // namespace

void SumOfSquares::run(Cuda& cuda) const {
  const int64_t n = x.numel();
  if (n == 0) return Zero{out}.run(cuda);
  stepladder::check(cuda.partials.numel() >= kSquareBlocks, kName,
                    " needs a workspace: call bind_workspace() first");

  // Compute the sums of at most kSquareBlocks parts of x, then the sum of these sums.
  const int64_t part = std::max<int64_t>(kThreads * kItems, ceil_div(n, kSquareBlocks));
  const int64_t parts = ceil_div(n, part);
  float* partials = cuda.partials.ptr<float>();
  with_float_type(x.dtype, [&]<class T>(T) {
    sum_each_row<T>(cuda.queue, n, part, SquaresOfPart<T>{partials, x.ptr<T>()});
  });
  sum_each_row(cuda.queue, parts, parts, SumOfParts{out.ptr<float>(), partials});
}

void ClipFactor::run(Cuda& cuda) const {
  sum_each_row(
      cuda.queue, parts.numel(), parts.numel(),
      ClipFactorFunctor{factor.ptr<float>(), norm.ptr<float>(), parts.ptr<float>(), max_norm, nullptr});
}

void ClipGradNorm::run(Cuda& cuda) const {
  stepladder::check(cuda.partials.numel() >= kSquareBlocks, kName,
                    " needs a workspace: call bind_workspace() first");
  float* partials = cuda.partials.ptr<float>();
  const ClipFactorFunctor finish{factor.ptr<float>(), norm.ptr<float>(), partials, max_norm,
                                 scaler_of(loss_scaler)};

  with_float_type(grads[0].dtype, [&]<class T>(T) {
    const auto gradient = [&](size_t i) {
      const T* x = grads[i].ptr<T>();
      return Gradient<T>{x, grads[i].numel(), cuda.options.wide_access && aligned(x)};
    };
    bool first = true;
    for_each_batch(grads.size(), kTile<T>, gradient, [&](const TensorBatch<Gradient<T>>& batch, int tiles) {
      const auto kernel = first ? sum_of_squares_kernel<Write::set, T> : sum_of_squares_kernel<Write::add, T>;
      launch(cuda.queue, kernel, kSquareBlocks, kThreads, 0, partials, batch, tiles);
      first = false;
    });
  });
  sum_each_row(cuda.queue, kSquareBlocks, kSquareBlocks, finish);
}

}  // namespace stepladder
