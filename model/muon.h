// A trainer's tensors under Muon, and the Newton-Schulz iterations, which make Muon's update orthogonal.
#pragma once

#include "model/ops.h"
#include "model/parameters.h"

namespace stepladder {

/// Operands of newton_schulz(): x (n,R,C), and scratch: y (n,R,C), gram and poly (n,S,S) with S = min(R,C),
/// all of one type.
struct NewtonSchulz {
  Tensor x, y, gram, poly;

  /// Views of the leading elements of each tensor, for `matrices` (n,R,C) that are no larger.
  NewtonSchulz like(const Shape& matrices) const;
};

/// Brings the singular values of each matrix of x, which are at most 1, to about 1. Does five times x = a x +
/// b A x + c A^2 x with A = x x^T; for R > C, to save the transposes, x = a x + b x A + c x A^2 with A = x^T
/// x. a, b, c = 3.4445, -4.7750, 2.0315 (Jordan et al. 2024). Returns the result, which is in y; x is
/// overwritten.
Tensor newton_schulz(Ops& ops, const NewtonSchulz& of);

/// Matrices (n,R,C) of a Muon step: `w` and momentum `m` are f32, as MuonMomentum and MuonUpdate have them.
struct MuonTensor {
  Tensor w, g, m, param_copy;
};

/// Whether `p` is a stack (L,R,C) of the blocks' matrices, which Muon updates.
inline bool is_block_matrix(const Parameter& p) {
  return p.stacked() && p.tensor.shape.rank() == 3;
}

}  // namespace stepladder
