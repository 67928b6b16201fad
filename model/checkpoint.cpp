#include "model/checkpoint.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "model/atomic_file.h"
#include "model/error.h"
#include "model/file_kind.h"
#include "model/half.h"
#include "model/mapped_file.h"
#include "model/number.h"
#include "model/safetensors.h"

namespace stepladder {
namespace {

using nlohmann::json;

constexpr int32_t kLlmcF32 = 3, kLlmcBf16 = 5;
constexpr std::string_view kPrefix = "transformer.", kHead = "lm_head.";  // parts of Hugging Face's names
constexpr std::string_view kOwnPrefix = "stepladder.";  // prefix of tensors that only Stepladder writes
constexpr const char* kConfigKey = "stepladder.config";
constexpr int64_t kMostExtent = 1 << 20, kMostLayers = 1024;  // int64_t counts all parameters

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

void check_finite(const std::string& path, const std::string& name, const std::vector<float>& values) {
  const auto bad = std::ranges::find_if_not(values, [](float x) { return std::isfinite(x); });
  if (bad != values.end())
    throw InputError(cat(path, ": ", name, " has ", std::isnan(*bad) ? "NaN" : "an infinite value",
                         " at position ", bad - values.begin(),
                         ": the run that wrote it diverged; use an older checkpoint"));
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

// The config.json that transformers writes for GPT-2; for another architecture only its name and sizes.
json hugging_face_config(const Config& config, const std::string& architecture) {
  json sizes = {{"architectures", {architecture == kGpt2 ? "GPT2LMHeadModel" : architecture}},
                {"model_type", architecture},
                {"vocab_size", config.V},
                {"n_positions", config.max_T},
                {"n_embd", config.C},
                {"n_layer", config.L},
                {"n_head", config.NH}};
  if (architecture == kGpt2)
    sizes.update({{"activation_function", "gelu_new"}, {"layer_norm_epsilon", 1e-5}});
  return sizes;
}

// `value`, with synonyms of GPT-2's GELU replaced by gelu_new.
json canonical(const json& value) {
  const bool same = value == "gelu_pytorch_tanh" || value == "gelu_fast";
  return same ? json("gelu_new") : value;
}

// The number of heads in a Hugging Face config. Throws for an architecture other than GPT-2's, and for a size
// other than that of `tensors`.
std::optional<int64_t> heads_of(const std::string& path, std::string_view text, const Config& tensors) {
  const json config = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) throw InputError(cat(path, ": no JSON object; get it again or remove it"));
  const json ours = {{"model_type", "gpt2"},
                     {"activation_function", "gelu_new"},
                     {"layer_norm_epsilon", 1e-5},
                     {"scale_attn_weights", true},
                     {"scale_attn_by_inverse_layer_idx", false},
                     {"tie_word_embeddings", true}};
  for (const auto& [key, value] : ours.items())
    if (config.contains(key) && canonical(config[key]) != value)
      throw InputError(cat(path, ": ", key, " is not GPT-2's ", value.dump(), "; use a GPT-2 checkpoint"));
  for (const auto& [key, size] : {std::pair("n_layer", tensors.L), std::pair("n_embd", tensors.C)})
    if (config.contains(key) && config[key] != size)
      throw InputError(cat(path, ": ", key, " is not the ", size,
                           " of the weights beside it; keep each model in a "
                           "folder of its own"));
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

// Throws unless the file's model is the one that is asked for.
void check_same_model(const std::string& path, const Config& file, const Config& config) {
  if (same_model(file, config)) return;
  std::string options;
  for (const auto& [option, own, wanted] :
       {std::tuple("--layers", file.L, config.L), std::tuple("--heads", file.NH, config.NH),
        std::tuple("--channels", file.C, config.C), std::tuple("--vocabulary", file.V, config.V),
        std::tuple("--max-seq", file.max_T, config.max_T)})
    if (own != wanted) options += cat(' ', option, ' ', own);
  throw InputError(cat(path, ": is of ", describe(file), ", the model is ", describe(config),
                       "; leave --model and options of its shape out, or add", options));
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
  return magic == kLlmcWeights;
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
  if (least <= 0 || most > kMostExtent || c.L > kMostLayers || llmc.padded_V < c.V || c.C % c.NH != 0)
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

void load_llmc(const std::string& path, const Llmc& llmc, Ops& ops, const ParameterGroup& params) {
  std::span<const std::byte> rest = llmc.data;
  std::vector<float> values;
  const auto take = [&](const std::string& name, Tensor to, int64_t stored) {
    convert(values, llmc.dtype, rest.first(static_cast<size_t>(to.numel()) * llmc.element));
    check_finite(path, name, values);
    ops(Upload{to, values.data()});
    rest = rest.subspan(static_cast<size_t>(stored) * llmc.element);
  };
  // Take the tensors in the file's order, one layer at a time, so that little is converted at once.
  for (const Parameter& p : params.list()) {
    if (!p.stacked()) {
      const Tensor to = p.unpadded();
      take(p.name, to, p.rows > 0 ? llmc.padded_V * llmc.config.C : to.numel());
    }
    for (int64_t l = 0; p.stacked() && l < llmc.config.L; ++l) take(p.name, p.tensor[l], p.tensor[l].numel());
  }
}

// ---- safetensors -----------------------------------------------------------------------------------------

using Entry = Safetensors::Entry;

// A tensor's name without what wrappers of PyTorch's modules put into it:
// "_orig_mod.transformer.h.0._orig_mod.ln_1.bias".
std::string plain_name(std::string name) {
  if (name.starts_with(kOwnPrefix)) return name;
  name.insert(0, 1, '.');
  for (const std::string_view part : {"._orig_mod.", ".module.", ".model.", ".transformer.",
                                      "._fsdp_wrapped_module.", "._checkpoint_wrapped_module."})
    for (size_t at = 0; (at = name.find(part, at)) != std::string::npos;) name.erase(at, part.size() - 1);
  return name.substr(1);
}

// The shape of `t`, or its reverse where Hugging Face's Conv1D stores the transpose.
std::vector<int64_t> stored_shape(const NamedTensor& t, bool conv1d) {
  std::vector<int64_t> shape;
  for (int i = 0; i < t.tensor.shape.rank(); ++i) shape.push_back(t.tensor.shape[i]);
  if (conv1d) std::ranges::reverse(shape);
  return shape;
}

constexpr const char* kJoin =
    "load it with transformers and write it as one: save_pretrained(FOLDER, max_shard_size='100GB')";
constexpr std::string_view kSave = "save its state_dict with safetensors.torch.save_file";

// Throws for a file that is one of several, by its name: model-00001-of-00002.safetensors.
void check_is_whole(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  const size_t of = name.find("-of-");
  const auto files = of == std::string::npos ? std::nullopt : number_from<int>(name.substr(of + 4, 5));
  if (files && *files > 1) throw InputError(cat(path, ": is one of ", *files, " files of a model; ", kJoin));
}

// The kind of a file that begins with `head` and has no usable weights; unknown where it may have weights.
FileKind kind_without_weights(std::string_view head) {
  const FileKind kind = kind_of(head);
  if (kind.what == kSafetensors) return {};
  if (kind.known()) return {kind.what, head.starts_with("PK") ? kSave : kind.cure};
  const bool pickle = head.starts_with('\x80') && head.size() > 1 && head[1] >= 2 && head[1] <= 5;
  if (pickle) return {"a Python pickle, as PyTorch's .pt once was", kSave};
  if (!head.starts_with('{')) return {};
  if (head.find("\"weight_map\"") == std::string_view::npos) return {"JSON", ""};
  return {"the index of a model in several files", kJoin};
}

void check_holds_weights(const std::string& path, const MappedFile& file) {
  const FileKind kind = kind_without_weights(file.text().substr(0, kFileHead));
  if (kind.known())
    throw InputError(
        cat(path, ": is ", kind.what, ", not weights of GPT-2; ",
            kind.cure.empty() ? "name its model.safetensors, or llm.c's gpt2_124M.bin" : kind.cure));
}

// The tensors of a safetensors file by GPT-2's names, without "transformer.".
class WeightsFile {
 public:
  // Opens the file. Throws as Safetensors does, and for a tensor that is there under two names.
  explicit WeightsFile(const std::string& path) : file_(path) {
    for (const auto& [spelled, entry] : file_.tensors())
      if (const auto [at, added] = by_name_.emplace(plain_name(spelled), &entry); !added)
        throw InputError(
            cat(path, ": holds ", at->first, " twice, as ", json(spelled).dump(), " too; remove one"));
    if (!find("wte.weight") && find("lm_head.weight")) by_name_["wte.weight"] = find("lm_head.weight");
    const Entry* qkv = find("h.0.attn.c_attn.weight");
    conv1d_ = !qkv || qkv->shape.size() != 2 || qkv->shape[0] != 3 * qkv->shape[1];
  }

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, std::string>& metadata() const { return file_.metadata(); }
  const std::map<std::string, const Entry*>& tensors() const { return by_name_; }
  // Whether matrices are stored (in,out), not as nn.Linear has them.
  bool conv1d() const { return conv1d_; }

  const Entry* find(const std::string& name) const {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : it->second;
  }

  // The entry of that name, dtype and shape checked.
  const Entry& require(const std::string& name, const std::vector<int64_t>& shape) const {
    const Entry* entry = find(name);
    if (!entry) throw InputError(cat(path(), ": no tensor ", name, "; use a GPT-2 checkpoint"));
    if (entry->dtype != "F32" && entry->dtype != "F16" && entry->dtype != "BF16")
      throw InputError(cat(path(), ": ", name, " is ", entry->dtype, "; save it as F32, F16 or BF16"));
    if (entry->shape != shape)
      throw InputError(cat(path(), ": ", name, " has shape ", json(entry->shape).dump(), ", GPT-2's is ",
                           json(shape).dump(), "; use a GPT-2 checkpoint"));
    return *entry;
  }

 private:
  Safetensors file_;
  std::map<std::string, const Entry*> by_name_;
  bool conv1d_ = true;
};

// The config noted in weights that Stepladder wrote for an architecture other than GPT-2's; else null.
json own_config(const WeightsFile& file) {
  const auto noted = file.metadata().find(kConfigKey);
  if (noted == file.metadata().end()) return {};
  json config = json::parse(noted->second, nullptr, /*allow_exceptions=*/false);
  const bool own = config.is_object() && config.value("model_type", json(kGpt2)).is_string() &&
                   config.value("model_type", kGpt2) != kGpt2;
  return own ? config : json();
}

std::string architecture_of(const WeightsFile& file) {
  const json own = own_config(file);
  return own.is_null() ? kGpt2 : own["model_type"].get<std::string>();
}

// Throws unless the architecture of a file is that of the trainer.
void check_same_architecture(const std::string& path, const std::string& file, const std::string& trainer) {
  if (file == trainer) return;
  throw InputError(cat(path, ": its architecture is ", json(file).dump(), ", the trainer's ",
                       json(trainer).dump(), "; name a file that such a trainer wrote, or none"));
}

// Whether a tensor is something else than a GPT-2 parameter: a mask, the optimizer's state, another head.
bool is_beside_gpt2(const std::string& name) {
  if (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")) return true;
  constexpr std::string_view kParts[] = {"h.", "wte.", "wpe.", "ln_f.", "lm_head."};
  return std::ranges::none_of(kParts, [&](std::string_view part) { return name.starts_with(part); });
}

// The number of heads noted in the file, or in a config.json beside it.
std::optional<int64_t> heads_beside(const WeightsFile& file, const Config& tensors) {
  const auto noted = file.metadata().find(kConfigKey);
  if (noted != file.metadata().end()) return heads_of(cat(file.path(), " metadata"), noted->second, tensors);
  const auto beside = config_beside(file.path());
  if (!std::filesystem::exists(beside)) return std::nullopt;
  return heads_of(beside.string(), MappedFile(beside.string()).text(), tensors);
}

// The config of GPT-2 weights, from their tensors; with `otherwise` heads where nothing notes their number.
Config config_of_gpt2(const WeightsFile& file, std::optional<int64_t> otherwise) {
  const auto matrix = [&](const char* name) {
    const Entry* entry = file.find(name);
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
  while (file.find(cat("h.", config.L, ".ln_1.weight"))) ++config.L;
  if (config.L == 0)
    throw InputError(cat(file.path(), ": no tensor h.0.ln_1.weight; use a GPT-2 checkpoint"));

  const std::optional<int64_t> told = heads_beside(file, config), heads = told ? told : otherwise;
  if (!heads && config.C % 64 != 0)
    throw InputError(cat(file.path(), ": cannot tell the heads of ", config.C,
                         " channels; put the model's config.json beside it"));
  config.NH = heads.value_or(config.C / 64);
  return config;
}

// The sizes that the config of an architecture other than GPT-2's notes.
Config noted_sizes(const WeightsFile& file, const json& noted) {
  Config config;
  for (const auto& [key, size] :
       {std::pair("vocab_size", &config.V), std::pair("n_positions", &config.max_T),
        std::pair("n_embd", &config.C), std::pair("n_layer", &config.L), std::pair("n_head", &config.NH)}) {
    const int64_t most = size == &config.L ? kMostLayers : kMostExtent;
    if (!noted.contains(key) || !noted[key].is_number_integer() || noted[key] < 1 || noted[key] > most)
      throw InputError(
          cat(file.path(), " metadata: ", key, " is no size from 1 to ", most, "; use an older checkpoint"));
    *size = noted[key].get<int64_t>();
  }
  return config;
}

// The config of a file; with `otherwise` heads where nothing notes their number.
Config config_of(const WeightsFile& file, std::optional<int64_t> otherwise) {
  const json noted = own_config(file);
  Config config = noted.is_null() ? config_of_gpt2(file, otherwise) : noted_sizes(file, noted);
  config = named_by_shape(config);
  try {
    config.validate();
  } catch (const InputError& error) {
    throw InputError(cat(file.path(), ": ", error.what(), "; use another checkpoint"));
  }
  return config;
}

void load_safetensors(const WeightsFile& file, Ops& ops, const ParameterGroup& params) {
  std::vector<float> values, transposed;
  const std::vector<NamedTensor> all = params.each();
  const auto declared = [&](const std::string& name) {
    return std::ranges::find(all, name, &NamedTensor::name) != all.end();
  };
  for (const NamedTensor& t : all) {
    const bool conv1d = t.conv1d && file.conv1d();
    const std::vector<int64_t> shape = stored_shape(t, conv1d);
    const Entry& entry = file.require(t.name, shape);
    convert(values, entry.dtype, entry.bytes);
    check_finite(file.path(), t.name, values);
    if (conv1d) transpose(transposed, values, shape[0], shape[1]);
    ops(Upload{t.tensor, (conv1d ? transposed : values).data()});
  }

  for (const auto& [name, entry] : file.tensors()) {
    if (declared(name)) continue;
    if (name == "lm_head.weight") {
      const Entry& wte = *file.find("wte.weight");
      if (entry->shape != wte.shape || entry->dtype != wte.dtype ||
          !std::ranges::equal(entry->bytes, wte.bytes))
        throw InputError(cat(file.path(), ": lm_head.weight is not wte.weight; GPT-2 ties them"));
    } else if (!is_beside_gpt2(name)) {
      throw InputError(cat(file.path(), ": unknown tensor ", json(name).dump(), "; use a GPT-2 checkpoint"));
    }
  }
}

// Writes `outputs`, which bear the names that they get in the file.
void write_tensors(const std::string& path, Ops& ops, const std::vector<NamedTensor>& outputs,
                   std::map<std::string, std::string> metadata, const Config& config,
                   const std::string& architecture) {
  metadata["format"] = "pt";
  metadata[kConfigKey] = hugging_face_config(config, architecture).dump();
  std::vector<SafetensorsWriter::Item> items;
  for (const NamedTensor& t : outputs) items.push_back({t.name, stored_shape(t, t.conv1d)});
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

// The weights under the names that they get in a file. Throws std::logic_error for parameters that aren't
// GPT-2's but would be written as "gpt2".
std::vector<NamedTensor> weights_of(const ParameterGroup& params, const Config& config,
                                    const std::string& architecture) {
  std::vector<NamedTensor> outputs = params.each();
  if (architecture == kGpt2) {
    Arena plan;
    const auto gpt2 = Params(plan, "params", config).each();
    if (!std::ranges::equal(outputs, gpt2, {}, &NamedTensor::name, &NamedTensor::name))
      throw std::logic_error("parameters that are not GPT-2's, without an architecture of their own");
  }
  for (NamedTensor& t : outputs)
    if (!t.name.starts_with(kHead)) t.name.insert(0, kPrefix);
  return outputs;
}

// Names of tensors in a resume checkpoint.
constexpr const char* kLossScaler = "stepladder.loss_scaler";
constexpr const char* kFp8History = "stepladder.fp8_history";

/// The optimizer's state under its names in a resume checkpoint: the trainer's states, such as AdamW's
/// moments, and its loss scaler or FP8 history, if any.
std::vector<NamedTensor> optimizer_state_of(const Trainer& trainer) {
  const TrainerTensors own = trainer.tensors();
  std::vector<NamedTensor> outputs;
  for (const OptimizerState& state : own.states) {
    for (NamedTensor t : state.group.each()) {
      t.name = cat("stepladder.", state.name, ".", t.name);
      t.conv1d = false;
      outputs.push_back(std::move(t));
    }
  }
  if (own.loss_scaler.data) outputs.push_back({kLossScaler, own.loss_scaler});
  if (own.fp8_history.data) outputs.push_back({kFp8History, own.fp8_history});
  return outputs;
}

template <class Integer>
Integer state_field(const WeightsFile& file, const std::string& key) {
  const auto it = file.metadata().find(key);
  if (it == file.metadata().end())
    throw InputError(cat(file.path(), ": holds no optimizer state (", key, "); start from it with --init"));
  const auto value = number_from<Integer>(it->second);
  if (!value || std::cmp_less(*value, 0))
    throw InputError(
        cat(file.path(), ": ", key, " is no count; the checkpoint is damaged, use an older one"));
  return *value;
}

// Opens a file of weights. Throws if it holds none, or is one of a model's several files.
WeightsFile open_weights(const std::string& path, const MappedFile& file) {
  check_holds_weights(path, file);
  check_is_whole(path);
  return WeightsFile(path);
}

}  // namespace

void load_weights(const std::string& path, Ops& ops, const ParameterGroup& params, const Config& config,
                  const std::string& architecture) {
  const MappedFile file(path);
  if (is_llmc(file.bytes())) {
    check_same_architecture(path, kGpt2, architecture);
    const Llmc llmc = read_llmc(path, file.bytes());
    check_same_model(path, llmc.config, config);
    load_llmc(path, llmc, ops, params);
    return;
  }
  const WeightsFile tensors = open_weights(path, file);
  check_same_architecture(path, architecture_of(tensors), architecture);
  check_same_model(path, config_of(tensors, config.NH), config);
  load_safetensors(tensors, ops, params);
}

void check_config_beside(const std::string& path, const Config& config, const std::string& architecture) {
  const std::string beside = config_beside(path).string();
  if (!std::filesystem::exists(beside)) return;
  const json there = json::parse(MappedFile(beside).text(), nullptr, /*allow_exceptions=*/false);
  const auto refuse = [&](const auto&... what) {
    throw InputError(
        cat(beside, ": ", what..., ", and would be read with the weights; save them to another folder"));
  };
  if (!there.is_object()) refuse("is no model's config");
  json theirs = hugging_face_config(Config::named("gpt2"), kGpt2);  // GPT2Config's defaults
  theirs.update(there);
  const json ours = hugging_face_config(config, architecture);
  for (const auto& [key, value] : ours.items())
    if (key != "architectures" && canonical(theirs[key]) != value)
      refuse(key, " is ", theirs[key].dump(-1, ' ', true, json::error_handler_t::replace), ", the weights' ",
             value.dump());
}

void save_weights(const std::string& path, Ops& ops, const ParameterGroup& params, const Config& config,
                  const std::string& architecture) {
  check_config_beside(path, config, architecture);
  write_tensors(path, ops, weights_of(params, config, architecture), {}, config, architecture);
  const auto beside = config_beside(path);
  if (std::filesystem::exists(beside)) return;
  write_atomically(beside.string(), hugging_face_config(config, architecture).dump(2) + "\n");
}

Config config_of_checkpoint(const std::string& path) {
  const MappedFile file(path);
  if (is_llmc(file.bytes())) return read_llmc(path, file.bytes()).config;
  return config_of(open_weights(path, file), std::nullopt);
}

void save_checkpoint(const std::string& path, Ops& ops, const Trainer& trainer, const TrainState& state) {
  std::vector<NamedTensor> outputs =
      weights_of(trainer.tensors().params, trainer.config, trainer.architecture());
  std::ranges::move(optimizer_state_of(trainer), std::back_inserter(outputs));
  write_tensors(path, ops, outputs,
                {{"stepladder.step", std::to_string(state.step)},
                 {"stepladder.batch", std::to_string(state.batch)},
                 {"stepladder.seed", std::to_string(state.seed)}},
                trainer.config, trainer.architecture());
}

TrainState load_checkpoint(const std::string& path, Ops& ops, Trainer& trainer, const Config& config) {
  const MappedFile mapped(path);
  if (is_llmc(mapped.bytes()))
    throw InputError(
        cat(path, ": is llm.c's weights, without the optimizer's state; start from them with --init"));
  const WeightsFile file = open_weights(path, mapped);
  const TrainState state{state_field<int64_t>(file, "stepladder.step"),
                         state_field<int64_t>(file, "stepladder.batch"),
                         state_field<uint64_t>(file, "stepladder.seed")};
  load_weights(path, ops, trainer.tensors().params, config, trainer.architecture());
  std::vector<float> values;
  for (const NamedTensor& t : optimizer_state_of(trainer)) {
    const bool optional = t.name == kLossScaler || t.name == kFp8History;
    if (!file.find(t.name)) {
      if (optional) continue;  // the rung that wrote the file has no such state
      throw InputError(cat(path, ": no ", t.name, ", of an optimizer that the rung which wrote it has not; ",
                           "start from its weights with --init"));
    }
    const Entry& entry = file.require(t.name, stored_shape(t, t.conv1d));
    convert(values, entry.dtype, entry.bytes);
    ops(Upload{t.tensor, values.data()});
  }
  return state;
}

}  // namespace stepladder
