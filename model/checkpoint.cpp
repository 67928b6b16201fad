#include "model/checkpoint.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "model/atomic_file.h"
#include "model/error.h"
#include "model/half.h"
#include "model/mapped_file.h"
#include "model/number.h"
#include "model/safetensors.h"

namespace stepladder {
namespace {

using nlohmann::json;

constexpr int32_t kLlmcMagic = 20240326, kLlmcF32 = 3, kLlmcBf16 = 5;
constexpr std::string_view kPrefix = "transformer.";
constexpr const char* kConfigKey = "stepladder.config";

// ---- elements --------------------------------------------------------------------------------------------

// Elements of `dtype` (F32, F16 or BF16) as floats.
void convert(std::vector<float>& out, std::string_view dtype, std::span<const std::byte> bytes) {
  const auto read = [&]<class T>(T element) {
    out.resize(bytes.size() / sizeof(T));
    for (size_t i = 0; i < out.size(); ++i) {
      std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
      out[i] = to_float(element);
    }
  };
  if (dtype == "F32") return read(float{});
  dtype == "F16" ? read(Float16{}) : read(BFloat16{});
}

// out (cols,rows) = in (rows,cols)^T, in blocks that stay in the cache.
void transpose(std::vector<float>& out, const std::vector<float>& in, int64_t rows, int64_t cols) {
  constexpr int64_t kBlock = 32;
  out.resize(in.size());
  for (int64_t r0 = 0; r0 < rows; r0 += kBlock)
    for (int64_t c0 = 0; c0 < cols; c0 += kBlock)
      for (int64_t r = r0; r < std::min(r0 + kBlock, rows); ++r)
        for (int64_t c = c0; c < std::min(c0 + kBlock, cols); ++c) out[c * rows + r] = in[r * cols + c];
}

// ---- config ----------------------------------------------------------------------------------------------

json hugging_face_config(const Config& config) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", 1e-5},
          {"vocab_size", config.V},
          {"n_positions", config.max_T},
          {"n_embd", config.C},
          {"n_layer", config.L},
          {"n_head", config.NH}};
}

// Heads as Hugging Face's config tells them. Throws for an architecture that isn't GPT-2's.
std::optional<int64_t> heads_of(const std::string& path, std::string_view text) {
  const json config = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) throw InputError(cat(path, ": no JSON object; get it again or remove it"));
  const json ours = {{"model_type", "gpt2"},
                     {"activation_function", "gelu_new"},
                     {"layer_norm_epsilon", 1e-5},
                     {"scale_attn_weights", true},
                     {"scale_attn_by_inverse_layer_idx", false},
                     {"tie_word_embeddings", true}};
  for (const auto& [key, value] : ours.items())
    if (config.contains(key) && config[key] != value)
      throw InputError(cat(path, ": ", key, " is not GPT-2's ", value.dump(), "; use a GPT-2 checkpoint"));
  if (!config.contains("n_head")) return std::nullopt;
  if (!config["n_head"].is_number_unsigned() || config["n_head"] == 0)
    throw InputError(cat(path, ": n_head is no positive integer; get it again"));
  return config["n_head"].get<int64_t>();
}

std::filesystem::path config_beside(const std::string& path) {
  return std::filesystem::path(path).parent_path() / "config.json";
}

std::string describe(const Config& c) {
  return cat("L=", c.L, " NH=", c.NH, " C=", c.C, " V=", c.V, " max_T=", c.max_T);
}

bool same_model(const Config& a, const Config& b) {
  return a.L == b.L && a.NH == b.NH && a.C == b.C && a.V == b.V && a.max_T == b.max_T;
}

Config named_by_shape(Config config) {
  config.T = std::min(config.T, config.max_T);
  config.model = "custom";
  for (const std::string& name : Config::names())
    if (same_model(config, Config::named(name))) config.model = name;
  return config;
}

// ---- llm.c -----------------------------------------------------------------------------------------------

using LlmcHeader = std::array<int32_t, 256>;  // magic, version, max_T, V, L, NH, C, Vp

bool is_llmc(std::span<const std::byte> file) {
  int32_t magic = 0;
  if (file.size() >= sizeof magic) std::memcpy(&magic, file.data(), sizeof magic);
  return magic == kLlmcMagic;
}

