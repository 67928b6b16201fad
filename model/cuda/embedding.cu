// Token and position embeddings.
//
// The gradient of wte sums the rows of dout that share a token. Tokens are sorted, so these rows form a run;
// runs are cut at every kTokenChunk-th sorted position, so that a frequent token does not keep one block busy
// alone. The sums of a run that was cut stay in f32 scratch until all of them are there: dwte is rounded
// once.
#include "model/cuda/cuda.h"
#include "model/cuda/kernels.cuh"

namespace stepladder {
namespace {

constexpr int kBatch = 8;  // rows of dout that a thread loads before it adds the first

// A chunk's partial sums (C) of the two runs that its edges may cut: the one that began before the chunk, and
// the one that continues after it.
struct ChunkPartials {
  float *before, *after;
};
__device__ ChunkPartials partials_of(float* partials, int64_t chunk, int64_t C) {
  return {partials + 2 * chunk * C, partials + (2 * chunk + 1) * C};
}

// Sums each run's rows within a chunk: dwte[token] += sum for runs that lie in the chunk entirely.
template <class Sum, class T>
__global__ void __launch_bounds__(kThreads)
    sum_runs_kernel(Sum* dwte, float* partials, const int32_t* tokens, const int32_t* positions,
                    const T* dout, int64_t n, int64_t C) {
  await_predecessor();
  const int64_t chunk = blockIdx.x;
  const int64_t begin = chunk * kTokenChunk;
  const int count = static_cast<int>(n - begin < kTokenChunk ? n - begin : kTokenChunk);
  const int64_t c = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (c >= C) return;

  int64_t token = tokens[begin];
  bool began_before = begin > 0 && tokens[begin - 1] == token;
  float sum = 0.0F;
  const auto write = [&](bool goes_on) {
    Sum* to = dwte + token * C + c;
    if (began_before) {
      partials_of(partials, chunk, C).before[c] = sum;
    } else if (goes_on) {
      partials_of(partials, chunk, C).after[c] = sum;
    } else {
      store(to, load(to) + sum);
    }
  };
  for (int first = 0; first < count; first += kBatch) {
    float x[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j)
      x[j] = first + j < count ? load(dout + positions[begin + first + j] * C + c) : 0.0F;
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      if (first + j >= count) break;
      const int64_t next = tokens[begin + first + j];
      if (next != token) {
        write(false);
        token = next;
        began_before = false;
        sum = 0.0F;
      }
      sum += x[j];
    }
  }
  write(begin + count < n && tokens[begin + count] == token);
}

// dwte[token] += sum of a run that begins in this chunk and does not end in it.
template <class Sum>
__global__ void __launch_bounds__(kThreads)
    embedding_add_partials_kernel(Sum* dwte, float* partials, const int32_t* tokens, int64_t n, int64_t C) {
  await_predecessor();
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kTokenChunk;
  const int64_t end = begin + kTokenChunk;
  const int64_t c = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (c >= C || end >= n) return;

  const int64_t token = tokens[end - 1];
  const bool began_before = begin > 0 && tokens[begin - 1] == token;
  if (began_before || tokens[end] != token) return;
  float sum = 0.0F;
  for (int64_t next = end; next < n && tokens[next] == token; next += kTokenChunk)
    sum += partials_of(partials, next / kTokenChunk, C).before[c];
  Sum* to = dwte + token * C + c;
  store(to, load(to) + partials_of(partials, blockIdx.x, C).after[c] + sum);
}

// dwpe[t][c] += sum_b dout[b][t][c], i = t * C + c
template <class Sum, class T>
__global__ void __launch_bounds__(kThreads)
    position_backward_kernel(Sum* dwpe, const T* dout, int64_t B, int64_t TC) {
  await_predecessor();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= TC) return;
  float sum = 0.0F;
#pragma unroll 8
  for (int64_t b = 0; b < B; ++b) sum += load(dout + b * TC + i);
  store(dwpe + i, load(dwpe + i) + sum);
}

}  // namespace

void EmbeddingBackward::run(Cuda& cuda) const {
  const int64_t n = tokens.numel(), C = dwte.cols(), chunks = ceil_div(n, kTokenChunk);
  stepladder::check(n <= cuda.positions.numel() && 2 * chunks * C <= cuda.partials.numel(),
                    "embedding_backward: ", dout, " is larger than the workspace was bound for, ",
                    cuda.positions.numel(), " tokens");
  with_sum_type(dout, dwte, [&]<class T, class Sum>(T, Sum) {
    Sum* to = dwte.ptr<Sum>();
    const T* from = dout.ptr<T>();
    const int32_t* at = tokens.ptr<int32_t>();
    if (n == 0) return;

    cuda.sort_tokens(at, n, dwte.shape[0]);
    const dim3 grid(grid_size(chunks), grid_size(ceil_div(C, kThreads)));
    float* partials = cuda.partials.ptr<float>();
    const int32_t* sorted = cuda.sorted_tokens.ptr<int32_t>();
    launch(cuda.queue, sum_runs_kernel<Sum, T>, grid, kThreads, 0, to, partials, sorted,
           cuda.sorted_positions.ptr<int32_t>(), from, n, C);
    launch(cuda.queue, embedding_add_partials_kernel<Sum>, grid, kThreads, 0, to, partials, sorted, n, C);
  });
}

void PositionBackward::run(Cuda& cuda) const {
  const int64_t B = dout.shape[0], TC = dout.shape[1] * dout.shape[2];
  if (dout.numel() == 0) return;
  with_sum_type(dout, dwpe, [&]<class T, class Sum>(T, Sum) {
    launch(cuda.queue, position_backward_kernel<Sum, T>, grid_size(ceil_div(TC, kThreads)), kThreads, 0,
           dwpe.ptr<Sum>(), dout.ptr<T>(), B, TC);
  });
}

}  // namespace stepladder
