// The fused classifier: losses and the gradient of the logits, with no normalised row ever stored.
//
// A block has a row. Where shared memory holds it, all of it is on its way there before the first element is
// used, it is read from memory once and its gradient written once; else it is read again from its end, which
// is what is still in L2. Rows of an unpadded vocabulary start anywhere: a few elements at both ends of one
// are moved alone, so that the packs between them are aligned.
#include "model/cuda/cuda_ops.h"
#include "model/cuda/kernels.cuh"
#include "model/cuda/range.h"
#include "model/cuda/wide.cuh"

namespace stepladder {
namespace {

enum class Mode { loss, gradient_reading_twice, gradient_in_shared };

/// The maximum of no logits yet: finite in every product, so that 0 * exp2(kFloor - max) is 0 and a logit of
/// -inf an ordinary value.
constexpr float kFloor = -1e30F;

template <class T>
struct CrossEntropy {
  float* losses;
  T* logits;  // (rows,Vp)
  const int32_t* targets;
  const LossScaler* loss_scaler;  // or null
  float scale;
  int V, Vp;
};

/// sum_v exp(v - max) kept relative to a running maximum (Milakov and Gimelshein 2018).
struct RunningSum {
  float max = kFloor, sum = 0.0F;

  template <int kCount>
  __device__ void add(const float (&v)[kCount]) {
    float new_max = max;
#pragma unroll
    for (int i = 0; i < kCount; ++i) new_max = fmaxf(new_max, v[i]);
    const float base = new_max * kLog2E;
    sum *= exp2_fast(max * kLog2E - base);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum += exp2_fast(v[i] * kLog2E - base);
    max = new_max;
  }
};

// losses = logsumexp(x) - x[target] over x[0..V), and x[0..V) = scale * (softmax(x) - onehot(target)),
// x[V..Vp) = 0.
template <class T, int kWidth, Mode kMode>
__global__ void __launch_bounds__(kMaxThreads) cross_entropy_kernel(CrossEntropy<T> f) {
  extern __shared__ uint4 shared_row[];
  auto* const held = reinterpret_cast<Pack<T, kWidth>*>(shared_row);
  const int64_t row = blockIdx.x;
  T* const x = f.logits + row * f.Vp;
  const int thread = static_cast<int>(threadIdx.x), step = static_cast<int>(blockDim.x), tile = kItems * step;

  // x[0..head) and x[tail..V) by element, from `body` on `packs` packs.
  const int misaligned = static_cast<int>(reinterpret_cast<uintptr_t>(x) / sizeof(T) % kWidth);
  const int head = misaligned == 0 ? 0 : min(kWidth - misaligned, f.V);
  const int packs = (f.V - head) / kWidth, tail = head + packs * kWidth, edges = head + f.V - tail;
  T* const body = x + head;
  const auto edge = [=](int i) { return i < head ? i : tail + i - head; };

  int pending = 0;  // groups of the thread's packs that are on their way
  if constexpr (kMode == Mode::gradient_in_shared) {
    for (int first = thread; first < packs; first += tile, ++pending) {
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        const int at = first + j * step;
        if (at < packs) Pack<T, kWidth>::copy_async(held + at, body + at * kWidth);
      }
      __pipeline_commit();
    }
  }

  const int target = f.targets[row];
  const float target_logit = widen(x[target]);  // before any thread writes

