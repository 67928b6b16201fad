// Checkpoints: files of Hugging Face and llm.c, a round trip of our own, and damage to each kind.
#include "model/checkpoint.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "model/random.h"
#include "model/safetensors.h"
#include "tests/built.h"
#include "tests/files.h"

namespace stepladder {
namespace {

using nlohmann::json;

const std::string kHuggingFace = STEPLADDER_TEST_DATA "/hf_parity/model.safetensors";

// The configuration of tests/data/hf_parity.
Config tiny() {
  Config config;
  config.model = "custom";
  config.T = config.max_T = 16;
  config.V = 128;
  config.L = 2;
  config.NH = 2;
  config.C = 32;
  return config;
}

// A model's parameters in CPU memory.
struct Model {
  explicit Model(const Config& c = tiny()) : config(c) {
    arena = planned_arena(*ops, [&](Arena& plan) { Params(plan, "params", config); });
    params = Params(*arena, "params", config);
  }
  // Gives each element a different number.
  void fill() {
    float next = 0.25F;
    for (const NamedTensor& t : params.each())
      for (float& x : values(t.tensor)) x = next += 0.25F;
  }
  void load(const std::string& path) { load_weights(path, *ops, params, config, kGpt2); }
  static std::span<float> values(const Tensor& t) { return {t.ptr<float>(), static_cast<size_t>(t.numel())}; }

  Config config;
  std::unique_ptr<Ops> ops = make_cpu_ops();
  std::unique_ptr<Arena> arena;
  Params params;
};

void expect_equal(const ParameterGroup& a, const ParameterGroup& b,
                  const std::function<float(float)>& of = std::identity()) {
  const auto as = a.each(), bs = b.each();
  ASSERT_EQ(as.size(), bs.size());
  for (size_t i = 0; i < as.size(); ++i) {
    const auto x = Model::values(as[i].tensor), y = Model::values(bs[i].tensor);
    ASSERT_EQ(x.size(), y.size()) << as[i].name;
    for (size_t j = 0; j < x.size(); ++j)
      ASSERT_EQ(std::bit_cast<uint32_t>(x[j]), std::bit_cast<uint32_t>(of(y[j]))) << as[i].name << ' ' << j;
  }
}

// ---- the safetensors format ------------------------------------------------------------------------------

std::string container(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header + data;
}

// The header of a safetensors file as JSON, and its data.
std::pair<json, std::string> parts_of(const std::string& file) {
  uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof size);
  return {json::parse(file.substr(8, size)), file.substr(8 + size)};
}

struct Damage {
  const char* name;
  std::string bytes;
  std::string says, also = "";
};

class DamagedSafetensors : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedSafetensors, IsRefusedByNameAndReason) {
  const TempFolder folder;
  write_file(folder / "x.safetensors", GetParam().bytes);
  const std::string what = input_error([&] { Safetensors(folder / "x.safetensors"); });
  EXPECT_TRUE(says(what, {"x.safetensors", GetParam().says, GetParam().also}));
}

constexpr const char* kA = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";

std::string with(const std::string& entries, size_t data) {
  return container("{" + entries + "}", std::string(data, 'x'));
}

INSTANTIATE_TEST_SUITE_P(
    All, DamagedSafetensors,
    ::testing::Values(
        Damage{"empty", "", "0 bytes"}, Damage{"short", "1234567", "7 bytes"},
        Damage{"header_beyond_the_file", std::string("\x09\0\0\0\0\0\0\0{}", 10), "9 bytes"},
        Damage{"header_size_wraps", std::string(8, '\xFF') + "{}", "18446744073709551615"},
        Damage{"no_json", container("{", ""), "JSON"}, Damage{"no_object", container("[]", ""), "JSON"},
        Damage{"no_utf8", container("{\"\xFF\":1}", ""), "JSON"},
        Damage{"two_objects", container("{}{}", ""), "JSON"},
        Damage{"duplicate", with(std::string(kA) + "," + kA, 8), "distinct"},
        Damage{"deep", container("{\"a\":" + std::string(1'000'000, '['), ""), "JSON"},
        Damage{"deep_object", with(R"("a":{"b":{"c":{"d":{"e":1}}}})", 0), "JSON"},
        Damage{"entry_no_object", with("\"a\":1", 0), "tensor \"a\" wants"},
        Damage{"no_dtype", with(R"("a":{"shape":[2],"data_offsets":[0,8]})", 8), "\"a\" wants dtype"},
        Damage{"no_shape", with(R"("a":{"dtype":"F32","data_offsets":[0,8]})", 8), "\"a\" wants"},
        Damage{"negative_extent", with(R"("a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", 8),
               "wants"},
        Damage{"float_extent", with(R"("a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})", 8), "wants"},
        Damage{"three_offsets", with(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]})", 8),
               "wants"},
        Damage{"beyond_the_data", with(kA, 7), "[0,8)", "7 bytes"},
        Damage{"backwards", with(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]})", 8), "[8,0)"},
        Damage{"wrong_size", with(R"("a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]})", 8), "F32 [3]"},
        Damage{"shape_overflows",
               with(R"("a":{"dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8]})", 8),
               "8 bytes"},
        Damage{"overlap",
               with(std::string(kA) + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]})", 12),
               "overlap", "\"b\""},
        Damage{"same_place",
               with(std::string(kA) + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 8),
               "overlaps"},
        Damage{"hole",
               with(std::string(kA) + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[9,13]})", 13),
               "hole", "\"b\""},
        Damage{"data_left", with(kA, 9), "1 bytes"},
        Damage{"metadata_no_object", with(R"("__metadata__":[])", 0), "__metadata__"},
        Damage{"metadata_no_text", with(R"("__metadata__":{"a":1})", 0), "metadata \"a\""},
        Damage{"name_of_two_lines", with(R"("a\nb":1)", 0), "a\\nb"}),
    [](const auto& test) { return test.param.name; });

