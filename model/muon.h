// Newton-Schulz iterations, which make Muon's update orthogonal.
#pragma once

#include "model/ops.h"

namespace stepladder {

/// x (n,R,C), and scratch: y (n,R,C), gram and poly (n,S,S) with S = min(R,C), all of one type.
struct NewtonSchulz {
  Tensor x, y, gram, poly;
};

/// Takes the singular values of each matrix of x, none above 1, to about 1: five times
/// x = a x + (b A + c A^2) x with A = x x^T, or for R > C, which saves the transposes, x = a x + x (b A + c
/// A^2) with A = x^T x; a, b, c = 3.4445, -4.7750, 2.0315 (Jordan et al. 2024). Returns where the result is:
/// in y, and x is overwritten.
Tensor newton_schulz(Ops& ops, const NewtonSchulz& of);

}  // namespace stepladder
