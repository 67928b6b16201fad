#include "model/fp8_linears.h"

#include <vector>

#include "model/error.h"

namespace stepladder {

constexpr int64_t kWindow = 16;  // steps

void expect_fp8_extents(const Config& config) {
  constexpr int64_t kMultiple = 16;
  const auto expect = [&](int64_t extent, const std::string& what, const char* option) {
    if (extent % kMultiple != 0)
      throw InputError(
          cat("FP8 on a GPU wants multiples of ", kMultiple, ", not ", what, ": choose another ", option));
  };
  expect(config.C, cat(config.C, " channels"), "--channels or --model");
  expect(config.B * config.T, cat(config.B, " x ", config.T, " tokens"), "--batch or --seq");
}

Fp8Linears::Fp8Linears(Arena& arena, const Config& config, const Tensor& logits, Gelu gelu)
    : L_(config.L), T_(config.T), N_(config.B * config.T) {
  if (config.half != DType::bf16)
    throw UnsupportedError("FP8 trains beside bf16, whose range needs no loss scaling: use --dtype bf16");
  const int64_t C = config.C, Vp = logits.cols(), layers = 4 * L_ + 1;
  const int64_t head_tokens = logits.rows(), gelus = gelu == Gelu::kept ? L_ : 1;
  const auto fp8 = [&](const std::string& name, DType type, Shape shape) {
    return arena.alloc("fp8/" + name, type, shape);
  };
  const auto linear = [&](const std::string& name, int64_t count, int64_t Cout, int64_t Cin, Shape inputs) {
    return Fp8Linear{.w = fp8(name, DType::f8e4m3, {count, Cout, Cin}),
                     .wt = fp8(name + "_transposed", DType::f8e4m3, {count, Cin, Cout}),
                     .x = {},
                     .xt = fp8(name + "_inputs", DType::f8e4m3, inputs),
                     .dy = {},
                     .dyt = {}};
  };
  all_ = {linear("qkvw", L_, 3 * C, C, {L_, C, N_}), linear("attprojw", L_, C, C, {L_, C, N_}),
          linear("fcw", L_, 4 * C, C, {L_, C, N_}), linear("fcprojw", L_, C, 4 * C, {gelus, 4 * C, N_}),
          linear("wte", 1, Vp, C, {1, C, head_tokens})};
  x_ = fp8("rows", DType::f8e4m3, {N_, C});
  wide_x_ = fp8("wide_rows", DType::f8e4m3, {N_, 4 * C});
  // The backward pass reads only the transposes of inputs, so gradients reuse the memory of the inputs
  // themselves.
  dy_ = {x_.data, DType::f8e5m2, x_.shape, x_.name};
  wide_dy_ = {wide_x_.data, DType::f8e5m2, wide_x_.shape, wide_x_.name};
  dyt_ = fp8("dy_transposed", DType::f8e5m2, {N_, 4 * C});
  dlogits_ = fp8("dlogits", DType::f8e5m2, {head_tokens, Vp});
  dlogitst_ = {logits.data, DType::f8e5m2, {Vp, head_tokens}, logits.name};
  scale_ = fp8("scale", DType::f32, {kRoles, layers, kScaleStride});
  amax = fp8("amax", DType::f32, {kRoles, layers});
  history = fp8("history", DType::f32, {kRoles - 1, layers, kWindow});
}

Fp8Linear Fp8Linears::at(Kind kind, int64_t l) const {
  const Fp8Linear& all = all_[kind];
  const int64_t Cout = all.w.shape[1], Cin = all.w.shape[2], C = x_.cols();
  return scaled({.w = all.w[l],
                 .wt = all.wt[l],
                 .x = (Cin == C ? x_ : wide_x_).first({N_, Cin}),
                 .xt = all.xt[all.xt.shape[0] == 1 ? 0 : l],
                 .dy = (Cout == C ? dy_ : wide_dy_).first({N_, Cout}),
                 .dyt = dyt_.first({Cout, N_})},
                kind * L_ + l);
}

Fp8Linear Fp8Linears::head(int64_t sequences) const {
  const Fp8Linear& all = all_[kHead];
  const int64_t n = sequences * T_, Vp = all.w.shape[1], C = all.w.shape[2];
  return scaled({.w = all.w[0],
                 .wt = all.wt[0],
                 .x = x_.first({n, C}),
                 .xt = all.xt.first({C, n}),
                 .dy = dlogits_.first({n, Vp}),
                 .dyt = dlogitst_.first({Vp, n})},
                kHead * L_);
}

Fp8Linear Fp8Linears::scaled(const Fp8Linear& of, int64_t layer) const {
  const auto with = [&](const Tensor& t, Role role) {
    return t.scaled(scale_[role][layer], amax[role][layer]);
  };
  return {.w = with(of.w, kWeight),
          .wt = with(of.wt, kWeight),
          .x = with(of.x, kInput),
          .xt = with(of.xt, kInput),
          .dy = with(of.dy, kGradient),
          .dyt = with(of.dyt, kGradient)};
}

void Fp8Linears::quantize_weights(Ops& ops, const Params& weights) const {
  quantize_layers(ops, weights, 0, L_);
  quantize_head(ops, weights);
}

void Fp8Linears::quantize_layers(Ops& ops, const Params& weights, int64_t begin, int64_t end) const {
  quantize(ops, kQkv, weights.qkvw.slices(begin, end), begin);
  quantize(ops, kAttproj, weights.attprojw.slices(begin, end), begin);
  quantize(ops, kFc, weights.fcw.slices(begin, end), begin);
  quantize(ops, kFcproj, weights.fcprojw.slices(begin, end), begin);
}

void Fp8Linears::quantize_head(Ops& ops, const Params& weights) const {
  quantize(ops, kHead, weights.wte.view(all_[kHead].w.shape), 0);
}

/// Makes FP8 copies of `weights` (n,Cout,Cin), the matrices of layers begin, begin + 1, ...
void Fp8Linears::quantize(Ops& ops, Kind kind, const Tensor& weights, int64_t begin) const {
  const int64_t first = kind * L_ + begin, end = begin + weights.shape[0];
  const auto of = [&](const Tensor& all) {
    return all.slices(begin, end).scaled(scale_[kWeight][first], amax[kWeight][first]);
  };
  ops(QuantizeToFit{of(all_[kind].w), of(all_[kind].wt), weights});
}

void Fp8Linears::update_scales(Ops& ops) const {
  ops(UpdateScales{scale_[kInput], history[0], amax[kInput], DType::f8e4m3});
  ops(UpdateScales{scale_[kGradient], history[1], amax[kGradient], DType::f8e5m2});
}

void Fp8Linears::calibrate(Ops& ops, float largest, const std::function<void()>& pass) const {
  float newest = 0.0F;
  ops(Download{&newest, history[0][0][0]});
  if (newest != 0.0F) return;
  ops(Zero{amax});
  ops(Affine{amax[kGradient], amax[kGradient], 0.0F, largest});  // each = largest
  update_scales(ops);
  for (int i = 0; i < 2; ++i) {
    pass();
    ops(Zero{history});
    update_scales(ops);
  }
  // A gradient that came through weights of 0 is 0, and tells nothing of the next step's.
  const Tensor gradients = history[1];
  std::vector<float> magnitudes(static_cast<size_t>(gradients.numel()));
  ops(Download{magnitudes.data(), gradients});
  for (size_t newest_at = 0; newest_at < magnitudes.size(); newest_at += kWindow)
    if (magnitudes[newest_at] == 0.0F) magnitudes[newest_at] = largest;
  ops(Upload{gradients, magnitudes.data()});
  ops(Zero{amax});
  update_scales(ops);
}

}  // namespace stepladder
