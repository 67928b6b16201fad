#include "bench/results/results.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <functional>
#include <limits>
#include <sstream>
#include <thread>
#include <tuple>

#include "bench/base/gzip.h"
#include "bench/report/ablation.h"
#include "bench/report/export.h"
#include "bench/report/speedups.h"
#include "bench/results/file.h"
#include "bench/results/lines.h"
#include "bench/results/run_json.h"
#include "bench/verdict/comparison_report.h"
#include "bench/verdict/history.h"
#include "model/error.h"
#include "tests/files.h"
#include "tests/results.h"

namespace stepladder {
namespace {

Run make_run(const std::string& variant, int64_t round, double ms, int64_t batch = 4) {
  Run run;
  run.variant = variant;
  run.source_hash = "abc";
  run.backend = "cpu";
  run.round = round;
  run.config = {{"model", "gpt2-tiny"}, {"B", batch}, {"T", 64}};
  for (int64_t i = 0; i < 5; ++i)
    run.steps.push_back(
        {i, i < 2, ms + static_cast<double>(i == 0), ms, 4.5 - 0.1 * static_cast<double>(i), 1.0, 1e-3});
  Summary summary;
  summary.median_step_ms = summary.p10_step_ms = summary.p90_step_ms = ms;
  summary.first_step_ms = ms + 1;
  summary.startup_ms = 100 + ms;
  summary.warmup_steps = 2;
  summary.tokens_per_second = static_cast<double>(batch) * 64 / ms * 1e3;
  summary.mfu_nanogpt = 0.5;
  summary.memory = {100, 200, 300, {{"params/wte", 64}}};
  run.summary = summary;
  return run;
}

Run peer_run(const std::string& peer, const std::string& variant, int64_t round, double ms) {
  Run run = make_run(variant, round, ms);
  run.peer = peer;
  return run;
}

Run failed_run(const std::string& variant, int64_t round, Status status, const std::string& reason) {
  Run run = make_run(variant, round, 1.0);
  run.status = status;
  run.reason = reason;
  run.steps.clear();
  run.summary.reset();
  return run;
}

Results make_results(std::vector<Run> runs) {
  Results results;
  results.context = {{"time", "2025-01-31T12:00:00.000Z"}, {"cpu", "a"}, {"cores", 2}};
  results.plan = {
      {"rungs", {"00_fp32_baseline"}}, {"batch", {4}}, {"steps", 5}, {"warmup", 2}, {"rounds", 2}};
  results.runs = std::move(runs);
  return results;
}

// ---- schema ----------------------------------------------------------------------------------------------

TEST(Results, AreTheSameAfterWritingAndReading) {
  Results results = make_results({make_run("00_fp32_baseline", 0, 20), make_run("01_causal_mask", 0, 10),
                                  failed_run("02_tf32", 0, Status::unsupported, "needs sm_80")});
  results.complete = true;
  const Json json = results_file_json(results);
  const Json again = results_file_json(results_in(file_text(results)));
  EXPECT_EQ(json, again);
  EXPECT_EQ(json["schema"], kSchema);
  EXPECT_EQ(json["runs"][2]["status"], "unsupported");
  EXPECT_TRUE(json["runs"][2]["summary"].is_null());
  EXPECT_EQ(json["variants"].size(), 3U);
  EXPECT_FALSE(json["runs"][0].contains("peer"));

  results.runs.push_back(peer_run("llmc", "llmc", 0, 5));
  const Results with_peer = results_in(file_text(results));
  EXPECT_EQ(with_peer.runs[0].peer, "");
  EXPECT_EQ(with_peer.runs[3].peer, "llmc");
  EXPECT_EQ(results_file_json(with_peer)["variants"][3]["peer"], "llmc");
}

TEST(Results, HoldStepsAsColumns) {
  stepladder::Run run = make_run("00_fp32_baseline", 0, 20);
  run.steps[3].device.sm_mhz = 1980;
  const Json steps = to_json(run)["steps"];
  EXPECT_EQ(steps["step_ms"], Json({21.0, 20.0, 20.0, 20.0, 20.0}));
  EXPECT_EQ(steps["sm_mhz"], Json({nullptr, nullptr, nullptr, 1980, nullptr}));
  EXPECT_FALSE(steps.contains("power_w")) << "nothing is known of it";
  const stepladder::Run again = run_from(to_json(run));
  ASSERT_EQ(again.steps.size(), 5U);
  EXPECT_EQ(again.steps[3].device.sm_mhz, 1980);
  EXPECT_EQ(again.steps[3].step, 3);
  EXPECT_TRUE(again.steps[1].warmup);
  EXPECT_FALSE(again.steps[2].warmup);
}

TEST(Results, WriteWhatRepeatsItselfOnceAndReadItBack) {
  stepladder::Run run = make_run("00_fp32_baseline", 0, 20);
  for (stepladder::Step& step : run.steps) {
    step.device.memory_mhz = 3201;
    step.device.temperature_c = step.step < 3 ? 61 : 60;
    step.device.throttle = {"sw_power_cap"};
    step.cycles = 42064556.0 + static_cast<double>(step.step);
    if (step.step == 4) step.energy_j = 621.039;
  }
  const Json steps = to_json(run)["steps"];
  EXPECT_EQ(steps["memory_mhz"].dump(), R"({"values":[3201],"times":[5]})");
  EXPECT_EQ(steps["temperature_c"].dump(), R"({"values":[61,60],"times":[3,2]})");
  EXPECT_EQ(steps["throttle"].dump(), R"({"values":[["sw_power_cap"]],"times":[5]})");
  EXPECT_EQ(steps["energy_j"].dump(), R"({"values":[null,621.039],"times":[4,1]})");
  EXPECT_EQ(steps["cycles"].dump(), "[42064556,42064557,42064558,42064559,42064560]");
  const stepladder::Run again = run_from(parse_json(to_json(run).dump()));
  for (size_t i = 0; i < run.steps.size(); ++i) {
    const stepladder::Step &was = run.steps[i], &is = again.steps[i];
    EXPECT_EQ(is.device.memory_mhz, was.device.memory_mhz) << i;
    EXPECT_EQ(is.device.temperature_c, was.device.temperature_c) << i;
    EXPECT_EQ(is.device.throttle, was.device.throttle) << i;
    EXPECT_EQ(is.cycles, was.cycles) << i;
    EXPECT_EQ(is.energy_j, was.energy_j) << i;
  }
  EXPECT_EQ(to_json(again), to_json(run));
}

TEST(Results, RefuseCountsThatArithmeticCannotHold) {
  const stepladder::Run run = make_run("00_fp32_baseline", 0, 20);
  Json wrong = to_json(run);
  wrong["round"] = std::numeric_limits<int64_t>::max();
  EXPECT_THROW(run_from(wrong), InputError);
  wrong = to_json(run);
  wrong["summary"]["warmup_steps"] = std::numeric_limits<int64_t>::min();
  EXPECT_THROW(run_from(wrong), InputError);
}

TEST(Results, RefuseAnEvaluationAfterTheLastStep) {
  const stepladder::Run run = make_run("00_fp32_baseline", 0, 20);
  Json json = to_json(run);
  const auto at = [&](Json evaluation) {
    json["evaluations"] = Json::array({std::move(evaluation)});
    return run_from(json).evaluations.front().step;
  };
  const int64_t last = std::ssize(run.steps);
  EXPECT_EQ(at({{"step", last}, {"val_loss", 5.0}}), last);
  EXPECT_THROW(at({{"step", last + 1}, {"val_loss", 5.0}}), InputError);
  EXPECT_THROW(at({{"step", -1}, {"val_loss", 5.0}}), InputError);
  // A long run keeps few of its steps, so its evaluations tell the seconds.
  EXPECT_EQ(at({{"step", last + 1}, {"val_loss", 5.0}, {"seconds", 9.5}}), last + 1);
}

TEST(Gzip, GivesBackWhatItTookAndSeveralMembersAsOne) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += cat(i, ",");
  const std::string small = gzipped(text);
  EXPECT_LT(small.size(), text.size() / 2);
  EXPECT_EQ(gunzipped(small), text);
  EXPECT_EQ(gunzipped(small + gzipped("") + gzipped("end")), text + "end");
  EXPECT_EQ(gunzipped(gzipped("")), "");
  EXPECT_EQ(gunzipped("plain"), "plain");
}

TEST(Gzip, RefusesWhatIsDamagedCutOrTooLarge) {
  const std::string small = gzipped(std::string(1000, 'x'));
  for (size_t cut = 2; cut < small.size(); ++cut)
    EXPECT_THROW(gunzipped(small.substr(0, cut)), InputError) << cut;
  std::string wrong = small;
  wrong[wrong.size() - 5] ^= 1;  // damages the CRC
  EXPECT_THROW(gunzipped(wrong), InputError);
  EXPECT_THROW(gunzipped(small + "tail"), InputError);
  std::string bomb;  // 1.5 GiB of zeros in 1.5 MB
  const std::string member = gzipped(std::string(size_t{1} << 26, '\0'));
  for (int i = 0; i < 24; ++i) bomb += member;
  EXPECT_THROW(gunzipped(bomb), InputError);
}

TEST(Results, CompareNumbersAsNumbers) {
  Results results = make_results({make_run("00_fp32_baseline", 0, 20)});
  results.plan["lr"] = 1.0;
  results.runs[0].config["loss_scale"] = 65536.0;
  std::string text = file_text(results);
  const Results base = results_in(text);
  for (const auto& [was, now] : {std::pair<std::string, std::string>("\"lr\":1.0", "\"lr\":1"),
                                 {"\"loss_scale\":65536.0", "\"loss_scale\":65536"},
                                 {"\"B\":4", "\"B\":4.0"}})
    text.replace(text.find(was), was.size(), now);
  EXPECT_NO_THROW(require_comparable(base, results_in(text)));
}

TEST(Results, NeverHoldNaNOrInfinity) {
  stepladder::Run run = failed_run("00_fp32_baseline", 0, Status::diverged, "the loss is not finite");
  run.steps.push_back({0, false, 10.0, std::nullopt, std::nullopt, std::nullopt, 1e-3});
  const std::string text = results_file_json(make_results({run})).dump();
  EXPECT_EQ(text.find("nan"), std::string::npos);
  EXPECT_EQ(text.find("inf,"), std::string::npos);
  EXPECT_TRUE(says(text, {"\"loss\":[null]"}));
  EXPECT_FALSE(results_from(parse_json(text)).runs[0].steps[0].loss);

  for (const double bad : {double{NAN}, double{INFINITY}, -double{INFINITY}}) {
    stepladder::Run measured = make_run("00_fp32_baseline", 0, 20);
    measured.steps[2].loss = measured.steps[2].grad_norm = bad;
    measured.summary->covered = bad;
    const std::string written = results_file_json(make_results({measured})).dump();
    const stepladder::Run read = results_from(parse_json(written)).runs[0];
    EXPECT_FALSE(read.steps[2].loss || read.steps[2].grad_norm) << bad;
    EXPECT_FALSE(read.summary->covered) << bad;
    EXPECT_EQ(read.steps[3].grad_norm, measured.steps[3].grad_norm) << "the others are kept";
  }
}

// ---- rows ------------------------------------------------------------------------------------------------

TEST(Aggregate, ARunThatEndedBeforeItToldItsBackendIsOfTheSameRow) {
  stepladder::Run good = make_run("02_tf32", 0, 40), ended = make_run("02_tf32", 1, 40);
  good.backend = "cuda";
  ended.backend = "cpu";  // the backend asked for
  ended.status = Status::crash;
  ended.summary.reset();
  for (const auto& runs : {std::vector{good, ended}, {ended, good}}) {
    const auto rows = aggregate(make_results(runs));
    ASSERT_EQ(rows.size(), 1U);
    EXPECT_EQ(rows[0].status, Status::crash);
    EXPECT_EQ(rows[0].backend, "cuda");
    EXPECT_FALSE(rows[0].numbers);
  }
}

TEST(Aggregate, ComparesWithTheRungBelowAndTheBaseline) {
  const auto rows = aggregate(make_results(
      {make_run("00_fp32_baseline", 0, 40), make_run("01_causal_mask", 0, 20), make_run("02_tf32", 0, 10),
       make_run("02_tf32", 1, 11), make_run("01_causal_mask", 1, 22), make_run("00_fp32_baseline", 1, 44)}));
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].variant, "00_fp32_baseline");
  EXPECT_FALSE(rows[0].numbers->previous);
  EXPECT_FALSE(rows[0].numbers->baseline);
  const auto& top = *rows[2].numbers;
  EXPECT_EQ(rows[2].rounds, 2);
  EXPECT_DOUBLE_EQ(top.median_step_ms.value, 10.5);
  EXPECT_DOUBLE_EQ(top.median_step_ms.interval->lo, 10.0);
  EXPECT_DOUBLE_EQ(top.median_step_ms.interval->hi, 11.0);
  EXPECT_EQ(top.previous->against, "01_causal_mask");
  EXPECT_DOUBLE_EQ(top.previous->ratio.value, 2.0);
  EXPECT_EQ(top.baseline->against, "00_fp32_baseline");
  EXPECT_DOUBLE_EQ(top.baseline->ratio.value, 4.0);
  EXPECT_DOUBLE_EQ(top.baseline->ratio.interval->lo, 4.0)
      << "pairs are of a round: drift between them cancels";
  EXPECT_DOUBLE_EQ(top.baseline->ratio.interval->hi, 4.0);
  EXPECT_DOUBLE_EQ(top.final_loss, 4.1);
  EXPECT_EQ(top.memory.process_peak, 300);
  EXPECT_DOUBLE_EQ(*top.mfu_nanogpt, 0.5);
  EXPECT_FALSE(top.mfu_llmc);
}