struct Llmc {
  Config config;
  int64_t padded_V = 0;
  std::string_view dtype;
  size_t element = 0;
  std::span<const std::byte> data;
};

Llmc read_llmc(const std::string& path, std::span<const std::byte> file) {
  LlmcHeader header{};
  if (file.size() < sizeof header)
    throw InputError(cat(path, ": truncated llm.c header; get the file again"));
  std::memcpy(header.data(), file.data(), sizeof header);
  if (header[1] != kLlmcF32 && header[1] != kLlmcBf16)
    throw InputError(cat(path, ": llm.c weights of version ", header[1], ", want ", kLlmcF32, " (fp32) or ",
                         kLlmcBf16, " (bf16); export them again"));
  Llmc llmc;
  const bool f32 = header[1] == kLlmcF32;
  llmc.dtype = f32 ? "F32" : "BF16";
  llmc.element = f32 ? sizeof(float) : sizeof(uint16_t);
  Config& c = llmc.config;
  std::tie(c.max_T, c.V, c.L, c.NH, c.C, llmc.padded_V) =
      std::tuple(header[2], header[3], header[4], header[5], header[6], header[7]);
  const auto [least, most] = std::minmax({c.max_T, c.V, c.L, c.NH, c.C, llmc.padded_V});
  constexpr int64_t kMost = 1 << 20;  // with at most as many parameters as int64_t counts
  if (least <= 0 || most > kMost || c.L > 1024 || llmc.padded_V < c.V || c.C % c.NH != 0)
    throw InputError(
        cat(path, ": damaged llm.c header (", describe(c), " Vp=", llmc.padded_V, "); get the file again"));
  c = named_by_shape(c);

  llmc.data = file.subspan(sizeof header);
  const auto expected = llmc.element * static_cast<size_t>(c.num_params() + (llmc.padded_V - c.V) * c.C);
  if (llmc.data.size() != expected)
    throw InputError(
        cat(path, ": ", llmc.data.size() < expected ? "truncated: " : "oversized: ", llmc.data.size(),
            " bytes of weights, its header's ", describe(c), " take ", expected, "; get the file again"));
  return llmc;
}

void load_llmc(const Llmc& llmc, Ops& ops, const Params& p) {
  std::span<const std::byte> rest = llmc.data;
  std::vector<float> values;
  const auto take = [&](Tensor to, int64_t stored) {
    convert(values, llmc.dtype, rest.first(static_cast<size_t>(to.numel()) * llmc.element));
    ops(Upload{to, values.data()});
    rest = rest.subspan(static_cast<size_t>(stored) * llmc.element);
  };
  take(p.wte, llmc.padded_V * llmc.config.C);
  take(p.wpe, p.wpe.numel());
  for (const Tensor& stack : {p.ln1w, p.ln1b, p.qkvw, p.qkvb, p.attprojw, p.attprojb, p.ln2w, p.ln2b, p.fcw,
                              p.fcb, p.fcprojw, p.fcprojb})
    for (int64_t l = 0; l < llmc.config.L; ++l) take(stack[l], stack[l].numel());
  take(p.lnfw, p.lnfw.numel());
  take(p.lnfb, p.lnfb.numel());
}

// ---- safetensors -----------------------------------------------------------------------------------------

using Entry = Safetensors::Entry;

