#include "bench/report/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <tuple>

#include "bench/report/ablation.h"
#include "bench/report/answer.h"
#include "bench/report/notes.h"
#include "bench/report/speedups.h"
#include "bench/results/json.h"
#include "tests/comparable.h"
#include "tests/files.h"
#include "tests/results.h"

namespace stepladder {
namespace {

Json run_json(const std::string& variant, int round, double ms) {
  Run run = run_of(variant, round, {ms});
  run.config = {{"model", "gpt2"}, {"B", 16}, {"T", 1024}};
  run.steps[0].step_ms = run.summary->first_step_ms = 912.34;
  run.steps[1].loss = 6.25;
  run.summary->mfu_nanogpt = 0.3391, run.summary->mfu_llmc = 0.3179;
  run.summary->memory = {int64_t{31} << 30, int64_t{32} << 30, int64_t{33} << 30, {}};
  return to_json(run);
}

Json results_json(const std::vector<Json>& runs) {
  return {
      {"schema", kSchema},
      {"complete", true},
      {"context",
       {{"time", "2025-01-31T12:00:00.000Z"}, {"commit", "0123abc"}, {"device", {{"name", "NVIDIA H200"}}}}},
      {"plan",
       {{"rungs", {"00_fp32_baseline", "02_tf32"}},
        {"batch", {16}},
        {"steps", 40},
        {"warmup", 1},
        {"rounds", 2}}},
      {"runs", runs}};
}

std::string markdown(const Json& json) {
  return section_of(results_from(json)).markdown();
}

/// The first line of a report, which has its answer.
std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

TEST(Report, ARowHoldsEveryNumberWithItsInterval) {
  const std::string text =
      markdown(results_json({run_json("00_fp32_baseline", 0, 360), run_json("02_tf32", 0, 160),
                             run_json("02_tf32", 1, 150), run_json("00_fp32_baseline", 1, 370)}));
  EXPECT_TRUE(says(text, {"NVIDIA H200; gpt2 B=16 T=1024; 2 rounds", "40 steps, 1 ", "0123abc"}));
  EXPECT_TRUE(says(text, {"| 00_fp32_baseline | 365.0 | 360.0 to 370.0 | 44,896 | - | - | 33.9 / 31.8 | "
                          "31.0 / 33.0 | 912.3 | 6.2500 | ok |"}));
  EXPECT_TRUE(says(text, {"| 2.36 (2.25 to 2.47) | 2.36 (2.25 to 2.47) |"}));
  EXPECT_EQ(text.find("Unfinished"), std::string::npos);
  EXPECT_EQ(text.find("workload"), std::string::npos);
  Json small = run_json("00_fp32_baseline", 0, 100);
  small["config"]["B"] = 4;
  EXPECT_TRUE(says(markdown(results_json({small, run_json("00_fp32_baseline", 0, 360)})),
                   {"; gpt2 B=4 T=1024, gpt2 B=16 T=1024;"}))
      << "as measured";
  EXPECT_EQ(text.find("eer"), std::string::npos) << "none took part";
}

TEST(Report, AFailedRowHasNoNumbers) {
  Json failed = run_json("02_tf32", 0, 160);
  failed["status"] = "oom";
  failed["reason"] = "wants 90 GiB | has 80";
  EXPECT_TRUE(says(markdown(results_json({run_json("00_fp32_baseline", 0, 360), failed})),
                   {"| 02_tf32 | - | - | - | - | - | - | - | - | oom: wants 90 GiB \\| has 80 |"}));
}

TEST(Report, PeersStandBesideTheirRungsAndInATableOfTheirOwn) {
  Json pytorch = run_json("pytorch/00_fp32_baseline", 0, 720), llmc = run_json("llmc", 0, 30);
  pytorch["peer"] = "pytorch";
  llmc["peer"] = "llmc";
  Json results =
      results_json({run_json("00_fp32_baseline", 0, 360), pytorch, run_json("02_tf32", 0, 150), llmc});
  const std::string text = markdown(results);
  EXPECT_TRUE(says(text, {"| rung | median ms | tok/s | x previous | x baseline | PyTorch ms | "
                          "x PyTorch | llm.c ms | x llm.c | MFU % |",
                          "| 00_fp32_baseline | 360.0 | 45,511 | - | - | 720.0 | 2.00 | 30.00 | 0.08 |",
                          "| 02_tf32 | 150.0 | 109,227 | 2.40 | 2.40 | - | - | 30.00 | 0.20 |", "## Peers",
                          "| peer | median ms | tok/s | MFU % |",
                          "| pytorch/00_fp32_baseline | 720.00 | 22,756 | 33.9 / 31.8 |", "| llmc | 30.00 |",
                          "losses are not compared"}));
  results["complete"] = false;
  results["plan"]["peers"] = {"pytorch/00_fp32_baseline", "pytorch/02_tf32", "llmc"};
  EXPECT_TRUE(says(markdown(results), {"Unfinished", "4 of 10"}));
  EXPECT_TRUE(
      says(section_of(results_from(results)).terminal(true), {"x PyTorch", "pytorch/00_fp32_baseline"}));
}

TEST(Report, RungsThatAreOneStepElsewhereAreTakenAsOne) {
  std::vector<Json> runs;
  for (const auto& [name, ms] :
       {std::pair("05_mixed_precision", 100.0), std::pair("06_fused_classifier", 90.0),
        std::pair("08_fused_elementwise", 50.0), std::pair("10_padded_vocab", 30.0),
        std::pair("pytorch/05_mixed_precision", 140.0), std::pair("pytorch/08_fused_elementwise", 70.0)}) {
    runs.push_back(run_json(name, 0, ms));
    if (std::string(name).starts_with("pytorch")) runs.back()["peer"] = "pytorch";
  }
  runs.push_back(run_json("05_mixed_precision", 1, 400));
  const auto groups = [&] {
    const Results results = results_from(results_json(runs));
    return Findings(results).groups;
  };
  ASSERT_EQ(groups().size(), 1U);
  const GroupGain group = groups().front();
  EXPECT_EQ(group.name, "fused kernels");
  EXPECT_EQ(group.rungs, (std::vector<std::string>{"06_fused_classifier", "08_fused_elementwise"}));
  EXPECT_DOUBLE_EQ(group.ratio.value, 2.0) << "of the round that both ends have";
  EXPECT_DOUBLE_EQ(group.pytorch.value().value, 2.0);
  EXPECT_TRUE(says(markdown(results_json(runs)),
                   {"| fused kernels | 05_mixed_precision | 08_fused_elementwise | 2.00 | 2.00 |"}));
  runs[2]["status"] = "oom";
  EXPECT_TRUE(groups().empty()) << "an end failed";
}

TEST(Report, SeveralWorkloadsAndValidationGetTheirColumns) {
  Json large = run_json("00_fp32_baseline", 0, 1400);
  large["config"]["B"] = 64;
  large["summary"]["val_loss"] = 6.5;
  EXPECT_TRUE(says(markdown(results_json({run_json("00_fp32_baseline", 0, 360), large})),
                   {"| workload |", "| gpt2 B=64 T=1024 | 1400.0 |", "| val loss |",
                    "| 6.2500 | 6.5000 | ok |", "| 6.2500 | - | ok |"}));
}

TEST(Report, AblationsAreATableOfGains) {
  std::vector<Json> runs;
  for (int round : {0, 1}) {
    runs.push_back(run_json("02_tf32", round, 150));
    runs.push_back(run_json("03_fused_adamw", round, 120));
    runs.push_back(run_json("without/03_fused_adamw", round, round == 0 ? 21 : 19));
    runs.push_back(run_json(tuned_rung().name, round, 20));
    runs.push_back(run_json("only/03_fused_adamw", round, 300));
    runs.back()["status"] = "unsupported";
    runs.back()["reason"] = "needs sm_80";
  }
  for (Json& run : runs)
    if (run["variant"] == "02_tf32") run["summary"]["memory_bytes"]["live_peak"] = int64_t{62} << 29;
  runs.push_back(run_json("00_fp32_baseline", 0, 360));
  Json results = results_json(runs);
  EXPECT_EQ(markdown(results).find("Ablations"), std::string::npos) << "not asked for";
  results["plan"]["ablate"] = {{"rungs", {"03_fused_adamw"}}, {"kinds", {"without", "only"}}};
  results["runs"][0]["summary"]["memory_bytes"]["live_peak"] = int64_t{63} << 29;
  const std::string text = markdown(results);
  EXPECT_TRUE(says(
      text, {"## Ablations", "| rung | ladder gain | leave-one-out | only-one | live memory saved | status |",
             "| 03_fused_adamw | 1.250 (1.250 to 1.250) | 1.000 (0.950 to 1.050) | unsupported | "
             "512.0 MiB / 0 B / - | unsupported: only/03_fused_adamw: needs sm_80 |",
             "range (50 %)", "Gains of 2 rounds", "--rounds 6"}));
  EXPECT_FALSE(says(text, {"excludes 1"}));
  Json untold = results;
  for (Json& run : untold["runs"]) run["summary"]["memory_bytes"]["live_peak"] = 0;
  EXPECT_TRUE(says(markdown(untold), {"| unsupported | - | unsupported: only/03_fused_adamw: needs sm_80 |"}))
      << "memory that nobody told";
  EXPECT_EQ(text.find("95 %"), std::string::npos) << "of two rounds";
  EXPECT_TRUE(
      says(section_of(results_from(results)).terminal(true), {"leave-one-out", "1.250 (1.250 to 1.250)"}));

  for (int round = 2; round < 6; ++round)
    for (const Json& run : runs) {
      if (run["round"] != round % 2) continue;
      results["runs"].push_back(run);
      results["runs"].back()["round"] = round;
    }
  EXPECT_TRUE(
      says(markdown(results), {"95 % interval excludes 1: 1 of 1 (ladder gain), 0 of 1 (leave-one-out)"}));
  Json large = run_json("02_tf32", 0, 150);
  large["config"]["B"] = 64;
  results["runs"].push_back(large);
  EXPECT_TRUE(says(markdown(results), {"| rung | workload | ladder gain |", "| gpt2 B=64 T=1024 | missing |",
                                       "missing: 03_fused_adamw", "; missing: "}));
}

TEST(Report, HasAColumnOfMfuOnlyWhereARowHasAny) {
  Json known = run_json("00_fp32_baseline", 0, 360), unknown = run_json("02_tf32", 0, 150);
  for (const char* mfu : {"mfu_nanogpt", "mfu_llmc"}) unknown["summary"][mfu] = nullptr;
  EXPECT_FALSE(says(markdown(results_json({unknown})), {"MFU"}));
  EXPECT_TRUE(says(markdown(results_json({known, unknown})), {"MFU", "n/a / n/a"}));
}

TEST(Report, SaysWhatANumberDoesNotShow) {
  Json results = results_json({run_json("02_tf32", 0, 160)});
  results["runs"][0]["backend"] = "cpu";
  results["complete"] = false;
  results["plan"]["warmup"] = 0;
  EXPECT_TRUE(says(markdown(results), {"Unfinished", "1 of 4", "--resume", "settled late", "emulated"}));
  results["context"]["device"]["attention"] = "native (this build has no cuDNN)";
  EXPECT_TRUE(says(markdown(results), {"attention", ": this build has no cuDNN."}));
  results["runs"][0]["backend"] = "cuda";
  EXPECT_EQ(markdown(results).find("emulated"), std::string::npos);
}

TEST(Report, SaysWhoseLossesNothingWasComparedWith) {
  const auto said = [](std::initializer_list<Json> runs) {
    return says(markdown(results_json(runs)), {"losses of 02_tf32: 00_fp32_baseline"});
  };
  const Json first = run_json("00_fp32_baseline", 0, 360);
  Json run = run_json("02_tf32", 0, 150);
  EXPECT_TRUE(said({run}));
  EXPECT_FALSE(said({first, run}));
  run["config"]["B"] = 32;
  EXPECT_TRUE(said({first, run}));
}

TEST(Report, BeginsWithTheFastestRungAndAgainstWhom) {
  Json pytorch = run_json("pytorch/02_tf32", 0, 300);
  pytorch["peer"] = "pytorch";
  const Json results =
      results_json({run_json("00_fp32_baseline", 0, 360), run_json("02_tf32", 0, 150), pytorch});
  const std::string answer = first_line(markdown(results));
  const std::regex numbers(
      R"(one round.* 02_tf32, 150\.0 ms.* 109,227 tok/s.* 31\.0 GiB.* 2\.40x .*00_fp32_baseline.* 2\.00x .*pytorch/02_tf32)");
  EXPECT_TRUE(std::regex_search(answer, numbers)) << answer;
  EXPECT_TRUE(says(section_of(results_from(results)).terminal(true), {answer}));
  pytorch = run_json("pytorch/02_tf32", 0, 60);
  pytorch["peer"] = "pytorch";
  EXPECT_TRUE(
      says(markdown(results_json({run_json("02_tf32", 0, 150), pytorch})), {"; pytorch/02_tf32 is 2.50x"}));
  Json failed = run_json("00_fp32_baseline", 0, 360);
  failed["status"] = "oom";
  EXPECT_TRUE(markdown(results_json({failed})).starts_with("NVIDIA H200")) << "no answer";
}

TEST(Report, BeginsWithWhoLearnsTheSameWhereSpeedsTellNothing) {
  std::vector<Json> runs;
  for (const char* name : {"00_fp32_baseline", "01_causal_mask", "02_tf32"}) {
    runs.push_back(run_json(name, 0, 100));
    runs.back()["backend"] = "cpu";
  }
  const auto answer = [&] { return first_line(section_of(results_from(results_json(runs))).terminal(true)); };
  EXPECT_TRUE(says(answer(), {"Both other rungs", "00_fp32_baseline"}));
  runs[1]["status"] = "diverged";
  EXPECT_TRUE(says(answer(), {"1 of 2 other rungs"}));
  runs.erase(runs.begin());
  EXPECT_TRUE(says(answer(), {"02_tf32, 100.0 ms"})) << "nothing to compare losses with";
}

TEST(Report, BeginsWithTheMostTokensWhereBatchesDiffer) {
  Json large = run_json("02_tf32", 0, 300);
  large["config"]["B"] = 64;
  large["summary"]["tokens_per_second"] = 218453.0;
  const std::string text = markdown(results_json({run_json("02_tf32", 0, 150), large}));
  EXPECT_TRUE(says(first_line(text), {"02_tf32", "B=64", "300.0 ms", "218,453 tok/s"}));
}

TEST(Report, NamesWhoIsAsFastWithinTheNoise) {
  const auto headline = [](double second) {
    return first_line(
        markdown(results_json({run_json("00_fp32_baseline", 0, second), run_json("02_tf32", 0, 149),
                               run_json("00_fp32_baseline", 1, second), run_json("02_tf32", 1, 151)})));
  };
  EXPECT_TRUE(says(headline(150.5), {"02_tf32", "00_fp32_baseline", "noise"}));
  EXPECT_TRUE(says(headline(150.5), {"No clear winner"}) && !says(headline(150.5), {"x the speed"}))
      << headline(150.5);
  EXPECT_FALSE(says(headline(360), {"noise"})) << headline(360);
}

TEST(Report, HeadlineAndCardNameTheLeastMedianOfTheTableAndWhomItIsNotToldApartFrom) {
  using Medians = std::vector<std::tuple<const char*, double, double>>;  // of two rounds
  const auto lead = [](const Medians& medians) {
    std::vector<Json> runs;
    for (const auto& [rung, first, second] : medians) {
      runs.push_back(run_json(rung, 0, first));
      runs.push_back(run_json(rung, 1, second));
    }
    const Results results = results_from(results_json(runs));
    const Findings findings(results);
    const Fact card = facts_of({"a", "a", &findings}, {}, false).at(0);
    return cat(answer_of(findings, false).text, " | ", card.title, ": ", card.value, ", ", card.more);
  };
  // 01 has the most tokens a second, and more than 00 in both rounds.
  std::string said =
      lead({{"00_fp32_baseline", 101, 205}, {"01_causal_mask", 100, 200}, {"02_tf32", 140, 146}});
  EXPECT_TRUE(std::regex_match(
      said, std::regex(
                R"(No clear winner: 02_tf32 \(01_causal_mask .*143\.0 ms.*\| No clear winner: 143\.0 ms.*)")))
      << said;
  // 00 is faster than 01 in both rounds, than 02 in one.
  said = lead({{"00_fp32_baseline", 100, 110}, {"01_causal_mask", 101, 111}, {"02_tf32", 98, 116}});
  EXPECT_TRUE(std::regex_match(
      said, std::regex(R"(No clear winner: 00_fp32_baseline \(02_tf32 .*\| No clear winner: 105\.0 ms.*)")))
      << said;
  said = lead({{"00_fp32_baseline", 100, 110}, {"01_causal_mask", 101, 111}});
  EXPECT_TRUE(
      std::regex_match(said, std::regex(R"(Fastest: 00_fp32_baseline, .*\| Fastest step: 105\.0 ms.*)")))
      << said;
}

TEST(Report, ClaimsNoRatioThatTheNoiseMayHaveMade) {
  std::vector<Json> runs;
  for (const int round : {0, 1}) {
    runs.push_back(run_json("00_fp32_baseline", round, 360));
    runs.push_back(run_json("02_tf32", round, round == 0 ? 140 : 160));
    runs.push_back(run_json("pytorch/02_tf32", round, 152));
    runs.back()["peer"] = "pytorch";
  }
  const std::string answer = first_line(markdown(results_json(runs)));
  EXPECT_TRUE(says(answer, {"x the speed of 00_fp32_baseline", "not told apart from pytorch/02_tf32"}));
}

TEST(Report, OfSeveralDevicesHasRatiosOnly) {
  Json pytorch = run_json("pytorch/02_tf32", 0, 300);
  pytorch["peer"] = "pytorch";
  const std::string text = section_of(results_from(results_json({run_json("00_fp32_baseline", 0, 360),
                                                                 run_json("02_tf32", 0, 150), pytorch})),
                                      true)
                               .markdown();
  EXPECT_TRUE(says(text, {"| rung | x previous | x baseline | x PyTorch | MFU % | loss | status |",
                          "| 02_tf32 | 2.40 | 2.40 | 2.00 | 33.9 / 31.8 | 6.2500 | ok |"}));
  for (const char* absolute : {"150.0", "360.0", "31.0", "109,227"})
    EXPECT_EQ(text.find(absolute), std::string::npos) << absolute << "\n" << text;
}

TEST(Report, NotesTellWarningsFromReadingAids) {
  Json results = results_json({run_json("00_fp32_baseline", 0, 360)});
  results["complete"] = false;
  const Results read = results_from(results);
  const auto notes = notes_of(Findings(read));
  EXPECT_EQ(std::count_if(notes.begin(), notes.end(), [](const Note& n) { return n.warning; }), 1);
  const auto warning = std::find_if(notes.begin(), notes.end(), [](const Note& n) { return n.warning; });
  EXPECT_TRUE(says(warning->text, {"Unfinished"}));
}

TEST(Report, SaysWhichCardsRoundsComeFromAndHowFastEachWas) {
  std::vector<Json> runs;
  for (const int round : {0, 1, 2}) {
    runs.push_back(run_json("00_fp32_baseline", round, 360));
    runs.push_back(run_json("02_tf32", round, 150 + round));
  }
  Json json = results_json(runs);
  json["context"]["device"]["uuid"] = "GPU-00000000-1";
  EXPECT_EQ(markdown(json).find("cards"), std::string::npos);
  for (const int run : {4, 5}) json["runs"][run]["device"] = "GPU-11111111-1";
  EXPECT_TRUE(says(markdown(json), {"2 cards", "02_tf32", "150.0 to 151.0 ms on GPU-00000000 (2 rounds)",
                                    "152.0 ms on GPU-11111111 (1 round)"}));
}

TEST(Report, TellsABusyMachineFromAnIdleOne) {
  for (const double idle : {0.0, 0.2}) EXPECT_EQ(busy_note({{"cores", 2}, {"busy_cores", idle}}), "") << idle;
  EXPECT_EQ(busy_note({{"cores", 64}, {"busy_cores", 3.0}}), "");
  EXPECT_EQ(busy_note({{"cores", 2}}), "");  // a file without busy_cores
  EXPECT_TRUE(says(busy_note({{"cores", 2}, {"busy_cores", 1.94}}), {"1.9 of 2 cores"}));
  EXPECT_TRUE(says(busy_note({{"cores", 2}, {"busy_cores", 1.94}, {"device", {{"backend", "cpu"}}}}),
                   {"OMP_NUM_THREADS"}));
  EXPECT_TRUE(says(busy_note({{"cores", 64}, {"busy_cores", 6.5}}), {"6.5 of 64 cores", "when this began"}));
  EXPECT_TRUE(
      says(busy_note({{"cores", 64},
                      {"busy_cores", 6.5},
                      {"resumed", {{{"runs", 3}, {"busy_cores", 7.5}}, {{"runs", 4}, {"busy_cores", 0}}}}}),
           {"7.5 of 64 cores", "when this was resumed"}));
}

TEST(Report, WarnsOfVariablesOfTheLibrariesThatComputed) {
  Json json = results_json({run_json("02_tf32", 0, 160)});
  json["context"]["environment"] = {{"OPENBLAS_CORETYPE", "Haswell"}, {"CUDA_LAUNCH_BLOCKING", "1"}};
  json["context"]["device"]["backend"] = "cuda";
  EXPECT_TRUE(says(markdown(json), {"CUDA_LAUNCH_BLOCKING=1"}));
  EXPECT_FALSE(says(markdown(json), {"OPENBLAS_CORETYPE"})) << "which computes on the CPU alone";
  json["context"]["device"]["backend"] = "cpu";
  EXPECT_TRUE(says(markdown(json), {"OPENBLAS_CORETYPE=Haswell"}));
}

TEST(Report, ItsTitleHasTheStepsOfTunedSchedules) {
  Json json = results_json({run_json("02_tf32", 0, 160)});
  json["plan"]["until_loss"] = 3;
  json["plan"]["tuned"] = {{"00_fp32_baseline", {{"steps", 1800}}}, {"02_tf32", {{"steps", 500}}}};
  EXPECT_TRUE(says(title(results_from(json)), {"at most 500 to 1800 steps"}));
  json["plan"]["tuned"].erase("02_tf32");
  EXPECT_TRUE(says(title(results_from(json)), {"at most 1800 steps"}));
  for (const Json& other : {Json(), Json(3), Json({{"a", 1}})}) {
    json["plan"]["tuned"] = other;
    EXPECT_TRUE(says(title(results_from(json)), {"at most 40 steps"}));
  }
}

TEST(Report, ComparesTwoRungsWithinRounds) {
  Json small = run_json("02_tf32", 0, 160), more = run_json("02_tf32", 1, 150);
  for (Json* run : {&small, &more}) (*run)["summary"]["memory_bytes"]["live_peak"] = int64_t{30} << 30;
  const Results results = results_from(results_json(
      {run_json("00_fp32_baseline", 0, 400), small, run_json("00_fp32_baseline", 1, 360), more}));
  EXPECT_TRUE(
      says(two_rungs(results, "00_fp32_baseline", "02_tf32").terminal(false),
           {"02_tf32 runs at 2.45 (2.40 to 2.50)", "00_fp32_baseline on gpt2 B=16 T=1024", "1.0 GiB less"}));
  EXPECT_TRUE(says(two_rungs(results, "02_tf32", "00_fp32_baseline").terminal(false), {"1.0 GiB more"}));
  const std::string neither = two_rungs(results, "09_flash_attention", "11_searched_gemms").terminal(false);
  EXPECT_TRUE(says(neither, {"09_flash_attention", "11_searched_gemms"}));
  EXPECT_EQ(std::ranges::count(neither, '\n'), 1) << neither;
  const std::string alone = two_rungs(results, "02_tf32", "03_fused_adamw").terminal(false);
  EXPECT_TRUE(says(alone, {"02_tf32", "03_fused_adamw was not measured"}));
  EXPECT_EQ(alone.find("runs at"), std::string::npos);
}

TEST(Report, AComparisonSaysWhichRoundsWereThrottled) {
  std::vector<Json> runs = {run_json("00_fp32_baseline", 0, 400), run_json("02_tf32", 0, 900),
                            run_json("00_fp32_baseline", 1, 400), run_json("02_tf32", 1, 160)};
  runs[1]["summary"]["throttled"] = true;
  EXPECT_TRUE(says(two_rungs(results_from(results_json(runs)), "00_fp32_baseline", "02_tf32").terminal(false),
                   {"02_tf32, gpt2 B=16 T=1024: ", "clocks", "1 of 2 rounds", "02_tf32 runs at 2.50"}));
  runs[3]["summary"]["throttled"] = true;
  const std::string all =
      two_rungs(results_from(results_json(runs)), "00_fp32_baseline", "02_tf32").terminal(false);
  EXPECT_TRUE(says(all, {"2 of 2 rounds", "claimed", "ok, throttled"}));
  EXPECT_EQ(all.find("runs at"), std::string::npos) << all;
}

TEST(Report, StandsAgainstThePeersFastestInTheSameRounds) {
  std::vector<Json> runs;
  for (int round : {0, 1}) {
    runs.push_back(run_json("02_tf32", round, 100));
    runs.push_back(run_json("only/02_tf32", round, 10));
    for (auto [name, peer, ms] : {std::tuple("pytorch/02_tf32", "pytorch", 300.0),
                                  std::tuple("pytorch/13_cuda_graphs", "pytorch", 150.0 + 50 * round),
                                  std::tuple("llmc", "llmc", 80.0)}) {
      runs.push_back(run_json(name, round, ms));
      runs.back()["peer"] = peer;
    }
  }
  const auto against = [&] {
    const Results results = results_from(results_json(runs));
    return against_peers(Findings(results));
  };
  ASSERT_EQ(against().size(), 2U);
  EXPECT_EQ(against()[0].against, "pytorch/13_cuda_graphs");
  EXPECT_DOUBLE_EQ(against()[0].ratio.value, 1.75);
  ASSERT_TRUE(against()[0].ratio.interval);
  EXPECT_DOUBLE_EQ(against()[0].ratio.interval->hi, 2.0);
  EXPECT_DOUBLE_EQ(against()[1].ratio.value, 0.8);
  for (Json& run : runs)
    if (run["variant"] == "02_tf32") run["summary"]["throttled"] = true;
  EXPECT_TRUE(against().empty()) << "nothing is claimed on throttled times";
  runs.push_back(run_json("15_multi_gpu", 0, 10));
  runs.back()["config"]["world_size"] = 4;
  runs.push_back(run_json("00_fp32_baseline", 0, 600));
  EXPECT_TRUE(says(first_line(markdown(results_json(runs))), {"one device", "00_fp32_baseline, 600.0 ms"}));
}

TEST(Report, TimeToALossIsComparedInTheRoundsThatBothReachedIt) {
  std::vector<Json> runs;
  const auto add = [&](const char* variant, int round, double seconds, bool reached) {
    runs.push_back(run_json(variant, round, 10));
    runs.back()["summary"]["to_loss"] = {{"loss", 3.0},        {"reached", reached}, {"steps", 100},
                                         {"seconds", seconds}, {"tokens", 1e6},      {"joules", nullptr}};
  };
  for (int round : {0, 1, 2}) {
    add("00_fp32_baseline", round, 100.0 * (round + 1), true);
    add("02_tf32", round, round == 0 ? 60 : 500, round == 0);
  }
  const std::vector<ResultRow> rows = aggregate(results_from(results_json(runs)));
  EXPECT_DOUBLE_EQ(rows[0].numbers->to_loss->first->seconds.value, 1.0);
  const std::optional<Sooner> faster = rows[1].numbers->to_loss->first;
  ASSERT_TRUE(faster);
  EXPECT_EQ(faster->against, "00_fp32_baseline");
  const double shorter = (100e3 - 912.34) / (60e3 - 912.34);  // without the first step
  EXPECT_NEAR(faster->seconds.value, shorter, 1e-12) << "not the other's median of three seeds";
  EXPECT_EQ(faster->seconds.rounds, 1);
  EXPECT_DOUBLE_EQ(faster->steps.value, 1.0);
  EXPECT_NEAR(faster->step_ms.value, shorter, 1e-12);
  EXPECT_TRUE(says(markdown(results_json(runs)), {"| 00_fp32_baseline |", "| 1.68 |"}));
}

TEST(Report, NoFactorContradictsThatThereIsNoClearWinnerAtALoss) {
  const auto answer = [](std::vector<double> first, std::vector<double> second) {
    std::vector<Json> runs;
    for (const auto& [variant, seconds] :
         {std::pair("00_fp32_baseline", first), std::pair("02_tf32", second)})
      for (size_t round = 0; round < seconds.size(); ++round) {
        Json& run = runs.emplace_back(run_json(variant, static_cast<int>(round), 10));
        run["summary"]["to_loss"] = {{"loss", 3.0},   {"reached", seconds[round] < 900},
                                     {"steps", 100},  {"seconds", seconds[round]},
                                     {"tokens", 1e6}, {"joules", nullptr}};
      }
    Json file = results_json(runs);
    file["plan"]["until_loss"] = 3;
    return first_line(markdown(file));
  };
  const std::string close = answer({100, 130, 100}, {99, 99, 120}),
                    clear = answer({100, 101, 102}, {50, 50, 51});
  EXPECT_TRUE(says(close, {"No clear winner", "02_tf32", "00_fp32_baseline"}) && !says(close, {"steps, "}))
      << close;
  EXPECT_TRUE(says(clear, {"Soonest", "sooner than 00_fp32_baseline"}));
  const std::string outstanding = answer({100, 101, 102}, {50, 50}), missed = answer({100, 101}, {50, 900});
  EXPECT_TRUE(says(outstanding, {"Soonest", "02_tf32", "2.0"}))
      << outstanding << ": no run of it missed the loss";
  EXPECT_TRUE(says(missed, {"00_fp32_baseline, 100"})) << missed;
}

TEST(Report, NothingIsClaimedOnRowsThatWereDisturbedInEveryRound) {
  for (const bool disturbed : {false, true}) {
    std::vector<Json> runs;
    for (const char* variant : {"10_padded_vocab", "11_searched_gemms"}) {
      const bool searched = variant[1] == '1';
      Json& run = runs.emplace_back(run_json(variant, 0, searched ? 10 : 20));
      run["summary"]["throttled"] = disturbed && searched;
      run["summary"]["first_step_ms"] = searched ? 900 : 30;
      if (searched)
        run["summary"]["compile"] = {
            {"search_ms", 800.0}, {"capture_ms", 50.0}, {"searched", 7}, {"from_cache", 0}};
      run["summary"]["to_loss"] = {{"loss", 3.0},   {"reached", true}, {"steps", 100},
                                   {"seconds", 10}, {"tokens", 1e6},   {"joules", nullptr}};
    }
    const std::vector<ResultRow> rows = aggregate(results_from(results_json(runs)));
    EXPECT_EQ(rows[1].numbers->break_even_steps.has_value(), !disturbed);
    EXPECT_EQ(rows[1].numbers->to_loss->first.has_value(), !disturbed);
    for (Json& run : runs) run["summary"]["throttled"] = disturbed;
    Json file = results_json(runs);
    file["plan"]["until_loss"] = 3;
    const std::string answer = first_line(markdown(file));
    EXPECT_EQ(says(answer, {"No undisturbed run reached"}), disturbed) << answer;
    EXPECT_FALSE(says(answer, {"No rung"})) << answer;
  }
}

TEST(Report, ARungThatChoseItsBatchIsComparedWithTheLargestThatFits) {
  std::vector<Json> runs;
  const auto add = [&](const char* variant, int batch, double ms, int devices = 1) {
    runs.push_back(run_json(variant, 0, ms));
    runs.back()["config"].update({{"B", batch}, {"world_size", devices}});
  };
  add("13_cuda_graphs", 16, 20), add("13_cuda_graphs", 64, 80), add("13_cuda_graphs", 128, 1);
  runs.back()["status"] = "oom";
  runs.back()["summary"] = nullptr;
  add("13_cuda_graphs", 256, 80, 4);
  add("14_large_batch", 256, 160);
  const std::vector<ResultRow> rows = aggregate(results_from(results_json(runs)));
  ASSERT_TRUE(rows.back().numbers && rows.back().numbers->previous) << rows.back().variant;
  EXPECT_DOUBLE_EQ(rows.back().numbers->previous->ratio.value, 2.0) << "by time per token, against B = 64";
}

TEST(Report, AnIntervalIsNamedByTheFewestRoundsThatOneIsOf) {
  std::vector<Json> runs;
  for (int round = 0; round < 10; ++round)
    for (const char* variant : {"00_fp32_baseline", "02_tf32"}) {
      runs.push_back(run_json(variant, round, 10 + 0.1 * round));
      runs.back()["summary"]["throttled"] = (variant[1] == '0') == (round < 4) && round < 8;
    }
  const Results results = results_from(results_json(runs));
  const std::vector<ResultRow> rows = aggregate(results);
  EXPECT_EQ(rows[0].numbers->median_step_ms.rounds, 6);
  EXPECT_EQ(rows[1].numbers->baseline->ratio.rounds, 2) << "in common";
  EXPECT_TRUE(says(section_of(results).markdown(), {"range (50 %)"}));
}

TEST(Report, OfSeveralDevicesAnAblationHasRatiosOnly) {
  Json results =
      results_json({run_json("02_tf32", 0, 150), run_json("03_fused_adamw", 0, 120),
                    run_json("without/03_fused_adamw", 0, 21), run_json(tuned_rung().name, 0, 20)});
  results["plan"]["ablate"] = {{"rungs", {"03_fused_adamw"}}, {"kinds", {"without"}}};
  const std::string text = section_of(results_from(results), true).markdown();
  EXPECT_TRUE(says(text, {"| rung | ladder gain | leave-one-out | only-one | status |",
                          "| 03_fused_adamw | 1.250 | 1.050 | - | ok |"}));
  for (const char* absolute : {"live memory", "150.0", "GiB"})
    EXPECT_EQ(text.substr(0, text.find("- Step time")).find(absolute), std::string::npos) << absolute << text;
}

TEST(Report, SaysWhereIndependentRanksAreHeldAgainstNothing) {
  const auto warned = [](std::vector<Json> runs) {
    return says(section_of(results_from(results_json(std::move(runs)))).markdown(), {"--independent-ranks"});
  };
  Json apart = run_json("15_multi_gpu", 0, 21);
  apart["config"].update({{"world_size", 2}, {"independent_ranks", true}});
  EXPECT_TRUE(warned({apart}));
  EXPECT_FALSE(warned({run_json("15_multi_gpu", 0, 21)}));
}

TEST(Report, ForeignTextIsNoMarkup) {
  const std::string foreign = "a|b`<img src=x>[x](http://y)@someone\n# \033[2J";
  Json failed = run_json(foreign, 1, 10);
  failed["status"] = "crash";
  failed["reason"] = foreign;
  Json results = results_json({run_json(foreign, 0, 360), failed, run_json("02" + foreign, 0, 150)});
  results["context"]["device"]["name"] = foreign;
  results["context"]["commit"] = "<script>@all";
  std::string text = markdown(results);
  EXPECT_TRUE(says(first_line(text), {": 02a"})) << text;
  for (size_t at; (at = text.find('\\')) != std::string::npos;) text.erase(at, 2);  // removes what is escaped
  for (const char* markup : {"<img", "<script", "[x](", "`", "@", "\033", "\n# "})
    EXPECT_EQ(text.find(markup), std::string::npos) << markup << "\n" << text;
}

TEST(Report, SurvivesAnyContextAndPlan) {
  Json results = results_json({});
  results["complete"] = false;
  results["context"] = {{"device", 7}, {"time", {1, 2}}};
  results["plan"] = {{"rounds", 1e300}, {"rungs", "x"}, {"batch", nullptr}, {"warmup", {}}};
  EXPECT_TRUE(says(section_of(results_from(results)).terminal(true), {"unknown"}));
}

}  // namespace
}  // namespace stepladder
