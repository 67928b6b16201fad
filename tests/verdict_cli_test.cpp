// compare, calibrate, gate and history through the real binary; rungs are stand-ins unless a test says
// otherwise.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sstream>
#include <tuple>

#include "bench/base/table.h"
#include "bench/report/speedups.h"
#include "bench/results/file.h"
#include "bench/results/json.h"
#include "model/random.h"
#include "tests/command.h"
#include "tests/comparable.h"
#include "tests/contract.h"
#include "tests/fake_rung.h"
#include "tests/files.h"
#include "tests/learning_curves.h"
#include "tests/results.h"
#include "tests/tokens.h"

namespace stepladder {
namespace {

/// CPU time of ended child processes, which unlike elapsed time is equal on a busy machine.
double cpu_seconds_of_children() {
  rusage usage{};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

class VerdictCli : public testing::Test {
 protected:
  VerdictCli() {
    write_random_tokens(folder_ / "data.bin");
    std::filesystem::create_directory_symlink(base_ / "", folder_ / "base");
    std::filesystem::create_directory_symlink(new_ / "", folder_ / "new");
  }

  /// Writes a stand-in into folder `side`; it appends its name to log.txt.
  void rung(const std::string& side, const std::string& name, const std::string& step_ms,
            const std::string& before_end = "") {
    FakeRung{.name = name,
             .source_hash = side,
             .step_ms = step_ms,
             .before_start = cat("echo ", side, " ", name.substr(0, 2), " >>", folder_ / "log.txt"),
             .before_end = before_end}
        .write(side == "base" ? base_ : new_);
  }

  /// Shell code of a stand-in that counts its runs in $n and interrupts the harness in run `interrupts_in`.
  std::string counting(int interrupts_in = 0) {
    write_file(folder_ / "count", "0");
    return cat("n=$(($(cat ", folder_ / "count", ") + 1)); echo $n >", folder_ / "count",
               "; if [ $n = ", interrupts_in, " ]; then kill -INT $PPID; fi");
  }

  Outcome stepladder(const std::string& arguments) {
    return run_in(folder_, cat("export STEPLADDER_BIN_DIR=", folder_ / "base",
                               " STEPLADDER_PYTHON=/nowhere/python OMP_NUM_THREADS=1; ", STEPLADDER_BIN,
                               "/stepladder ", arguments));
  }
  Outcome gate(const std::string& more = "") { return stepladder(cat("gate base new ", kWorkload, more)); }

  void save(const std::string& name, const Results& results) {
    write_file(folder_ / name, file_text(results));
  }

  /// Writes base.json and new.json: ten rounds, with NEW slower by `slower` (a ratio less 1).
  void measured(double slower) {
    NoisyMachine machine(3, 20);
    Results base = results_of("aaa", "2025-01-31T12:00:00.000Z");
    Results next = results_of("bbb", "2025-01-31T13:00:00.000Z");
    for (int64_t round = 0; round < 10; ++round) {
      base.runs.push_back(run_of("02_tf32", round, machine.next(0.0)));
      next.runs.push_back(run_of("02_tf32", round, machine.next(slower)));
      next.runs.back().source_hash = "def";
    }
    save("base.json", base);
    save("new.json", next);
  }
  Results loaded(const std::string& name) const { return load_results(folder_ / name); }

  static constexpr const char* kWorkload =
      "--backend cpu --model gpt2-tiny --batch 4 --seq 32 --steps 6 --warmup 2 --data data.bin ";
  const TempFolder folder_, base_, new_;
  const Environment no_sample_{"STEPLADDER_BUSY_SAMPLE_MS", "0"};  // skips the load sample
};

// ---- compare ---------------------------------------------------------------------------------------------

TEST_F(VerdictCli, CompareExitsWithItsVerdict) {
  measured(0.0);
  EXPECT_TRUE(ended(stepladder("compare base.json new.json"), 0, {"PASS", "1 of 1", "stepladder gate"}));

  measured(0.05);
  EXPECT_TRUE(ended(stepladder("compare base.json new.json"), 1));
  EXPECT_EQ(stepladder("compare base.json new.json --threshold 10").code, 0);
  EXPECT_EQ(stepladder("compare new.json base.json").code, 0) << "an improvement never fails";

  const Outcome outcome = stepladder("compare base.json new.json --format github");
  EXPECT_TRUE(outcome.out.starts_with("::error title=02_tf32%2C gpt2 B=16 T=1024::REGRESSION, time +4"))
      << outcome.out;
  EXPECT_TRUE(says(stepladder("compare base.json ./base.json").out, {"same file"}));

  measured(0.01);
  EXPECT_EQ(stepladder("compare base.json new.json").code, 3);

  Results next = loaded("new.json");
  next.context["device"]["name"] = "Tesla T4";
  save("t4.json", next);
  EXPECT_TRUE(
      is_refused(stepladder("compare base.json t4.json"), {"device.name", "NVIDIA H200", "Tesla T4"}, 4));

  next = loaded("new.json");
  for (stepladder::Run& run : next.runs) {
    run.status = Status::oom;
    run.reason = "out of memory: B=16";
    run.summary.reset();
  }
  save("oom.json", next);
  EXPECT_TRUE(ended(stepladder("compare base.json oom.json"), 5,
                    {"FAILED", "NEW", "oom: out of memory: B=16", "10 of 10"}));

  measured(0.0);
  next = loaded("new.json");
  for (stepladder::Run& run : next.runs) run.summary->throttled = true;
  save("hot.json", next);
  EXPECT_TRUE(ended(stepladder("compare base.json hot.json"), 5, {"FAILED", "throttled", "10 pairs"}));
}

TEST_F(VerdictCli, CompareJudgesRunsUntilALossByTheirSecondsToIt) {
  const auto saved = [&](const TrainedPair& pair) {
    save("base.json", pair.base);
    save("new.json", pair.next);
  };
  saved({12, 0.3, 0.0});
  EXPECT_EQ(stepladder("compare base.json new.json").code, kExitRegression);
  EXPECT_EQ(stepladder("compare new.json base.json --format json").code, kExitOk);
  expect_contract(folder_ / "out.txt");
  saved({12, 0.0, 0.0});
  EXPECT_EQ(stepladder("compare base.json new.json").code, kExitInconclusive);
  saved({3, 0.0, 0.0});
  EXPECT_EQ(stepladder("compare base.json new.json --format json").code, kExitInconclusive);
  expect_contract(folder_ / "out.txt");

  saved({12, 0.3, 0.0});
  EXPECT_TRUE(says(stepladder("compare base.json new.json --until-loss 3.2 --format json").out, {"3.2"}));
  for (const char* wrong : {"--until-loss 2.9", "--threshold 2", "--steps-from base.json"})
    EXPECT_TRUE(is_refused(stepladder(cat("compare base.json new.json ", wrong)))) << wrong;
}

TEST_F(VerdictCli, CompareJoinsStepsWithTimesOfOtherRuns) {
  TrainedPair steps(12, 0.0, 0.0), times(8, 0.0, 0.5);
  for (Results* of : {&steps.base, &steps.next}) of->context["device"]["name"] = "Tesla T4";
  for (Results* of : {&times.base, &times.next}) {
    of->plan.erase("until_loss");
    for (stepladder::Run& run : of->runs) run.summary->to_loss.reset(), run.evaluations.clear();
  }
  save("base.json", times.base);
  save("new.json", times.next);
  save("base_steps.json", steps.base);
  save("new_steps.json", steps.next);
  EXPECT_TRUE(ended(stepladder("compare base.json new.json --steps-from base_steps.json,new_steps.json"),
                    kExitRegression, {"SLOWER", "NVIDIA H200", "--steps-from"}));
  EXPECT_EQ(stepladder("compare base.json new.json --steps-from base.json,new.json").code, kExitUsage)
      << "not until a loss";
}

TEST_F(VerdictCli, CertifyTellsWhetherALossIsReached) {
  Results results = results_of("aaa", "2025-01-31T12:00:00.000Z");
  for (int64_t round = 0; round < 6; ++round) {
    stepladder::Run& run = results.runs.emplace_back(run_of("02_tf32", round, {40.0, 40.0}));
    run.config["seed"] = 1337 + round;
    run.steps.back().loss = run.summary->val_loss = 3.2 + 0.01 * static_cast<double>(round);
  }
  save("runs.json", results);
  EXPECT_EQ(stepladder("certify runs.json --loss 3.3").code, kExitOk);
  EXPECT_EQ(stepladder("certify runs.json --loss 3.23").code, kExitInconclusive);
  EXPECT_TRUE(
      says(stepladder("certify runs.json --loss 3.3 --format markdown").out, {"| 02_tf32 |", "3.2250"}));
  EXPECT_EQ(stepladder("certify runs.json").code, kExitUsage);
  results.plan["seeds"] = true, results.plan["rounds"] = 7;
  save("runs.json", results);
  EXPECT_TRUE(ended(stepladder("certify runs.json --loss 3.3"), kExitNotComparable, {"6 of 7 seeds"}));
  results.plan["rounds"] = 6;
  results.runs.back().config["seed"] = 1337;
  save("runs.json", results);
  EXPECT_EQ(stepladder("certify runs.json --loss 3.3").code, kExitNotComparable);
}

TEST_F(VerdictCli, CompareRefusesWhatIsNoResultsFileInOneLine) {
  measured(0.0);
  for (const char* text : {"", "{", "{\"schema\":9}", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
                           "{\"schema\":1}", "{\"schema\":1,\"kind\":\"noise\"}",
                           "{\"schema\":1,\"kind\":\"noise\",\"context\":{},\"plan\":{\"steps\":1,\"warmup\":"
                           "0},\"variants\":[{\"variant\":1}]}"}) {
    write_file(folder_ / "damaged.json", text);
    for (const char* arguments :
         {"damaged.json new.json", "base.json damaged.json", "base.json new.json --noise damaged.json"})
      EXPECT_TRUE(is_refused(stepladder(cat("compare ", arguments)), {"damaged.json"})) << text << arguments;
  }
  for (const char* arguments : {"base.json", "base.json nowhere.json", "base.json new.json --threshold -1",
                                "base.json new.json --format html", "base.json new.json --out nowhere/x.md"})
    EXPECT_TRUE(is_refused(stepladder(cat("compare ", arguments)))) << arguments;
}

TEST_F(VerdictCli, PlanRunLeavesNoFileOut) {
  measured(0.0);
  Results failed = loaded("base.json");
  for (stepladder::Run& run : failed.runs) run.status = Status::crash, run.summary.reset();
  save("bad.json", failed);
  EXPECT_EQ(stepladder("plan-run base.json new.json").code, 0);
  EXPECT_TRUE(is_refused(stepladder("plan-run base.json bad.json"), {"bad.json"}));
}

TEST_F(VerdictCli, PlanRunFitsUnlessItMayBeWide) {
  measured(0.0);
  Results base = loaded("base.json");
  for (stepladder::Run& run : base.runs) run.summary->joules = 20 + 0.01 * static_cast<double>(run.round);
  save("base.json", base);
  const std::string command = "plan-run base.json --tokens 10e9 --price-per-hour 3.5 ";
  const auto widest = [](const std::string& table) {  // of the table's lines only
    std::istringstream lines(table.substr(0, table.find("\n\n")));
    size_t most = 0;
    for (std::string line; std::getline(lines, line);) most = std::max(most, text_width(line));
    return most;
  };
  const std::string fits = stepladder(command).out, wide = stepladder(command + "--wide").out;
  EXPECT_LE(widest(fits), Table::kWidth) << fits;
  EXPECT_TRUE(says(fits, {"--wide also shows: tok/s, kWh", "hours", "rent"}));
  EXPECT_GT(widest(wide), Table::kWidth) << wide;
  EXPECT_TRUE(says(wide, {"tok/s", "kWh"}));
}

TEST_F(VerdictCli, CompareRefusesTornAndHugeFilesInOneLine) {
  measured(0.0);
  const std::string whole = read_file(folder_ / "new.json");
  constexpr size_t kHuge = 1 << 24;
  std::vector<std::string> hostile = {std::string(kHuge, '['), std::string(kHuge, ' '),
                                      "{\"schema\":" + std::string(kHuge, '9') + "}", "{\"schema\":1e999}"};
  const size_t first_line = whole.find('\n');
  for (size_t part = 1; part < 8; ++part) hostile.push_back(whole.substr(0, first_line * part / 8));
  for (const std::string& text : hostile) {
    write_file(folder_ / "damaged.json", text);
    const Outcome outcome = stepladder("compare base.json damaged.json");
    EXPECT_TRUE(is_refused(outcome)) << text.substr(0, 60) << outcome.err.substr(0, 400);
    EXPECT_LT(outcome.err.size(), 400U) << outcome.err.substr(0, 400);
  }
}

TEST_F(VerdictCli, CompareWritesWhatAPullRequestShows) {
  measured(0.05);
  EXPECT_TRUE(ended(stepladder("compare base.json new.json --format markdown --out comment.md"), 1,
                    {"wrote comment.md"}));
  EXPECT_TRUE(says(read_file(folder_ / "comment.md"), {"## Stepladder: REGRESSION", "| 02_tf32 | 10 |"}));
  const Outcome json = stepladder("compare base.json new.json --format json");
  EXPECT_EQ(parse_json(json.out)["exit_code"], json.code);
  expect_contract(folder_ / "out.txt");
}

TEST_F(VerdictCli, CompareOfAWholeLadderIsQuick) {
  for (const char* name : {"base.json", "new.json"}) {
    Results results = results_of(name, "2025-01-31T12:00:00.000Z");
    for (int64_t round = 0; round < 20; ++round)
      for (int rung = 0; rung < 14; ++rung) {
        const double ms = 40.0 + random_uniform(1, static_cast<uint64_t>(round));
        results.runs.push_back(run_of(cat("rung", rung), round, std::vector<double>(200, ms)));
      }
    save(name, results);
  }
  const double before = cpu_seconds_of_children();
  EXPECT_EQ(stepladder("compare base.json new.json").code, 0);
  [[maybe_unused]] const double took = cpu_seconds_of_children() - before;
#if !defined(STEPLADDER_SANITIZED)  // sanitizers take longer
  EXPECT_LT(took, 2.0);
#endif
}

TEST_F(VerdictCli, AFileOfAnotherKindIsNotReplaced) {
  measured(0.0);
  for (const char* side : {"base", "new"}) rung(side, "00_fp32_baseline", "1.0$((50 + i % 2))");
  write_file(folder_ / "noise.json", R"({"schema": 2, "kind": "noise", "variants": []})");
  write_file(folder_ / "history.json", R"({"schema": 2, "kind": "history", "series": []})");
  const std::string calibrate = cat("calibrate --rungs 00 --pairs 3 ", kWorkload),
                    gate = cat("gate base new --results runs ", kWorkload);
  const std::tuple<std::string, std::string, std::string> cases[] = {
      {"compare base.json new.json", "new.json", "results file"},
      {"compare base.json new.json", "noise.json", "noise file"},
      {"compare base.json new.json --format markdown", "history.json", "a history"},
      {gate, "base.json", "results file"},
      {calibrate, "base.json", "results file"},
      {calibrate, "history.json", "a history"}};
  for (const auto& [command, file, what] : cases) {
    const std::string before = read_file(folder_ / file);
    EXPECT_TRUE(is_refused(stepladder(cat(command, " --out ", file)), {file, what, "name another --out"}))
        << command << file;
    EXPECT_EQ(read_file(folder_ / file), before) << command;
  }
  std::filesystem::create_directories(folder_ / "runs/algorithms");
  write_file(folder_ / "runs/algorithms/mine.json", "{}");
  std::filesystem::copy_file(folder_ / "history.json", folder_ / "runs/base.jsonl");
  EXPECT_TRUE(says(stepladder(gate).err, {"runs/base.jsonl", "a history", "name another --results"}));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "log.txt")) << "it was measured first";

