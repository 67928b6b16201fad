#include "bench/verdict/comparison.h"

#include <gtest/gtest.h>

#include <sstream>

#include "bench/base/text.h"
#include "bench/results/json.h"
#include "bench/verdict/comparison_report.h"
#include "tests/comparable.h"
#include "tests/files.h"

namespace stepladder {
namespace {

constexpr const char *kRung = "13_cuda_graphs", *kOther = "00_fp32_baseline";

Results base_results() {
  return results_of("aaa", "2025-01-31T12:00:00.000Z");
}
Results new_results() {
  Results results = results_of("bbb", "2025-01-31T13:00:00.000Z");
  results.plan["data"] = "/new/data/austen.txt";  // the path in another checkout
  return results;
}

/// Results of BASE and NEW; add() takes both sides' medians by round.
struct Pair {
  Results base = base_results(), next = new_results();

  void add(const std::string& variant, const std::vector<double>& base_ms,
           const std::vector<double>& new_ms) {
    for (size_t i = 0; i < base_ms.size(); ++i)
      base.runs.push_back(run_of(variant, static_cast<int64_t>(i), {base_ms[i]}));
    for (size_t i = 0; i < new_ms.size(); ++i)
      next.runs.push_back(run_of(variant, static_cast<int64_t>(i), {new_ms[i]}));
    for (stepladder::Run& run : next.runs) run.source_hash = "def";
  }
  Comparison compared(const Limits& limits = {}) const { return compare(base, next, limits); }
};

Pair steady(double slower = 0.0) {
  Pair pair;
  pair.add(kRung, {40, 40.1, 39.9, 40, 40.05, 40},
           {40 * (1 + slower), 40.05 * (1 + slower), 39.95 * (1 + slower), 40 * (1 + slower),
            40 * (1 + slower), 40 * (1 + slower)});
  return pair;
}

std::string joined_notes(const Comparison& comparison) {
  std::string text;
  for (const std::string& note : comparison.notes) text += note + "\n";
  return text;
}

std::string refusal(const Results& base, const Results& next) {
  try {
    require_comparable(base, next);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), kExitNotComparable);
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    return e.what();
  }
  return "";
}

// ---- verdicts --------------------------------------------------------------------------------------------

TEST(Comparison, TheBoundsDecide) {
  EXPECT_EQ(overall(steady().compared().rows), Verdict::pass);
  EXPECT_EQ(overall(steady(0.03).compared().rows), Verdict::regression);
  EXPECT_EQ(overall(steady(-0.5).compared().rows), Verdict::pass) << "an improvement never fails";
  EXPECT_EQ(overall(steady(0.01).compared().rows), Verdict::inconclusive);
  const Limits lenient{.threshold = 0.05};
  EXPECT_EQ(overall(steady(0.03).compared(lenient).rows), Verdict::pass);
  const ComparedRow row = steady(0.03).compared().rows[0];
  EXPECT_NEAR(row.numbers->time().change->log_ratio, std::log(1.03), 5e-4);
  EXPECT_EQ(row.numbers->pairs, 6U);
  EXPECT_TRUE(says(row.reason, {"slower", "3.0 % more time", "1.00 %"})) << row.reason;
}

TEST(Comparison, AnUndecidedRowSaysHowManyPairsWouldTell) {
  const auto scattered = [](size_t pairs, double slower) {
    Pair pair;
    std::vector<double> ms;
    for (size_t i = 0; i < pairs; ++i) ms.push_back(40 * (1 + slower + (i % 2 == 0 ? 0.02 : -0.02)));
    pair.add(kRung, std::vector<double>(pairs, 40.0), ms);
    return pair.compared().rows[0];
  };
  for (const double slower : {0.0, 0.02}) {
    const ComparedRow row = scattered(6, slower);
    ASSERT_EQ(row.verdict, Verdict::inconclusive);
    const size_t at = row.reason.find("about ");
    ASSERT_NE(at, std::string::npos) << row.reason;
    const size_t needed = std::stoul(row.reason.substr(at + 6));
    EXPECT_GT(needed, 6U);
    EXPECT_LT(needed, 30U);
    EXPECT_EQ(scattered(needed / 2 * 2 + 2, slower).numbers->time().below(), slower == 0.0);
    EXPECT_EQ(scattered(needed / 2 * 2 + 2, slower).numbers->time().above(), slower > 0.0);
  }
  EXPECT_TRUE(says(scattered(6, 0.0101).reason, {"--steps"}));
}

TEST(Comparison, OnlyColumnsThatAreThereAreExplained) {
  Pair pair = steady();
  EXPECT_TRUE(says(report_in("text", pair.compared()), {"change %", "Change: ", "Bounds: "}));
  EXPECT_FALSE(says(report_in("text", pair.compared()), {"energy: mean"}));
  for (stepladder::Run& run : pair.next.runs) run.status = Status::crash, run.summary.reset();
  const std::string failed = report_in("text", pair.compared());
  EXPECT_TRUE(says(failed, {"FAILED"}));
  for (const char* legend : {"change %", "Change: ", "Bounds: "})
    EXPECT_FALSE(says(failed, {legend})) << failed;
}

TEST(Comparison, CalibratedNoiseRaisesTheLimit) {
  Limits limits;
  limits.noise[{kRung, "gpt2 B=16 T=1024"}].time = {0.08, -0.08, 0.09, -0.07, 0.1};
  const Comparison comparison = steady(0.03).compared(limits);
  EXPECT_GT(comparison.rows[0].numbers->time().limit, 0.03);
  EXPECT_EQ(comparison.rows[0].verdict, Verdict::pass);
  limits.noise.clear();
  limits.noise[{kRung, "gpt2 B=64 T=1024"}].time = {0.08, -0.08};
  EXPECT_EQ(steady(0.03).compared(limits).rows[0].verdict, Verdict::regression) << "another workload's";
}

TEST(Comparison, NoiseThatIsTooLargeOrHardlyKnownIsNoExcuse) {
  Limits limits;
  auto& noise = limits.noise[{kRung, "gpt2 B=16 T=1024"}].time;
  noise = {0.35, -0.3, 0.4};
  const Comparison comparison = steady(0.3).compared(limits);
  EXPECT_EQ(comparison.rows[0].verdict, Verdict::regression);
  EXPECT_DOUBLE_EQ(comparison.rows[0].numbers->time().limit, kMaxNoiseLimit);
  EXPECT_TRUE(says(joined_notes(comparison), {kRung, "3 pairs", "5.0 % is used"}));
  limits.threshold = 0.5;  // --threshold
  EXPECT_EQ(steady(0.3).compared(limits).rows[0].verdict, Verdict::pass);
  limits.threshold = kMinLimit;
  noise.assign(20, 0.01);
  EXPECT_EQ(joined_notes(steady().compared(limits)).find("noise"), std::string::npos);
}

TEST(Comparison, RoundsArePairedSoThatDriftBetweenThemCancels) {
  Pair pair;
  pair.add(kRung, {40, 60, 90, 30, 45, 40}, {41.2, 61.8, 92.7, 30.9, 46.35, 41.2});
  EXPECT_EQ(overall(pair.compared().rows), Verdict::regression);
}