TEST(Safetensors, TakesWhatTheFormatAllows) {
  const TempFolder folder;
  write_file(
      folder / "x",
      with(std::string(R"("__metadata__":null,"b":{"dtype":"F4","shape":[3,2],"data_offsets":[8,11]},)") + kA,
           11));
  const Safetensors file(folder / "x");
  EXPECT_TRUE(file.metadata().empty());
  EXPECT_EQ(file.tensors().at("b").dtype, "F4");
  EXPECT_EQ(file.tensors().at("b").bytes.size(), 3U);
}

TEST(Safetensors, ReadsWhatItWrites) {
  const TempFolder folder;
  const std::vector<float> a = {1, 2, 3, 4, 5, 6}, b = {7};
  SafetensorsWriter writer(folder / "x", {{"z", {2, 3}}, {"none", {0, 3}}, {"b", {}}},
                           {{"key", "a \"value\""}});
  writer.append(a);
  writer.append({});
  EXPECT_THROW(writer.commit(), std::logic_error);
  writer.append(b);
  EXPECT_THROW(writer.append(b), std::logic_error);
  writer.commit();

  const Safetensors file(folder / "x");
  EXPECT_EQ(file.metadata().at("key"), "a \"value\"");
  EXPECT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(file.tensors().at("z").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(file.tensors().at("z").bytes.data(), a.data(), 24), 0);
  EXPECT_EQ(std::memcmp(file.tensors().at("b").bytes.data(), b.data(), 4), 0);
}

// ---- Hugging Face's files --------------------------------------------------------------------------------

TEST(HuggingFace, TellsTheConfig) {
  const Config config = config_of_checkpoint(kHuggingFace);
  EXPECT_EQ(config.L, 2);
  EXPECT_EQ(config.NH, 2);
  EXPECT_EQ(config.C, 32);
  EXPECT_EQ(config.V, 128);
  EXPECT_EQ(config.max_T, 16);
  EXPECT_EQ(config.T, 16);
  EXPECT_EQ(config.model, "custom");
}

TEST(HuggingFace, Conv1dWeightsAreTransposed) {
  Model model;
  model.load(kHuggingFace);
  const Safetensors file(kHuggingFace);
  const auto stored = [&](const std::string& name, size_t at) {
    float value = 0;
    std::memcpy(&value, file.tensors().at("transformer." + name).bytes.data() + at * sizeof value,
                sizeof value);
    return value;
  };
  constexpr size_t C = 32;
  const auto qkvw = Model::values(model.params.qkvw[1]), fcprojw = Model::values(model.params.fcprojw[0]);
  EXPECT_EQ(qkvw[70 * C + 3], stored("h.1.attn.c_attn.weight", 3 * 3 * C + 70));
  EXPECT_EQ(fcprojw[5 * 4 * C + 100], stored("h.0.mlp.c_proj.weight", 100 * C + 5));
  EXPECT_EQ(Model::values(model.params.wte)[7 * C + 1], stored("wte.weight", 7 * C + 1));
}

TEST(HuggingFace, SavingWritesTheSameTensors) {
  const TempFolder folder;
  Model model;
  model.load(kHuggingFace);
  save_weights(folder / "model.safetensors", *model.ops, model.params, model.config, kGpt2);
  const Safetensors theirs(kHuggingFace), ours(folder / "model.safetensors");
  ASSERT_EQ(ours.tensors().size(), theirs.tensors().size());
  for (const auto& [name, entry] : theirs.tensors()) {
    ASSERT_TRUE(ours.tensors().contains(name)) << name;
    EXPECT_EQ(ours.tensors().at(name).shape, entry.shape) << name;
    EXPECT_TRUE(std::ranges::equal(ours.tensors().at(name).bytes, entry.bytes)) << name;
  }
  EXPECT_EQ(ours.metadata().at("format"), "pt");
  const json config = json::parse(read_file(folder / "config.json"));
  EXPECT_EQ(config["n_head"], 2);
  EXPECT_EQ(config["architectures"], json({"GPT2LMHeadModel"}));
}

TEST(HuggingFace, AConfigThatIsThereStaysIfItIsTheModels) {
  const std::string shape = R"("n_layer": 2, "n_embd": 32, "vocab_size": 128, "n_positions": 16)";
  const auto save_beside = [](const std::string& config) {
    const TempFolder folder;
    write_file(folder / "config.json", config);
    const Model model;
    const auto save = [&] {
      save_weights(folder / "model.safetensors", *model.ops, model.params, model.config, kGpt2);
    };
    std::string error;
    try {
      save();
    } catch (const InputError&) {
      error = input_error(save);
    }
    EXPECT_EQ(read_file(folder / "config.json"), config);
    EXPECT_EQ(folder.count(), error.empty() ? 2U : 1U);
    return error;
  };
  EXPECT_EQ(save_beside("{\"n_head\": 2, \"author\": \"me\", " + shape + "}"), "");
  EXPECT_EQ(save_beside(R"({"activation_function": "gelu_pytorch_tanh", "n_head": 2, )" + shape + "}"), "");
  EXPECT_TRUE(says(save_beside("{\"n_head\": 1, " + shape + "}"), {"config.json", "n_head", "1", "2"}));
  EXPECT_TRUE(says(save_beside("{" + shape + "}"), {"config.json", "n_head", "12"}))
      << "GPT-2's, where none is said";
  EXPECT_TRUE(says(save_beside(R"({"n_head": 2, "n_layer": 2})"), {"config.json", "n_embd"}));
  EXPECT_TRUE(says(save_beside(R"({"n_head": 2, "model_type": "llama", )" + shape + "}"),
                   {"config.json", "model_type"}));
  EXPECT_TRUE(says(save_beside("mine"), {"config.json"}));
}

