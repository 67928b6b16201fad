// The fused classifier: losses and the gradient of the logits, without storing normalised logits.
//
// A block has a row. If the row fits into shared memory, all of it is requested before the first element is
// used: it is read from memory once, and its gradient is written once. Otherwise the row is read twice, the
// second time from its end, which is still in L2. Rows of an unpadded vocabulary may start at any address:
// the first and last few elements are moved one by one, so that the packs between them are aligned.
#include "model/cuda/cuda.h"
#include "model/cuda/fp8.cuh"
#include "model/cuda/kernels.cuh"
#include "model/cuda/wide.cuh"

namespace stepladder {
namespace {

enum class Mode { loss, gradient_reading_twice, gradient_in_shared };

/// The running maximum before the first logit. Finite, so that 0 * exp2(kFloor - max) is 0 rather than NaN,
/// and a logit of -inf needs no special case.
constexpr float kFloor = -1e30F;

template <class T>
struct CrossEntropy {
  float* losses;
  T* logits;  // (rows,Vp)
  const int32_t* targets;
  const LossScaler* loss_scaler;  // or null
  float scale;
  float soft_cap;  // or 0
  int V, Vp;
};

/// Destinations of the gradient: in place of the logits, or FP8 rows beside them. put() stores kWidth
/// neighbours from column c on, aligned to the pack; put_target() then overwrites the target's element.
template <class T>
struct InPlace {
  T* logits;

  struct Row {
    T* x;
    template <int kWidth>
    __device__ void put(int c, const float (&v)[kWidth]) {
      Pack<T, kWidth>::of(v).store(x + c);
    }
    __device__ void put_target(int c, float v) { put(c, {v}); }
  };
  __device__ Row row(int64_t row, int Vp, int) const { return {logits + row * Vp}; }
  __device__ void end(const Row&) const {}
};
template <class Q>
struct AsFp8 {
  uint8_t* q;  // (rows,Vp)
  const float* scale;
  float* amax;

  struct Row {
    uint8_t* q;
    float inv_scale;
    int uncounted;  // the target's column, whose first value is not its gradient
    uint32_t amax;
    template <int kWidth>
    __device__ void put(int c, const float (&v)[kWidth]) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        if (c + i != uncounted) amax = larger_magnitude(amax, v[i]);
      if constexpr (kWidth == 1) {
        q[c] = static_cast<uint8_t>(fp8_pair<Q>(scaled(v[0], inv_scale), 0.0F));
      } else {
        *reinterpret_cast<uint2*>(q + c) = fp8_pack<Q>(v, inv_scale);
      }
    }
    __device__ void put_target(int c, float v) {
      uncounted = -1;
      put(c, {v});
    }
  };
  __device__ Row row(int64_t row, int Vp, int target) const {
    return {q + row * Vp, 1.0F / *scale, target, 0};
  }
  __device__ void end(const Row& row) const {
    update_amax(amax, row.amax);
  }
};

/// e^(x - max). For f32 x the difference is taken first: max * log2(e), rounded, is off by more than a unit
/// in the last place of e^(x - max), and probabilities near 1 would leave their loss's gradient no digits.
template <class T>
struct ExpBelow {
  float max, base;

  __device__ explicit ExpBelow(float of) : max(of), base(of * kLog2E) {}
  __device__ float operator()(float x) const {
    if constexpr (sizeof(T) == sizeof(float)) {
      return exp2_fast((x - max) * kLog2E);
    } else {
      return exp2_fast(x * kLog2E - base);
    }
  }
};

/// sum_v exp(v - max) kept relative to a running maximum (Milakov and Gimelshein 2018).
template <class T>
struct RunningSum {
  float max = kFloor, sum = 0.0F;

  template <int kCount>
  __device__ void add(const float (&v)[kCount]) {
    float new_max = max;
#pragma unroll
    for (int i = 0; i < kCount; ++i) new_max = fmaxf(new_max, v[i]);
    const ExpBelow<T> exp(new_max);
    sum *= exp(max);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum += exp(v[i]);
    max = new_max;
  }
};

/// z = cap * tanh(x / cap), whose slope is 1 - (z / cap)^2; without kCapped, z is x. For 16-bit logits z is
/// computed as cap - 2 cap / (1 + e^(2x / cap)), which near 0 loses only digits that 16 bits don't hold.
template <class T, bool kCapped>
struct SoftCap {
  float cap, inv_cap;