/// Results on a card at its power limit: NEW's step takes more time, cycles and energy by these ratios less
/// 1.
Pair at_the_limit(double time, double cycles, double energy = 0.0) {
  Pair pair = steady(time);
  for (Results* results : {&pair.base, &pair.next})
    for (stepladder::Run& run : results->runs) {
      const double more = results == &pair.next ? 1.0 : 0.0,
                   noise = 1.0 + 1e-4 * static_cast<double>(run.round % 3);
      run.summary->cycles = 5e7 * (1.0 + more * cycles) * (more > 0.0 ? noise : 1.0);
      run.summary->joules = 18.0 * (1.0 + more * energy) * (more > 0.0 ? noise : 1.0);
    }
  return pair;
}

TEST(Comparison, CyclesTellASlowdownThatTheCardHidesWithItsClock) {
  const Limits limits{.cycles = kMinCyclesLimit};
  EXPECT_EQ(overall(at_the_limit(0.0, 0.0).compared(limits).rows), Verdict::pass);
  const ComparedRow row = at_the_limit(0.008, 0.019).compared(limits).rows[0];
  EXPECT_EQ(row.verdict, Verdict::regression);
  EXPECT_TRUE(says(row.reason, {"0.8 % more time", "1.9 % more cycles", "clock"}));
  EXPECT_EQ(overall(at_the_limit(0.0, 0.0029).compared(limits).rows), Verdict::inconclusive);
  EXPECT_EQ(overall(at_the_limit(0.03, 0.0).compared(limits).rows), Verdict::regression)
      << "nor do they hide time";
}

/// at_the_limit() with runs whose GEMM search chose these algorithms on either side.
Pair searched(double cycles, const std::string& base, const std::string& next) {
  Pair pair = at_the_limit(0.0, cycles);
  for (auto& [results, algorithms] : {std::pair(&pair.base, base), std::pair(&pair.next, next)})
    for (stepladder::Run& run : results->runs)
      run.summary->compile = Compile{.search_ms = 1.0, .searched = 21, .algorithms = algorithms};
  return pair;
}

TEST(Comparison, DifferentGemmAlgorithmsMayDifferInCycles) {
  const Limits limits{.cycles = kMinCyclesLimit};
  EXPECT_EQ(overall(searched(0.0105, "a", "a").compared(limits).rows), Verdict::regression);
  for (const auto& [base, next] : {std::pair("a", "b"), std::pair("", ""), std::pair("a", "")}) {
    const Comparison comparison = searched(0.0105, base, next).compared(limits);
    EXPECT_EQ(overall(comparison.rows), Verdict::pass);
    EXPECT_TRUE(says(joined_notes(comparison), {kRung, "GEMM"}));
    EXPECT_EQ(overall(searched(0.03, base, next).compared(limits).rows), Verdict::regression);
  }
  Pair one = searched(0.0105, "a", "a");
  one.next.runs[3].summary->compile->algorithms = "b";
  EXPECT_EQ(overall(one.compared(limits).rows), Verdict::pass) << "in one pair";
  EXPECT_EQ(
      overall(searched(0.0105, "a", "b").compared({.cycles = 0.005, .cycles_other_algorithms = 0.005}).rows),
      Verdict::regression)
      << "a limit that was asked for";
}

TEST(Comparison, MoreCyclesInLessTimeAreAnImprovement) {
  const Limits limits{.cycles = kMinCyclesLimit};
  EXPECT_EQ(overall(at_the_limit(-0.02, 0.02).compared(limits).rows), Verdict::pass);
  Pair few = at_the_limit(-0.02, 0.02);
  for (Results* of : {&few.base, &few.next})
    std::erase_if(of->runs, [](const stepladder::Run& run) { return run.round >= 5; });
  EXPECT_EQ(overall(few.compared(limits).rows), Verdict::inconclusive) << "less time is not certain yet";
}

TEST(Comparison, EnergyHasALimitOfItsOwn) {
  const ComparedRow row = at_the_limit(0.0, 0.0, 0.05).compared().rows[0];
  EXPECT_EQ(row.verdict, Verdict::regression);
  EXPECT_TRUE(says(row.reason, {"5.0 % more energy"}));
  EXPECT_EQ(overall(at_the_limit(0.0, 0.0, 0.05).compared({.energy = 0.1}).rows), Verdict::pass);
  EXPECT_EQ(overall(at_the_limit(0.0, 0.0, 0.0199).compared().rows), Verdict::pass)
      << "never undecided by it alone";
}

/// Six pairs of runs of five steps: `slow` of NEW's take `times` as long as BASE's, the others as long.
Pair with_slow_steps(size_t slow, double times) {
  Pair pair;
  for (int64_t round = 0; round < 6; ++round) {
    std::vector<double> ms(5, 40.0 + 0.01 * static_cast<double>(round));
    pair.base.runs.push_back(run_of(kRung, round, ms));
    for (size_t i = 0; i < slow; ++i) ms[i] *= times;
    pair.next.runs.push_back(run_of(kRung, round, ms));
  }
  return pair;
}

TEST(Comparison, SlowStepsThatTheMedianHidesAreARegressionOfTheMean) {
  const Comparison slow = with_slow_steps(2, 3.0).compared();
  EXPECT_EQ(slow.rows[0].verdict, Verdict::regression);
  EXPECT_TRUE(says(slow.rows[0].reason, {"80.0 % more mean time", "median"})) << slow.rows[0].reason;
  EXPECT_EQ(with_slow_steps(2, 1.04).compared().rows[0].verdict, Verdict::pass) << "1.6 % in the mean";
  const Limits lenient{.threshold = 1.0};
  EXPECT_EQ(with_slow_steps(2, 3.0).compared(lenient).rows[0].verdict, Verdict::pass);
  EXPECT_TRUE(says(report_in("text", slow), {"mean time %"}));
  EXPECT_TRUE(says(report_in("github", slow), {"mean time +80.00 %25"})) << report_in("github", slow);
}

TEST(Comparison, TheMeanIsShownWhereItTellsMoreThanTheMedian) {
  for (const Comparison& one : {with_slow_steps(0, 1.0).compared(), with_slow_steps(5, 3.0).compared()}) {
    EXPECT_FALSE(says(report_in("text", one, true), {"mean time %"}));
    EXPECT_TRUE(says(report_in("json", one), {"mean_ms"}));
  }
}

TEST(Comparison, AMeanOverItsLimitIsNoPassAndFewPairsOfItAreUndecided) {
  Pair pair = with_slow_steps(2, 3.0);
  for (Results* side : {&pair.base, &pair.next}) side->runs.resize(3);
  EXPECT_EQ(pair.compared().rows[0].verdict, Verdict::inconclusive);
  EXPECT_TRUE(says(pair.compared().rows[0].reason, {"mean time", "3 pairs"}));
}

TEST(Comparison, AHiccupHindersNoPass) {
  Pair pair = with_slow_steps(0, 1.0);
  pair.next.runs[2].steps[3].step_ms *= 20.0;
  EXPECT_EQ(pair.compared().rows[0].verdict, Verdict::pass);
}

/// Six pairs; the means of NEW's runs are longer by `more` and `more` + `spread` (log ratios), in turns.
Pair with_means(double more, double spread) {
  Pair pair = with_slow_steps(0, 1.0);
  for (size_t i = 0; i < pair.next.runs.size(); ++i) {
    std::vector<Step>& steps = pair.next.runs[i].steps;  // a warm-up step, then five
    const double mean = steps[1].step_ms * std::exp(more + (i % 2 == 0 ? spread : 0.0));
    steps.back().step_ms = 5 * mean - 4 * steps[1].step_ms;
  }
  return pair;
}

