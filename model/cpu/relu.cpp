#include "model/cpu/relu.h"

#include "model/cpu/cpu.h"

namespace stepladder {

void ReluSquaredForward::run(Cpu& cpu) const {
  cpu.map(out, {x}, [](float x) { return relu_squared(x); });
}

void ReluSquaredBackward::run(Cpu& cpu) const {
  cpu.map(dx, {dout, x}, [](float dout, float x) { return dout * relu_squared_slope(x); });
}

}  // namespace stepladder
