// One step of AdamW over all parameters in one launch. It is bound by memory: with 16-bit gradients and a
// 16-bit copy of the weights it moves 28 bytes per parameter.
#include <cmath>

#include "model/cuda/cuda.h"
#include "model/cuda/kernels.cuh"
#include "model/cuda/multi_tensor.cuh"
#include "model/cuda/wide.cuh"

namespace stepladder {
namespace {

constexpr int kTile = 2048;  // elements that a block updates

template <class G, class T>
struct Parameter {
  float *w, *m, *v;
  const G* g;
  T* param_copy;  // may be null
  int64_t n;
  float weight_decay;
  bool wide;
};

struct Hyper {
  float weight1, weight2;      // 1 - beta
  float log_beta1, log_beta2;  // log(beta)
  float eps;
};

// m = beta1 * m + (1 - beta1) * g, v = beta2 * v + (1 - beta2) * g^2, w -= lr * (mhat / (sqrt(vhat) + eps) +
// weight_decay * w), where mhat = m / (1 - beta1^t) = m * bias_correction1, vhat = v / (1 - beta2^t) =
// v * bias_correction2
struct Update {
  float clip, lr, weight1, weight2, bias_correction1, bias_correction2, eps, weight_decay;
  __device__ void operator()(float& w, float& m, float& v, float g) const {
    g *= clip;
    m += weight1 * (g - m);
    v += weight2 * (g * g - v);
    w -= lr * (m * bias_correction1 / (sqrtf(v * bias_correction2) + eps) + weight_decay * w);
  }
};

// Updates the tile from element `begin` on, kVector elements at a time. With kVector > 1 the tile must be
// whole.
template <int kVector, class G, class T>
__device__ void update_tile(const Parameter<G, T>& p, int64_t begin, const Update& update) {
  constexpr int kSteps = kTile / (kThreads * kVector);
  const auto at = [begin](int j) { return begin + (j * kThreads + static_cast<int>(threadIdx.x)) * kVector; };
  const auto inside = [&](int64_t i) { return kVector > 1 || i < p.n; };
  using Floats = Pack<float, kVector>;
  using Gradients = Pack<G, kVector>;
  Floats w[kSteps], m[kSteps], v[kSteps];
  Gradients g[kSteps];
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    const int64_t i = at(j);
    if (!inside(i)) continue;
    g[j] = Gradients::load(p.g + i);
    w[j] = Floats::load(p.w + i);
    m[j] = Floats::load(p.m + i);
    v[j] = Floats::load(p.v + i);
  }
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    const int64_t i = at(j);
    if (!inside(i)) continue;
    float wj[kVector], mj[kVector], vj[kVector], gj[kVector];
    w[j].get(wj), m[j].get(mj), v[j].get(vj), g[j].get(gj);
#pragma unroll
    for (int k = 0; k < kVector; ++k) update(wj[k], mj[k], vj[k], gj[k]);
    Floats::of(wj).store(p.w + i);
    Floats::of(mj).store(p.m + i);
    Floats::of(vj).store(p.v + i);
    if (p.param_copy) Pack<T, kVector>::of(wj).store(p.param_copy + i);
  }
}

template <class G, class T>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(const __grid_constant__ TensorBatch<Parameter<G, T>> batch, Hyper hyper,
                 const float* schedule, const float* clip, const LossScaler* loss_scaler) {
  await_predecessor();
  if (loss_scaler && loss_scaler->overflow != 0.0F) return;  // this step overflowed
  const float t = loss_scaler ? schedule[1] - loss_scaler->skipped_steps : schedule[1];
  const int tile = static_cast<int>(blockIdx.x), i = tensor_of(batch, tile);
  const Parameter<G, T> p = batch.at[i];
  // Use expm1, since 1 - beta^t loses digits when t is small.
  const Update update{.clip = *clip,
                      .lr = schedule[0],
                      .weight1 = hyper.weight1,
                      .weight2 = hyper.weight2,
                      .bias_correction1 = -1.0F / expm1f(t * hyper.log_beta1),
                      .bias_correction2 = -1.0F / expm1f(t * hyper.log_beta2),
                      .eps = hyper.eps,
                      .weight_decay = p.weight_decay};
  const int64_t begin = static_cast<int64_t>(tile - batch.first_tile[i]) * kTile;
  if (p.wide && begin + kTile <= p.n) {
    update_tile<kWide<float>>(p, begin, update);
  } else {
    update_tile<1>(p, begin, update);
  }
}

}  // namespace

void AdamWStep::run(Cuda& cuda) const {
  for (const float beta : {hyper.beta1, hyper.beta2})
    stepladder::check(beta >= 0.0F && beta < 1.0F, kName, ": beta ", beta, ", must be in [0,1)");
  if (tensors.empty()) return;
  const float *lr_t = schedule.ptr<float>(), *factor = clip.ptr<float>();
  const LossScaler* scaler = scaler_of(loss_scaler);
  const auto log_of = [](float beta) { return static_cast<float>(std::log(static_cast<double>(beta))); };
  const Hyper values{1.0F - hyper.beta1, 1.0F - hyper.beta2, log_of(hyper.beta1), log_of(hyper.beta2),
                     hyper.eps};

  const Tensor &grad = tensors[0].g, copied = present(tensors[0].param_copy) ? tensors[0].param_copy : grad;
  with_sum_type(copied, grad, [&]<class T, class G>(T, G) {
    const auto parameter = [&](size_t i) {
      const AdamWTensor& t = tensors[i];
      Parameter<G, T> p{.w = t.w.ptr<float>(),
                        .m = t.m.ptr<float>(),
                        .v = t.v.ptr<float>(),
                        .g = t.g.ptr<G>(),
                        .param_copy = t.param_copy.data ? t.param_copy.ptr<T>() : nullptr,
                        .n = t.w.numel(),
                        .weight_decay = t.decay ? hyper.weight_decay : 0.0F,
                        .wide = false};
      p.wide = cuda.options.wide_access && aligned(p.w, p.m, p.v, p.g, p.param_copy);
      return p;
    };
    for_each_batch(tensors.size(), kTile, parameter,
                   [&](const TensorBatch<Parameter<G, T>>& batch, int tiles) {
                     if (tiles == 0) return;
                     launch(cuda.queue, adamw_kernel<G, T>, grid_size(tiles), kThreads, 0, batch, values,
                            lr_t, factor, scaler);
                   });
  });
}

}  // namespace stepladder
