#include "bench/report/export.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "bench/results/run_json.h"
#include "bench/run/child.h"
#include "tests/comparable.h"
#include "tests/files.h"

namespace stepladder {
namespace {

Run make_run(const std::string& variant, int64_t round, double ms) {
  Run run = run_of(variant, round, {ms, ms, ms});
  run.config = {{"model", "gpt2"}, {"B", 16}, {"T", 1024}};
  for (Step& step : run.steps) step.device_ms = ms - 0.5;
  return run;
}

/// Results of two rungs over `rounds` rounds, the second with steps of `ms`, and of a third that runs out of
/// memory.
Results make_results(double ms, int64_t rounds = 2) {
  Results results;
  results.context = {{"time", "2025-01-31T12:00:00Z"},
                     {"host", "h"},
                     {"command_line", "stepladder run"},
                     {"cores", 2},
                     {"device", {{"name", "NVIDIA H200"}}}};
  for (int64_t round = 0; round < rounds; ++round) {
    results.runs.push_back(make_run("00_fp32_baseline", round, 20 + 0.01 * static_cast<double>(round)));
    results.runs.push_back(make_run("02_tf32", round, ms + 0.01 * static_cast<double>(round)));
    Run failed = make_run("14_large_batch", round, 1);
    failed.status = Status::oom;
    failed.reason = "wants 1 GiB, \"0 B\" are free";
    failed.summary.reset();
    results.runs.push_back(failed);
  }
  return results;
}

TEST(Export, GoogleBenchmarkHasARowForEachRunThatIsOk) {
  const Json json = google_benchmark(make_results(10));
  EXPECT_EQ(json["context"]["host_name"], "h");
  EXPECT_EQ(json["context"]["num_cpus"], 2);
  EXPECT_EQ(json["context"]["stepladder_device"]["name"], "NVIDIA H200");
  ASSERT_EQ(json["benchmarks"].size(), 4U);
  const Json row = json["benchmarks"][3];
  EXPECT_EQ(row["name"], "02_tf32/gpt2/B:16/T:1024");
  EXPECT_EQ(row["run_name"], row["name"]);
  EXPECT_EQ(row["family_index"], 1);
  EXPECT_EQ(row["repetitions"], 2);
  EXPECT_EQ(row["repetition_index"], 1);
  EXPECT_EQ(row["iterations"], 3);
  EXPECT_DOUBLE_EQ(row["real_time"], 10.01);
  EXPECT_DOUBLE_EQ(row["cpu_time"], 9.51) << "the device's time";
  EXPECT_EQ(row["time_unit"], "ms");
}

TEST(Export, KeepsNumbersOfDevicesApart) {
  Results results = make_results(10, 1);
  const auto one = results.runs[1];
  for (const int64_t devices : {2, 4}) {
    results.runs.push_back(one);
    results.runs.back().config["world_size"] = devices;
  }
  results.runs.push_back(results.runs.back());
  results.runs.back().config["independent_ranks"] = true;
  std::vector<std::string> names;
  const Json json = google_benchmark(results);
  for (const Json& row : json["benchmarks"]) {
    EXPECT_EQ(row["repetitions"], 1);
    names.push_back(row["name"]);
  }
  const std::string name = "02_tf32/gpt2/B:16/T:1024";
  EXPECT_EQ(names, (std::vector<std::string>{"00_fp32_baseline/gpt2/B:16/T:1024", name, name + "/devices:2",
                                             name + "/devices:4", name + "/devices:4/independent"}));
  EXPECT_TRUE(says(csv(results), {",B,T,devices,independent_ranks,", ",16,1024,1,false,", ",16,1024,2,false,",
                                  ",16,1024,4,false,", ",16,1024,4,true,"}));
}

TEST(Export, FailedAndThrottledRunsAreLeftOutAndNamed) {
  Results results = make_results(10, 1);
  results.runs[1].summary->throttled = true;
  EXPECT_EQ(google_benchmark(results)["benchmarks"].size(), 1U);
  const std::vector<std::string> lines = left_out(results);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], "02_tf32 gpt2 B=16 T=1024, round 0: throttled");
  EXPECT_EQ(lines[1], "14_large_batch gpt2 B=16 T=1024, round 0: oom: wants 1 GiB, \"0 B\" are free");
}

TEST(Export, CsvHasEveryRunWithAsManyCellsAsItsHead) {
  const std::string text = csv(make_results(10, 1));
  EXPECT_EQ(text.find('\r'), std::string::npos) << "line ends as of other text";
  std::vector<std::string> lines;
  for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    lines.push_back(text.substr(at, end - at));
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_TRUE(says(lines[2], {"02_tf32,,cuda,gpt2,16,1024,1,false,0,ok,,10"})) << lines[2];
  EXPECT_TRUE(says(lines[3], {"oom,\"wants 1 GiB, \"\"0 B\"\" are free\",,,"}))
      << "quoted, and without numbers";
  const auto commas = [](const std::string& line) { return std::count(line.begin(), line.end(), ','); };
  EXPECT_EQ(commas(lines[1]), commas(lines[0]));
  EXPECT_EQ(commas(lines[3]), commas(lines[0]) + 1) << "the one that is quoted";
}

TEST(Export, CsvHasWhatALossTookAndWhereItWasMeasured) {
  Results results = make_results(10, 1);
  results.context = {{"device", {{"name", "NVIDIA H200"}}}, {"commit", "0123abc"}, {"time", "2026-01-31"}};
  results.runs[0].summary->to_loss =
      ToLoss{.loss = 3.5, .reached = true, .steps = 7, .seconds = 1.02, .tokens = 1e6, .joules = {}};
  EXPECT_TRUE(says(csv(results), {",3.5,true,7,0.14,1e+06,,NVIDIA H200,0123abc,2026-01-31,",
                                  ",,,,,,,NVIDIA H200,0123abc,2026-01-31,"}));
}

