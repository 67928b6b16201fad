// The ladder's promises: the table and the files agree, neighbours differ by a lesson and no more, and every
// rung learns what its parent learns.
#include "bench/plan/ladder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "tests/training.h"

namespace stepladder {
namespace {

namespace fs = std::filesystem;

fs::path source_of(const std::string& rung) {
  return fs::path(STEPLADDER_SOURCE_DIR) / "variants" / (rung + ".cpp");
}

/// Lines that `diff` marks as removed or added.
int changed_lines(const fs::path& a, const fs::path& b) {
  const std::string command = "diff '" + a.string() + "' '" + b.string() + "' | grep -c '^[<>]'";
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  int count = -1;
  if (!pipe || std::fscanf(pipe.get(), "%d", &count) != 1) return -1;
  return count;
}

TEST(Ladder, TableNamesExactlyTheVariantFiles) {
  std::vector<std::string> files, table, linked;
  for (const auto& entry : fs::directory_iterator(fs::path(STEPLADDER_SOURCE_DIR) / "variants"))
    if (entry.path().extension() == ".cpp") files.push_back(entry.path().stem());
  std::sort(files.begin(), files.end());
  for (const Rung& rung : ladder()) table.push_back(rung.name);
  for (const RungBuild& build : linked_rungs()) linked.push_back(build.name);
  EXPECT_EQ(files, table);
  EXPECT_EQ(files, linked);
}

TEST(Ladder, TableTellsWhichRungsChooseTheirBatch) {
  const auto& rungs = linked_rungs();
  for (size_t i = 0; i < rungs.size(); ++i) EXPECT_EQ(rungs[i].batch, ladder()[i].batch) << rungs[i].name;
}

TEST(Ladder, ParentsComeBeforeTheirRung) {
  const auto& rungs = ladder();
  ASSERT_FALSE(rungs.empty());
  EXPECT_EQ(rungs.front().parent, "");
  for (size_t i = 1; i < rungs.size(); ++i) {
    const bool earlier = std::any_of(rungs.begin(), rungs.begin() + static_cast<std::ptrdiff_t>(i),
                                     [&](const Rung& r) { return r.name == rungs[i].parent; });
    EXPECT_TRUE(earlier) << rungs[i].name << " has parent '" << rungs[i].parent << "'";
  }
}

TEST(Ladder, NeighboursDifferWithinTheirBudget) {
  for (const Rung& rung : ladder()) {
    if (rung.parent.empty()) continue;
    const int changed = changed_lines(source_of(rung.parent), source_of(rung.name));
    EXPECT_GT(changed, 0) << rung.name << " changes nothing";
    EXPECT_LE(changed, rung.diff_budget) << rung.name << " against " << rung.parent;
  }
}

TEST(Ladder, EveryRungLearnsWhatItsParentLearns) {
  constexpr int kSteps = 50;
  for (const Rung& rung : ladder()) {
    const auto losses = losses_of(rung.name, kSteps);
    EXPECT_LT(losses.back(), losses.front() - 0.3F) << rung.name;
    if (rung.parent.empty()) continue;
    const auto expected = losses_of(rung.parent, kSteps);
    for (int step = 0; step < kSteps; ++step) {
      const double error = std::abs(losses[step] - expected[step]) / expected[step];
      EXPECT_TRUE(error <= rung.tolerance)
          << rung.name << " at step " << step << ": " << losses[step] << ", its parent " << expected[step];
    }
  }
}

TEST(Ladder, RungsThatChangeNumericsReallyDo) {
  EXPECT_NE(losses_of("02_tf32", 2), losses_of("01_causal_mask", 2));
}

TEST(Ladder, ARungRepeatsItselfBitForBit) {
  for (const Rung& rung : ladder()) EXPECT_EQ(losses_of(rung.name, 5), losses_of(rung.name, 5)) << rung.name;
}

TEST(Ladder, Fp16LearnsWhatTheBaselineLearns) {
  const auto expected = losses_of("00_fp32_baseline", 50);
  for (const Rung& rung : ladder()) {
    if (rung.math != MathMode::half) continue;
    const auto losses = Training(rung.name, DType::f16).losses(50);
    for (size_t step = 0; step < losses.size(); ++step)
      EXPECT_TRUE(std::abs(losses[step] - expected[step]) <= rung.tolerance * expected[step])
          << rung.name << " at step " << step << ": " << losses[step] << ", the baseline " << expected[step];
  }
}

TEST(Ladder, LossScaleThatOverflowsSkipsStepsAndRecovers) {
  for (const Rung& rung : ladder()) {
    if (rung.math != MathMode::half) continue;
    Training run(rung.name, DType::f16);
    (*run.ops)(WriteValues{run.trainer->loss_scaler, {0x1p24F, 0.0F, 0.0F, 0.0F}});
    const auto before = run.values(run.trainer->params.fcw);
    const auto first = run.losses(1);
    EXPECT_EQ(run.trainer->skipped_steps(), 1) << rung.name;
    run.trainer->gather_state();
    EXPECT_EQ(run.values(run.trainer->params.fcw), before) << rung.name << ": a skipped step changed weights";
    const auto losses = run.losses(49);
    EXPECT_LT(losses.back(), first.front() - 0.3F) << rung.name;
    EXPECT_LT(run.trainer->skipped_steps(), 20) << rung.name;
  }
}

TEST(Ladder, PaddingTheVocabularyChangesNothing) {
  // A multiple of nothing: 96 rows become 128. On the CPU every sum keeps its order, so nothing may differ.
  Training plain("08_compiled_step"), padded("09_padded_vocab");
  EXPECT_EQ(plain.losses(20), padded.losses(20));
  EXPECT_EQ(plain.trainer->grad_norm(), padded.trainer->grad_norm());
  const std::vector<int32_t> prompt = {3, 18, 93};
  EXPECT_EQ(plain.trainer->next_logits(prompt), padded.trainer->next_logits(prompt));
  const auto names = plain.trainer->params.each(), padded_names = padded.trainer->params.each();
  for (size_t i = 0; i < names.size(); ++i)
    EXPECT_EQ(plain.values(names[i].tensor), padded.values(padded_names[i].tensor)) << names[i].name;
  const int64_t V = plain.config.V, C = plain.config.C;
  ASSERT_GT(padded.trainer->params.wte.shape[0], V);
  const auto wte = padded.values(padded.trainer->params.wte);
  EXPECT_TRUE(std::all_of(wte.begin() + V * C, wte.end(), [](float w) { return w == 0.0F; }));
}

TEST(Ladder, AccumulationAveragesMicroBatches) {
  // The mean of two batches' losses before any update, in one step of two micro-batches.
  const auto single = losses_of("00_fp32_baseline", 1), accumulated = losses_of("00_fp32_baseline", 1, 2);
  EXPECT_NE(single, accumulated);
  EXPECT_NEAR(single[0], accumulated[0], 0.2);
}

}  // namespace
}  // namespace stepladder
