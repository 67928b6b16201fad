#include <cmath>

#include "model/cpu/check.h"
#include "model/cpu/cpu_ops.h"

namespace stepladder {

void CpuOps::add(Tensor out, Tensor a, Tensor b) {
  expect(one_float_type(out, a, b) && same_shape(out, a, b), "add", out, a, b);
  with_float_type(out.dtype, [&]<class T>(T) {
    const auto fa = floats<T>(a), fb = floats<T>(b);
    each_element(floats<T>(out), out.numel(), [=](int64_t i) { return fa[i] + fb[i]; });
  });
}

void CpuOps::mul(Tensor out, Tensor a, Tensor b) {
  expect(one_float_type(out, a, b) && same_shape(out, a, b), "mul", out, a, b);
  with_float_type(out.dtype, [&]<class T>(T) {
    const auto fa = floats<T>(a), fb = floats<T>(b);
    each_element(floats<T>(out), out.numel(), [=](int64_t i) { return fa[i] * fb[i]; });
  });
}

void CpuOps::affine(Tensor out, Tensor x, float scale, float shift) {
  expect(one_float_type(out, x) && same_shape(out, x), "affine", out, x);
  with_float_type(out.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x);
    each_element(floats<T>(out), out.numel(), [=](int64_t i) { return scale * fx[i] + shift; });
  });
}

void CpuOps::pow(Tensor out, Tensor x, int exponent) {
  expect(one_float_type(out, x) && same_shape(out, x), "pow", out, x);
  check(exponent == 2 || exponent == 3, "pow: exponent ", exponent, " of ", x, ", only 2 and 3 are provided");
  with_float_type(out.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x);
    if (exponent == 2)
      each_element(floats<T>(out), out.numel(), [=](int64_t i) { return fx[i] * fx[i]; });
    else
      each_element(floats<T>(out), out.numel(), [=](int64_t i) { return fx[i] * fx[i] * fx[i]; });
  });
}

void CpuOps::tanh(Tensor out, Tensor x) {
  expect(one_float_type(out, x) && same_shape(out, x), "tanh", out, x);
  with_float_type(out.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x);
    each_element(floats<T>(out), out.numel(), [=](int64_t i) { return std::tanh(fx[i]); });
  });
}

void CpuOps::sqrt(Tensor out, Tensor x) {
  expect(one_float_type(out, x) && same_shape(out, x), "sqrt", out, x);
  with_float_type(out.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x);
    each_element(floats<T>(out), out.numel(), [=](int64_t i) { return std::sqrt(fx[i]); });
  });
}

void CpuOps::lerp(Tensor x, Tensor y, float weight) {
  expect(one_float_type(x, y) && same_shape(x, y), "lerp", x, y);
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x), fy = floats<T>(y);
    each_element(fx, x.numel(), [=](int64_t i) { return fx[i] + weight * (fy[i] - fx[i]); });
  });
}

void CpuOps::addcmul(Tensor x, Tensor a, Tensor b, float value) {
  expect(one_float_type(x, a, b) && same_shape(x, a, b), "addcmul", x, a, b);
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x), fa = floats<T>(a), fb = floats<T>(b);
    each_element(fx, x.numel(), [=](int64_t i) { return fx[i] + value * (fa[i] * fb[i]); });
  });
}

void CpuOps::addcdiv(Tensor x, Tensor a, Tensor b, float value) {
  expect(one_float_type(x, a, b) && same_shape(x, a, b), "addcdiv", x, a, b);
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x), fa = floats<T>(a), fb = floats<T>(b);
    each_element(fx, x.numel(), [=](int64_t i) { return fx[i] + value * (fa[i] / fb[i]); });
  });
}

void CpuOps::scale_by(Tensor x, Tensor factor) {
  expect(one_float_type(x) && all_f32(factor) && factor.numel() == 1, "scale_by", x, factor);
  const float f = *factor.ptr<float>();
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x);
    each_element(fx, x.numel(), [=](int64_t i) { return fx[i] * f; });
  });
}

}  // namespace stepladder