  RunningSum running;
  for (int first = thread; first < packs; first += tile) {
    if constexpr (kMode == Mode::gradient_in_shared) await_copies(--pending);
    Pack<T, kWidth> p[kItems];
    const auto take = [&](auto inside) {
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        const int at = first + j * step;
        if (!inside(j)) continue;
        if constexpr (kMode == Mode::gradient_in_shared) {
          p[j] = held[at];  // this thread's own
        } else {
          p[j] = Pack<T, kWidth>::load_once(body + at * kWidth);
        }
      }
      float v[kItems * kWidth];
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        float of_pack[kWidth];
        if (inside(j)) p[j].get(of_pack);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) v[j * kWidth + i] = inside(j) ? of_pack[i] : -INFINITY;
      }
      running.add(v);
    };
    if (first + (kItems - 1) * step < packs) {
      take([](int) { return true; });  // no branch between the loads
    } else {
      take([=](int j) { return first + j * step < packs; });
    }
  }
  for (int i = thread; i < edges; i += step) running.add({widen(x[edge(i)])});

  const float max = block_reduce(running.max, Max{});
  const float base = max * kLog2E;
  const float sum = block_reduce(running.sum * exp2_fast(running.max * kLog2E - base), Sum{});
  if (thread == 0) f.losses[row] = logf(sum) + (max - target_logit);
  if constexpr (kMode == Mode::loss) return;

  const float scale = f.scale * (f.loss_scaler ? f.loss_scaler->scale : 1.0F);
  const float factor = scale / sum;
  const auto gradient = [=](float logit) { return exp2_fast(logit * kLog2E - base) * factor; };
  for (int first = (packs - 1) / tile * tile + thread; first >= 0; first -= tile) {
    const auto give = [&](auto inside) {
      Pack<T, kWidth> p[kItems];
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        const int at = first + j * step;
        if (!inside(j)) continue;
        if constexpr (kMode == Mode::gradient_in_shared) {
          p[j] = held[at];
        } else {
          p[j] = Pack<T, kWidth>::load(body + at * kWidth);
        }
      }
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        if (!inside(j)) continue;
        float v[kWidth];
        p[j].get(v);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) v[i] = gradient(v[i]);
        Pack<T, kWidth>::of(v).store(body + (first + j * step) * kWidth);
      }
    };
    if (first + (kItems - 1) * step < packs) {
      give([](int) { return true; });
    } else {
      give([=](int j) { return first + j * step < packs; });
    }
  }
  for (int i = thread; i < edges; i += step) x[edge(i)] = narrow<T>(gradient(widen(x[edge(i)])));
  for (int v = f.V + thread; v < f.Vp; v += step) x[v] = narrow<T>(0.0F);
  __syncthreads();
  if (thread == 0) x[target] = narrow<T>(gradient(target_logit) - scale);
}

template <class T, int kWidth, Mode kMode>
void launch(cudaStream_t stream, const CrossEntropy<T>& f, int64_t rows, int64_t shared_bytes = 0) {
  const auto kernel = cross_entropy_kernel<T, kWidth, kMode>;
  unsigned threads = row_threads(f.V);
  if (shared_bytes > 0) {
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes)));
    // While one block of two waits for memory, the other computes: better than one of twice the threads.
    int resident = 0;
    CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kMaxThreads / 2,
                                                             static_cast<size_t>(shared_bytes)));
    if (resident > 1) threads = std::min(threads, static_cast<unsigned>(kMaxThreads / 2));
  }
  kernel<<<grid_size(rows), threads, static_cast<size_t>(shared_bytes), stream>>>(f);
  CUDA_CHECK(cudaGetLastError());
}

/// Checks the operands and gives f(CrossEntropy<T>, width) what a kernel needs, unless there are no rows.
template <class F>
void with_operands(const char* op, Tensor losses, Tensor logits, Tensor targets, int64_t V, float scale,
                   Tensor loss_scaler, bool wide, F&& f) {
  check(logits.shape.rank() > 0 && V > 0 && V <= logits.cols(), op, ": the first ", V, " columns of ",
        logits);
  check(losses.numel() == logits.rows() && targets.numel() == logits.rows(), op, ": ", losses, " of ", logits,
        " and ", targets);
  const int Vp = column_count(logits.cols());
  with_pack(logits.dtype, wide, [&](auto type, auto width) {
    using T = decltype(type);
    const CrossEntropy<T> operands{losses.ptr<float>(),
                                   logits.ptr<T>(),
                                   targets.ptr<int32_t>(),
                                   scaler_of(op, loss_scaler),
                                   scale,
                                   static_cast<int>(V),
                                   Vp};
    if (logits.numel() > 0) f(operands, width);
  });
}

}  // namespace

void CudaOps::cross_entropy_forward(Tensor losses, Tensor logits, Tensor targets, int64_t V) {
  const Range range("cross_entropy_forward");
  const auto run = [&]<class T>(const CrossEntropy<T>& f, auto width) {
    launch<T, width(), Mode::loss>(stream_.get(), f, logits.rows());
  };
  with_operands("cross_entropy_forward", losses, logits, targets, V, 0.0F, {}, options_.wide_access, run);
}

void CudaOps::cross_entropy_forward_backward(Tensor losses, Tensor logits, Tensor targets, int64_t V,
                                             float scale, Tensor loss_scaler) {
  const Range range("cross_entropy_forward_backward");
  const auto run = [&]<class T>(const CrossEntropy<T>& f, auto width) {
    // A row's packs, and a little for what the kernel has of its own.
    const auto shared = static_cast<int64_t>(sizeof(T)) * ceil_div(V, width()) * width();
    constexpr int64_t kStatic = 1024;
    if (shared + kStatic <= shared_limit_) {
      launch<T, width(), Mode::gradient_in_shared>(stream_.get(), f, logits.rows(), shared);
    } else {
      launch<T, width(), Mode::gradient_reading_twice>(stream_.get(), f, logits.rows());
    }
  };
  with_operands("cross_entropy_forward_backward", losses, logits, targets, V, scale, loss_scaler,
                options_.wide_access, run);
}

}  // namespace stepladder