  for (const char* other : {"base.json", "notes.json"}) {
    write_file(folder_ / "notes.json", "of mine");
    std::filesystem::copy_file(folder_ / other, folder_ / "runs/base.jsonl",
                               std::filesystem::copy_options::overwrite_existing);
    const std::string before = read_file(folder_ / other);
    EXPECT_EQ(stepladder(gate).code, kExitUsage) << other;
    EXPECT_EQ(read_file(folder_ / "runs/base.jsonl"), before);
    EXPECT_TRUE(std::filesystem::exists(folder_ / "runs/algorithms/mine.json"));
  }

  write_file(folder_ / "verdict.txt", "of mine");
  EXPECT_EQ(stepladder("compare base.json new.json --out verdict.txt").code, kExitUsage);
  EXPECT_EQ(read_file(folder_ / "verdict.txt"), "of mine");
  for (const char* out : {"verdict.json", "verdict.json", "again.txt", "again.txt", "again.xml", "again.xml"})
    EXPECT_EQ(stepladder(cat("compare base.json new.json --out ", out)).code, 0) << out;
  EXPECT_EQ(stepladder(calibrate + " --out noise.json").code, 0);
}

// ---- gate ------------------------------------------------------------------------------------------------

/// Shell code that evaluates every second step until the loss is 5; the loss falls from 9 by `rate`
/// thousandths a step, and varies by seed with `noise`.
std::string learning_at(int rate, int noise) {
  return cat(
      R"(case $arguments in *--seed\ *) seed=${arguments#*--seed } seed=${seed%% *} ;; *) seed=1337 ;; esac
if [ $((i % 2)) = 0 ] && [ $i -gt 0 ]; then
  v=$((9000 - i * )",
      rate, " - seed * ", noise, R"( % 11 * 10))
  say '{"event":"eval","step":'$i',"val_loss":'$((v / 1000)).$(printf %03d $((v % 1000)))'}'
  [ $v -le 5000 ] && break
fi
)");
}

TEST_F(VerdictCli, GateUntilALossTellsWhichReachesItSooner) {
  const auto gate_of = [&](int base_rate, int new_rate, const std::string& more, int new_noise = 59) {
    FakeRung fake;
    fake.before_step = learning_at(base_rate, 37);
    fake.write(base_);
    fake.before_step = learning_at(new_rate, new_noise);
    fake.write(new_);
    return stepladder(
        cat("gate base new --backend cpu --model gpt2-tiny --batch 4 --seq 32 --data data.bin --val-data "
            "data.bin --rungs 00 --until-loss 5 --eval-every 2 --max-steps 60 ",
            more));
  };
  EXPECT_TRUE(ended(gate_of(500, 400, "--max-pairs 8 --format json"), kExitRegression, {"SLOWER"}));
  EXPECT_EQ(loaded("reports/gate/new.jsonl").runs.size(), 6U) << "told at the first look";
  EXPECT_EQ(loaded("reports/gate/new.jsonl").plan["shuffle"], true);
  EXPECT_EQ(stepladder("compare reports/gate/base.jsonl reports/gate/new.jsonl").code, kExitRegression);
  EXPECT_TRUE(ended(gate_of(400, 500, "--max-pairs 8 --out verdict.xml --out verdict.md"), kExitOk));
  EXPECT_TRUE(says(read_file(folder_ / "verdict.md"), {"FASTER"}));
  EXPECT_FALSE(says(read_file(folder_ / "verdict.xml"), {"<failure"}));
  EXPECT_TRUE(ended(gate_of(400, 400, "--max-pairs 8"), kExitInconclusive));
  EXPECT_EQ(loaded("reports/gate/new.jsonl").runs.size(), 8U) << "not told apart, so all pairs are used";
  EXPECT_TRUE(ended(gate_of(400, 400, "--max-pairs 12 --seed 7 --pairs 6", /*new_noise=*/0),
                    kExitInconclusive, {"NEW", "ignores its seed"}));
  EXPECT_EQ(loaded("reports/gate/new.jsonl").runs.size(), 6U) << "more of the same tell nothing";
  const Outcome outcome = gate_of(500, 20, "--max-pairs 14");
  EXPECT_EQ(outcome.code, kExitRegression) << "no seed of NEW reaches the loss: " << outcome.out;
  EXPECT_EQ(gate_of(500, 400, "--threshold 2").code, kExitUsage);
  EXPECT_EQ(gate_of(500, 400, "--steps 20").code, kExitUsage);
}

TEST_F(VerdictCli, GateMeasuresInTurnsAndStopsOnceAllIsClear) {
  for (const char* side : {"base", "new"}) {
    rung(side, "00_fp32_baseline", "1.0$((50 + i % 2))");
    rung(side, "02_tf32", "0.$((520 + i % 2))");
  }
  write_script(new_ / "stepladder", "echo 'stepladder 0.1.0 (commit 1a2b3c)'\n");
  EXPECT_TRUE(ended(gate(), 0));
  EXPECT_EQ(loaded("reports/gate/new.jsonl").context["commit"], "1a2b3c") << "as its own command says";
  std::string first_two = "base 00\nnew 00\nbase 02\nnew 02\nnew 02\nbase 02\nnew 00\nbase 00\n";
  EXPECT_EQ(read_file(folder_ / "log.txt"), first_two + first_two + first_two);
  EXPECT_EQ(loaded("reports/gate/base.jsonl").runs.size(), 12U);
  EXPECT_TRUE(loaded("reports/gate/new.jsonl").complete);
  expect_contract(folder_ / "reports/gate/new.jsonl");
  // The gate's files can be compared again.
  EXPECT_TRUE(ended(stepladder("compare reports/gate/base.jsonl reports/gate/new.jsonl"), 0, {"in turns"}));
}

TEST_F(VerdictCli, CompareSaysThatOneGateMeasuredTheTwoOnlyWhereItDid) {
  const std::string one = "One gate measured";
  for (const char* side : {"base", "new"}) rung(side, "00_fp32_baseline", "1.05");
  for (const char* kept : {"first", "second"}) {
    gate("--rungs 00 --pairs 3 --max-pairs 3 --results same");
    std::filesystem::copy(folder_ / "same", folder_ / kept, std::filesystem::copy_options::recursive);
  }
  std::filesystem::copy(folder_ / "first/base.jsonl", folder_ / "second/base_before.json");
  EXPECT_TRUE(says(stepladder("compare first/base.jsonl first/new.jsonl").out, {one}));
  std::filesystem::copy(folder_ / "first/new.jsonl", folder_ / "moved.json");
  EXPECT_TRUE(says(stepladder("compare first/base.jsonl moved.json").out, {one})) << "wherever it lies";
  for (const char* files : {"first/base.jsonl second/new.jsonl", "second/base_before.json second/new.jsonl"})
    EXPECT_FALSE(says(stepladder(cat("compare ", files)).out, {one})) << files;
}

TEST_F(VerdictCli, TheWorkflowToCopyFailsOnlyWhereItIsDecidedAndLeavesWhatItsStepsShow) {
  std::string step = command_of_gate("/.github/workflows/gate.yml");
  const auto replace = [&](const std::string& what, const std::string& by) {
    ASSERT_NE(step.find(what), std::string::npos) << what;
    for (size_t at = 0; (at = step.find(what)) != std::string::npos;) step.replace(at, what.size(), by);
  };
  replace("/build/cuda/bin", "");
  replace("05,09,13,fp8", "00");
  // In the last case NEW's runs alternate between steps of 1 and 4 ms.
  for (const auto& [ms, code, annotation] :
       {std::tuple("1.05", kExitOk, "::notice"), std::tuple("2.05", kExitRegression, "::error"),
        std::tuple("$((1 + n % 2 * 3))", kExitOk, "::warning")}) {
    rung("base", "00_fp32_baseline", "1.05");
    FakeRung{.step_ms = ms, .before_start = counting()}.write(new_);
    EXPECT_TRUE(
        ended(stepladder(cat(step, " --max-pairs 8 ", kWorkload)), code, {annotation, "00_fp32_baseline"}));
    EXPECT_TRUE(says(read_file(folder_ / "verdict.md"), {"| 00_fp32_baseline |"}));
    EXPECT_EQ(says(read_file(folder_ / "verdict.xml"), {"failures=\"1\""}), code == kExitRegression);
    const Outcome json = stepladder(cat(step, " --max-pairs 8 --out verdict.json ", kWorkload));
    EXPECT_EQ(parse_json(read_file(folder_ / "verdict.json"))["exit_code"], json.code);
  }
  std::string strict = step;
  strict.erase(strict.find("--undecided pass"), std::string("--undecided pass").size());
  EXPECT_EQ(stepladder(cat(strict, " --max-pairs 8 ", kWorkload)).code, kExitInconclusive);
}

TEST_F(VerdictCli, GateFindsASlowerRungAndGoesOnWithTheOthers) {
  rung("base", "00_fp32_baseline", "1.0$((50 + i % 2))");
  rung("new", "00_fp32_baseline", "1.1$((50 + i % 2))");
  rung("base", "02_tf32", "1.$(($$ % 7))5");  // varies by process: inconclusive
  rung("new", "02_tf32", "1.$(($$ % 7))5");
  const Outcome outcome = gate("--max-pairs 7 --format json");
  EXPECT_EQ(outcome.code, 1) << outcome.out << outcome.err;
  const Json rows = parse_json(outcome.out)["rows"];
  EXPECT_EQ(rows[0]["verdict"], "REGRESSION");
  EXPECT_EQ(rows[0]["pairs"], 6);
  EXPECT_GE(rows[1]["pairs"], 6);
}

TEST_F(VerdictCli, ARungForSeveralDevicesIsNotMeasuredOnOne) {
  for (const char* side : {"base", "new"}) rung(side, "15_multi_gpu", "1.05");
  Outcome outcome = gate("--rungs 15 --format json");
  EXPECT_EQ(outcome.code, kExitNotComparable) << outcome.out << outcome.err;
  const Json rows = parse_json(outcome.out)["rows"];
  EXPECT_EQ(rows[0]["verdict"], "SKIPPED");
  EXPECT_TRUE(says(rows[0]["reason"], {"needs 2 devices"})) << rows;
  EXPECT_TRUE(ended(stepladder(cat("calibrate --rungs 15 --pairs 6 --out noise.json ", kWorkload)),
                    kExitFailed, {}, {"no noise", "15_multi_gpu", "needs 2 devices"}));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "noise.json"));
  EXPECT_TRUE(is_refused(stepladder(cat("overhead --rungs 15 --pairs 6 ", kWorkload)),
                         {"15_multi_gpu", "one device"}, kExitFailed));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "log.txt")) << "no rung was started";
  EXPECT_EQ(gate("--rungs 15 --devices 1").code, 0) << "as asked for";
}

