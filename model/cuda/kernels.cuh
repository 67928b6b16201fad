// Building blocks of the primitive kernels: a map over elements, a map over rows, a sum over each row.
//
// These kernels are bound by memory. A thread issues kItemsOf<T> scalar loads, each coalesced over its warp,
// before it uses the first: one load at a time keeps too few bytes in flight to fill HBM.
//
// T is the type in memory, float, BFloat16 or Float16; values are f32 (model/cuda/half.cuh).
#pragma once

#include <algorithm>
#include <cfloat>
#include <climits>
#include <cstdint>
#include <utility>

#include "model/cuda/cuda_check.h"
#include "model/cuda/half.cuh"
#include "model/cuda/handles.h"
#include "model/error.h"
#include "model/tensor.h"

namespace stepladder {

constexpr int kThreads = 256;
constexpr int kMaxThreads = 1024;
constexpr int kItems = 4;
/// kItems for f32, twice as many for 16-bit types: the same number of bytes in flight.
template <class T>
constexpr int kItemsOf = kItems* static_cast<int>(sizeof(float) / sizeof(T));

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

inline unsigned grid_size(int64_t blocks) {
  check(blocks <= INT_MAX, blocks, " blocks in a grid, at most ", INT_MAX);
  return static_cast<unsigned>(blocks);
}

/// The first statement of every kernel. With programmatic dependent launch a kernel may start before its
/// predecessor has ended: this waits until the results of the predecessor, and so of all before it, are
/// visible.
__device__ inline void await_predecessor() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

/// Waits at `barrier`, one of 16 of the block (0 is __syncthreads()'s), until `threads` threads have arrived.
__device__ inline void named_barrier_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
/// Arrives at a barrier of named_barrier_sync() without waiting.
__device__ inline void named_barrier_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/// Loads four 8x8 matrices of 16 bits from shared memory; `row` of lane i is row i % 8 of matrix i / 8.
template <bool kTransposed>
__device__ void load_matrices(uint32_t (&x)[4], const void* row) {
  const uint32_t address = shared_address(row);
  if constexpr (kTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address)
                 : "memory");
}

/// Properties of a kernel as this build has it for the device.
template <class... Parameters>
cudaFuncAttributes attributes_of(void (*kernel)(Parameters...)) {
  cudaFuncAttributes attributes;
  CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
  return attributes;
}

/// Queues a kernel, as `kernel<<<grid, block, shared, stream>>>(args...)` does.
template <class... Parameters, class... Args>
void launch(Queue& queue, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
            Args&&... args) {
  const bool early = queue.early && follows_kernel(queue.stream);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = queue.stream;
  config.attrs = &attribute;
  config.numAttrs = early ? 1 : 0;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...));
  if (early) ++queue.launched_early;
}

/// The number of columns as an int. Row kernels count columns in ints, and may step past the end of a row
/// without overflow.
inline int column_count(int64_t cols) {
  check(cols <= INT_MAX / 2, "a row of ", cols, " elements, at most ", INT_MAX / 2);
  return static_cast<int>(cols);
}

/// Threads of a block that works on one row, each on `items` elements at a time. Long rows get large blocks:
/// then few rows share an SM, and a row is still in L2 when it is read a second time.
inline unsigned row_threads(int64_t cols, int items = kItems) {
  if (cols > 8 * kThreads * items) return kMaxThreads;
  return static_cast<unsigned>(32 * std::clamp<int64_t>(ceil_div(cols, 32 * items), 1, kThreads / 32));
}

/// The layout of ClipGradNorm's loss scaler.
struct LossScaler {
  float scale, good_steps, skipped_steps, overflow;
};

/// `loss_scaler` as a LossScaler; null for an empty tensor.
inline LossScaler* scaler_of(const Tensor& loss_scaler) {
  return loss_scaler.data ? reinterpret_cast<LossScaler*>(loss_scaler.ptr<float>()) : nullptr;
}

template <class T, int kOperands>
struct Pointers {
  const T* at[kOperands];
};

struct Unchanged {  // x
  __device__ float operator()(const float (&x)[1]) const { return x[0]; }
};
struct AddFunctor {  // a + b
  __device__ float operator()(const float (&x)[2]) const { return x[0] + x[1]; }
};

/// out[i] = f({operand[0][i], operand[1][i], ...})
template <class Out, class In, class F, int kOperands>
__global__ void __launch_bounds__(kThreads) map_kernel(Out* out, int64_t n, Pointers<In, kOperands> in, F f) {
  await_predecessor();
  constexpr int kItems = kItemsOf<In>;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kItems) + threadIdx.x;
  float x[kItems][kOperands];
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int64_t i = first + j * kThreads;
#pragma unroll
    for (int k = 0; k < kOperands; ++k) x[j][k] = i < n ? load(in.at[k] + i) : 0.0F;
  }
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int64_t i = first + j * kThreads;
    if (i < n) store(out + i, f(x[j]));
  }
}

