#include "model/cpu/gelu.h"

#include "model/cpu/cpu.h"

namespace stepladder {

void BiasGeluForward::run(Cpu& cpu) const {
  cpu.map_columns(x, bias, {x}, [](float bias, float x) { return x + bias; });
  GeluForward{out, x}.run(cpu);
}

void GeluForward::run(Cpu& cpu) const {
  cpu.map(out, {x}, [](float x) { return gelu(x); });
}

void GeluBackward::run(Cpu& cpu) const {
  cpu.map(dx, {dout, x}, [](float dout, float x) { return dout * gelu_slope(x); });
}

}  // namespace stepladder
