#include <cmath>

#include "model/cpu/check.h"
#include "model/cpu/cpu_ops.h"

namespace stepladder {

void CpuOps::add(Tensor out, Tensor a, Tensor b) {
  expect(all_f32(out, a, b) && same_shape(out, a, b), "add", out, a, b);
  const float *pa = a.ptr<float>(), *pb = b.ptr<float>();
  each_element(out.ptr<float>(), out.numel(), [=](int64_t i) { return pa[i] + pb[i]; });
}

void CpuOps::mul(Tensor out, Tensor a, Tensor b) {
  expect(all_f32(out, a, b) && same_shape(out, a, b), "mul", out, a, b);
  const float *pa = a.ptr<float>(), *pb = b.ptr<float>();
  each_element(out.ptr<float>(), out.numel(), [=](int64_t i) { return pa[i] * pb[i]; });
}

void CpuOps::affine(Tensor out, Tensor x, float scale, float shift) {
  expect(all_f32(out, x) && same_shape(out, x), "affine", out, x);
  const float* px = x.ptr<float>();
  each_element(out.ptr<float>(), out.numel(), [=](int64_t i) { return scale * px[i] + shift; });
}

void CpuOps::pow(Tensor out, Tensor x, int exponent) {
  expect(all_f32(out, x) && same_shape(out, x), "pow", out, x);
  check(exponent == 2 || exponent == 3, "pow: exponent ", exponent, " of ", x, ", only 2 and 3 are provided");
  const float* px = x.ptr<float>();
  if (exponent == 2)
    each_element(out.ptr<float>(), out.numel(), [=](int64_t i) { return px[i] * px[i]; });
  else
    each_element(out.ptr<float>(), out.numel(), [=](int64_t i) { return px[i] * px[i] * px[i]; });
}

void CpuOps::tanh(Tensor out, Tensor x) {
  expect(all_f32(out, x) && same_shape(out, x), "tanh", out, x);
  const float* px = x.ptr<float>();
  each_element(out.ptr<float>(), out.numel(), [=](int64_t i) { return std::tanh(px[i]); });
}

void CpuOps::sqrt(Tensor out, Tensor x) {
  expect(all_f32(out, x) && same_shape(out, x), "sqrt", out, x);
  const float* px = x.ptr<float>();
  each_element(out.ptr<float>(), out.numel(), [=](int64_t i) { return std::sqrt(px[i]); });
}

void CpuOps::lerp(Tensor x, Tensor y, float weight) {
  expect(all_f32(x, y) && same_shape(x, y), "lerp", x, y);
  const float *px = x.ptr<float>(), *py = y.ptr<float>();
  each_element(x.ptr<float>(), x.numel(), [=](int64_t i) { return px[i] + weight * (py[i] - px[i]); });
}

void CpuOps::addcmul(Tensor x, Tensor a, Tensor b, float value) {
  expect(all_f32(x, a, b) && same_shape(x, a, b), "addcmul", x, a, b);
  const float *px = x.ptr<float>(), *pa = a.ptr<float>(), *pb = b.ptr<float>();
  each_element(x.ptr<float>(), x.numel(), [=](int64_t i) { return px[i] + value * (pa[i] * pb[i]); });
}

void CpuOps::addcdiv(Tensor x, Tensor a, Tensor b, float value) {
  expect(all_f32(x, a, b) && same_shape(x, a, b), "addcdiv", x, a, b);
  const float *px = x.ptr<float>(), *pa = a.ptr<float>(), *pb = b.ptr<float>();
  each_element(x.ptr<float>(), x.numel(), [=](int64_t i) { return px[i] + value * (pa[i] / pb[i]); });
}

void CpuOps::scale_by(Tensor x, Tensor factor) {
  expect(all_f32(x, factor) && factor.numel() == 1, "scale_by", x, factor);
  const float* px = x.ptr<float>();
  const float f = *factor.ptr<float>();
  each_element(x.ptr<float>(), x.numel(), [=](int64_t i) { return px[i] * f; });
}

}  // namespace stepladder