TEST(Export, EveryNumberOfASummaryIsInTheCsvAndACounterOfGoogleBenchmark) {
  Results results = make_results(10, 1);
  results.runs[0].summary->covered = 0.25;
  const std::string text = csv(results), head = text.substr(0, text.find('\n')) + ",";
  const Json row = google_benchmark(results)["benchmarks"][0], run = to_json(results.runs[0]);
  for (const auto& [name, value] : run["summary"].items()) {
    if (!value.is_number()) continue;
    EXPECT_TRUE(says(head, {"," + name + ","}));
    EXPECT_EQ(row.value(name, Json()), value) << name;
  }
}

TEST(Export, ARunUntilALossHasTheIterationsThatItTookHoweverShortItsFileIs) {
  Results results = make_results(10, 1);
  results.runs[0].summary->to_loss = ToLoss{.loss = 5.5, .reached = true, .steps = 150, .joules = {}};
  EXPECT_EQ(google_benchmark(results)["benchmarks"][0]["iterations"], 149);
}

TEST(Export, AShortFileOfARunUntilALossIsTheSameWhenItIsExportedAgain) {
  Results results = make_results(10, 1);
  stepladder::Run& run = results.runs[0];
  run.steps.clear();
  for (int64_t i = 0; i < 400; ++i) {
    const double ms = i < 100 ? 30 : 10 + 0.01 * static_cast<double>(i % 7);
    run.steps.push_back({i, i == 0, ms, ms, 4.5, 1.0, 1e-3});
  }
  run.summary->p10_step_ms = 10;
  run.summary->p90_step_ms = 30;
  run.summary->to_loss =
      ToLoss{.loss = 5.5, .reached = true, .steps = 400, .seconds = 6, .tokens = 1e6, .joules = {}};
  const Results once = shortened(results);
  EXPECT_EQ(once.runs[0].steps.size(), 100U);
  const Json json = results_file_json(once), again = results_file_json(shortened(once));
  EXPECT_EQ(json["runs"], again["runs"]);
  EXPECT_EQ(json["variants"], again["variants"]);
}

TEST(Export, OfEachRankAShortFileHasTheMedianOfItsTimedSteps) {
  Results results = make_results(10, 1);
  stepladder::Run& run = results.runs[0];
  run.summary->warmup_steps = 2;
  for (int64_t rank = 0; rank < 2; ++rank) {
    stepladder::Rank& of = run.ranks.emplace_back();
    of.rank = rank;
    of.host = "a";
    of.step_ms = {900, 50, 11, 10, 12.0 + 5 * static_cast<double>(rank)};
  }
  const Results once = shortened(results);
  for (const Rank& rank : once.runs[0].ranks) EXPECT_EQ(rank.step_ms, std::vector<double>{11.0});
  EXPECT_EQ(to_json(shortened(once)), to_json(once)) << "and stays as it is";
}

TEST(Export, AShortFileHoldsAnyLoss) {
  Results results = make_results(10, 1);
  results.runs[0].steps[1].loss = 1e-320;
  results.runs[0].steps[2].loss = 4.123456789;
  results.runs[0].steps[2].step_ms = 28.123456;
  const std::vector<Step> steps = shortened(results).runs[0].steps;
  EXPECT_NEAR(*steps[1].loss, 0.0, 1e-300);
  EXPECT_EQ(steps[2].loss, 4.12346);
  EXPECT_EQ(steps[2].step_ms, 28.123);
}

TEST(Export, GoogleBenchmarkIsToldOfABuildThatIsNotForSpeed) {
  Results results = make_results(10, 1);
  for (const auto& [build, type] :
       {std::pair("GNU 12.2.0 -O3 -DNDEBUG", "release"), {"GNU 12.2.0 -O0", "debug"}}) {
    results.context["build"] = build;
    EXPECT_EQ(google_benchmark(results)["context"]["library_build_type"], type);
  }
}

TEST(Export, CsvHasNoControlCharacters) {
  Results results = make_results(10, 1);
  results.runs[2].reason = "no \x1b[2Jmemory\nat \xc2\x9b";
  EXPECT_TRUE(says(csv(results), {",oom,no ?[2Jmemory?at ??,"}));
}

// Google Benchmark's compare.py reads two of our exports; Debian's package is libbenchmark-tools.
TEST(Export, GoogleBenchmarksCompareReadsIt) {
  const char* named = std::getenv("STEPLADDER_COMPARE_PY");
  const std::string tool = named ? named : "/usr/share/benchmark/compare.py";
  if (!output_of({"python3", "-c", "import scipy"}, 60) || !std::filesystem::exists(tool))
    GTEST_SKIP() << tool << " and SciPy are not here: libbenchmark-tools";
  const TempFolder folder;
  write_file(folder / "base.json", google_benchmark(make_results(10, 10)).dump());
  write_file(folder / "new.json", google_benchmark(make_results(11, 10)).dump());
  const auto text =
      output_of({"python3", tool, "--no-color", "benchmarks", folder / "base.json", folder / "new.json"}, 60);
  ASSERT_TRUE(text);
  EXPECT_TRUE(
      says(*text, {"02_tf32/gpt2/B:16/T:1024", "+0.1000", "00_fp32_baseline/gpt2/B:16/T:1024_pvalue"}))
      << *text;
  EXPECT_EQ(text->find("14_large_batch"), std::string::npos);
}

}  // namespace
}  // namespace stepladder