TEST(Comparison, MeanTimesHaveATenthOfTheFalseAlarms) {
  // t of six pairs that alternate by d around m is m sqrt(5) / (d / 2): one-sided p of 0.001 is t = 5.893.
  const double spread = 0.04, half = spread / 2;
  const auto verdict_at = [&](double t) {
    return with_means(t * half / std::sqrt(5.0) - half, spread).compared().rows[0].verdict;
  };
  EXPECT_EQ(verdict_at(5.8), Verdict::inconclusive);
  EXPECT_EQ(verdict_at(6.0), Verdict::regression);
}

TEST(Comparison, WhatPassesBetweenStepsIsJudgedToo) {
  const auto covering = [](double base, double next, double faster) {
    Pair pair = with_slow_steps(5, faster);
    for (stepladder::Run& run : pair.base.runs) run.summary->covered = base;
    for (stepladder::Run& run : pair.next.runs) run.summary->covered = next;
    return pair;
  };
  const Comparison more = covering(0.95, 0.7, 1.0).compared();
  EXPECT_EQ(more.rows[0].verdict, Verdict::regression);
  EXPECT_TRUE(says(more.rows[0].reason, {"35.7 % more mean time to the next step"})) << more.rows[0].reason;
  EXPECT_TRUE(says(report_in("text", more), {"mean time to the next step %"}));
  EXPECT_EQ(covering(0.95, 0.95, 1.0).compared().rows[0].verdict, Verdict::pass);
  const Comparison moved = covering(1.0, 0.5, 0.5).compared();
  EXPECT_EQ(moved.rows[0].verdict, Verdict::pass) << "half of each step is beside it now";
  ASSERT_NE(moved.rows[0].numbers->find(Quantity::time_to_next), nullptr);
  EXPECT_NEAR(moved.rows[0].numbers->find(Quantity::time_to_next)->next, 40.0, 0.1);
  Pair alone = covering(0.95, 0.7, 1.0);
  for (stepladder::Run& run : alone.base.runs) run.summary->covered.reset();
  EXPECT_EQ(alone.compared().rows[0].verdict, Verdict::pass) << "nothing to compare with";
  EXPECT_TRUE(says(joined_notes(alone.compared()), {"BASE's mean time to the next step"}))
      << "but it is said";
}

TEST(Comparison, StepsThatOneSideAloneTookForWarmUpAreInTheMean) {
  Pair pair;
  for (int64_t round = 0; round < 6; ++round) {
    std::vector<double> ms(20, 40.0);
    pair.base.runs.push_back(run_of(kRung, round, ms));
    for (size_t i = 0; i < 8; ++i) ms[i] = 120.0;
    pair.next.runs.push_back(run_of(kRung, round, ms));
    for (size_t i = 0; i <= 8; ++i) pair.next.runs.back().steps[i].warmup = true;
  }
  EXPECT_EQ(pair.compared().rows[0].verdict, Verdict::regression);
}

TEST(Comparison, CyclesAndEnergyAreJudgedByThePairsThatKnowThem) {
  Pair pair = at_the_limit(0.0, 0.05, 0.05);
  pair.base.runs[2].summary->cycles.reset();
  pair.next.runs[3].summary->joules.reset();
  Comparison comparison = pair.compared();
  EXPECT_EQ(overall(comparison.rows), Verdict::inconclusive) << "five pairs are never certain";
  EXPECT_TRUE(says(joined_notes(comparison), {"5 of 6", "cycles", "energy"}));
  for (Results* results : {&pair.base, &pair.next}) {
    results->runs.push_back(results->runs.back());
    results->runs.back().round = 6;
  }
  comparison = pair.compared();
  EXPECT_EQ(overall(comparison.rows), Verdict::regression) << joined_notes(comparison);
}

TEST(Comparison, APassRestsOnTimeAloneOnlyWhereOneSideNeverKnowsTheCycles) {
  Pair pair = at_the_limit(0.0, 0.05);
  for (size_t i = 1; i < pair.base.runs.size(); ++i) pair.base.runs[i].summary->cycles.reset();
  EXPECT_EQ(overall(pair.compared().rows), Verdict::inconclusive);
  pair.base.runs[0].summary->cycles.reset();
  const Comparison comparison = pair.compared();
  EXPECT_EQ(overall(comparison.rows), Verdict::pass);
  EXPECT_TRUE(says(joined_notes(comparison), {"BASE's cycles"}));
}

TEST(Comparison, TellsThatTheTwoRanOnDifferentCards) {
  Pair pair = steady();
  const auto noted = [&] { return says(joined_notes(pair.compared()), {"different cards", "gate"}); };
  for (auto& [results, card] : {std::pair(&pair.base, "GPU-a"), std::pair(&pair.next, "GPU-b")}) {
    EXPECT_FALSE(noted());
    for (stepladder::Run& run : results->runs) run.device = card;
  }
  EXPECT_TRUE(noted());
  pair.next.runs = pair.base.runs;
  EXPECT_FALSE(noted());
}

TEST(Comparison, NoiseOfCyclesRaisesTheirLimitAlone) {
  Limits limits{.cycles = kMinCyclesLimit};
  limits.noise[{kRung, "gpt2 B=16 T=1024"}] = {
      .time = std::vector(20, 1e-4), .cycles = {0.04, -0.04, 0.05}, .energy = {}};
  const ComparedRow row = at_the_limit(0.0, 0.01).compared(limits).rows[0];
  EXPECT_EQ(row.verdict, Verdict::pass);
  EXPECT_GT(row.numbers->find(Quantity::cycles)->limit, 0.02);
  EXPECT_DOUBLE_EQ(row.numbers->time().limit, kMinLimit);
}

TEST(Comparison, NumbersOfAnySizeAreSurvived) {
  Pair pair;
  pair.add(kRung, std::vector<double>(6, 1e-300), std::vector<double>(6, 1e300));
  for (const int64_t bytes : {INT64_MIN, int64_t{1}}) {
    for (stepladder::Run& run : pair.base.runs) run.summary->memory.live_peak = bytes;
    for (stepladder::Run& run : pair.next.runs) run.summary->memory.live_peak = INT64_MAX;
    const std::string reason = pair.compared().rows[0].reason;
    EXPECT_TRUE(says(reason, {"slower"}));
    EXPECT_EQ(says(reason, {"memory"}), bytes > 0) << reason;
  }
  Pair long_steps;
  long_steps.add(kRung, std::vector<double>(6, 40.0), std::vector<double>(6, 40.0));
  for (stepladder::Run& run : long_steps.next.runs)
    for (int i = 0; i < 2; ++i) run.steps.push_back({i, false, 1e308, 1e308, 4.5, 1.0, 1e-3});
  EXPECT_EQ(long_steps.compared().rows[0].verdict, Verdict::regression);
}

