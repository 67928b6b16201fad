// LayerNorm (Ba et al. 2016) of x (N,C) in one kernel, and its gradients; mean and rstd (N) are f32.
#pragma once

#include "model/ops/op.h"

namespace stepladder {

inline constexpr float kLayerNormEps = 1e-5F;

/// out (N,C) = (x - mean) * rstd * w + b, rstd = 1 / sqrt(var + kLayerNormEps)
struct LayerNormForward {
  static constexpr const char* kName = "layernorm_forward";
  Tensor out, mean, rstd;
  Tensor x, w, b;
  void check() const {
    expect(*this,
           alike(out, x) && all_f32(mean, rstd) && one_per_column(x, w, b) && one_per_row(x, mean, rstd));
  }
  Work work() const { return {OpKind::layernorm, {x, w, b}, {out, mean, rstd}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// Results of LayerNormForward: (N,C), (N), (N).
struct Normalized {
  Tensor out, mean, rstd;
};
/// Input of LayerNormForward and the input's statistics, for LayerNormBackward: (N,C), (N), (N).
struct NormInput {
  Tensor x, mean, rstd;
};
/// Weight and bias of a LayerNorm, or their gradients: (C).
struct NormParams {
  Tensor w, b;
};

/// dx += rstd * (dxhat - mean_c(dxhat) - xhat * mean_c(dxhat * xhat)), dxhat = dout * w;
/// dparams: dw += sum_n dout * xhat, db += sum_n dout; dbias (C; empty: none) += sum_n of the new dx as
/// stored: the bias gradient of the projection whose output was added to x. dw, db and dbias are of x's type,
/// or f32.
struct LayerNormBackward {
  static constexpr const char* kName = "layernorm_backward";
  Tensor dx;
  NormParams dparams;
  Tensor dbias, dout;
  NormInput input;
  Tensor w;
  void check() const {
    const auto& [x, mean, rstd] = input;
    const auto& [dw, db] = dparams;
    expect(*this, alike(dx, dout, x) && all_f32(mean, rstd) && one_per_column(x, w) &&
                      sums_per_column(x, dw, db, dbias) && one_per_row(x, mean, rstd));
  }
  Work work() const {
    const auto& [x, mean, rstd] = input;
    const auto& [dw, db] = dparams;
    return {OpKind::layernorm, {dx, dw, db, dbias, dout, x, mean, rstd, w}, {dx, dw, db, dbias}};
  }
  void run(Cpu&) const, run(Cuda&) const;
};

}  // namespace stepladder
