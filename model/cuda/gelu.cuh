// GELU in its tanh form: gelu(x) = x/2 (1 + tanh(u)) = x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
// Nothing cancels in the second form: an exponential and a reciprocal of the hardware, each within 2^-22, are
// enough for f32 too.
#pragma once

#include "model/cuda/wide.cuh"
#include "model/ops/gelu.h"

namespace stepladder {

constexpr float k2U = 2.0F * kGeluA, k2U3 = k2U * kGeluB;  // 2u = (k2U + k2U3 x^2) x

/// sigmoid(2u)
__device__ inline float sigmoid_2u(float x, float x_squared) {
  return __fdividef(1.0F, 1.0F + exp2_fast(x * fmaf(-kLog2E * k2U3, x_squared, -kLog2E * k2U)));
}

__device__ inline float gelu(float x) {
  return x * sigmoid_2u(x, x * x);
}

/// gelu(x), and its slope gelu' = s + x s (1 - s) (2u)', s = sigmoid(2u).
__device__ inline float gelu_and_slope(float x, float& slope) {
  const float x_squared = x * x, s = sigmoid_2u(x, x_squared), xs = x * s;
  slope = fmaf(fmaf(-xs, s, xs), fmaf(3.0F * k2U3, x_squared, k2U), s);
  return xs;
}

__device__ inline float gelu_slope(float x) {
  float slope;
  gelu_and_slope(x, slope);
  return slope;
}

/// Functors for maps over elements: gelu(x), and dout * gelu'(x).
struct Gelu {
  __device__ float operator()(const float (&x)[1]) const { return gelu(x[0]); }
};
struct GeluBackwardFunctor {
  __device__ float operator()(const float (&dout_x)[2]) const { return dout_x[0] * gelu_slope(dout_x[1]); }
};

}  // namespace stepladder
