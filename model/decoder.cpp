#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

namespace stepladder {
namespace {

constexpr int64_t kLogits = 64;  // positions whose logits are in memory at a time

/// The tensor of that name; empty where there is none.
Tensor find_or_empty(const ParameterGroup& weights, const char* name) {
  const auto found = std::ranges::find(weights.list(), name, &Parameter::name);
  return found == weights.list().end() ? Tensor{} : found->tensor;
}

}  // namespace

bool Decoder::knows(const Trainer& trainer) {
  constexpr std::string_view kKnown[] = {"qk_norm", "relu_squared", "rotary", "soft_cap"};
  return std::ranges::all_of(trainer.changes(), [&](const std::string& change) {
    return std::ranges::find(kKnown, change) != std::end(kKnown);
  });
}

Decoder::Decoder(Ops& ops, Arena& arena, const Trainer& trainer)
    : ops_(ops),
      config_(trainer.config),
      T_(config_.T),
      C_(config_.C),
      NH_(config_.NH),
      qk_norm_(trainer.changes().contains("qk_norm")),
      rotary_(trainer.changes().contains("rotary")),
      relu_squared_(trainer.changes().contains("relu_squared")),
      soft_cap_(trainer.soft_cap()) {
  check(knows(trainer), "a decoder of ", trainer.architecture());
  const ParameterGroup& weights = trainer.tensors().weights;
  wte_ = weights.find("wte.weight");
  wpe_ = find_or_empty(weights, "wpe.weight");
  const Tensor untied = find_or_empty(weights, "lm_head.weight");
  head_ = untied.shape.rank() > 0 ? untied : wte_;
  for (const auto& [tensor, name] : {std::pair(&ln1w_, "h.*.ln_1.weight"),
                                     {&ln1b_, "h.*.ln_1.bias"},
                                     {&qkvw_, "h.*.attn.c_attn.weight"},
                                     {&qkvb_, "h.*.attn.c_attn.bias"},
                                     {&attprojw_, "h.*.attn.c_proj.weight"},
                                     {&attprojb_, "h.*.attn.c_proj.bias"},
                                     {&ln2w_, "h.*.ln_2.weight"},
                                     {&ln2b_, "h.*.ln_2.bias"},
                                     {&fcw_, "h.*.mlp.c_fc.weight"},
                                     {&fcb_, "h.*.mlp.c_fc.bias"},
                                     {&fcprojw_, "h.*.mlp.c_proj.weight"},
                                     {&fcprojb_, "h.*.mlp.c_proj.bias"},
                                     {&lnfw_, "ln_f.weight"},
                                     {&lnfb_, "ln_f.bias"}})
    *tensor = weights.find(name);

  using enum DType;
  const DType act = weights.dtype();
  const auto alloc = [&](const char* name, DType dtype, Shape shape) {
    return arena.alloc(cat("sampling/", name), dtype, shape);
  };
  if (rotary_) angles_ = alloc("angles", f32, {T_, config_.HS() / 2, 2});
  cache_ = alloc("cache", act, {config_.L, 2, T_, C_});
  tokens_ = alloc("tokens", i32, {T_});
  x_ = alloc("x", act, {T_, C_});
  ln_ = alloc("ln", act, {T_, C_});  // of attention too
  mean_ = alloc("mean", f32, {T_});
  rstd_ = alloc("rstd", f32, {T_});
  qkv_ = alloc("qkv", act, {T_, 3 * C_});
  if (qk_norm_) qkrstd_ = alloc("qkrstd", f32, {T_, 2 * NH_});
  fch_ = alloc("fch", act, {T_, 4 * C_});
  fcact_ = alloc("fcact", act, {T_, 4 * C_});
  logits_ = alloc("logits", f32, {kLogits, head_.shape[0]});  // f32: 16 bits would make equal logits
  targets_ = alloc("targets", i32, {kLogits});
  losses_ = alloc("losses", f32, {kLogits});
}

void Decoder::restart() {
  kept_.clear();
  if (rotary_) ops_(RotaryTable{angles_});
}

// Positions first to first + n - 1 of one text.
void Decoder::forward(int64_t first, int64_t n) {
  const auto of = [n](const Tensor& t) { return t.shape.rank() > 0 ? t.first({1, n, t.cols()}) : t; };
  const auto rows = [&](const Tensor& t) {
    return t.shape.rank() > 0 ? t.slices(first, first + n) : t;  // of the positions
  };
  const Tensor x = of(x_), ln = of(ln_), qkv = of(qkv_), fch = of(fch_), fcact = of(fcact_);
  const Tensor mean = mean_.first({n}), rstd = rstd_.first({n});
  ops_(EncoderForward{x, tokens_.first({1, n}), wte_, rows(wpe_)});
  for (int64_t l = 0; l < config_.L; ++l) {
    ops_(LayerNormForward{ln, mean, rstd, x, ln1w_[l], ln1b_[l]});
    ops_(LinearForward{qkv, ln, qkvw_[l], qkvb_[l]});
    if (qk_norm_ || rotary_) ops_(QkNormRotaryForward{qkv, of(qkrstd_), rows(angles_)});
    ops_(CachedAttention{ln, cache_[l], qkv, first, NH_});
    ops_(LinearForward{x, ln, attprojw_[l], attprojb_[l], x});
    ops_(LayerNormForward{ln, mean, rstd, x, ln2w_[l], ln2b_[l]});
    if (relu_squared_) {
      ops_(LinearForward{fch, ln, fcw_[l], fcb_[l]});
      ops_(ReluSquaredForward{fcact, fch});
    } else {
      ops_(LinearGeluForward{fcact, fch, ln, fcw_[l], fcb_[l]});
    }
    ops_(LinearForward{x, fcact, fcprojw_[l], fcprojb_[l], x});
  }
  ops_(LayerNormForward{ln, mean, rstd, x, lnfw_, lnfb_});
}

Tensor Decoder::advance(std::span<const int32_t> text, size_t count) {
  for (const int32_t token : text)
    if (token < 0 || token >= config_.V)
      throw InputError(cat("token ", token, " is outside the model's vocabulary of ", config_.V));
  const auto differs = std::ranges::mismatch(kept_, text).in1 - kept_.begin();
  const auto size = std::ssize(text), wanted = static_cast<std::ptrdiff_t>(count);
  const std::ptrdiff_t first = std::min(differs, size - wanted);
  kept_.clear();  // until the ops have run
  ops_(Upload{tokens_.first({size - first}), text.data() + first});
  forward(first, size - first);
  kept_.assign(text.begin(), text.end());
  return ln_.slices(size - first - wanted, size - first);
}

std::vector<float> Decoder::next_logits(std::span<const int32_t> text) {
  if (text.empty()) throw InputError("cannot predict after an empty prompt: give at least one token");
  const Tensor hidden = advance(text.last(std::min(text.size(), static_cast<size_t>(T_))), 1);
  ops_(Matmul{logits_.slices(0, 1), hidden, head_, MatOp::NT});
  std::vector<float> row(static_cast<size_t>(config_.V));
  ops_(Download{row.data(), logits_.first({config_.V})});
  if (soft_cap_ > 0.0F)
    for (float& x : row) x = soft_cap_ * std::tanh(x / soft_cap_);
  return row;
}

double Decoder::mean_loss(std::span<const int32_t> text, size_t count) {
  check(count > 0 && count < text.size() && text.size() <= static_cast<size_t>(T_) + 1, "the loss of ", count,
        " of ", text.size(), " tokens");
  const Tensor hidden = advance(text.first(text.size() - 1), count);
  const int32_t* targets = text.last(count).data();
  std::vector<float> losses(count);
  for (int64_t from = 0, n = 0; from < std::ssize(losses); from += n) {
    n = std::min(kLogits, std::ssize(losses) - from);
    const Tensor logits = logits_.slices(0, n), of = losses_.first({n});
    ops_(Upload{targets_.first({n}), targets + from});
    ops_(Matmul{logits, hidden.slices(from, from + n), head_, MatOp::NT});
    ops_(CrossEntropyForward{of, logits, targets_.first({n}), config_.V, soft_cap_});
    ops_(Download{losses.data() + from, of});
  }
  return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(count);
}

}  // namespace stepladder
