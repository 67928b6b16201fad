// Muon's momentum and update, which are bound by memory.
//
// The norm of a matrix is known only once the whole matrix was read. Two kernels therefore go through some
// matrices at a time, few enough for the second kernel to find them in L2.
#include "model/cuda/cuda.h"
#include "model/cuda/kernels.cuh"
#include "model/cuda/multi_tensor.cuh"
#include "model/cuda/wide.cuh"

namespace stepladder {
namespace {

constexpr int64_t kChunkBytes = int64_t{40} << 20;  // bytes of g, m and x that L2 is to hold

template <class T, class G>
struct Momentum {
  T* x;
  float* m;
  const G* g;
  const float* clip;
  const LossScaler* loss_scaler;
  float* partials;     // (matrices,parts): sums of u^2
  int64_t size, part;  // elements of a matrix, and of a block's part of it
  float beta;
};

// The first kernel: m = beta * m + (1 - beta) * g and the sum of u^2; the second (kNormalize): x = u / |u|;
// u = beta * m + (1 - beta) * g with the new m. A block has a part of matrix blockIdx.y; the second kernel
// begins with the last part.
template <bool kNormalize, int kWidth, class T, class G>
__global__ void __launch_bounds__(kThreads) muon_momentum_kernel(Momentum<T, G> f) {
  await_predecessor();
  if (f.loss_scaler && f.loss_scaler->overflow != 0.0F) return;  // this step overflowed
  const int64_t parts = gridDim.x, at = kNormalize ? parts - 1 - blockIdx.x : blockIdx.x;
  const int64_t matrix = kNormalize ? gridDim.y - 1 - blockIdx.y : blockIdx.y;
  const int64_t end = f.part * (at + 1) < f.size ? f.part * (at + 1) : f.size;
  float* const m = f.m + matrix * f.size;
  const G* const g = f.g + matrix * f.size;
  float* const partials = f.partials + matrix * parts;

  float inverse = 1.0F;
  if (kNormalize) {
    float sum = 0.0F;
    for (int64_t i = threadIdx.x; i < parts; i += kThreads) sum += partials[i];
    inverse = 1.0F / (sqrtf(block_reduce(sum, Sum{})) + kMuonEps);
  }

  const float beta = f.beta, of_gradient = (1.0F - f.beta) * *f.clip;
  constexpr int kStep = kThreads * kWidth;
  float sum = 0.0F;
  for (int64_t first = f.part * at + threadIdx.x * kWidth; first < end; first += kItems * kStep) {
    Pack<float, kWidth> moments[kItems];
    Pack<G, kWidth> gradients[kItems];
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const int64_t i = first + j * kStep;
      if (i >= end) continue;
      moments[j] = Pack<float, kWidth>::load(m + i);
      gradients[j] = Pack<G, kWidth>::load(g + i);
    }
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const int64_t i = first + j * kStep;
      if (i >= end) continue;
      float mj[kWidth], gj[kWidth], u[kWidth];
      moments[j].get(mj), gradients[j].get(gj);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        if (!kNormalize) mj[k] = fmaf(beta, mj[k], of_gradient * gj[k]);
        u[k] = fmaf(beta, mj[k], of_gradient * gj[k]);
        sum += u[k] * u[k];
        u[k] *= inverse;
      }
      if constexpr (kNormalize) {
        Pack<T, kWidth>::of(u).store(f.x + matrix * f.size + i);
      } else {
        Pack<float, kWidth>::of(mj).store(m + i);
      }
    }
  }
  if constexpr (!kNormalize) {
    sum = block_reduce(sum, Sum{});
    if (threadIdx.x == 0) partials[at] = sum;
  }
}

template <class T>
struct Update {
  float* w;
  T* param_copy;  // or null
  const T* x;
  const float* lr;
  const LossScaler* loss_scaler;
  int64_t n;
  float scale, weight_decay;
};

