#include "model/parameters.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "model/comm.h"
#include "model/cpu/parallel.h"
#include "model/error.h"
#include "model/number.h"
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

/// The stream of random numbers that initialises a parameter: for GPT-2's matrices their place in Hugging
/// Face's order, twelve tensors a layer; for others a hash of the name (FNV-1a), far beyond these places.
uint64_t stream_of(const std::string& name) {
  constexpr std::pair<std::string_view, uint64_t> kOfLayer[] = {{"attn.c_attn.weight", 2},
                                                                {"attn.c_proj.weight", 4},
                                                                {"mlp.c_fc.weight", 8},
                                                                {"mlp.c_proj.weight", 10}};
  if (name == "wte.weight") return 0;
  if (name == "wpe.weight") return 1;
  for (const auto& [part, place] : kOfLayer)
    if (const size_t dot = name.find('.', 2);
        name.starts_with("h.") && dot != std::string::npos && std::string_view(name).substr(dot + 1) == part)
      if (const auto layer = number_from<uint64_t>(name.substr(2, dot - 2))) return 12 * *layer + 2 + place;
  return fnv1a(name) | uint64_t{1} << 63;
}

/// Layers [begin, end) of a stack, as far as it has them.
Tensor layers_of(const Tensor& stack, int64_t begin, int64_t end) {
  const int64_t all = stack.shape[0];
  return stack.slices(std::min(begin, all), std::min(end, all));
}

}  // namespace

ParameterGroup::ParameterGroup(Arena& arena, const std::string& group, DType dtype,
                               const ParameterGroup& like)
    : ParameterGroup(arena, group, dtype) {
  for (const Parameter& p : like.list_) {
    const std::string_view name = p.tensor.name;  // "weights/wte"
    declare(std::string(name.substr(name.find('/') + 1)).c_str(), p.tensor.shape, p);
  }
}

Tensor ParameterGroup::declare(const char* name, Shape shape, Parameter parameter) {
  parameter.tensor = arena_->alloc(group_ + "/" + name, dtype_, shape);
  return list_.emplace_back(std::move(parameter)).tensor;
}

std::vector<Tensor> ParameterGroup::all() const {
  std::vector<Tensor> all;
  for (const Parameter& p : list_) all.push_back(p.tensor);
  return all;
}

std::vector<Tensor> ParameterGroup::outside_gemms() const {
  std::vector<Tensor> others;
  for (const Parameter& p : list_) {
    if (!p.gemm)
      others.push_back(p.tensor);
    else if (p.stacked() && p.rows > 0)
      others.push_back(p.tensor.slices(p.rows, p.tensor.shape[0]));
  }
  return others;
}

std::vector<Tensor> ParameterGroup::outside_layers() const {
  std::vector<Tensor> others;
  for (const Parameter& p : list_)
    if (!p.stacked()) others.push_back(p.tensor);
  return others;
}

std::vector<Tensor> ParameterGroup::layers(int64_t begin, int64_t end) const {
  std::vector<Tensor> slices;
  for (const Parameter& p : list_) {
    if (!p.stacked()) continue;
    if (const Tensor of_these = layers_of(p.tensor, begin, end); of_these.numel() > 0)
      slices.push_back(of_these);
  }
  return slices;
}

ParameterGroup ParameterGroup::pieces(const std::function<int64_t(int64_t)>& bucket_end) const {
  ParameterGroup all;
  int64_t depth = 0;
  for (const Parameter& p : list_) {
    if (p.stacked())
      depth = std::max(depth, p.tensor.shape[0]);
    else
      all.list_.push_back(p);
  }
  for (int64_t begin = 0, end = 0; begin < depth; begin = end) {
    end = bucket_end(begin);
    for (const Parameter& p : list_) {
      if (!p.stacked() || begin >= p.tensor.shape[0]) continue;
      Parameter& piece = all.list_.emplace_back(p);
      piece.name.replace(piece.name.find('*'), 1, cat(begin, "-", end - 1));
      piece.rows = 0;
      piece.tensor = layers_of(p.tensor, begin, end);
    }
  }
  return all;
}

