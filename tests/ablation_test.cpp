// The promises of ablations: each is what git merges, or is written by hand because git can't merge it; it
// learns what its ladder learns; and it takes all of its rung's change out of the last rung, or puts all of
// it into the first.
#include "bench/report/ablation.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "bench/plan/ladder.h"
#include "tests/files.h"
#include "tests/hf_parity.h"
#include "tests/losses.h"
#include "tests/trainers.h"
#include "tests/training.h"

namespace stepladder {
namespace {

namespace fs = std::filesystem;

const std::string kSource = STEPLADDER_SOURCE_DIR;

struct Output {
  std::string text;
  int status = -1;
};

Output run_shell(const std::string& command) {
  Output output;
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen((command + " 2>&1").c_str(), "r"), nullptr);
  for (int c = 0; pipe && (c = std::fgetc(pipe.get())) != EOF;) output.text += static_cast<char>(c);
  const int status = pipe ? pclose(pipe.release()) : -1;
  output.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

std::string merged_file(const Ablation& ablation) {
  return STEPLADDER_BIN "/../generated/" + ablation.name + ".cpp";
}

/// The ablation as git merges it: the diff between its rung and the rung below, applied to its reference.
Output merge(const Ablation& ablation) {
  std::string from = our_rung(ablation.rung.name)->shown, to = our_rung(ablation.rung.parent)->shown;
  if (ablation.kind == "only") std::swap(from, to);
  const Ablation* reference = listed_ablation(ablation.reference.name);
  const std::string into = reference ? merged_file(*reference) : our_rung(ablation.reference.name)->shown;
  return run_shell("cd '" + kSource + "' && git merge-file -p -q '" + into + "' " + from + " " + to);
}

std::vector<Ablation> built() {
  std::vector<Ablation> all = ablations();
  std::erase_if(all, [](const Ablation& a) { return a.source.empty(); });
  return all;
}

/// Ablations of the ladder of time, whose trainers all learn the same.
std::vector<Ablation> built_of_time() {
  std::vector<Ablation> all = built();
  std::erase_if(all, [](const Ablation& a) { return !ladder().listed(a.rung.name); });
  return all;
}

/// The ops that a trainer calls in its preparation and two steps.
Calls calls_of(const std::string& trainer) {
  Training training(trainer);
  training.losses(2);
  return training.recording.calls;
}

/// The trainer of the rung that an ablation is measured against.
std::string reference_of(const Ablation& ablation) {
  const Rung* rung = our_rung(ablation.reference.name);
  return rung ? rung->trainer : ablation.reference.name;
}

/// The names of the ops called, and "bf16" if an operand has 16 bits.
std::set<std::string> names_of(const Calls& calls) {
  std::set<std::string> names;
  for (const std::string& call : calls) {
    names.insert(call.substr(0, call.find(' ')));
    if (call.find("bf16") != std::string::npos) names.insert("bf16");
  }
  return names;
}

using Names = std::set<std::string>;

Names minus(const Names& a, const Names& b) {
  Names rest;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::inserter(rest, rest.end()));
  return rest;
}

TEST(Ablations, BothKindsOfEveryRungThatOthersBuildOn) {
  std::vector<std::string> expected, names;
  for (const Ladder& ladder : our_ladders())
    for (const Rung& rung : ladder.rungs)
      if (!rung.parent.empty() && rung.batch == BatchSize::usual && rung.devices == 1 && !rung.beside)
        for (const char* kind : {"without/", "only/"}) expected.push_back(kind + rung.name);
  for (const Ablation& ablation : ablations()) {
    names.push_back(ablation.name);
    EXPECT_EQ(ablation.name, ablation.kind + "/" + ablation.rung.name);
    const Ladder& of = ladder().listed(ablation.rung.name) ? ladder() : *our_ladder("learning");
    std::string reference = ablation.kind == "only" ? of.rungs.front().name : tuned_rung(of).name;
    if (ablation.kind == "only" && !ablation.rung.needs.empty()) reference = "only/" + ablation.rung.needs;
    if (ablation.name == "without/05_mixed_precision") reference = "without/09_flash_attention";
    EXPECT_EQ(ablation.reference.name, reference) << ablation.name;
  }
  EXPECT_EQ(names, expected);
}

TEST(Ablations, AreWhatGitMergesOrWrittenBecauseItCannot) {
  for (const Ablation& ablation : built()) {
    const Output merged = merge(ablation);
    if (ablation.source == "merge") {
      EXPECT_EQ(merged.status, 0) << ablation.name;
      EXPECT_EQ(read_file(merged_file(ablation)), merged.text) << ablation.name;
    } else {
      EXPECT_GT(merged.status, 0) << ablation.source << " is not needed";
      const std::string text = read_file(kSource + "/" + ablation.source);
      EXPECT_TRUE(text.starts_with("// ")) << ablation.source << " does not say why it is written";
    }
  }
}

TEST(Ablations, FewAreWritten) {
  for (const Ladder& ladder : our_ladders())
    EXPECT_LE(
        std::ranges::count_if(
            built(), [&](const Ablation& a) { return ladder.listed(a.rung.name) && a.source != "merge"; }),
        3)
        << ladder.name;
}

TEST(Ablations, EveryWrittenFileIsBuilt) {
  std::set<std::string> files, sources;
  for (const char* kind : {"without", "only"})
    for (const auto& entry : fs::directory_iterator(fs::path(kSource) / "variants" / kind))
      files.insert("variants/" + std::string(kind) + "/" + entry.path().filename().string());
  for (const Ablation& ablation : built())
    if (ablation.source != "merge") sources.insert(ablation.source);
  EXPECT_EQ(files, sources);
}

TEST(Ablations, TheirProgramsSayWhoTheyAre) {
  std::set<std::string> hashes;
  for (const Ablation& ablation : built()) {
    const Output version = run_shell("'" STEPLADDER_BIN "/ablations/" + ablation.program() + "' --version");
    EXPECT_EQ(version.status, 0) << ablation.name;
    EXPECT_TRUE(version.text.starts_with(ablation.name + " ")) << version.text;
    hashes.insert(version.text.substr(version.text.find(" source ")));
  }
  EXPECT_EQ(hashes.size(), built().size()) << "two are of the same source";
}

TEST(Ablations, LearnWhatTheBaselineLearns) {
  constexpr int kSteps = 30;
  const auto expected = losses_of("00_fp32_baseline", kSteps);
  for (const Ablation& ablation : built()) {
    const auto losses = losses_of(ablation.name, kSteps);
    EXPECT_LT(losses.back(), losses.front() - 0.2F) << ablation.name;
    if (std::isfinite(ablation.row.tolerance))
      expect_close(losses, expected, ablation.row.tolerance, ablation.name);
    EXPECT_EQ(std::isfinite(ablation.row.tolerance), ladder().listed(ablation.rung.name) != nullptr);
  }
}

TEST(Ablations, OfTheLadderOfLearningGiveTheLossesOfPyTorch) {
  for (const Ablation& ablation : built())
    if (!ladder().listed(ablation.rung.name))
      expect_learning_parity(ablation.name, ablation.name, *make_cpu_ops(), DType::f32, 1e-5);
}

TEST(Ablations, HaveRoomForMorePositionsThanTokens) {
  Config config = small_config();
  config.max_T = 2 * config.V;
  for (const Ablation& ablation : built())
    EXPECT_TRUE(std::isfinite(Training(ablation.name, DType::bf16, 1, config).losses(2).back()))
        << ablation.name;
}

TEST(Ablations, AccumulateMicroBatchesLikeTheBaseline) {
  const auto expected = losses_of("00_fp32_baseline", 5, 3);
  for (const Ablation& ablation : built_of_time())
    expect_close(losses_of(ablation.name, 5, 3), expected, ablation.row.tolerance, ablation.name);
}

TEST(Ablations, ChangeTheCallsOfTheirReferenceInTheRightDirection) {
  struct Change {
    Names gained, lost;
  };
  // Some ops that each ablation has to gain and to lose; the vocabulary's rung changes only shapes.
  const std::map<std::string, Change> expected = {
      {"without/03_fused_adamw", {{"addcdiv", "sum_of_squares"}, {"adamw", "clip_grad_norm"}}},
      {"without/04_pinned_loader", {{"upload"}, {"stage", "receive"}}},
      {"without/05_mixed_precision", {{"matmul/tf32", "linear_forward/tf32"}, {"bf16", "copy", "matmul"}}},
      {"without/06_fused_classifier",
       {{"log_softmax_forward", "nll_loss_backward"}, {"cross_entropy_forward_backward"}}},
      {"without/07_fused_layernorm",
       {{"row_mean", "normalize_backward"}, {"layernorm_forward", "layernorm_backward"}}},
      {"without/09_flash_attention",
       {{"scaled_causal_softmax_forward", "scaled_causal_softmax_backward", "split_qkv"},
        {"attention_forward", "attention_backward"}}},
      {"without/10_padded_vocab", {}},
      {"without/12_gemm_epilogues",
       {{"add_columns", "bias_gelu_forward", "add_bias_residual", "sum_rows"},
        {"linear_forward", "linear_gelu_forward", "linear_gelu_backward", "linear_weight_backward"}}},
      {"without/11_searched_gemms", {{}, {"search"}}},
      {"without/13_cuda_graphs", {{}, {"record"}}},
      {"only/01_causal_mask", {{"causal_softmax_forward"}, {"causal_mask", "add_mask", "softmax_forward"}}},
      {"only/02_tf32", {{"matmul/tf32"}, {"matmul/fp32"}}},
      {"only/03_fused_adamw", {{"adamw", "clip_grad_norm"}, {"addcdiv", "sum_of_squares"}}},
      {"only/04_pinned_loader", {{"stage", "receive"}, {"upload"}}},
      {"only/05_mixed_precision", {{"bf16", "matmul", "copy"}, {"matmul/fp32"}}},
      {"only/06_fused_classifier",
       {{"cross_entropy_forward_backward"}, {"log_softmax_forward", "nll_loss_backward"}}},
      {"only/07_fused_layernorm",
       {{"layernorm_forward", "layernorm_backward"}, {"row_mean", "normalize_backward"}}},
      {"only/08_fused_elementwise",
       {{"add_bias_residual", "bias_gelu_forward", "gelu_backward", "scaled_causal_softmax_forward"},
        {"tanh", "causal_softmax_forward"}}},
      {"only/09_flash_attention",
       {{"attention_forward", "attention_backward"}, {"softmax_forward", "causal_mask"}}},
      {"only/10_padded_vocab", {}},
      {"only/12_gemm_epilogues",
       {{"linear_gelu_backward/fp32", "linear_weight_backward/fp32"},
        {"bias_gelu_forward", "add_bias_residual"}}},
      {"only/11_searched_gemms", {{"search"}, {}}},
      {"only/13_cuda_graphs", {{"record"}, {}}},

      {"without/01_muon", {{}, {"muon_momentum", "muon_update", "matmul_add", "symmetric_matmul"}}},
      {"without/02_qk_norm", {}},
      {"without/03_rotary", {{"position_backward"}, {"rotary_table"}}},
      {"only/01_muon", {{"muon_momentum", "muon_update", "matmul_add", "symmetric_matmul"}, {}}},
      {"only/02_qk_norm", {{"qk_norm_rotary_forward", "qk_norm_rotary_backward"}, {}}},
      {"only/03_rotary",
       {{"rotary_table", "qk_norm_rotary_forward", "qk_norm_rotary_backward"}, {"position_backward"}}},
  };
  std::map<std::string, Calls> references;
  for (const Ablation& ablation : built()) {
    Calls& reference = references[ablation.reference.name];
    if (reference.empty()) reference = calls_of(reference_of(ablation));
    const Calls calls = calls_of(ablation.name);
    EXPECT_NE(calls, reference) << ablation.name << " changes nothing";

    EXPECT_TRUE(expected.contains(ablation.name))
        << ablation.name << " has no line here: which calls it adds, and takes away";
    if (!expected.contains(ablation.name)) continue;
    const Change& change = expected.at(ablation.name);
    const Names now = names_of(calls), before = names_of(reference);
    if (change.gained.empty() && change.lost.empty()) {
      EXPECT_EQ(now, before) << ablation.name;
    }
    EXPECT_EQ(minus(change.gained, minus(now, before)), Names{}) << ablation.name << ": not gained";
    EXPECT_EQ(minus(change.lost, minus(before, now)), Names{}) << ablation.name << ": not lost";
  }
}

TEST(Ablations, OfThePaddedVocabularyChangeShapesAlone) {
  const auto has = [](const std::string& trainer, const std::string& call) {
    return std::ranges::count(calls_of(trainer), call) > 0;
  };
  EXPECT_TRUE(has("00_fp32_baseline", "log_softmax_forward f32(3,24,96) f32(3,24,96)"));
  EXPECT_TRUE(has("only/10_padded_vocab", "log_softmax_forward f32(3,24,96) f32(3,24,128)"));
  const std::string classifier = "cross_entropy_forward_backward f32(3,24) bf16(3,24,";
  EXPECT_TRUE(has("13_cuda_graphs", classifier + "128) i32(3,24)"));
  EXPECT_TRUE(has("without/10_padded_vocab", classifier + "96) i32(3,24)"));
  EXPECT_EQ(names_of(calls_of("only/10_padded_vocab")), names_of(calls_of("00_fp32_baseline")));
  // On the CPU every sum keeps its order, so padding changes no loss.
  EXPECT_EQ(losses_of("only/10_padded_vocab", 10), losses_of("00_fp32_baseline", 10));
}

TEST(Ablations, AreNotBuiltWhereTheLastRungHasNothingOfTheRungLeft) {
  const std::string last = tuned_rung().name;
  const Names left = names_of(calls_of(last));
  for (const Ablation& ablation : ablations()) {
    EXPECT_EQ(ablation.source.empty(), ablation.kind == "without" && !ablation.rung.subsumed_by.empty())
        << ablation.name;
    if (!ablation.source.empty()) {
      EXPECT_EQ(ablation.unchanged(), "");
      continue;
    }
    const Names brought =
        minus(names_of(calls_of(ablation.rung.name)), names_of(calls_of(ablation.rung.parent)));
    EXPECT_NE(brought, Names{}) << ablation.rung.name;
    EXPECT_EQ(minus(brought, left), brought) << ablation.rung.name << " is in " << last;
    EXPECT_NO_THROW(ladder().find(ablation.rung.subsumed_by));
    EXPECT_TRUE(says(ablation.unchanged(), {last, ablation.rung.subsumed_by}));
  }
}

TEST(Ablations, HaveTheMathAndNeedsOfWhatTheyRun) {
  const Rung tf32_again = row_of("without/05_mixed_precision");
  EXPECT_EQ(tf32_again.math, MathMode::tf32);
  EXPECT_EQ(tf32_again.compute_capability, 80);
  EXPECT_EQ(tf32_again.tolerance, ladder().find("02_tf32").tolerance);
  EXPECT_EQ(row_of("only/02_tf32").math, MathMode::tf32);
  EXPECT_EQ(row_of("only/02_tf32").compute_capability, 80);
  EXPECT_EQ(row_of("only/05_mixed_precision").math, MathMode::half);
  for (const Ablation& ablation : built()) {
    EXPECT_EQ(row_of(ablation.name).name, ablation.name);
    EXPECT_EQ(ablation.row.parent, ablation.reference.name);
    EXPECT_GT(ablation.row.tolerance, 0.0) << ablation.name;
    if (ablation.rung.name == "02_tf32" || ablation.rung.name == "05_mixed_precision") continue;
    EXPECT_EQ(ablation.row.math, ablation.reference.math) << ablation.name;
    EXPECT_EQ(ablation.row.compute_capability, 0) << ablation.name;
  }
  EXPECT_TRUE(says(input_error([] { row_of("without/99_nothing"); }), {"without/99_nothing"}));
}

TEST(Ablations, LearnInFp16ButWithoutTheFusedAdamWWhichScalesTheLoss) {
  const auto expected = losses_of("00_fp32_baseline", 10);
  for (const Ablation& ablation : built()) {
    if (ablation.row.math != MathMode::half) continue;
    if (!std::isfinite(ablation.row.tolerance)) {
      expect_close(Training(ablation.name, DType::f16).losses(10), losses_of(ablation.name, 10),
                   rounding_of(ablation.row), ablation.name);
      continue;
    }
    if (ablation.name == "without/03_fused_adamw") {
      EXPECT_THROW(Training(ablation.name, DType::f16), UnsupportedError);
      continue;
    }
    expect_close(Training(ablation.name, DType::f16).losses(10), expected, ablation.row.tolerance,
                 ablation.name);
  }
}

/// Merges made-up rungs a -> b into c with the build's script.
class MergeAblation : public ::testing::Test {
 protected:
  MergeAblation() {
    for (const char* sub : {"variants/without", "out"}) fs::create_directories(root() / sub);
    rung("01_a", "one\n\ntwo\n");
    rung("02_b", "one\n\nTWO\n");
  }
  fs::path root() const { return folder_ / ""; }
  void rung(const std::string& name, const std::string& text) const {
    write_file(root() / "variants" / (name + ".cpp"), text);
  }
  Output merge() const {
    return run_shell(
        "cd '" + root().string() + "' && '" + kSource +
        "/cmake/merge_ablation.sh' git without/02_b variants/03_c.cpp variants/02_b.cpp variants/01_a.cpp "
        "out/merged");
  }