TEST(Aggregate, JoulesThatAreNotPositiveAreUnknown) {
  stepladder::Run run = make_run("00_fp32_baseline", 0, 40);
  run.summary->joules = run.summary->cycles = 0.0;
  run.summary->to_loss =
      ToLoss{.loss = 5.5, .reached = true, .steps = 5, .seconds = 6, .tokens = 1e6, .joules = -1.0};
  const Results results = results_in(file_text(make_results({run})));
  const Summary& summary = *results.runs.at(0).summary;
  EXPECT_FALSE(summary.joules || summary.cycles || summary.to_loss->joules);
  EXPECT_NE(summary.joules_unknown, "");
  EXPECT_FALSE(aggregate(results).at(0).numbers->tokens_per_joule);
}

TEST(RunJson, NumbersThatNoRunHasAreRefused) {
  stepladder::Run run = make_run("00_fp32_baseline", 0, 40);
  run.config["accumulate"] = 1e308;
  EXPECT_TRUE(says(input_error([&] { run_from(to_json(run)); }), {"tokens of a step"}));
  run = make_run("00_fp32_baseline", 0, 40);
  run.summary->to_loss =
      ToLoss{.loss = 5.5, .reached = true, .steps = 0, .seconds = 6, .tokens = 1e6, .joules = {}};
  EXPECT_TRUE(says(input_error([&] { run_from(to_json(run)); }), {"to_loss"}));
}

TEST(Aggregate, OneRoundHasNoInterval) {
  const auto rows =
      aggregate(make_results({make_run("00_fp32_baseline", 0, 40), make_run("01_causal_mask", 0, 20)}));
  EXPECT_FALSE(rows[1].numbers->median_step_ms.interval);
  EXPECT_FALSE(rows[1].numbers->baseline->ratio.interval);
}

TEST(Aggregate, SkipsRungsThatTookNoPart) {
  const auto rows =
      aggregate(make_results({make_run("00_fp32_baseline", 0, 40), make_run("02_tf32", 0, 10)}));
  EXPECT_EQ(rows[1].numbers->previous->against, "00_fp32_baseline");
}

TEST(Aggregate, ClaimsNoSpeedupOverAFailedRung) {
  const auto rows = aggregate(make_results(
      {make_run("00_fp32_baseline", 0, 40),
       failed_run("01_causal_mask", 0, Status::crash, "killed by SIGSEGV"), make_run("02_tf32", 0, 10)}));
  EXPECT_FALSE(rows[1].numbers);
  EXPECT_EQ(rows[1].reason, "killed by SIGSEGV");
  EXPECT_FALSE(rows[2].numbers->previous);
  EXPECT_DOUBLE_EQ(rows[2].numbers->baseline->ratio.value, 4.0);
}

