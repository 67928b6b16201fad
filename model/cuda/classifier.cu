// Negative log-likelihood of the targets, and its mean.
#include "model/cuda/cuda_ops.h"
#include "model/cuda/kernels.cuh"
#include "model/cuda/range.h"

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

struct NllLossBackward {  // -scale, times that of the loss scaler, at the target, else 0
  const int32_t* targets;
  float scale;
  const LossScaler* loss_scaler;  // may be null
  __device__ auto row(int64_t row) const {
    const float at_target = loss_scaler ? -scale * loss_scaler->scale : -scale;
    return [target = targets[row], at_target](int64_t, int v) { return v == target ? at_target : 0.0F; };
  }
};

struct AddMean {  // out + sum_i x / n
  float* out;
  const float* x;
  float n;
  __device__ auto row(int64_t) const {
    return [x = x](int64_t i) { return x[i]; };
  }
  __device__ void write(int64_t, float sum) const { *out += sum / n; }
};

}  // namespace

void CudaOps::nll_loss_forward(Tensor losses, Tensor logp, Tensor targets) {
  const Range range("nll_loss_forward");
  const int64_t rows = logp.rows();
  check(targets.numel() == rows && losses.numel() == rows, "nll_loss_forward: ", losses, " of ", logp,
        " and ", targets);
  float* out = losses.ptr<float>();
  const float* in = logp.ptr<float>();
  const int32_t* at = targets.ptr<int32_t>();
  if (rows == 0) return;
  launch(queue_, nll_loss_forward_kernel, grid_size(ceil_div(rows, kThreads)), kThreads, 0, out, in, at, rows,
         logp.cols());
}

void CudaOps::nll_loss_backward(Tensor dlogp, Tensor targets, float scale, Tensor loss_scaler) {
  const Range range("nll_loss_backward");
  check(targets.numel() == dlogp.rows(), "nll_loss_backward: ", targets, " for the rows of ", dlogp);
  map_rows(queue_, dlogp,
           NllLossBackward{targets.ptr<int32_t>(), scale, scaler_of("nll_loss_backward", loss_scaler)});
}

void CudaOps::add_mean(Tensor out, Tensor x) {
  const Range range("add_mean");
  const int64_t n = x.numel();
  check(out.numel() == 1 && n > 0, "add_mean: ", out, " of ", x);
  sum_each_row(queue_, n, n, AddMean{out.ptr<float>(), x.ptr<float>(), static_cast<float>(n)});
}

}  // namespace stepladder