void expect_loads_as_hugging_faces(const std::string& bytes) {
  const TempFolder folder;
  write_file(folder / "x.safetensors", bytes);
  std::filesystem::copy_file(STEPLADDER_TEST_DATA "/hf_parity/config.json", folder / "config.json");
  Model expected, model;
  expected.load(kHuggingFace);
  model.load(folder / "x.safetensors");
  expect_equal(model.params, expected.params);
  EXPECT_EQ(config_of_checkpoint(folder / "x.safetensors").L, 2);
}

TEST(HuggingFace, NamesWithoutPrefixMasksAndATiedHeadAreAccepted) {
  auto [header, data] = parts_of(read_file(kHuggingFace));
  json renamed;
  for (const auto& [name, value] : header.items())
    renamed[name.starts_with("transformer.") ? name.substr(12) : name] = value;
  const auto [begin, end] = renamed["wte.weight"]["data_offsets"].get<std::pair<size_t, size_t>>();
  const auto append = [&, &data = data](const std::string& name, const char* dtype, const json& shape,
                                        const std::string& bytes) {
    renamed[name] = {
        {"dtype", dtype}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
  };
  append("lm_head.weight", "F32", renamed["wte.weight"]["shape"], data.substr(begin, end - begin));
  append("h.0.attn.bias", "BOOL", {1, 1, 16, 16}, std::string(256, '\1'));
  append("h.0.attn.masked_bias", "F32", json::array(), std::string(4, '\0'));
  expect_loads_as_hugging_faces(container(renamed.dump(), data));
}

// The file kHuggingFace with its tensors renamed.
std::string renamed(const std::function<std::string(const std::string& name)>& rename) {
  const auto [header, data] = parts_of(read_file(kHuggingFace));
  json names;
  for (const auto& [name, value] : header.items())
    names[name == "__metadata__" ? name : rename(name)] = value;
  return container(names.dump(), data);
}

TEST(HuggingFace, WrappersNamesAreStripped) {
  for (const std::string prefix :
       {"_orig_mod.", "module.", "model.", "module._orig_mod.", "_orig_mod.module."})
    expect_loads_as_hugging_faces(renamed([&](const std::string& name) { return prefix + name; }));
  expect_loads_as_hugging_faces(renamed([](const std::string& name) {  // torch.compile() of one block
    return name.starts_with("transformer.h.1.") ? "transformer.h.1._orig_mod." + name.substr(16) : name;
  }));
}

TEST(HuggingFace, ATensorOfTwoNamesIsRefused) {
  const TempFolder folder;
  auto [header, data] = parts_of(read_file(kHuggingFace));
  header["wpe.weight"] = {
      {"dtype", "F32"}, {"shape", {16, 32}}, {"data_offsets", {data.size(), data.size() + 2048}}};
  write_file(folder / "x.safetensors", container(header.dump(), data + std::string(2048, '\0')));
  EXPECT_TRUE(
      says(input_error([&] { Model().load(folder / "x.safetensors"); }), {"x.safetensors", "wpe.weight"}));
}

TEST(HuggingFace, AHeadWithoutTheEmbeddingItIsTiedToIsBoth) {
  expect_loads_as_hugging_faces(renamed(
      [](const std::string& name) { return name == "transformer.wte.weight" ? "lm_head.weight" : name; }));
}

// nn.Linear stores a weight as (out,in), as in PyTorch models of nanoGPT, llm.c and build-nanogpt.
TEST(HuggingFace, LinearsWeightsAreTakenAsTheyLie) {
  auto [header, data] = parts_of(read_file(kHuggingFace));
  for (auto& [name, value] : header.items()) {
    if (name.find(".c_") == std::string::npos || !name.ends_with(".weight")) continue;
    const auto [rows, cols] = value["shape"].get<std::pair<size_t, size_t>>();
    const size_t begin = value["data_offsets"][0];
    const std::string stored = data.substr(begin, rows * cols * sizeof(float));
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = 0; c < cols; ++c)
        data.replace(begin + (c * rows + r) * sizeof(float), sizeof(float), stored,
                     (r * cols + c) * sizeof(float), sizeof(float));
    value["shape"] = {cols, rows};
  }
  expect_loads_as_hugging_faces(container(header.dump(), data));
}