TEST(Comparison, TooFewPairsAreNeverAVerdict) {
  Pair pair;
  pair.add(kRung, {40, 40}, {80, 80});
  const Comparison comparison = pair.compared();
  EXPECT_EQ(exit_code(comparison.rows), kExitInconclusive);
  EXPECT_TRUE(says(joined_notes(comparison), {"2 pairs"}));
  EXPECT_TRUE(says(report_in("text", comparison), {"2    40.00   80.00", "INCONCLUSIVE"}));
  pair.add("02_tf32", {40, 40}, {80, 80});
  const std::string report = report_in("text", pair.compared());
  EXPECT_EQ(report.find("2 pairs"), report.rfind("2 pairs")) << "once for all: " << report;
}

TEST(Comparison, FewPairsThatAgreeAreNotCertain) {
  for (const size_t pairs : {3, 5, 6}) {
    Pair pair;
    pair.add(kRung, std::vector<double>(pairs, 40), std::vector<double>(pairs, 80));
    EXPECT_EQ(exit_code(pair.compared().rows), pairs < 6 ? kExitInconclusive : kExitRegression) << pairs;
  }
}

TEST(Comparison, AmongManyRungsMoreCertaintyIsAsked) {
  Pair one, many;
  const std::vector<double> base(6, 40.0), next = {41.2, 40.4, 41.4, 42.2, 41.0, 40.5};  // p = 0.005
  one.add(kRung, base, next);
  many.add(kRung, base, next);
  for (int i = 0; i < 9; ++i) many.add(cat("without/0", i), base, {40.0, 40.01, 39.99, 40.0, 40.0, 40.0});
  EXPECT_EQ(one.compared().rows[0].verdict, Verdict::regression);
  const ComparedRow row = many.compared().rows[0];
  EXPECT_EQ(row.verdict, Verdict::inconclusive);
  EXPECT_TRUE(says(row.reason, {"slower"}));
}

TEST(Comparison, AByteMoreIsARegressionThatNamesWhatGrew) {
  Pair pair = steady();
  for (stepladder::Run& run : pair.next.runs) {
    run.summary->memory.live_peak += 4096;
    run.summary->memory.by_name["activations/att"] = 4096;
    run.summary->memory.by_name["params/wte"] -= 1;
  }
  const Comparison comparison = pair.compared();
  EXPECT_EQ(exit_code(comparison.rows), kExitRegression);
  EXPECT_TRUE(says(comparison.rows[0].reason, {"memory", "4.0 KiB", "activations/att"}));
  EXPECT_EQ(comparison.rows[0].reason.find("params"), std::string::npos) << "which shrank";
  // Fewer live bytes never fail, nor does a larger process peak.
  pair = steady();
  for (stepladder::Run& run : pair.next.runs) {
    run.summary->memory.live_peak -= 1;
    run.summary->memory.process_peak += 1 << 20;
  }
  EXPECT_EQ(exit_code(pair.compared().rows), kExitOk);
}

/// Results of a trainer from a ladder file, 8 GiB live in each run: NEW's is larger by `grown` (a ratio less
/// 1), runs scatter with the standard deviation `jitter`.
Pair with_allocator(size_t pairs, double grown, double jitter, uint64_t seed) {
  Pair pair;
  pair.add(kRung, std::vector<double>(pairs, 40.0), std::vector<double>(pairs, 40.0));
  NoisyMachine machine(seed, 1);
  for (const auto& [results, factor] : {std::pair(&pair.base, 1.0), std::pair(&pair.next, 1.0 + grown)}) {
    results->plan["ladder"] = {{"name", "mine"},
                               {"rungs", {{{"name", kRung}, {"changes", ""}, {"command", {"x"}}}}}};
    for (stepladder::Run& run : results->runs)
      run.summary->memory.live_peak =
          static_cast<int64_t>(factor * std::exp(jitter * machine.normal()) * (int64_t{8} << 30));
  }
  return pair;
}

TEST(Comparison, MemoryOfAnAllocatorIsJudgedAsTimeIs) {
  const ComparedRow grown = with_allocator(10, 0.03, 0.004, 1).compared().rows[0];
  EXPECT_EQ(grown.verdict, Verdict::regression);
  EXPECT_TRUE(says(grown.reason, {" % more live memory"}));
  EXPECT_EQ(with_allocator(10, -0.03, 0.004, 1).compared().rows[0].verdict, Verdict::pass);
  EXPECT_EQ(with_allocator(10, 1e-9, 0, 1).compared().rows[0].verdict, Verdict::pass) << "some bytes";
  EXPECT_EQ(with_allocator(10, 0.03, 0.1, 2).compared().rows[0].verdict, Verdict::inconclusive);
  Pair few = with_allocator(5, 0.03, 0, 1);
  EXPECT_EQ(few.compared().rows[0].verdict, Verdict::inconclusive);
}

TEST(Comparison, AnAllocatorThatJittersIsNoRegression) {
#if defined(STEPLADDER_SANITIZED)
  GTEST_SKIP() << "a simulation of what is tested by itself too";
#endif
  constexpr uint64_t kGates = 1000;
  int alarms = 0, missed = 0;
  for (uint64_t seed = 0; seed < kGates; ++seed) {
    const double jitter = seed % 2 == 0 ? 0.002 : 0.02;
    alarms += overall(with_allocator(10, 0.0, jitter, seed).compared().rows) == Verdict::regression;
    missed += overall(with_allocator(10, 0.03, 0.002, seed).compared().rows) != Verdict::regression;
  }
  EXPECT_LE(alarms, kGates / 100);
  EXPECT_LE(missed, kGates / 100);
}

TEST(Comparison, MemoryThatATrainerCallsExactIsJudgedToTheByte) {
  for (const auto& [base, next] : {std::pair(true, true), std::pair(true, false), std::pair(false, true)}) {
    Pair pair = with_allocator(6, 1e-9, 0, 1);
    for (stepladder::Run& run : pair.base.runs) run.summary->memory.exact = base;
    for (stepladder::Run& run : pair.next.runs) run.summary->memory.exact = next;
    EXPECT_EQ(pair.compared().rows[0].verdict, base && next ? Verdict::regression : Verdict::pass);
    const std::string alone = base ? "only BASE calls" : "only NEW calls";
    EXPECT_EQ(says(joined_notes(pair.compared()), {alone}), base != next);
  }
}

TEST(Comparison, MemoryThatOneSideDoesNotTellHasNotGrown) {
  for (Results Pair::*silent : {&Pair::base, &Pair::next}) {
    Pair pair = steady();
    Pair allocator = with_allocator(6, 0, 0.001, 1);
    for (Pair* of : {&pair, &allocator}) {
      for (stepladder::Run& run : (of->*silent).runs) run.summary->memory = {};
      const Comparison comparison = of->compared();
      EXPECT_EQ(exit_code(comparison.rows), kExitOk);
      EXPECT_TRUE(says(join(comparison.notes, "\n"), {"live memory", "not known"})) << "but it is said";
    }
  }
}

// ---- what has no numbers ---------------------------------------------------------------------------------

TEST(Comparison, AFailedRunIsItsReasonAndOutweighsAll) {
  Pair pair = steady(0.03);
  pair.add(kOther, {100, 100, 100}, {100, 100, 100});
  stepladder::Run& run = pair.next.runs.back();
  run.status = Status::crash;
  run.reason = "killed by SIGSEGV";
  run.summary.reset();
  const Comparison comparison = pair.compared();
  EXPECT_EQ(exit_code(comparison.rows), kExitFailed);
  EXPECT_TRUE(says(comparison.rows[1].reason, {"NEW", "crash", "killed by SIGSEGV", "1 of 3"}));
  EXPECT_FALSE(comparison.rows[1].numbers);
  EXPECT_EQ(comparison.rows[0].verdict, Verdict::regression);
  stepladder::Run& base = pair.base.runs.back();
  base.status = Status::oom;
  base.summary.reset();
  EXPECT_TRUE(says(pair.compared().rows[1].reason, {"NEW: crash", "; BASE: oom"})) << "where both failed";
}

