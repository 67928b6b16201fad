#include <cmath>

#include "model/cpu/cpu.h"

namespace stepladder {

void Add::run(Cpu& cpu) const {
  with_float_type(out.dtype, [&]<class T>(T) {
    const auto fa = floats<T>(a), fb = floats<T>(b);
    cpu.each_element(floats<T>(out), out.numel(), [=](int64_t i) { return fa[i] + fb[i]; });
  });
}

void AddBiasResidual::run(Cpu& cpu) const {
  const int64_t N = rows_of(x), C = x.cols();
  with_float_type(out.dtype, [&]<class T>(T) {
    const auto fout = floats<T>(out), fx = floats<T>(x), fy = floats<T>(y), fbias = floats<T>(bias);
    cpu.each_row(N, C, [=](int64_t n) {
      STEPLADDER_SIMD
      for (int64_t c = 0; c < C; ++c) fout.set(n * C + c, fx[n * C + c] + fy[n * C + c] + fbias[c]);
    });
  });
}

void Mul::run(Cpu& cpu) const {
  with_float_type(out.dtype, [&]<class T>(T) {
    const auto fa = floats<T>(a), fb = floats<T>(b);
    cpu.each_element(floats<T>(out), out.numel(), [=](int64_t i) { return fa[i] * fb[i]; });
  });
}

void Affine::run(Cpu& cpu) const {
  with_float_type(out.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x);
    cpu.each_element(floats<T>(out), out.numel(),
                     [=, scale = scale, shift = shift](int64_t i) { return scale * fx[i] + shift; });
  });
}

void Pow::run(Cpu& cpu) const {
  with_float_type(out.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x);
    if (exponent == 2)
      cpu.each_element(floats<T>(out), out.numel(), [=](int64_t i) { return fx[i] * fx[i]; });
    else
      cpu.each_element(floats<T>(out), out.numel(), [=](int64_t i) { return fx[i] * fx[i] * fx[i]; });
  });
}

void Tanh::run(Cpu& cpu) const {
  with_float_type(out.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x);
    cpu.each_element(floats<T>(out), out.numel(), [=](int64_t i) { return std::tanh(fx[i]); });
  });
}

void Sqrt::run(Cpu& cpu) const {
  with_float_type(out.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x);
    cpu.each_element(floats<T>(out), out.numel(), [=](int64_t i) { return std::sqrt(fx[i]); });
  });
}

void Lerp::run(Cpu& cpu) const {
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x), fy = floats<T>(y);
    cpu.each_element(fx, x.numel(),
                     [=, weight = weight](int64_t i) { return fx[i] + weight * (fy[i] - fx[i]); });
  });
}

void AddCMul::run(Cpu& cpu) const {
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x), fa = floats<T>(a), fb = floats<T>(b);
    cpu.each_element(fx, x.numel(),
                     [=, value = value](int64_t i) { return fx[i] + value * (fa[i] * fb[i]); });
  });
}

void AddCDiv::run(Cpu& cpu) const {
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x), fa = floats<T>(a), fb = floats<T>(b);
    cpu.each_element(fx, x.numel(),
                     [=, value = value](int64_t i) { return fx[i] + value * (fa[i] / fb[i]); });
  });
}

void ScaleBy::run(Cpu& cpu) const {
  const float f = *factor.ptr<float>();
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x);
    cpu.each_element(fx, x.numel(), [=](int64_t i) { return fx[i] * f; });
  });
}

}  // namespace stepladder