TEST(HuggingFace, TensorsThatGpt2HasNoPlaceForAreLeftOut) {
  auto [header, data] = parts_of(read_file(kHuggingFace));
  header["scales"] = {{"dtype", "F8_E8M0"}, {"shape", {4}}, {"data_offsets", {data.size(), data.size() + 4}}};
  header["score.weight"] = {
      {"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {data.size() + 4, data.size() + 8}}};
  expect_loads_as_hugging_faces(container(header.dump(), data + "12345678"));
}

TEST(HuggingFace, WeightsThatAreNoNumbersAreCalledThat) {
  const TempFolder folder;
  for (const auto& [value, word] : {std::pair(NAN, "NaN"), std::pair(-INFINITY, "infinite")}) {
    auto [header, data] = parts_of(read_file(kHuggingFace));
    const size_t at = header["transformer.h.1.attn.c_proj.bias"]["data_offsets"][0];
    std::memcpy(data.data() + at + 4, &value, sizeof value);
    write_file(folder / "x.safetensors", container(header.dump(), data));
    EXPECT_TRUE(says(input_error([&] { Model().load(folder / "x.safetensors"); }),
                     {"x.safetensors", "h.1.attn.c_proj.bias", word}));
  }
}

TEST(HuggingFace, AnUntiedHeadIsRefused) {
  const TempFolder folder;
  auto [header, data] = parts_of(read_file(kHuggingFace));
  const auto head = [&, &header = header, &data = data](const json& shape, size_t size) {
    json with_head = header;
    with_head["lm_head.weight"] = {
        {"dtype", "F32"}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + size}}};
    write_file(folder / "x.safetensors", container(with_head.dump(), data + std::string(size, '\0')));
    return input_error([&] { Model().load(folder / "x.safetensors"); });
  };
  EXPECT_TRUE(says(head({128, 32}, 16384), {"x.safetensors", "lm_head.weight"})) << "other values";
  EXPECT_TRUE(says(head({127, 32}, 16256), {"x.safetensors", "lm_head.weight"})) << "another shape";
}

TEST(HuggingFace, HalfPrecisionIsWidenedExactly) {
  const TempFolder folder;
  // 16-bit patterns and their values.
  const std::vector<std::pair<uint16_t, float>> f16 = {
      {0x3C00, 1.0F},          {0xC000, -2.0F},      {0x3555, 0x1.554p-2F},
      {0x7BFF, 65504.0F},      {0x0400, 0x1.0p-14F}, {0x0001, 0x1.0p-24F},
      {0x83FF, -0x1.ff8p-15F}, {0x8000, -0.0F},      {0x0000, 0.0F}};
  const std::vector<std::pair<uint16_t, float>> bf16 = {
      {0x3F80, 1.0F}, {0xC000, -2.0F}, {0x3EAB, 0x1.56p-2F}, {0x7F7F, 0x1.fep127F}, {0x0001, 0x1.0p-133F}};
  for (const auto& [dtype, cases] : {std::pair("F16", f16), std::pair("BF16", bf16)}) {
    const auto header_and_data = parts_of(read_file(kHuggingFace));
    json header = header_and_data.first;
    std::string data;
    for (auto& [name, value] : header.items()) {
      if (name == "__metadata__") continue;
      const auto [begin, end] = value["data_offsets"].get<std::pair<size_t, size_t>>();
      const size_t at = data.size();
      for (size_t i = 0; i < (end - begin) / sizeof(float); ++i) {
        const uint16_t bits = cases[i % cases.size()].first;
        data.append(reinterpret_cast<const char*>(&bits), sizeof bits);
      }
      value["dtype"] = dtype;
      value["data_offsets"] = {at, data.size()};
    }
    write_file(folder / "x.safetensors", container(header.dump() + " ", data));  // at an odd address
    Model model;
    model.load(folder / "x.safetensors");
    const auto wpe = Model::values(model.params.wpe);
    for (size_t i = 0; i < wpe.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(wpe[i]), std::bit_cast<uint32_t>(cases[i % cases.size()].second))
          << dtype;
  }
}

struct Misfit {
  const char* name;
  std::function<void(json& header)> change;
  std::vector<std::string> says;
};

class MisfitCheckpoint : public ::testing::TestWithParam<Misfit> {};

TEST_P(MisfitCheckpoint, IsRefusedByFileAndTensor) {
  const TempFolder folder;
  auto [header, data] = parts_of(read_file(kHuggingFace));
  GetParam().change(header);
  write_file(folder / "x.safetensors", container(header.dump(), data));
  const std::string what = input_error([&] { Model().load(folder / "x.safetensors"); });
  EXPECT_TRUE(says(what, {"x.safetensors"}));
  for (const std::string& part : GetParam().says) EXPECT_TRUE(says(what, {part}));
}

constexpr const char* kBias = "transformer.h.1.mlp.c_fc.bias";

INSTANTIATE_TEST_SUITE_P(
    All, MisfitCheckpoint,
    ::testing::Values(
        Misfit{"missing_tensor",
               [](json& h) {
                 h["other"] = h[kBias];
                 h.erase(kBias);
               },
               {"no tensor h.1.mlp.c_fc.bias"}},
        Misfit{"other_shape",
               [](json& h) {
                 h[kBias]["shape"] = {64, 2};
               },
               {"h.1.mlp.c_fc.bias", "[64,2]", "[128]"}},
        Misfit{"other_dtype", [](json& h) { h[kBias]["dtype"] = "I32"; }, {"h.1.mlp.c_fc.bias is I32"}},
        Misfit{"not_transposed",
               [](json& h) {
                 h["transformer.h.0.mlp.c_fc.weight"]["shape"] = {128, 32};
               },
               {"h.0.mlp.c_fc.weight", "[128,32]", "[32,128]"}},
        Misfit{
            "unknown_tensor_of_a_layer",
            [](json& h) {
              h["transformer.h.2.ln_1.bias"] = {{"dtype", "F32"}, {"shape", {0}}, {"data_offsets", {0, 0}}};
            },
            {"unknown tensor", "h.2.ln_1.bias"}},
        Misfit{"other_heads",
               [](json& h) { h["__metadata__"]["stepladder.config"] = R"({"n_head":4})"; },
               {"NH=4", "NH=2", "--heads 4"}}),
    [](const auto& test) { return test.param.name; });

