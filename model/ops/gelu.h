// GELU, tanh form (Hendrycks and Gimpel 2016): x (1 + tanh(a (x + b x^3))) / 2, a = sqrt(2/pi).
#pragma once

#include "model/ops/op.h"

namespace stepladder {

inline constexpr float kGeluA = 0.79788456F, kGeluB = 0.044715F;  // a and b

/// x += bias (C), out = gelu(x as stored)
struct BiasGeluForward {
  static constexpr const char* kName = "bias_gelu_forward";
  Tensor out, x, bias;
  void check() const { expect(*this, alike(out, x) && one_per_column(x, bias)); }
  Work work() const { return {OpKind::elementwise, {x, bias}, {x, out}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// out = gelu(x)
struct GeluForward {
  static constexpr const char* kName = "gelu_forward";
  Tensor out, x;
  void check() const { expect(*this, alike(out, x)); }
  Work work() const { return {OpKind::elementwise, {x}, {out}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// dx = dout * gelu'(x); dx may be dout.
struct GeluBackward {
  static constexpr const char* kName = "gelu_backward";
  Tensor dx, dout, x;
  void check() const { expect(*this, alike(dx, dout, x)); }
  Work work() const { return {OpKind::elementwise, {dout, x}, {dx}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

}  // namespace stepladder
