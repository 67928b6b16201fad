// Declared parameters: names and order, initialisation by name, and what they imply for an optimizer.
#include "model/parameters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "model/gpt2.h"

namespace stepladder {
namespace {

constexpr int64_t kLayers = 2, kVocabulary = 5, kPadded = 8, kChannels = 4;

/// Parameters unlike GPT-2's: GPT-2's first matrices without positions, and gains of queries and an untied
/// head.
struct Others : ParameterGroup {
  Others(Arena& arena, const std::string& group, DType dtype = DType::f32)
      : ParameterGroup(arena, group, dtype) {}
  Tensor wte = declare(
      "wte", {kPadded, kChannels},
      {.name = "wte.weight", .init = Init::normal(0.02F), .decay = true, .gemm = true, .rows = kVocabulary});
  Tensor query_gain =
      declare("query_gain", {kLayers, kChannels}, {.name = "h.*.attn.query_gain", .init = Init::ones()});
  Tensor qkvw = declare("qkvw", {kLayers, 3 * kChannels, kChannels},
                        {.name = "h.*.attn.c_attn.weight",
                         .init = Init::normal(0.02F),
                         .decay = true,
                         .gemm = true,
                         .conv1d = true});
  Tensor head = declare("head", {kVocabulary, kChannels},
                        {.name = "lm_head.weight", .init = Init::normal(0.1F), .decay = true, .gemm = true});
};

template <class Group>
class Allocated {
 public:
  template <class... Args>
  explicit Allocated(const Args&... args) {
    Arena plan;
    Group(plan, "params", args...);
    arena_ = std::make_unique<Arena>(*ops, plan.bytes());
    group = std::make_unique<Group>(*arena_, "params", args...);
    for (const Tensor& t : group->all()) (*ops)(Zero{t});
    init_params(*ops, *group, 1337);
  }
  std::vector<float> values(const std::string& name) const {
    for (const NamedTensor& t : group->each())
      if (t.name == name)
        return {t.tensor.template ptr<float>(), t.tensor.template ptr<float>() + t.tensor.numel()};
    return {};
  }

  const std::unique_ptr<Ops> ops = make_cpu_ops();
  std::unique_ptr<Group> group;

 private:
  std::unique_ptr<Arena> arena_;
};

TEST(Parameters, ComeByLayerUnderTheirNamesWithoutPadding) {
  const Allocated<Others> others;
  std::vector<std::string> names;
  for (const NamedTensor& t : others.group->each()) names.push_back(t.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"wte.weight", "h.0.attn.query_gain", "h.0.attn.c_attn.weight",
                                      "h.1.attn.query_gain", "h.1.attn.c_attn.weight", "lm_head.weight"}));
  EXPECT_EQ(others.group->each()[0].tensor.shape, (Shape{kVocabulary, kChannels}));
  EXPECT_EQ(others.group->find("wte.weight").shape, (Shape{kPadded, kChannels}));
  EXPECT_THROW(others.group->find("wpe.weight"), std::invalid_argument);
}

TEST(Parameters, BeginAsTheyAreDeclaredWhateverOthersThereAre) {
  Config config = Config::named("gpt2-tiny");
  config.L = kLayers, config.C = kChannels, config.NH = 1, config.V = kVocabulary;
  const Allocated<Params> gpt2(config);
  const Allocated<Others> others;
  for (const char* name : {"wte.weight", "h.0.attn.c_attn.weight", "h.1.attn.c_attn.weight"})
    EXPECT_EQ(gpt2.values(name), others.values(name)) << name;
  EXPECT_NE(others.values("h.0.attn.c_attn.weight"), others.values("h.1.attn.c_attn.weight"));
  EXPECT_EQ(others.values("h.1.attn.query_gain"), std::vector<float>(kChannels, 1.0F));
  const std::vector<float> head = others.values("lm_head.weight"), wte = others.values("wte.weight");
  EXPECT_FALSE(std::ranges::equal(head, wte, {}, [](float x) { return x / 5; })) << "a stream of its own";
  EXPECT_GT(*std::ranges::max_element(head), 0.05F);
  const float* padding = others.group->wte.ptr<float>() + kVocabulary * kChannels;
  EXPECT_TRUE(
      std::all_of(padding, padding + (kPadded - kVocabulary) * kChannels, [](float x) { return x == 0.0F; }));
}

