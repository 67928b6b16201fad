// Statistics of rows, maps of rows by column vectors, and sums over rows; x is (N,C).
#include "model/cuda/cuda_ops.h"
#include "model/cuda/kernels.cuh"
#include "model/cuda/range.h"

namespace stepladder {
namespace {

struct RowMean {  // sum_c x / C
  float* mean;
  const float* x;
  float C;
  __device__ auto row(int64_t) const {
    return [x = x](int64_t i) { return x[i]; };
  }
  __device__ void write(int64_t row, float sum) const { mean[row] = sum / C; }
};

struct RowRstd {  // 1 / sqrt(sum_c (x - mean)^2 / C + eps)
  float* rstd;
  const float *x, *mean;
  float C, eps;
  __device__ auto row(int64_t row) const {
    return [x = x, mean = mean[row]](int64_t i) { return (x[i] - mean) * (x[i] - mean); };
  }
  __device__ void write(int64_t row, float sum) const { rstd[row] = 1.0F / sqrtf(sum / C + eps); }
};

struct Normalize {  // (x - mean) * rstd
  const float *x, *mean, *rstd;
  __device__ auto row(int64_t row) const {
    return [x = x, mean = mean[row], rstd = rstd[row]](int64_t i, int) { return (x[i] - mean) * rstd; };
  }
};

struct NormalizeBackward {  // dx + rstd * (dxhat - mean(dxhat) - xhat * mean(dxhat * xhat))
  const float *dx, *dxhat, *xhat, *mean_dxhat, *mean_dxhat_xhat, *rstd;
  __device__ auto row(int64_t row) const {
    return [*this, mean = mean_dxhat[row], mean_xhat = mean_dxhat_xhat[row], rstd = rstd[row]](
               int64_t i, int) { return dx[i] + rstd * (dxhat[i] - mean - xhat[i] * mean_xhat); };
  }
};

struct MulColumns {  // x * w
  const float *x, *w;
  __device__ auto row(int64_t) const {
    return [x = x, w = w](int64_t i, int c) { return x[i] * w[c]; };
  }
};

struct AddColumns {  // x + b
  const float *x, *b;
  __device__ auto row(int64_t) const {
    return [x = x, b = b](int64_t i, int c) { return x[i] + b[c]; };
  }
};

// Sums over rows: a block takes kColumns columns of one chunk of rows, each of its kLanes warps every
// kLanes-th row of the chunk.
constexpr int kColumns = 32;
constexpr int kLanes = 8;
constexpr int64_t kMaxGridY = 65535;

// out[chunk][c] = or += sum over the chunk's rows of x[row][c]
template <Write kWrite>
__global__ void __launch_bounds__(kColumns* kLanes)
    sum_rows_kernel(float* out, const float* x, int64_t rows, int64_t cols, int64_t rows_per_chunk) {
  __shared__ float of_lane[kLanes][kColumns];
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kColumns + threadIdx.x;
  const int64_t begin = blockIdx.y * rows_per_chunk;
  const int64_t end = begin + rows_per_chunk < rows ? begin + rows_per_chunk : rows;

  float sum = 0.0F;
  if (c < cols) {
#pragma unroll 8
    for (int64_t row = begin + threadIdx.y; row < end; row += kLanes) sum += x[row * cols + c];
  }
  of_lane[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();

  if (threadIdx.y == 0 && c < cols) {
    for (int lane = 1; lane < kLanes; ++lane) sum += of_lane[lane][threadIdx.x];
    float& to = out[blockIdx.y * cols + c];
    to = kWrite == Write::add ? to + sum : sum;
  }
}

template <Write kWrite>
void sum_chunks(cudaStream_t stream, float* out, const float* x, int64_t rows, int64_t cols, int64_t chunks) {
  const dim3 grid(grid_size(ceil_div(cols, kColumns)), grid_size(chunks));
  sum_rows_kernel<kWrite>
      <<<grid, dim3(kColumns, kLanes), 0, stream>>>(out, x, rows, cols, ceil_div(rows, chunks));
  CUDA_CHECK(cudaGetLastError());
}

void check_per_row(const char* op, const Tensor& statistic, const Tensor& x) {
  check(statistic.numel() == x.rows(), op, ": ", statistic, " for the rows of ", x);
}

void check_per_column(const char* op, const Tensor& vector, const Tensor& x) {
  check(vector.numel() == x.cols(), op, ": ", vector, " for the columns of ", x);
}

}  // namespace

void CudaOps::row_mean(Tensor mean, Tensor x) {
  const Range range("row_mean");
  check_per_row("row_mean", mean, x);
  sum_each_row(stream_.get(), x.numel(), x.cols(),
               RowMean{mean.ptr<float>(), x.ptr<float>(), static_cast<float>(x.cols())});
}

void CudaOps::row_rstd(Tensor rstd, Tensor x, Tensor mean, float eps) {
  const Range range("row_rstd");
  check_per_row("row_rstd", rstd, x);
  check_per_row("row_rstd", mean, x);
  sum_each_row(
      stream_.get(), x.numel(), x.cols(),
      RowRstd{rstd.ptr<float>(), x.ptr<float>(), mean.ptr<float>(), static_cast<float>(x.cols()), eps});
}

void CudaOps::normalize(Tensor out, Tensor x, Tensor mean, Tensor rstd) {
  const Range range("normalize");
  check_same_shape("normalize", out, x);
  check_per_row("normalize", mean, x);
  check_per_row("normalize", rstd, x);
  map_rows(stream_.get(), out, Normalize{x.ptr<float>(), mean.ptr<float>(), rstd.ptr<float>()});
}

void CudaOps::normalize_backward(Tensor dx, Tensor dxhat, Tensor xhat, Tensor mean_dxhat,
                                 Tensor mean_dxhat_xhat, Tensor rstd) {
  const Range range("normalize_backward");
  check_same_shape("normalize_backward", dx, dxhat, xhat);
  check_per_row("normalize_backward", mean_dxhat, dx);
  check_per_row("normalize_backward", mean_dxhat_xhat, dx);
  check_per_row("normalize_backward", rstd, dx);
  map_rows(stream_.get(), dx,
           NormalizeBackward{dx.ptr<float>(), dxhat.ptr<float>(), xhat.ptr<float>(), mean_dxhat.ptr<float>(),
                             mean_dxhat_xhat.ptr<float>(), rstd.ptr<float>()});
}

void CudaOps::mul_columns(Tensor out, Tensor x, Tensor w) {
  const Range range("mul_columns");
  check_same_shape("mul_columns", out, x);
  check_per_column("mul_columns", w, x);
  map_rows(stream_.get(), out, MulColumns{x.ptr<float>(), w.ptr<float>()});
}

void CudaOps::add_columns(Tensor out, Tensor x, Tensor b) {
  const Range range("add_columns");
  check_same_shape("add_columns", out, x);
  check_per_column("add_columns", b, x);
  map_rows(stream_.get(), out, AddColumns{x.ptr<float>(), b.ptr<float>()});
}

void CudaOps::sum_rows(Tensor out, Tensor x) {
  const Range range("sum_rows");
  check_per_column("sum_rows", out, x);
  const int64_t rows = x.rows(), cols = x.cols();
  float* sums = out.ptr<float>();
  const float* from = x.ptr<float>();
  if (rows == 0) return;

  // Enough chunks to fill the device, then a second pass over their sums; no more than scratch and grid hold.
  const int64_t chunks = std::min({ceil_div(rows, kRowChunk), partials_.numel() / cols, kMaxGridY});
  if (chunks < 2) return sum_chunks<Write::add>(stream_.get(), sums, from, rows, cols, 1);
  sum_chunks<Write::set>(stream_.get(), partials_.ptr<float>(), from, rows, cols, chunks);
  sum_chunks<Write::add>(stream_.get(), sums, partials_.ptr<float>(), chunks, cols, 1);
}

}  // namespace stepladder