TEST(HuggingFace, AnotherConfigIsRefusedWithWhatMakesItTheFiles) {
  const auto error = [](const std::function<void(Config&)>& change) {
    Config config = tiny();
    change(config);
    return input_error([&] { Model(config).load(kHuggingFace); });
  };
  EXPECT_TRUE(says(error([](Config& c) { c.L = 3; }), {"L=2", "L=3", "--layers 2"}));
  EXPECT_TRUE(says(error([](Config& c) { c.L = 1; }), {"L=2", "L=1", "--layers 2"}));
  EXPECT_TRUE(says(error([](Config& c) { c.T = c.max_T = 8; }), {"max_T=16", "max_T=8", "--max-seq 16"}));
  const std::string rows = error([](Config& c) { c.V = 192; });
  EXPECT_TRUE(says(rows, {"model.safetensors", "V=128", "V=192", "--model", "--vocabulary 128"}));
  EXPECT_EQ(rows.find("--layers"), std::string::npos) << rows;
}

TEST(HuggingFace, WhatIsWrongWithAShapeNamesTheFile) {
  const auto error = [](const std::string& bytes, const std::string& config) {
    const TempFolder folder;
    write_file(folder / "x.safetensors", bytes);
    if (!config.empty()) write_file(folder / "config.json", config);
    return input_error([&] { config_of_checkpoint(folder / "x.safetensors"); });
  };
  const std::string good = read_file(kHuggingFace);
  EXPECT_TRUE(says(error(good, R"({"n_head": 5})"), {"x.safetensors", "NH=5"}));
  EXPECT_TRUE(says(error(renamed([](const std::string& name) {
                           return name.starts_with("transformer.h.") ? "transformer.x." + name.substr(14)
                                                                     : name;
                         }),
                         R"({"n_head": 2})"),
                   {"x.safetensors", "h.0."}));
  auto [header, data] = parts_of(good);
  header["transformer.wte.weight"]["shape"] = {0, 32};
  header["transformer.wte.weight"]["data_offsets"] = {0, 0};
  json shifted = header;
  const size_t gone = 128 * 32 * 4, begin = parts_of(good).first["transformer.wte.weight"]["data_offsets"][0];
  for (auto& [name, value] : shifted.items())
    if (name != "__metadata__" && value["data_offsets"][0] > begin)
      for (auto& offset : value["data_offsets"]) offset = offset.get<size_t>() - gone;
  data.erase(begin, gone);
  EXPECT_TRUE(says(error(container(shifted.dump(), data), R"({"n_head": 2})"), {"x.safetensors", "V "}));
}

TEST(HuggingFace, NotedSizesBeyondWhatCanBeCountedAreRefusedByName) {
  const TempFolder folder;
  auto file = parts_of(read_file(kHuggingFace));  // header, data
  json sizes = {{"model_type", "stepladder_rotary"},
                {"n_layer", 2},
                {"n_embd", 32},
                {"n_head", 2},
                {"vocab_size", 128},
                {"n_positions", 16}};
  const auto config_of = [&] {
    file.first["__metadata__"]["stepladder.config"] = sizes.dump();
    write_file(folder / "x.safetensors", container(file.first.dump(), file.second));
    return config_of_checkpoint(folder / "x.safetensors");
  };
  EXPECT_EQ(config_of().L, 2);
  for (const auto& [key, most] : {std::pair("n_layer", 1024), {"n_embd", 1 << 20}, {"vocab_size", 1 << 20}}) {
    const json good = std::exchange(sizes[key], most);
    EXPECT_NO_THROW(config_of()) << key;
    sizes[key] = most + 1;
    EXPECT_TRUE(says(input_error(config_of), {"x.safetensors", key, std::to_string(most)})) << key;
    sizes[key] = good;
  }
}

TEST(HuggingFace, AConfigOfAnotherModelTellsNoHeads) {
  const TempFolder folder;
  std::filesystem::copy_file(kHuggingFace, folder / "x.safetensors");
  for (const char* config :
       {R"({"n_head": 4, "n_embd": 64, "n_layer": 2})", R"({"n_head": 4, "n_embd": 32, "n_layer": 3})"}) {
    write_file(folder / "config.json", config);
    EXPECT_TRUE(
        says(input_error([&] { config_of_checkpoint(folder / "x.safetensors"); }), {"config.json", "n_"}));
  }
}