TEST(Comparison, PairsMayComeThatNothingDisturbs) {
  Pair pair = steady();
  for (stepladder::Run& run : pair.next.runs) run.summary->shared = true;
  for (const bool last : {false, true})
    EXPECT_EQ(overall(Looks(6, 20, {}).look(pair.base, pair.next, 6, last).rows),
              last ? Verdict::failed : Verdict::inconclusive);
  Looks looks(6, 20, {});
  looks.look(pair.base, pair.next, 6);
  for (int64_t round = 6; round < 20; ++round)
    for (Results* results : {&pair.base, &pair.next}) {
      results->runs.push_back(run_of(kRung, round, {40.0 + 0.01 * static_cast<double>(round % 3)}));
      results->runs.back().source_hash = results->runs.front().source_hash;
    }
  EXPECT_EQ(overall(looks.look(pair.base, pair.next, 20, true).rows), Verdict::pass);
}

TEST(Comparison, AThrottledRunTakesItsPairAlong) {
  Pair pair = steady();
  for (size_t i : {1, 3}) {
    Summary& summary = *(i == 1 ? pair.base : pair.next).runs[i].summary;
    summary.throttled = true;
    summary.median_step_ms = 400;  // would drown every other number
  }
  const Comparison comparison = pair.compared();
  EXPECT_EQ(comparison.rows[0].numbers->pairs, 4U);
  EXPECT_EQ(comparison.rows[0].numbers->disturbed, 2U);
  EXPECT_EQ(comparison.rows[0].numbers->time().base, 40.0);
  EXPECT_TRUE(says(joined_notes(comparison), {"2 pairs", "throttled"}));
  EXPECT_NE(exit_code(comparison.rows), kExitFailed);
  pair.base.runs[0].summary->throttled = false;  // sampled and not throttled
  EXPECT_EQ(pair.compared().rows[0].numbers->pairs, 4U);
}

TEST(Comparison, OnlyThrottledPairsAreAFailureThatSaysSo) {
  Pair pair = steady();
  for (stepladder::Run& run : pair.next.runs) run.summary->throttled = true;
  const Comparison comparison = pair.compared();
  EXPECT_EQ(exit_code(comparison.rows), kExitFailed);
  EXPECT_TRUE(says(comparison.rows[0].reason, {"throttled", "6 pairs"}));
  EXPECT_FALSE(comparison.rows[0].numbers);
}

TEST(Comparison, ARungThatLearnsSomethingElseThanBaseHasDiverged) {
  Pair pair = steady();
  pair.next.runs[1].steps.back().loss = 4.7;
  const Comparison comparison = pair.compared();
  EXPECT_EQ(exit_code(comparison.rows), kExitFailed);
  EXPECT_TRUE(says(comparison.rows[0].reason, {"NEW", "diverged", "step 1", "4.7", "4.5"}));
  pair.next.runs[1].steps.front().loss.reset();
  EXPECT_TRUE(says(pair.compared().rows[0].reason, {"NEW", "step 0", "loss"}));
}

TEST(Comparison, WhatIsJudgedDoesNotSetItsTolerance) {
  Pair pair = steady();
  pair.next.runs[1].steps.back().loss = 4.7;
  const auto tolerance = [](Results& of, const Json& value) {
    of.plan["ladder"] = {{"name", "mine"},
                         {"rungs", {{{"name", of.runs[0].variant}, {"changes", "x"}, {"command", {"x"}}}}}};
    if (!value.is_null()) of.plan["ladder"]["rungs"][0]["tolerance"] = value;
  };
  tolerance(pair.base, 0.01);
  tolerance(pair.next, {});
  const Comparison tighter = pair.compared();
  EXPECT_EQ(exit_code(tighter.rows), kExitFailed);
  EXPECT_TRUE(says(join(tighter.notes, "\n"), {"tolerance", "BASE"}));
  tolerance(pair.base, {});
  EXPECT_EQ(exit_code(pair.compared().rows), kExitOk);
  EXPECT_TRUE(says(joined_notes(pair.compared()), {"losses were not compared", "gives no tolerance"}));
  tolerance(pair.next, 0.01);
  EXPECT_FALSE(says(joined_notes(pair.compared()), {"held to BASE's"}));
}

TEST(Comparison, RunsUntilALossAreNotHeldToEachOthersLosses) {
  Pair pair = steady();
  pair.next.runs[1].steps.back().loss = 4.7;
  EXPECT_EQ(exit_code(pair.compared().rows), kExitFailed);
  for (Results* of : {&pair.base, &pair.next}) of->plan["until_loss"] = 3.0;
  EXPECT_EQ(pair.compared().rows[0].reason, "");
}

TEST(Comparison, WhatTheDeviceCannotDoOrOneSideLacksIsSkippedAndShown) {
  Pair pair = steady();
  stepladder::Run cannot = run_of("fp8", 0, {1.0});
  cannot.status = Status::unsupported;
  cannot.reason = "needs sm_89";
  cannot.summary.reset();
  pair.base.runs.push_back(cannot);
  pair.next.runs.push_back(cannot);
  pair.base.runs.push_back(run_of("05_mixed_precision", 0, {1.0}));
  pair.next.runs.push_back(run_of("11_new", 0, {1.0}));
  const Comparison comparison = pair.compared();
  EXPECT_EQ(exit_code(comparison.rows), kExitOk);
  const std::string text = report_in("text", comparison);
  EXPECT_TRUE(says(text, {"SKIPPED: only in BASE", "SKIPPED: only in NEW", "needs sm_89"}));
  // A variant that BASE supports but NEW doesn't fails the comparison.
  for (size_t i = 0; i < pair.base.runs.size(); ++i)
    if (pair.base.runs[i].variant == "fp8") pair.base.runs[i] = run_of("fp8", 0, {1.0});
  EXPECT_EQ(exit_code(pair.compared().rows), kExitFailed);
}

TEST(Comparison, NothingThatRanInBothIsNoPass) {
  Pair pair;
  pair.add(kRung, {40}, {40});
  for (Results* results : {&pair.base, &pair.next}) {
    results->runs[0].status = Status::unsupported;
    results->runs[0].summary.reset();
  }
  EXPECT_EQ(exit_code(pair.compared().rows), kExitNotComparable);
}

TEST(Comparison, PeersAreNotJudged) {
  Pair pair = steady();
  stepladder::Run peer = run_of("llmc", 0, {30});
  peer.peer = "llmc";
  pair.base.runs.push_back(peer);
  pair.next.runs.push_back(peer);
  EXPECT_EQ(pair.compared().rows.size(), 1U);
}

// ---- what may be compared --------------------------------------------------------------------------------