TEST(Aggregate, OneFailedRoundFailsTheRow) {
  const auto rows =
      aggregate(make_results({make_run("00_fp32_baseline", 0, 40), make_run("01_causal_mask", 0, 20),
                              failed_run("01_causal_mask", 1, Status::diverged, "step 3: .."),
                              make_run("00_fp32_baseline", 1, 40)}));
  EXPECT_EQ(rows[1].status, Status::diverged);
  EXPECT_FALSE(rows[1].numbers);
  EXPECT_FALSE(
      results_file_json(make_results({failed_run("01_causal_mask", 1, Status::diverged, "")}))["variants"][0]
          .contains("speedup_baseline"));
}

TEST(Aggregate, LeavesThrottledRoundsOutWhileThereAreOthers) {
  Results results = make_results({});
  for (int64_t round = 0; round < 3; ++round) {
    results.runs.push_back(make_run("00_fp32_baseline", round, 20));
    results.runs.push_back(make_run("01_causal_mask", round, round == 1 ? 40 : 10));
    results.runs.back().summary->throttled = round == 1;
  }
  const auto rows = aggregate(results);
  EXPECT_EQ(rows[1].rounds, 3);
  EXPECT_EQ(rows[1].disturbed_rounds, 1);
  EXPECT_FALSE(rows[1].disturbed());
  EXPECT_DOUBLE_EQ(rows[1].numbers->median_step_ms.value, 10);
  EXPECT_DOUBLE_EQ(rows[1].numbers->median_step_ms.interval->hi, 10);
  EXPECT_DOUBLE_EQ(rows[1].numbers->baseline->ratio.value, 2);
}

TEST(Aggregate, LeavesOutRoundsInWhichAnotherProcessUsedTheDevice) {
  Results results = make_results({make_run("00_fp32_baseline", 0, 20), make_run("00_fp32_baseline", 1, 90)});
  results.runs[1].summary->shared = true;
  const auto rows = aggregate(results);
  EXPECT_EQ(rows[0].disturbed_rounds, 1);
  EXPECT_EQ(rows[0].disturbance, "shared");
  EXPECT_DOUBLE_EQ(rows[0].numbers->median_step_ms.value, 20);
}

TEST(Aggregate, EnergyAndCyclesAreThoseOfTheRoundsIfAllKnowThem) {
  Results results = make_results({make_run("00_fp32_baseline", 0, 20), make_run("00_fp32_baseline", 1, 20),
                                  make_run("00_fp32_baseline", 2, 20)});
  for (stepladder::Run& run : results.runs) {
    run.summary->joules = 16.0 + static_cast<double>(run.round);
    run.summary->cycles = 3e7;
  }
  auto numbers = *aggregate(results)[0].numbers;
  EXPECT_DOUBLE_EQ(numbers.joules->value, 17.0);
  EXPECT_DOUBLE_EQ(numbers.tokens_per_joule->value, 256.0 / 17.0);
  EXPECT_DOUBLE_EQ(numbers.cycles->value, 3e7);
  results.runs[1].summary->joules.reset();
  numbers = *aggregate(results)[0].numbers;
  EXPECT_FALSE(numbers.joules || numbers.tokens_per_joule);
  EXPECT_TRUE(numbers.cycles);
}

TEST(Aggregate, ShowsAThrottledRowButClaimsNothingOnIt) {
  Results results = make_results(
      {make_run("00_fp32_baseline", 0, 20), make_run("01_causal_mask", 0, 10), make_run("02_tf32", 0, 5)});
  results.runs[1].summary->throttled = true;
  const auto rows = aggregate(results);
  EXPECT_EQ(rows[1].status, Status::ok);
  EXPECT_TRUE(rows[1].disturbed());
  EXPECT_DOUBLE_EQ(rows[1].numbers->median_step_ms.value, 10) << "never an empty result";
  EXPECT_FALSE(rows[1].numbers->previous);
  EXPECT_FALSE(rows[1].numbers->baseline);
  EXPECT_FALSE(rows[2].numbers->previous) << "nor on a comparison with it";
  EXPECT_DOUBLE_EQ(rows[2].numbers->baseline->ratio.value, 4);
  EXPECT_EQ(results_file_json(results)["variants"][1]["disturbed"], true);
}

TEST(Aggregate, KeepsWorkloadsApart) {
  const auto rows =
      aggregate(make_results({make_run("00_fp32_baseline", 0, 40), make_run("01_causal_mask", 0, 20),
                              make_run("00_fp32_baseline", 0, 90, 8), make_run("01_causal_mask", 0, 30, 8)}));
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_DOUBLE_EQ(rows[1].numbers->baseline->ratio.value, 2.0);
  EXPECT_EQ(rows[3].workload, "gpt2-tiny B=8 T=64");
  EXPECT_DOUBLE_EQ(rows[3].numbers->baseline->ratio.value, 3.0);
}

TEST(Aggregate, ComparesARungWithItsCounterparts) {
  stepladder::Run failed = failed_run("pytorch/02_tf32", 1, Status::oom, "40 GiB");
  failed.peer = "pytorch";
  const auto rows = aggregate(make_results(
      {make_run("01_causal_mask", 0, 40), peer_run("pytorch", "pytorch/01_causal_mask", 0, 60),
       make_run("02_tf32", 0, 10), peer_run("pytorch", "pytorch/02_tf32", 0, 20),
       peer_run("llmc", "llmc", 0, 30), peer_run("llmc", "llmc", 1, 33), failed, make_run("02_tf32", 1, 10),
       peer_run("pytorch", "pytorch/01_causal_mask", 1, 64), make_run("01_causal_mask", 1, 40)}));
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_EQ(rows[1].variant, "02_tf32") << "rungs first";
  EXPECT_EQ(rows[2].variant, "pytorch/01_causal_mask");
  EXPECT_EQ(rows[2].peer, "pytorch");
  EXPECT_FALSE(rows[2].numbers->previous);
  EXPECT_TRUE(rows[2].numbers->peers.empty());

  const auto& peers = rows[0].numbers->peers;
  ASSERT_EQ(peers.size(), 2U);
  EXPECT_EQ(peers[0].against, "pytorch/01_causal_mask");
  EXPECT_DOUBLE_EQ(peers[0].ratio.value, 1.55);  // the median of 1.5 and 1.6
  EXPECT_DOUBLE_EQ(peers[0].ratio.interval->lo, 1.5);
  EXPECT_EQ(peers[1].against, "llmc");
  ASSERT_EQ(rows[1].numbers->peers.size(), 1U) << "nothing is claimed over a peer that failed";
  EXPECT_EQ(rows[1].numbers->peers[0].against, "llmc");
  EXPECT_DOUBLE_EQ(rows[1].numbers->peers[0].ratio.value, 3.15);
}

// ---- ablations -------------------------------------------------------------------------------------------

/// A variant's run with steps of `ms` and a live peak of `live` bytes.
Run live_run(const std::string& variant, int64_t round, double ms, int64_t live, int64_t batch = 4) {
  Run run = make_run(variant, round, ms, batch);
  run.summary->memory.live_peak = live;
  return run;
}

Results make_ablation(const Json& rungs, const Json& kinds, std::vector<Run> runs) {
  Results results = make_results(std::move(runs));
  results.plan["ablate"] = {{"rungs", rungs}, {"kinds", kinds}};
  return results;
}

void expect_gain(const Gain& gain, const std::string& before, const std::string& after, double ratio,
                 int64_t saved) {
  EXPECT_EQ(gain.before, before);
  EXPECT_EQ(gain.after, after);
  EXPECT_TRUE(gain.ok()) << gain.status << ": " << gain.reason;
  EXPECT_DOUBLE_EQ(gain.ratio.value, ratio);
  EXPECT_EQ(gain.saved_bytes, saved);
}

