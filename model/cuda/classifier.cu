// Negative log-likelihood of the targets, and its mean.
#include "model/cuda/cuda.h"
#include "model/cuda/kernels.cuh"

namespace stepladder {
namespace {

// losses[row] = -logp[row][targets[row]]
__global__ void __launch_bounds__(kThreads)
    nll_loss_forward_kernel(float* losses, const float* logp, const int32_t* targets, int64_t rows,
                            int64_t V) {
  await_predecessor();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row < rows) losses[row] = -logp[row * V + targets[row]];
}

struct NllLossBackwardFunctor {  // -scale, times the loss scaler's scale, at the target, else 0
  const int32_t* targets;
  float scale;
  const LossScaler* loss_scaler;  // may be null
  __device__ auto row(int64_t row) const {
    const float at_target = loss_scaler ? -scale * loss_scaler->scale : -scale;
    return [target = targets[row], at_target](int64_t, int v) { return v == target ? at_target : 0.0F; };
  }
};

struct AddMeanFunctor {  // out + sum_i x / n
  float* out;
  const float* x;
  float n;
  __device__ auto row(int64_t) const {
    return [x = x](int64_t i) { return x[i]; };
  }
  __device__ void write(int64_t, float sum) const { *out += sum / n; }
};

}  // namespace

void NllLossForward::run(Cuda& cuda) const {
  const int64_t rows = logp.rows();
  float* out = losses.ptr<float>();
  const float* in = logp.ptr<float>();
  const int32_t* at = targets.ptr<int32_t>();
  if (rows == 0) return;
  launch(cuda.queue, nll_loss_forward_kernel, grid_size(ceil_div(rows, kThreads)), kThreads, 0, out, in, at,
         rows, logp.cols());
}

void NllLossBackward::run(Cuda& cuda) const {
  map_rows(cuda.queue, dlogp,
           NllLossBackwardFunctor{targets.ptr<int32_t>(), scale.factor, scaler_of(scale.loss_scaler)});
}

void AddMean::run(Cuda& cuda) const {
  const int64_t n = x.numel();
  sum_each_row(cuda.queue, n, n, AddMeanFunctor{out.ptr<float>(), x.ptr<float>(), static_cast<float>(n)});
}

}  // namespace stepladder
