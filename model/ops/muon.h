// The Muon optimizer (Jordan et al. 2024, github.com/KellerJordan/Muon), except its matrix products, which
// are in model/muon.h. Tensors are (...,R,C): matrices of R rows and C columns.
#pragma once

#include <algorithm>
#include <cmath>

#include "model/ops/op.h"

namespace stepladder {

inline constexpr float kMuonEps = 1e-7F;

/// m = beta * m + (1 - beta) * g; u = beta * m + (1 - beta) * g with the new m (Nesterov); for each matrix,
/// x = u / (|u| + kMuonEps), |u| its Frobenius norm. g is first multiplied by clip (1) f32. m is f32, g of
/// x's type or f32. With a loss_scaler (see ClipGradNorm) overflowed steps change nothing.
struct MuonMomentum {
  static constexpr const char* kName = "muon_momentum";
  Tensor x, m, g, clip;
  float beta;
  Tensor loss_scaler = {};
  void check() const {
    expect(*this, all_f32(m, clip) && sums_values_of(x, g) && same_shape(x, m, g) && x.shape.rank() >= 2 &&
                      clip.numel() == 1 && loss_scaler_fits(loss_scaler));
  }
  Work work() const { return {OpKind::muon, {g, m, clip, loss_scaler}, {m, x}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// w -= lr * (sqrt(max(1, R / C)) * x + weight_decay * w), as in the authors' code; w and lr (1) are f32.
/// param_copy (empty: none) = w in x's type. With a loss_scaler overflowed steps change nothing.
struct MuonUpdate {
  static constexpr const char* kName = "muon_update";
  Tensor w, param_copy, x, lr;
  float weight_decay;
  Tensor loss_scaler = {};
  void check() const {
    expect(*this, all_f32(w, lr) && one_float_type(x) && same_shape(w, x) && x.shape.rank() >= 2 &&
                      (!present(param_copy) || alike(x, param_copy)) && lr.numel() == 1 &&
                      loss_scaler_fits(loss_scaler));
  }
  Work work() const { return {OpKind::muon, {w, x, lr, loss_scaler}, {w, param_copy}}; }
  void run(Cpu&) const, run(Cuda&) const;

  /// The factor of x: sqrt(max(1, R / C)).
  float scale() const {
    const auto rows = static_cast<float>(x.shape[-2]), cols = static_cast<float>(x.cols());
    return std::sqrt(std::max(1.0F, rows / cols));
  }
};

}  // namespace stepladder