TEST(Comparison, RefusesAnotherDeviceOrConfigurationNamingTheFields) {
  const Pair pair = steady();
  EXPECT_EQ(refusal(pair.base, pair.next), "");
  Results other = pair.next;
  other.context["device"]["name"] = "Tesla T4";
  other.context["device"]["compute_capability"] = 75;
  other.plan["steps"] = 15;
  EXPECT_TRUE(
      says(refusal(pair.base, other), {"device.name", "NVIDIA H200", "Tesla T4", "device.compute_capability",
                                       "90", "75", "plan.steps", "40", "15"}));
  other = pair.next;
  for (stepladder::Run& run : other.runs) run.config["dtype"] = "fp16";
  EXPECT_TRUE(says(refusal(pair.base, other), {"config.dtype", "13_cuda_graphs", "bf16", "fp16"}));
  other = pair.next;
  for (stepladder::Run& run : other.runs) run.config["B"] = 32;
  EXPECT_TRUE(says(refusal(pair.base, other), {"workload"}));
  other = pair.next;
  other.plan["data"] = "/new/data/shakespeare.txt";
  EXPECT_TRUE(says(refusal(pair.base, other), {"plan.data", "austen.txt", "shakespeare.txt"}));
  other.plan["data"] = "/new/data/shards/";
  EXPECT_TRUE(says(refusal(pair.base, other), {"plan.data", "shards"}));
  other = pair.next;
  other.plan["until_loss"] = 3.5;
  EXPECT_TRUE(says(refusal(pair.base, other), {"plan.until_loss", "3.5"}));
  other = pair.next;
  other.plan["eval_every"] = 50;
  EXPECT_EQ(refusal(pair.base, other), "") << "older files don't tell";
  Results base = pair.base;
  base.plan["eval_every"] = 100;
  EXPECT_TRUE(says(refusal(base, other), {"plan.eval_every", "100", "50"}));
  other = pair.next;
  other.runs[2].source_hash = "another";
  EXPECT_TRUE(says(refusal(pair.base, other), {"NEW", "13_cuda_graphs", "sources"}));
  other = pair.next;
  for (stepladder::Run& run : other.runs) run.config["new_option"] = false;
  EXPECT_EQ(refusal(pair.base, other), "") << "an option that BASE's version did not have";
}

TEST(Comparison, ARunUnlikeTheFirstOfItsRowIsRefusedByName) {
  const Pair pair = steady();
  for (const char* side : {"BASE", "NEW"}) {
    const auto refused = [&](auto change) {
      Pair other = pair;
      change((side == std::string("BASE") ? other.base : other.next).runs[2]);
      return refusal(other.base, other.next);
    };
    using Run = stepladder::Run;
    EXPECT_TRUE(says(refused([](Run& run) { run.config["dtype"] = "fp8"; }),
                     {side, "13_cuda_graphs", "config.dtype", "bf16", "fp8", "rounds 0 and 2"}));
    EXPECT_TRUE(says(refused([](Run& run) { run.backend = "cpu"; }), {side, "backend", "cuda", "cpu"}));
    EXPECT_TRUE(says(refused([](Run& run) { run.config["hidden"] = 128; }), {side, "config.hidden", "128"}))
        << "what an own trainer recorded then alone";
    EXPECT_EQ(refused([](Run& run) { run.config["seed"] = 7; }), "") << "which is a sample's";
    EXPECT_EQ(refused([](Run& run) {
                run.config = {{"model", "gpt2"}, {"B", 16}, {"T", 1024}};
                run.status = Status::crash;
                run.summary.reset();
              }),
              "")
        << "one that failed may not have told";
  }
}

TEST(Comparison, LaddersOfOtherNamesAreNotCompared) {
  Pair pair = steady();
  const auto named = [](const char* name) {
    return Json{{"name", name}, {"rungs", {{{"name", kRung}, {"changes", "x"}, {"command", {"true"}}}}}};
  };
  pair.base.plan["ladder"] = named("one");
  EXPECT_TRUE(says(refusal(pair.base, pair.next), {"ladder", "one", "Stepladder"}));
  pair.next.plan["ladder"] = named("other");
  EXPECT_TRUE(says(refusal(pair.base, pair.next), {"ladder one / other"}));
  pair.next.plan["ladder"] = named("one");
  EXPECT_EQ(refusal(pair.base, pair.next), "");
}

TEST(Comparison, WhatDiffersInTheSameWayInManyRungsIsSaidOnce) {
  Pair pair = steady();
  for (const char* rung : {"01_causal_mask", "02_tf32", "10_padded_vocab"}) pair.add(rung, {40}, {40});
  for (stepladder::Run& run : pair.base.runs) run.config["compute_capability"] = 90, run.config["lr"] = 1e-3;
  for (stepladder::Run& run : pair.next.runs) run.config["compute_capability"] = 75, run.config["lr"] = 2e-3;
  for (stepladder::Run& run : pair.next.runs)
    if (run.variant == "02_tf32") run.config["dtype"] = "fp16";
  pair.base.plan["lr"] = 1e-3, pair.next.plan["lr"] = 2e-3;
  const std::string said = refusal(pair.base, pair.next);
  EXPECT_TRUE(says(said, {"plan.lr", "config.compute_capability 90 / 75", "4 rungs",
                          "config.dtype bf16 / fp16", "02_tf32"}));
  EXPECT_EQ(said.find("75"), said.rfind("75")) << said;
  EXPECT_EQ(said.find("config.lr"), std::string::npos) << "as the plan: " << said;
}

TEST(Comparison, AFileOfAnotherCheckoutIsTheSameByItsNameAndNothingElseIs) {
  Pair pair;
  pair.add("10_padded_vocab", {40}, {40});
  const auto refused = [&](const char* key, const std::string& was, const std::string& is) {
    Results base = pair.base, next = pair.next;
    base.runs[0].config[key] = was;
    next.runs[0].config[key] = is;
    return refusal(base, next);
  };
  for (const char* key : {"data", "val_data", "vocab"}) {
    EXPECT_EQ(refused(key, "/base/data/a.txt", "/new/data/a.txt"), "");
    EXPECT_TRUE(says(refused(key, "/base/a.txt", "/base/b.txt"), {cat("config.", key), "a.txt", "b.txt"}));
  }
  EXPECT_TRUE(says(refused("attention", "one/flash", "other/flash"), {"config.attention", "one/", "other/"}));
  const std::string longer(300, 'x');
  EXPECT_TRUE(says(refused("attention", longer + "a", longer + "b"), {"config.attention"}));
}

TEST(Comparison, OnTheCpuTheHostIsTheDevice) {
  Pair pair = steady();
  for (Results* results : {&pair.base, &pair.next})
    results->context["device"] = {{"backend", "cpu"}, {"name", "CPU"}};
  EXPECT_EQ(refusal(pair.base, pair.next), "");
  for (Results* results : {&pair.base, &pair.next})
    for (stepladder::Run& run : results->runs) run.config["threads"] = results == &pair.base ? 1 : 2;
  EXPECT_TRUE(says(refusal(pair.base, pair.next), {"config.threads", "1", "2"}));
  pair.next.context["cores"] = 4;
  EXPECT_TRUE(says(refusal(pair.base, pair.next), {"cores", "2", "4"}));
  pair.next.context["cores"] = 2;
  for (stepladder::Run& run : pair.next.runs) run.config["threads"] = 1;
  pair.next.context["thread_environment"] = {{"OMP_NUM_THREADS", "1"}};
  EXPECT_EQ(refusal(pair.base, pair.next), "") << "older files don't tell";
  pair.base.context["thread_environment"] = Json::object();
  EXPECT_TRUE(says(refusal(pair.base, pair.next), {"environment", "OMP_NUM_THREADS"}));
}

