#include "model/cpu/cpu.h"

namespace stepladder {
namespace {

float relu(float x) {
  return x < 0.0F ? 0.0F : x;  // NaN stays NaN
}

}  // namespace

void ReluSquaredForward::run(Cpu& cpu) const {
  cpu.map(out, {x}, [](float x) { return relu(x) * relu(x); });
}

void ReluSquaredBackward::run(Cpu& cpu) const {
  cpu.map(dx, {dout, x}, [](float dout, float x) { return dout * (2.0F * relu(x)); });
}

}  // namespace stepladder