TEST(HuggingFace, HeadsComeFromTheNoteThenTheConfigThenTheChannels) {
  const TempFolder folder;
  std::filesystem::copy_file(kHuggingFace, folder / "x.safetensors");
  EXPECT_TRUE(
      says(input_error([&] { config_of_checkpoint(folder / "x.safetensors"); }), {"heads", "config.json"}));
  write_file(folder / "config.json", R"({"n_head": 8})");
  EXPECT_EQ(config_of_checkpoint(folder / "x.safetensors").NH, 8);

  const TempFolder other;
  Model model;
  save_weights(other / "noted.safetensors", *model.ops, model.params, model.config, kGpt2);
  std::filesystem::copy_file(other / "noted.safetensors", folder / "noted.safetensors");
  EXPECT_EQ(config_of_checkpoint(folder / "noted.safetensors").NH, 2);
  std::filesystem::remove(other / "config.json");

  Config wide = tiny();
  wide.C = 128;
  Model published(wide);
  save_weights(other / "x.safetensors", *published.ops, published.params, wide, kGpt2);
  std::filesystem::remove(other / "config.json");
  auto [header, data] = parts_of(read_file(other / "x.safetensors"));
  header.erase("__metadata__");
  write_file(other / "x.safetensors", container(header.dump(), data));
  EXPECT_EQ(config_of_checkpoint(other / "x.safetensors").NH, 2);
}

TEST(HuggingFace, GeluNewHasOtherNames) {
  const TempFolder folder;
  std::filesystem::copy_file(kHuggingFace, folder / "x.safetensors");
  write_file(folder / "config.json", R"({"n_head": 2, "activation_function": "gelu_pytorch_tanh"})");
  EXPECT_EQ(config_of_checkpoint(folder / "x.safetensors").NH, 2);
}

TEST(HuggingFace, AnotherArchitectureIsRefused) {
  const TempFolder folder;
  std::filesystem::copy_file(kHuggingFace, folder / "x.safetensors");
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {R"({"n_head": 2, "activation_function": "relu"})", "activation_function", "\"gelu_new\""},
      {R"({"n_head": 2, "model_type": "llama"})", "model_type", "\"gpt2\""},
      {R"({"n_head": 2, "layer_norm_epsilon": 1e-6})", "layer_norm_epsilon", "1e-05"},
      {R"({"n_head": 0})", "n_head", "positive"},
      {R"({"n_head": "2"})", "n_head", "positive"},
      {"[", "JSON", "object"},
      {"7", "JSON", "object"}};
  for (const auto& [text, what_is_wrong, wanted] : cases) {
    write_file(folder / "config.json", text);
    const std::string what = input_error([&] { config_of_checkpoint(folder / "x.safetensors"); });
    EXPECT_TRUE(says(what, {"config.json", what_is_wrong, wanted})) << text;
  }
}

// ---- llm.c -----------------------------------------------------------------------------------------------

constexpr int32_t kPaddedV = 192;

// A file of `model` in llm.c's layout; `to_bytes` encodes one element.
std::string llmc_file(const Model& model, int32_t version,
                      const std::function<std::string(float)>& to_bytes) {
  const Config& c = model.config;
  std::array<int32_t, 256> header{20240326, version};
  const std::array<int64_t, 6> fields = {c.max_T, c.V, c.L, c.NH, c.C, kPaddedV};
  for (size_t i = 0; i < fields.size(); ++i) header[2 + i] = static_cast<int32_t>(fields[i]);
  std::string file = bytes_of<int32_t>(header);
  const auto put = [&](const Tensor& t) {
    for (const float x : Model::values(t)) file += to_bytes(x);
  };
  const Params& p = model.params;
  put(p.wte);
  for (int64_t i = 0; i < (kPaddedV - c.V) * c.C; ++i) file += to_bytes(-1.0F);
  for (const Tensor& t : {p.wpe, p.ln1w, p.ln1b, p.qkvw, p.qkvb, p.attprojw, p.attprojb, p.ln2w, p.ln2b,
                          p.fcw, p.fcb, p.fcprojw, p.fcprojb, p.lnfw, p.lnfb})
    put(t);
  return file;
}

std::string f32_bytes(float x) {
  return bytes_of<float>(std::span(&x, 1));
}
std::string bf16_bytes(float x) {
  const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
  return bytes_of<uint16_t>(std::span(&bits, 1));
}

TEST(Llmc, LoadsFp32) {
  const TempFolder folder;
  Model written, read;
  written.fill();
  write_file(folder / "gpt2.bin", llmc_file(written, 3, f32_bytes));
  EXPECT_EQ(config_of_checkpoint(folder / "gpt2.bin").NH, 2);
  EXPECT_EQ(config_of_checkpoint(folder / "gpt2.bin").V, 128);
  read.load(folder / "gpt2.bin");
  expect_equal(read.params, written.params);
}

TEST(Llmc, LoadsBf16) {
  const TempFolder folder;
  Model written, read;
  written.fill();
  write_file(folder / "gpt2.bin", llmc_file(written, 5, bf16_bytes));
  read.load(folder / "gpt2.bin");
  expect_equal(read.params, written.params,
               [](float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xFFFF0000U); });
}

