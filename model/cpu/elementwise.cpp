#include <cmath>

#include "model/cpu/cpu.h"

namespace stepladder {

void Add::run(Cpu& cpu) const {
  cpu.map(out, {a, b}, [](float a, float b) { return a + b; });
}

void AddBiasResidual::run(Cpu& cpu) const {
  cpu.map_columns(out, bias, {x, y}, [](float bias, float x, float y) { return x + y + bias; });
}

void Mul::run(Cpu& cpu) const {
  cpu.map(out, {a, b}, [](float a, float b) { return a * b; });
}

void Affine::run(Cpu& cpu) const {
  cpu.map(out, {x}, [scale = scale, shift = shift](float x) { return scale * x + shift; });
}

void Pow::run(Cpu& cpu) const {
  if (exponent == 2)
    cpu.map(out, {x}, [](float x) { return x * x; });
  else
    cpu.map(out, {x}, [](float x) { return x * x * x; });
}

void Tanh::run(Cpu& cpu) const {
  cpu.map(out, {x}, [](float x) { return std::tanh(x); });
}

void Sqrt::run(Cpu& cpu) const {
  cpu.map(out, {x}, [](float x) { return std::sqrt(x); });
}

void Lerp::run(Cpu& cpu) const {
  cpu.map(x, {x, y}, [weight = weight](float x, float y) { return x + weight * (y - x); });
}

void AddCMul::run(Cpu& cpu) const {
  cpu.map(x, {x, a, b}, [value = value](float x, float a, float b) { return x + value * (a * b); });
}

void AddCDiv::run(Cpu& cpu) const {
  cpu.map(x, {x, a, b}, [value = value](float x, float a, float b) { return x + value * (a / b); });
}

void ScaleBy::run(Cpu& cpu) const {
  cpu.map(x, {x}, [factor = *factor.ptr<float>()](float x) { return x * factor; });
}

}  // namespace stepladder
