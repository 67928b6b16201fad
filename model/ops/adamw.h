// Clipping of the gradients' norm, and AdamW.
#pragma once

#include <span>

#include "model/ops/op.h"

namespace stepladder {

/// out (1) = sum x^2
struct SumOfSquares {
  static constexpr const char* kName = "sum_of_squares";
  Tensor out, x;
  void check() const { expect(*this, one_float_type(x) && all_f32(out) && out.numel() == 1); }
  Work work() const { return {OpKind::clip, {x}, {out}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// norm (1) = sqrt(sum of parts), factor (1) = min(1, max_norm / (norm + 1e-6)); as
/// torch.nn.utils.clip_grad_norm_.
struct ClipFactor {
  static constexpr const char* kName = "clip_factor";
  Tensor factor, norm, parts;
  float max_norm;
  void check() const {
    expect(*this,
           all_f32(factor, norm, parts) && factor.numel() == 1 && norm.numel() == 1 && parts.numel() > 0);
  }
  Work work() const { return {OpKind::clip, {parts}, {factor, norm}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// Dynamic loss scaling: the number of good steps after which the scale doubles, and the largest scale.
inline constexpr float kGoodSteps = 2000.0F, kLargestScale = 0x1p24F;

/// ClipFactor of all `grads`, of one float type, together in one pass; there is at least one.
///
/// loss_scaler, where there is one, is (4) f32 {scale, good steps, skipped steps, overflow}: dynamic loss
/// scaling (Micikevicius et al. 2018) that never leaves the device. The norm is then that of grads / scale,
/// the factor includes 1 / scale. A norm that is not finite sets overflow = 1, halves the scale and counts a
/// skipped step; otherwise overflow = 0, and the scale doubles after every kGoodSteps good ones, up to
/// kLargestScale.
struct ClipGradNorm {
  static constexpr const char* kName = "clip_grad_norm";
  Tensor factor, norm;
  std::span<const Tensor> grads;
  float max_norm;
  Tensor loss_scaler = {};
  void check() const {
    expect(*this, !grads.empty() && all_f32(factor, norm) && factor.numel() == 1 && norm.numel() == 1 &&
                      loss_scaler_fits(loss_scaler));
    for (const Tensor& g : grads) expect(*this, one_float_type(grads[0], g));
  }
  Work work() const {
    Work work{OpKind::clip, {grads.begin(), grads.end()}, {factor, norm, loss_scaler}};
    work.read.emplace_back(loss_scaler);
    return work;
  }
  void run(Cpu&) const, run(Cuda&) const;
};

/// Hyperparameters of AdamW.
struct AdamW {
  float beta1, beta2, eps, weight_decay;
};
/// One tensor of a multi-tensor AdamW step. `w`, `m` and `v` are f32; `g` is float; `param_copy`, where there
/// is one, gets a copy of the new weights. `param_copy` is of g's type, or of any float type where g is f32.
struct AdamWTensor {
  Tensor w, g, m, v, param_copy;
  bool decay = false;
};

/// One step of AdamW (Loshchilov and Hutter 2019) over all tensors, g standing for clip (1) f32 * g: m =
/// beta1 * m + (1 - beta1) * g, v = beta2 * v + (1 - beta2) * g^2, w -= lr * (mhat / (sqrt(vhat) + eps) +
/// weight_decay * w) with mhat = m / (1 - beta1^t), vhat = v / (1 - beta2^t), weight_decay 0 unless `decay`.
/// schedule (2) f32 = {lr, t}, t from 1. With a loss_scaler (see ClipGradNorm) overflowed steps change
/// nothing and are not counted in t.
struct AdamWStep {
  static constexpr const char* kName = "adamw";
  std::span<const AdamWTensor> tensors;
  Tensor schedule, clip;
  AdamW hyper;
  Tensor loss_scaler = {};
  void check() const {
    expect(*this, all_f32(schedule, clip) && schedule.numel() == 2 && clip.numel() == 1 &&
                      loss_scaler_fits(loss_scaler));
    for (const AdamWTensor& t : tensors)
      expect(*this, all_f32(t.w, t.m, t.v) && one_float_type(t.g) && same_shape(t.w, t.g, t.m, t.v) &&
                        (!present(t.param_copy) ||
                         (sums_values_of(t.param_copy, t.g) && same_shape(t.g, t.param_copy))));
  }
  Work work() const {
    Work work{OpKind::adamw, {schedule, clip, loss_scaler}, {}};
    for (const AdamWTensor& t : tensors) {
      work.read.insert(work.read.end(), {t.w, t.g, t.m, t.v});
      work.written.insert(work.written.end(), {t.w, t.m, t.v, t.param_copy});
    }
    return work;
  }
  void run(Cpu&) const, run(Cuda&) const;
};

}  // namespace stepladder
