// Squared ReLU (So et al. 2021, "Primer"): max(x, 0)^2.
#pragma once

#include "model/ops/op.h"

namespace stepladder {

/// out = max(x, 0)^2
struct ReluSquaredForward {
  static constexpr const char* kName = "relu_squared_forward";
  Tensor out, x;
  void check() const { expect(*this, alike(out, x)); }
  Work work() const { return {OpKind::elementwise, {x}, {out}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// dx = dout * 2 max(x, 0); dx may be dout.
struct ReluSquaredBackward {
  static constexpr const char* kName = "relu_squared_backward";
  Tensor dx, dout, x;
  void check() const { expect(*this, alike(dx, dout, x)); }
  Work work() const { return {OpKind::elementwise, {dout, x}, {dx}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

}  // namespace stepladder