 private:
  TempFolder folder_;
};

TEST_F(MergeAblation, TakesTheChangeBack) {
  rung("03_c", "ONE\n\nTWO\n");
  EXPECT_EQ(merge().status, 0);
  EXPECT_EQ(read_file(root() / "out/merged"), "ONE\n\ntwo\n");
}

TEST_F(MergeAblation, ConflictIsOneLineThatNamesBothRungsAndTheWayOut) {
  rung("03_c", "one\n\nthree\n");
  const Output failed = merge();
  EXPECT_EQ(failed.status, 1);
  EXPECT_EQ(std::count(failed.text.begin(), failed.text.end(), '\n'), 1) << failed.text;
  EXPECT_TRUE(says(failed.text, {"error: ", "02_b", "03_c", "write variants/without/02_b.cpp"}));
  EXPECT_FALSE(fs::exists(root() / "out/merged"));
}

TEST_F(MergeAblation, ConflictIsFineWhereAFileIsWritten) {
  rung("03_c", "one\n\nthree\n");
  rung("without/02_b", "// Why.\n");
  EXPECT_EQ(merge().status, 0);
}

TEST_F(MergeAblation, WrittenFileThatIsNotNeededIsAnError) {
  rung("03_c", "ONE\n\nTWO\n");
  rung("without/02_b", "// Why.\n");
  const Output failed = merge();
  EXPECT_EQ(failed.status, 1);
  EXPECT_EQ(std::count(failed.text.begin(), failed.text.end(), '\n'), 1) << failed.text;
  EXPECT_TRUE(says(failed.text, {"variants/without/02_b.cpp", "03_c", "remove"}));
}

TEST_F(MergeAblation, MissingRungIsAnError) {
  const Output failed = merge();
  EXPECT_EQ(failed.status, 1);
  EXPECT_TRUE(says(failed.text, {"without/02_b: git merge-file failed"}));
}

}  // namespace
}  // namespace stepladder
