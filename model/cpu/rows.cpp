#include "model/cpu/cpu.h"
#include "model/cpu/statistics.h"

namespace stepladder {

void RowMean::run(Cpu& cpu) const {
  const int64_t N = rows_of(x), C = x.cols();
  float* pmean = mean.ptr<float>();
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x);
    cpu.each_row(N, C, [=](int64_t n) { pmean[n] = mean_of(fx + n * C, C); });
  });
}

void RowRstd::run(Cpu& cpu) const {
  const int64_t N = rows_of(x), C = x.cols();
  const float* pmean = mean.ptr<float>();
  float* prstd = rstd.ptr<float>();
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x);
    cpu.each_row(N, C, [=, eps = eps](int64_t n) { prstd[n] = rstd_of(fx + n * C, C, pmean[n], eps); });
  });
}

void Normalize::run(Cpu& cpu) const {
  const int64_t N = rows_of(x), C = x.cols();
  const float *pmean = mean.ptr<float>(), *prstd = rstd.ptr<float>();
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x), fout = floats<T>(out);
    cpu.each_row(N, C, [=](int64_t n) {
      const float m = pmean[n], r = prstd[n];
      STEPLADDER_SIMD
      for (int64_t i = n * C; i < (n + 1) * C; ++i) fout.set(i, (fx[i] - m) * r);
    });
  });
}

void NormalizeBackward::run(Cpu& cpu) const {
  const int64_t N = rows_of(dx), C = dx.cols();
  const float *pmean = mean_dxhat.ptr<float>(), *pmean_xhat = mean_dxhat_xhat.ptr<float>();
  const float* prstd = rstd.ptr<float>();
  with_float_type(dx.dtype, [&]<class T>(T) {
    const auto fdx = floats<T>(dx), fdxhat = floats<T>(dxhat), fxhat = floats<T>(xhat);
    cpu.each_row(N, C, [=](int64_t n) {
      const float m = pmean[n], mx = pmean_xhat[n], r = prstd[n];
      STEPLADDER_SIMD
      for (int64_t i = n * C; i < (n + 1) * C; ++i) fdx.add(i, r * (fdxhat[i] - m - fxhat[i] * mx));
    });
  });
}

void MulColumns::run(Cpu& cpu) const {
  cpu.map_columns(out, w, {x}, [](float w, float x) { return x * w; });
}

void AddColumns::run(Cpu& cpu) const {
  cpu.map_columns(out, b, {x}, [](float b, float x) { return x + b; });
}

void SumRows::run(Cpu& cpu) const {
  const int64_t N = rows_of(x), C = x.cols();
  with_sum_type(x, out, [&]<class T, class Sum>(T, Sum) {
    const auto fx = floats<T>(x);
    cpu.add_sums(floats<Sum>(out), N, C, [=](int64_t n, int64_t c) { return fx[n * C + c]; });
  });
}

}  // namespace stepladder