TEST(Llmc, DamageIsRefused) {
  const TempFolder folder;
  Model model;
  model.fill();
  const std::string good = llmc_file(model, 3, f32_bytes);
  const auto error = [&](const std::string& bytes) {
    write_file(folder / "gpt2.bin", bytes);
    return input_error([&] { Model().load(folder / "gpt2.bin"); });
  };
  const auto with_field = [&](size_t field, int32_t value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + field * sizeof value, &value, sizeof value);
    return bytes;
  };
  EXPECT_TRUE(says(error(good.substr(0, 1000)), {"gpt2.bin", "truncated"}));
  EXPECT_TRUE(says(error(good.substr(0, good.size() - 1)), {"gpt2.bin", "truncated"}));
  EXPECT_TRUE(says(error(good + "x"), {"gpt2.bin", "oversized"}));
  EXPECT_TRUE(says(error(with_field(1, 1)), {"gpt2.bin", "version 1"}));
  EXPECT_TRUE(says(error(with_field(4, 0)), {"gpt2.bin", "L=0"}));
  EXPECT_TRUE(says(error(with_field(4, INT32_MAX)), {"gpt2.bin", "damaged"}));
  EXPECT_TRUE(says(error(with_field(5, 3)), {"gpt2.bin", "NH=3"}));
  EXPECT_TRUE(says(error(with_field(6, INT32_MIN)), {"gpt2.bin", "damaged"}));
  EXPECT_TRUE(says(error(with_field(7, 127)), {"gpt2.bin", "Vp=127"}));
  EXPECT_TRUE(says(error(with_field(5, 4)), {"gpt2.bin", "NH=4", "NH=2", "--model"}));
}

// A trainer with random weights and moments that trains nothing.
struct Resting final : Trainer {
  Resting(Ops& ops, Arena& arena, const Config& config) : Trainer(ops, arena, config, {}) {}
  Tensor loss_scaler = config.half == f16 ? arena.alloc("batch/loss_scaler", f32, {4}) : Tensor{};
  Params params{arena, "params", config}, adam_m{arena, "adam_m", config}, adam_v{arena, "adam_v", config};

  TrainerTensors tensors() const override {
    return {.params = params, .states = moments(adam_m, adam_v), .loss_scaler = loss_scaler};
  }
  void step(Loader&, int64_t, float) override {}
  void forward(const Batch&) override {}
};

struct Resumable {
  explicit Resumable(DType half = DType::bf16) {
    Config config = tiny();
    config.half = half;
    arena = planned_arena(*ops, [&](Arena& plan) { Resting(*ops, plan, config); });
    trainer = std::make_unique<Resting>(*ops, *arena, config);
  }
  void randomize() {
    uint64_t seed = 1;
    const TrainerTensors own = trainer->tensors();
    for (const ParameterGroup* group : {&own.params, &own.states[0].group, &own.states[1].group})
      for (const NamedTensor& t : group->each()) {
        ++seed;
        uint64_t i = 0;
        for (float& x : Model::values(t.tensor)) {  // any bits, but NaN and infinity only in moments
          x = std::bit_cast<float>(static_cast<uint32_t>(random_bits(seed, i++)));
          if (!std::isfinite(x) && group == &own.params) x = -0.0F;
        }
      }
  }
  std::unique_ptr<Ops> ops = make_cpu_ops();
  std::unique_ptr<Arena> arena;
  std::unique_ptr<Trainer> trainer;
};

struct Foreign {
  const char *name, *file;
  std::string bytes;
  std::vector<std::string> says;
};

class ForeignWeights : public ::testing::TestWithParam<Foreign> {};

TEST_P(ForeignWeights, AreNamedForWhatTheyAre) {
  const TempFolder folder;
  const std::string path = folder / GetParam().file;
  write_file(path, GetParam().bytes);
  Resumable run;
  for (const std::string& what :
       {input_error([&] { Model().load(path); }), input_error([&] { config_of_checkpoint(path); }),
        input_error([&] { load_checkpoint(path, *run.ops, *run.trainer, tiny()); })}) {
    EXPECT_TRUE(says(what, {GetParam().file}));
    for (const std::string& part : GetParam().says) EXPECT_TRUE(says(what, {part}));
  }
}

std::string llmc_header(int32_t magic) {
  return bytes_of<int32_t>(std::array<int32_t, 256>{magic, 1});
}

INSTANTIATE_TEST_SUITE_P(
    All, ForeignWeights,
    ::testing::Values(
        Foreign{"pt", "ckpt.pt", std::string("PK\3\4", 4) + std::string(100, '\0'), {"PyTorch", "save_file"}},
        Foreign{"pickle", "ckpt.pt", "\x80\x02}q" + std::string(100, '\0'), {"pickle", "save_file"}},
        Foreign{"lfs_pointer",
                "model.safetensors",
                "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
                {"Git LFS", "git lfs pull"}},
        Foreign{"html", "model.safetensors", "\n<!doctype HTML><html></html>", {"HTML", "download"}},
        Foreign{"index",
                "model.safetensors.index.json",
                R"({"metadata": {}, "weight_map": {"wte.weight": "model-00001-of-00002.safetensors"}})",
                {"index", "several files"}},
        Foreign{"config", "config.json", R"({"n_head": 12})", {"JSON"}},
        Foreign{"gguf", "gpt2.gguf", std::string("GGUF\3\0\0\0", 8) + std::string(100, '\0'), {"GGUF"}},
        Foreign{"hdf5", "tf_model.h5", "\x89HDF\r\n\x1A\n" + std::string(100, '\0'), {"HDF5"}},
        Foreign{"llmc_tokens", "t.bin", llmc_header(20240520), {"llm.c", "tokens"}},
        Foreign{"llmc_debug_state", "gpt2_124M_debug_state.bin", llmc_header(20240327), {"llm.c", "test"}},
        Foreign{"llmc_tokenizer", "gpt2_tokenizer.bin", llmc_header(20240328), {"llm.c", "tokenizer"}},
        Foreign{"llmc_optimizer", "state_00000010_00000.bin", llmc_header(20240527), {"llm.c", "optimizer"}},
        Foreign{"llmc_llama", "llama3.bin", llmc_header(20240803), {"llm.c", "Llama"}},
        Foreign{"one_of_several",
                "model-00001-of-00002.safetensors",
                read_file(kHuggingFace),
                {"one of 2 files"}}),
    [](const auto& test) { return test.param.name; });