TEST_F(VerdictCli, GateThatCannotTellSaysSo) {
  rung("base", "00_fp32_baseline", "1.05");
  // slower and faster in turn
  FakeRung{.step_ms = "1.$((n % 2))5", .before_start = counting()}.write(new_);
  EXPECT_TRUE(ended(gate("--max-pairs 7"), 3));
  EXPECT_EQ(loaded("reports/gate/base.jsonl").runs.size(), 7U);
  EXPECT_EQ(gate("--max-time soon").code, kExitUsage);
  EXPECT_TRUE(ended(gate("--max-time 0.001s"), 3, {"--max-time", "1 pair"}));
}

TEST_F(VerdictCli, GateBeginsWithoutFoundAlgorithmsAndGivesBothBuildsOneFolderForThem) {
  for (const auto* side : {&base_, &new_}) {
    FakeRung{.before_start = cat("echo $arguments >>", *side / "arguments.txt")}.write(*side);
  }
  std::filesystem::create_directories(folder_ / "reports/gate/algorithms");
  write_file(folder_ / "reports/gate/algorithms/stale.json", "{}");
  write_file(folder_ / "reports/gate/algorithms/a-users.txt", "");
  ASSERT_EQ(gate("--max-pairs 6").code, 0);
  EXPECT_TRUE(says(read_file(base_ / "arguments.txt"), {"--cache reports/gate/algorithms"}));
  EXPECT_TRUE(says(read_file(new_ / "arguments.txt"), {"--cache reports/gate/algorithms"}));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "reports/gate/algorithms/stale.json"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "reports/gate/algorithms/a-users.txt"));
  ASSERT_EQ(gate("--max-pairs 6 --search-again --cache kept").code, 0);
  EXPECT_TRUE(says(read_file(new_ / "arguments.txt"), {"--cache kept", "--search-again"}));
  std::filesystem::remove(new_ / "arguments.txt");
  ASSERT_EQ(gate("--max-pairs 6 --cache data/cache").code, 0);
  EXPECT_FALSE(says(read_file(new_ / "arguments.txt"), {"--cache reports"}))
      << "what is asked for, the usual too";
}

