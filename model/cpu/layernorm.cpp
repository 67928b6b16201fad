#include "model/cpu/cpu.h"
#include "model/cpu/statistics.h"

namespace stepladder {
namespace {

constexpr float kLayernormEps = 1e-5F;

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

void LayerNormForward::run(Cpu& cpu) const {
  const int64_t N = rows_of(x), C = x.cols();
  float *pmean = mean.ptr<float>(), *prstd = rstd.ptr<float>();
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fout = floats<T>(out), fx = floats<T>(x), fw = floats<T>(w), fb = floats<T>(b);
    cpu.each_row(N, C,
                 [=](int64_t n) { layernorm_row(fout + n * C, pmean[n], prstd[n], fx + n * C, fw, fb, C); });
  });
}

void ResidualLayerNormForward::run(Cpu& cpu) const {
  const Tensor out = norm.out, mean = norm.mean, rstd = norm.rstd, w = params.w, b = params.b;
  const int64_t N = rows_of(x), C = x.cols();
  float *pmean = mean.ptr<float>(), *prstd = rstd.ptr<float>();
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fres = floats<T>(res), fout = floats<T>(out), fx = floats<T>(x), fy = floats<T>(y);
    const auto fw = floats<T>(w), fb = floats<T>(b);
    const Floats<T> fbias = present(bias) ? floats<T>(bias) : Floats<T>{};
    cpu.each_row(N, C, [=](int64_t n) {
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

void LayerNormBackward::run(Cpu& cpu) const {
  const Tensor x = input.x, mean = input.mean, rstd = input.rstd, dw = dparams.w, db = dparams.b;
  const int64_t N = rows_of(x), C = x.cols();
  const float *pmean = mean.ptr<float>(), *prstd = rstd.ptr<float>();
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fdx = floats<T>(dx), fdout = floats<T>(dout), fx = floats<T>(x), fw = floats<T>(w);
    const auto xhat = [=](int64_t n, int64_t c) { return (fx[n * C + c] - pmean[n]) * prstd[n]; };
    cpu.each_row(N, C, [=](int64_t n) {
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
    cpu.add_sums(floats<T>(dw), N, C,
                 [=](int64_t n, int64_t c) { return static_cast<double>(fdout[n * C + c]) * xhat(n, c); });
    cpu.add_sums(floats<T>(db), N, C, [=](int64_t n, int64_t c) { return fdout[n * C + c]; });
    if (present(dbias))
      cpu.add_sums(floats<T>(dbias), N, C, [=](int64_t n, int64_t c) { return fdx[n * C + c]; });
  });
}

}  // namespace stepladder