TEST(AblatedRungs, KnownTimesGiveKnownGains) {
  std::vector<stepladder::Run> runs;
  for (int64_t round : {0, 1, 2}) {
    const double drift = 1.0 + 0.25 * static_cast<double>(round);  // cancels in every ratio
    for (const auto& [variant, ms, live] :
         {std::tuple("00_fp32_baseline", 100.0, 900), std::tuple("only/03_fused_adamw", 80.0, 880),
          std::tuple("02_tf32", 50.0, 700), std::tuple("03_fused_adamw", 40.0, 650),
          std::tuple("without/03_fused_adamw", 12.0, 340), std::tuple(tuned_rung().name.c_str(), 8.0, 300)})
      runs.push_back(live_run(variant, round, ms * drift, live));
  }
  const auto rows = ablated_rungs(make_ablation({"03_fused_adamw"}, {"without", "only"}, runs));
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].rung, "03_fused_adamw");
  expect_gain(rows[0].ladder.value(), "02_tf32", "03_fused_adamw", 1.25, 50);
  expect_gain(rows[0].without.value(), "without/03_fused_adamw", tuned_rung().name, 1.5, 40);
  expect_gain(rows[0].only.value(), "00_fp32_baseline", "only/03_fused_adamw", 1.25, 20);
  ASSERT_TRUE(rows[0].ladder->ratio.interval);
  EXPECT_DOUBLE_EQ(rows[0].ladder->ratio.interval->lo, 1.25);
  EXPECT_DOUBLE_EQ(rows[0].ladder->ratio.interval->hi, 1.25);
}

TEST(AblatedRungs, AreHeldAgainstTheTunedRungOfTheirTime) {
  const auto rows = ablated_rungs(make_ablation(
      {"03_fused_adamw"}, {"without"},
      {live_run("02_tf32", 0, 50, 700), live_run("03_fused_adamw", 0, 40, 650),
       live_run("without/03_fused_adamw", 0, 12, 340), live_run("12_gemm_epilogues", 0, 8, 300)}));
  expect_gain(rows.at(0).without.value(), "without/03_fused_adamw", "12_gemm_epilogues", 1.5, 40);
}

TEST(AblatedRungs, TheIntervalHoldsTheSpreadOverRounds) {
  std::vector<stepladder::Run> runs;
  for (int64_t round : {0, 1}) {
    runs.push_back(make_run("02_tf32", round, 50));
    runs.push_back(make_run("03_fused_adamw", round, round == 0 ? 40 : 50));
  }
  const Gain gain = ablated_rungs(make_ablation({"03_fused_adamw"}, {"only"}, runs)).at(0).ladder.value();
  EXPECT_DOUBLE_EQ(gain.ratio.value, 1.125);
  EXPECT_DOUBLE_EQ(gain.ratio.interval.value().lo, 1.0);
  EXPECT_DOUBLE_EQ(gain.ratio.interval.value().hi, 1.25);
  runs.resize(2);
  EXPECT_FALSE(ablated_rungs(make_ablation({"03_fused_adamw"}, {"only"}, runs)).at(0).ladder->ratio.interval);
}

TEST(AblatedRungs, WhatIsNotOkHasNoNumber) {
  const auto results = make_ablation(
      {"03_fused_adamw"}, {"without", "only"},
      {make_run("00_fp32_baseline", 0, 100), make_run("02_tf32", 0, 50), make_run("03_fused_adamw", 1, 40),
       failed_run("without/03_fused_adamw", 0, Status::unsupported, "needs sm_80"),
       make_run("13_cuda_graphs", 0, 8)});
  const auto row = ablated_rungs(results).at(0);
  EXPECT_EQ(row.without->status, "unsupported");
  EXPECT_TRUE(says(row.without->reason, {"without/03_fused_adamw", "needs sm_80"}));
  EXPECT_EQ(row.only->status, "missing");
  EXPECT_TRUE(says(row.only->reason, {"only/03_fused_adamw"}));
  EXPECT_EQ(row.ladder->status, "missing");
  EXPECT_TRUE(says(row.ladder->reason, {"02_tf32", "03_fused_adamw"}));
  const Json json = results_file_json(results)["ablations"][0];
  for (const char* gain : {"ladder", "without", "only"})
    for (const char* number : {"ratio", "lo", "hi", "saved_bytes"})
      EXPECT_FALSE(json[gain].contains(number)) << gain;
}

TEST(AblatedRungs, ALossThatNoRoundReachedLeavesNoGainOfStepTimes) {
  for (const bool reached : {true, false}) {
    std::vector<stepladder::Run> runs = {make_run("02_tf32", 0, 50), make_run("03_fused_adamw", 0, 40)};
    for (stepladder::Run& run : runs)
      run.summary->to_loss = {
          .loss = 3, .reached = reached, .steps = 100, .seconds = 60, .tokens = 1e6, .joules = {}};
    Results results = make_ablation({"03_fused_adamw"}, {"only"}, runs);
    results.plan["until_loss"] = 3;
    const Gain gain = ablated_rungs(results).at(0).ladder.value();
    EXPECT_EQ(gain.status, reached ? "ok" : "not reached");
    EXPECT_EQ(gain.to_loss.has_value(), reached);
    results.runs.back().summary->to_loss.reset();  // a file may lack what its plan asked for
    EXPECT_EQ(ablated_rungs(results).at(0).ladder->status, "not reached");
  }
}

TEST(AblatedRungs, WhatChangesNothingIsSaidAndHasNoNumber) {
  Results results = make_ablation({"03_fused_adamw"}, {"without"},
                                  {make_run("02_tf32", 0, 50), make_run("03_fused_adamw", 0, 40)});
  results.plan["ablate"]["unchanged"] = {{"without/03_fused_adamw", "changes nothing in 13_cuda_graphs"}};
  const auto row = ablated_rungs(results).at(0);
  EXPECT_TRUE(row.ladder->ok());
  EXPECT_EQ(row.without->status, "unchanged");
  EXPECT_TRUE(says(row.without->reason, {"without/03_fused_adamw", "13_cuda_graphs"}));
}

TEST(AblatedRungs, AFailedReferenceOrRoundLeavesNoNumber) {
  const auto row = ablated_rungs(
      make_ablation({"03_fused_adamw"}, {"without"},
                    {make_run("without/03_fused_adamw", 0, 9), make_run(tuned_rung().name, 0, 8),
                     make_run("without/03_fused_adamw", 1, 9),
                     failed_run(tuned_rung().name, 1, Status::crash, "SIGSEGV")}));
  EXPECT_EQ(row.at(0).without->status, "crash");
  EXPECT_TRUE(says(row.at(0).without->reason, {tuned_rung().name, "SIGSEGV"}));
}

TEST(AblatedRungs, ALargeBatchIsComparedByTimePerToken) {
  // Rung 14 trains 16 sequences in the time in which 13 trains 8, the larger of the usual batches: a gain
  // of 2.
  std::vector<stepladder::Run> runs = {
      live_run("00_fp32_baseline", 0, 100, 900, 4), live_run("00_fp32_baseline", 0, 200, 1800, 8),
      live_run("14_large_batch", 0, 30, 1200, 16), live_run("only/14_large_batch", 0, 320, 3600, 16)};
  for (const std::string& rung : std::set<std::string>{"13_cuda_graphs", tuned_rung().name})
    runs.insert(runs.end(), {live_run(rung, 0, 20, 300, 4), live_run(rung, 0, 30, 600, 8)});
  const auto rows =
      ablated_rungs(make_ablation({"13_cuda_graphs", "14_large_batch"}, {"without", "only"}, runs));
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].config["B"], 4);
  EXPECT_EQ(rows[1].config["B"], 8);
  EXPECT_EQ(rows[2].rung, "14_large_batch");
  EXPECT_EQ(rows[2].config["B"], 8);
  expect_gain(rows[2].ladder.value(), "13_cuda_graphs", "14_large_batch", 2.0, -600);
  expect_gain(rows[2].without.value(), tuned_rung().name, "14_large_batch", 2.0, -600);
  expect_gain(rows[2].only.value(), "00_fp32_baseline", "only/14_large_batch", 1.25, -1800);
}

TEST(AblatedRungs, OnlyWhatWasAskedForIsThere) {
  const std::vector<stepladder::Run> runs = {make_run("00_fp32_baseline", 0, 100),
                                             make_run("13_cuda_graphs", 0, 8)};
  EXPECT_FALSE(results_file_json(make_results(runs)).contains("ablations"));
  const Json json =
      results_file_json(make_ablation({"03_fused_adamw", "09_flash_attention"}, {"only"}, runs));
  ASSERT_EQ(json["ablations"].size(), 2U);
  EXPECT_FALSE(json["ablations"][0].contains("without"));
  EXPECT_TRUE(json["ablations"][0].contains("only"));
  // Plans of hostile files may have any type.
  for (const Json& ablate : {Json(7), Json("x"), Json{{"rungs", 7}},
                             Json{{"rungs", {1, "99"}}, {"kinds", {}}, {"unchanged", {7}}}}) {
    Results results = make_results(runs);
    results.plan["ablate"] = ablate;
    EXPECT_TRUE(ablated_rungs(results).empty()) << ablate;
  }
}