TEST_F(VerdictCli, GatesAtOnceKeepTheirRunsApart) {
  for (const char* side : {"base", "new"}) rung(side, "00_fp32_baseline", "1.05");
  const std::string taken = folder_ / "reports/gate";
  std::filesystem::create_directories(taken);
  const int other = ::open(taken.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(::flock(other, LOCK_EX | LOCK_NB), 0);
  EXPECT_TRUE(ended(gate("--max-pairs 6"), 0, {"reports/gate-2"}));
  EXPECT_EQ(loaded("reports/gate-2/new.jsonl").runs.size(), 6U);
  EXPECT_TRUE(std::filesystem::is_empty(taken));

  EXPECT_TRUE(is_refused(gate("--results reports/gate"), {"reports/gate"}));
  ::close(other);
  EXPECT_EQ(gate("--max-pairs 6").code, 0);
  EXPECT_EQ(loaded("reports/gate/new.jsonl").runs.size(), 6U);
}

TEST_F(VerdictCli, GateRepeatedIsOneTableAndTheWorstVerdict) {
  for (const char* side : {"base", "new"}) rung(side, "00_fp32_baseline", "1.05");
  EXPECT_TRUE(ended(gate("--max-pairs 6 --repeat 3"), 0, {"3 comparisons", "3 PASS", "PASS: 3 of 3"}));

  // its runs are slower from the seventh on
  FakeRung{.step_ms = "$((1 + (n > 6))).05", .before_start = counting()}.write(new_);
  Outcome outcome = gate("--max-pairs 6 --repeat 2 --format json");
  EXPECT_EQ(outcome.code, 1) << outcome.out << outcome.err;
  const Json rows = parse_json(outcome.out)["rows"];
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0]["verdict"], "PASS");
  EXPECT_EQ(rows[1]["verdict"], "REGRESSION");
  EXPECT_EQ(rows[1]["repetition"], 2);
  expect_contract(folder_ / "out.txt");
  EXPECT_EQ(loaded("reports/gate/1/new.jsonl").runs[0].summary->median_step_ms, 1.05);
  EXPECT_EQ(loaded("reports/gate/2/new.jsonl").runs[0].summary->median_step_ms, 2.05);

  outcome = gate("--repeat 3 --max-time 0.001");
  EXPECT_TRUE(says(outcome.out, {"--max-time", "1 of 3"}));
}

