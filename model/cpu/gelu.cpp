#include "model/cpu/gelu.h"

#include "model/cpu/check.h"
#include "model/cpu/cpu_ops.h"

namespace stepladder {

void CpuOps::bias_gelu_forward(Tensor out, Tensor x, Tensor bias) {
  expect(one_float_type(out, x, bias) && same_shape(out, x) && x.shape.rank() > 0 &&
             bias.shape == Shape{x.cols()},
         "bias_gelu_forward", out, x, bias);
  const int64_t N = rows_of(x), C = x.cols();
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fout = floats<T>(out), fx = floats<T>(x), fbias = floats<T>(bias);
    each_row(N, C, [=](int64_t n) {
      STEPLADDER_SIMD
      for (int64_t c = 0; c < C; ++c) {
        fx.add(n * C + c, fbias[c]);
        fout.set(n * C + c, gelu(fx[n * C + c]));
      }
    });
  });
}

void CpuOps::gelu_forward(Tensor out, Tensor x) {
  expect(one_float_type(out, x) && same_shape(out, x), "gelu_forward", out, x);
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x);
    each_element(floats<T>(out), out.numel(), [=](int64_t i) { return gelu(fx[i]); });
  });
}

void CpuOps::gelu_backward(Tensor dx, Tensor dout, Tensor x) {
  expect(one_float_type(dx, dout, x) && same_shape(dx, dout, x), "gelu_backward", dx, dout, x);
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fdout = floats<T>(dout), fx = floats<T>(x);
    each_element(floats<T>(dx), dx.numel(), [=](int64_t i) { return fdout[i] * gelu_slope(fx[i]); });
  });
}

}  // namespace stepladder