TEST(AblatedRungs, AreWrittenWithTheirIntervals) {
  std::vector<stepladder::Run> runs;
  for (int64_t round : {0, 1}) {
    runs.push_back(live_run("02_tf32", round, 50, 700));
    runs.push_back(live_run("03_fused_adamw", round, 40, 650));
  }
  EXPECT_EQ(results_file_json(make_ablation({"03_fused_adamw"}, {"only"}, runs))["ablations"][0]["ladder"],
            Json({{"before", "02_tf32"},
                  {"after", "03_fused_adamw"},
                  {"status", "ok"},
                  {"reason", ""},
                  {"ratio", 1.25},
                  {"lo", 1.25},
                  {"hi", 1.25},
                  {"rounds", 2},
                  {"saved_bytes", 50}}));
}

// ---- hostile files ---------------------------------------------------------------------------------------

TEST(LoadResults, RefusesWhatIsNoResultsFile) {
  const TempFolder folder;
  stepladder::Run run = make_run("00_fp32_baseline", 0, 20);
  for (stepladder::Step& step : run.steps) step.device.sm_mhz = step.step < 3 ? 1980 : 1755;
  const std::string good = file_text(make_results({run}));
  const auto with = [&](const std::string& was, const std::string& now) {
    std::string text = good;
    text.replace(text.find(was), was.size(), now);
    return text;
  };
  const std::pair<const char*, std::string> cases[] = {
      {"empty", ""},
      {"gzip", "\x1f\x8b\x08 binary"},
      {"results", "[1,2]"},
      {"schema 4", with("\"schema\":3", "\"schema\":4")},
      {"schema 0", with("\"schema\":3", "\"schema\":0")},
      {"schema", with("\"schema\":3", "\"schema\":\"one\"")},
      {"nested", std::string(100'000, '[')},
      {"nested",
       with("\"context\":{", "\"context\":{\"x\":" + std::string(99, '[') + std::string(99, ']') + ",")},
      {"context", with("\"context\":{", "\"context\":7,\"x\":{")},
      {"plan", with("\"plan\":{", "\"plan\":[],\"x\":{")},
      {"line 2: ", with("\"step_ms\":[21.0", "\"step_ms\":[1e999")},
      {"line 2: run.steps.step_ms", with("\"step_ms\":[21.0", "\"step_ms\":[\"21\"")},
      {"step_ms", with("\"step_ms\":[21.0", "\"step_ms\":[-1")},
      {"step_ms", with("\"step_ms\":[21.0,", "\"step_ms\":[")},
      {"loss", with("\"loss\":[4.5,", "\"loss\":[")},
      {"loss", with("\"loss\":", "\"x\":")},
      {"steps.x", with("\"loss\":", "\"x\":7,\"loss\":")},
      {"steps.sm_mhz", with("\"times\":[3,2]", "\"times\":[3,1]")},
      {"steps.sm_mhz", with("\"times\":[3,2]", "\"times\":[3,3]")},
      {"steps.sm_mhz", with("\"times\":[3,2]", "\"times\":[5]")},
      {"steps.sm_mhz", with("\"times\":[3,2]", "\"times\":[5,0]")},
      {"steps.sm_mhz", with("\"times\":[3,2]", "\"times\":[6,-1]")},
      {"steps.sm_mhz", with("\"times\":[3,2]", "\"times\":[3,18446744073709551615]")},
      {"steps.sm_mhz", with("\"times\":[3,2]", "\"times\":[3,\"2\"]")},
      {"steps.sm_mhz", with("\"times\":[3,2]", "\"x\":[3,2]")},
      {"steps.sm_mhz", with("\"values\":[1980,", "\"values\":[\"fast\",")},
      {"64-bit", with("\"round\":0", "\"round\":99999999999999999999")},
      {"64-bit", with("\"live_peak\":100", "\"live_peak\":18446744073709551615")},
      {"status", with("\"status\":\"ok\"", "\"status\":\"fine\"")},
      {"summary", with("\"summary\":{", "\"summary\":null,\"x\":{")},
      {"config", with("\"B\":4", "\"B\":0")},
      {"config", with("\"model\":\"gpt2-tiny\"", "\"model\":7")},
      {"config", with("\"model\":\"gpt2-tiny\"", "\"model\":\"gpt2-tiny\",\"x\":[[[1]]]")},
      {"steps", with("\"steps\":{", "\"steps\":7,\"x\":{")},
      {"\"round\"", with("\"round\":0", "\"round\":0,\"round\":0")},
      {"line 3: another run", file_text(make_results({run, run}))},
      {"line 2: \"walk\"", with("\"line\":\"run\"", "\"line\":\"walk\"")},
      {"line 2: session 1123", with("\"run\",\"session\":\"0123", "\"run\",\"session\":\"1123")},
      {"session 0123456789abcdef begins a second time", good + good},
      {"line 2: ", good.substr(0, good.find('\n') + 1) + "garbage\n" + good.substr(good.find('\n') + 1)},
      {"a verdict", R"({"schema": 2, "kind": "comparison", "rows": []})"},
      {"stepladder convert", R"({"schema": 2, "complete": true, "context": {}, "plan": {}, "runs": []})"},
      {"stepladder convert", R"({"schema": 2, "kind": "campaign", "parts": []})"},
      {"stepladder convert", R"({"schema": 2, "context": {}, "profile": {}})"},
  };
  for (const auto& [wanted, text] : cases) {
    const std::string path = folder / "results.jsonl";
    write_file(path, text);
    const std::string what = input_error([&] { load_results(path); });
    EXPECT_TRUE(says(what, {wanted})) << " for " << text.substr(0, 80);
    EXPECT_TRUE(says(what, {path}));
  }
  input_error([&] { load_results(folder / "nowhere.jsonl"); });
  input_error([&] { load_results(folder / ""); });
}

// ---- lines and parts -------------------------------------------------------------------------------------

/// Results measured on the device with UUID `card`.
Results measured_on(const std::string& card, std::vector<stepladder::Run> runs) {
  Results results = make_results(std::move(runs));
  results.context["device"] = {{"backend", "cuda"}, {"name", "a device"}, {"uuid", card}};
  for (stepladder::Run& run : results.runs) run.device = card;
  results.complete = true;
  return results;
}

TEST(Parts, FilesAreJoinedByPuttingOneAfterTheOther) {
  const Results one =
      measured_on("GPU-1", {make_run("00_fp32_baseline", 0, 20), make_run("00_fp32_baseline", 1, 21)});
  const Results two = measured_on("GPU-2", {make_run("00_fp32_baseline", 0, 22)});
  const Results both = results_in(file_text(one) + file_text(two, "", "fedcba9876543210"));
  ASSERT_EQ(both.runs.size(), 3U);
  EXPECT_EQ(both.runs[2].round, 2) << "another card's rounds follow";
  EXPECT_EQ(both.cards(), (std::set<std::string>{"GPU-1", "GPU-2"}));
  EXPECT_TRUE(both.complete);
  const auto parts = parts_from(file_text(one, "a: the first") + file_text(two, "b", "fedcba9876543210"));
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].name + "|" + parts[0].about + "|" + parts[1].name, "a|the first|b");
}

TEST(Parts, LinesWithSpacesAreAResultsFileToo) {
  std::string text = file_text(measured_on("GPU-1", {make_run("00_fp32_baseline", 0, 20)}));
  for (size_t at = 0; (at = text.find("{\"line\":", at)) != text.npos; ++at) text.insert(at + 8, " ");
  EXPECT_TRUE(is_results(text));
  EXPECT_EQ(results_in(text).runs.size(), 1U);
  EXPECT_FALSE(is_results("{\"schema\": 3}\n"));
  EXPECT_FALSE(is_results("{\n"));
}

TEST(Parts, PositionAssignsNothing) {
  const std::string text = file_text(
      measured_on("GPU-1", {make_run("00_fp32_baseline", 0, 20), make_run("01_causal_mask", 0, 9)}));
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 4U);
  std::string begin = lines[0];  // the session's line, to be put after its runs
  std::ranges::reverse(lines);
  std::swap(lines[0], lines[3]);
  const Results results = results_in(lines[1] + "\n" + lines[0] + "\n" + lines[2] + "\n" + lines[3] + "\n");
  EXPECT_EQ(results.runs.size(), 2U);
  EXPECT_TRUE(results.complete);
  const Results waiting = results_in(lines[1] + "\n" + lines[2] + "\n" + lines[3] + "\n" + begin + "\n");
  EXPECT_EQ(waiting.runs.size(), 2U);
}