TEST_F(VerdictCli, GateTellsTheTimesBeforeOneThatMayNotBeWritten) {
  for (const char* side : {"base", "new"}) rung(side, "00_fp32_baseline", "1.05");
  ASSERT_EQ(gate("--max-pairs 6").code, 0);
  Results other = loaded("reports/gate/base.jsonl");
  other.context["command_line"] = "stepladder run";
  std::filesystem::create_directories(folder_ / "reports/gate/2");
  write_file(folder_ / "reports/gate/2/base.jsonl", file_text(other));
  EXPECT_TRUE(ended(gate("--max-pairs 6 --repeat 2"), kExitUsage, {"1 comparison: 1 PASS.", "Stopped"},
                    {"2/base.jsonl"}));
}

TEST_F(VerdictCli, GateInterruptedJudgesTheTimesThatItFinished) {
  for (const auto& [run, said] : {std::pair{9, "1 comparison: 1 PASS."}, {2, ""}}) {
    rung("base", "00_fp32_baseline", "1.05");
    // interrupts the gate, its parent
    FakeRung{.step_ms = "1.05", .before_start = counting(run)}.write(new_);
    const Outcome outcome = gate("--max-pairs 6 --repeat 3");
    EXPECT_TRUE(ended(outcome, 128 + SIGINT, {said}));
    EXPECT_EQ(says(outcome.out, {"Stopped", "1 of 3"}), run > 6) << outcome.out;
    EXPECT_EQ(says(outcome.err, {"1 finished pair", "`stepladder compare reports/gate/1/base.jsonl"}),
              run < 6)
        << outcome.err;
  }
}

