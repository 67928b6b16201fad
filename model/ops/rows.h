// Ops on the rows and columns of x (N,C); statistics of a row are f32.
#pragma once

#include "model/ops/op.h"

namespace stepladder {

/// mean (N) = sum_c x / C
struct RowMean {
  static constexpr const char* kName = "row_mean";
  Tensor mean, x;
  void check() const { expect(*this, one_float_type(x) && all_f32(mean) && one_per_row(x, mean)); }
  Work work() const { return {OpKind::layernorm, {x}, {mean}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// rstd (N) = 1 / sqrt(var + eps)
struct RowRstd {
  static constexpr const char* kName = "row_rstd";
  Tensor rstd, x, mean;
  float eps;
  void check() const {
    expect(*this, one_float_type(x) && all_f32(rstd, mean) && one_per_row(x, rstd, mean));
  }
  Work work() const { return {OpKind::layernorm, {x, mean}, {rstd}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// out (N,C) = (x - mean) * rstd
struct Normalize {
  static constexpr const char* kName = "normalize";
  Tensor out, x, mean, rstd;
  void check() const { expect(*this, alike(out, x) && all_f32(mean, rstd) && one_per_row(x, mean, rstd)); }
  Work work() const { return {OpKind::layernorm, {x, mean, rstd}, {out}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// dx (N,C) += rstd * (dxhat - mean_c(dxhat) - xhat * mean_c(dxhat * xhat)), given both means as (N).
struct NormalizeBackward {
  static constexpr const char* kName = "normalize_backward";
  Tensor dx, dxhat, xhat, mean_dxhat, mean_dxhat_xhat, rstd;
  void check() const {
    expect(*this, alike(dx, dxhat, xhat) && all_f32(mean_dxhat, mean_dxhat_xhat, rstd) &&
                      one_per_row(dx, mean_dxhat, mean_dxhat_xhat, rstd));
  }
  Work work() const {
    return {OpKind::layernorm, {dx, dxhat, xhat, mean_dxhat, mean_dxhat_xhat, rstd}, {dx}};
  }
  void run(Cpu&) const, run(Cuda&) const;
};

/// out = x * w, w (C); out may be x
struct MulColumns {
  static constexpr const char* kName = "mul_columns";
  Tensor out, x, w;
  void check() const { expect(*this, alike(out, x) && one_per_column(x, w)); }
  Work work() const { return {OpKind::elementwise, {x, w}, {out}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// out = x + b, b (C); out may be x
struct AddColumns {
  static constexpr const char* kName = "add_columns";
  Tensor out, x, b;
  void check() const { expect(*this, alike(out, x) && one_per_column(x, b)); }
  Work work() const { return {OpKind::elementwise, {x, b}, {out}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// out (C) += sum_n x; out is of x's type, or f32
struct SumRows {
  static constexpr const char* kName = "sum_rows";
  Tensor out, x;
  void check() const { expect(*this, sums_per_column(x, out)); }
  Work work() const { return {OpKind::reduction, {out, x}, {out}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

}  // namespace stepladder