TEST(Parameters, TellAnOptimizerWhatDecaysAndGemmsWhatTheyWrite) {
  const Allocated<Others> others;
  const auto adamw = adamw_tensors(*others.group, *others.group, *others.group, *others.group);
  ASSERT_EQ(adamw.size(), 4U);
  for (size_t i = 0; i < adamw.size(); ++i) {
    EXPECT_EQ(adamw[i].decay, i != 1);
    EXPECT_FALSE(adamw[i].param_copy.data);
  }
  const std::vector<Tensor> outside = others.group->outside_gemms();
  ASSERT_EQ(outside.size(), 1U);
  EXPECT_EQ(outside[0].data, others.group->query_gain.data);
  const std::vector<Tensor> second = others.group->layers(1, 2);
  ASSERT_EQ(second.size(), 2U);
  EXPECT_EQ(second[1].data, others.group->qkvw[1].data);
}

/// Three layers of matrices and gains; the matrices' stack is padded to four layers, so that each rank has
/// whole layers.
struct Stacks : ParameterGroup {
  explicit Stacks(Arena& arena, const std::string& group) : ParameterGroup(arena, group, DType::f32) {}
  Tensor matrices = declare("matrices", {4, kChannels, 3},
                            {.name = "h.*.mlp.c_fc.weight",
                             .init = Init::normal(0.02F),
                             .decay = true,
                             .gemm = true,
                             .whole = true,
                             .rows = 3});
  Tensor gains = declare("gains", {3, kChannels}, {.name = "h.*.ln_1.weight", .init = Init::ones()});
  Tensor last = declare("last", {kChannels}, {.name = "ln_f.weight", .init = Init::ones()});
};

TEST(Parameters, RanksShareWhatIsOutsideOfLayersAndBuckets) {
  const Allocated<Stacks> stacks;
  const ParameterGroup pieces =
      stacks.group->pieces([](int64_t l) { return std::min<int64_t>(l + 2, 4); });  // [0,2) and [2,4)
  std::vector<std::string> names;
  for (const Parameter& p : pieces.list()) names.push_back(p.name);
  EXPECT_EQ(names, (std::vector<std::string>{"ln_f.weight", "h.0-1.mlp.c_fc.weight", "h.0-1.ln_1.weight",
                                             "h.2-3.mlp.c_fc.weight", "h.2-3.ln_1.weight"}));
  EXPECT_EQ(pieces.list()[3].tensor.shape, (Shape{2, kChannels, 3}));
  EXPECT_EQ(pieces.list()[4].tensor.shape, (Shape{1, kChannels})) << "that stack has no fourth layer";
  EXPECT_EQ(pieces.list()[4].tensor.data, stacks.group->gains[2].data);
  EXPECT_EQ(stacks.group->layers(3, 4).size(), 1U);

  const ParameterGroup parts = pieces.parts(1, 2);
  EXPECT_EQ(parts.list()[0].tensor.shape, (Shape{kChannels / 2})) << "flat";
  EXPECT_EQ(parts.list()[1].tensor.shape, (Shape{1, kChannels, 3})) << "a whole layer";
  EXPECT_EQ(parts.list()[1].tensor.data, stacks.group->matrices[1].data);
  EXPECT_EQ(parts.list()[3].tensor.data, stacks.group->matrices[3].data) << "padding has an owner too";
  struct Odd : ParameterGroup {
    explicit Odd(Arena& arena) : ParameterGroup(arena, "params", DType::f32) {}
    Tensor matrices = declare("matrices", {3, 2, 2}, {.name = "h.*.mlp.c_fc.weight", .whole = true});
  };
  Arena three_layers;
  EXPECT_THROW(Odd(three_layers).parts(0, 2), std::invalid_argument) << "as twelve elements have two parts";

  // AdamW's tensors of this rank's parts decay as declared.
  Arena plan;
  const ParameterGroup m(plan, "adam_m", DType::f32, parts), v(plan, "adam_v", DType::f32, parts);
  EXPECT_EQ(plan.by_name().count("adam_m/matrices"), 1U);
  const auto adamw = adamw_tensors(parts, parts, m, v);
  ASSERT_EQ(adamw.size(), parts.list().size());
  for (size_t i = 0; i < adamw.size(); ++i) {
    EXPECT_EQ(adamw[i].w.data, parts.list()[i].tensor.data);
    EXPECT_EQ(adamw[i].m.shape, parts.list()[i].tensor.shape);
    EXPECT_EQ(adamw[i].decay, i == 1 || i == 3) << parts.list()[i].name;
  }
}

