#include <cmath>

#include "model/cpu/check.h"
#include "model/cpu/cpu_ops.h"

namespace stepladder {

void CpuOps::row_mean(Tensor mean, Tensor x) {
  expect(all_f32(mean, x) && one_per_row(x, mean), "row_mean", mean, x);
  const int64_t N = rows_of(x), C = x.cols();
  const float* px = x.ptr<float>();
  float* pmean = mean.ptr<float>();
  each_row(N, C, [=](int64_t n) {
    const float* row = px + n * C;
    pmean[n] = static_cast<float>(sum(C, [=](int64_t c) { return row[c]; }) / static_cast<double>(C));
  });
}

void CpuOps::row_rstd(Tensor rstd, Tensor x, Tensor mean, float eps) {
  expect(all_f32(rstd, x, mean) && one_per_row(x, rstd, mean), "row_rstd", rstd, x, mean);
  const int64_t N = rows_of(x), C = x.cols();
  const float *px = x.ptr<float>(), *pmean = mean.ptr<float>();
  float* prstd = rstd.ptr<float>();
  each_row(N, C, [=](int64_t n) {
    const float* row = px + n * C;
    const double m = pmean[n];
    const double squares = sum(C, [=](int64_t c) { return (row[c] - m) * (row[c] - m); });
    prstd[n] = static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(C) + eps));
  });
}

void CpuOps::normalize(Tensor out, Tensor x, Tensor mean, Tensor rstd) {
  expect(all_f32(out, x, mean, rstd) && same_shape(out, x) && one_per_row(x, mean, rstd), "normalize", out, x,
         mean, rstd);
  const int64_t N = rows_of(x), C = x.cols();
  const float *px = x.ptr<float>(), *pmean = mean.ptr<float>(), *prstd = rstd.ptr<float>();
  float* pout = out.ptr<float>();
  each_row(N, C, [=](int64_t n) {
    const float m = pmean[n], r = prstd[n];
    STEPLADDER_SIMD
    for (int64_t i = n * C; i < (n + 1) * C; ++i) pout[i] = (px[i] - m) * r;
  });
}

void CpuOps::normalize_backward(Tensor dx, Tensor dxhat, Tensor xhat, Tensor mean_dxhat,
                                Tensor mean_dxhat_xhat, Tensor rstd) {
  expect(all_f32(dx, dxhat, xhat, mean_dxhat, mean_dxhat_xhat, rstd) && same_shape(dx, dxhat, xhat) &&
             one_per_row(dx, mean_dxhat, mean_dxhat_xhat, rstd),
         "normalize_backward", dx, dxhat, xhat, mean_dxhat, mean_dxhat_xhat, rstd);
  const int64_t N = rows_of(dx), C = dx.cols();
  const float *pdxhat = dxhat.ptr<float>(), *pxhat = xhat.ptr<float>();
  const float *pmean = mean_dxhat.ptr<float>(), *pmean_xhat = mean_dxhat_xhat.ptr<float>();
  const float* prstd = rstd.ptr<float>();
  float* pdx = dx.ptr<float>();
  each_row(N, C, [=](int64_t n) {
    const float m = pmean[n], mx = pmean_xhat[n], r = prstd[n];
    STEPLADDER_SIMD
    for (int64_t i = n * C; i < (n + 1) * C; ++i) pdx[i] += r * (pdxhat[i] - m - pxhat[i] * mx);
  });
}

void CpuOps::mul_columns(Tensor out, Tensor x, Tensor w) {
  expect(all_f32(out, x, w) && same_shape(out, x) && x.shape.rank() > 0 && w.shape == Shape{x.cols()},
         "mul_columns", out, x, w);
  const int64_t N = rows_of(x), C = x.cols();
  const float *px = x.ptr<float>(), *pw = w.ptr<float>();
  float* pout = out.ptr<float>();
  each_row(N, C, [=](int64_t n) {
    STEPLADDER_SIMD
    for (int64_t c = 0; c < C; ++c) pout[n * C + c] = px[n * C + c] * pw[c];
  });
}

void CpuOps::add_columns(Tensor out, Tensor x, Tensor b) {
  expect(all_f32(out, x, b) && same_shape(out, x) && x.shape.rank() > 0 && b.shape == Shape{x.cols()},
         "add_columns", out, x, b);
  const int64_t N = rows_of(x), C = x.cols();
  const float *px = x.ptr<float>(), *pb = b.ptr<float>();
  float* pout = out.ptr<float>();
  each_row(N, C, [=](int64_t n) {
    STEPLADDER_SIMD
    for (int64_t c = 0; c < C; ++c) pout[n * C + c] = px[n * C + c] + pb[c];
  });
}

void CpuOps::sum_rows(Tensor out, Tensor x) {
  expect(all_f32(out, x) && x.shape.rank() > 0 && out.shape == Shape{x.cols()}, "sum_rows", out, x);
  const int64_t N = rows_of(x), C = x.cols();
  const float* px = x.ptr<float>();
  float* pout = out.ptr<float>();
  pieces(C, kColumns, N, [=](int64_t first, int64_t last) {
    double sums[kColumns] = {};
    for (int64_t n = 0; n < N; ++n)
      for (int64_t c = first; c < last; ++c) sums[c - first] += px[n * C + c];
    for (int64_t c = first; c < last; ++c) pout[c] = static_cast<float>(pout[c] + sums[c - first]);
  });
}

}  // namespace stepladder