TEST(Weights, TheOnlyFileOfOneIsWhole) {
  const TempFolder folder;
  std::filesystem::copy_file(kHuggingFace, folder / "model-00001-of-00001.safetensors");
  EXPECT_NO_THROW(Model().load(folder / "model-00001-of-00001.safetensors"));
}

TEST(Weights, OtherFilesAreRefused) {
  const TempFolder folder;
  EXPECT_TRUE(says(input_error([&] { Model().load(folder / "none"); }), {"none", "No such file"}));
  write_file(folder / "x.bin", std::string(5000, 'x'));
  EXPECT_TRUE(says(input_error([&] { Model().load(folder / "x.bin"); }), {"x.bin", "safetensors"}));
}

// ---- resuming --------------------------------------------------------------------------------------------

TEST(Resume, IsBitwise) {
  const TempFolder folder;
  Resumable saved, loaded;
  saved.randomize();
  save_checkpoint(folder / "c.safetensors", *saved.ops, *saved.trainer, {12, 34, UINT64_MAX});
  const TrainState state = load_checkpoint(folder / "c.safetensors", *loaded.ops, *loaded.trainer, tiny());
  EXPECT_EQ(state.step, 12);
  EXPECT_EQ(state.batch, 34);
  EXPECT_EQ(state.seed, UINT64_MAX);
  expect_equal(loaded.trainer->tensors().params, saved.trainer->tensors().params);
  for (const size_t i : {0U, 1U})
    expect_equal(loaded.trainer->tensors().states[i].group, saved.trainer->tensors().states[i].group);
  EXPECT_EQ(folder.count(), 1U);
}

TEST(Resume, KeepsTheLossScalerAndStartsANewOneWhereThereWasNone) {
  const TempFolder folder;
  Resumable scaled(DType::f16), loaded(DType::f16), plain;
  const std::vector<float> state = {4096.0F, 17.0F, 3.0F, 0.0F}, start = {65536.0F, 0.0F, 0.0F, 0.0F};
  for (Resumable* each : {&scaled, &loaded, &plain}) each->randomize();
  (*scaled.ops)(Upload{scaled.trainer->tensors().loss_scaler, state.data()});
  const auto load = [&](const char* file) {
    (*loaded.ops)(Upload{loaded.trainer->tensors().loss_scaler, start.data()});
    load_checkpoint(folder / file, *loaded.ops, *loaded.trainer, tiny());
    const auto values = Model::values(loaded.trainer->tensors().loss_scaler);
    return std::vector<float>(values.begin(), values.end());
  };
  save_checkpoint(folder / "scaled", *scaled.ops, *scaled.trainer, {});
  save_checkpoint(folder / "plain", *plain.ops, *plain.trainer, {});
  EXPECT_EQ(load("scaled"), state);
  EXPECT_EQ(load("plain"), start);
  load_checkpoint(folder / "scaled", *plain.ops, *plain.trainer, tiny());  // the loss scaler is ignored
}

TEST(Resume, ACheckpointIsAWeightsFileToo) {
  const TempFolder folder;
  Resumable saved;
  saved.randomize();
  save_checkpoint(folder / "c.safetensors", *saved.ops, *saved.trainer, {});
  EXPECT_EQ(config_of_checkpoint(folder / "c.safetensors").NH, 2);
  Model model;
  model.load(folder / "c.safetensors");
  expect_equal(model.params, saved.trainer->tensors().params);
}

TEST(Resume, WantsOptimizerState) {
  const TempFolder folder;
  Resumable run;
  const auto error = [&](const std::string& path) {
    return input_error([&] { load_checkpoint(path, *run.ops, *run.trainer, tiny()); });
  };
  EXPECT_TRUE(says(error(kHuggingFace), {"model.safetensors", "optimizer state", "--init"}));
  Model model;
  model.fill();
  write_file(folder / "gpt2.bin", llmc_file(model, 3, f32_bytes));
  EXPECT_TRUE(says(error(folder / "gpt2.bin"), {"gpt2.bin", "llm.c", "--init"}));

  run.randomize();
  save_checkpoint(folder / "c.safetensors", *run.ops, *run.trainer, {});
  const auto [header, data] = parts_of(read_file(folder / "c.safetensors"));
  for (const char* step : {"", "-1", "1x", "9999999999999999999"}) {
    json damaged = header;
    damaged["__metadata__"]["stepladder.step"] = step;
    write_file(folder / "c.safetensors", container(damaged.dump(), data));
    EXPECT_TRUE(says(error(folder / "c.safetensors"), {"c.safetensors", "stepladder.step"})) << step;
  }
  json renamed = header;
  renamed["stepladder.x"] = renamed["stepladder.m.ln_f.bias"];
  renamed.erase("stepladder.m.ln_f.bias");
  write_file(folder / "c.safetensors", container(renamed.dump(), data));
  EXPECT_TRUE(says(error(folder / "c.safetensors"), {"c.safetensors", "stepladder.m.ln_f.bias"}));
}

}  // namespace
}  // namespace stepladder
