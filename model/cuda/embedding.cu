// Token and position embeddings.
//
// The gradient of wte sums the rows of dout that share a token. Tokens are sorted, so these rows form a run;
// runs are cut at every kTokenChunk-th sorted position, so that a frequent token does not keep one block busy
// alone.
#include "model/cuda/cuda_ops.h"
#include "model/cuda/kernels.cuh"
#include "model/cuda/range.h"

namespace stepladder {
namespace {

struct EmbeddingForward {  // wte[tokens]
  const int32_t* tokens;
  const float* wte;
  int64_t C;
  __device__ auto row(int64_t row) const {
    return [from = wte + tokens[row] * C](int64_t, int c) { return from[c]; };
  }
};

struct AddPosition {  // x + wpe[t]
  const float *x, *wpe;
  int64_t T, C;
  __device__ auto row(int64_t row) const {
    return [x = x, at = wpe + row % T * C](int64_t i, int c) { return x[i] + at[c]; };
  }
};

constexpr int kBatch = 8;  // rows of dout that a thread loads before it adds the first

// Sums each run's rows within a chunk. A run that begins in the chunk: dwte[token] += sum. One that began
// before: partials[chunk] = sum, of which a chunk has at most one.
__global__ void __launch_bounds__(kThreads)
    sum_runs_kernel(float* dwte, float* partials, const int32_t* tokens, const int32_t* positions,
                    const float* dout, int64_t n, int64_t C) {
  const int64_t chunk = blockIdx.x;
  const int64_t begin = chunk * kTokenChunk;
  const int count = static_cast<int>(n - begin < kTokenChunk ? n - begin : kTokenChunk);
  const int64_t c = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (c >= C) return;

  int64_t token = tokens[begin];
  bool began_before = begin > 0 && tokens[begin - 1] == token;
  float sum = 0.0F;
  const auto write = [&] {
    if (began_before) {
      partials[chunk * C + c] = sum;
    } else {
      dwte[token * C + c] += sum;
    }
  };
  for (int first = 0; first < count; first += kBatch) {
    float x[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j)
      x[j] = first + j < count ? dout[positions[begin + first + j] * C + c] : 0.0F;
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      if (first + j >= count) break;
      const int64_t next = tokens[begin + first + j];
      if (next != token) {
        write();
        token = next;
        began_before = false;
        sum = 0.0F;
      }
      sum += x[j];
    }
  }
  write();
}

// dwte[token] += what the following chunks hold of a run that begins in this chunk and does not end in it.
__global__ void __launch_bounds__(kThreads)
    add_partials_kernel(float* dwte, const float* partials, const int32_t* tokens, int64_t n, int64_t C) {
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kTokenChunk;
  const int64_t end = begin + kTokenChunk;
  const int64_t c = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (c >= C || end >= n) return;

  const int64_t token = tokens[end - 1];
  const bool began_before = begin > 0 && tokens[begin - 1] == token;
  if (began_before || tokens[end] != token) return;
  float sum = 0.0F;
  for (int64_t next = end; next < n && tokens[next] == token; next += kTokenChunk)
    sum += partials[next / kTokenChunk * C + c];
  dwte[token * C + c] += sum;
}

// dwpe[t][c] += sum_b dout[b][t][c], i = t * C + c
__global__ void __launch_bounds__(kThreads)
    position_backward_kernel(float* dwpe, const float* dout, int64_t B, int64_t TC) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= TC) return;
  float sum = 0.0F;
#pragma unroll 8
  for (int64_t b = 0; b < B; ++b) sum += dout[b * TC + i];
  dwpe[i] += sum;
}

void check_tokens(const char* op, const Tensor& tokens, const Tensor& rows, const Tensor& wte) {
  check(wte.shape.rank() == 2 && rows.cols() == wte.cols() && rows.rows() == tokens.numel(), op, ": ", rows,
        " of ", tokens, " and ", wte);
}

void check_positions(const char* op, const Tensor& x, const Tensor& wpe) {
  check(x.shape.rank() == 3 && wpe.shape.rank() == 2 && x.shape[1] <= wpe.shape[0] && x.cols() == wpe.cols(),
        op, ": ", x, " and ", wpe);
}

}  // namespace

void CudaOps::embedding_forward(Tensor out, Tensor tokens, Tensor wte) {
  const Range range("embedding_forward");
  check_tokens("embedding_forward", tokens, out, wte);
  map_rows(stream_.get(), out, EmbeddingForward{tokens.ptr<int32_t>(), wte.ptr<float>(), wte.cols()});
}

void CudaOps::embedding_backward(Tensor dwte, Tensor tokens, Tensor dout) {
  const Range range("embedding_backward");
  check_tokens("embedding_backward", tokens, dout, dwte);
  const int64_t n = tokens.numel(), C = dwte.cols(), chunks = ceil_div(n, kTokenChunk);
  check(n <= positions_.numel() && chunks * C <= partials_.numel(), "embedding_backward: ", dout,
        " is larger than the workspace was bound for, ", positions_.numel(), " tokens");
  if (n == 0) return;

  sort_tokens(tokens.ptr<int32_t>(), n, dwte.shape[0]);
  const dim3 grid(grid_size(chunks), grid_size(ceil_div(C, kThreads)));
  sum_runs_kernel<<<grid, kThreads, 0, stream_.get()>>>(
      dwte.ptr<float>(), partials_.ptr<float>(), sorted_tokens_.ptr<int32_t>(),
      sorted_positions_.ptr<int32_t>(), dout.ptr<float>(), n, C);
  CUDA_CHECK(cudaGetLastError());
  add_partials_kernel<<<grid, kThreads, 0, stream_.get()>>>(dwte.ptr<float>(), partials_.ptr<float>(),
                                                            sorted_tokens_.ptr<int32_t>(), n, C);
  CUDA_CHECK(cudaGetLastError());
}

void CudaOps::add_position(Tensor x, Tensor wpe) {
  const Range range("add_position");
  check_positions("add_position", x, wpe);
  map_rows(stream_.get(), x, AddPosition{x.ptr<float>(), wpe.ptr<float>(), x.shape[1], x.cols()});
}

void CudaOps::position_backward(Tensor dwpe, Tensor dout) {
  const Range range("position_backward");
  check_positions("position_backward", dout, dwpe);
  const int64_t B = dout.shape[0], TC = dout.shape[1] * dout.shape[2];
  if (dout.numel() == 0) return;
  position_backward_kernel<<<grid_size(ceil_div(TC, kThreads)), kThreads, 0, stream_.get()>>>(
      dwpe.ptr<float>(), dout.ptr<float>(), B, TC);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace stepladder
