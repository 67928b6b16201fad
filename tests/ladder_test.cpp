// The ladder's promises: the table and the files agree, neighbouring rungs differ by one lesson, and every
// rung learns what its parent learns.
#include "bench/plan/ladder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>

#include "tests/losses.h"
#include "tests/trainers.h"
#include "tests/training.h"

namespace stepladder {
namespace {

namespace fs = std::filesystem;

fs::path source_of(const std::string& rung) {
  return fs::path(STEPLADDER_SOURCE_DIR) / our_rung(rung)->shown;
}

/// The number of lines that `diff` marks as removed or added.
int changed_lines(const fs::path& a, const fs::path& b) {
  const std::string command = "diff '" + a.string() + "' '" + b.string() + "' | grep -c '^[<>]'";
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  int count = -1;
  if (!pipe || std::fscanf(pipe.get(), "%d", &count) != 1) return -1;
  return count;
}

TEST(Ladder, TableNamesExactlyTheVariantFiles) {
  std::set<std::string> files, table, linked;
  const fs::path variants = fs::path(STEPLADDER_SOURCE_DIR) / "variants";
  for (const fs::path& folder :
       {variants, variants / "beside", variants / "learning", variants / "learning" / "beside"})
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".cpp")
        files.insert(fs::relative(entry.path(), variants.parent_path()));
  for (const Ladder& ladder : our_ladders())
    for (const Rung& rung : ladder.rungs) table.insert(rung.shown);
  EXPECT_EQ(files, table);
  for (const RungBuild& build : linked_rungs()) linked.insert(our_rung(build.name)->shown);
  EXPECT_EQ(files, linked);
}

TEST(Ladder, NumbersAreForRungsOfTheLadder) {
  for (const Ladder& ladder : our_ladders())
    for (const Rung& rung : ladder.rungs)
      EXPECT_NE(rung.beside, std::isdigit(static_cast<unsigned char>(rung.name.front())) != 0) << rung.name;
}

TEST(Ladder, ParentsComeBeforeTheirRung) {
  for (const Ladder& ladder : our_ladders()) {
    const auto& rungs = ladder.rungs;
    ASSERT_FALSE(rungs.empty());
    EXPECT_EQ(rungs.front().parent, "");
    for (size_t i = 1; i < rungs.size(); ++i) {
      const bool earlier = std::any_of(rungs.begin(), rungs.begin() + static_cast<std::ptrdiff_t>(i),
                                       [&](const Rung& r) { return r.name == rungs[i].parent; });
      EXPECT_TRUE(earlier) << rungs[i].name << " has parent '" << rungs[i].parent << "'";
    }
  }
}

TEST(Ladder, NoTwoRungsOfOursHaveOneName) {
  std::set<std::string> names;
  for (const Ladder& ladder : our_ladders())
    for (const Rung& rung : ladder.rungs) EXPECT_TRUE(names.insert(rung.name).second) << rung.name;
  EXPECT_EQ(our_rung("00_fp32_baseline"), &ladder().rungs.front());
  EXPECT_EQ(our_rung("99_nothing"), nullptr);
}

TEST(Ladder, TheBaselineOfLearningIsATrainerOfTheLadderOfTime) {
  const Ladder* learning = our_ladder("learning");
  ASSERT_NE(learning, nullptr);
  EXPECT_TRUE(learning->built_in() && !learning->usual());
  const Rung& first = learning->rungs.front();
  EXPECT_EQ(first.shown, ladder().find(first.trainer).shown);
  EXPECT_EQ(row_of(first.name).trainer, first.trainer);
}

TEST(Ladder, NeighboursDifferWithinTheirBudget) {
  for (const Rung& rung : trainers()) {
    if (rung.parent.empty()) continue;
    const int changed = changed_lines(source_of(rung.parent), source_of(rung.name));
    EXPECT_GT(changed, 0) << rung.name << " changes nothing";
    EXPECT_LE(changed, rung.diff_budget) << rung.name << " against " << rung.parent;
    // A lesson fits on a page; only sharding the optimizer does not.
    if (!rung.beside && rung.name != "16_zero1") {
      EXPECT_LE(rung.diff_budget, 60) << rung.name;
    }
  }
}

TEST(Ladder, EveryRungLearnsWhatItsParentLearns) {
  constexpr int kSteps = 50;
  for (const Rung& rung : trainers()) {
    const auto losses = losses_of(rung.name, kSteps);
    EXPECT_LT(losses.back(), losses.front() - 0.3F) << rung.name;
    if (!rung.parent.empty() && (std::isfinite(rung.tolerance) || algorithm_of(rung) != rung.name))
      expect_close(losses, losses_of(rung.parent, kSteps), rounding_of(rung), rung.name);
  }
}

TEST(Ladder, APositionMayBeMoreThanTheVocabularyAndTheChannelsHave) {
  Config config = small_config();
  config.max_T = 2 * config.V;
  for (const Rung& rung : trainers())
    EXPECT_TRUE(std::isfinite(Training(rung.name, DType::bf16, 1, config).losses(2).back())) << rung.name;
}

TEST(Ladder, RungsThatChangeNumericsReallyDo) {
  EXPECT_NE(losses_of("02_tf32", 2), losses_of("01_causal_mask", 2));
}

TEST(Ladder, ARungRepeatsItselfBitForBit) {
  for (const Rung& rung : trainers())
    EXPECT_EQ(losses_of(rung.name, 5), losses_of(rung.name, 5)) << rung.name;
}

TEST(Ladder, Fp16LearnsWhatTheBaselineLearns) {
  const auto expected = losses_of("00_fp32_baseline", 50);
  for (const Rung& rung : trainers_of(ladder()))
    if (rung.math == MathMode::half)
      expect_close(Training(rung.name, DType::f16).losses(50), expected, rung.tolerance, rung.name);
  for (const Rung& rung : trainers_of(*our_ladder("learning")))
    if (rung.math == MathMode::half)
      expect_close(Training(rung.name, DType::f16).losses(50), losses_of(rung.name, 50), rounding_of(rung),
                   rung.name);
}

TEST(Ladder, LossScaleThatOverflowsSkipsStepsAndRecovers) {
  for (const Rung& rung : trainers()) {
    if (rung.math != MathMode::half) continue;
    Training run(rung.name, DType::f16);
    (*run.ops)(WriteValues{run.trainer->tensors().loss_scaler, {0x1p24F, 0.0F, 0.0F, 0.0F}});
    const auto before = run.values(run.trainer->tensors().params.find("h.*.mlp.c_fc.weight"));
    const auto first = run.losses(1);
    EXPECT_EQ(run.trainer->skipped_steps(), 1) << rung.name;
    run.trainer->gather_state();
    EXPECT_EQ(run.values(run.trainer->tensors().params.find("h.*.mlp.c_fc.weight")), before)
        << rung.name << ": a skipped step changed weights";
    const auto losses = run.losses(49);
    EXPECT_LT(losses.back(), first.front() - 0.3F) << rung.name;
    EXPECT_LT(run.trainer->skipped_steps(), 20) << rung.name;
  }
}

TEST(Ladder, PaddingTheVocabularyChangesNothing) {
  // The vocabulary's 96 rows are padded to 128. On the CPU every sum keeps its order, so nothing may differ.
  Training plain("09_flash_attention"), padded("10_padded_vocab");
  EXPECT_EQ(plain.losses(20), padded.losses(20));
  EXPECT_EQ(plain.trainer->grad_norm(), padded.trainer->grad_norm());
  const std::vector<int32_t> prompt = {3, 18, 93};
  EXPECT_EQ(plain.trainer->next_logits(prompt), padded.trainer->next_logits(prompt));
  const auto names = plain.trainer->tensors().params.each(),
             padded_names = padded.trainer->tensors().params.each();
  for (size_t i = 0; i < names.size(); ++i)
    EXPECT_EQ(plain.values(names[i].tensor), padded.values(padded_names[i].tensor)) << names[i].name;
  const int64_t V = plain.config.V, C = plain.config.C;
  ASSERT_GT(padded.trainer->tensors().params.find("wte.weight").shape[0], V);
  const auto wte = padded.values(padded.trainer->tensors().params.find("wte.weight"));
  EXPECT_TRUE(std::all_of(wte.begin() + V * C, wte.end(), [](float w) { return w == 0.0F; }));
}

TEST(Ladder, AccumulationAveragesMicroBatches) {
  // A step of two micro-batches gives the loss and gradient of one batch with the same sequences.
  Config both = small_config();
  both.B *= 2;
  for (const Rung& rung : trainers()) {
    Training one(rung.name, DType::bf16, 1, both), two(rung.name, DType::bf16, 2);
    const float loss = one.losses(1).front(), norm = one.trainer->grad_norm();
    const double tolerance = std::max(1e-5, 10 * rounding_of(rung));
    EXPECT_TRUE(std::abs(two.losses(1).front() - loss) <= tolerance * loss) << rung.name;
    EXPECT_TRUE(std::abs(two.trainer->grad_norm() - norm) <= tolerance * norm)
        << rung.name << ": " << two.trainer->grad_norm() << ", expected " << norm;
    if (rung.math != MathMode::fp32) continue;
    const auto expected = one.trainer->tensors().grads.each(), grads = two.trainer->tensors().grads.each();
    for (size_t i = 0; i < grads.size(); ++i) {
      const auto a = two.values(grads[i].tensor), b = one.values(expected[i].tensor);
      for (size_t k = 0; k < a.size(); ++k)
        ASSERT_TRUE(std::abs(a[k] - b[k]) <= tolerance * norm) << rung.name << ", " << grads[i].name;
    }
  }
}

TEST(Ladder, ManyMicroBatchesAddUpToTheGradientOfTheBaseline) {
  // One batch a thousand times: a bf16 sum would stop growing at 256 times a term.
  Config config = small_config();
  config.B = config.L = config.NH = 1;
  config.T = config.C = 8;
  const std::vector<uint16_t> batch = {1, 8, 43, 26, 5, 4, 71, 70, 65};
  const auto norm = [&](const std::string& rung, int accumulate) {
    Training run(rung, DType::bf16, accumulate, config);
    run.data = Loader(std::make_shared<const Tokens>("one batch", batch, config.V), config.B, config.T);
    run.losses(1);
    return run.trainer->grad_norm();
  };
  const float of_baseline = norm("00_fp32_baseline", 1024);
  for (const Rung& rung : trainers()) {
    if (!rung.in_16_bits()) continue;
    const float got = norm(rung.name, 1024);
    const float expected = std::isfinite(rung.tolerance) ? of_baseline : norm(rung.name, 1);
    const double tolerance = (rung.math == MathMode::fp8 ? 5 : 1) * rounding_of(rung);
    EXPECT_TRUE(std::abs(got - expected) <= tolerance * expected)
        << rung.name << ": " << got << ", expected " << expected;
  }
}

TEST(Ladder, GradientsOfOneMicroBatchHaveTheTypeOfActivations) {
  for (const Rung& rung : trainers()) {
    const Training run(rung.name, DType::bf16);
    EXPECT_EQ(run.trainer->tensors().grads.dtype(), run.trainer->tensors().logits.dtype) << rung.name;
  }
}

}  // namespace
}  // namespace stepladder
