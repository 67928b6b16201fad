// The causal softmax of scaled scores x (...,T,T), and its gradient: the row of position t has t + 1
// elements; the elements beyond are ignored, and written as 0.
//
// A row of at most kMaxHeldCols elements stays in the registers of a warp; longer ones are left to
// softmax.cu. The long rows of a matrix come first, so that short ones fill up the end.
#include "model/cuda/cuda.h"
#include "model/cuda/kernels.cuh"
#include "model/cuda/long_softmax.h"
#include "model/cuda/wide.cuh"

namespace stepladder {
namespace {

constexpr int kHeld = 32;  // elements of a row in a lane
constexpr int kMaxHeldCols = 32 * kHeld;
constexpr int kRows = 4;  // rows of a block; each row has a warp

/// v = scale * x; elements from column `length` on are `past` instead. The pack begins at column c.
template <class T, int kWidth>
__device__ void get_scaled(float (&v)[kWidth], const Pack<T, kWidth>& x, int c, int length, float scale,
                           float past) {
  x.get(v);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) v[i] = c + i < length ? v[i] * scale : past;
}

// p = 2^(y - max) / sum_s 2^(y - max), y = scale * log2(e) * x
template <class T, int kWidth>
__global__ void __launch_bounds__(32 * kRows)
    scaled_softmax_forward_kernel(T* p, const T* x, int cols, float scale) {
  await_predecessor();
  constexpr int kPacks = kHeld / kWidth;
  const int t = cols - 1 - static_cast<int>(blockIdx.y * kRows + threadIdx.y), length = t + 1;
  if (t < 0) return;
  const int64_t offset = (static_cast<int64_t>(blockIdx.x) * cols + t) * cols;
  const auto column = [](int j) { return (j * 32 + static_cast<int>(threadIdx.x)) * kWidth; };

  Pack<T, kWidth> packs[kPacks];
#pragma unroll
  for (int j = 0; j < kPacks; ++j)
    if (column(j) < length) packs[j] = Pack<T, kWidth>::load_once(x + offset + column(j));
  float v[kPacks][kWidth] = {}, max = Max::kIdentity, sum = 0.0F;
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    if (column(j) >= length) continue;
    get_scaled(v[j], packs[j], column(j), length, scale * kLog2E, -INFINITY);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) max = fmaxf(max, v[j][i]);
  }
  max = warp_reduce(max, Max{});
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    if (column(j) >= length) continue;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum += v[j][i] = exp2_fast(v[j][i] - max);
  }
  const float factor = 1.0F / warp_reduce(sum, Sum{});
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    if (column(j) >= cols) continue;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) v[j][i] *= factor;
    Pack<T, kWidth>::of(v[j]).store(p + offset + column(j));
  }
}

// dx = scale * p * (dp - sum_s dp * p)
template <class T, int kWidth>
__global__ void __launch_bounds__(32 * kRows)
    scaled_softmax_backward_kernel(T* dx, const T* dp, const T* p, int cols, float scale) {
  await_predecessor();
  constexpr int kPacks = kHeld / kWidth;
  const int t = cols - 1 - static_cast<int>(blockIdx.y * kRows + threadIdx.y), length = t + 1;
  if (t < 0) return;
  const int64_t offset = (static_cast<int64_t>(blockIdx.x) * cols + t) * cols;
  const auto column = [](int j) { return (j * 32 + static_cast<int>(threadIdx.x)) * kWidth; };

  Pack<T, kWidth> packs[2][kPacks];
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    if (column(j) >= length) continue;
    packs[0][j] = Pack<T, kWidth>::load_once(dp + offset + column(j));
    packs[1][j] = Pack<T, kWidth>::load_once(p + offset + column(j));
  }
  float sum = 0.0F;
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    if (column(j) >= length) continue;
    float d[kWidth], y[kWidth];
    get_scaled(d, packs[0][j], column(j), length, 1.0F, 0.0F);
    get_scaled(y, packs[1][j], column(j), length, 1.0F, 0.0F);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum += d[i] * y[i];
  }
  sum = warp_reduce(sum, Sum{});
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    if (column(j) >= cols) continue;
    float d[kWidth] = {}, y[kWidth] = {};
    if (column(j) < length) {
      packs[0][j].get(d);
      packs[1][j].get(y);
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) d[i] = column(j) + i < length ? scale * y[i] * (d[i] - sum) : 0.0F;
    Pack<T, kWidth>::of(d).store(dx + offset + column(j));
  }
}

/// Launches a kernel for the rows of x, (...,T,T).
template <class... Parameters, class... Args>
void launch_rows(Queue& queue, void (*kernel)(Parameters...), const Tensor& x, float scale, Args... args) {
  if (x.numel() == 0) return;
  const auto T = static_cast<int>(x.cols());
  launch(queue, kernel, {grid_size(x.numel() / T / T), grid_size(ceil_div(T, kRows))}, dim3(32, kRows), 0,
         args..., T, scale);
}

}  // namespace

void ScaledCausalSoftmaxForward::run(Cuda& cuda) const {
  if (x.cols() > kMaxHeldCols) return long_softmax_forward(cuda.queue, p, x, scale);
  with_pack({p, x}, cuda.options.wide_access, [&]<class T>(T, auto width) {
    launch_rows(cuda.queue, scaled_softmax_forward_kernel<T, width()>, x, scale, p.ptr<T>(), x.ptr<T>());
  });
}

void ScaledCausalSoftmaxBackward::run(Cuda& cuda) const {
  if (p.cols() > kMaxHeldCols) return long_softmax_backward(cuda.queue, dx, dp, p, scale);
  with_pack({dx, dp, p}, cuda.options.wide_access, [&]<class T>(T, auto width) {
    launch_rows(cuda.queue, scaled_softmax_backward_kernel<T, width()>, p, scale, dx.ptr<T>(), dp.ptr<T>(),
                p.ptr<T>());
  });
}

}  // namespace stepladder