template <class Out, class In, class F, int kOperands>
void map(Queue& queue, Out* out, int64_t n, const Pointers<In, kOperands>& in, F f) {
  if (n == 0) return;
  launch(queue, map_kernel<Out, In, F, kOperands>, grid_size(ceil_div(n, kThreads * kItemsOf<In>)), kThreads,
         0, out, n, in, f);
}

/// Maps f over operands of out's shape and type; out may be one of them.
template <class F, class... In>
void map(Queue& queue, Tensor out, F f, In... in) {
  with_float_type(out.dtype, [&]<class T>(T) {
    const Pointers<T, sizeof...(In)> from{{in.template ptr<T>()...}};
    map(queue, out.ptr<T>(), out.numel(), from, f);
  });
}

/// out[i] = f.row(row)(i, c), i = row * cols + c; a block has a row.
template <class T, class F>
__global__ void __launch_bounds__(kMaxThreads) map_rows_kernel(T* out, int cols, F f) {
  await_predecessor();
  constexpr int kItems = kItemsOf<T>;
  const int64_t row = blockIdx.x;
  const int64_t offset = row * cols;
  const int step = static_cast<int>(blockDim.x);
  const auto value = f.row(row);
  for (int first = static_cast<int>(threadIdx.x); first < cols; first += kItems * step) {
    const auto tile = [&](auto inside) {
      float y[kItems];
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        const int c = first + j * step;
        if (inside(c)) y[j] = value(offset + c, c);
      }
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        const int c = first + j * step;
        if (inside(c)) store(out + offset + c, y[j]);
      }
    };
    if (first + (kItems - 1) * step < cols) {
      tile([](int) { return true; });  // no branch between the loads
    } else {
      tile([cols](int c) { return c < cols; });
    }
  }
}

/// Maps over the rows of out. f.row(row) loads what all elements of the row share and returns the function
/// that computes one element. That function may read only its own element of out.
template <class T = float, class F>
void map_rows(Queue& queue, Tensor out, F f) {
  T* to = out.ptr<T>();
  if (out.numel() == 0) return;
  const int64_t cols = out.cols();
  launch(queue, map_rows_kernel<T, F>, grid_size(out.rows()), row_threads(cols, kItemsOf<T>), 0, to,
         column_count(cols), f);
}

/// map_rows() for out's float type T, with f = make(T{}).
template <class Make>
void map_rows_of_type(Queue& queue, Tensor out, Make make) {
  with_float_type(out.dtype, [&]<class T>(T type) { map_rows<T>(queue, out, make(type)); });
}

struct Sum {
  static constexpr float kIdentity = 0.0F;
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Max {
  static constexpr float kIdentity = -FLT_MAX;
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// Reduces x over the warp and gives the result to every lane.
template <class T, class Op>
__device__ T warp_reduce(T x, Op op) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x = op(x, __shfl_xor_sync(0xffffffffU, x, mask));
  return x;
}

/// Reduces x over the block and gives the result to every thread. Every warp of the block must call this,
/// whole.
template <class Op>
__device__ float block_reduce(float x, Op op) {
  __shared__ float of_warp[32];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  x = warp_reduce(x, op);
  __syncthreads();  // of_warp may still be read by the reduction before this one
  if (lane == 0) of_warp[warp] = x;
  __syncthreads();
  x = lane < static_cast<int>(blockDim.x / 32) ? of_warp[lane] : Op::kIdentity;
  return warp_reduce(x, op);
}

/// f.write(row, sum over c of f.row(row)(i)), i = row * cols + c < n; a block has a row. T is the type that f
/// reads.
template <class T, class F>
__global__ void __launch_bounds__(kMaxThreads) sum_each_row_kernel(int64_t n, int cols, F f) {
  await_predecessor();
  constexpr int kItems = kItemsOf<T>;
  const int64_t row = blockIdx.x;
  const int64_t offset = row * cols;
  const int length = n - offset < cols ? static_cast<int>(n - offset) : cols;
  const int step = static_cast<int>(blockDim.x);
  const auto value = f.row(row);
  float sum = 0.0F;
  for (int first = static_cast<int>(threadIdx.x); first < length; first += kItems * step) {
    float x[kItems] = {};
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const int c = first + j * step;
      if (c < length) x[j] = value(offset + c);
    }
#pragma unroll
    for (int j = 0; j < kItems; ++j) sum += x[j];
  }
  sum = block_reduce(sum, Sum{});
  if (threadIdx.x == 0) f.write(row, sum);
}

/// Sums n elements in rows of `cols`; the last row may be shorter.
template <class T = float, class F>
void sum_each_row(Queue& queue, int64_t n, int64_t cols, F f) {
  if (n == 0) return;
  launch(queue, sum_each_row_kernel<T, F>, grid_size(ceil_div(n, cols)), row_threads(cols, kItemsOf<T>), 0, n,
         column_count(cols), f);
}

}  // namespace stepladder
