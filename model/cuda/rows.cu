// Statistics of rows, maps of rows by column vectors, and sums over rows; x is (N,C).
#include "model/cuda/cuda.h"
#include "model/cuda/kernels.cuh"
#include "model/cuda/wide.cuh"

namespace stepladder {
namespace {

template <class T>
struct RowMeanFunctor {  // sum_c x / C
  float* mean;
  const T* x;
  float C;
  __device__ auto row(int64_t) const {
    return [x = x](int64_t i) { return load(x + i); };
  }
  __device__ void write(int64_t row, float sum) const { mean[row] = sum / C; }
};

template <class T>
struct RowRstdFunctor {  // 1 / sqrt(sum_c (x - mean)^2 / C + eps)
  float* rstd;
  const T* x;
  const float* mean;
  float C, eps;
  __device__ auto row(int64_t row) const {
    return [x = x, mean = mean[row]](int64_t i) {
      const float difference = load(x + i) - mean;
      return difference * difference;
    };
  }
  __device__ void write(int64_t row, float sum) const { rstd[row] = 1.0F / sqrtf(sum / C + eps); }
};

template <class T>
struct NormalizeFunctor {  // (x - mean) * rstd
  const T* x;
  const float *mean, *rstd;
  __device__ auto row(int64_t row) const {
    return
        [x = x, mean = mean[row], rstd = rstd[row]](int64_t i, int) { return (load(x + i) - mean) * rstd; };
  }
};

template <class T>
struct NormalizeBackwardFunctor {  // dx + rstd * (dxhat - mean(dxhat) - xhat * mean(dxhat * xhat))
  const T *dx, *dxhat, *xhat;
  const float *mean_dxhat, *mean_dxhat_xhat, *rstd;
  __device__ auto row(int64_t row) const {
    return
        [*this, mean = mean_dxhat[row], mean_xhat = mean_dxhat_xhat[row], rstd = rstd[row]](int64_t i, int) {
          return load(dx + i) + rstd * (load(dxhat + i) - mean - load(xhat + i) * mean_xhat);
        };
  }
};

template <class T>
struct MulColumnsFunctor {  // x * w
  const T *x, *w;
  __device__ auto row(int64_t) const {
    return [x = x, w = w](int64_t i, int c) { return load(x + i) * load(w + c); };
  }
};

template <class T>
struct AddColumnsFunctor {  // x + b
  const T *x, *b;
  __device__ auto row(int64_t) const {
    return [x = x, b = b](int64_t i, int c) { return load(x + i) + load(b + c); };
  }
};

// Sums over rows: a block takes 32 packs of columns of one chunk of rows, each of its kWarps warps every
// kWarps-th row of the chunk. A lane loads kDepth packs before it adds the first.
constexpr int kWarps = 8;
constexpr int kDepth = 8;
constexpr int64_t kBlocksPerMultiprocessor = 8;

// out[chunk][c] = or += sum over the chunk's rows of x[row][c]
template <Write kWrite, int kWidth, class Out, class In>
__global__ void __launch_bounds__(32 * kWarps, 4)
    sum_rows_kernel(Out* out, const In* x, int64_t rows, int64_t cols, int64_t rows_per_chunk) {
  await_predecessor();
  __shared__ float of_warp[kWarps][kWidth][32];
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int64_t c = (static_cast<int64_t>(blockIdx.x) * 32 + lane) * kWidth;
  // Take the last rows first: the kernel that wrote x has left them in L2.
  const int64_t chunk = gridDim.y - 1 - blockIdx.y;
  const int64_t begin = chunk * rows_per_chunk;
  const int64_t end = begin + rows_per_chunk < rows ? begin + rows_per_chunk : rows;

  float sum[kWidth] = {};
  for (int64_t first = begin + warp; c < cols && first < end; first += kDepth * kWarps) {
    Pack<In, kWidth> packs[kDepth] = {};  // 0 past the end
#pragma unroll
    for (int j = 0; j < kDepth; ++j) {
      const int64_t row = first + j * kWarps;
      if (row < end) packs[j] = Pack<In, kWidth>::load(x + row * cols + c);
    }
#pragma unroll
    for (int j = 0; j < kDepth; ++j) {
      float v[kWidth];
      packs[j].get(v);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum[i] += v[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) of_warp[warp][i][lane] = sum[i];
  __syncthreads();

  for (int i = warp; i < kWidth && c < cols; i += kWarps) {
    float total = 0.0F;
#pragma unroll
    for (int k = 0; k < kWarps; ++k) total += of_warp[k][i][lane];
    Out* to = out + chunk * cols + c + i;
    store(to, kWrite == Write::add ? load(to) + total : total);
  }
}

template <Write kWrite, int kWidth, class Out, class In>
void sum_chunks(Queue& queue, Out* out, const In* x, int64_t rows, int64_t cols, int64_t chunks) {
  const dim3 grid(grid_size(ceil_div(cols, 32 * kWidth)), grid_size(chunks));
  launch(queue, sum_rows_kernel<kWrite, kWidth, Out, In>, grid, dim3(32, kWarps), 0, out, x, rows, cols,
         ceil_div(rows, chunks));
}

}  // namespace

void RowMean::run(Cuda& cuda) const {
  with_float_type(x.dtype, [&]<class T>(T) {
    sum_each_row<T>(cuda.queue, x.numel(), x.cols(),
                    RowMeanFunctor<T>{mean.ptr<float>(), x.ptr<T>(), static_cast<float>(x.cols())});
  });
}

void RowRstd::run(Cuda& cuda) const {
  with_float_type(x.dtype, [&]<class T>(T) {
    sum_each_row<T>(cuda.queue, x.numel(), x.cols(),
                    RowRstdFunctor<T>{rstd.ptr<float>(), x.ptr<T>(), mean.ptr<float>(),
                                      static_cast<float>(x.cols()), eps});
  });
}

void Normalize::run(Cuda& cuda) const {
  map_rows_of_type(cuda.queue, out, [&]<class T>(T) {
    return NormalizeFunctor<T>{x.ptr<T>(), mean.ptr<float>(), rstd.ptr<float>()};
  });
}

void NormalizeBackward::run(Cuda& cuda) const {
  map_rows_of_type(cuda.queue, dx, [&]<class T>(T) {
    return NormalizeBackwardFunctor<T>{dx.ptr<T>(),
                                       dxhat.ptr<T>(),
                                       xhat.ptr<T>(),
                                       mean_dxhat.ptr<float>(),
                                       mean_dxhat_xhat.ptr<float>(),
                                       rstd.ptr<float>()};
  });
}

void MulColumns::run(Cuda& cuda) const {
  map_rows_of_type(cuda.queue, out, [&]<class T>(T) { return MulColumnsFunctor<T>{x.ptr<T>(), w.ptr<T>()}; });
}

void AddColumns::run(Cuda& cuda) const {
  map_rows_of_type(cuda.queue, out, [&]<class T>(T) { return AddColumnsFunctor<T>{x.ptr<T>(), b.ptr<T>()}; });
}

void SumRows::run(Cuda& cuda) const {
  sum_rows_into(cuda, out, x, Write::add);
}

void sum_rows_into(Cuda& cuda, const Tensor& out, const Tensor& x, Write write) {
  const int64_t rows = x.rows(), cols = x.cols();
  if (x.numel() == 0 && write == Write::set) Zero{out}.run(cuda);
  if (x.numel() == 0) return;
  const auto sum_into = [&]<class T, class Sum>(Sum* sums, const T* from, auto width) {
    constexpr int kWidth = width();

    // Sum over chunks of rows, enough to fill the device but no more than fit into scratch; then add up these
    // sums.
    const int64_t blocks = kBlocksPerMultiprocessor * cuda.multiprocessors;
    const int64_t chunks =
        std::min({ceil_div(rows, kRowChunk), kMaxRowChunks, ceil_div(blocks, ceil_div(cols, 32 * kWidth)),
                  cuda.partials.numel() / cols});
    const auto into_sums = [&](auto in_width, const auto* in, int64_t in_rows) {
      if (write == Write::add)
        sum_chunks<Write::add, in_width()>(cuda.queue, sums, in, in_rows, cols, 1);
      else
        sum_chunks<Write::set, in_width()>(cuda.queue, sums, in, in_rows, cols, 1);
    };
    if (chunks < 2) return into_sums(width, from, rows);
    float* partials = cuda.partials.ptr<float>();
    sum_chunks<Write::set, kWidth>(cuda.queue, partials, from, rows, cols, chunks);
    into_sums(std::integral_constant<int, 1>{}, partials, chunks);
  };
  with_pack({x}, cuda.options.wide_access, [&]<class T>(T, auto width) {
    if (out.dtype == x.dtype) return sum_into(out.ptr<T>(), x.ptr<T>(), width);
    sum_into(out.ptr<float>(), x.ptr<T>(), width);
  });
}

}  // namespace stepladder