  __device__ explicit SoftCap(float soft_cap) : cap(soft_cap), inv_cap(1.0F / soft_cap) {}
  __device__ float operator()(float x) const {
    if constexpr (kCapped && sizeof(T) == sizeof(float)) {
      return cap * tanhf(inv_cap * x);
    } else if constexpr (kCapped) {
      return cap - 2.0F * cap * __fdividef(1.0F, 1.0F + exp2_fast(2.0F * kLog2E * inv_cap * x));
    } else {
      return x;
    }
  }
  __device__ float slope(float z) const { return kCapped ? 1.0F - z * inv_cap * (z * inv_cap) : 1.0F; }
};

// losses = logsumexp(x) - x[target] over x[0..V), and `to` [0..V) = scale * (softmax(x) - onehot(target)),
// [V..Vp) = 0, where x is capped if kCapped.
template <class T, int kWidth, Mode kMode, class To, bool kCapped>
__global__ void __launch_bounds__(kMaxThreads) cross_entropy_kernel(CrossEntropy<T> f, To to) {
  await_predecessor();
  extern __shared__ uint4 shared_row[];
  auto* const held = reinterpret_cast<Pack<T, kWidth>*>(shared_row);
  const int64_t row = blockIdx.x;
  T* const x = f.logits + row * f.Vp;
  const int thread = static_cast<int>(threadIdx.x), step = static_cast<int>(blockDim.x), tile = kItems * step;

  // x[0..head) and x[tail..V) are accessed by element, the elements between them, from `body` on, as `packs`
  // packs.
  const int misaligned = static_cast<int>(reinterpret_cast<uintptr_t>(x) / sizeof(T) % kWidth);
  const int head = misaligned == 0 ? 0 : min(kWidth - misaligned, f.V);
  const int packs = (f.V - head) / kWidth, tail = head + packs * kWidth, edges = head + f.V - tail;
  T* const body = x + head;
  const auto edge = [=](int i) { return i < head ? i : tail + i - head; };

  int pending = 0;  // groups of copies that this thread waits for
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
  const SoftCap<T, kCapped> capped(f.soft_cap);
  const float target_logit = capped(widen(x[target]));  // read before any thread overwrites it

  // Calls use(p, inside) for the thread's packs of the tile from `first` on; inside(j) tells whether pack j
  // exists.
  const auto with_tile = [&](int first, auto load, auto use) {
    const auto run = [&](auto inside) {
      Pack<T, kWidth> p[kItems];
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        const int at = first + j * step;
        if (!inside(j)) continue;
        if constexpr (kMode == Mode::gradient_in_shared) {
          p[j] = held[at];  // copied by this thread
        } else {
          p[j] = load(body + at * kWidth);
        }
      }
      use(p, inside);
    };
    if (first + (kItems - 1) * step < packs) {
      run([](int) { return true; });  // no branch between the loads
    } else {
      run([=](int j) { return first + j * step < packs; });
    }
  };

  RunningSum<T> running;
  for (int first = thread; first < packs; first += tile) {
    if constexpr (kMode == Mode::gradient_in_shared) await_copies(--pending);
    with_tile(first, Pack<T, kWidth>::load_once, [&](const auto& p, auto inside) {
      float v[kItems * kWidth];
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        float of_pack[kWidth];
        if (inside(j)) p[j].get(of_pack);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) v[j * kWidth + i] = inside(j) ? capped(of_pack[i]) : -INFINITY;
      }
      running.add(v);
    });
  }
  for (int i = thread; i < edges; i += step) running.add({capped(widen(x[edge(i)]))});

  const float max = block_reduce(running.max, Max{});
  const ExpBelow<T> exp(max);
  const float sum = block_reduce(running.sum * exp(running.max), Sum{});
  if (thread == 0) f.losses[row] = logf(sum) + (max - target_logit);
  if constexpr (kMode == Mode::loss) return;

  const float scale = f.scale * (f.loss_scaler ? f.loss_scaler->scale : 1.0F);
  const float factor = scale / sum;
  auto out = to.row(row, f.Vp, target);
  const auto gradient_of = [=](float z) { return exp(z) * factor * capped.slope(z); };
  const auto gradient = [=](float logit) { return gradient_of(capped(logit)); };
  for (int first = (packs - 1) / tile * tile + thread; first >= 0; first -= tile) {
    with_tile(first, Pack<T, kWidth>::load, [&](const auto& p, auto inside) {
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        if (!inside(j)) continue;
        float v[kWidth];
        p[j].get(v);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) v[i] = gradient(v[i]);
        out.put(head + (first + j * step) * kWidth, v);
      }
    });
  }
  for (int i = thread; i < edges; i += step) out.put(edge(i), {gradient(widen(x[edge(i)]))});
  for (int v = f.V + thread; v < f.Vp; v += step) out.put(v, {0.0F});
  __syncthreads();
  if (thread == 0) out.put_target(target, gradient_of(target_logit) - scale * capped.slope(target_logit));
  to.end(out);
}

