#include <algorithm>
#include <array>
#include <cmath>

#include "model/cpu/check.h"
#include "model/cpu/cpu_ops.h"

namespace stepladder {
namespace {

/// What a gradient of norm `length` is multiplied with; NaN stays NaN.
double clip(double length, float max_norm) {
  return std::min(max_norm / (length + 1e-6), 1.0);
}

/// Dynamic loss scaling (Micikevicius et al. 2018): back off at an overflow, try more after a run of good
/// steps.
void update_loss_scaler(float* scaler, bool finite) {
  constexpr float kGoodSteps = 2000.0F, kLargest = 0x1p24F;
  float &scale = scaler[0], &good = scaler[1], &skipped = scaler[2], &overflow = scaler[3];
  overflow = finite ? 0.0F : 1.0F;
  if (!finite) {
    scale *= 0.5F;
    good = 0.0F;
    skipped += 1.0F;
  } else if (++good >= kGoodSteps) {
    scale = std::min(2.0F * scale, kLargest);
    good = 0.0F;
  }
}

}  // namespace

double CpuOps::squares(Tensor x) const {
  constexpr int64_t kSlices = 64;  // a fixed number, so that the thread count does not show in the sum
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

void CpuOps::sum_of_squares(Tensor out, Tensor x) {
  expect(one_float_type(x) && all_f32(out) && out.numel() == 1, "sum_of_squares", out, x);
  *out.ptr<float>() = static_cast<float>(squares(x));
}

void CpuOps::clip_factor(Tensor factor, Tensor norm, Tensor parts, float max_norm) {
  expect(all_f32(factor, norm, parts) && factor.numel() == 1 && norm.numel() == 1, "clip_factor", factor,
         norm, parts);
  const float* p = parts.ptr<float>();
  const double length = std::sqrt(sum(parts.numel(), [=](int64_t i) { return p[i]; }));
  *norm.ptr<float>() = static_cast<float>(length);
  *factor.ptr<float>() = static_cast<float>(clip(length, max_norm));
}

void CpuOps::clip_grad_norm(Tensor factor, Tensor norm, std::span<const Tensor> grads, float max_norm,
                            Tensor loss_scaler) {
  expect(all_f32(factor, norm) && factor.numel() == 1 && norm.numel() == 1 && loss_scaler_fits(loss_scaler),
         "clip_grad_norm", factor, norm, loss_scaler);
  for (const Tensor& g : grads) expect(one_float_type(g), "clip_grad_norm", g);
  double total = 0.0;
  for (const Tensor& g : grads) total += squares(g);
  const double scale = present(loss_scaler) ? *loss_scaler.ptr<float>() : 1.0F;
  const double length = std::sqrt(total) / scale;
  *norm.ptr<float>() = static_cast<float>(length);
  *factor.ptr<float>() = static_cast<float>(clip(length, max_norm) / scale);
  if (present(loss_scaler)) update_loss_scaler(loss_scaler.ptr<float>(), std::isfinite(*norm.ptr<float>()));
}

}  // namespace stepladder