TEST(Parameters, LayersThatArePaddingBeginAtZeroAndAreInNoFile) {
  const Allocated<Stacks> stacks;
  EXPECT_EQ(stacks.group->each().size(), 7U);
  EXPECT_EQ(stacks.values("h.3.mlp.c_fc.weight"), std::vector<float>());
  EXPECT_NE(stacks.values("h.2.mlp.c_fc.weight"), std::vector<float>(12, 0.0F));
  const std::vector<Tensor> outside = stacks.group->outside_gemms();
  ASSERT_EQ(outside.size(), 3U);
  EXPECT_EQ(outside[0].data, stacks.group->matrices[3].data) << "no GEMM writes its gradient";
}

TEST(Parameters, AnOptimizerTakesThoseThatItKeepsMomentsOf) {
  const Allocated<Others> others;
  struct Moments : ParameterGroup {
    explicit Moments(Arena& arena) : ParameterGroup(arena, "adam_m", DType::f32) {}
    Tensor gain = declare("query_gain", {kLayers, kChannels}, {.name = "h.*.attn.query_gain"});
  };
  Arena plan;
  const Moments m(plan), v(plan);
  const auto adamw = adamw_tensors(*others.group, *others.group, m, v);
  ASSERT_EQ(adamw.size(), 1U);
  EXPECT_EQ(adamw[0].w.data, others.group->query_gain.data);
}

TEST(Parameters, ThoseThatAreAskedForShareTheirTensors) {
  const Allocated<Others> others;
  const ParameterGroup gains =
      others.group->where([](const Parameter& p) { return p.name.ends_with("gain"); });
  ASSERT_EQ(gains.list().size(), 1U);
  EXPECT_EQ(gains.list()[0].tensor.data, others.group->query_gain.data);
  EXPECT_EQ(gains.num_params(), kLayers * kChannels);
}

TEST(Parameters, AnUntiedHeadIsMultipliedByInsteadOfTheEmbeddings) {
  Config config = Config::named("gpt2-tiny");
  config.L = kLayers, config.C = kChannels, config.NH = 1, config.V = kVocabulary;
  struct Untied : Params {
    Untied(Arena& arena, const std::string& group, const Config& sizes)
        : Params(arena, group, sizes, DType::f32, kPadded) {}
    Tensor head = untie_head();
  };
  const Allocated<Params> tied(config);
  const Allocated<Untied> untied(config);
  EXPECT_EQ(untied.group->head.shape, (Shape{kPadded, kChannels}));
  EXPECT_EQ(untied.group->find("lm_head.weight").data, untied.group->head.data);
  EXPECT_EQ(untied.group->num_params(), tied.group->num_params() + kVocabulary * kChannels);
  EXPECT_EQ(untied.values("wte.weight"), tied.values("wte.weight"));
  EXPECT_NE(untied.values("lm_head.weight"), untied.values("wte.weight"));
  // Looking up embeddings costs no FLOPs, and with an untied head no GEMM writes the embeddings' gradient.
  EXPECT_EQ(flops_per_token(*untied.group, config).nanogpt, flops_per_token(*tied.group, config).nanogpt);
  EXPECT_EQ(untied.group->outside_gemms().front().data, untied.group->wte.data);
  EXPECT_NE(tied.group->outside_gemms().front().data, tied.group->wte.data);
}

TEST(Parameters, WithoutPositionsTheOthersAreTheSame) {
  Config config = Config::named("gpt2-tiny");
  config.L = kLayers, config.C = kChannels, config.NH = 1, config.V = kVocabulary;
  const Allocated<Params> gpt2(config);
  const Allocated<ParamsWithoutPositions> others(config);
  EXPECT_EQ(others.group->wpe.data, nullptr);
  EXPECT_EQ(others.group->num_params(), gpt2.group->num_params() - config.max_T * kChannels);
  EXPECT_EQ(others.values("h.1.mlp.c_proj.weight"), gpt2.values("h.1.mlp.c_proj.weight"));
}

}  // namespace
}  // namespace stepladder
