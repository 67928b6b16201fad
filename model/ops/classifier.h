// The classifier: logits (B,T,V); losses (B,T), logp and dlogp (B,T,V) f32; targets (B,T) i32 in [0,V), which
// the CPU checks (std::invalid_argument) and CUDA does not.
#pragma once

#include "model/ops/op.h"

namespace stepladder {

/// Whether x (...,Vp) has as many rows as y (...,V), and V <= Vp.
inline bool covers(const Tensor& x, const Tensor& y) {
  return x.shape.rank() > 0 && y.shape.rank() > 0 && x.cols() >= y.cols() && rows_of(x) == rows_of(y);
}
inline bool cross_entropy_fits(const Tensor& losses, const Tensor& logits, const Tensor& targets, int64_t V) {
  return one_float_type(logits) && all_f32(losses) && is_i32(targets) &&
         one_per_row(logits, losses, targets) && V > 0 && V <= logits.cols();
}

/// The multiplier of a loss's gradient: factor, times loss_scaler[0] where there is a loss scaler.
struct LossScale {
  float factor;
  Tensor loss_scaler = {};
};

/// logp = logits - logsumexp(logits). Rows of logits may be longer than logp's: the elements beyond are
/// padding, not read.
struct LogSoftmaxForward {
  static constexpr const char* kName = "log_softmax_forward";
  Tensor logp, logits;
  void check() const { expect(*this, one_float_type(logits) && all_f32(logp) && covers(logits, logp)); }
  Work work() const { return {OpKind::cross_entropy, {logits}, {logp}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// dlogits = dlogp - exp(logp) * sum_v(dlogp); dlogits may be dlogp. Rows of dlogits and dlogp may be longer
/// than logp's: the elements beyond are padding, neither read nor written.
struct LogSoftmaxBackward {
  static constexpr const char* kName = "log_softmax_backward";
  Tensor dlogits, dlogp, logp;
  void check() const {
    expect(*this,
           one_float_type(dlogits) && all_f32(dlogp, logp) && covers(dlogits, logp) && covers(dlogp, logp));
  }
  Work work() const { return {OpKind::cross_entropy, {dlogp, logp}, {dlogits}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// losses (B,T) = -logp[target]
struct NllLossForward {
  static constexpr const char* kName = "nll_loss_forward";
  Tensor losses, logp, targets;
  void check() const {
    expect(*this, all_f32(losses, logp) && is_i32(targets) && one_per_row(logp, losses, targets));
  }
  Work work() const { return {OpKind::cross_entropy, {targets, {logp, Operand(losses).bytes}}, {losses}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// dlogp = -scale at target, else 0.
struct NllLossBackward {
  static constexpr const char* kName = "nll_loss_backward";
  Tensor dlogp, targets;
  LossScale scale;
  void check() const {
    expect(*this, all_f32(dlogp) && is_i32(targets) && one_per_row(dlogp, targets) &&
                      loss_scaler_fits(scale.loss_scaler));
  }
  Work work() const { return {OpKind::cross_entropy, {targets, scale.loss_scaler}, {dlogp}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// out (1) += mean(x), f32
struct AddMean {
  static constexpr const char* kName = "add_mean";
  Tensor out, x;
  void check() const { expect(*this, all_f32(out, x) && out.numel() == 1 && x.numel() > 0); }
  Work work() const { return {OpKind::reduction, {out, x}, {out}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// losses = logsumexp(z) - z[target], z the first V columns of logits (B,T,Vp) or, with a soft_cap that is
/// not 0, soft_cap * tanh(logits / soft_cap), so that |z| <= soft_cap (Gemma Team 2024).
struct CrossEntropyForward {
  static constexpr const char* kName = "cross_entropy_forward";
  Tensor losses, logits, targets;
  int64_t V;
  float soft_cap = 0.0F;
  void check() const { expect(*this, cross_entropy_fits(losses, logits, targets, V) && soft_cap >= 0.0F); }
  Work work() const { return {OpKind::cross_entropy, {targets, first_columns(logits, V)}, {losses}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// Losses as CrossEntropyForward, and in place logits = scale * (softmax(z) - onehot(target)), with a
/// soft_cap times 1 - (z / soft_cap)^2; columns from V on get 0. Normalised logits and probabilities are
/// never stored.
struct CrossEntropyForwardBackward {
  static constexpr const char* kName = "cross_entropy_forward_backward";
  Tensor losses, logits, targets;
  int64_t V;
  LossScale scale;
  float soft_cap = 0.0F;
  void check() const {
    expect(*this, cross_entropy_fits(losses, logits, targets, V) && loss_scaler_fits(scale.loss_scaler) &&
                      soft_cap >= 0.0F);
  }
  Work work() const {
    return {OpKind::cross_entropy, {targets, scale.loss_scaler, first_columns(logits, V)}, {losses, logits}};
  }
  void run(Cpu&) const, run(Cuda&) const;
};

}  // namespace stepladder
