#include "model/cpu/cpu.h"
#include "model/cpu/statistics.h"

namespace stepladder {

void LayerNormForward::run(Cpu& cpu) const {
  const int64_t N = rows_of(x), C = x.cols();
  float *pmean = mean.ptr<float>(), *prstd = rstd.ptr<float>();
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fout = floats<T>(out), fx = floats<T>(x), fw = floats<T>(w), fb = floats<T>(b);
    cpu.each_row(N, C, [=](int64_t n) {
      const auto row = fx + n * C, to = fout + n * C;
      const float m = mean_of(row, C), r = rstd_of(row, C, m, kLayerNormEps);
      STEPLADDER_SIMD
      for (int64_t c = 0; c < C; ++c) to.set(c, (row[c] - m) * r * fw[c] + fb[c]);
      pmean[n] = m, prstd[n] = r;
    });
  });
}

void LayerNormBackward::run(Cpu& cpu) const {
  const Tensor x = input.x, mean = input.mean, rstd = input.rstd, dw = dparams.w, db = dparams.b;
  const int64_t N = rows_of(x), C = x.cols();
  const float *pmean = mean.ptr<float>(), *prstd = rstd.ptr<float>();
  with_sum_type(x, dw, [&]<class T, class Sum>(T, Sum) {
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
    cpu.add_sums(floats<Sum>(dw), N, C,
                 [=](int64_t n, int64_t c) { return static_cast<double>(fdout[n * C + c]) * xhat(n, c); });
    cpu.add_sums(floats<Sum>(db), N, C, [=](int64_t n, int64_t c) { return fdout[n * C + c]; });
    if (present(dbias))
      cpu.add_sums(floats<Sum>(dbias), N, C, [=](int64_t n, int64_t c) { return fdx[n * C + c]; });
  });
}

}  // namespace stepladder
