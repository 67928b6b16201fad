#include <cmath>

#include "model/cpu/cpu.h"

namespace stepladder {

void AdamWStep::run(Cpu& cpu) const {
  double t = schedule.ptr<float>()[1];
  if (present(loss_scaler)) {
    const float* scaler = loss_scaler.ptr<float>();
    if (scaler[3] != 0.0F) return;  // overflowed
    t -= scaler[2];                 // skipped steps
  }
  const float lr = schedule.ptr<float>()[0], factor = *clip.ptr<float>();
  const float beta1 = hyper.beta1, beta2 = hyper.beta2, eps = hyper.eps;
  // Bias correction: factors of m and v, which start from 0 and so are too small by a factor of 1 - beta^t.
  const auto bias_correction1 = static_cast<float>(1.0 / (1.0 - std::pow(beta1, t)));
  const auto bias_correction2 = static_cast<float>(1.0 / (1.0 - std::pow(beta2, t)));
  for (const AdamWTensor& x : tensors) {
    const float decay = x.decay ? hyper.weight_decay : 0.0F;
    float *w = x.w.ptr<float>(), *m = x.m.ptr<float>(), *v = x.v.ptr<float>();
    with_float_type(x.g.dtype, [&]<class T>(T) {
      const auto grad = floats<T>(x.g);
      cpu.pieces(x.w.numel(), Cpu::kPiece, 1, [=](int64_t first, int64_t last) {
        STEPLADDER_SIMD
        for (int64_t i = first; i < last; ++i) {
          const float g = factor * grad[i];
          m[i] = beta1 * m[i] + (1.0F - beta1) * g;
          v[i] = beta2 * v[i] + (1.0F - beta2) * (g * g);
          w[i] -= lr * (m[i] * bias_correction1 / (std::sqrt(v[i] * bias_correction2) + eps) + decay * w[i]);
        }
      });
    });
    if (present(x.param_copy)) Copy{x.param_copy, x.w}.run(cpu);
  }
}

}  // namespace stepladder