TEST_F(VerdictCli, GateTellsItsVerdictWhereAFileOfItCannotBeWritten) {
  for (const char* side : {"base", "new"}) rung(side, "00_fp32_baseline", "1.05");
  std::filesystem::create_directory(folder_ / "gone");
  rung("new", "00_fp32_baseline", "1.05", cat("rm -rf ", folder_ / "gone"));
  EXPECT_TRUE(ended(gate("--max-pairs 6 --out gone/v.md --out v.json"), kExitFailed, {"PASS", "wrote v.json"},
                    {"gone/v.md"}));
}

TEST_F(VerdictCli, GateKeepsItsRunsFromItsReport) {
  for (const char* side : {"base", "new"}) rung(side, "00_fp32_baseline", "1.05");
  EXPECT_TRUE(ended(gate("--max-pairs 6 --results runs --out runs/new.jsonl"), kExitUsage, {},
                    {"runs/new.jsonl", "name another"}));
  EXPECT_EQ(gate("--max-pairs 6 --results more --out more/v.md").code, 0) << "in a folder that it makes";
}

TEST_F(VerdictCli, GateTellsWhatIsWrongWithARungThatDoesNotStart) {
  for (const char* side : {"base", "new"}) rung(side, "00_fp32_baseline", "1.05");
  const std::filesystem::path broken = new_ / "00_fp32_baseline";
  std::filesystem::permissions(broken, std::filesystem::perms::owner_read);
  EXPECT_TRUE(ended(gate(), kExitFailed, {}, {"new/00_fp32_baseline", "executed"}));
  std::filesystem::permissions(broken, std::filesystem::perms::owner_all);
  write_file(broken, "#!/bin/sh\necho no library >&2; exit 127\n");
  const Outcome outcome = gate();
  EXPECT_TRUE(one_line(outcome.err)) << outcome.err;
  EXPECT_TRUE(says(outcome.err, {"new/00_fp32_baseline", "(no library)"}));
}

TEST_F(VerdictCli, GateOfAThrottledDeviceFailsAndSaysWhy) {
  for (const auto* side : {&base_, &new_}) {
    FakeRung{.telemetry = R"(,"throttle":["hw_thermal_slowdown"])"}.write(*side);
  }
  EXPECT_TRUE(ended(gate("--max-pairs 6"), 5, {"FAILED", "throttled", "6 pairs"}));
}