ParameterGroup ParameterGroup::parts(int rank, int world) const {
  ParameterGroup parts = *this;
  for (Parameter& p : parts.list_) {
    const Tensor all = p.tensor;
    check(!p.whole || all.shape[0] % world == 0, all, " has no ", world,
          " equal parts of whole layers: pad it");
    p.rows = 0;
    p.tensor = part_of(all, rank, world);
    if (p.whole) p.tensor = p.tensor.view(all.shape.with_first(all.shape[0] / world));
  }
  return parts;
}

ParameterGroup ParameterGroup::where(const std::function<bool(const Parameter&)>& takes) const {
  ParameterGroup those = *this;
  std::erase_if(those.list_, [&](const Parameter& p) { return !takes(p); });
  return those;
}

Tensor ParameterGroup::untie_head() {
  const auto wte = std::ranges::find(list_, "wte.weight", &Parameter::name);
  check(wte != list_.end(), "no wte.weight that a head is tied to");
  Parameter head = *wte;
  head.name = "lm_head.weight";
  wte->gemm = false;
  return declare("head", head.tensor.shape, head);
}

std::vector<NamedTensor> ParameterGroup::each() const {
  std::vector<NamedTensor> all;
  const auto add = [&all](std::string name, const Parameter& p, const Tensor& tensor) {
    all.push_back({std::move(name), tensor, p.decay, p.conv1d, p.init});
  };
  for (auto p = list_.begin(); p != list_.end();) {
    if (!p->stacked()) {
      add(p->name, *p, p->unpadded());
      ++p;
      continue;
    }
    const auto end = std::find_if_not(p, list_.end(), [](const Parameter& other) { return other.stacked(); });
    for (int64_t l = 0; l < p->unpadded().shape[0]; ++l)
      for (auto of_layer = p; of_layer != end; ++of_layer)
        add(std::string(of_layer->name).replace(of_layer->name.find('*'), 1, std::to_string(l)), *of_layer,
            of_layer->tensor[l]);
    p = end;
  }
  return all;
}

int64_t ParameterGroup::num_params() const {
  int64_t count = 0;
  for (const Parameter& p : list_) count += p.unpadded().numel();
  return count;
}

const Tensor& ParameterGroup::find(std::string_view name) const {
  const auto found = std::ranges::find(list_, name, &Parameter::name);
  check(found != list_.end(), "no parameter ", name);
  return found->tensor;
}

FlopsPerToken flops_per_token(const ParameterGroup& params, const Config& config) {
  int64_t multiplied = 0, padded = 0;
  for (const Parameter& p : params.list()) {
    const Tensor tensor = p.unpadded();
    const bool looked_up = !p.stacked() && tensor.shape.rank() == 2 && !p.gemm;
    const bool vocabulary = !p.stacked() && p.rows > 0;
    multiplied += looked_up ? 0 : tensor.numel();
    padded += vocabulary ? (p.rows + 127) / 128 * 128 * tensor.cols() : tensor.numel();
  }
  const auto attention = static_cast<double>(config.L * config.C * config.T);
  return {.nanogpt = 6.0 * static_cast<double>(multiplied) + 12.0 * attention,
          .llmc = 6.0 * static_cast<double>(padded) + 6.0 * attention};
}

void init_params(Ops& ops, const ParameterGroup& params, uint64_t seed) {
  std::vector<float> host;
  for (const NamedTensor& p : params.each()) {
    host.assign(static_cast<size_t>(p.tensor.numel()), p.init.value);
    if (p.init.deviation > 0.0F) fill_normal(host, p.init.deviation, random_bits(seed, stream_of(p.name)));
    ops(Upload{p.tensor, host.data()});
  }
}

std::vector<AdamWTensor> adamw_tensors(const ParameterGroup& params, const ParameterGroup& grads,
                                       const ParameterGroup& m, const ParameterGroup& v,
                                       const ParameterGroup& param_copy) {
  std::vector<AdamWTensor> tensors;
  for (const Parameter& p : m.list())
    tensors.push_back({params.find(p.name), grads.find(p.name), p.tensor, v.find(p.name),
                       param_copy.list().empty() ? Tensor{} : param_copy.find(p.name), p.decay});
  return tensors;
}

}  // namespace stepladder