TEST(Comparison, TellsThatTheTwoRanOnDifferentHosts) {
  Pair pair = steady();
  for (Results* results : {&pair.base, &pair.next})
    results->context.update({{"device", {{"backend", "cpu"}, {"name", "CPU"}}}, {"host", "node1"}});
  EXPECT_EQ(joined_notes(pair.compared()).find("hosts"), std::string::npos);
  pair.next.context["host"] = "node2";
  EXPECT_TRUE(says(joined_notes(pair.compared()), {"different hosts"}));
}

TEST(Comparison, TellsThatThePowerLimitChanged) {
  Pair pair = steady();
  pair.base.context["telemetry"] = {{"power_limit_w", 700}};
  EXPECT_EQ(joined_notes(pair.compared()).find("power limit"), std::string::npos) << "unknown of NEW";
  pair.next.context["telemetry"] = {{"power_limit_w", 700}};
  EXPECT_EQ(joined_notes(pair.compared()).find("power limit"), std::string::npos);
  pair.next.context["telemetry"] = {{"power_limit_w", 500}};
  EXPECT_TRUE(says(joined_notes(pair.compared()), {"power limit", "700", "500"}));
}

TEST(Comparison, EveryFormatTellsWhatOneSideAloneRecords) {
  Pair pair = steady();
  for (stepladder::Run& run : pair.next.runs) run.config["tf32"] = true;
  const Comparison comparison = pair.compared();
  for (const char* format : {"text", "markdown", "github", "junit", "json"})
    EXPECT_TRUE(says(report_in(format, comparison), {"Only NEW records tf32, true"})) << format;
}

TEST(Comparison, AnotherLearningRateInTheStepsIsRefused) {
  Pair pair = steady();
  for (auto* side : {&pair.base, &pair.next})
    for (stepladder::Run& run : side->runs)
      for (Step& step : run.steps) step.lr = side == &pair.next && step.step > 0 ? 6.1e-4 : 6e-4;
  EXPECT_TRUE(says(refusal(pair.base, pair.next), {"learning rate of step 1 6e-04 / 0.00061"}));
}

TEST(Comparison, TellsStaleAndUnfinishedResults) {
  Pair pair = steady();
  EXPECT_EQ(joined_notes(pair.compared()).find("STALE"), std::string::npos);
  for (stepladder::Run& run : pair.next.runs) run.source_hash = "abc";
  EXPECT_TRUE(says(joined_notes(pair.compared()), {"same sources", "not rebuilt"}));
  pair.next.context["commit"] = "aaa";
  EXPECT_EQ(joined_notes(pair.compared()).find("STALE"), std::string::npos) << "an A/A comparison";
  for (stepladder::Run& run : pair.next.runs) run.source_hash = "def";
  EXPECT_TRUE(says(joined_notes(pair.compared()), {"STALE", "aaa", "13_cuda_graphs"}));
  pair.next.context["time"] = "2024-01-01T00:00:00.000Z";
  pair.next.complete = false;
  pair.next.context["device"]["driver"] = "590";
  for (const auto& [of, torch] : {std::pair(&pair.base, "2.10"), std::pair(&pair.next, "2.11")})
    for (stepladder::Run& run : of->runs) run.config["versions"] = {{"python", "3.11"}, {"torch", torch}};
  const std::string notes = joined_notes(pair.compared());
  EXPECT_TRUE(says(notes, {"STALE", "NEW is unfinished", "driver", "580", "590", "torch", "2.10", "2.11"}));
  EXPECT_FALSE(says(notes, {"python"})) << "which is the same";
}

// ---- the report ------------------------------------------------------------------------------------------

TEST(ComparisonReport, SaysTheSameToPeopleAndMachines) {
  const Comparison comparison = steady(0.03).compared();
  const std::string text = report_in("text", comparison);
  EXPECT_TRUE(says(text, {"BASE: commit aaa, 2025-01-31T12:00:00.000Z", "NVIDIA H200", "13_cuda_graphs",
                          "40.00", "41.20", "+1.00", "REGRESSION: slower", "1 of 1"}));
  const Json json = parse_json(report_in("json", comparison));
  EXPECT_EQ(json["verdict"], "REGRESSION");
  EXPECT_EQ(json["exit_code"], 1);
  EXPECT_EQ(json["rows"][0]["pairs"], 6);
  EXPECT_NEAR(json["rows"][0]["ratio"]["value"], 1.03, 1e-3);
  EXPECT_TRUE(says(report_in("markdown", comparison), {"## Stepladder: REGRESSION", "| 13_cuda_graphs |"}));
}

TEST(ComparisonReport, ItsTableFitsATerminal) {
  Pair pair = steady();
  for (Results* results : {&pair.base, &pair.next})
    for (stepladder::Run& run : results->runs) run.summary->cycles = 4e7, run.summary->joules = 21.5;
  pair.add(kOther, {300}, {300});
  pair.next.runs.back().status = Status::crash;
  pair.next.runs.back().reason = std::string(200, 'x');
  const Comparison comparison = pair.compared();
  const std::string text = report_in("text", comparison, /*wide=*/false);
  std::istringstream table(text.substr(text.find("\nrung ") + 1));
  for (std::string line; std::getline(table, line) && !line.starts_with(kOther + std::string(": "));)
    EXPECT_LE(line.size(), 100U) << line;
  EXPECT_TRUE(says(text, {"--wide", "FAILED", pair.next.runs.back().reason}));
  EXPECT_TRUE(says(report_in("text", comparison), {"energy limit %"}));
}

TEST(ComparisonReport, ForeignTextIsNoMarkup) {
  Pair pair = steady();
  for (Results* results : {&pair.base, &pair.next})
    for (stepladder::Run& run : results->runs)
      run.variant = "a|b`<img src=x>[x](http://y)@someone\n# \033[2J";
  pair.next.context["commit"] = "<script>@all";
  const std::string text = report_in("markdown", pair.compared());
  for (const char* markup : {"<img", "<script", "[x](", "`", "@", "\033", "\n# "})
    EXPECT_EQ(text.find(markup), text.find(std::string("\\") + markup) == std::string::npos
                                     ? std::string::npos
                                     : text.find(std::string("\\") + markup) + 1)
        << markup << "\n"
        << text;
  EXPECT_EQ(report_in("text", pair.compared()).find('\033'), std::string::npos);
}

// ---- how often verdicts are right ------------------------------------------------------------------------

/// A simulated experiment: `rungs` rungs in up to `pairs` alternating pairs; NEW's first rung is slower by
/// `slower` (a ratio less 1).
struct Experiment {
  double slower = 0.0, noise = 1.0;
  double two_speeds = 0.0;  // replaces the noise: a random half of the processes is slower by this
  int rungs = 1;
  int64_t pairs = 10;
  std::optional<int64_t> first_look = std::nullopt;  // pairs before the first look; none: one look at the end