TEST_F(VerdictCli, GateNamesWhatIsMissingAndWhatFailed) {
  rung("base", "00_fp32_baseline", "1.05");
  rung("new", "00_fp32_baseline", "1.05", "kill -KILL $$");
  rung("base", "02_tf32", "1.05");
  EXPECT_TRUE(ended(gate(), 5, {"FAILED", "NEW", "crash", "SIGKILL", "02_tf32"}));
  EXPECT_EQ(loaded("reports/gate/new.jsonl").runs.size(), 1U) << "once is enough";

  const std::pair<const char*, int> refused[] = {{"gate base nowhere", 2},
                                                 {"gate base new --rungs 02", 4},
                                                 {"gate base new --rungs 00,02", 4},
                                                 {"gate base new --rungs 02_tf23", 2},
                                                 {"gate base new --pairs 9 --max-pairs 8", 2},
                                                 {"gate base new --noise data.bin", 2},
                                                 {"gate base new --results data.bin/results", 2},
                                                 {"gate base new --out nowhere/x.md", 2}};
  for (const auto& [arguments, code] : refused)
    EXPECT_TRUE(is_refused(stepladder(cat(arguments, " ", kWorkload)), {}, code)) << arguments;
}

TEST_F(VerdictCli, GateFindsARealRungMadeSlower) {
#if defined(STEPLADDER_SANITIZED)
  GTEST_SKIP() << "a sanitizer's times vary too much";
#endif
  std::filesystem::create_symlink(STEPLADDER_BIN "/00_fp32_baseline", folder_ / "base/00_fp32_baseline");
  std::filesystem::create_symlink(STEPLADDER_SLOW_RUNG, folder_ / "new/00_fp32_baseline");
  // The gate takes as many pairs as certainty needs: three on a quiet machine, more on a busy one.
  const Outcome outcome = stepladder(
      "gate base new --backend cpu --model gpt2-tiny --batch 1 --seq 8 --steps 3 --warmup 1 --data data.bin "
      "--pairs 3 --max-pairs 100 --format json");
  EXPECT_EQ(outcome.code, 1) << outcome.out << outcome.err;
  const Json row = parse_json(outcome.out)["rows"][0];
  EXPECT_GT(row["ratio"]["value"], 2.0) << row;
  EXPECT_EQ(row["same_sources"], true);
  EXPECT_EQ(row["live_bytes"]["base"], row["live_bytes"]["new"]);
}

// ---- calibrate -------------------------------------------------------------------------------------------

TEST_F(VerdictCli, CalibratedNoiseIsUsedUntilTheMachineChanges) {
  rung("base", "00_fp32_baseline", "$((10 + $$ % 5)).5");
  ASSERT_TRUE(ended(stepladder(cat("calibrate --rungs 00 --pairs 6 --out noise.json ", kWorkload)), 0,
                    {"limit % at 10", "00_fp32_baseline", "wrote noise.json"}));
  expect_contract(folder_ / "noise.json");
  Json noise = parse_json(read_file(folder_ / "noise.json"));
  ASSERT_EQ(noise["variants"][0]["log_ratios"].size(), 6U);
  noise["variants"][0]["log_ratios"] = {0.9, -0.9, 0.8, -0.7, 0.9, -0.9};
  write_file(folder_ / "noise.json", noise.dump());
  rung("base", "00_fp32_baseline", "1.0$((50 + i % 2))");
  rung("new", "00_fp32_baseline", "1.0$((80 + i % 2))");
  EXPECT_EQ(gate().code, 1);
  EXPECT_TRUE(ended(gate("--noise noise.json"), 0, {"6 pairs only", "5.0 % is used"}));

  const std::pair<const char*, const char*> changes[] = {{"/context/build", "build"},
                                                         {"/context/device/driver", "device.driver"},
                                                         {"/plan/steps", "plan.steps"}};
  for (const auto& [pointer, name] : changes) {
    Json changed = noise;
    changed[Json::json_pointer(pointer)] = 77;
    write_file(folder_ / "noise.json", changed.dump());
    EXPECT_TRUE(is_refused(gate("--noise noise.json"), {"noise.json has expired", name, "calibrate"}, 4))
        << name;
  }
}

TEST_F(VerdictCli, AVerdictOutlivesItsNoiseFile) {
  for (const char* side : {"base", "new"}) rung(side, "00_fp32_baseline", "1.0$((50 + i % 2))");
  ASSERT_EQ(stepladder(cat("calibrate --rungs 00 --pairs 6 --out noise.json ", kWorkload)).code, 0);
  rung("new", "00_fp32_baseline", "1.0$((50 + i % 2))", cat("rm -f ", folder_ / "noise.json"));
  EXPECT_TRUE(ended(gate("--noise noise.json"), 0));
}

TEST_F(VerdictCli, CalibrateInterruptedKeepsItsPairs) {
  for (const int last : {4, 9}) {  // the interrupted run is in the second or fifth pair
    FakeRung{.before_start = counting(last)}.write(base_);
    EXPECT_TRUE(ended(stepladder(cat("calibrate --rungs 00 --out noise.json ", kWorkload)), 128 + SIGINT));
    ASSERT_EQ(std::filesystem::exists(folder_ / "noise.json"), last == 9);
  }
  EXPECT_EQ(parse_json(read_file(folder_ / "noise.json"))["variants"][0]["log_ratios"].size(), 4U);
}

TEST_F(VerdictCli, ARungThatFailsLeavesNoNoise) {
  rung("base", "00_fp32_baseline", "1.05", "exit 7");
  EXPECT_EQ(stepladder(cat("calibrate --rungs 00 --pairs 3 --out noise.json ", kWorkload)).code, 5);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "noise.json"));
}

