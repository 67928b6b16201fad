#include <cmath>

#include "model/cpu/cpu.h"

namespace stepladder {
namespace {

bool overflowed(const Tensor& loss_scaler) {
  return present(loss_scaler) && loss_scaler.ptr<float>()[3] != 0.0F;
}

}  // namespace

void MuonMomentum::run(Cpu& cpu) const {
  if (overflowed(loss_scaler) || x.numel() == 0) return;
  const int64_t size = x.shape[-2] * x.cols();
  const float factor = *clip.ptr<float>(), beta = this->beta;
  float* all_m = m.ptr<float>();
  with_sum_type(x, g, [&]<class T, class G>(T, G) {
    const auto all_x = floats<T>(x);
    const auto all_g = floats<G>(g);
    cpu.each_row(x.numel() / size, size, [=](int64_t matrix) {
      float* const m = all_m + matrix * size;
      const auto g = all_g + matrix * size;
      const auto x = all_x + matrix * size;
      const auto u = [=](int64_t i) { return beta * m[i] + (1.0F - beta) * (factor * g[i]); };
      STEPLADDER_SIMD
      for (int64_t i = 0; i < size; ++i) m[i] = u(i);
      const double squares = sum(size, [=](int64_t i) { return static_cast<double>(u(i)) * u(i); });
      const auto inverse = static_cast<float>(1.0 / (std::sqrt(squares) + double{kMuonEps}));
      STEPLADDER_SIMD
      for (int64_t i = 0; i < size; ++i) x.set(i, u(i) * inverse);
    });
  });
}

void MuonUpdate::run(Cpu& cpu) const {
  if (overflowed(loss_scaler)) return;
  const float rate = *lr.ptr<float>(), factor = scale(), decay = weight_decay;
  float* pw = w.ptr<float>();
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x);
    cpu.each_element(Floats<float>{pw}, w.numel(),
                     [=](int64_t i) { return pw[i] - rate * (factor * fx[i] + decay * pw[i]); });
  });
  if (present(param_copy)) Copy{param_copy, w}.run(cpu);
}

}  // namespace stepladder
