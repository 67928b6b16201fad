#include <algorithm>
#include <array>
#include <cmath>

#include "model/cpu/cpu.h"

namespace stepladder {
namespace {

/// The clipping factor of a gradient of norm `length`; NaN stays NaN.
double clip(double length, float max_norm) {
  return std::min(max_norm / (length + 1e-6), 1.0);
}

/// Dynamic loss scaling (Micikevicius et al. 2018): halves the scale at an overflow, and doubles it after
/// kGoodSteps good steps.
void update_loss_scaler(float* scaler, bool finite) {
  float &scale = scaler[0], &good = scaler[1], &skipped = scaler[2], &overflow = scaler[3];
  overflow = finite ? 0.0F : 1.0F;
  if (!finite) {
    scale *= 0.5F;
    good = 0.0F;
    skipped += 1.0F;
  } else if (++good >= kGoodSteps) {
    scale = std::min(2.0F * scale, kLargestScale);
    good = 0.0F;
  }
}

}  // namespace

double Cpu::squares(Tensor x) const {
  constexpr int64_t kSlices = 64;  // a fixed number, so that the sum does not depend on the thread count
  const int64_t n = x.numel(), slice = std::max(kPiece, (n + kSlices - 1) / kSlices);
  std::array<double, kSlices> sums{};
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x);
    pieces(n, slice, 1, [&](int64_t first, int64_t last) {
      const auto from = fx + first;
      sums[static_cast<size_t>(first / slice)] =
          sum(last - first, [=](int64_t i) { return static_cast<double>(from[i]) * from[i]; });
    });
  });
  double total = 0.0;
  for (double s : sums) total += s;
  return total;
}

void SumOfSquares::run(Cpu& cpu) const {
  *out.ptr<float>() = static_cast<float>(cpu.squares(x));
}

void ClipFactor::run(Cpu&) const {
  const float* p = parts.ptr<float>();
  const double length = std::sqrt(sum(parts.numel(), [=](int64_t i) { return p[i]; }));
  *norm.ptr<float>() = static_cast<float>(length);
  *factor.ptr<float>() = static_cast<float>(clip(length, max_norm));
}

void ClipGradNorm::run(Cpu& cpu) const {
  double total = 0.0;
  for (const Tensor& g : grads) total += cpu.squares(g);
  const double scale = present(loss_scaler) ? *loss_scaler.ptr<float>() : 1.0F;
  const double length = std::sqrt(total) / scale;
  *norm.ptr<float>() = static_cast<float>(length);
  *factor.ptr<float>() = static_cast<float>(clip(length, max_norm) / scale);
  if (present(loss_scaler)) update_loss_scaler(loss_scaler.ptr<float>(), std::isfinite(*norm.ptr<float>()));
}

}  // namespace stepladder
