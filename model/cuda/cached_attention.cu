// Attention of new positions to a cache of keys and values. A block has one position of one head: its warps
// share the keys out, kKeys at a time, so that several loads are on their way, and each keeps a softmax of
// its own, relative to its running maximum (Milakov and Gimelshein 2018); at the end they are joined.
#include <cmath>

#include "model/cuda/cuda.h"
#include "model/cuda/kernels.cuh"

namespace stepladder {
namespace {

constexpr int kWarps = 16, kKeys = 4;
constexpr int64_t kMostHeadSize = 256;

template <class T>
struct Cached {
  T *out, *keys, *values;  // (T,C), (S,C), (S,C)
  const T* qkv;            // (T,3C)
  int first, C, HS;
  float scale;
};

/// Lane l has channels l, l + 32, ... of a head, kSlots of them.
template <class T, int kSlots>
__global__ void __launch_bounds__(32 * kWarps) cached_attention_kernel(Cached<T> f) {
  await_predecessor();
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int position = f.first + static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y) * f.HS;
  // Rows of new positions are read from qkv: another block may not have written them to the cache yet.
  const auto at_new = [&](int s, int part) {
    return f.qkv + (3 * static_cast<int64_t>(s - f.first) + part) * f.C + head;
  };
  const auto row = [&](const T* cached, int s, int part) {
    return s < f.first ? cached + static_cast<int64_t>(s) * f.C + head : at_new(s, part);
  };
  const auto channel = [&](int i) { return lane + 32 * i; };

  float q[kSlots], sums[kSlots] = {};
#pragma unroll
  for (int i = 0; i < kSlots; ++i)
    q[i] = channel(i) < f.HS ? f.scale * load(at_new(position, 0) + channel(i)) : 0.0F;

  float max = Max::kIdentity, sum = 0.0F;
  for (int first = warp * kKeys; first <= position; first += kWarps * kKeys) {
    const auto inside = [&](int j, int i) { return first + j <= position && channel(i) < f.HS; };
    float scores[kKeys], v[kKeys][kSlots];
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      scores[j] = 0.0F;
#pragma unroll
      for (int i = 0; i < kSlots; ++i) {
        v[j][i] = 0.0F;
        if (!inside(j, i)) continue;
        scores[j] += q[i] * load(row(f.keys, first + j, 1) + channel(i));
        v[j][i] = load(row(f.values, first + j, 2) + channel(i));
      }
    }
    float new_max = max;
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      scores[j] = warp_reduce(scores[j], Sum{});
      if (first + j > position) scores[j] = -INFINITY;
      new_max = fmaxf(new_max, scores[j]);
    }
    const float factor = expf(max - new_max);
    sum *= factor;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) sums[i] *= factor;
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      const float p = expf(scores[j] - new_max);
      sum += p;
#pragma unroll
      for (int i = 0; i < kSlots; ++i) sums[i] += p * v[j][i];
    }
    max = new_max;
  }

  __shared__ float of_warp[kWarps][32 * kSlots];
  const float block_max = block_reduce(max, Max{}), factor = expf(max - block_max);
  const float block_sum = block_reduce(lane == 0 ? sum * factor : 0.0F, Sum{});
#pragma unroll
  for (int i = 0; i < kSlots; ++i) of_warp[warp][channel(i)] = sums[i] * factor;
  __syncthreads();
  const int c = static_cast<int>(threadIdx.x);
  if (c >= f.HS) return;
  float total = 0.0F;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total += of_warp[w][c];
  store(f.out + static_cast<int64_t>(blockIdx.x) * f.C + head + c, total / block_sum);
  const int64_t to = static_cast<int64_t>(position) * f.C + head + c;
  f.keys[to] = at_new(position, 1)[c];
  f.values[to] = at_new(position, 2)[c];
}

}  // namespace

void CachedAttention::run(Cuda& cuda) const {
  const int64_t T = rows_of(qkv), C = out.cols(), S = cache.shape[1], HS = C / NH;
  if (HS > kMostHeadSize)
    throw UnsupportedError(
        cat(kName, ": heads of ", HS, " channels; CUDA takes up to ", kMostHeadSize, ": use --backend cpu"));
  if (out.numel() == 0) return;
  with_float_type(qkv.dtype, [&]<class Type>(Type) {
    const Cached<Type> f{out.ptr<Type>(),           cache.ptr<Type>(),
                         cache.ptr<Type>() + S * C, qkv.ptr<Type>(),
                         static_cast<int>(first),   column_count(C),
                         static_cast<int>(HS),      1.0F / std::sqrt(static_cast<float>(HS))};
    const dim3 grid(grid_size(T), grid_size(NH));
    const auto kernel =
        HS <= 64 ? cached_attention_kernel<Type, 2> : cached_attention_kernel<Type, kMostHeadSize / 32>;
    launch(cuda.queue, kernel, grid, 32 * kWarps, 0, f);
  });
}

}  // namespace stepladder