TEST(Parts, SessionsOfOneNameThatMeasureOtherThingsAreRefusedByName) {
  const Results one = measured_on("GPU-1", {make_run("00_fp32_baseline", 0, 20)});
  for (const auto& [field, change] : std::vector<std::pair<std::string, std::function<void(Results&)>>>{
           {"plan.steps", [](Results& r) { r.plan["steps"] = 6; }},
           {"build", [](Results& r) { r.context["build"] = "-O0"; }},
           {"device.name", [](Results& r) { r.context["device"]["name"] = "another"; }}}) {
    Results two = one;
    change(two);
    EXPECT_TRUE(throws([&] { parts_from(file_text(one) + file_text(two, "", "fedcba9876543210")); },
                       kExitNotComparable, {field, "keep them in two files"}));
  }
}

// ---- the file --------------------------------------------------------------------------------------------

class ResultsFileTest : public testing::Test {
 protected:
  std::unique_ptr<ResultsFile> open(Existing existing,
                                    Json plan = {{"rungs", {"00_fp32_baseline"}}, {"steps", 5}},
                                    const std::string& part = "") {
    const Json context = {
        {"time", std::to_string(++time_)},
        {"build", build_},
        {"cpu", cpu_},
        {"cores", cores_},
        {"device",
         {{"backend", backend_}, {"name", device_}, {"uuid", card_}, {"total_memory", total_memory_}}}};
    return std::make_unique<ResultsFile>(path_, context, plan, existing, part);
  }
  /// Opens the file, adds these runs and leaves it without finish().
  void add(Existing existing, const std::vector<stepladder::Run>& runs) {
    const auto file = open(existing);
    for (const stepladder::Run& run : runs) file->add(run);
  }
  std::unique_ptr<ResultsFile> open_part(const std::string& part, Existing existing) {
    return open(existing, {{"rungs", {"00_fp32_baseline"}}, {"steps", 5}}, part);
  }

  TempFolder folder_;
  const std::string path_ = folder_ / "sub/results.jsonl";
  std::string build_ = "-O3", cpu_ = "a cpu", backend_ = "cuda", device_ = "a device", card_ = "GPU-1";
  int cores_ = 2, time_ = 0;
  int64_t total_memory_ = int64_t{8} << 30;
};

TEST_F(ResultsFileTest, ParsesFromTheFirstMomentAndKeepsEveryFinishedRun) {
  auto file = open(Existing::refuse);
  EXPECT_TRUE(load_results(path_).runs.empty());
  file->add(make_run("00_fp32_baseline", 0, 20));
  file->add(make_run("01_causal_mask", 0, 20));
  EXPECT_EQ(load_results(path_).runs.size(), 2U);
  EXPECT_FALSE(load_results(path_).complete);
  file->finish({{"reason", "rounds"}}, [](const Results&) { return kExitFailed; });
  const Part part = load_parts(path_).at(0);
  EXPECT_EQ(part.results.runs.size(), 2U);
  EXPECT_TRUE(part.results.complete);
  EXPECT_EQ(part.results.stopped["reason"], "rounds");
  EXPECT_EQ(part.exit_code, kExitFailed);
  EXPECT_GT(part.wall_s, 0.0);
}

TEST_F(ResultsFileTest, WhoMayReadItStaysAsItWas) {
  const auto mode = [](const std::string& path) { return std::filesystem::status(path).permissions(); };
  constexpr auto kOwner = std::filesystem::perms::owner_read | std::filesystem::perms::owner_write;
  auto file = open(Existing::refuse);
  file->finish();
  file.reset();
  std::filesystem::permissions(path_, kOwner);
  file = open(Existing::overwrite);
  file->add(make_run("00_fp32_baseline", 0, 20));
  EXPECT_EQ(mode(path_), kOwner);
  file->finish();
  EXPECT_EQ(mode(path_), kOwner);
}

TEST_F(ResultsFileTest, ATornLastLineCostsOnlyThatRunAndIsCutBeforeMoreIsWritten) {
  auto file = open(Existing::refuse);
  file->add(make_run("00_fp32_baseline", 0, 20));
  file->add(make_run("01_causal_mask", 0, 20));
  file.reset();
  const std::string whole = read_file(path_);
  const size_t last = whole.rfind('\n', whole.size() - 2) + 1;
  // The file is cut anywhere in its last line, the line feed included.
  for (size_t left : {whole.size() - 1, whole.size() - 50, last + 1}) {
    write_file(path_, whole.substr(0, left));
    EXPECT_EQ(load_results(path_).runs.size(), 1U) << left;
    file = open(Existing::resume);
    file->add(make_run("01_causal_mask", 0, 20));
    file->finish();
    file.reset();
    EXPECT_EQ(load_results(path_).runs.size(), 2U);
  }
  write_file(path_, whole.substr(0, 30));  // cuts the session's own line
  EXPECT_TRUE(load_parts(path_).empty());
  add(Existing::resume, {make_run("00_fp32_baseline", 0, 20)});
  EXPECT_EQ(load_results(path_).runs.size(), 1U);
}

TEST_F(ResultsFileTest, ADamagedLineIsNamed) {
  auto file = open(Existing::refuse);
  for (const char* variant : {"00_fp32_baseline", "01_causal_mask", "02_tf32"})
    file->add(make_run(variant, 0, 20));
  file.reset();
  const std::string whole = read_file(path_);
  const size_t second =
      whole.find("\n{\"line\":\"run\"", whole.find("\"00_fp32_baseline\",\"source_hash\"")) + 1;
  for (const char* damaged : {"garbage", "{\"line\":\"run\"}", "[]", "\xff\xfe"}) {
    write_file(path_, whole.substr(0, second) + damaged + whole.substr(whole.find('\n', second)));
    EXPECT_TRUE(says(input_error([&] { load_results(path_); }), {path_, "line 3"})) << damaged;
    EXPECT_TRUE(says(input_error([&] { open(Existing::resume); }), {path_, "line 3"})) << damaged;
  }
}

TEST_F(ResultsFileTest, ResumingKeepsRunsOnceAndTheFirstContext) {
  auto file = open(Existing::refuse);
  file->add(make_run("00_fp32_baseline", 0, 20));
  file.reset();
  for (int i = 0; i < 3; ++i) file = nullptr, file = open(Existing::resume);
  EXPECT_EQ(file->results().runs.size(), 1U);
  EXPECT_EQ(file->results().context["time"], "1");
  file->add(make_run("01_causal_mask", 0, 20));
  EXPECT_EQ(load_results(path_).runs.size(), 2U);
  EXPECT_EQ(load_results(path_).context["time"], "1");
}

TEST_F(ResultsFileTest, WhatIsOverwrittenStaysUntilARunIsFinished) {
  open(Existing::refuse)->add(make_run("00_fp32_baseline", 0, 20));
  auto file = open(Existing::overwrite, {{"steps", 9}});
  file->interrupt(130);
  EXPECT_FALSE(file->begun());
  EXPECT_EQ(load_results(path_).plan["steps"], 5);
  file->add(make_run("01_causal_mask", 0, 20));
  EXPECT_TRUE(says(input_error([&] { open(Existing::resume); }), {"another run"}))
      << "the new file is locked too";
  file->add(make_run("02_tf32", 0, 20));
  file->finish();
  const Results results = load_results(path_);
  EXPECT_EQ(results.plan["steps"], 9);
  ASSERT_EQ(results.runs.size(), 2U);
  EXPECT_EQ(results.runs[0].variant, "01_causal_mask");
}

