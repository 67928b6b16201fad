#include "model/cpu/check.h"
#include "model/cpu/cpu_ops.h"
#include "model/cpu/statistics.h"

namespace stepladder {

void CpuOps::row_mean(Tensor mean, Tensor x) {
  expect(one_float_type(x) && all_f32(mean) && one_per_row(x, mean), "row_mean", mean, x);
  const int64_t N = rows_of(x), C = x.cols();
  float* pmean = mean.ptr<float>();
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x);
    each_row(N, C, [=](int64_t n) { pmean[n] = mean_of(fx + n * C, C); });
  });
}

void CpuOps::row_rstd(Tensor rstd, Tensor x, Tensor mean, float eps) {
  expect(one_float_type(x) && all_f32(rstd, mean) && one_per_row(x, rstd, mean), "row_rstd", rstd, x, mean);
  const int64_t N = rows_of(x), C = x.cols();
  const float* pmean = mean.ptr<float>();
  float* prstd = rstd.ptr<float>();
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x);
    each_row(N, C, [=](int64_t n) { prstd[n] = rstd_of(fx + n * C, C, pmean[n], eps); });
  });
}

void CpuOps::normalize(Tensor out, Tensor x, Tensor mean, Tensor rstd) {
  expect(one_float_type(out, x) && all_f32(mean, rstd) && same_shape(out, x) && one_per_row(x, mean, rstd),
         "normalize", out, x, mean, rstd);
  const int64_t N = rows_of(x), C = x.cols();
  const float *pmean = mean.ptr<float>(), *prstd = rstd.ptr<float>();
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x), fout = floats<T>(out);
    each_row(N, C, [=](int64_t n) {
      const float m = pmean[n], r = prstd[n];
      STEPLADDER_SIMD
      for (int64_t i = n * C; i < (n + 1) * C; ++i) fout.set(i, (fx[i] - m) * r);
    });
  });
}

void CpuOps::normalize_backward(Tensor dx, Tensor dxhat, Tensor xhat, Tensor mean_dxhat,
                                Tensor mean_dxhat_xhat, Tensor rstd) {
  expect(one_float_type(dx, dxhat, xhat) && all_f32(mean_dxhat, mean_dxhat_xhat, rstd) &&
             same_shape(dx, dxhat, xhat) && one_per_row(dx, mean_dxhat, mean_dxhat_xhat, rstd),
         "normalize_backward", dx, dxhat, xhat, mean_dxhat, mean_dxhat_xhat, rstd);
  const int64_t N = rows_of(dx), C = dx.cols();
  const float *pmean = mean_dxhat.ptr<float>(), *pmean_xhat = mean_dxhat_xhat.ptr<float>();
  const float* prstd = rstd.ptr<float>();
  with_float_type(dx.dtype, [&]<class T>(T) {
    const auto fdx = floats<T>(dx), fdxhat = floats<T>(dxhat), fxhat = floats<T>(xhat);
    each_row(N, C, [=](int64_t n) {
      const float m = pmean[n], mx = pmean_xhat[n], r = prstd[n];
      STEPLADDER_SIMD
      for (int64_t i = n * C; i < (n + 1) * C; ++i) fdx.add(i, r * (fdxhat[i] - m - fxhat[i] * mx));
    });
  });
}

void CpuOps::mul_columns(Tensor out, Tensor x, Tensor w) {
  expect(one_float_type(out, x, w) && same_shape(out, x) && x.shape.rank() > 0 && w.shape == Shape{x.cols()},
         "mul_columns", out, x, w);
  const int64_t N = rows_of(x), C = x.cols();
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x), fw = floats<T>(w), fout = floats<T>(out);
    each_row(N, C, [=](int64_t n) {
      STEPLADDER_SIMD
      for (int64_t c = 0; c < C; ++c) fout.set(n * C + c, fx[n * C + c] * fw[c]);
    });
  });
}

void CpuOps::add_columns(Tensor out, Tensor x, Tensor b) {
  expect(one_float_type(out, x, b) && same_shape(out, x) && x.shape.rank() > 0 && b.shape == Shape{x.cols()},
         "add_columns", out, x, b);
  const int64_t N = rows_of(x), C = x.cols();
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x), fb = floats<T>(b), fout = floats<T>(out);
    each_row(N, C, [=](int64_t n) {
      STEPLADDER_SIMD
      for (int64_t c = 0; c < C; ++c) fout.set(n * C + c, fx[n * C + c] + fb[c]);
    });
  });
}

void CpuOps::sum_rows(Tensor out, Tensor x) {
  expect(one_float_type(out, x) && x.shape.rank() > 0 && out.shape == Shape{x.cols()}, "sum_rows", out, x);
  const int64_t N = rows_of(x), C = x.cols();
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x);
    add_sums(floats<T>(out), N, C, [=](int64_t n, int64_t c) { return fx[n * C + c]; });
  });
}

}  // namespace stepladder
