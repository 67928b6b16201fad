// Elementwise ops: operands of one shape unless said otherwise, out may be an operand.
#pragma once

#include "model/ops/op.h"

namespace stepladder {

/// out = a + b
struct Add {
  static constexpr const char* kName = "add";
  Tensor out, a, b;
  void check() const { expect(*this, alike(out, a, b)); }
  Work work() const { return {OpKind::elementwise, {a, b}, {out}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// out (N,C) = x + y + bias (C): a linear layer's bias and the residual that its result is added to.
struct AddBiasResidual {
  static constexpr const char* kName = "add_bias_residual";
  Tensor out, x, y, bias;
  void check() const { expect(*this, alike(out, x, y) && one_per_column(x, bias)); }
  Work work() const { return {OpKind::elementwise, {x, y, bias}, {out}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// out = a * b
struct Mul {
  static constexpr const char* kName = "mul";
  Tensor out, a, b;
  void check() const { expect(*this, alike(out, a, b)); }
  Work work() const { return {OpKind::elementwise, {a, b}, {out}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// out = scale * x + shift
struct Affine {
  static constexpr const char* kName = "affine";
  Tensor out, x;
  float scale, shift;
  void check() const { expect(*this, alike(out, x)); }
  Work work() const { return {OpKind::elementwise, {x}, {out}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// out = x^exponent, exponent 2 or 3
struct Pow {
  static constexpr const char* kName = "pow";
  Tensor out, x;
  int exponent;
  void check() const {
    expect(*this, alike(out, x));
    stepladder::check(exponent == 2 || exponent == 3, kName, ": exponent ", exponent, ", must be 2 or 3");
  }
  Work work() const { return {OpKind::elementwise, {x}, {out}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// out = tanh(x)
struct Tanh {
  static constexpr const char* kName = "tanh";
  Tensor out, x;
  void check() const { expect(*this, alike(out, x)); }
  Work work() const { return {OpKind::elementwise, {x}, {out}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// out = sqrt(x)
struct Sqrt {
  static constexpr const char* kName = "sqrt";
  Tensor out, x;
  void check() const { expect(*this, alike(out, x)); }
  Work work() const { return {OpKind::elementwise, {x}, {out}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// x += weight * (y - x)
struct Lerp {
  static constexpr const char* kName = "lerp";
  Tensor x, y;
  float weight;
  void check() const { expect(*this, alike(x, y)); }
  Work work() const { return {OpKind::elementwise, {x, y}, {x}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// x += value * a * b
struct AddCMul {
  static constexpr const char* kName = "addcmul";
  Tensor x, a, b;
  float value;
  void check() const { expect(*this, alike(x, a, b)); }
  Work work() const { return {OpKind::elementwise, {x, a, b}, {x}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// x += value * a / b
struct AddCDiv {
  static constexpr const char* kName = "addcdiv";
  Tensor x, a, b;
  float value;
  void check() const { expect(*this, alike(x, a, b)); }
  Work work() const { return {OpKind::elementwise, {x, a, b}, {x}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// x *= factor, a tensor (1)
struct ScaleBy {
  static constexpr const char* kName = "scale_by";
  Tensor x, factor;
  void check() const { expect(*this, one_float_type(x) && all_f32(factor) && factor.numel() == 1); }
  Work work() const { return {OpKind::elementwise, {x, factor}, {x}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

}  // namespace stepladder