TEST_F(ResultsFileTest, PartsAreStartedResumedAndOverwrittenEachByItself) {
  open_part("a: first", Existing::refuse)->add(make_run("00_fp32_baseline", 0, 20));
  open_part("b", Existing::refuse)->add(make_run("00_fp32_baseline", 0, 30));
  EXPECT_TRUE(says(input_error([&] { open_part("b", Existing::refuse); }), {path_ + ":b", "--resume"}));
  EXPECT_TRUE(says(input_error([&] { open(Existing::resume); }), {"--part"}));
  open_part("a", Existing::resume)->add(make_run("01_causal_mask", 0, 20));
  auto file = open_part("a", Existing::overwrite);
  file->add(make_run("02_tf32", 0, 20));
  file->skip("needs 2 devices");
  file.reset();
  EXPECT_EQ(load_results(path_ + ":b").runs.at(0).summary->median_step_ms, 30);
  const Results a = load_results(path_ + ":a");
  ASSERT_EQ(a.runs.size(), 1U);
  EXPECT_EQ(a.runs[0].variant, "02_tf32");
  EXPECT_TRUE(says(input_error([&] { load_results(path_); }), {path_, ":b"}));
  EXPECT_TRUE(says(input_error([&] { load_results(path_ + ":c"); }), {path_, "\"c\"", ":b"}));
}

TEST_F(ResultsFileTest, WhoNamesAPartOfAFileWithoutPartsIsToldToNameTheFile) {
  open(Existing::refuse)->add(make_run("01_causal_mask", 0, 20));
  EXPECT_TRUE(says(input_error([&] { load_results(path_ + ":c"); }), {"\"c\"", "give " + path_}));
}

TEST(Parts, LinesOfOtherPartsStayWhereverTheyStand) {
  const std::string y = R"({"line":"session","schema":3,"session":"b","resumes":"a","context":{},"plan":{}})"
                        "\n{\"line\":\"end\",\"session\":\"b\"}\n"
                        R"({"line":"session","schema":3,"session":"a","part":"y","context":{},"plan":{}})"
                        "\n",
                    x = R"({"line":"session","schema":3,"session":"c","part":"x","context":{},"plan":{}})"
                        "\n";
  EXPECT_EQ(lines_without(y + x, "x"), y);
  EXPECT_EQ(lines_without(y + x, "y"), x);
}

TEST(Parts, TwoProfilesOfOneNameAreRefused) {
  std::string text;
  for (const char* id : {"a", "b"})
    text += cat(R"({"line":"session","schema":3,"session":")", id, R"(","part":"p","context":{},"plan":{}})",
                "\n", R"({"line":"profile","session":")", id, "\"}\n");
  EXPECT_TRUE(says(input_error([&] { parts_from(text); }), {"two profiles", "p", "two files"}));
}

TEST(Parts, ASessionThatResumesWithoutADeviceIsRead) {
  const std::string text = file_text(make_results({make_run("00_fp32_baseline", 0, 20)}));
  const std::string id = parse_json(text.substr(0, text.find('\n')))["session"];
  Json run = to_json(make_run("00_fp32_baseline", 1, 20));
  run["line"] = "run", run["session"] = "b";
  const Json session = {{"line", "session"},
                        {"schema", 3},
                        {"session", "b"},
                        {"resumes", id},
                        {"context", {{"device", nullptr}}},
                        {"plan", Json::object()}};
  EXPECT_EQ(parts_from(text + dump(session) + "\n" + dump(run) + "\n").at(0).results.runs.size(), 2U);
}

TEST_F(ResultsFileTest, ASkippedPartIsBegunOnceItCanBe) {
  open_part("a", Existing::resume)->skip("needs 2 devices");
  EXPECT_EQ(load_parts(path_).at(0).skipped, "needs 2 devices");
  open(Existing::resume, {{"steps", 7}}, "a")->add(make_run("00_fp32_baseline", 0, 20));
  const std::vector<Part> parts = load_parts(path_);
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].skipped, "");
  EXPECT_EQ(parts[0].results.runs.size(), 1U);
}

TEST_F(ResultsFileTest, NothingIsAddedToWhatCatJoinedOrToAGzipFile) {
  open(Existing::refuse)->add(make_run("00_fp32_baseline", 0, 20));
  const std::string first = read_file(path_);
  std::filesystem::remove(path_);
  open(Existing::refuse)->add(make_run("00_fp32_baseline", 0, 20));
  const std::string both = first + read_file(path_);
  for (const std::string& text : {both, gzipped(first)}) {
    write_file(path_, text);
    EXPECT_TRUE(says(input_error([&] { open(Existing::resume); }),
                     {path_, "--out", text == both ? "`cat`" : "gzip"}));
    EXPECT_EQ(read_file(path_), text);
  }
}

TEST_F(ResultsFileTest, APartIsNotNamedInTheNameOfTheFile) {
  open_part("a", Existing::refuse)->add(make_run("00_fp32_baseline", 0, 20));
  EXPECT_TRUE(
      says(input_error([&] { ResultsFile(path_ + ":b", {}, {}, Existing::refuse, ""); }), {"--part"}));
}

TEST_F(ResultsFileTest, ResumesOnlyTheSamePlanOnTheSameMachine) {
  open(Existing::refuse).reset();
  const auto refused = [&](const Json& plan, const std::vector<std::string>& parts) {
    return throws([&] { open(Existing::resume, plan); }, kExitNotComparable, parts);
  };
  const Json same = {{"rungs", {"00_fp32_baseline"}}, {"steps", 5}};
  EXPECT_TRUE(refused({{"rungs", {"00_fp32_baseline"}}, {"steps", 6}}, {"plan.steps", "5", "6"}));
  EXPECT_TRUE(refused({{"rungs", {"00_fp32_baseline"}}, {"steps", 5}, {"lr", 1}}, {"plan.lr"}));
  EXPECT_TRUE(refused({{"rungs", {"00_fp32_baseline"}}}, {"plan.steps"}));
  EXPECT_TRUE(refused({{"rungs", {"00_fp32_baseline"}}, {"steps", 5}, {"data", "\xff"}}, {"plan.data"}));
  for (auto* field : {&cpu_, &build_}) {
    const std::string was = std::exchange(*field, "another");
    EXPECT_TRUE(refused(same, {was, "another", "--out names another file"}));
    *field = was;
  }
}

TEST_F(ResultsFileTest, ResumesWithOtherCoresOnAGpuAloneAndWithLessMemoryOnTheCpuAlone) {
  const auto resumes = [this] {
    const auto go_on = [this] { open(Existing::resume); };
    return !throws(go_on, kExitNotComparable) && (go_on(), true);
  };
  for (const char* backend : {"cuda", "cpu"}) {
    backend_ = backend;
    open(Existing::overwrite)->finish();
    cores_ = 3;
    EXPECT_EQ(resumes(), backend_ == "cuda");
    cores_ = 2, total_memory_ /= 2;
    EXPECT_EQ(resumes(), backend_ == "cpu");
    total_memory_ *= 2;
  }
}

TEST_F(ResultsFileTest, ResumesOnAnotherOfTheMachinesDevices) {
  const auto on = [](int device) { return Json{{"rungs", {"00_fp32_baseline"}}, {"device", device}}; };
  open(Existing::overwrite, on(1)).reset();
  EXPECT_NO_THROW(open(Existing::resume, on(0)));
}

TEST_F(ResultsFileTest, ResumesOnAnotherCardOfAKindAndForgetsWhatIsToBeMeasuredAgain) {
  add(Existing::refuse, {make_run("00_fp32_baseline", 0, 20), make_run("00_fp32_baseline", 1, 20)});
  card_ = "GPU-2";
  auto file = open(Existing::resume);
  EXPECT_EQ(file->results().device_of(file->results().runs[0]), "GPU-1");
  file->restart_round(1);
  stepladder::Run run = make_run("00_fp32_baseline", 1, 21);
  run.device = card_;
  file->add(run);
  for (bool finished : {false, true}) {
    if (finished) file->finish();
    const Results results = load_results(path_);
    ASSERT_EQ(results.runs.size(), 2U);
    EXPECT_EQ(results.device_of(results.runs[0]), "GPU-1");
    EXPECT_EQ(results.device_of(results.runs[1]), "GPU-2");
    EXPECT_EQ(results.runs[1].summary->median_step_ms, 21);
  }
  file.reset();
  device_ = "another device";
  EXPECT_TRUE(throws([this] { open(Existing::resume); }, kExitNotComparable));
}

