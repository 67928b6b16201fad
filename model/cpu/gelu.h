// GELU in its tanh form (Hendrycks and Gimpel 2016): gelu(x) = x (1 + tanh(u)) / 2 = x sigmoid(2u) with
// u = sqrt(2/pi) (x + 0.044715 x^3). The sigmoid loses no digits where tanh is close to -1.
#pragma once

#include "model/cpu/exp.h"
#include "model/ops/gelu.h"

namespace stepladder {

/// The factor of x in gelu(x): sigmoid(2u).
inline float gelu_gate(float x) {
  return 1.0F / (1.0F + exp_float(-2.0F * kGeluA * (x + kGeluB * x * x * x)));
}

inline float gelu(float x) {
  return x * gelu_gate(x);
}

/// gelu'(x) = s + 2 x s (1 - s) u', s = sigmoid(2u).
inline float gelu_slope(float x) {
  const float s = gelu_gate(x);
  return s + 2.0F * x * s * (1.0F - s) * kGeluA * (1.0F + 3.0F * kGeluB * x * x);
}

}  // namespace stepladder