TEST_F(VerdictCli, ARungWithoutUndisturbedPairsIsNamedWithWhatDisturbedIt) {
  FakeRung{.telemetry = R"(,"throttle":["hw_slowdown"])"}.write(base_);
  rung("base", "01_causal_mask", "10.5");
  Outcome outcome = stepladder(cat("calibrate --rungs 00,01 --pairs 3 --out noise.json ", kWorkload));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto last_line = [](const std::string& text) {
    return text.substr(text.find_last_of('\n', text.size() - 2) + 1);
  };
  EXPECT_TRUE(says(last_line(outcome.err), {"00_fp32_baseline", "throttled"})) << outcome.err;
  EXPECT_EQ(parse_json(read_file(folder_ / "noise.json"))["variants"].size(), 1U);
  outcome = stepladder(cat("calibrate --rungs 00 --pairs 3 --out none.json ", kWorkload));
  EXPECT_EQ(outcome.code, kExitFailed);
  EXPECT_TRUE(says(last_line(outcome.err), {"no noise", "00_fp32_baseline", "throttled"})) << outcome.err;
}

// ---- overhead --------------------------------------------------------------------------------------------

TEST_F(VerdictCli, OverheadComparesARungByItselfWithOneUnderTheHarness) {
  FakeRung fake;
  fake.before_end =
      "case $arguments in *--times*) echo [1.05,1.05,1.05,1.05,1.05,1.05] >${arguments##*--times } ;; esac";
  const auto overhead = [&](const std::string& step_ms, const std::string& more = "") {
    fake.step_ms = step_ms;
    fake.write(base_);
    return stepladder(cat("overhead --rungs 00 --pairs 6 ", kWorkload, more));
  };
  EXPECT_TRUE(ended(overhead("1.05"), 0, {"00_fp32_baseline", "1.05", "+0.000 to +0.000", "within"}));
  EXPECT_TRUE(ended(overhead("1.06"), 1, {"+0.952", "BEYOND"}));
  EXPECT_EQ(overhead("1.04").code, 1) << "faster is no measuring either";
  EXPECT_TRUE(ended(overhead("1.05", "--rungs 00,15"), 0, {}, {"15_multi_gpu", "one device"}));
  EXPECT_EQ(overhead("1.06", "--limit 1").code, 0);
  EXPECT_EQ(overhead("1.06", "--pairs 5").code, 3) << "too few to be certain";
  fake.before_start = counting();
  EXPECT_TRUE(ended(overhead("$((n % 2)).$((95 - 70 * (n % 2)))"), 3));
  fake.before_start = "case $arguments in *--events*) ;; *) echo alone >&2; exit 5 ;; esac";
  EXPECT_TRUE(is_refused(overhead("1.05"), {"00_fp32_baseline", "alone"}, 5));
}

TEST_F(VerdictCli, OverheadInterruptedTellsOfItsPairs) {
  for (const int last : {4, 10}) {  // the interrupted run is in the second or fifth pair
    FakeRung fake;
    fake.before_start = counting(last);
    fake.before_end =
        "case $arguments in *--times*) echo [1.05,1.05,1.05,1.05,1.05,1.05] >${arguments##*--times } ;; esac";
    fake.write(base_);
    const Outcome outcome = stepladder(cat("overhead --rungs 00 --pairs 6 ", kWorkload));
    EXPECT_EQ(outcome.code, 128 + SIGINT) << outcome.err;
    EXPECT_EQ(says(outcome.out, {"00_fp32_baseline", "1.05"}), last == 10) << outcome.out;
  }
}

TEST_F(VerdictCli, OverheadReadsTheTimesThatARealRungLeaves) {
  std::filesystem::create_symlink(STEPLADDER_BIN "/00_fp32_baseline", folder_ / "base/00_fp32_baseline");
  EXPECT_TRUE(ended(stepladder("overhead --rungs 00 --pairs 3 --limit 1000 --backend cpu --model gpt2-tiny "
                               "--batch 1 --seq 8 --steps 3 --warmup 1 --data data.bin"),
                    0, {"00_fp32_baseline", "within"}));
}

// ---- history ---------------------------------------------------------------------------------------------

TEST_F(VerdictCli, HistoryListsWhatAFolderHolds) {
  measured(0.0);
  write_file(folder_ / "other.json", "{}");
  Results throttled = load_results(folder_ / "base.json");
  for (stepladder::Run& run : throttled.runs) run.summary->throttled = true;
  throttled.context["time"] = "2025-01-31T14:00:00.000Z";
  write_file(folder_ / "throttled.json", file_text(throttled));
  EXPECT_TRUE(ended(stepladder("history . --out out"), 0,
                    {"02_tf32, gpt2 B=16 T=1024; NVIDIA H200", "aaa", "bbb", "skipped ./other.json",
                     "throttled.json: ", "was throttled"},
                    {"no charts"}));
  EXPECT_EQ(parse_json(read_file(folder_ / "out/history.json"))["series"][0]["points"].size(), 2U);
  expect_contract(folder_ / "out/history.json");
  EXPECT_EQ(parse_json(stepladder("history . --format json").out)["kind"], "history");
  Results base = loaded("base.json");
  base.context["time"] = "2025-01-31T15:00:00.000Z";
  write_file(folder_ / "campaign.jsonl",
             file_text(base, "ladder") + file_text(base, "more", "fedcba9876543210"));
  EXPECT_EQ(parse_json(stepladder("history . --format json").out)["series"][0]["points"].size(), 3U);
  std::filesystem::create_symlink("loop.json", folder_ / "loop.json");
  std::filesystem::create_symlink("self", folder_ / "self");
  ASSERT_EQ(::mkfifo((folder_ / "pipe.json").c_str(), 0600), 0);
  EXPECT_TRUE(
      says(stepladder("history . --out out").out, {"skipped ./loop.json", "./pipe.json: ", "regular"}));
  for (const char* arguments :
       {"history nowhere", "history base", "history base.json", "history self", "compare pipe.json base.json",
        "compare base.json base.json --noise pipe.json"})
    EXPECT_TRUE(is_refused(stepladder(arguments))) << arguments;
}

}  // namespace
}  // namespace stepladder