TEST_F(ResultsFileTest, TellsWhichCallsWentOnWithItAndMeasuredSomething) {
  auto file = open(Existing::refuse);
  file->add(make_run("00_fp32_baseline", 0, 20));
  const auto resumed = [&] { return load_results(path_).context.value("resumed", Json()); };
  file = nullptr;
  EXPECT_EQ(resumed(), Json());
  for (int nothing_measured = 0; nothing_measured < 2; ++nothing_measured)
    file = nullptr, file = open(Existing::resume);
  card_ = "GPU-2";
  file = nullptr;
  file = open(Existing::resume);
  file->add(make_run("01_causal_mask", 0, 20));
  file = nullptr;
  ASSERT_EQ(resumed().size(), 1U) << resumed();
  EXPECT_EQ(resumed()[0]["device"], "GPU-2");
  EXPECT_EQ(resumed()[0]["runs"], 1);
  EXPECT_TRUE(resumed()[0].contains("time") && resumed()[0].contains("busy_cores"));
  file = open(Existing::resume);
  file->add(make_run("01_causal_mask", 0, 20));
  file = nullptr;
  EXPECT_EQ(resumed().size(), 2U) << "it measured a run again";
  file = open(Existing::retry);
  file->finish();
  EXPECT_EQ(resumed().size(), 2U) << "the last measured nothing";
}

TEST(Results, CountTheTokensOfMicroBatchesToo) {
  const Json once = {{"model", "gpt2"}, {"B", 2}, {"T", 32}, {"world_size", 3}}, twice = [&] {
    Json config = once;
    config["accumulate"] = 2;
    return config;
  }();
  EXPECT_EQ(stepladder::tokens_of(once), 192);
  EXPECT_EQ(stepladder::tokens_of(twice), 384);
  EXPECT_FALSE(stepladder::same_task(once, twice));
}

TEST_F(ResultsFileTest, WhoReadsWhileItIsWrittenSeesWholeRunsAndEverMore) {
  auto file = open(Existing::refuse);
  std::thread writing([&] {
    for (int64_t round = 0; round < 60; ++round) file->add(make_run("00_fp32_baseline", round, 20));
    file->finish();
  });
  size_t seen = 0;
  for (bool complete = false; !complete;) {
    const Results results = load_results(path_);
    complete = results.complete;
    EXPECT_GE(results.runs.size(), seen);
    seen = results.runs.size();
  }
  writing.join();
  EXPECT_EQ(seen, 60U);
}

TEST_F(ResultsFileTest, AFileThatIsMovedRemovedOrReplacedMeanwhileIsNamedAndKeepsItsRuns) {
  namespace fs = std::filesystem;
  const auto meanwhile = [&](const std::function<void()>& meddle) {
    fs::remove(path_);
    auto file = open(Existing::refuse);
    file->add(make_run("00_fp32_baseline", 0, 20));
    meddle();
    EXPECT_TRUE(throws([&] { file->add(make_run("00_fp32_baseline", 1, 20)); }, kExitFailed, {path_}));
  };
  const std::string elsewhere = folder_ / "elsewhere.jsonl";
  meanwhile([&] { fs::rename(path_, elsewhere); });
  EXPECT_EQ(load_results(elsewhere).runs.size(), 2U);
  EXPECT_FALSE(fs::exists(path_));
  meanwhile([&] { fs::remove(path_); });
  EXPECT_EQ(load_results(path_).runs.size(), 2U);
  meanwhile([&] { fs::remove_all(fs::path(path_).parent_path()); });
  EXPECT_EQ(load_results(path_).runs.size(), 2U);
  meanwhile([&] {
    write_file(elsewhere, "another");
    fs::rename(elsewhere, path_);
  });
  EXPECT_EQ(read_file(path_), "another");
  size_t rescued = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(path_).parent_path()))
    if (entry.path() != path_) rescued += load_results(entry.path()).runs.size();
  EXPECT_EQ(rescued, 2U);
}

TEST_F(ResultsFileTest, WhatIsOverwrittenTakesNoOthersPlace) {
  open(Existing::refuse)->add(make_run("00_fp32_baseline", 0, 20));
  auto file = open(Existing::overwrite);
  std::filesystem::remove(path_);
  auto other = open(Existing::refuse);
  other->add(make_run("01_causal_mask", 0, 20));
  EXPECT_THROW(file->add(make_run("00_fp32_baseline", 0, 21)), Error);
  other->add(make_run("01_causal_mask", 1, 20));
  EXPECT_EQ(load_results(path_).runs.size(), 2U);
}

TEST_F(ResultsFileTest, WhatFailedIsThereUntilItWasRunAgain) {
  auto file = open(Existing::refuse);
  file->add(make_run("00_fp32_baseline", 0, 20));
  file->add(failed_run("00_fp32_baseline", 1, Status::crash, "x"));
  file->finish();
  file.reset();
  add(Existing::retry, {make_run("01_causal_mask", 0, 20)});
  EXPECT_EQ(load_results(path_).runs.size(), 3U);
  add(Existing::retry, {make_run("00_fp32_baseline", 1, 21)});
  const Results results = load_results(path_);
  EXPECT_EQ(results.runs.size(), 3U);
  for (const stepladder::Run& run : results.runs) EXPECT_EQ(run.status, Status::ok) << run.variant;
}

// Another run's open file isn't read: that run may still add to it.
TEST_F(ResultsFileTest, WhatAnotherRunWritesIsNotRead) {
  const auto file = open(Existing::refuse);
  const Json another = {{"rungs", {"00_fp32_baseline"}}, {"steps", 6}};
  EXPECT_TRUE(says(input_error([&] { open(Existing::resume, another); }), {path_, "another run"}));
}

TEST_F(ResultsFileTest, TwoRunsDoNotWriteOneFileThroughALink) {
  const auto file = open(Existing::refuse);
  const std::string link = folder_ / "link.jsonl";
  std::filesystem::create_symlink(path_, link);
  EXPECT_TRUE(says(input_error([&] { ResultsFile(link, {}, {}, Existing::overwrite); }), {"another run"}));
  EXPECT_EQ(load_results(link).runs.size(), 0U);
  file->add(make_run("00_fp32_baseline", 0, 20));
  EXPECT_EQ(load_results(link).runs.size(), 1U);
}

TEST_F(ResultsFileTest, TwoRunsDoNotWriteOneFileThroughALinkThatWasThereBeforeIt) {
  const std::string link = folder_ / "link.jsonl";
  std::filesystem::create_symlink(std::filesystem::path(path_).lexically_relative(folder_ / ""), link);
  std::filesystem::create_directories(folder_ / "sub");
  const ResultsFile file(link, Json::object(), Json::object(), Existing::refuse);
  EXPECT_TRUE(says(input_error([&] { ResultsFile(path_, {}, {}, Existing::overwrite); }), {"another run"}));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_TRUE(std::filesystem::is_regular_file(path_));
}

TEST_F(ResultsFileTest, AFullDiskAtTheStartIsNamedAndLeavesNothing) {
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit none{0, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &none);
  const std::string what = input_error([&] { open(Existing::refuse); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(says(what, {path_}));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "sub"));
}

TEST(LoadResults, RefusesWhatIsNoRegularFile) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("loop", folder / "loop");
  for (const std::string& path : {folder / "pipe", folder / "loop", folder / "", std::string("/dev/full")})
    EXPECT_TRUE(says(input_error([&] { load_results(path); }), {path}));
}

TEST(LoadResults, SaysWhyAFileThatIsThereCannotBeRead) {
  using std::filesystem::perms;
  const TempFolder folder;
  std::filesystem::permissions(folder / "", perms::all);
  write_file(folder / "results.json", "{}");
  std::filesystem::permissions(folder / "results.json", perms::none);
  const Nobody nobody;
  if (!nobody.there_is_one()) GTEST_SKIP() << "no user but root";
  EXPECT_TRUE(says(input_error([&] { load_results(folder / "results.json"); }),
                   {folder / "results.json", "Permission denied"}));
  EXPECT_TRUE(says(input_error([&] { load_results(folder / "nowhere.json"); }), {"No such file"}));
}

}  // namespace
}  // namespace stepladder
