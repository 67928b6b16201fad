#include "model/cpu/cpu.h"

namespace stepladder {
namespace {

float relu(float x) {
  return x < 0.0F ? 0.0F : x;  // NaN stays NaN
}
constexpr auto relu_squared = [](float x) { return relu(x) * relu(x); };

}  // namespace

void BiasReluSquaredForward::run(Cpu& cpu) const {
  cpu.map_columns(x, bias, {x}, [](float bias, float x) { return x + bias; });
  cpu.map(out, {x}, relu_squared);
}

void ReluSquaredForward::run(Cpu& cpu) const {
  cpu.map(out, {x}, relu_squared);
}

void ReluSquaredBackward::run(Cpu& cpu) const {
  cpu.map(dx, {dout, x}, [](float dout, float x) { return dout * 2.0F * relu(x); });
}

}  // namespace stepladder
