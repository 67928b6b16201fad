#include "model/cpu/gelu.h"

#include "model/cpu/cpu.h"

namespace stepladder {

void BiasGeluForward::run(Cpu& cpu) const {
  const int64_t N = rows_of(x), C = x.cols();
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fout = floats<T>(out), fx = floats<T>(x), fbias = floats<T>(bias);
    cpu.each_row(N, C, [=](int64_t n) {
      STEPLADDER_SIMD
      for (int64_t c = 0; c < C; ++c) {
        fx.add(n * C + c, fbias[c]);
        fout.set(n * C + c, gelu(fx[n * C + c]));
      }
    });
  });
}

void GeluForward::run(Cpu& cpu) const {
  cpu.map(out, {x}, [](float x) { return gelu(x); });
}

void GeluBackward::run(Cpu& cpu) const {
  cpu.map(dx, {dout, x}, [](float dout, float x) { return dout * gelu_slope(x); });
}

}  // namespace stepladder
