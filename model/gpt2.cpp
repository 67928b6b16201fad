#include "model/gpt2.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "model/cpu/parallel.h"
#include "model/half.h"
#include "model/random.h"

namespace stepladder {
namespace {

/// Two independent N(0,1) from one counter (Box and Muller 1958).
std::pair<float, float> normal_pair(uint64_t seed, uint64_t counter) {
  const uint64_t bits = random_bits(seed, counter);
  const float u1 = static_cast<float>((bits >> 40) + 1) * 0x1.0p-24F;  // (0,1]
  const float u2 = static_cast<float>((bits >> 8) & 0xFFFFFF) * 0x1.0p-24F;
  const float radius = std::sqrt(-2.0F * std::log(u1));
  const float angle = 2.0F * std::numbers::pi_v<float> * u2;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

/// host = N(0, std^2), element i a function of (seed, i), so that threads may share the work.
void fill_normal(std::vector<float>& host, float std, uint64_t seed) {
  constexpr size_t kPiece = 1 << 16;
  const size_t pairs = (host.size() + 1) / 2;
  parallel_for(std::min(16, max_threads()), static_cast<int64_t>((pairs + kPiece - 1) / kPiece),
               [&](int64_t piece) {
                 const size_t first = static_cast<size_t>(piece) * kPiece;
                 for (size_t i = first; i < std::min(pairs, first + kPiece); ++i) {
                   const auto [a, b] = normal_pair(seed, i);
                   host[2 * i] = std * a;
                   if (2 * i + 1 < host.size()) host[2 * i + 1] = std * b;
                 }
               });
}

/// What a parameter is besides its shape.
struct ParamInfo {
  Tensor Params::*tensor;  // of every layer together
  const char* name;        // Hugging Face's, without "h.<layer>."
  bool decay = false, conv1d = false;
};
constexpr bool kDecay = true, kConv1d = true;
// In Hugging Face's order: two embeddings, the twelve of each layer, the last LayerNorm.
constexpr std::array<ParamInfo, 16> kParams = {{{&Params::wte, "wte.weight", kDecay},
                                                {&Params::wpe, "wpe.weight", kDecay},
                                                {&Params::ln1w, "ln_1.weight"},
                                                {&Params::ln1b, "ln_1.bias"},
                                                {&Params::qkvw, "attn.c_attn.weight", kDecay, kConv1d},
                                                {&Params::qkvb, "attn.c_attn.bias"},
                                                {&Params::attprojw, "attn.c_proj.weight", kDecay, kConv1d},
                                                {&Params::attprojb, "attn.c_proj.bias"},
                                                {&Params::ln2w, "ln_2.weight"},
                                                {&Params::ln2b, "ln_2.bias"},
                                                {&Params::fcw, "mlp.c_fc.weight", kDecay, kConv1d},
                                                {&Params::fcb, "mlp.c_fc.bias"},
                                                {&Params::fcprojw, "mlp.c_proj.weight", kDecay, kConv1d},
                                                {&Params::fcprojb, "mlp.c_proj.bias"},
                                                {&Params::lnfw, "ln_f.weight"},
                                                {&Params::lnfb, "ln_f.bias"}}};
constexpr auto kLayerParams = std::span(kParams).subspan(2, 12);

}  // namespace

Params::Params(Arena& arena, const std::string& group, const Config& config, DType dtype, int64_t rows)
    : V_(config.V) {
  const int64_t L = config.L, C = config.C;
  const auto param = [&](const char* name, Shape shape) {
    return arena.alloc(group + "/" + name, dtype, shape);
  };
  wte = param("wte", {rows > 0 ? rows : V_, C});
  wpe = param("wpe", {config.max_T, C});
  ln1w = param("ln1w", {L, C});
  ln1b = param("ln1b", {L, C});
  qkvw = param("qkvw", {L, 3 * C, C});
  qkvb = param("qkvb", {L, 3 * C});
  attprojw = param("attprojw", {L, C, C});
  attprojb = param("attprojb", {L, C});
  ln2w = param("ln2w", {L, C});
  ln2b = param("ln2b", {L, C});
  fcw = param("fcw", {L, 4 * C, C});
  fcb = param("fcb", {L, 4 * C});
  fcprojw = param("fcprojw", {L, C, 4 * C});
  fcprojb = param("fcprojb", {L, C});
  lnfw = param("lnfw", {C});
  lnfb = param("lnfb", {C});
}

std::vector<NamedTensor> Params::each() const {
  std::vector<NamedTensor> all;
  const auto add = [&all](const std::string& prefix, const ParamInfo& p, const Tensor& tensor) {
    all.push_back({prefix + p.name, tensor, p.decay, p.conv1d});
  };
  add("", kParams[0], wte.first({V_, wte.cols()}));
  add("", kParams[1], wpe);
  for (int64_t l = 0; l < qkvw.shape[0]; ++l)
    for (const ParamInfo& p : kLayerParams) add(cat("h.", l, "."), p, (this->*p.tensor)[l]);
  for (const ParamInfo& p : std::span(kParams).last(2)) add("", p, this->*p.tensor);
  return all;
}

std::vector<Tensor> Params::all() const {
  std::vector<Tensor> all;
  for (const ParamInfo& p : kParams) all.push_back(this->*p.tensor);
  return all;
}

std::vector<Tensor> Params::outside_gemms() const {
  std::vector<Tensor> others;
  for (const ParamInfo& p : kParams)
    if (!p.conv1d && p.tensor != &Params::wte) others.push_back(this->*p.tensor);
  return others;
}

std::vector<Tensor> Params::layers(int64_t begin, int64_t end) const {
  std::vector<Tensor> slices;
  for (const ParamInfo& p : kLayerParams) slices.push_back((this->*p.tensor).slices(begin, end));
  return slices;
}

std::vector<AdamWTensor> adamw_tensors(const Params& params, const Params& grads, const Params& m,
                                       const Params& v, const Params& param_copy) {
  std::vector<AdamWTensor> tensors;
  for (const auto& [tensor, name, decay, conv1d] : kParams)
    tensors.push_back({params.*tensor, grads.*tensor, m.*tensor, v.*tensor, param_copy.*tensor, decay});
  return tensors;
}

void init_params(Ops& ops, const Params& params, const Config& config, uint64_t seed) {
  const float residual_std = 0.02F / std::sqrt(2.0F * static_cast<float>(config.L));
  std::vector<float> host;
  uint64_t stream = 0;
  for (const NamedTensor& p : params.each()) {
    host.assign(static_cast<size_t>(p.tensor.numel()), 0.0F);
    if (p.decay) {
      const bool residual = p.name.ends_with("c_proj.weight");
      fill_normal(host, residual ? residual_std : 0.02F, random_bits(seed, stream));
    } else if (p.name.ends_with(".weight")) {  // LayerNorm
      std::fill(host.begin(), host.end(), 1.0F);
    }
    ops(Upload{p.tensor, host.data()});
    ++stream;
  }
}

Trainer::Trainer(Ops& ops, Arena& arena, const Config& config, const Hyper& hyper)
    : config(config), ops(ops), arena(arena), hyper(hyper) {
  config.validate();
  ops.device().bind_workspace(arena, config);
}

void Trainer::reset() {
  const TrainerTensors own = tensors();
  for (const Params* group : {&own.params, &own.adam_m, &own.adam_v})
    for (const Tensor& t : group->all()) ops(Zero{t});
  if (own.loss_scaler.data) ops(WriteValues{own.loss_scaler, {hyper.loss_scale, 0.0F, 0.0F, 0.0F}});
  if (own.fp8_history.data) ops(Zero{own.fp8_history});
}

float Trainer::train_loss() {
  float sum = 0.0F;
  ops(Download{&sum, tensors().loss});
  return sum / static_cast<float>(hyper.accumulate);
}

float Trainer::grad_norm() {
  float value = 0.0F;
  ops(Download{&value, tensors().norm});
  return value;
}

int64_t Trainer::skipped_steps() {
  const Tensor loss_scaler = tensors().loss_scaler;
  if (loss_scaler.data == nullptr) return 0;
  std::array<float, 4> state{};
  ops(Download{state.data(), loss_scaler});
  return static_cast<int64_t>(state[2]);
}

float Trainer::evaluate(Loader& data, int batches) {
  const Tensor loss = tensors().loss;
  ops(Zero{loss});
  for (int i = 0; i < batches; ++i) forward(data.next());
  ops.phase(nullptr);
  float sum = 0.0F;
  ops(Download{&sum, loss});
  return sum / static_cast<float>(batches);
}

std::vector<float> Trainer::next_logits(std::span<const int32_t> tokens) {
  if (tokens.empty()) throw InputError("cannot predict after an empty prompt: give at least one token");
  for (int32_t token : tokens)
    if (token < 0 || token >= config.V)
      throw InputError(cat("token ", token, " is outside the model's vocabulary of ", config.V));
  const auto T = static_cast<size_t>(config.T), n = std::min(tokens.size(), T);
  // Row 0 of a full batch holds the text; what follows it cannot reach back through the causal mask.
  std::vector<int32_t> batch(static_cast<size_t>(config.B) * T, 0);
  std::copy(tokens.end() - static_cast<std::ptrdiff_t>(n), tokens.end(), batch.begin());
  forward({batch.data(), batch.data()});
  ops.phase(nullptr);
  const Tensor logits = tensors().logits;
  const Tensor last =
      logits.view({logits.rows(), logits.cols()})[static_cast<int64_t>(n) - 1].first({config.V});
  return with_float_type(last.dtype, [&](auto type) {
    std::vector<decltype(type)> stored(static_cast<size_t>(config.V));
    ops(Download{stored.data(), last});
    std::vector<float> row(stored.size());
    std::ranges::transform(stored, row.begin(), [](auto x) { return to_float(x); });
    return row;
  });
}

std::vector<RungBuild>& linked_rungs() {
  static std::vector<RungBuild> rungs;
  return rungs;
}

RegisterRung::RegisterRung(const char* name, const char* source_hash, TrainerFactory make) {
  auto& rungs = linked_rungs();
  rungs.push_back({name, source_hash, std::move(make)});
  std::ranges::sort(rungs, {}, &RungBuild::name);
}

}  // namespace stepladder