  std::vector<ComparedRow> run(uint64_t seed) const {
    NoisyMachine machine(seed, 2 * pairs * rungs);
    machine.process *= noise;
    machine.step *= noise;
    if (two_speeds > 0.0) machine = NoisyMachine::with_two_speeds(seed, 2 * pairs * rungs, two_speeds);
    Results base = base_results(), next = new_results();
    Limits limits;
    std::optional<Looks> looks;
    if (first_look) looks.emplace(*first_look, pairs, limits);
    for (int64_t round = 0; round < pairs; ++round) {
      for (int rung = 0; rung < rungs; ++rung)
        for (const bool is_base : {round % 2 == 0, round % 2 != 0})
          (is_base ? base : next)
              .runs.push_back(
                  run_of(cat("rung", rung), round, machine.next(is_base || rung > 0 ? 0.0 : slower)));
      if (!looks || round + 1 < *first_look) continue;
      auto rows = looks->look(base, next, static_cast<size_t>(round + 1)).rows;
      if (overall(rows) != Verdict::inconclusive) return rows;
    }
    return looks ? looks->look(base, next, static_cast<size_t>(pairs)).rows
                 : compare(base, next, limits).rows;
  }

  /// The share of experiments in which the first rung or, with `of_all`, the worst rung has this verdict.
  double share(Verdict verdict, int experiments, bool of_all = false) const {
    int found = 0;
    for (int i = 0; i < experiments; ++i) {
      const auto rows = run(static_cast<uint64_t>(i) + 1);
      found += (of_all ? overall(rows) : rows.front().verdict) == verdict;
    }
    return static_cast<double>(found) / experiments;
  }
  double regressions(int experiments, bool of_all = false) const {
    return share(Verdict::regression, experiments, of_all);
  }
};

TEST(ComparisonPower, TwoPercentAreFoundInTenPairsAndThreeNearlyAlways) {
  EXPECT_GE((Experiment{.slower = 0.02}.regressions(800)), 0.95);
  EXPECT_GE((Experiment{.slower = 0.03}.regressions(400)), 0.99);
}

TEST(ComparisonPower, TwoAndThreePercentAreFoundAmongElevenRungs) {
  EXPECT_GE((Experiment{.slower = 0.02, .rungs = 11}.regressions(200)), 0.93);  // 95 % in the long run
  EXPECT_GE((Experiment{.slower = 0.03, .rungs = 11}.regressions(100)), 0.99);
}

TEST(ComparisonPower, UnchangedBuildsAreHardlyEverCalledSlower) {
  EXPECT_LE((Experiment{}.regressions(500)), 0.01);
  EXPECT_LE((Experiment{.rungs = 11}.regressions(100, true)), 0.01);
  // Noise far above the limit: the bounds are 1 % plus three standard errors.
  EXPECT_LE((Experiment{.noise = 50}.regressions(1000)), 0.0195);
  EXPECT_LE((Experiment{.noise = 50, .rungs = 11}.regressions(200, true)), 0.031);
}

/// The share of simulated gates with this verdict on a card at its power limit, where NEW's step takes `time`
/// and `cycles` more (ratios less 1). Noise as in docs/statistics.md: times of a pair differ by 0.35 %,
/// cycles by 0.16 %.
double at_the_limit(Verdict verdict, double time, double cycles, size_t pairs, int experiments,
                    double noise = 1.0) {
  int found = 0;
  for (int i = 0; i < experiments; ++i) {
    Pair pair;
    NoisyMachine machine(static_cast<uint64_t>(i) + 1, 1);
    pair.add(kRung, std::vector<double>(pairs, 40.0), std::vector<double>(pairs, 40.0));
    for (Results* results : {&pair.base, &pair.next})
      for (stepladder::Run& run : results->runs) {
        const double more = results == &pair.next ? 1.0 : 0.0;
        run.summary->median_step_ms *= std::exp(more * std::log1p(time) + noise * 0.0025 * machine.normal());
        run.summary->cycles = 5e7 * std::exp(more * std::log1p(cycles) + noise * 0.0011 * machine.normal());
      }
    found += overall(pair.compared({.cycles = kMinCyclesLimit}).rows) == verdict;
  }
  return static_cast<double>(found) / experiments;
}

TEST(ComparisonPower, CyclesFindWhatTimeDoesNot) {
  constexpr Verdict kRegression = Verdict::regression;
  EXPECT_GE(at_the_limit(kRegression, 0.0115, 0.018, 10, 400), 0.99) << "500 us of 27.5 ms, as measured";
  EXPECT_GE(at_the_limit(kRegression, 0.0, 0.005, 10, 400), 0.98);
  EXPECT_GE(at_the_limit(kRegression, 0.0, 0.006, 6, 400), 0.98);
  EXPECT_LE(at_the_limit(kRegression, 0.0115, 0.0, 10, 400), 0.9) << "the same by time alone";
}

TEST(ComparisonPower, UnchangedBuildsPassByTheirCyclesToo) {
  EXPECT_GE(at_the_limit(Verdict::pass, 0.0, 0.0, 10, 1000), 0.99);
  EXPECT_GE(at_the_limit(Verdict::pass, 0.0, 0.0, 6, 1000), 0.95);
}

TEST(ComparisonPower, JudgingCyclesTooAlarmsNoMoreOften) {
  EXPECT_EQ(at_the_limit(Verdict::regression, 0.0, 0.0, 10, 1000), 0.0);
  EXPECT_LE(at_the_limit(Verdict::regression, 0.0, 0.0, 10, 1000, 50), 0.0195)
      << "1 % and three standard errors";
}

TEST(ComparisonPower, UnchangedBuildsAreHardlyEverCalledSlowerOnAMachineWithTwoSpeeds) {
  // The bounds are 1 % plus three standard errors.
  EXPECT_LE((Experiment{.two_speeds = 0.05, .rungs = 11, .pairs = 3}.regressions(400, true)), 0.025);
  EXPECT_LE((Experiment{.two_speeds = 0.05, .rungs = 11, .pairs = 6}.regressions(400, true)), 0.025);
  EXPECT_LE(
      (Experiment{.two_speeds = 0.05, .rungs = 11, .pairs = 20, .first_look = 6}.regressions(100, true)),
      0.04);
}

TEST(ComparisonPower, LookingAfterEveryPairChangesNoErrorRate) {
  EXPECT_LE((Experiment{.pairs = 20, .first_look = 6}.regressions(200)), 0.01);
  EXPECT_LE((Experiment{.noise = 50, .pairs = 20, .first_look = 6}.regressions(500)), 0.0234);
  EXPECT_GE((Experiment{.slower = 0.02, .pairs = 20, .first_look = 6}.regressions(200)), 0.95);
  EXPECT_GE((Experiment{.slower = 0.03, .pairs = 20, .first_look = 6}.regressions(200)), 0.99);
}

TEST(ComparisonPower, LookingOftenPassesNoMoreOfWhatIsSlower) {
  // A slowdown just over the limit at four times the noise: the bound is 10 % plus two standard errors.
  const Experiment slower{.slower = 0.0101, .noise = 4, .pairs = 20, .first_look = 6};
  EXPECT_LE(slower.share(Verdict::pass, 400), 0.13);
  EXPECT_LE((Experiment{.slower = 0.015, .noise = 4, .pairs = 20, .first_look = 6}.share(Verdict::pass, 400)),
            0.05);
  // An unchanged build still passes.
  EXPECT_GE((Experiment{.pairs = 20, .first_look = 6}.share(Verdict::pass, 200)), 0.99);
}

}  // namespace
}  // namespace stepladder
