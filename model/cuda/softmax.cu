// Softmax and log-softmax over the last dimension. A block has a row. A row too long for registers is read
// twice, the second time backwards: of a row that does not fit into L1, L2 still has the end.
#include <cmath>

#include "model/cuda/cuda.h"
#include "model/cuda/kernels.cuh"
#include "model/cuda/long_softmax.h"

namespace stepladder {
namespace {

enum class Kind { softmax, causal_softmax, scaled_causal_softmax, log_softmax };

template <Kind kKind>
constexpr bool kIsCausal = kKind == Kind::causal_softmax || kKind == Kind::scaled_causal_softmax;

// Elements of the row that count: those up to the diagonal when causal.
template <Kind kKind>
__device__ int row_length(int cols) {
  return kIsCausal<kKind> ? static_cast<int>(blockIdx.x % cols) + 1 : cols;
}

// *x, times scale for scaled_causal_softmax.
template <Kind kKind, class In>
__device__ float scaled(const In* x, float scale) {
  return kKind == Kind::scaled_causal_softmax ? load(x) * scale : load(x);
}

// softmax: exp(x - max) / sum_s exp(x - max); log_softmax: x - max - log sum_s exp(x - max).
// The sum is kept relative to a running maximum (Milakov and Gimelshein 2018).
template <Kind kKind, class Out, class In>
__global__ void __launch_bounds__(kMaxThreads)
    softmax_forward_kernel(Out* out, const In* in, int cols, int in_stride, float scale) {
  await_predecessor();
  constexpr int kItems = kItemsOf<In>;
  const int64_t row = blockIdx.x;
  const In* x = in + row * in_stride;
  Out* y = out + row * cols;
  const int length = row_length<kKind>(cols);
  const int step = static_cast<int>(blockDim.x), tile = kItems * step;

  float max = Max::kIdentity, sum = 0.0F;  // finite, so that -inf is an ordinary value
  for (int first = static_cast<int>(threadIdx.x); first < length; first += tile) {
    float v[kItems];
    float new_max = max;
#pragma unroll
    for (int j = 0; j < kItems; ++j)
      v[j] = first + j * step < length ? scaled<kKind>(x + first + j * step, scale) : -INFINITY;
#pragma unroll
    for (int j = 0; j < kItems; ++j) new_max = fmaxf(new_max, v[j]);
    sum *= expf(max - new_max);
#pragma unroll
    for (int j = 0; j < kItems; ++j) sum += expf(v[j] - new_max);
    max = new_max;
  }
  const float row_max = block_reduce(max, Max{});
  const float row_sum = block_reduce(sum * expf(max - row_max), Sum{});
  const float factor = 1.0F / row_sum, log_sum = logf(row_sum);

  for (int first = (cols - 1) / tile * tile + static_cast<int>(threadIdx.x); first >= 0; first -= tile) {
    float v[kItems];
#pragma unroll
    for (int j = 0; j < kItems; ++j)
      v[j] = first + j * step < length ? scaled<kKind>(x + first + j * step, scale) : 0.0F;
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const int c = first + j * step;
      const float value =
          kKind == Kind::log_softmax ? v[j] - row_max - log_sum : expf(v[j] - row_max) * factor;
      if (c < cols) store(y + c, c < length ? value : 0.0F);
    }
  }
}

// softmax_forward_kernel for rows of at most kHeld * kHeldThreads elements, which stay in registers: one read
// and one exp for each element.
constexpr int kHeld = 8;
constexpr int kHeldThreads = 128;

template <Kind kKind, class Out, class In>
__global__ void __launch_bounds__(kHeldThreads)
    softmax_forward_held_kernel(Out* out, const In* in, int cols, int in_stride) {
  await_predecessor();
  const int64_t row = blockIdx.x;
  const In* x = in + row * in_stride;
  Out* y = out + row * cols;
  const int length = row_length<kKind>(cols);

  float v[kHeld];
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int c = static_cast<int>(threadIdx.x) + j * kHeldThreads;
    v[j] = c < length ? load(x + c) : -INFINITY;
  }
  float max = Max::kIdentity;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) max = fmaxf(max, v[j]);
  max = block_reduce(max, Max{});

  float sum = 0.0F;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const float e = expf(v[j] - max);  // 0 past the end
    sum += e;
    v[j] = kKind == Kind::log_softmax ? v[j] - max : e;
  }
  sum = block_reduce(sum, Sum{});
  const float scale = 1.0F / sum, log_sum = logf(sum);
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int c = static_cast<int>(threadIdx.x) + j * kHeldThreads;
    if (c < cols) store(y + c, kKind == Kind::log_softmax ? v[j] - log_sum : v[j] * scale);
  }
}

