#include <algorithm>
#include <array>
#include <cmath>

#include "model/cpu/check.h"
#include "model/cpu/cpu_ops.h"

namespace stepladder {

void CpuOps::sum_of_squares(Tensor out, Tensor x) {
  expect(all_f32(out, x) && out.numel() == 1, "sum_of_squares", out, x);
  constexpr int64_t kSlices = 64;  // a fixed number, so that the thread count does not show in the sum
  const int64_t n = x.numel(), slice = std::max(kPiece, (n + kSlices - 1) / kSlices);
  const float* px = x.ptr<float>();
  std::array<double, kSlices> sums{};
  pieces(n, slice, 1, [&](int64_t first, int64_t last) {
    const float* from = px + first;
    sums[static_cast<size_t>(first / slice)] =
        sum(last - first, [=](int64_t i) { return static_cast<double>(from[i]) * from[i]; });
  });
  double total = 0.0;
  for (double s : sums) total += s;
  *out.ptr<float>() = static_cast<float>(total);
}

void CpuOps::clip_factor(Tensor factor, Tensor norm, Tensor parts, float max_norm) {
  expect(all_f32(factor, norm, parts) && factor.numel() == 1 && norm.numel() == 1, "clip_factor", factor,
         norm, parts);
  const float* p = parts.ptr<float>();
  const double length = std::sqrt(sum(parts.numel(), [=](int64_t i) { return p[i]; }));
  *norm.ptr<float>() = static_cast<float>(length);
  *factor.ptr<float>() = static_cast<float>(std::min(max_norm / (length + 1e-6), 1.0));  // NaN stays NaN
}

}  // namespace stepladder
