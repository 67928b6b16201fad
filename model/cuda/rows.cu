// Statistics of rows, maps of rows by column vectors, and sums over rows; x is (N,C).
#include "model/cuda/cuda_ops.h"
#include "model/cuda/kernels.cuh"
#include "model/cuda/range.h"
#include "model/cuda/sum_rows.cuh"

namespace stepladder {
namespace {

template <class T>
struct RowMean {  // sum_c x / C
  float* mean;
  const T* x;
  float C;
  __device__ auto row(int64_t) const {
    return [x = x](int64_t i) { return load(x + i); };
  }
  __device__ void write(int64_t row, float sum) const { mean[row] = sum / C; }
};

template <class T>
struct RowRstd {  // 1 / sqrt(sum_c (x - mean)^2 / C + eps)
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
struct Normalize {  // (x - mean) * rstd
  const T* x;
  const float *mean, *rstd;
  __device__ auto row(int64_t row) const {
    return
        [x = x, mean = mean[row], rstd = rstd[row]](int64_t i, int) { return (load(x + i) - mean) * rstd; };
  }
};

template <class T>
struct NormalizeBackward {  // dx + rstd * (dxhat - mean(dxhat) - xhat * mean(dxhat * xhat))
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
struct MulColumns {  // x * w
  const T *x, *w;
  __device__ auto row(int64_t) const {
    return [x = x, w = w](int64_t i, int c) { return load(x + i) * load(w + c); };
  }
};

template <class T>
struct AddColumns {  // x + b
  const T *x, *b;
  __device__ auto row(int64_t) const {
    return [x = x, b = b](int64_t i, int c) { return load(x + i) + load(b + c); };
  }
};

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
  with_float_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    sum_each_row<T>(stream_.get(), x.numel(), x.cols(),
                    RowMean<T>{mean.ptr<float>(), x.ptr<T>(), static_cast<float>(x.cols())});
  });
}

void CudaOps::row_rstd(Tensor rstd, Tensor x, Tensor mean, float eps) {
  const Range range("row_rstd");
  check_per_row("row_rstd", rstd, x);
  check_per_row("row_rstd", mean, x);
  with_float_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    sum_each_row<T>(
        stream_.get(), x.numel(), x.cols(),
        RowRstd<T>{rstd.ptr<float>(), x.ptr<T>(), mean.ptr<float>(), static_cast<float>(x.cols()), eps});
  });
}

void CudaOps::normalize(Tensor out, Tensor x, Tensor mean, Tensor rstd) {
  const Range range("normalize");
  check_same_shape("normalize", out, x);
  check_per_row("normalize", mean, x);
  check_per_row("normalize", rstd, x);
  with_float_type(out.dtype, [&](auto type) {
    using T = decltype(type);
    map_rows<T>(stream_.get(), out, Normalize<T>{x.ptr<T>(), mean.ptr<float>(), rstd.ptr<float>()});
  });
}

void CudaOps::normalize_backward(Tensor dx, Tensor dxhat, Tensor xhat, Tensor mean_dxhat,
                                 Tensor mean_dxhat_xhat, Tensor rstd) {
  const Range range("normalize_backward");
  check_same_shape("normalize_backward", dx, dxhat, xhat);
  check_per_row("normalize_backward", mean_dxhat, dx);
  check_per_row("normalize_backward", mean_dxhat_xhat, dx);
  check_per_row("normalize_backward", rstd, dx);
  with_float_type(dx.dtype, [&](auto type) {
    using T = decltype(type);
    map_rows<T>(stream_.get(), dx,
                NormalizeBackward<T>{dx.ptr<T>(), dxhat.ptr<T>(), xhat.ptr<T>(), mean_dxhat.ptr<float>(),
                                     mean_dxhat_xhat.ptr<float>(), rstd.ptr<float>()});
  });
}

void CudaOps::mul_columns(Tensor out, Tensor x, Tensor w) {
  const Range range("mul_columns");
  check_same_shape("mul_columns", out, x);
  check_per_column("mul_columns", w, x);
  with_float_type(out.dtype, [&](auto type) {
    using T = decltype(type);
    map_rows<T>(stream_.get(), out, MulColumns<T>{x.ptr<T>(), w.ptr<T>()});
  });
}

void CudaOps::add_columns(Tensor out, Tensor x, Tensor b) {
  const Range range("add_columns");
  check_same_shape("add_columns", out, x);
  check_per_column("add_columns", b, x);
  with_float_type(out.dtype, [&](auto type) {
    using T = decltype(type);
    map_rows<T>(stream_.get(), out, AddColumns<T>{x.ptr<T>(), b.ptr<T>()});
  });
}

void CudaOps::sum_rows(Tensor out, Tensor x) {
  const Range range("sum_rows");
  check_per_column("sum_rows", out, x);
  if (x.numel() == 0) return;
  with_pack(x.dtype, options_.wide_access && wide_rows(x.cols(), {x}), [&](auto type, auto width) {
    using T = decltype(type);
    sum_over_rows<T, width()>(stream_.get(), multiprocessors_, partials_, out.ptr<T>(), Write::add, x.rows(),
                              x.cols(), AsStored<T, width()>{{x.ptr<T>()}});
  });
}

}  // namespace stepladder