// w -= lr * (scale * x + weight_decay * w)
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads) muon_update_kernel(Update<T> f) {
  await_predecessor();
  if (f.loss_scaler && f.loss_scaler->overflow != 0.0F) return;
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads * kItems + threadIdx.x) * kWidth;
  const float lr = *f.lr;
  Pack<float, kWidth> weights[kItems];
  Pack<T, kWidth> directions[kItems];
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int64_t i = first + j * kThreads * kWidth;
    if (i >= f.n) continue;
    weights[j] = Pack<float, kWidth>::load(f.w + i);
    directions[j] = Pack<T, kWidth>::load(f.x + i);
  }
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int64_t i = first + j * kThreads * kWidth;
    if (i >= f.n) continue;
    float w[kWidth], x[kWidth];
    weights[j].get(w), directions[j].get(x);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) w[k] -= lr * (f.scale * x[k] + f.weight_decay * w[k]);
    Pack<float, kWidth>::of(w).store(f.w + i);
    if (f.param_copy) Pack<T, kWidth>::of(w).store(f.param_copy + i);
  }
}

/// f(std::integral_constant<int, kWidth>{})
template <class F>
void with_width(bool wide, F&& f) {
  if (wide) return f(std::integral_constant<int, kWide<float>>{});
  f(std::integral_constant<int, 1>{});
}

}  // namespace

void MuonMomentum::run(Cuda& cuda) const {
  if (x.numel() == 0) return;
  const int64_t size = x.shape[-2] * x.cols(), matrices = x.numel() / size;
  with_sum_type(x, g, [&]<class T, class G>(T, G) {
    const Momentum<T, G> all{.x = x.ptr<T>(),
                             .m = m.ptr<float>(),
                             .g = g.ptr<G>(),
                             .clip = clip.ptr<float>(),
                             .loss_scaler = scaler_of(loss_scaler),
                             .partials = cuda.partials.data ? cuda.partials.ptr<float>() : nullptr,
                             .size = size,
                             .part = 0,
                             .beta = beta};
    const bool wide = cuda.options.wide_access && size % kWide<float> == 0 && aligned(all.x, all.m, all.g);
    const auto bytes = static_cast<int64_t>(sizeof(float) + sizeof(G) + sizeof(T)) * size;
    const int64_t chunk = std::clamp<int64_t>(kChunkBytes / bytes, 1, std::min(matrices, kSquareBlocks));
    stepladder::check(cuda.partials.numel() >= kSquareBlocks, kName,
                      " needs a workspace: call bind_workspace() first");
    with_width(wide, [&](auto width) {
      constexpr int64_t kTile = int64_t{kThreads} * kItems * width();
      const int64_t tiles = ceil_div(size, kTile), most = cuda.partials.numel() / chunk;
      for (int64_t first = 0; first < matrices; first += chunk) {
        Momentum<T, G> f = all;
        f.x += first * size, f.m += first * size, f.g += first * size;
        f.part = ceil_div(tiles, most) * kTile;
        const dim3 grid(grid_size(ceil_div(size, f.part)), grid_size(std::min(chunk, matrices - first)));
        launch(cuda.queue, muon_momentum_kernel<false, width(), T, G>, grid, kThreads, 0, f);
        launch(cuda.queue, muon_momentum_kernel<true, width(), T, G>, grid, kThreads, 0, f);
      }
    });
  });
}

void MuonUpdate::run(Cuda& cuda) const {
  if (w.numel() == 0) return;
  with_float_type(x.dtype, [&]<class T>(T) {
    const Update<T> f{.w = w.ptr<float>(),
                      .param_copy = present(param_copy) ? param_copy.ptr<T>() : nullptr,
                      .x = x.ptr<T>(),
                      .lr = lr.ptr<float>(),
                      .loss_scaler = scaler_of(loss_scaler),
                      .n = w.numel(),
                      .scale = scale(),
                      .weight_decay = weight_decay};
    const bool wide = cuda.options.wide_access && f.n % kWide<float> == 0 && aligned(f.w, f.param_copy, f.x);
    with_width(wide, [&](auto width) {
      launch(cuda.queue, muon_update_kernel<width(), T>,
             grid_size(ceil_div(f.n, int64_t{kThreads} * kItems * width())), kThreads, 0, f);
    });
  });
}

}  // namespace stepladder
