#include "model/cpu/check.h"
#include "model/cpu/cpu_ops.h"
#include "model/cpu/statistics.h"

namespace stepladder {
namespace {

constexpr float kLayernormEps = 1e-5F;

/// w and b are (C) of x (N,C).
bool columns_fit(Tensor x, Tensor w, Tensor b) {
  return x.shape.rank() > 0 && w.shape == Shape{x.cols()} && b.shape == w.shape;
}

/// out = (x - mean) * rstd * w + b over a row, and its statistics.
template <class T>
void layernorm_row(Floats<T> out, float& mean, float& rstd, Floats<T> x, Floats<T> w, Floats<T> b,
                   int64_t C) {
  const float m = mean_of(x, C), r = rstd_of(x, C, m, kLayernormEps);
  STEPLADDER_SIMD
  for (int64_t c = 0; c < C; ++c) out.set(c, (x[c] - m) * r * w[c] + b[c]);
  mean = m, rstd = r;
}

}  // namespace

void CpuOps::layernorm_forward(Tensor out, Tensor mean, Tensor rstd, Tensor x, Tensor w, Tensor b) {
  expect(one_float_type(out, x, w, b) && all_f32(mean, rstd) && same_shape(out, x) && columns_fit(x, w, b) &&
             one_per_row(x, mean, rstd),
         "layernorm_forward", out, mean, rstd, x, w, b);
  const int64_t N = rows_of(x), C = x.cols();
  float *pmean = mean.ptr<float>(), *prstd = rstd.ptr<float>();
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fout = floats<T>(out), fx = floats<T>(x), fw = floats<T>(w), fb = floats<T>(b);
    each_row(N, C,
             [=](int64_t n) { layernorm_row(fout + n * C, pmean[n], prstd[n], fx + n * C, fw, fb, C); });
  });
}

void CpuOps::residual_layernorm_forward(Tensor res, Tensor out, Tensor mean, Tensor rstd, Tensor x, Tensor y,
                                        Tensor bias, Tensor w, Tensor b) {
  expect(one_float_type(res, out, x, y, w, b) && all_f32(mean, rstd) && same_shape(res, out, x, y) &&
             columns_fit(x, w, b) && one_per_row(x, mean, rstd) &&
             (!present(bias) || (one_float_type(x, bias) && same_shape(bias, w))),
         "residual_layernorm_forward", res, out, mean, rstd, x, y, bias, w, b);
  const int64_t N = rows_of(x), C = x.cols();
  float *pmean = mean.ptr<float>(), *prstd = rstd.ptr<float>();
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fres = floats<T>(res), fout = floats<T>(out), fx = floats<T>(x), fy = floats<T>(y);
    const auto fw = floats<T>(w), fb = floats<T>(b);
    const Floats<T> fbias = present(bias) ? floats<T>(bias) : Floats<T>{};
    each_row(N, C, [=](int64_t n) {
      const int64_t row = n * C;
      if (fbias.data != nullptr) {  // NOLINT(bugprone-branch-clone): it does not look past the pragmas
        STEPLADDER_SIMD
        for (int64_t c = 0; c < C; ++c) fres.set(row + c, fx[row + c] + fy[row + c] + fbias[c]);
      } else {
        STEPLADDER_SIMD
        for (int64_t c = 0; c < C; ++c) fres.set(row + c, fx[row + c] + fy[row + c]);
      }
      layernorm_row(fout + row, pmean[n], prstd[n], fres + row, fw, fb, C);
    });
  });
}

void CpuOps::layernorm_backward(Tensor dx, Tensor dw, Tensor db, Tensor dbias, Tensor dout, Tensor x,
                                Tensor mean, Tensor rstd, Tensor w) {
  expect(one_float_type(dx, dw, db, dout, x, w) && all_f32(mean, rstd) && same_shape(dx, dout, x) &&
             columns_fit(x, dw, db) && same_shape(w, dw) && one_per_row(x, mean, rstd) &&
             (!present(dbias) || (one_float_type(x, dbias) && same_shape(dbias, w))),
         "layernorm_backward", dx, dw, db, dbias, dout, x, mean, rstd, w);
  const int64_t N = rows_of(x), C = x.cols();
  const float *pmean = mean.ptr<float>(), *prstd = rstd.ptr<float>();
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fdx = floats<T>(dx), fdout = floats<T>(dout), fx = floats<T>(x), fw = floats<T>(w);
    const auto xhat = [=](int64_t n, int64_t c) { return (fx[n * C + c] - pmean[n]) * prstd[n]; };
    each_row(N, C, [=](int64_t n) {
      const auto dxhat = [=](int64_t c) { return fdout[n * C + c] * fw[c]; };
      const auto mean_dxhat = static_cast<float>(sum(C, dxhat) / static_cast<double>(C));
      const auto mean_dxhat_xhat =
          static_cast<float>(sum(C, [=](int64_t c) { return static_cast<double>(dxhat(c)) * xhat(n, c); }) /
                             static_cast<double>(C));
      const float r = prstd[n];
      STEPLADDER_SIMD
      for (int64_t c = 0; c < C; ++c)
        fdx.add(n * C + c, r * (dxhat(c) - mean_dxhat - xhat(n, c) * mean_dxhat_xhat));
    });
    add_sums(floats<T>(dw), N, C,
             [=](int64_t n, int64_t c) { return static_cast<double>(fdout[n * C + c]) * xhat(n, c); });
    add_sums(floats<T>(db), N, C, [=](int64_t n, int64_t c) { return fdout[n * C + c]; });
    if (present(dbias))
      add_sums(floats<T>(dbias), N, C, [=](int64_t n, int64_t c) { return fdx[n * C + c]; });
  });
}

}  // namespace stepladder
