#include <gtest/gtest.h>

#include "bench/plan/plan.h"

namespace stepladder {
namespace {

Stopping stopping(int64_t rounds, std::optional<double> until_ci = {},
                  std::optional<double> max_time_s = {}) {
  return {.rounds = rounds, .until_ci = until_ci, .max_rounds = 9, .max_time_s = max_time_s};
}

/// Results of one rung with these medians, a round each; each run took a second.
Results over(const std::vector<double>& medians) {
  Results results;
  for (double ms : medians) {
    stepladder::Run run;
    run.variant = "00_fp32_baseline";
    run.round = std::ssize(results.runs);
    run.config = {{"model", "gpt2-tiny"}, {"B", 4}, {"T", 64}};
    run.steps = {{0, false, ms, ms, 4.5, 1.0, 1e-3}};
    run.summary.emplace().median_step_ms = ms;
    run.wall_ms = 1000;
    results.runs.push_back(run);
  }
  return results;
}

/// `results` with the same runs of another rung added, throttled in the rounds before `throttled`.
Results with_another(Results results, int64_t throttled) {
  for (size_t i = 0, n = results.runs.size(); i < n; ++i) {
    stepladder::Run run = results.runs[i];
    run.variant = "02_tf32";
    run.summary->throttled = run.round < throttled;
    results.runs.push_back(run);
  }
  return results;
}

TEST(Stopping, WithoutAnIntervalTheRoundsDecide) {
  EXPECT_EQ(stop_reason(stopping(3), over({}), 0), "");
  EXPECT_EQ(stop_reason(stopping(3), over({1, 1}), 2), "");
  EXPECT_EQ(stop_reason(stopping(3), over({1, 1, 1}), 3), "rounds");
}

TEST(Stopping, ARoundThatIsMissingIsExpectedToTakeWhatOthersTook) {
  Results results = over({1, 1, 1, 1, 1, 1});
  results.runs.erase(results.runs.begin() + 1);
  EXPECT_EQ(results.rounds_begun(), 5);
  EXPECT_EQ(stop_reason(stopping(6, {}, 6.5), results, 1), "");
  EXPECT_EQ(stop_reason(stopping(6, {}, 5.5), results, 1), "max_time");
}

TEST(Stopping, AnIntervalEndsThePlanOnceItIsNarrow) {
  const Stopping narrow = stopping(2, 1.0);
  EXPECT_EQ(stop_reason(narrow, over({10, 10.01, 10, 10.01, 10, 10.01}), 6), "interval");
  EXPECT_EQ(stop_reason(narrow, over({10, 11, 10, 11, 10, 11}), 6), "");
  EXPECT_EQ(stop_reason(narrow, over({10, 11, 10, 11, 10, 11, 10, 11, 10}), 9), "max_rounds");
  EXPECT_NEAR(*widest_interval_percent(over({10, 11, 10, 11, 10, 11})), 0.5 / 10.5 * 100, 1e-9);
}

TEST(Stopping, FewRoundsThatHappenToAgreeDoNotEndIt) {
  const Stopping narrow = stopping(1, 1.0);
  for (size_t n : {1U, 2U, 5U}) EXPECT_EQ(stop_reason(narrow, over(std::vector<double>(n, 10)), n), "") << n;
}

TEST(Stopping, EveryVariantHasToBeWithinIt) {
  Results results = over({10, 10, 10, 10, 10, 10});
  for (int64_t round = 0; round < 6; ++round) {
    stepladder::Run noisy = results.runs[static_cast<size_t>(round)];
    noisy.variant = "02_tf32";
    noisy.summary->median_step_ms = 10.0 + static_cast<double>(round);
    results.runs.push_back(noisy);
  }
  EXPECT_EQ(stop_reason(stopping(1, 1.0), results, 6), "");
}

TEST(Stopping, RoundsThatWereDisturbedDoNotCountTowardsAnInterval) {
  const Stopping narrow = stopping(1, 1.0);
  const auto after = [&](int64_t rounds, int64_t throttled) {
    const Results same = over(std::vector<double>(static_cast<size_t>(rounds), 10));
    return stop_reason(narrow, with_another(same, throttled), rounds);
  };
  EXPECT_EQ(after(6, 0), "interval");
  EXPECT_EQ(after(6, 1), "") << "five rounds are left";
  EXPECT_EQ(after(6, 5), "") << "one is left, which has no interval";
  EXPECT_EQ(after(7, 1), "interval");
  EXPECT_EQ(after(9, 5), "max_rounds");
  const Stopping brief{.until_ci = 1.0, .max_time_s = 13};
  EXPECT_EQ(stop_reason(brief, with_another(over(std::vector<double>(6, 10)), 5), 6), "max_time");
}

TEST(Stopping, ARowDisturbedInEveryRoundIsHeldToTheIntervalThatIsShown) {
  const Stopping narrow = stopping(1, 1.0);
  EXPECT_EQ(stop_reason(narrow, with_another(over({10, 10, 10, 10, 10, 10}), 6), 6), "interval");
  Results noisy = with_another(over({10, 10, 10, 10, 10, 10}), 6);
  for (stepladder::Run& run : noisy.runs)
    if (run.disturbed()) run.summary->median_step_ms += static_cast<double>(run.round);
  EXPECT_EQ(stop_reason(narrow, noisy, 6), "");
}

TEST(Stopping, ARowThatFailedDoesNotHoldUpTheOthers) {
  Results results = with_another(over({10, 10, 10, 10, 10, 10}), 0);
  results.runs.back().status = Status::crash;
  results.runs.back().summary.reset();
  EXPECT_EQ(stop_reason(stopping(1, 1.0), results, 6), "interval");
}

TEST(Stopping, WhatNeverRunsWellDoesNotGoOnForEver) {
  Results results = over({1, 1, 1, 1, 1, 1});
  for (stepladder::Run& run : results.runs) run.status = Status::oom, run.summary.reset();
  EXPECT_EQ(stop_reason(stopping(1, 1.0), results, 6), "failed");
}

TEST(Stopping, NoRoundFollowsTheOneAfterWhichNoRungIsLeft) {
  Results results = with_another(over({1}), 0);
  results.runs[0].status = Status::crash, results.runs[0].summary.reset();
  EXPECT_EQ(stop_reason(stopping(3), results, 1), "") << "02_tf32 goes on";
  results.runs[1].status = Status::unsupported, results.runs[1].summary.reset();
  EXPECT_EQ(stop_reason(stopping(3), results, 1), "failed");
  EXPECT_EQ(stop_reason(stopping(3, 1.0), results, 1), "failed");
  EXPECT_EQ(stop_reason(stopping(1), results, 1), "rounds");
}

TEST(Stopping, NoRoundIsBegunThatWouldTakeTooLong) {
  const Stopping brief = stopping(9, {}, 3.5);
  EXPECT_EQ(stop_reason(brief, over({1, 1}), 2), "");
  EXPECT_EQ(stop_reason(brief, over({1, 1, 1}), 3), "max_time") << "a fourth second would be too much";
  EXPECT_EQ(stop_reason(stopping(3, {}, 3.5), over({1, 1, 1}), 3), "rounds");
}

}  // namespace
}  // namespace stepladder