template <class T, int kWidth, Mode kMode, bool kCapped, class To>
void launch_rows(Queue& queue, const CrossEntropy<T>& f, const To& to, int64_t rows,
                 int64_t shared_bytes = 0) {
  const auto kernel = cross_entropy_kernel<T, kWidth, kMode, To, kCapped>;
  unsigned threads = row_threads(f.V);
  if (shared_bytes > 0) {
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes)));
    // Two blocks of half the threads are faster than one: while one waits for memory, the other computes.
    int resident = 0;
    CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kMaxThreads / 2,
                                                             static_cast<size_t>(shared_bytes)));
    if (resident > 1) threads = std::min(threads, static_cast<unsigned>(kMaxThreads / 2));
  }
  launch(queue, kernel, grid_size(rows), threads, static_cast<size_t>(shared_bytes), f, to);
}

/// Computes the gradient with the row in shared memory if it fits there beside the kernel's own few bytes.
template <int kWidth, bool kCapped, class T, class To>
void launch_gradient(Queue& queue, const CrossEntropy<T>& f, const To& to, int64_t rows, int shared_limit) {
  constexpr int64_t kStatic = 1024;
  const auto shared = static_cast<int64_t>(sizeof(T)) * ceil_div(f.V, kWidth) * kWidth;
  if (shared + kStatic <= shared_limit) {
    launch_rows<T, kWidth, Mode::gradient_in_shared, kCapped>(queue, f, to, rows, shared);
  } else {
    launch_rows<T, kWidth, Mode::gradient_reading_twice, kCapped>(queue, f, to, rows);
  }
}

/// f(std::bool_constant<kCapped>{}), where kCapped is whether soft_cap is above 0.
template <class F>
void with_cap(float soft_cap, F&& f) {
  if (soft_cap > 0.0F) return f(std::true_type{});
  f(std::false_type{});
}

/// Checks the operands and calls f(CrossEntropy<T>, width) with them, unless there are no rows.
template <class F>
void with_operands(Tensor losses, Tensor logits, Tensor targets, int64_t V, const LossScale& scale,
                   float soft_cap, bool wide, F&& f) {
  const int Vp = column_count(logits.cols());
  with_pack(logits.dtype, wide, [&]<class T>(T, auto width) {
    const CrossEntropy<T> operands{
        losses.ptr<float>(), logits.ptr<T>(), targets.ptr<int32_t>(), scaler_of(scale.loss_scaler),
        scale.factor,        soft_cap,        static_cast<int>(V),    Vp};
    if (logits.numel() > 0) f(operands, width);
  });
}

}  // namespace

void CrossEntropyForward::run(Cuda& cuda) const {
  const auto launch_for = [&]<class T>(const CrossEntropy<T>& f, auto width) {
    constexpr int kWidth = width();
    with_cap(soft_cap, [&](auto capped) {
      launch_rows<T, kWidth, Mode::loss, capped()>(cuda.queue, f, InPlace<T>{f.logits}, logits.rows());
    });
  };
  with_operands(losses, logits, targets, V, {0.0F}, soft_cap, cuda.options.wide_access, launch_for);
}

void CrossEntropyForwardBackward::run(Cuda& cuda) const {
  const auto launch_for = [&]<class T>(const CrossEntropy<T>& f, auto width) {
    constexpr int kWidth = width();
    with_cap(soft_cap, [&](auto capped) {
      launch_gradient<kWidth, capped()>(cuda.queue, f, InPlace<T>{f.logits}, logits.rows(),
                                        cuda.shared_limit);
    });
  };
  with_operands(losses, logits, targets, V, scale, soft_cap, cuda.options.wide_access, launch_for);
}

void QuantizeCrossEntropy::run(Cuda& cuda) const {
  stepladder::check(logits.dtype == DType::bf16 && logits.cols() % kFp8Multiple == 0 &&
                        wide_rows(logits.cols(), {q, logits}),
                    kName, ": ", q, " of ", logits, ": FP8 needs bf16 rows of a multiple of ", kFp8Multiple);
  const auto launch_for = [&]<class T>(const CrossEntropy<T>& f, auto width) {
    if constexpr (std::is_same_v<T, BFloat16>)
      with_fp8_type(q.dtype, [&](auto type) {
        const AsFp8<decltype(type)> to{static_cast<uint8_t*>(q.data), q.scale, q.amax};
        launch_gradient<width(), false>(cuda.queue, f, to, logits.rows(), cuda.shared_limit);
      });
  };
  with_operands(losses, logits, targets, V, {scale}, 0.0F, cuda.options.wide_access, launch_for);
}

}  // namespace stepladder
