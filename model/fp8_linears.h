// Fp8Linears: the FP8 operands of GPT-2's linear layers, and their scales.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "model/arena.h"
#include "model/config.h"
#include "model/gpt2.h"
#include "model/ops.h"

namespace stepladder {

/// Checks that all extents are multiples of 16, as FP8 GEMMs want them. Throws InputError naming the option
/// to change.
void expect_fp8_extents(const Config& config);

/// FP8 operands of a layer y = x w^T: e4m3 weights and inputs, e5m2 gradients. FP8 tensor cores want both
/// operands contiguous along the summed dimension, so each has a transpose for the backward pass:
/// dx = dy wt^T, dw = dyt xt^T.
struct Fp8Linear {
  Tensor w, wt;    // (Cout,Cin), (Cin,Cout)
  Tensor x, xt;    // (N,Cin), overwritten by the next x of this width; (Cin,N), kept for the backward pass
  Tensor dy, dyt;  // (N,Cout), in an x's memory, except the head's; (Cout,N), overwritten by the next layer's
};

/// The operands of all linear layers, N = B*T. Each has a scale: a weight's is computed from its current
/// values, an input's or gradient's from its largest magnitudes in the last 16 steps (delayed scaling).
class Fp8Linears {
 public:
  enum Kind { kQkv, kAttproj, kFc, kFcproj, kHead, kKinds };
  enum class Gelu { kept, recomputed };

  Fp8Linears() = default;
  /// The head takes at most as many sequences at a time as `logits` (.,T,Vp) has; the transpose of the
  /// logits' gradient is written over `logits`. Gelu::recomputed: the layers share one xt of kFcproj. Throws
  /// UnsupportedError unless config.half is bf16.
  Fp8Linears(Arena& arena, const Config& config, const Tensor& logits, Gelu gelu = Gelu::kept);

  /// The operands of layer l, not of the head.
  Fp8Linear at(Kind kind, int64_t l) const;
  /// The operands of the head for `sequences` of T tokens.
  Fp8Linear head(int64_t sequences) const;
  /// These make FP8 copies of matrices of `weights`: of all, of layers [begin, end), or of the head.
  void quantize_weights(Ops& ops, const Params& weights) const;
  void quantize_layers(Ops& ops, const Params& weights, int64_t begin, int64_t end) const;
  void quantize_head(Ops& ops, const Params& weights) const;
  /// Sets the scales of inputs and gradients for the passes that follow: their largest magnitudes, amax,
  /// enter `history`, and the largest of its 16 steps decides.
  void update_scales(Ops& ops) const;
  /// Unless a checkpoint has brought a history, makes one by calling `pass`, a batch forward and backward,
  /// twice. In the first pass gradients have a scale for `largest`, which no gradient of a logit exceeds.
  /// With that scale small gradients may underflow; the pass finds scales that fit, so that the second pass
  /// sees all magnitudes. A gradient that is 0, as where projections begin at 0, keeps that scale.
  void calibrate(Ops& ops, float largest, const std::function<void()>& pass) const;

  Tensor amax;     // largest magnitudes since it was last zeroed
  Tensor history;  // largest magnitudes of inputs and gradients in 16 steps; 0 for steps not done yet

 private:
  enum Role { kWeight, kInput, kGradient, kRoles };

  Fp8Linear scaled(const Fp8Linear& of, int64_t layer) const;
  void quantize(Ops& ops, Kind kind, const Tensor& weights, int64_t begin) const;

  int64_t L_ = 0, T_ = 0, N_ = 0;
  std::array<Fp8Linear, kKinds> all_;  // w, wt and xt of all layers, without scales
  Tensor x_, wide_x_, dy_, wide_dy_, dyt_, dlogits_, dlogitst_;
  Tensor scale_;
};

}  // namespace stepladder
