// QK-norm and rotary embedding of queries and keys, before attention. Queries and keys are the first 2 NH
// heads of a row of qkv (B,T,3C), each of HS = C / NH channels, HS even; the values behind them stay as they
// are.
//
// QK-norm: each head is divided by its root mean square, without a gain, as in the nanoGPT speedrun
// (github.com/KellerJordan/modded-nanogpt). Dehghani et al. 2023 normalise q and k by a LayerNorm.
// Rotary embedding (Su et al. 2021), of halves as GPT-NeoX and LLaMA have it: channels i and i + HS/2 of a
// head at position t are rotated by the angle t * base^(-2i/HS).
#pragma once

#include "model/ops/op.h"

namespace stepladder {

inline constexpr float kRmsNormEps = 0x1p-23F;  // PyTorch's default for rms_norm in f32

/// table (T,HS/2,2) f32 = {cos, sin} of t * base^(-2i/HS), rounded once
struct RotaryTable {
  static constexpr const char* kName = "rotary_table";
  Tensor table;
  float base = 10000.0F;
  void check() const {
    expect(*this, all_f32(table) && table.shape.rank() == 3 && table.cols() == 2 && base > 0.0F);
  }
  Work work() const { return {OpKind::embedding, {}, {table}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// The number of heads NH in qkv (B,T,3C), from `rstd` (B,T,2NH) and `table` (at least T,HS/2,2); one of them
/// may be left out. 0 where their shapes don't fit.
inline int64_t qk_heads(const Tensor& qkv, const Tensor& rstd, const Tensor& table) {
  if (qkv.shape.rank() != 3 || qkv.cols() % 3 != 0 || !all_f32(rstd, table)) return 0;
  const int64_t C = qkv.cols() / 3;
  if (present(table) && (table.shape.rank() != 3 || table.shape[0] < qkv.shape[1] || table.shape[1] == 0 ||
                         table.cols() != 2 || C % (2 * table.shape[1]) != 0))
    return 0;
  if (present(rstd) && (rstd.shape.rank() != 3 || rstd.cols() == 0 || rstd.cols() % 2 != 0 ||
                        rstd.shape != Shape{qkv.shape[0], qkv.shape[1], rstd.cols()}))
    return 0;
  const int64_t of_table = present(table) ? C / (2 * table.shape[1]) : 0;
  const int64_t NH = present(rstd) ? rstd.cols() / 2 : of_table;
  const bool fits = NH > 0 && C % NH == 0 && C / NH % 2 == 0 && (of_table == 0 || of_table == NH);
  return fits ? NH : 0;
}
/// The part of qkv that holds q and k.
inline Operand queries_and_keys(const Tensor& qkv) {
  return first_columns(qkv, qkv.cols() / 3 * 2);
}

/// In place, for each head x of q and k, with a result that is rounded once. With rstd (B,T,2NH) f32: rstd =
/// 1 / sqrt(mean(x^2) + kRmsNormEps) and x *= rstd. With a table (RotaryTable's, at least T,HS/2,2): x's
/// halves (x1, x2) become (x1 cos - x2 sin, x2 cos + x1 sin). rstd or table may be left out. CUDA takes HS up
/// to 128.
struct QkNormRotaryForward {
  static constexpr const char* kName = "qk_norm_rotary_forward";
  Tensor qkv, rstd, table;
  void check() const { expect(*this, one_float_type(qkv) && qk_heads(qkv, rstd, table) > 0); }
  Work work() const {
    return {OpKind::elementwise, {queries_and_keys(qkv), table}, {queries_and_keys(qkv), rstd}};
  }
  void run(Cpu&) const, run(Cuda&) const;
};

/// In place, dqkv, the gradient of QkNormRotaryForward's result, becomes the gradient of its input. With the
/// results y (q and k of qkv) and rstd: dx = rstd * rotated back (dy - y * mean(dy * y)). Without rstd, qkv
/// is not read and may be left out.
struct QkNormRotaryBackward {
  static constexpr const char* kName = "qk_norm_rotary_backward";
  Tensor dqkv, qkv, rstd, table;
  void check() const {
    expect(*this, one_float_type(dqkv) && qk_heads(dqkv, rstd, table) > 0 &&
                      (present(qkv) ? alike(dqkv, qkv) : !present(rstd)));
  }
  Work work() const {
    Work work{OpKind::elementwise, {queries_and_keys(dqkv), rstd, table}, {queries_and_keys(dqkv)}};
    if (present(rstd)) work.read.push_back(queries_and_keys(qkv));
    return work;
  }
  void run(Cpu&) const, run(Cuda&) const;
};

}  // namespace stepladder