std::string without_prefix(const std::string& name) {
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

const Entry* find(const Safetensors& file, const std::string& name) {
  for (const std::string& spelled : {name, std::string(kPrefix) + name}) {
    const auto it = file.tensors().find(spelled);
    if (it != file.tensors().end()) return &it->second;
  }
  return nullptr;
}

// The shape under which Hugging Face stores `t`.
std::vector<int64_t> stored_shape(const NamedTensor& t) {
  std::vector<int64_t> shape;
  for (int i = 0; i < t.tensor.shape.rank(); ++i) shape.push_back(t.tensor.shape[i]);
  if (t.conv1d) std::ranges::reverse(shape);
  return shape;
}

// The entry of that name, dtype and shape checked.
const Entry& require(const Safetensors& file, const std::string& name, const std::vector<int64_t>& shape) {
  const Entry* entry = find(file, name);
  if (!entry) throw InputError(cat(file.path(), ": no tensor ", name, "; use a GPT-2 checkpoint"));
  if (entry->dtype != "F32" && entry->dtype != "F16" && entry->dtype != "BF16")
    throw InputError(cat(file.path(), ": ", name, " is ", entry->dtype, "; save it as F32, F16 or BF16"));
  if (entry->shape != shape)
    throw InputError(cat(file.path(), ": ", name, " has shape ", json(entry->shape).dump(),
                         ", the model's is ", json(shape).dump(),
                         "; choose the --model that the checkpoint is of"));
  return *entry;
}

// What Hugging Face's GPT-2 files hold besides the parameters, by name without prefix.
bool is_mask(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

// Heads as noted in the file, or in a config.json beside it.
std::optional<int64_t> heads_beside(const Safetensors& file) {
  const auto noted = file.metadata().find(kConfigKey);
  if (noted != file.metadata().end()) return heads_of(cat(file.path(), " metadata"), noted->second);
  const auto beside = config_beside(file.path());
  if (!std::filesystem::exists(beside)) return std::nullopt;
  return heads_of(beside.string(), MappedFile(beside.string()).text());
}

Config config_of(const Safetensors& file) {
  const auto matrix = [&](const char* name) {
    const Entry* entry = find(file, name);
    if (!entry || entry->shape.size() != 2)
      throw InputError(cat(file.path(), ": no matrix ", name, "; use a GPT-2 checkpoint"));
    return entry->shape;
  };
  Config config;
  const auto wte = matrix("wte.weight"), wpe = matrix("wpe.weight");
  config.V = wte[0];
  config.C = wte[1];
  config.max_T = wpe[0];
  config.L = 0;
  while (find(file, cat("h.", config.L, ".ln_1.weight"))) ++config.L;

  const std::optional<int64_t> heads = heads_beside(file);
  if (!heads && config.C % 64 != 0)
    throw InputError(cat(file.path(), ": cannot tell the heads of ", config.C,
                         " channels; put the model's config.json beside it"));
  config.NH = heads.value_or(config.C / 64);
  config = named_by_shape(config);
  config.validate();
  return config;
}

void load_safetensors(const Safetensors& file, Ops& ops, const Params& params) {
  std::vector<float> values, transposed;
  const std::vector<NamedTensor> all = params.each();
  for (const NamedTensor& t : all) {
    const std::vector<int64_t> shape = stored_shape(t);
    const Entry& entry = require(file, t.name, shape);
    convert(values, entry.dtype, entry.bytes);
    if (t.conv1d) transpose(transposed, values, shape[0], shape[1]);
    ops(Upload{t.tensor, (t.conv1d ? transposed : values).data()});
  }

  for (const auto& [spelled, entry] : file.tensors()) {
    const std::string name = without_prefix(spelled);
    if (name == "lm_head.weight") {
      const Entry& wte = *find(file, "wte.weight");
      if (entry.shape != wte.shape || entry.dtype != wte.dtype || !std::ranges::equal(entry.bytes, wte.bytes))
        throw InputError(cat(file.path(), ": lm_head.weight is not wte.weight; GPT-2 ties them"));
    } else if (!is_mask(name) && !name.starts_with("stepladder.") &&
               std::ranges::find(all, name, &NamedTensor::name) == all.end()) {
      throw InputError(
          cat(file.path(), ": unknown tensor ", json(spelled).dump(), "; use a GPT-2 checkpoint"));
    }
  }
}

// `outputs` have the names that they get in the file.
void write_tensors(const std::string& path, Ops& ops, const std::vector<NamedTensor>& outputs,
                   std::map<std::string, std::string> metadata, const Config& config) {
  metadata["format"] = "pt";
  metadata[kConfigKey] = hugging_face_config(config).dump();
  std::vector<SafetensorsWriter::Item> items;
  for (const NamedTensor& t : outputs) items.push_back({t.name, stored_shape(t)});
  SafetensorsWriter file(path, items, metadata);
  std::vector<float> values, transposed;
  for (const NamedTensor& t : outputs) {
    values.resize(static_cast<size_t>(t.tensor.numel()));
    ops(Download{values.data(), t.tensor});
    if (t.conv1d) transpose(transposed, values, t.tensor.shape[0], t.tensor.shape[1]);
    file.append(t.conv1d ? transposed : values);
  }
  file.commit();
}

std::vector<NamedTensor> weights_of(const Params& params) {
  std::vector<NamedTensor> outputs = params.each();
  for (NamedTensor& t : outputs) t.name.insert(0, kPrefix);
  return outputs;
}

// The optimizer's state under its names in a resume checkpoint, as we hold it: AdamW's moments and, where
// there is one, the loss scaler or the history that FP8's scales come from.
constexpr const char* kLossScaler = "stepladder.loss_scaler";
constexpr const char* kFp8History = "stepladder.fp8_history";

std::vector<NamedTensor> optimizer_state_of(const Trainer& trainer) {
  const TrainerTensors own = trainer.tensors();
  std::vector<NamedTensor> outputs;
  for (const auto& [kind, moments] : {std::pair("m", &own.adam_m), std::pair("v", &own.adam_v)}) {
    for (NamedTensor t : moments->each()) {
      t.name = cat("stepladder.", kind, ".", t.name);
      t.conv1d = false;
      outputs.push_back(std::move(t));
    }
  }
  if (own.loss_scaler.data) outputs.push_back({kLossScaler, own.loss_scaler});
  if (own.fp8_history.data) outputs.push_back({kFp8History, own.fp8_history});
  return outputs;
}

template <class Integer>
Integer state_field(const Safetensors& file, const std::string& key) {
  const auto it = file.metadata().find(key);
  if (it == file.metadata().end())
    throw InputError(cat(file.path(), ": holds no optimizer state (", key, "); load it as weights instead"));
  const auto value = number_from<Integer>(it->second);
  if (!value || std::cmp_less(*value, 0))
    throw InputError(
        cat(file.path(), ": ", key, " is no count; the checkpoint is damaged, use an older one"));
  return *value;
}

}  // namespace

void load_weights(const std::string& path, Ops& ops, const Params& params, const Config& config) {
  const MappedFile file(path);
  if (is_llmc(file.bytes())) {
    const Llmc llmc = read_llmc(path, file.bytes());
    if (!same_model(llmc.config, config))
      throw InputError(cat(path, ": is of ", describe(llmc.config), ", the model is ", describe(config),
                           "; choose the --model that the checkpoint is of"));
    load_llmc(llmc, ops, params);
    return;
  }
  const Safetensors tensors(path);
  const int64_t heads = heads_beside(tensors).value_or(config.NH);
  if (heads != config.NH)
    throw InputError(cat(path, ": has ", heads, " heads, the model has ", config.NH,
                         "; choose the --model that the checkpoint is of"));
  load_safetensors(tensors, ops, params);
}

void save_weights(const std::string& path, Ops& ops, const Params& params, const Config& config) {
  write_tensors(path, ops, weights_of(params), {}, config);
  const auto beside = config_beside(path);
  if (std::filesystem::exists(beside)) return;
  write_atomically(beside.string(), hugging_face_config(config).dump(2) + "\n");
}

Config config_of_checkpoint(const std::string& path) {
  const MappedFile file(path);
  if (is_llmc(file.bytes())) return read_llmc(path, file.bytes()).config;
  return config_of(Safetensors(path));
}

void save_checkpoint(const std::string& path, Ops& ops, const Trainer& trainer, const TrainState& state) {
  std::vector<NamedTensor> outputs = weights_of(trainer.tensors().params);
  std::ranges::move(optimizer_state_of(trainer), std::back_inserter(outputs));
  write_tensors(path, ops, outputs,
                {{"stepladder.step", std::to_string(state.step)},
                 {"stepladder.batch", std::to_string(state.batch)},
                 {"stepladder.seed", std::to_string(state.seed)}},
                trainer.config);
}

TrainState load_checkpoint(const std::string& path, Ops& ops, Trainer& trainer, const Config& config) {
  const Safetensors file(path);
  const TrainState state{state_field<int64_t>(file, "stepladder.step"),
                         state_field<int64_t>(file, "stepladder.batch"),
                         state_field<uint64_t>(file, "stepladder.seed")};
  load_weights(path, ops, trainer.tensors().params, config);
  std::vector<float> values;
  for (const NamedTensor& t : optimizer_state_of(trainer)) {
    const bool optional = t.name == kLossScaler || t.name == kFp8History;
    if (optional && !find(file, t.name)) continue;  // written by a rung that has none
    const std::vector<int64_t> shape = stored_shape(t);
    const Entry& entry = require(file, t.name, shape);
    convert(values, entry.dtype, entry.bytes);
    ops(Upload{t.tensor, values.data()});
  }
  return state;
}

}  // namespace stepladder