// softmax: p * (dp - sum_s dp * p), times scale; log_softmax: dlogp - exp(logp) * sum_s dlogp.
template <Kind kKind, class Out, class In>
__global__ void __launch_bounds__(kMaxThreads)
    softmax_backward_kernel(Out* dx, const In* dout, const In* out, int cols, int dx_stride, int dout_stride,
                            float scale) {
  await_predecessor();
  constexpr int kItems = kItemsOf<In>;
  const int64_t row = blockIdx.x;
  const In *dy = dout + row * dout_stride, *y = out + row * cols;
  Out* to = dx + row * dx_stride;
  const int length = row_length<kKind>(cols);
  const int step = static_cast<int>(blockDim.x), tile = kItems * step;

  float sum = 0.0F;
  for (int first = static_cast<int>(threadIdx.x); first < length; first += tile) {
    float v[kItems];
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const int c = first + j * step;
      const float d = c < length ? load(dy + c) : 0.0F;
      v[j] = kKind == Kind::log_softmax ? d : d * (c < length ? load(y + c) : 0.0F);
    }
#pragma unroll
    for (int j = 0; j < kItems; ++j) sum += v[j];
  }
  const float row_sum = block_reduce(sum, Sum{});

  for (int first = (cols - 1) / tile * tile + static_cast<int>(threadIdx.x); first >= 0; first -= tile) {
    float d[kItems], p[kItems];
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const int c = first + j * step;
      d[j] = c < length ? load(dy + c) : 0.0F;
      p[j] = c < length ? load(y + c) : 0.0F;
    }
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const int c = first + j * step;
      float value = kKind == Kind::log_softmax ? d[j] - expf(p[j]) * row_sum : p[j] * (d[j] - row_sum);
      if (kKind == Kind::scaled_causal_softmax) value *= scale;
      if (c < cols) store(to + c, c < length ? value : 0.0F);
    }
  }
}

template <Kind kKind, class Out, class In>
void forward(Queue& queue, Tensor out, Tensor in, float scale) {
  Out* y = out.ptr<Out>();
  const In* x = in.ptr<In>();
  if (out.numel() == 0) return;
  const int cols = column_count(out.cols()), in_stride = column_count(in.cols());
  const unsigned rows = grid_size(out.rows());
  if constexpr (kKind != Kind::scaled_causal_softmax) {
    if (cols <= kHeld * kHeldThreads)
      return launch(queue, softmax_forward_held_kernel<kKind, Out, In>, rows, kHeldThreads, 0, y, x, cols,
                    in_stride);
  }
  launch(queue, softmax_forward_kernel<kKind, Out, In>, rows, row_threads(cols, kItemsOf<In>), 0, y, x, cols,
         in_stride, scale);
}

template <Kind kKind, class Out, class In>
void backward(Queue& queue, Tensor dx, Tensor dout, Tensor out, float scale) {
  Out* to = dx.ptr<Out>();
  const In *dy = dout.ptr<In>(), *y = out.ptr<In>();
  if (out.numel() == 0) return;
  launch(queue, softmax_backward_kernel<kKind, Out, In>, grid_size(out.rows()),
         row_threads(out.cols(), kItemsOf<In>), 0, to, dy, y, column_count(out.cols()),
         column_count(dx.cols()), column_count(dout.cols()), scale);
}

template <Kind kKind>
void forward(Queue& queue, Tensor p, Tensor x, float scale = 1.0F) {
  with_float_type(p.dtype, [&]<class T>(T) { forward<kKind, T, T>(queue, p, x, scale); });
}

template <Kind kKind>
void backward(Queue& queue, Tensor dx, Tensor dp, Tensor p, float scale = 1.0F) {
  with_float_type(dx.dtype, [&]<class T>(T) { backward<kKind, T, T>(queue, dx, dp, p, scale); });
}

}  // namespace

void long_softmax_forward(Queue& queue, Tensor p, Tensor x, float scale) {
  forward<Kind::scaled_causal_softmax>(queue, p, x, scale);
}

void long_softmax_backward(Queue& queue, Tensor dx, Tensor dp, Tensor p, float scale) {
  backward<Kind::scaled_causal_softmax>(queue, dx, dp, p, scale);
}

void SoftmaxForward::run(Cuda& cuda) const {
  forward<Kind::softmax>(cuda.queue, p, x);
}

void SoftmaxBackward::run(Cuda& cuda) const {
  backward<Kind::softmax>(cuda.queue, dx, dp, p);
}

void CausalSoftmaxForward::run(Cuda& cuda) const {
  forward<Kind::causal_softmax>(cuda.queue, p, x);
}

void CausalSoftmaxBackward::run(Cuda& cuda) const {
  backward<Kind::causal_softmax>(cuda.queue, dx, dp, p);
}

void LogSoftmaxForward::run(Cuda& cuda) const {
  with_float_type(logits.dtype, [&](auto type) {
    forward<Kind::log_softmax, float, decltype(type)>(cuda.queue, logp, logits, 1.0F);
  });
}

void LogSoftmaxBackward::run(Cuda& cuda) const {
  with_float_type(dlogits.dtype, [&](auto type) {
    backward<Kind::log_softmax, decltype(type), float>(cuda.queue, dlogits, dlogp, logp, 1.0F);
  });
}

}  // namespace stepladder
