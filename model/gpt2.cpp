#include "model/gpt2.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "model/half.h"

namespace stepladder {
Params::Params(Arena& arena, const std::string& group, const Config& config, DType dtype, int64_t rows,
               int64_t layers, bool positions)
    : ParameterGroup(arena, group, dtype) {
  const int64_t L = config.L, C = config.C, V = config.V, Lp = layers > 0 ? layers : L;
  const Init normal = Init::normal(0.02F), ones = Init::ones(),
             residual = Init::normal(0.02F / std::sqrt(2.0F * static_cast<float>(L)));
  const auto bias = [](const char* name) { return Parameter{.name = name}; };
  const auto gain = [&](const char* name) { return Parameter{.name = name, .init = ones}; };
  const auto matrix = [&](const char* name, Init init) {
    return Parameter{.name = name,
                     .init = init,
                     .decay = true,
                     .gemm = true,
                     .conv1d = true,
                     .whole = layers > 0,
                     .rows = Lp > L ? L : 0};
  };
  wte = declare("wte", {rows > 0 ? rows : V, C},
                {.name = "wte.weight", .init = normal, .decay = true, .gemm = true, .rows = V});
  if (positions)
    wpe = declare("wpe", {config.max_T, C}, {.name = "wpe.weight", .init = normal, .decay = true});
  ln1w = declare("ln1w", {L, C}, gain("h.*.ln_1.weight"));
  ln1b = declare("ln1b", {L, C}, bias("h.*.ln_1.bias"));
  qkvw = declare("qkvw", {Lp, 3 * C, C}, matrix("h.*.attn.c_attn.weight", normal));
  qkvb = declare("qkvb", {L, 3 * C}, bias("h.*.attn.c_attn.bias"));
  attprojw = declare("attprojw", {Lp, C, C}, matrix("h.*.attn.c_proj.weight", residual));
  attprojb = declare("attprojb", {L, C}, bias("h.*.attn.c_proj.bias"));
  ln2w = declare("ln2w", {L, C}, gain("h.*.ln_2.weight"));
  ln2b = declare("ln2b", {L, C}, bias("h.*.ln_2.bias"));
  fcw = declare("fcw", {Lp, 4 * C, C}, matrix("h.*.mlp.c_fc.weight", normal));
  fcb = declare("fcb", {L, 4 * C}, bias("h.*.mlp.c_fc.bias"));
  fcprojw = declare("fcprojw", {Lp, C, 4 * C}, matrix("h.*.mlp.c_proj.weight", residual));
  fcprojb = declare("fcprojb", {L, C}, bias("h.*.mlp.c_proj.bias"));
  lnfw = declare("lnfw", {C}, gain("ln_f.weight"));
  lnfb = declare("lnfb", {C}, bias("ln_f.bias"));
}

Trainer::Trainer(Ops& ops, Arena& arena, const Config& config, const Hyper& hyper)
    : config(config), ops(ops), arena(arena), hyper(hyper) {
  config.validate();
  ops.device().bind_workspace(arena, config);
}

void Trainer::reset() {
  const TrainerTensors own = tensors();
  for (const Tensor& t : own.params.all()) ops(Zero{t});
  for (const OptimizerState& state : own.states)
    for (const Tensor& t : state.group.all()) ops(Zero{t});
  if (own.loss_scaler.data) ops(WriteValues{own.loss_scaler, {hyper.loss_scale, 0.0F, 0.0F, 0.0F}});
  if (own.fp8_history.data) ops(Zero{own.fp8_history});
}

void Trainer::init(uint64_t seed) {
  init_params(ops, tensors().params, seed);
}

std::string Trainer::architecture() const {
  if (changes_.empty()) return kGpt2;
  std::string name = "stepladder";
  for (const std::string& change : changes_) name += "_" + change;
  return name;
}

Trainer::NotGpt2::NotGpt2(Trainer& trainer, const char* change) {
  trainer.changes_.insert(change);
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
  // Row 0 of a full batch holds the text; tokens after it don't affect it, because of the causal mask.
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
    std::ranges::transform(stored, row.begin(), [cap = soft_cap()](auto x) {
      return cap > 0.0F ? cap * std::tanh(to_float(x) / cap) : to_float(x);
    });
    return row;
  });
}

std::vector<RungBuild>& linked_rungs() {
  static std::vector<RungBuild> rungs;
  return rungs;
}

RegisterRung::RegisterRung(const char* name, const char* source_hash, TrainerFactory make, bool libraries) {
  auto& rungs = linked_rungs();
  rungs.push_back({name, source_hash, std::move(make), libraries});
  std::ranges::sort(rungs, {}, &RungBuild::name);
}

}  // namespace stepladder
