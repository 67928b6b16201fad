// `stepladder profile` on any machine: exact counts, times that add up, and one-line errors.
#include "bench/rung/profile.h"

#include <gtest/gtest.h>

#include "bench/results/json.h"
#include "bench/results/results.h"
#include "model/flops.h"
#include "tests/command.h"
#include "tests/contract.h"
#include "tests/files.h"
#include "tests/results.h"
#include "tests/tokens.h"
#include "tests/traced_step.h"

namespace stepladder {
namespace {

Config small_config() {
  Config config;
  config.model = "test";
  config.B = 2, config.T = 24, config.max_T = 32, config.V = 200, config.L = 3, config.NH = 2, config.C = 32;
  return config;
}

// ---- counts ----------------------------------------------------------------------------------------------

class StepFlops : public testing::TestWithParam<std::string> {};

TEST_P(StepFlops, AreThoseOfTheFormulaForModelFlops) {
  const TracedStep traced = traced_step(GetParam(), make_cpu_ops(), small_config(), 2);
  Config config = small_config();
  config.V = traced.vocabulary;  // products include the padding
  const auto tokens = static_cast<double>(2 * config.B * config.T);
  // The formula 6 N + 12 L C T counts biases and LayerNorm in N, but they are in no product.
  const auto N = static_cast<double>(config.num_params() - config.max_T * config.C -
                                     config.L * 13 * config.C - 2 * config.C);
  const auto LC = static_cast<double>(config.L * config.C), T = static_cast<double>(config.T);
  EXPECT_DOUBLE_EQ(flops_per_token(config).nanogpt,
                   6.0 * (N + 13.0 * LC + 2.0 * static_cast<double>(config.C)) + 12.0 * LC * T);

  // Muon's five iterations run once a step, whatever its tokens: half of A = x x^T and of A^2, with the
  // diagonal, and a sum of both times x.
  double muon = 0.0;
  if (std::ranges::count(traced.calls, OpKind::muon, &OpCall::kind) > 0) {
    const double C = static_cast<double>(config.C), L = static_cast<double>(config.L);
    for (const auto& [matrices, longer] :
         {std::pair(3 * L, C), std::pair(L, C), std::pair(L, 4 * C), std::pair(L, 4 * C)})
      muon += 5 * matrices * (C * (C + 1) * longer + C * (C + 1) * C + 2 * C * C * longer);
  }

  const double attention = traced.flops(OpKind::attention);
  if (attention == 0.0) {
    EXPECT_DOUBLE_EQ(traced.flops(OpKind::gemm), tokens * (6.0 * N + 12.0 * LC * T));
  } else {
    // Flash attention skips future positions and computes q k^T twice: 2 + 5 products instead of 6.
    EXPECT_DOUBLE_EQ(traced.flops(OpKind::gemm), tokens * 6.0 * N + muon);
    EXPECT_DOUBLE_EQ(attention, tokens * 14.0 * LC * (T + 1.0) / 2.0);
  }
}

std::vector<std::string> rungs() {
  std::vector<std::string> names;
  for (const RungBuild& rung : linked_rungs()) names.push_back(rung.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Rungs, StepFlops, testing::ValuesIn(rungs()),
                         [](const auto& test) { return "rung_" + test.param; });

/// Runs ops on small tensors; last() has what the latest op counted.
class OpCounts : public testing::Test {
 protected:
  Tensor tensor(DType dtype, Shape shape) {
    blocks_.push_back(ops_.device().allocate(static_cast<size_t>(shape.numel()) * size_of(dtype)));
    const Tensor x{blocks_.back().get(), dtype, shape, "x"};
    ops_(Zero{x});
    return x;
  }
  Tensor f32(Shape shape) { return tensor(DType::f32, shape); }
  const OpCall& last() const { return tracing_.calls().back(); }

  std::vector<std::shared_ptr<void>> blocks_;
  std::unique_ptr<Ops> backend_ = make_cpu_ops();
  Ops& ops_ = *backend_;
  Tracing tracing_{ops_};
};

TEST_F(OpCounts, EachOperandIsReadAndEachResultWrittenOnce) {
  const Tensor a = f32({4, 8}), b = f32({4, 8}), out = f32({4, 8}), column = f32({8}), row = f32({4});
  ops_(Add{out, a, b});
  EXPECT_EQ(last().bytes, 3 * 32 * 4);
  ops_(Add{a, a, b});  // in place
  EXPECT_EQ(last().bytes, 3 * 32 * 4);
  ops_(AddCMul{a, b, b, 1.0F});  // one operand twice
  EXPECT_EQ(last().bytes, 3 * 32 * 4);
  ops_(Copy{tensor(DType::bf16, {4, 8}), a});
  EXPECT_EQ(last().bytes, 32 * 4 + 32 * 2);
  ops_(SumRows{column, a});  // adds to the output: reads and writes it
  EXPECT_EQ(last().bytes, 32 * 4 + 2 * 8 * 4);
  ops_(LayerNormForward{out, row, row, a, column, column});
  EXPECT_EQ(last().bytes, 2 * 32 * 4 + 8 * 4 + 4 * 4);
  EXPECT_EQ(last().kind, OpKind::layernorm);
  EXPECT_EQ(last().flops, 0.0);
}

TEST_F(OpCounts, ProductsCountTheirExtents) {
  Arena plan;
  ops_.device().bind_workspace(plan, small_config());
  Arena arena(ops_, plan.bytes());
  ops_.device().bind_workspace(arena, small_config());

  const Tensor x = f32({2, 3, 8}), w = f32({5, 8}), out = f32({2, 3, 5});
  ops_(Matmul{out, x, w, MatOp::NT});
  EXPECT_EQ(last().op, "matmul NT 6x5x8");
  EXPECT_EQ(last().flops, 2.0 * 6 * 5 * 8);
  EXPECT_EQ(last().bytes, 4 * (6 * 8 + 5 * 8 + 6 * 5));
  EXPECT_EQ(last().math, MathMode::fp32);

  ops_.set_matmul_precision(Precision::tf32);
  ops_(Matmul{x, out, w, MatOp::NN, Write::add});
  EXPECT_EQ(last().flops, 2.0 * 6 * 8 * 5);
  EXPECT_EQ(last().bytes, 4 * (6 * 5 + 5 * 8 + 2 * 6 * 8));
  EXPECT_EQ(last().math, MathMode::tf32);

  const Tensor q = tensor(DType::bf16, {2, 3, 4, 8}), k = tensor(DType::bf16, {2, 3, 4, 8}),
               att = tensor(DType::bf16, {2, 3, 4, 4});
  ops_(Matmul{att, q, k, MatOp::NT});
  EXPECT_EQ(last().op, "matmul NT 6 of 4x4x8");
  EXPECT_EQ(last().flops, 6 * 2.0 * 4 * 4 * 8);
  EXPECT_EQ(last().bytes, 6 * 2 * (4 * 8 + 4 * 8 + 4 * 4));
  EXPECT_EQ(last().math, MathMode::half);
}

TEST_F(OpCounts, SymmetricProductsCountTheHalfWithTheDiagonal) {
  Arena plan;
  ops_.device().bind_workspace(plan, small_config());
  Arena arena(ops_, plan.bytes());
  ops_.device().bind_workspace(arena, small_config());

  const Tensor x = f32({3, 8, 4}), gram = f32({3, 4, 4}), out = f32({3, 4, 4});
  ops_(SymmetricMatmul{gram, x, MatOp::TN});
  EXPECT_EQ(last().op, "symmetric_matmul TN 3 of 4x4x8");
  EXPECT_EQ(last().flops, 3 * 2.0 * 10 * 8);
  EXPECT_EQ(last().bytes, 3 * 4 * (8 * 4 + 4 * 4));
  ops_(SymmetricMatmul{out, gram, MatOp::NT, gram, 2.0F, 3.0F});
  EXPECT_EQ(last().flops, 3 * 2.0 * 10 * 4);
  EXPECT_EQ(last().bytes, 3 * 4 * (4 * 4 + 4 * 4));
}

TEST_F(OpCounts, CausalOpsReadThePastAlone) {
  const Tensor att = f32({2, 3, 4, 4});
  ops_(CausalSoftmaxForward{att, att});
  EXPECT_EQ(last().bytes, 6 * 4 * (10 + 16));  // reads 10 of 16, writes all 16
}

TEST_F(OpCounts, TheOptimizerReadsAndWritesItsStateOnce) {
  const Tensor w = f32({10}), low = tensor(DType::bf16, {10}), g = tensor(DType::bf16, {10});
  const std::vector<AdamWTensor> tensors = {{w, g, f32({10}), f32({10}), low, true}};
  const Tensor schedule = f32({2}), clip = f32({1});
  ops_(WriteValues{schedule, {1e-3F, 1.0F}});
  ops_(AdamWStep{tensors, schedule, clip, {0.9F, 0.95F, 1e-8F, 0.1F}});
  EXPECT_EQ(last().bytes, 10 * (6 * 4 + 2 + 2) + 3 * 4);  // 28 bytes a parameter
  EXPECT_EQ(last().types, "bf16, f32");
}

// ---- adding up -------------------------------------------------------------------------------------------

TEST(Profile, SharesTimeOutWithoutCountingAnyTwice) {
  const std::vector<OpCall> calls = {{"a", OpKind::gemm, 8e6, 4e9, MathMode::half, "forward"},
                                     {"b", OpKind::copy, 2e6, 0.0, MathMode::fp32, "data"}};
  Tracing::Step step;
  step.calls = {0, 0, 1};
  step.times.ns = 10'000'000;
  step.times.spans = {{1'000'000, 3'000'000, 0, "gemm"},
                      {2'000'000, 5'000'000, 1, "copy"},  // overlaps both gemm spans
                      {4'000'000, 6'000'000, 0, "gemm"},
                      {8'000'000, 9'000'000, -1, "stray"}};
  Ceilings ceilings;
  ceilings.bytes_per_s = 8e9;
  ceilings.flops_per_s[MathMode::half] = 2e12;
  Profile profile(ceilings);
  profile.add(step, calls, 11.0, 10.1);
  const auto json = profile.json("a test", std::nullopt);

  std::map<std::string, double> phases, kinds;
  for (const auto& row : json["phases"]) phases[row["name"]] = row["ms"];
  for (const auto& row : json["kernel_types"]) kinds[row["type"]] = row["ms"];
  EXPECT_NEAR(phases["forward"], 2.0 + 1.0, 1e-9);
  EXPECT_NEAR(phases["data"], 2.0, 1e-9);
  EXPECT_NEAR(phases["other"], 1.0, 1e-9);
  EXPECT_NEAR(phases["idle"], 4.0, 1e-9);
  EXPECT_NEAR(json["phases_ms"], 10.0, 1e-9);
  EXPECT_NEAR(json["phases_apart"], 0.1 / 10.1, 1e-9);
  EXPECT_TRUE(json["phases_add_up"]);
  EXPECT_NEAR(json["span_ms"], 9.0, 1e-9);  // up to the end of the last span
  EXPECT_NEAR(json["clocks_apart"], 2.0 / 11.0, 1e-9);
  EXPECT_FALSE(json["clocks_agree"]);
  EXPECT_NEAR(kinds["GEMM"], 4.0, 1e-9);  // sums the kernels' times, overlapping or not
  EXPECT_NEAR(kinds["copy"], 3.0, 1e-9);
  EXPECT_NEAR(kinds["other"], 1.0, 1e-9);

  const auto& gemm = json["ops"][0];
  EXPECT_EQ(gemm["op"], "a");
  EXPECT_EQ(gemm["count"], 2.0);
  EXPECT_NEAR(gemm["tflops"], 2.0, 1e-9);    // 8 GFLOP in 4 ms
  EXPECT_NEAR(gemm["gb_per_s"], 4.0, 1e-9);  // 16 MB
  EXPECT_NEAR(gemm["floor_ms"], 4.0, 1e-9);  // 2 x max(8 MB at 8 GB/s, 4 GFLOP at 2 TFLOP/s)
  EXPECT_NEAR(json["ops"][1]["floor_ms"], 0.25, 1e-9);
  EXPECT_NEAR(json["gap_ms"], 10.1 - 4.25, 1e-9);

  profile.add(step, calls, 20.0, 20.0);  // a timer that shows twice the step's time
  EXPECT_FALSE(profile.json("a test", std::nullopt)["phases_add_up"]);
}

TEST(Profile, ClocksThatAgreeAreSaidTo) {
  Tracing::Step step;
  step.times.ns = 10'100'000;
  step.times.spans = {{50'000, 6'000'000, -1, ""}, {6'000'000, 10'050'000, -1, ""}};
  Profile profile{Ceilings()};
  profile.add(step, {}, 10.09, 10.04);
  const auto json = profile.json("a test", std::nullopt);
  EXPECT_NEAR(json["clocks_apart"], 0.05 / 10.09, 1e-9);
  EXPECT_TRUE(json["clocks_agree"]);
}

TEST(Timeline, HasASliceForEachPhaseOpAndKernelAndATrackForWhatOverlaps) {
  const std::vector<OpCall> calls = {{"a", OpKind::gemm, 8.0, 4.0, MathMode::half, "forward", "bf16"},
                                     {"b", OpKind::copy, 2.0, 0.0, MathMode::fp32, "data"},
                                     {"c", OpKind::gemm, 8.0, 4.0, MathMode::half, "forward"}};
  Tracing::Step step;
  step.times.ns = 10'000'000;
  step.times.spans = {{1'000'000, 3'000'000, 0, "_ZN10stepladder11gelu_kernelIfEEvPfPKf"},
                      {2'000'000, 5'000'000, 1, "copy"},  // overlaps the spans before and after
                      {3'000'000, 3'500'000, 0, "second"},
                      {5'000'000, 6'000'000, 2, ""},  // an op whose kernels are unknown
                      {8'000'000, 9'000'000, -1, "stray"}};
  const Json json = parse_json(timeline(step, calls, "13 on a test"));
  std::map<int64_t, std::string> tracks;
  std::vector<std::string> slices;
  std::map<std::string, Json> args;
  for (const Json& event : json["traceEvents"]) {
    EXPECT_EQ(event["pid"], 1);
    if (event["ph"] == "M" && event.contains("tid")) tracks[event["tid"]] = event["args"]["name"];
    if (event["ph"] != "X") continue;
    args[event["name"]] = event["args"];
    slices.push_back(cat(tracks.at(event["tid"]), ": ", event["name"].get<std::string>(), " ",
                         event["ts"].get<double>(), "+", event["dur"].get<double>()));
  }
  EXPECT_EQ(json["traceEvents"][0]["args"]["name"], "13 on a test");
  const std::vector<std::string> expected = {
      "phases: forward 1000+2000", "phases: data 3000+2000",   "phases: forward 5000+1000",
      "phases: other 8000+1000",   "ops: a 1000+2000",         "ops 2: b 2000+3000",
      "ops: a 3000+500",           "ops: c 5000+1000",         "kernels: gelu_kernel<float> 1000+2000",
      "kernels 2: copy 2000+3000", "kernels: second 3000+500", "kernels: stray 8000+1000"};
  EXPECT_EQ(slices, expected);
  EXPECT_EQ(args["a"], (Json{{"phase", "forward"}, {"bytes", 8.0}, {"flops", 4.0}, {"types", "bf16"}}));
  EXPECT_EQ(args["copy"], (Json{{"op", "b"}, {"phase", "data"}}));
}

TEST(Timeline, IsStretchesOfOnePhaseAndTypeInTheProfile) {
  const std::vector<OpCall> calls = {{"a", OpKind::gemm, 8.0, 4.0, MathMode::half, "forward"},
                                     {"b", OpKind::copy, 2.0, 0.0, MathMode::fp32, "data"}};
  Tracing::Step step;
  step.times.spans = {{1'000'000, 3'000'000, 0, ""}, {3'004'000, 4'000'000, 0, ""},  // a gap of 4 us
                      {4'006'000, 5'000'000, 0, ""},                                 // a gap of 6 us
                      {4'500'000, 4'900'000, 1, ""},  // within the previous span
                      {4'800'000, 6'000'000, 1, ""}, {8'000'000, 9'000'000, -1, ""}};
  const Json expected = {{{"phase", "forward"}, {"type", "GEMM"}, {"start_ms", 1.0}, {"ms", 3.0}},
                         {{"phase", "forward"}, {"type", "GEMM"}, {"start_ms", 4.006}, {"ms", 0.994}},
                         {{"phase", "data"}, {"type", "copy"}, {"start_ms", 5.0}, {"ms", 1.0}},
                         {{"phase", "other"}, {"type", "other"}, {"start_ms", 8.0}, {"ms", 1.0}}};
  EXPECT_EQ(stretches(step, calls), expected);
}

TEST(ShortKernelName, DropsNamespacesAndParameters) {
  EXPECT_EQ(short_kernel_name("_ZN10stepladder11gelu_kernelIfEEvPfPKf"), "gelu_kernel<float>");
  EXPECT_EQ(short_kernel_name("_ZN10stepladder12_GLOBAL__N_112write_kernelEPfiNS0_6ValuesE"), "write_kernel");
  EXPECT_EQ(short_kernel_name("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTN"),
            "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTN");
  EXPECT_EQ(short_kernel_name(""), "");
}

// ---- the command, through the real binaries --------------------------------------------------------------

class ProfileCli : public testing::Test {
 protected:
  ProfileCli() { write_random_tokens(folder_ / "data.bin"); }
  /// The exit code of `stepladder profile`; its output is in the folder.
  int profile(const std::string& arguments) {
    return run_in(folder_,
                  cat(STEPLADDER_BIN "/stepladder profile --backend cpu --model gpt2-tiny --batch 2 ",
                      "--seq 32 --steps 5 --warmup 3 --data data.bin ", arguments))
        .code;
  }
  std::string out() const { return read_file(folder_ / "out.txt"); }
  std::string err() const { return read_file(folder_ / "err.txt"); }

  const TempFolder folder_;
};

TEST_F(ProfileCli, PhasesOfARealStepSumToIt) {
  for (const char* rung : {"00", "11_searched_gemms"}) {
    ASSERT_EQ(profile(cat(rung, " --out profile.json")), 0) << err();
    EXPECT_TRUE(says(err(), {"steps of", "gpt2-tiny"})) << "what takes so long";
    const Json file = exported(folder_ / "profile.json");
    expect_contract(folder_ / "profile.json");
    EXPECT_FALSE(file["context"]["device"]["name"].get<std::string>().empty());
    const Json& p = file["profile"];
    EXPECT_EQ(p["steps"], 2);
    EXPECT_EQ(p["config"]["B"], 2);
    EXPECT_GT(p["untraced_step_ms"], 0.0);
    const std::string text = read_file(folder_ / "profile.json");
    const Json end = parse_json(text.substr(text.rfind('\n', text.size() - 2) + 1));
    EXPECT_GT(end["wall_s"], 5e-3 * p["untraced_step_ms"].get<double>()) << "of all five steps";
    EXPECT_EQ(p["timeline"].front()["phase"], "data");
    EXPECT_GT(p["timeline"].size(), p["phases"].size());
    double sum = 0.0;
    std::map<std::string, double> phases;
    for (const Json& row : p["phases"]) sum += phases[row["name"]] = row["ms"];
    EXPECT_NEAR(sum, p["device_ms"], kPhasesApart * p["device_ms"].get<double>());
    EXPECT_EQ(p["phases_add_up"], true);
    for (const char* name : {"data", "encoder", "forward block", "classifier", "classifier backward",
                             "backward block", "encoder backward", "clip", "optimizer"})
      EXPECT_GT(phases[name], 0.0) << name;
    double ops = 0.0, kinds = 0.0;
    for (const Json& row : p["ops"]) ops += row["ms"].get<double>();
    for (const Json& row : p["kernel_types"]) kinds += row["ms"].get<double>();
    EXPECT_NEAR(ops, sum - phases["idle"], 1e-6 * sum);
    EXPECT_NEAR(kinds, ops, 1e-6 * sum);
    for (const char* math : {"fp32", "tf32", "half"}) EXPECT_GT(p["ceilings"]["gemm_tflops"][math], 0.0);
    EXPECT_GT(p["ceilings"]["copy_gb_per_s"], 0.0);
    EXPECT_TRUE(says(out(), {"Phases", "forward block", "idle", "% apart", "Kernel types", "Ops against"}));
  }
}

TEST_F(ProfileCli, PrintsWhatItIsAskedFor) {
  ASSERT_EQ(profile("00 --format json"), 0) << err();
  EXPECT_EQ(parse_json(out())["profile"]["variant"], "00_fp32_baseline");
  ASSERT_EQ(profile("00 --format markdown"), 0) << err();
  EXPECT_TRUE(says(out(), {"## Phases", "| phase | ms | % | ops |"}));
}

TEST_F(ProfileCli, WritesTheLastStepAsATimeline) {
  std::map<std::string, double> least;  // us of each phase, of two timelines: other processes may delay one
  for (const char* more : {" --out profile.json", ""}) {
    ASSERT_EQ(profile(cat("00 --trace new/step.json", more)), 0) << "a timeline is replaced: " << err();
    std::map<std::string, double> begins, us;
    double end = 0.0;
    const Json trace = parse_json(read_file(folder_ / "new/step.json"));
    for (const Json& event : trace["traceEvents"]) {
      if (event["ph"] != "X") continue;
      const double begin = event["ts"], lasts = event["dur"];
      if (event["cat"] == "phase") begins.emplace(event["name"], begin), us[event["name"]] += lasts;
      end = std::max(end, begin + lasts);
    }
    EXPECT_GT(end, 0.0);
    EXPECT_LT(begins["forward block"], begins["classifier"]);
    EXPECT_LT(begins["classifier"], begins["backward block"]);
    EXPECT_LT(begins["backward block"], begins["optimizer"]);
    for (const auto& [name, lasts] : us)
      least[name] = std::min(least.emplace(name, lasts).first->second, lasts);
  }
  for (const Json& row : exported(folder_ / "profile.json")["profile"]["phases"])
    EXPECT_EQ(least.contains(row["name"]), row["name"] != "idle") << row["name"];
  EXPECT_GT(least["backward block"], least["zero gradients"]);
}

TEST_F(ProfileCli, RefusesWhatCannotBeProfiledBeforeItRuns) {
  const std::pair<std::string, const char*> cases[] = {
      {"00_fp33_baseline", "00_fp32_baseline"},
      {"", "RUNG"},
      {"00 --out .", "."},
      {"00 --out /dev/full", "/dev/full"},
      {"00 --trace data.bin", "data.bin"},
      {"00 --trace same --out ./same", "same"},
      {"00 --format xml", "xml"},
      {"00 --warmup 5", "--warmup 5"},
      {"00 --modle gpt2", "--model"},
      {"00 --dtype bf16", "--dtype"},
      {"00 --data nowhere.bin", "nowhere.bin"},
  };
  for (const auto& [arguments, named] : cases) {
    EXPECT_EQ(profile(arguments), kExitUsage) << arguments;
    EXPECT_EQ(out(), "") << arguments;
    EXPECT_TRUE(says(err(), {named})) << arguments;
  }
  EXPECT_EQ(folder_.count(), 3U);  // data.bin, out.txt and err.txt
}

}  // namespace
}  // namespace stepladder
