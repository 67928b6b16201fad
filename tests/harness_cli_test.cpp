// The stepladder command line through its real binary; rungs are stand-ins unless a test says otherwise.
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <thread>
#include <tuple>
#include <vector>

#include "bench/base/text.h"
#include "bench/plan/ladder.h"
#include "bench/plan/presets.h"
#include "bench/report/ablation.h"
#include "bench/report/speedups.h"
#include "bench/report/trials.h"
#include "bench/results/file.h"
#include "bench/results/run_json.h"
#include "model/random.h"
#include "model/rendezvous.h"
#include "model/tokenizer.h"
#include "tests/command.h"
#include "tests/contract.h"
#include "tests/fake_rung.h"
#include "tests/files.h"
#include "tests/processes.h"
#include "tests/results.h"
#include "tests/tokens.h"

namespace stepladder {
namespace {

using namespace std::chrono_literals;

constexpr const char* kStepladder = STEPLADDER_BIN "/stepladder";

bool has(const std::string& text, const std::string& part) {
  return says(text, {part});
}

/// "00 01 02 02 01 00": the first characters of the variants of the finished runs, in order.
std::string sequence(const Results& results, size_t characters = 2) {
  std::vector<std::string> names;
  for (const Run& run : results.runs) names.push_back(run.variant.substr(0, characters));
  return join(names, " ");
}

constexpr const char* kLearnAlike = "tolerances";  // a word of reports that compare losses

class HarnessCli : public testing::Test {
 protected:
  HarnessCli() {
    write_random_tokens(folder_ / "data.bin");
    for (const char* name : {"00_fp32_baseline", "01_causal_mask", "02_tf32"}) rung(name).write(folder_);
  }

  static FakeRung rung(const std::string& name) {
    FakeRung fake;
    fake.name = name;
    return fake;
  }

  /// Runs a shell command line in the test's folder, which also holds the stand-ins.
  Outcome shell(const std::string& command) {
    return run_in(folder_, cat("export STEPLADDER_BIN_DIR=", folder_ / "",
                               " STEPLADDER_PYTHON=/nowhere/python; ", command));
  }
  Outcome stepladder(const std::string& arguments) { return shell(cat(kStepladder, " ", arguments)); }
  /// Runs `stepladder ARGUMENTS` with the real rungs.
  Outcome with_rungs(const std::string& arguments) {
    return shell(cat("STEPLADDER_BIN_DIR=" STEPLADDER_BIN " ", kStepladder, " ", arguments));
  }
  /// The output of `stepladder ARGUMENTS` on a terminal of `columns` columns; 0: unknown.
  std::string on_terminal(const std::string& arguments, uint16_t columns = 0) {
    int terminal = -1;
    const winsize size{.ws_row = 40, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    const pid_t pid = ::forkpty(&terminal, nullptr, nullptr, &size);
    if (pid == 0) {
      const std::string command = cat("cd ", folder_ / "", "; export STEPLADDER_BIN_DIR=", folder_ / "",
                                      "; exec ", kStepladder, " ", arguments);
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    std::string seen;
    std::array<char, 4096> buffer;
    for (ssize_t n; (n = ::read(terminal, buffer.data(), buffer.size())) > 0;) seen.append(buffer.data(), n);
    ::close(terminal);
    EXPECT_EQ(wait_for(pid), 0);
    return seen;
  }

  /// The arguments of a small run of the stand-ins, six steps each.
  std::string plan(const std::string& more = "") const {
    return cat(
        "run --backend cpu --model gpt2-tiny --batch 4 --seq 32 --steps 6 --warmup 2 --rounds 2 --data "
        "data.bin --out results.json ",
        has(more, "--rungs") ? "" : "--rungs 00,01,02 ", more);
  }

  /// Options that measure both peers; each peer is a stand-in like `fake` under the peer's name.
  std::string peers(FakeRung fake) const {
    fake.name = "peer";
    fake.before_start = "name=$PEER; " + fake.before_start;
    fake.write(folder_);
    write_script(folder_ / "python",
                 cat(R"(case $1 in *pytorch_l*.py) PEER=pytorch/$2 ;; *llmc) PEER=llmc ;; esac
export PEER
shift 2
exec )",
                     folder_ / "peer", " \"$@\"\n"));
    return cat(" --peer pytorch --peer llmc=", folder_ / "peer", " --python ", folder_ / "python");
  }

  /// Makes a rung write its process id into the file pid and wait to be ended.
  void hang(const std::string& name) const {
    FakeRung{.name = name, .before_start = cat("echo $$ >", folder_ / "pid", "; exec sleep 100")}.write(
        folder_);
  }
  /// Starts `stepladder ARGUMENTS` in the background.
  pid_t start(const std::string& arguments) {
    return start_in(folder_,
                    cat("export STEPLADDER_BIN_DIR=", folder_ / "", "; exec ", kStepladder, " ", arguments));
  }
  /// Waits until the file `name` has content; false after ten seconds.
  bool appears(const std::string& name) const {
    std::error_code none_yet;
    for (int i = 0; i < 1000; ++i, std::this_thread::sleep_for(10ms))
      if (const auto size = std::filesystem::file_size(folder_ / name, none_yet); !none_yet && size > 0)
        return true;
    return false;
  }

  Results results() const { return load_results(folder_ / "results.json"); }
  /// results.json as `stepladder export --format json` prints it.
  Json exported() const { return stepladder::exported(folder_ / "results.json"); }

  std::string climbed() const { return sequence(results()); }

  const TempFolder folder_;
  const Environment no_sample_{"STEPLADDER_BUSY_SAMPLE_MS", "0"};  // skips the load sample
};

/// Stand-ins for the ladder and its ablations. Steps of rungs take 1.25 ms before 03 and 1 ms from 03 on;
/// steps of ablations 1 ms (only/) or 1.5 ms (without/).
class HarnessCliAblate : public HarnessCli {
 protected:
  HarnessCliAblate() {
    std::filesystem::create_directory(folder_ / "ablations");
    for (const Rung& row : ladder().rungs) {
      FakeRung{.name = row.trainer,
               .step_ms = row.name < "03" ? "1.25" : "1.0",
               .before_start = cat("case $arguments in *--plan*) echo '{\"batch\": ",
                                   row.parent.empty() ? 8 : 16, "}'; exit 0 ;; esac")}
          .write(folder_);
    }
    for (const Ablation& ablation : ablations())
      if (ablation.unchanged().empty()) ablation_of(ablation.kind, ablation.rung.name).write(folder_);
  }

  void SetUp() override {
    if (ablations().empty()) GTEST_SKIP() << "built without git, so without ablations";
  }

  static FakeRung ablation_of(const std::string& kind, const std::string& name) {
    FakeRung fake = rung(kind + "/" + name);
    fake.file = "ablations/" + kind + "_" + name;
    fake.step_ms = kind == "without" ? "1.5" : "1.0";
    return fake;
  }

  std::string ablation(const std::string& more) const {
    return cat(
        "ablate --backend cpu --model gpt2-tiny --batch 4 --seq 32 --steps 6 --warmup 2 --rounds 2 --data "
        "data.bin --out results.json ",
        more);
  }

  std::string measured() const { return sequence(results(), std::string::npos); }
};

// ---- usage -----------------------------------------------------------------------------------------------

TEST_F(HarnessCli, HelpNamesEveryCommandThatIsNotHidden) {
  const Outcome help = stepladder("--help");
  EXPECT_EQ(help.code, 0);
  const std::string commands = read_file(STEPLADDER_SOURCE_DIR "/bench/cli/commands.h");
  const std::regex declared("Command (\\w+)_command\\(");
  const std::sregex_iterator first(commands.begin(), commands.end(), declared), end;
  EXPECT_GT(std::distance(first, end), 20);
  for (auto match = first; match != end; ++match) {
    std::string name = (*match)[1];
    std::ranges::replace(name, '_', '-');
    EXPECT_EQ(has(help.out, cat("\n  ", name, " ")), name != "probe" && name != "rank") << name;
  }
  EXPECT_EQ(stepladder("-h").out, help.out);
  const Outcome bare = stepladder("");
  EXPECT_EQ(bare.code, kExitUsage);
  EXPECT_EQ(bare.out, help.out);
  EXPECT_FALSE(has(help.out, "probe-device"));
  const Outcome run_help = stepladder("run --help-all"), usual = stepladder("run --help");
  EXPECT_TRUE(has(run_help.out, "--order-seed"));
  EXPECT_TRUE(has(usual.out, "--rungs") && has(usual.out, "--help-all"));
  EXPECT_FALSE(has(usual.out, "--order-seed")) << "which few need";
  EXPECT_TRUE(has(usual.out, "docs/loss.md")) << "which has --seeds and --certify-loss";
  const auto lines = [](const std::string& text) { return std::ranges::count(text, '\n'); };
  EXPECT_LT(2 * lines(usual.out), lines(run_help.out));
}

TEST_F(HarnessCli, BashCompletesCommandsOptionsAndWhatTheyTake) {
  const auto completed = [this](const std::string& words) {
    return shell(cat("bash -uc '. <(", kStepladder, " completion); COMP_WORDS=(stepladder ", words,
                     "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _stepladder; echo ${COMPREPLY[@]}'"))
        .out;
  };
  EXPECT_EQ(completed("ca"), "campaign calibrate\n");
  EXPECT_EQ(completed("run --ba"), "--batch --backend\n");
  EXPECT_EQ(completed("run --backend c"), "cpu cuda\n");
  EXPECT_EQ(completed("run --model gpt2-m"), "gpt2-medium gpt2-mini\n");
  EXPECT_EQ(completed("run --backend = c"), "cpu cuda\n") << "the words of --backend=c";
  EXPECT_EQ(completed("run --backend ="), "auto cpu cuda\n");
  EXPECT_EQ(completed("run --rungs 00,13"), "00,13_cuda_graphs\n");
  EXPECT_EQ(completed("profile 13"), "13_cuda_graphs\n");
  EXPECT_EQ(completed("train fp8_"), "fp8_recompute fp8_zero1 fp8_muon\n");
  EXPECT_EQ(completed("resume 13"), "\n") << "which takes a file";
  EXPECT_EQ(completed("check-trainer 13"), "\n") << "which takes a command";
  EXPECT_EQ(completed("run --check"), "\n") << "which help hides";
  EXPECT_EQ(completed("report r"), "\n");  // bash completes file names by itself
  EXPECT_EQ(completed("run --out r"), "\n");
}

TEST_F(HarnessCli, MisspellingsAreAnsweredWithTheNearestName) {
  const std::pair<std::string, const char*> cases[] = {
      {"rum", "run"},
      {"run --presets cpu-quick", "--preset"},
      {"run --preset cpu-quik", "cpu-quick"},
      {"run --preset h100", "h200"},
      {plan("--rungs 01_casual_mask"), "01_causal_mask"},
      {plan("--backend gpu"), "cpu"},
      {plan("--model gpt2-tyny"), "gpt2-tiny"},
      {plan("--peer pytorhc"), "pytorch"},
      {"train 02_tf23", "02_tf32"},
      {"diff 01 02_tf23", "02_tf32"},
      {"list --wid", "--wide"},
  };
  for (const auto& [arguments, wanted] : cases)
    EXPECT_TRUE(is_refused(stepladder(arguments), {wanted, "?"})) << arguments;
  for (const char* far : {"help", "run --rungs nothing", "train quantum", "run --nowhere"}) {
    const Outcome outcome = stepladder(far);
    EXPECT_EQ(outcome.code, 2) << far;
    EXPECT_TRUE(one_line(outcome.err) && !has(outcome.err, "?")) << outcome.err;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "results.json"));
}

TEST_F(HarnessCli, WrongOptionsAreRefusedBeforeAnyRun) {
  write_file(folder_ / "short.bin", std::string(64, '\0'));
  write_file(folder_ / "outside.bin", std::string(20000, '\xff'));
  std::filesystem::create_directory(folder_ / "empty");
  for (const char* options :
       {"--batch 4,x", "--batch 0", "--steps 2", "--warmup 6", "--rounds 0", "--seq 100000", "--seq 300",
        "--data nowhere.bin", "--data short.bin", "--data outside.bin", "--data empty", "--data 'no*.bin'",
        "--val-data empty", "--data data.bin --batch 400", "--resume --overwrite", "--order-seed 3",
        "--timeout 0", "--peer llmc=nowhere", "--peer pytorch --python nowhere/python"})
    EXPECT_TRUE(is_refused(stepladder(plan(options)))) << options;
  for (const char* arguments :
       {"train", "sample --help-me", "report", "diff 01", "diff 01 02 --results nowhere.json"})
    EXPECT_TRUE(is_refused(stepladder(arguments))) << arguments;
  EXPECT_TRUE(has(stepladder(plan("--peer llmc=empty")).err, "llmc=empty")) << "a folder";
  using Words = std::vector<std::string>;
  const std::pair<std::string, Words> by_name[] = {
      {plan("--ladder " STEPLADDER_SOURCE_DIR "/scripts/peers/llmc.json"), {"{path}", "--peer NAME=PATH"}},
      {plan("--order backwards"), {"--order"}},
      {plan("--until-ci 0"), {"--until-ci"}},
      {plan("--until-ci nan"), {"--until-ci"}},
      {plan("--max-rounds 5"), {"--until-ci"}},
      {plan("--until-ci 1 --max-rounds 1"), {"--max-rounds 1"}},
      {plan("--rungs 00,02 --dtype fp16"), {"--dtype"}},  // a type that neither chooses
      {plan("--data texts/dictionary.txt"),
       {"texts/dictionary.txt", "scripts/prepare_data.py --dictionary"}},  // a text to be fetched first
      {"run --pairs 3", {"run has no --pairs", "calibrate, gate"}}};       // an option of other commands
  for (const auto& [arguments, words] : by_name)
    EXPECT_TRUE(is_refused(stepladder(arguments), words)) << arguments;
  for (const char* time : {" soon", " 5d", " 300000h", "=-5s", " 0s"})
    EXPECT_TRUE(is_refused(stepladder(plan(cat("--max-time", time))), {"--max-time"})) << time;
  for (const char* list : {"4,", ",4", "4,,8", ","})  // an empty item
    EXPECT_TRUE(is_refused(stepladder(plan(cat("--batch ", list))), {"--batch", list})) << list;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "results.json"));
}

TEST_F(HarnessCli, ListTellsWhatRunsHere) {
  for (const Rung& rung : ladder().rungs) write_file(folder_ / rung.trainer, "built");
  const Outcome outcome = stepladder("list --wide --backend cpu");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream table(outcome.out);
  std::map<std::string, std::string> rows;  // by their first word
  for (std::string line; std::getline(table, line);) rows[line.substr(0, line.find(' '))] = line;
  for (const Rung& rung : ladder().rungs)
    EXPECT_EQ(rows[rung.name].ends_with(" yes"), rung.devices == 1) << "without --devices: " << rung.name;
  const std::string source = read_file(STEPLADDER_SOURCE_DIR "/variants/02_tf32.cpp");
  const auto length = std::ranges::count(source, '\n');
  EXPECT_TRUE(says(rows["02_tf32"], {"sm_80", cat(" ", length, " "), ladder().rungs[2].changes}));
  std::filesystem::remove(folder_ / "02_tf32");
  EXPECT_TRUE(has(stepladder("list --backend cpu").out, "not built"));
  const std::string text = stepladder("list --backend cpu").out;
  EXPECT_TRUE(has(text, "02_tf32"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
  for (const Rung& rung : ladder().rungs) EXPECT_TRUE(has(text, rung.changes)) << rung.name << " has no room";
}

TEST_F(HarnessCli, DoctorNamesAnEnergyCounterThatStandsStill) {
  std::filesystem::create_directories(folder_ / "rapl/intel-rapl:0");
  write_file(folder_ / "rapl/intel-rapl:0/name", "package-0\n");
  write_file(folder_ / "rapl/intel-rapl:0/energy_uj", "500\n");
  const Environment rapl("STEPLADDER_RAPL", folder_ / "rapl");
  EXPECT_TRUE(says(stepladder("doctor").out, {"energy", "unknown", "still"}));
}

TEST_F(HarnessCli, DoctorSaysWhatIsMissingAndSucceeds) {
  std::filesystem::remove(folder_ / "02_tf32");
  EXPECT_TRUE(ended(stepladder("doctor"), 0,
                    {"missing: " + folder_ / "02_tf32", "python3-matplotlib", "sm_80",
                     "no: needs --devices 2", tokenizer_unicode()}))
      << "as list says";
}

TEST_F(HarnessCli, TrainAndSampleHandEverythingToTheRung) {
  FakeRung{.name = "01_causal_mask", .before_start = "echo \"$arguments\"; exit 7"}.write(folder_);
  Outcome outcome = stepladder("train causal_mask --steps 3 --help --prompt 'a  b'");
  EXPECT_EQ(outcome.code, 7);
  EXPECT_EQ(outcome.out, "--steps 3 --help --prompt a  b\n");
  outcome = stepladder("sample 01 --checkpoint x");
  EXPECT_EQ(outcome.out, "--steps 0 --checkpoint x\n");
}

TEST_F(HarnessCli, TrainLooksForNoLargerBatchThanAskedFor) {
  // 14 runs this trainer too
  FakeRung{.name = "13_cuda_graphs", .before_start = "echo \"$arguments\"; exit 0"}.write(folder_);
  EXPECT_TRUE(has(stepladder("train 14").out, "--max-batch "));
  for (const char* asked : {"--max-batch=2", "--max-batch 2"})  // the last of repeated options counts
    EXPECT_TRUE(stepladder(cat("train 14 ", asked)).out.ends_with(cat(asked, "\n"))) << asked;
}

// ---- run -------------------------------------------------------------------------------------------------

TEST_F(HarnessCli, RunSaysThatOtherProcessesKeepTheMachineBusy) {
  constexpr const char* kBusy = "cores busy";
  const Environment real_sample("STEPLADDER_BUSY_SAMPLE_MS", "200");
  Outcome outcome;
  {
    std::atomic<bool> done = false;
    std::vector<std::jthread> others;
    for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i)
      others.emplace_back([&] {
        while (!done) {
        }
      });
    outcome = stepladder(plan("--rungs 00 --rounds 1"));
    done = true;
  }
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_GT(results().context["busy_cores"], 0.5);
  EXPECT_TRUE(has(outcome.err, kBusy));
  EXPECT_TRUE(has(outcome.out, kBusy));
}

TEST_F(HarnessCli, OutputThatCannotBeWrittenIsAFailure) {
  ASSERT_EQ(stepladder(plan("--rungs 00")).code, 0);
  const std::string file = folder_ / "results.json";
  for (const std::string& command :
       {std::string("list"), std::string("--help"), "export " + file, cat("compare ", file, " ", file),
        std::string("diff 00 01"), cat("plan-run ", file, " --tokens 1e9")})
    EXPECT_TRUE(is_refused(shell(cat(kStepladder, " ", command, " >/dev/full")), {}, kExitFailed)) << command;
  for (const std::string& command : {std::string("doctor"), cat("report ", file, " --out page"),
                                     plan("--rungs 00 --overwrite --rounds 1")})
    for (const char* to : {">/dev/full", ">&-", "<&- >&-"})
      EXPECT_TRUE(
          ended(shell(cat(kStepladder, " ", command, " ", to)), kExitFailed, {}, {"output", "disk full"}))
          << command << to;
}

TEST_F(HarnessCli, WhatIsOverwrittenStaysUntilARunIsFinished) {
  ASSERT_EQ(stepladder(plan("--rungs 00")).code, 0);
  const std::string before = read_file(folder_ / "results.json");
  FakeRung{.name = "00_fp32_baseline", .before_start = cat("echo >", folder_ / "started", "; sleep 100")}
      .write(folder_);
  const pid_t pid = start(plan("--rungs 00 --overwrite"));
  ASSERT_TRUE(appears("started"));
  EXPECT_EQ(read_file(folder_ / "results.json"), before);
  ::kill(pid, SIGTERM);
  EXPECT_EQ(wait_for(pid), 128 + SIGTERM);
  const std::string err = read_file(folder_ / "err.txt");
  EXPECT_TRUE(says(err, {"interrupted", "results.json"}) && !has(err, "stepladder resume")) << err;
  EXPECT_EQ(read_file(folder_ / "results.json"), before);
  rung("00_fp32_baseline").write(folder_);
  ASSERT_EQ(stepladder(plan("--rungs 00 --overwrite --rounds 3")).code, 0);
  EXPECT_EQ(results().runs.size(), 3U);
}

TEST_F(HarnessCli, ASignalDuringTheChartsEndsTheReport) {
  ASSERT_EQ(stepladder(plan("--rungs 00")).code, 0);
  write_script(folder_ / "slow", cat("echo >", folder_ / "drawing", "\nexec sleep 100\n"));
  for (const char* command : {"report results.json --out page", "history . --out page"})
    for (const int signal : {SIGTERM, SIGINT}) {
      std::filesystem::remove(folder_ / "drawing");
      const Environment python("STEPLADDER_PYTHON", folder_ / "slow");
      const pid_t pid = start(command);
      ASSERT_TRUE(appears("drawing"));
      for (const auto& entry :
           std::filesystem::directory_iterator(folder_ / "page"))  // a kill must leave no temporary file
        EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
      ::kill(pid, signal);
      EXPECT_EQ(wait_for(pid), 128 + signal) << command;
    }
}

TEST_F(HarnessCli, ResumingMayAddRoundsAndRetryWhatFailed) {
  FakeRung{.name = "01_causal_mask", .before_end = "exit 7"}.write(folder_);
  ASSERT_EQ(stepladder(plan("--rungs 00,01 --rounds 1")).code, kExitFailed);
  rung("01_causal_mask").write(folder_);
  ASSERT_EQ(stepladder(plan("--rungs 00,01 --rounds 2 --resume")).code, kExitFailed)
      << "it keeps what failed";
  EXPECT_EQ(results().runs.size(), 4U);
  EXPECT_EQ(results().plan["rounds"], 2);
  ASSERT_EQ(stepladder(plan("--rungs 00,01 --rounds 2 --resume --retry-failed")).code, 0);
  ASSERT_EQ(results().runs.size(), 4U);
  for (const stepladder::Run& run : results().runs) EXPECT_EQ(run.status, Status::ok);
  EXPECT_EQ(stepladder(plan("--rungs 00,01 --rounds 2 --retry-failed")).code, kExitUsage);
}

TEST_F(HarnessCli, WhatFailedIsKeptWhereThereIsNoTimeToRunItAgain) {
  FakeRung{.name = "00_fp32_baseline", .before_end = "exit 7"}.write(folder_);
  ASSERT_EQ(stepladder(plan("--rungs 00 --rounds 2")).code, kExitFailed);
  Results twice = results();  // an older file went on with a rung that had failed
  ASSERT_EQ(twice.runs.size(), 1U);
  twice.runs.push_back(twice.runs[0]);
  twice.runs[1].round = 1;
  write_file(folder_ / "results.json", file_text(twice));
  rung("00_fp32_baseline").write(folder_);
  EXPECT_EQ(stepladder(plan("--rungs 00 --rounds 2 --resume --retry-failed --max-time 0.001s")).code,
            kExitFailed);
  ASSERT_EQ(results().runs.size(), 2U);
  EXPECT_EQ(results().runs[0].status, Status::ok);
  EXPECT_EQ(results().runs[1].status, Status::crash) << "which nothing has replaced";
}

TEST_F(HarnessCli, AFileIsGoneOnWithByItsNameAlone) {
  ASSERT_EQ(stepladder(plan("--rungs 00,01 --rounds 1 --overwrite")).code, 0);
  EXPECT_TRUE(ended(stepladder("resume results.json --rounds 3"), 0, {}, {"stepladder run --backend cpu"}));
  EXPECT_EQ(results().runs.size(), 6U);
  EXPECT_EQ(stepladder("resume results.json").code, 0) << "nothing is left to do";
  EXPECT_EQ(results().runs.size(), 6U);
  EXPECT_EQ(results().plan["rounds"], 3) << "not what the first command said";
  const Outcome fewer = stepladder("resume results.json --rounds 2");
  EXPECT_EQ(fewer.code, kExitUsage);
  EXPECT_TRUE(one_line(fewer.err.substr(fewer.err.find('\n') + 1)) && has(fewer.err, "3 rounds"))
      << fewer.err;
  EXPECT_EQ(stepladder("resume").code, kExitUsage);
  EXPECT_EQ(stepladder("resume results.json --out other.json").code, kExitUsage) << "it has its file";
  EXPECT_EQ(stepladder("resume nowhere.json").code, kExitUsage);
  const auto resume_other = [&](const char* command, const char* options) {
    write_file(folder_ / "other.json", std::regex_replace(read_file(folder_ / "results.json"),
                                                          std::regex("stepladder run[^\"]*"), command));
    return stepladder(cat("resume other.json ", options));
  };
  EXPECT_FALSE(has(resume_other("stepladder rm", "").err, "stepladder rm")) << "it would be started";
  EXPECT_TRUE(ended(resume_other("stepladder run --ladder --python x", "--ladder nowhere.json --python B"),
                    kExitUsage, {}, {"nowhere.json: "}))
      << "each is another's value";
}

TEST_F(HarnessCli, InANamespaceOfProcessIdsRungsAreMeasuredToo) {
  if (shell("unshare --pid --fork true").code != 0) GTEST_SKIP() << "no namespaces here";
  const std::string of_step =
      " --backend cpu --model gpt2-tiny --batch 1 --seq 8 --steps 2 --warmup 1 --data data.bin ";
  // LeakSanitizer is off, since it would find no threads: /proc is the outer namespace's.
  const auto inside = [&](const std::string& command) {
    return shell(cat("ASAN_OPTIONS=detect_leaks=0 STEPLADDER_BIN_DIR=" STEPLADDER_BIN
                     " unshare --pid --fork ",
                     kStepladder, command, of_step));
  };
  EXPECT_TRUE(ended(inside(" profile 00"), 0));
  ASSERT_TRUE(ended(inside(" run --rungs 00 --rounds 1 --out results.json"), 0));
  EXPECT_GT(results().runs.at(0).summary->startup_ms, 0.0);
}

TEST_F(HarnessCli, ALongCommandIsGoneOnWithToo) {
  const std::string data = folder_ / std::string(200, 'd');
  std::filesystem::copy(folder_ / "data.bin", data);
  ASSERT_EQ(stepladder(plan(cat("--rounds 1 --data ", data))).code, 0);
  EXPECT_TRUE(ended(stepladder("resume results.json --rounds 2"), 0));
  EXPECT_EQ(results().runs.size(), 6U);
}

TEST_F(HarnessCli, WhatCannotBeReplacedIsRefusedBeforeAnythingIsMeasured) {
  if (shell("unshare --mount true").code != 0) GTEST_SKIP() << "nothing may be mounted here";
  ASSERT_EQ(stepladder(plan("--rungs 00 --rounds 1")).code, 0);
  const std::string before = read_file(folder_ / "results.json");
  EXPECT_TRUE(ended(shell(cat("unshare --mount sh -c 'mount --bind results.json results.json && exec ",
                              kStepladder, " ", plan("--rungs 00 --rounds 1 --overwrite"), "'")),
                    kExitUsage, {}, {"results.json"}));
  EXPECT_EQ(read_file(folder_ / "results.json"), before);
}

TEST_F(HarnessCli, ACommandThatAFileCannotKeepIsToBeRepeated) {
  const std::string data = folder_ / "d\xff";
  std::filesystem::copy(folder_ / "data.bin", data);
  ASSERT_EQ(stepladder(plan(cat("--rounds 1 --data ", data))).code, 0);
  EXPECT_TRUE(is_refused(stepladder("resume results.json --rounds 2"), {"results.json", "--resume"}));
  EXPECT_EQ(stepladder(plan(cat("--rounds 2 --resume --data ", data))).code, 0);
}

TEST_F(HarnessCli, VariablesThatChangeWhatLibrariesComputeAreRecordedAndHeldTo) {
  const std::string variables =
      "NVIDIA_TF32_OVERRIDE=0 CUBLAS_EMULATE_SINGLE_PRECISION=1 CUBLAS_VERSION=13 "
      "NVIDIA_VISIBLE_DEVICES=all ";
  const std::string run = cat(kStepladder, " ", plan("--rungs 00 --rounds 1 --out "));
  ASSERT_EQ(shell(variables + run + "with.json").code, 0);
  ASSERT_EQ(shell(run + "without.json").code, 0);
  EXPECT_EQ(load_results(folder_ / "with.json").context["environment"],
            (Json{{"CUBLAS_EMULATE_SINGLE_PRECISION", "1"}, {"NVIDIA_TF32_OVERRIDE", "0"}}));
  EXPECT_FALSE(load_results(folder_ / "without.json").context.contains("environment"));
  EXPECT_TRUE(has(stepladder("report with.json").out, "NVIDIA_TF32_OVERRIDE=0"));
  EXPECT_FALSE(has(stepladder("report without.json").out, "NVIDIA_TF32_OVERRIDE"));
  for (const char* other :
       {"compare with.json without.json", "compare without.json with.json", "resume with.json --rounds 2"})
    EXPECT_TRUE(ended(stepladder(other), kExitNotComparable, {}, {"NVIDIA_TF32_OVERRIDE"})) << other;
  EXPECT_EQ(shell(cat(variables, kStepladder, " resume with.json --rounds 2")).code, 0);
}

TEST_F(HarnessCli, RungsMayBeARange) {
  ASSERT_EQ(stepladder(plan("--rungs 00-01_causal_mask,02 --rounds 1")).code, 0);
  EXPECT_EQ(results().runs.size(), 3U);
  for (const char* rungs : {"02-00", "00-", "-02", "00-02-03"})
    EXPECT_EQ(stepladder(plan(cat("--overwrite --rungs ", rungs))).code, kExitUsage) << rungs;
  EXPECT_TRUE(says(stepladder(plan("--overwrite --rungs 00-")).err, {"--rungs 00-", "two ends"}));
}

TEST_F(HarnessCli, AReportOfAFileThatLiesHereHasAFolderOfItsOwn) {
  ASSERT_EQ(stepladder(plan("--rungs 00")).code, 0);
  ASSERT_EQ(stepladder("report results.json").code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "report/summary.md"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "summary.md"));
}

TEST_F(HarnessCli, ErrorsQuoteNoControlCharacters) {
  for (const char* arguments :
       {"$(printf 'x\\033[2J\\ny')", "run --steps $(printf '\\033[2J')", "compare $(printf 'a\\033b\\nc') x",
        "run --seed 12345678901234567890123", "run --rungs $(printf '\\033')"}) {
    const Outcome outcome = stepladder(arguments);
    EXPECT_TRUE(is_refused(outcome)) << arguments;
    EXPECT_FALSE(has(outcome.err, "\033")) << outcome.err;
  }
}

TEST_F(HarnessCli, AFolderThatIsGoneIsNamed) {
  EXPECT_TRUE(
      is_refused(shell(cat("mkdir gone; cd gone; rmdir ../gone; ", kStepladder, " check-trainer true")),
                 {"current folder", "No such file"}));
}

#if !defined(STEPLADDER_SANITIZED)  // UBSan needs a pipe of its own to look at an object
TEST_F(HarnessCli, TooFewFileDescriptorsAreNoFaultOfTheDevice) {
  for (int limit = 5; limit <= 12; ++limit) {
    const Outcome outcome = shell(cat("ulimit -n ", limit, "; ", kStepladder, " ", plan("--rungs 00")));
    EXPECT_NE(outcome.code, 0) << limit;
    EXPECT_TRUE(has(outcome.err, "Too many open files")) << limit << ": " << outcome.err;
    if (has(outcome.err, "cannot make a pipe")) {
      EXPECT_TRUE(has(outcome.err, "ulimit -n")) << outcome.err;
    }
  }
}
#endif

TEST_F(HarnessCli, RunMeasuresEveryRungInTurns) {
  const Outcome outcome = stepladder(plan());
  ASSERT_TRUE(ended(
      outcome, 0, {kLearnAlike, "02_tf32", "wrote results.json"},
      {"[2/6] 01_causal_mask", "gpt2-tiny B=4 T=32", "round 0", "ok", cat(sized(FakeRung::kStepMs), " ms")}));
  EXPECT_EQ(climbed(), "00 01 02 02 01 00");
  const Results results = this->results();
  EXPECT_TRUE(results.complete);
  for (const char* key :
       {"version", "commit", "command_line", "time", "host", "os", "cpu", "cores", "device"})
    EXPECT_TRUE(results.context.contains(key)) << key;
  EXPECT_TRUE(has(results.context["command_line"], "--steps 6"));
  EXPECT_TRUE(has(stepladder("--version").out, text_at(results.context, "commit")));

  const Json json = exported();
  expect_contract(folder_ / "results.json");
  ASSERT_EQ(json["variants"].size(), 3U);
  EXPECT_EQ(json["variants"][2]["speedup_previous"]["against"], "01_causal_mask");
  EXPECT_EQ(json["variants"][2]["median_step_ms"]["value"], FakeRung::kStepMs);
  // Without a terminal each finished run prints a plain line.
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 6);
  EXPECT_FALSE(has(outcome.err, "\r"));
}

TEST_F(HarnessCli, BatchSizesAndRungsAreChosen) {
  ASSERT_EQ(stepladder(plan("--rungs 02,00_fp32_baseline --batch 4,8 --rounds 1")).code, 0);
  EXPECT_EQ(climbed(), "00 02 00 02");
  EXPECT_EQ(results().runs[3].workload(), "gpt2-tiny B=8 T=32");
}

TEST_F(HarnessCli, TheOrderOfTheRungsIsChosen) {
  const auto order = [&](const std::string& options) {
    EXPECT_TRUE(ended(stepladder(plan("--overwrite --rounds 4 " + options)), 0));
    return sequence(load_results(folder_ / "results.json"));
  };
  EXPECT_EQ(order(""), "00 01 02 02 01 00 00 01 02 02 01 00");
  EXPECT_EQ(order("--order forward"), "00 01 02 00 01 02 00 01 02 00 01 02");
  const std::string shuffled = order("--order shuffled --order-seed 7");
  EXPECT_EQ(order("--order shuffled --order-seed 7"), shuffled) << "a function of the seed";
  EXPECT_NE(order("--order shuffled --order-seed 8"), shuffled);
  for (int round = 0; round < 4; ++round)
    for (const char* rung : {"00", "01", "02"})
      EXPECT_TRUE(has(shuffled.substr(round * 9, 8), rung)) << shuffled << ": each once a round";
}

TEST_F(HarnessCli, RoundsAreAddedUntilTheIntervalsAreNarrow) {
  EXPECT_TRUE(ended(stepladder(plan("--until-ci 1")), 0, {"interval", "6 rounds"}));
  const Results results = load_results(folder_ / "results.json");
  EXPECT_EQ(results.runs.size(), 18U) << "six rounds of the same time are the least";
  EXPECT_EQ(results.stopped["reason"], "interval");
  EXPECT_EQ(results.stopped["rounds"], 6);
  EXPECT_EQ(results.plan["until_ci"], 1.0);
}

TEST_F(HarnessCli, AddedRoundsGoOnWhereAnInterruptionLeftThem) {
  FakeRung{.name = "01_causal_mask",
           .step_ms = "1.$((c % 5))5",
           .before_start = "c=$(cat counter 2>/dev/null || echo 0); echo $((c + 1)) >counter"}
      .write(folder_);
  const std::string command = plan("--until-ci 0.5 --max-rounds 8 --order shuffled");
  ASSERT_EQ(stepladder(command).code, 0);
  const Results whole = load_results(folder_ / "results.json");
  EXPECT_EQ(whole.stopped["reason"], "max_rounds");
  EXPECT_EQ(whole.runs.size(), 24U);

  Results cut = whole;
  cut.complete = false;
  cut.stopped = nullptr;
  cut.runs.resize(7);  // cuts the file within a round
  write_file(folder_ / "results.json", file_text(cut));
  EXPECT_TRUE(ended(stepladder(command + " --resume"), 0));
  const Results resumed = load_results(folder_ / "results.json");
  EXPECT_EQ(sequence(resumed), sequence(whole));
  EXPECT_EQ(resumed.stopped["rounds"], 8);
  EXPECT_EQ(stepladder(plan("--until-ci 0.6 --max-rounds 8 --order shuffled --resume")).code, 4);
}

TEST_F(HarnessCli, TimeThatIsUpBeginsNoRound) {
  EXPECT_TRUE(ended(stepladder(plan("--rounds 50 --max-time 0.001s")), 0));
  const Results results = load_results(folder_ / "results.json");
  EXPECT_TRUE(results.complete);
  EXPECT_EQ(results.runs.size(), 3U) << "the first round is whole";
  EXPECT_EQ(results.stopped["reason"], "max_time");
  EXPECT_GT(results.stopped["spent_s"], 0.0);
  const Outcome again = stepladder(plan("--rounds 50 --max-time 0.001s --resume"));
  EXPECT_TRUE(has(again.err, "--max-time")) << again.err;
  EXPECT_EQ(load_results(folder_ / "results.json").runs.size(), 3U);
}

TEST_F(HarnessCli, ThrottledRunsAreSaidAndNotClaimed) {
  FakeRung{.name = "02_tf32",
           .telemetry = R"(,"sm_mhz":1200,"throttle":["sw_power_cap","hw_thermal_slowdown"])"}
      .write(folder_);
  FakeRung{.name = "01_causal_mask", .telemetry = R"(,"sm_mhz":1700,"throttle":["sw_power_cap"])"}.write(
      folder_);
  EXPECT_TRUE(ended(stepladder(plan()), 0, {"ok, throttled", "claimed"}, {"throttled", "4 steps"}));
  const auto rows = aggregate(load_results(folder_ / "results.json"));
  expect_contract(folder_ / "results.json");
  EXPECT_TRUE(rows[1].numbers->baseline) << "a full power budget is how a device works";
  EXPECT_FALSE(rows[2].numbers->baseline);
}

TEST_F(HarnessCli, ThrottledRoundsOfAPeerAreKnownThoughItDoesNotTell) {
  const std::string nvml = cat("export STEPLADDER_NVML=" STEPLADDER_FAKE_NVML, " FAKE_NVML_REASONS=0x40; ");
  ASSERT_TRUE(ended(shell(cat(nvml, kStepladder, " ", plan("--rungs 00 --rounds 1" + peers(FakeRung())))), 0,
                    {"pytorch/00_fp32_baseline, gpt2-tiny B=4 T=32", "throttled"}));
  for (const stepladder::Run& run : results().runs) {
    const bool peer = !run.peer.empty();
    EXPECT_EQ(run.steps[5].device.power_w, peer ? std::optional(698.5) : std::nullopt) << run.variant;
    EXPECT_EQ(run.throttled(), peer) << run.variant << ": a rung samples for itself";
  }
}

TEST_F(HarnessCli, OptionsOfTheRungsGoToThoseThatUnderstandThem) {
  const auto logging = [&](FakeRung fake) {
    fake.before_start = cat("echo $name: $arguments >>", folder_ / "log.txt");
    return fake;
  };
  for (const char* name : {"00_fp32_baseline", "05_mixed_precision"}) logging(rung(name)).write(folder_);
  const std::string peer = peers(logging(FakeRung()));
  const std::string ours =
      " --loss-scale 1024 --attention native --deterministic --narrow-access --late-launch --nccl "
      "--compute-capability 75 --cache found --search-again";
  ASSERT_EQ(stepladder(plan("--rungs 00,05 --rounds 1 --seed 3 --dtype fp16" + ours + peer)).code, 0);
  std::map<std::string, std::string> told;
  std::istringstream log(read_file(folder_ / "log.txt"));
  for (std::string line; std::getline(log, line);) told[line.substr(0, line.find(':'))] = line + " ";
  for (const auto& [name, arguments] : told) {
    const bool half = has(name, "05") || name == "llmc", is_peer = has(name, "/") || name == "llmc";
    EXPECT_EQ(has(arguments, " --dtype fp16 "), half) << arguments;
    for (const char* option : {" --seed 3 ", " --attention native "})
      EXPECT_TRUE(has(arguments, option)) << arguments;
    for (const char* option :
         {" --loss-scale 1024 ", " --deterministic ", " --narrow-access ", " --late-launch ", " --nccl ",
          " --compute-capability 75 ", " --cache found ", " --search-again "})
      EXPECT_EQ(has(arguments, option), !is_peer) << arguments;
  }
  EXPECT_EQ(told.size(), 5U);
  const Json asked = results().plan;
  EXPECT_EQ(asked["dtype"], "fp16");
  EXPECT_EQ(asked["loss_scale"], 1024.0);
  EXPECT_EQ(asked["deterministic"], true);

  EXPECT_TRUE(ended(stepladder(plan("--rungs 00,05 --rounds 1 --seed 3 --dtype bf16 --resume" + ours + peer)),
                    4, {}, {"plan.dtype", "fp16", "bf16"}));
}

TEST_F(HarnessCli, TheRungsThemselvesTakeTheirOptionsFromARun) {
  ASSERT_TRUE(ended(
      with_rungs(
          "run --backend cpu --model gpt2-tiny --batch 1 --seq 8 --steps 2 --warmup 0 --rounds 1 --rungs "
          "00,05 --data data.bin --out results.json --dtype fp16 --deterministic --loss-scale 512"),
      0, {"medians of 2"}));
  const Results measured = results();
  for (const stepladder::Run& run : measured.runs) {
    EXPECT_EQ(run.config["deterministic"], true);
    EXPECT_EQ(run.config["loss_scale"], 512.0);
  }
  expect_contract(folder_ / "results.json");
  EXPECT_EQ(measured.runs[0].config["dtype"], "f32");
  EXPECT_EQ(measured.runs[1].config["dtype"], "f16");
  EXPECT_TRUE(measured.runs[1].summary->skipped_steps);
}

TEST_F(HarnessCli, AProfileIsOfTheModelThatARunMeasuresHere) {
  const Outcome outcome =
      with_rungs("profile 00 --backend cpu --steps 2 --warmup 1 --data data.bin --out p.json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_FALSE(has(outcome.err, "may take minutes")) << outcome.err;
  const Json file = stepladder::exported(folder_ / "p.json");
  const Json config = file["profile"]["config"];
  const Preset& preset = find_preset("cpu-quick");
  EXPECT_EQ(config["model"], preset.model);
  EXPECT_EQ(config["B"], preset.batch.front());
  EXPECT_EQ(config["T"], preset.seq);
}

TEST_F(HarnessCli, AProfileMayLieAtAnyPath) {
  EXPECT_TRUE(ended(with_rungs("profile 00 --backend cpu --model gpt2-tiny --batch 1 --seq 8 --steps 2 "
                               "--warmup 1 --data data.bin --out p\xff.json"),
                    0, {"Types of the numbers", "\nmatmul", "  f32\n"}));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "p\xff.json"));
}

TEST_F(HarnessCli, SeedsOfFixedStepsAreCertified) {
  FakeRung{.name = "00_fp32_baseline",
           .before_start = cat("echo $arguments >>", folder_ / "told.txt"),
           .before_end = cat("runs=$(wc -l <", folder_ / "told.txt",
                             R"(); say '{"event":"eval","step":'$i',"val_loss":4.9'$runs'}')")}
      .write(folder_);
  const std::string of_seeds =
      "run --backend cpu --model gpt2-tiny --batch 4 --seq 32 --warmup 2 --overwrite --out results.json "
      "--data data.bin --rungs 00 --seeds 4 --steps 6 ";
  EXPECT_TRUE(ended(stepladder(of_seeds + "--certify-loss 5"), kExitOk, {"CERTIFIED", "1340"}));
  expect_contract(folder_ / "results.json");
  for (const stepladder::Run& run : results().runs) {
    EXPECT_EQ(run.config["seed"], 1337 + run.round);
    EXPECT_EQ(run.steps.size(), 6U);
    EXPECT_FALSE(run.summary->to_loss);
  }
  EXPECT_TRUE(says(read_file(folder_ / "told.txt"), {"--shuffle", "--steps 6", "--eval-every 6"}));
  EXPECT_EQ(stepladder("certify results.json").code, kExitOk) << "the loss asked for is in the file";
  EXPECT_TRUE(ended(stepladder("resume results.json --seeds 5"), kExitUsage, {}, {"all 4 seeds", "--seed"}));
  EXPECT_EQ(stepladder(of_seeds + "--certify-loss 4.9").code, kExitInconclusive);
  EXPECT_EQ(stepladder(of_seeds).code, kExitOk);
  EXPECT_EQ(stepladder("certify results.json").code, kExitUsage) << "no loss was asked for";
  for (const char* wrong : {"--rounds 4", "--until-loss 5", "--until-ci 1"})
    EXPECT_EQ(stepladder(of_seeds + wrong).code, kExitUsage) << wrong;
  EXPECT_EQ(stepladder(plan("--certify-loss 5")).code, kExitUsage);
  EXPECT_TRUE(is_refused(stepladder(of_seeds + "--certify-loss 5 --seeds 2"), {"--seeds 3"}));
}

TEST_F(HarnessCli, HorizonsAreSearchedByHalvesAndCertifiedByFreshSeeds) {
  FakeRung fake = rung("00_fp32_baseline");
  fake.step_ms = "1.05";
  fake.before_start = cat("echo $arguments >>", folder_ / "told.txt");
  // The loss falls by 0.009 a step and varies by run: it is below 4.8 from step 23 on.
  fake.before_end =
      cat("runs=$(wc -l <", folder_ / "told.txt",
          R"(); say '{"event":"eval","step":'$i',"val_loss":'4.$((999 - i * 9 + runs % 4))'}')");
  fake.write(folder_);
  const std::string horizons =
      "run --backend cpu --model gpt2-tiny --batch 4 --seq 32 --warmup 2 --out h.jsonl --data data.bin "
      "--rungs 00 --seeds 4 --steps 20 --certify-loss 4.8 --horizons ";
  const Outcome outcome = stepladder(horizons + "40");
  EXPECT_TRUE(ended(outcome, kExitOk, {"certify a loss of 4.8: 23", "search_23", "certify_23"}))
      << "one table of all";
  EXPECT_FALSE(says(outcome.out, {"median ms"})) << "no report for each number of steps: " << outcome.out;
  ASSERT_EQ(stepladder("report h.jsonl --out r").code, kExitOk);
  const std::string summary = read_file(folder_ / "r/summary.md");
  EXPECT_LT(summary.find("| search_23 |"), summary.find("| certify_23 |"));
  EXPECT_LT(summary.find("## certify_23"), summary.find("## search_")) << "what is certified leads";
  const auto seeds_of = [&](const std::string& part) {
    std::vector<int64_t> seeds;
    for (const stepladder::Run& run : load_results((folder_ / "h.jsonl:") + part).runs)
      seeds.push_back(run.config["seed"]);
    return seeds;
  };
  EXPECT_EQ(seeds_of("search_23"), (std::vector<int64_t>{1337, 1338, 1339, 1340}));
  EXPECT_EQ(seeds_of("certify_23"), (std::vector<int64_t>{1341, 1342, 1343, 1344}));
  const std::string told = read_file(folder_ / "told.txt");
  EXPECT_LT(std::ranges::count(told, '\n'), 14 * 4) << "of 14 numbers of steps";
  EXPECT_TRUE(says(told, {"--steps 23", "--decay-steps 23 "}));
  EXPECT_EQ(stepladder(horizons + "40").code, kExitUsage) << "the parts are there";
  EXPECT_EQ(stepladder(horizons + "40 --resume").code, kExitOk);
  EXPECT_EQ(read_file(folder_ / "told.txt").size(), told.size()) << "nothing is measured twice";
  EXPECT_EQ(stepladder(horizons + "21 --resume").code, kExitInconclusive);
  for (const char* wrong : {"19 --overwrite", "40 --overwrite --part x"})
    EXPECT_EQ(stepladder(horizons + wrong).code, kExitUsage) << wrong;
  EXPECT_EQ(stepladder(plan("--horizons 40")).code, kExitUsage) << "no loss";
}

TEST_F(HarnessCli, TuneMakesTheSameTrialsOfEachTrainerAndRanksThem) {
  // Rung 00 learns best at 3e-4, rung 02 at 1e-3, both better without decay to 0.
  const auto learns = [&](const char* name, const char* best) {
    FakeRung fake = rung(name);
    fake.before_start = cat("echo $name $arguments >>", folder_ / "told.txt");
    const std::string evaluates =
        cat(R"(loss=5.0; case "$arguments " in *"--lr )", best, R"( "*) loss=4.0 ;; esac)",
            R"(; case "$arguments " in *"--min-lr 0 "*) loss=$loss'5' ;; esac)",
            R"(; say '{"event":"eval","step":'$i',"val_loss":'$loss'}')");
    fake.before_step = cat("if [ $i -gt 0 ]; then ", evaluates, "; fi");
    fake.before_end = evaluates;
    fake.write(folder_);
  };
  learns("00_fp32_baseline", "3e-04");
  learns("02_tf32", "0.001");
  const std::string tune =
      "tune --backend cpu --model gpt2-tiny --batch 2 --seq 16 --warmup 2 --eval-batches 3 --shuffle --rungs "
      "00,02 --out t.jsonl --data data.bin --steps 20,12 --decay-to 0,0.1 ";
  const std::string best = " --steps 20 --decay-steps 20 --warmup-lr-steps 10 --min-lr ";
  EXPECT_TRUE(ended(stepladder(tune + "--lr 3e-4,1e-3"), kExitOk,
                    {cat("--lr 3e-04", best, "3e-05"), cat("--lr 0.001", best, "1e-04")}));
  const std::string told = read_file(folder_ / "told.txt");
  EXPECT_EQ(std::ranges::count(told, '\n'), 2 * 2 * 2 * 2);
  EXPECT_LT(told.find("02_tf32"), told.find("--steps 20")) << "each trainer makes a trial in turn";
  EXPECT_TRUE(says(told, {"--eval-every 1 ", "--eval-every 2 ", "--eval-batches 3 --eval-skip 3", "--seed 1",
                          "--decay-steps 12", "--decay-steps 20"}));
  for (const Part& part : load_parts(folder_ / "t.jsonl")) {
    EXPECT_TRUE(part.name.starts_with("trial_")) << part.name;
    EXPECT_EQ(part.results.runs.size(), 1U);
  }
  expect_contract(folder_ / "t.jsonl");

  EXPECT_EQ(stepladder(tune + "--lr 3e-4,1e-3").code, kExitUsage) << "the trials are there";
  EXPECT_EQ(stepladder(tune + "--lr 3e-4,1e-3 --resume").code, kExitOk);
  EXPECT_EQ(read_file(folder_ / "told.txt").size(), told.size()) << "nothing is measured twice";
  std::string narrower = tune + "--lr 1e-3 --resume --max-time 0.000001";
  narrower.replace(narrower.find("00,02"), 5, "02");
  const Outcome fewer = stepladder(narrower);
  EXPECT_EQ(fewer.code, kExitOk) << fewer.err;
  EXPECT_FALSE(says(fewer.err, {"--max-time left"})) << "what is kept takes no time" << fewer.err;
  EXPECT_EQ(read_file(folder_ / "told.txt").size(), told.size());
  EXPECT_EQ(stepladder(tune + "--lr 3e-4,1e-3 --resume --eval-batches 2").code, kExitNotComparable);
  EXPECT_TRUE(ended(stepladder(tune + "--lr 2e-3 --resume --max-time 0.000001"), kExitOk, {},
                    {"8 of 8", "--resume"}));
  EXPECT_EQ(read_file(folder_ / "told.txt").size(), told.size()) << "no time was left";
  EXPECT_TRUE(ended(stepladder("resume t.jsonl"), kExitOk));
  EXPECT_TRUE(ended(stepladder("resume t.jsonl:" + load_parts(folder_ / "t.jsonl").back().name), kExitOk));
  EXPECT_EQ(read_file(folder_ / "told.txt").size(), told.size()) << "nothing is left to do";

  ASSERT_EQ(stepladder("report t.jsonl --out r").code, kExitOk);
  const std::string summary = read_file(folder_ / "r/summary.md");
  EXPECT_TRUE(says(summary, {"### Trials", "| 00_fp32_baseline | 2 | 3e-04 | 20 |"}));
  size_t shown = 0;
  for (size_t at = 0; (at = summary.find("\n## trial_", at)) != std::string::npos; ++at) ++shown;
  EXPECT_EQ(shown, 4U) << "of each contest, only the best is shown by itself";
  for (const char* wrong :
       {"", "--lr 0", "--lr x", "--lr 1e-3 --warmup-lr-steps 10.5", "--lr 1e-3 --decay-to 2",
        "--lr 1e-3 --warmup-lr-steps 12", "--lr 1e-3 --eval-batches 10000"})
    EXPECT_EQ(stepladder(tune + "--overwrite " + wrong).code, kExitUsage) << wrong;
}

TEST_F(HarnessCli, TuneRanksTheTrialsOfEachWorkloadApartAndRunTakesThemForNoOther) {
  FakeRung fake = rung("00_fp32_baseline");  // learns better with two sequences in a batch
  fake.before_end = R"(say '{"event":"eval","step":'$i',"val_loss":'$((7 - batch))'}')";
  fake.before_step = cat("[ $i -gt 0 ] && ", fake.before_end);
  fake.write(folder_);
  FakeRung{.name = "02_tf32", .before_start = fails("unsupported", "needs sm_80")}.write(folder_);
  const auto tune = [&](const char* batch, const char* out, const char* more = "--lr 1e-3") {
    return stepladder(
        cat("tune --backend cpu --model gpt2-tiny --seq 16 --warmup 2 --rungs 00,02 --steps 20 "
            "--eval-batches 3 --data data.bin --batch ",
            batch, " --out ", out, " ", more));
  };
  EXPECT_TRUE(ended(tune("1,2", "both.jsonl"), kExitOk)) << "what a device can't do is no failure";
  std::map<std::string, double> losses;
  for (const Trial& trial : trials_of(load_parts(folder_ / "both.jsonl")))
    if (trial.worked()) losses[trial.workload] = trial.loss.value_or(0.0);
  EXPECT_EQ(losses,
            (std::map<std::string, double>{{"gpt2-tiny B=1 T=16", 6.0}, {"gpt2-tiny B=2 T=16", 5.0}}));

  ASSERT_EQ(tune("2", "two.jsonl").code, kExitOk);
  const std::string run =
      "run --backend cpu --model gpt2-tiny --seq 16 --rungs 00 --seeds 1 --steps 20 --check-only --data "
      "data.bin";
  EXPECT_EQ(stepladder(run + " --batch 2 --tuned two.jsonl").code, kExitOk);
  ASSERT_EQ(tune("2", "seeds.jsonl").code, kExitOk);
  ASSERT_EQ(tune("2", "seeds.jsonl", "--seed 9 --lr 2e-3 --resume").code, kExitOk);
  EXPECT_EQ(best_of(trials_of(load_parts(folder_ / "seeds.jsonl"))).size(), 2U) << "seeds don't compete";
  write_file(folder_ / "my.jsonl", std::regex_replace(read_file(folder_ / "two.jsonl"),
                                                      std::regex("\"gpt2-tiny\""), "\"my-gpt2-tiny\""));
  for (const char* other : {" --batch 4 --tuned two.jsonl", " --batch 2 --tuned both.jsonl",
                            " --batch 2 --tuned seeds.jsonl", " --batch 2 --tuned my.jsonl"})
    EXPECT_TRUE(is_refused(stepladder(run + other), {"--tuned", "B="}));
}

TEST_F(HarnessCli, TuneRanksByTheStepsToALossWhereOneIsGiven) {
  FakeRung fake = rung("00_fp32_baseline");  // the loss falls by 5 a step, at --lr 1e-3 by 10, at 1e-2 by 0
  fake.before_step =
      R"(case $arguments in *"--lr 0.001"*) fall=10 ;; *"--lr 0.01"*) fall=0 ;; *"--lr 0.002"*) fall=45 ;; *) fall=5 ;; esac
say '{"event":"eval","step":'$i',"val_loss":'$((90 - i * fall))'}'
[ $((90 - i * fall)) -le 50 ] && break)";
  fake.write(folder_);
  const std::string of_rung =
                        " --backend cpu --model gpt2-tiny --batch 2 --seq 16 --eval-every 1 --rungs 00 ",
                    tune = cat("tune", of_rung, "--eval-batches 3 --data data.bin --steps 12 --until-loss ");
  EXPECT_TRUE(ended(stepladder(tune + "50 --warmup-lr-steps 2 --lr 5e-4,1e-2,1e-3 --seeds 2 --out t.jsonl"),
                    kExitOk));
  const std::vector<Trial> ranked = trials_of(load_parts(folder_ / "t.jsonl"));
  ASSERT_EQ(ranked.size(), 3U);
  EXPECT_FLOAT_EQ(static_cast<float>(ranked[0].lr), 1e-3F);
  EXPECT_NEAR(ranked[0].to_loss.value_or(0), 4.0, 1e-9);
  EXPECT_EQ(ranked[0].seeds, 2U);
  EXPECT_FLOAT_EQ(static_cast<float>(ranked[1].lr), 5e-4F);
  EXPECT_NEAR(ranked[1].to_loss.value_or(0), 8.0, 1e-9);
  EXPECT_FALSE(ranked[2].worked()) << "it missed the loss";
  EXPECT_EQ(ranked[0].options(),
            "--lr 0.001 --max-steps 12 --decay-steps 12 --warmup-lr-steps 2 --min-lr 1e-04");
  EXPECT_EQ(best_of(ranked).size(), 1U);

  const Outcome early = stepladder(tune + "50 --lr 2e-3 --out early.jsonl");
  EXPECT_TRUE(trials_of(load_parts(folder_ / "early.jsonl")).at(0).at_first) << early.out;
  EXPECT_TRUE(says(early.out, {"--eval-every"})) << "a trial's place says little: " << early.out;
  EXPECT_FALSE(says(early.out, {"Best of"}));

  ASSERT_EQ(stepladder(tune + "50 --lr 1e-2 --out missed.jsonl").code, kExitInconclusive);
  EXPECT_TRUE(ended(stepladder("report missed.jsonl"), kExitOk, {"above 50"}));

  fake.before_start = cat("echo $arguments >>", folder_ / "told.txt");
  fake.write(folder_);
  const std::string run = cat("run", of_rung, "--tuned t.jsonl --overwrite --rounds 1 --data data.bin");
  EXPECT_EQ(stepladder(run + " --until-loss 50").code, kExitOk);
  EXPECT_TRUE(says(read_file(folder_ / "told.txt"), {"--steps 12", "--lr 0.001", "--min-lr 1e-04",
                                                     "--warmup-lr-steps 2", "--decay-steps 12"}));
  for (const char* wrong : {"", " --until-loss 40", " --until-loss 50 --max-steps 9",
                            " --until-loss 50 --rungs 02", " --until-loss 50 --lr 1e-3",
                            " --until-loss 50 --decay-steps 9", " --until-loss 50 --seeds 2", " --seeds 2"})
    EXPECT_EQ(stepladder(run + wrong).code, kExitUsage) << wrong;
  EXPECT_EQ(stepladder(tune + "55 --lr 1.1e-2 --out t.jsonl").code, kExitInconclusive)
      << "older trials reached another loss";
}

TEST_F(HarnessCli, TuneTakesAnOptionThatOneOfItsTrainersTakes) {
  const std::string tune =
      "tune --backend cpu --model gpt2-tiny --batch 2 --seq 16 --warmup 2 --steps 12 --lr 1e-3 "
      "--eval-batches 3 --dtype bf16 --out t.jsonl --data data.bin";
  FakeRung half = rung("05_mixed_precision");
  half.before_end = R"(say '{"event":"eval","step":'$i',"val_loss":4}')";
  for (FakeRung fake : {half, rung("00_fp32_baseline")}) {
    fake.before_step = cat("[ $i -gt 0 ] && ", half.before_end);
    fake.before_end = half.before_end;
    fake.write(folder_);
  }
  EXPECT_EQ(stepladder(tune + " --rungs 00").code, kExitUsage);
  EXPECT_TRUE(ended(stepladder(tune + " --rungs 00,05"), kExitOk));
  EXPECT_EQ(load_parts(folder_ / "t.jsonl").size(), 2U);
}

TEST_F(HarnessCli, TimeToALossIsTakenOverSeedsAndWhatMissesItIsSaid) {
  FakeRung learns = rung("00_fp32_baseline"), hardly = rung("02_tf32");
  learns.before_step = R"(say '{"event":"eval","step":'$i',"val_loss":'$((9 - i))'}'; [ $i = 4 ] && break)";
  hardly.before_step = R"(say '{"event":"eval","step":'$i',"val_loss":9}')";
  learns.write(folder_);
  hardly.write(folder_);
  const std::string until =
      "run --backend cpu --model gpt2-tiny --batch 4 --seq 32 --rounds 2 --out results.json --data data.bin "
      "--until-loss 5 --max-steps 6 --eval-every 1 --rungs ";
  EXPECT_EQ(stepladder(until + "00").code, 0);
  expect_contract(folder_ / "results.json");
  for (const stepladder::Run& run : results().runs) {
    EXPECT_EQ(run.config["seed"], 1337 + run.round);
    EXPECT_TRUE(run.summary->to_loss->reached);
  }
  EXPECT_TRUE(is_refused(stepladder(until + "00 --overwrite --until-loss 0"), {"--until-loss"}));
  const Outcome outcome = stepladder(until + "00,02 --overwrite");
  EXPECT_TRUE(ended(outcome, 3, {"trained to a loss", "0 of 2", "2 of 2"}, {"2 of 4 runs", "--max-steps"}));
  EXPECT_FALSE(has(outcome.out, kLearnAlike)) << "no losses were compared";
  EXPECT_EQ(results().runs.size(), 4U) << "finished runs are kept";
  for (const char* into : {">", ">>"})
    ASSERT_EQ(
        shell(cat(kStepladder, " ", until, "00 --overwrite && cat results.json ", into, "twice.json")).code,
        0);
  EXPECT_TRUE(says(stepladder("report twice.json").out, {"00_fp32_baseline", "4 runs are of 2 seeds"}));
  for (const char* wrong : {"00 --steps 5", "00 --until-loss -1"})
    EXPECT_EQ(stepladder(until + wrong).code, 2) << wrong;
  EXPECT_EQ(stepladder(until + "00,02 --resume --eval-batches 2").code, kExitNotComparable);
  for (const char* alone : {"--max-steps 5", "--eval-every 5", "--eval-batches 5"})
    EXPECT_EQ(stepladder(plan(alone)).code, 2) << alone;
}

TEST_F(HarnessCli, StepsThatFp16SkippedAreInTheResultsAndTheTable) {
  FakeRung fake = rung("02_tf32");
  fake.before_end =
      R"(say '{"event":"end","memory_bytes":{"live_peak":1,"reserved_peak":2,"process_peak":3},)"
      R"("skipped_steps":3}'; exit 0)";
  fake.write(folder_);
  const Outcome outcome = stepladder(plan());
  EXPECT_TRUE(has(outcome.out, "3 steps skipped")) << outcome.out;
  expect_contract(folder_ / "results.json");
  EXPECT_EQ(results().runs[2].summary->skipped_steps, 3);
}

TEST_F(HarnessCli, EveryReaderTakesAFileThatGzipMadeSmaller) {
  ASSERT_EQ(stepladder(plan("--rungs 00,01")).code, 0);
  ASSERT_EQ(shell("gzip -c results.json >all.json.gz").code, 0);
  EXPECT_LT(std::filesystem::file_size(folder_ / "all.json.gz"),
            std::filesystem::file_size(folder_ / "results.json"));
  for (const char* format : {"csv", "json", "googlebenchmark"})
    EXPECT_EQ(stepladder(cat("export all.json.gz --format ", format)).out,
              stepladder(cat("export results.json --format ", format)).out);
  EXPECT_EQ(stepladder("compare results.json all.json.gz").code,
            stepladder("compare results.json results.json").code);
  // A compressed file is never appended to.
  for (const char* how : {"--out all.json.gz --resume", "--out other.json.gz"})
    EXPECT_TRUE(ended(stepladder(cat("run --rungs 00 --backend cpu ", how)), 2, {}, {".json.gz"})) << how;
  std::string damaged = read_file(folder_ / "all.json.gz");
  damaged.resize(damaged.size() / 2);
  write_file(folder_ / "all.json.gz", damaged);
  EXPECT_TRUE(ended(stepladder("report all.json.gz"), 2, {}, {"all.json.gz"}));
}

TEST_F(HarnessCli, ExportLeavesOutWhatNoPageShowsAndAResumeGoesOn) {
  FakeRung{.name = "01_causal_mask", .before_start = "kill -TERM $PPID; sleep 60"}.write(folder_);
  ASSERT_EQ(stepladder(plan("--rungs 00,01")).code, 128 + SIGTERM);
  ASSERT_EQ(results().runs.size(), 1);
  ASSERT_EQ(stepladder("export results.json --format short --out short.json").code, 0);
  EXPECT_TRUE(has(stepladder("export results.json --format json").out, "\"device_ms\""));
  EXPECT_FALSE(has(read_file(folder_ / "short.json"), "\"device_ms\""));
  EXPECT_EQ(stepladder("export short.json --format csv").out,
            stepladder("export results.json --format csv").out);
  rung("01_causal_mask").write(folder_);
  std::filesystem::rename(folder_ / "short.json", folder_ / "results.json");
  const Outcome resumed = stepladder(plan("--rungs 00,01 --resume"));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_TRUE(has(resumed.err, "[2/4]") && !has(resumed.err, "[1/4]")) << resumed.err;
  EXPECT_EQ(results().runs.size(), 4);
}

TEST_F(HarnessCli, ExportWritesWhatIsOkAndNamesTheRest) {
  FakeRung{.name = "02_tf32", .before_start = fails("oom", "does not fit")}.write(folder_);
  ASSERT_EQ(stepladder(plan()).code, 5);
  EXPECT_TRUE(ended(stepladder("export results.json --format googlebenchmark --out gb.json"), 0, {},
                    {"02_tf32 gpt2-tiny B=4 T=32", "round 0", "oom: does not fit"}));
  EXPECT_EQ(Json::parse(read_file(folder_ / "gb.json"))["benchmarks"].size(), 4U);
  EXPECT_TRUE(
      has(stepladder("export results.json --format csv").out, "02_tf32,,cpu,gpt2-tiny,4,32,1,false,0,oom,"));

  ASSERT_EQ(stepladder(plan("--overwrite --rungs 02")).code, 5);
  EXPECT_TRUE(ended(stepladder("export results.json"), 2, {}, {"error", "results.json"}));
  EXPECT_EQ(stepladder("export nowhere.json").code, 2);
  write_file(folder_ / "list.json", "[]");
  ASSERT_EQ(stepladder(plan("--overwrite")).code, 5);
  for (int time = 0; time < 2; ++time)
    EXPECT_EQ(stepladder("export results.json --format json --out all.json").code, 0) << "replaces its like";
  EXPECT_TRUE(ended(stepladder("export list.json --format json --out list-of.json"), 2, {},
                    {"list.json", "is a JSON list"}));
}

TEST_F(HarnessCli, AnotherProgramsJsonIsCalledWhatItSeemsToBe) {
  ASSERT_EQ(stepladder(plan("--rungs 00")).code, 0);
  std::filesystem::create_directory(folder_ / "days");
  const std::pair<const char*, const char*> files[] = {
      {R"({"context": {"num_cpus": 4}, "benchmarks": [{"name": "BM_x", "real_time": 1.0, "time_unit": "ns"}]})",
       "Google Benchmark"},
      {R"({"machine_info": {}, "benchmarks": [{"name": "test_x", "stats": {"mean": 1.0}}], "version": "4.0.0"})",
       "pytest-benchmark"},
      {R"({"results": [{"command": "sleep 1", "mean": 1.0, "times": [1.0]}]})", "hyperfine"},
      {R"({"name": "mine", "rungs": []})", "ladder file"},
      {R"({"epoch": 3, "loss": 4.5})", "epoch, loss"},
      {"[1, 2]", "list"}};
  const auto refused = [&](const std::string& command, const std::vector<std::string>& parts) {
    EXPECT_TRUE(is_refused(stepladder(command), parts)) << command;
  };
  for (const auto& [text, seems] : files) {
    for (const char* name : {"foreign.json", "days/foreign.json"}) write_file(folder_ / name, text);
    for (const char* command :
         {"report foreign.json", "compare foreign.json results.json", "compare results.json foreign.json",
          "compare results.json results.json --noise foreign.json", "export foreign.json",
          "export foreign.json --format json", "export foreign.json --format csv", "plan-run foreign.json",
          "history days", "campaign --dry-run --out foreign.json", "resume foreign.json",
          "diff 00 01 --results foreign.json", "convert foreign.json new.jsonl"})
      refused(command, {"foreign.json", seems, "Stepladder"});
    if (!has(seems, "ladder file"))
      for (const char* command : {"run --ladder foreign.json", "run --rungs 00 --peer foreign.json",
                                  "gate foreign.json foreign.json", "list --ladder foreign.json"})
        refused(command, {"foreign.json", seems, "ladder file"});
    if (!has(seems, "list")) refused("campaign --plan foreign.json", {"foreign.json", seems, "plan"});
  }
  for (const char* command : {"run --ladder results.json", "campaign --plan results.json",
                              "gate results.json results.json", "convert results.json new.jsonl"})
    refused(command, {"results.json", "is a results file"});
  write_file(folder_ / "empty.json", "\n");
  for (const char* command : {"export empty.json", "run --ladder empty.json", "campaign --plan empty.json"})
    refused(command, {"empty.json", "is empty"});
  write_file(folder_ / "torn.jsonl", R"({"line":"session","schema":3)");
  for (const char* command : {"export torn.jsonl", "report torn.jsonl"})
    refused(command, {"torn.jsonl", "holds no run"});
}

TEST_F(HarnessCli, ResultsOfVersion02NameTheCommandThatConvertsThem) {
  write_file(folder_ / "old.json", R"({"schema": 2, "context": {}, "plan": {}, "runs": []})");
  const Outcome outcome = stepladder("export old.json");
  EXPECT_EQ(outcome.code, 2);
  const size_t begin = outcome.err.find("`stepladder ") + 12, end = outcome.err.find('`', begin);
  ASSERT_NE(end, std::string::npos) << outcome.err;
  std::string command = outcome.err.substr(begin, end - begin);
  ASSERT_TRUE(command.ends_with(" NEW")) << command;
  command.replace(command.size() - 3, 3, "new.jsonl");
  EXPECT_EQ(stepladder(command).code, kExitFailed) << command << ": all it lacks is a Python";
}

TEST(Preset, IsThatOfADevicesWholeName) {
  DeviceInfo device;
  device.backend = "cuda";
  device.name = "Tesla T4";
  EXPECT_STREQ(preset_for("", device).name, "gunton-t4");
  for (const char* name : {"NVIDIA T400", "NVIDIA T400 4GB", "NVIDIA T1000", "Quadro T4", "NVIDIA H200"}) {
    device.name = name;
    EXPECT_STREQ(preset_for("", device).name, "gpu-quick") << name;
  }
}

TEST_F(HarnessCli, APresetMayBeOfAnotherLadder) {
  EXPECT_EQ(stepladder::ladder_file(""), "");
  EXPECT_EQ(stepladder::ladder_file("raschka"), "");
  EXPECT_THROW(stepladder::ladder_file("raschka-pytorh"), stepladder::InputError);
  write_script(folder_ / "python",
               "[ \"$3\" != --version ] || exec echo 1\n"
               "for event in '\"start\",\"config\":{\"B\":4,\"T\":8}' "
               "'\"step\",\"step\":0,\"step_ms\":0.125,\"loss\":11' "
               "'\"step\",\"step\":1,\"step_ms\":0.125,\"loss\":11' '\"end\"'; do\n"
               "  echo \"{\\\"event\\\":$event}\" >&$STEPLADDER_EVENTS\ndone\n");
  ASSERT_TRUE(
      ended(stepladder("run --preset raschka-pytorch --python ./python --rungs 00,09 --backend cpu --batch 4 "
                       "--seq 8 --steps 2 --warmup 1 --rounds 1 --data data.bin --out raschka.jsonl"),
            0));
  const Json file = stepladder::exported(folder_ / "raschka.jsonl");
  EXPECT_EQ(file["plan"]["ladder"]["name"], "raschka-pytorch");
  EXPECT_EQ(file["plan"]["model"], "raschka-pytorch") << "which is no model of ours";
  ASSERT_EQ(file["variants"].size(), 2u);
  EXPECT_EQ(file["variants"][1]["variant"], "09_vocab50304");

  write_file(folder_ / "plan.json", R"([{"name": "theirs", "command":
"run --preset raschka-pytorch --rungs 00 --batch 4 --seq 8 --steps 2 --warmup 1 --rounds 1"}])");
  for (const char* said : {"[1/1]", "theirs: done"})
    EXPECT_TRUE(ended(stepladder("campaign --plan plan.json --python ./python --backend cpu --data data.bin "
                                 "--out parts.jsonl"),
                      0, {}, {said}));
}

TEST_F(HarnessCli, ARunThatEndsBeforeItsStartInOneRoundFailsItsRow) {
  FakeRung{.name = "01_causal_mask",
           .before_start = cat("[ -e ", folder_ / "once", " ] && kill -HUP $$; touch ", folder_ / "once")}
      .write(folder_);
  EXPECT_EQ(stepladder(plan("--rungs 00,01")).code, kExitFailed);
  expect_contract(folder_ / "results.json");
  const Json rows = results_file_json(results())["variants"];
  ASSERT_EQ(rows.size(), 2U) << rows.dump(1);
  EXPECT_EQ(rows[1]["status"], "crash");
  EXPECT_EQ(rows[1]["backend"], "cpu");
  // A file from an earlier version without backends gives the same two rows.
  Results before = results();
  before.runs.back().backend.clear(), before.runs[1].backend.clear();
  EXPECT_EQ(results_file_json(before)["variants"].size(), 2U);
}

TEST_F(HarnessCli, AFailedRungIsARowAndTheLadderGoesOn) {
  FakeRung{.name = "01_causal_mask", .before_end = "kill -KILL $$"}.write(folder_);
  EXPECT_TRUE(ended(stepladder(plan()), 5, {"crash", "SIGKILL"}));
  EXPECT_EQ(climbed(), "00 01 02 02 01 00");
  expect_contract(folder_ / "results.json");
  EXPECT_EQ(results().runs[1].status, Status::crash);
}

TEST_F(HarnessCli, WhatTheDeviceCannotDoIsNoFailure) {
  FakeRung{.name = "02_tf32", .before_start = fails("unsupported", "needs sm_80")}.write(folder_);
  EXPECT_TRUE(ended(stepladder(plan()), 0, {"unsupported: needs sm_80"}));
}

TEST_F(HarnessCli, ALossOutsideTheToleranceIsDivergedWithoutASpeedup) {
  FakeRung fake = rung("02_tf32");
  fake.step_ms = "1.5";
  fake.loss = "4.$((90 - i + (i == 3) * 2))";  // 0.4 % off; the tolerance is 0.2 %
  fake.write(folder_);
  EXPECT_EQ(stepladder(plan()).code, 5);
  const Json row = exported()["variants"][2];
  EXPECT_EQ(row["status"], "diverged");
  EXPECT_TRUE(says(row["reason"], {"step 3", "4.89", "00_fp32_baseline", "4.87"})) << row;
  EXPECT_FALSE(row.contains("speedup_baseline"));
}

// Single steps of a long run differ from the baseline's by chance, so the mean loss is compared.
TEST_F(HarnessCli, ALongRunIsHeldToTheBaselinesMeanLoss) {
  FakeRung fake = rung("02_tf32");
  fake.write(folder_);
  const auto status_with = [&](const char* loss) {
    FakeRung other = fake;
    other.loss = loss;
    other.write(folder_);
    const Outcome outcome =
        stepladder(cat("run --backend cpu --model gpt2-tiny --batch 4 --seq 32 --steps 60 --warmup 2 "
                       "--rounds 1 --data data.bin --rungs 00,02 --out long.json --overwrite"));
    return load_results(folder_ / "long.json").runs.back().status;
  };
  EXPECT_EQ(status_with("4.$((90 - i + (i == 3) * 2))"), Status::ok) << "0.4 % at a step, 0.01 % on average";
  EXPECT_EQ(status_with("4.$((92 - i))"), Status::diverged) << "0.4 % on average";
  EXPECT_EQ(status_with("4.$((88 - i))"), Status::ok) << "better is no worse";
}

TEST_F(HarnessCli, ALossWithinTheToleranceIsOk) {
  FakeRung fake = rung("02_tf32");
  fake.loss = "4.$((9000 - i * 100 + (i == 3) * 90))";  // 0.19 % off
  FakeRung baseline = rung("00_fp32_baseline");
  baseline.loss = "4.$((9000 - i * 100))";
  fake.write(folder_);
  baseline.write(folder_);
  EXPECT_TRUE(ended(stepladder(plan("--rungs 00,02")), 0));
}

TEST_F(HarnessCli, PeersAreMeasuredInTurnsWithTheirRungs) {
  FakeRung fake;
  fake.step_ms = cat(2 * FakeRung::kStepMs);
  fake.loss = "9.5";  // far from the baseline's loss
  const Outcome outcome = stepladder(plan("--wide --rungs 00,02" + peers(fake)));
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  std::string order;
  for (const stepladder::Run& run : results().runs) order += cat(run.variant, run.peer.empty() ? " " : "* ");
  const std::string rungs[] = {"00_fp32_baseline ", "pytorch/00_fp32_baseline* ", "02_tf32 ",
                               "pytorch/02_tf32* ", "llmc* "};
  EXPECT_EQ(order, rungs[0] + rungs[1] + rungs[2] + rungs[3] + rungs[4] + rungs[4] + rungs[3] + rungs[2] +
                       rungs[1] + rungs[0]);

  const Json json = exported();
  expect_contract(folder_ / "results.json");
  EXPECT_EQ(json["plan"]["peers"], Json({"pytorch/00_fp32_baseline", "pytorch/02_tf32", "llmc"}));
  EXPECT_EQ(json["variants"][1]["speedup_peers"][0]["against"], "pytorch/02_tf32");
  EXPECT_EQ(json["variants"][1]["speedup_peers"][0]["ratio"], 2.0);
  EXPECT_EQ(json["variants"][1]["speedup_peers"][1]["against"], "llmc");
  EXPECT_EQ(json["variants"][3]["peer"], "pytorch");
  for (const char* words : {"PyTorch ms", "x PyTorch", "x llm.c", "2.00 (2.00 to 2.00)"})
    EXPECT_TRUE(has(outcome.out, words)) << words << outcome.out;

  EXPECT_EQ(stepladder(plan("--rungs 00,02 --resume" + peers(fake))).code, 0);
  EXPECT_EQ(exported()["runs"], json["runs"]);
}

TEST_F(HarnessCli, BesideTheLadderOfLearningPyTorchClimbsTheSameRungs) {
  for (const char* name : {"01_muon", "fp8_muon"}) rung(name).write(folder_);
  ASSERT_TRUE(
      ended(stepladder(plan("--ladder learning --rungs 01,fp8_muon --rounds 1" + peers(FakeRung()))), 0));
  EXPECT_EQ(sequence(results(), std::string::npos), "01_muon pytorch/01_muon fp8_muon llmc")
      << "PyTorch has no fp8_muon";
}

TEST_F(HarnessCli, APeerThatCannotRunIsARow) {
  FakeRung fake;
  fake.before_start = fails("unsupported", "python3 has no torch");
  EXPECT_TRUE(
      ended(stepladder(plan("--rungs 00" + peers(fake))), 0, {"unsupported", "python3 has no torch"}));
  // A peer that can't read the data counts as crashed; our rungs may still read the data.
  fake.before_start = fails("error", "torn.bin", kExitUsage);
  EXPECT_TRUE(ended(stepladder(plan("--rungs 00 --overwrite" + peers(fake))), 5, {"crash", "torn.bin"}));
  EXPECT_EQ(results().runs.size(), 6U);
}

TEST_F(HarnessCli, APathForAPeerThatTakesNoneIsRefused) {
  std::string asked = peers(FakeRung());
  asked.replace(asked.find("pytorch"), 7, "pytorch=");
  for (const std::string& peer : {asked, std::string("--peer pytorch=x"), std::string("--peer stepladder=")})
    EXPECT_TRUE(is_refused(stepladder(plan("--rungs 00 " + peer)), {"{path}"})) << peer;
}

TEST_F(HarnessCli, BadInputFoundByARungEndsTheRun) {
  FakeRung{.name = "01_causal_mask", .before_start = fails("error", "data.bin: token 70000", kExitUsage)}
      .write(folder_);
  EXPECT_TRUE(ended(stepladder(plan()), 2, {}, {"data.bin: token 70000"}));
  EXPECT_EQ(climbed(), "00");
}

TEST_F(HarnessCli, ATerminalSeesOneLineThatIsUpdated) {
  FakeRung{.name = "01_causal_mask", .step_ms = "10.5", .before_step = "sleep 0.02"}.write(folder_);
  const std::string seen = on_terminal(plan("--rounds 1"));
  EXPECT_TRUE(
      has(seen, "\r\033[K[2/3] 01_causal_mask gpt2-tiny B=4 T=32, round 0  step 6/6  10.50 ms  ETA 0:0"))
      << seen;
  EXPECT_FALSE(has(seen, "round 0: ok"));
  EXPECT_TRUE(has(seen, "wrote results.json"));
}

TEST_F(HarnessCli, ATableIsNoWiderThanTheTerminal) {
  for (const uint16_t columns : std::array<uint16_t, 3>{80, 100, 200}) {
    const std::string seen = on_terminal("list --backend cpu", columns);
    std::istringstream lines(seen);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size() - 1, columns) << line;
    EXPECT_EQ(has(seen, "--wide also shows"), columns < 200) << seen;
  }
}

TEST_F(HarnessCli, ABoxIsNoWiderThanTheTerminal) {
  const std::string deep = std::string(60, 'd') + "/" + std::string(60, 'e');
  std::filesystem::create_directories(folder_ / deep);
  std::filesystem::copy_file(folder_ / "data.bin", folder_ / deep + "/data.bin");
  std::filesystem::remove(folder_ / "00_fp32_baseline");
  std::filesystem::create_symlink(STEPLADDER_BIN "/00_fp32_baseline", folder_ / "00_fp32_baseline");
  const std::string train =
      cat("train 00 --backend cpu --model gpt2-tiny --batch 1 --seq 8 --steps 1 --data ", deep, "/data.bin");
  for (const std::string& command : {std::string("doctor"), train}) {
    std::istringstream seen(on_terminal(command, 80));
    size_t lines = 0;
    for (std::string line; std::getline(seen, line);) {
      if (!line.starts_with("| ") && !line.starts_with("+-")) continue;
      ++lines;
      EXPECT_LE(text_width(line) - 1, 80U) << line;
    }
    EXPECT_GT(lines, 10U) << command;
  }
  EXPECT_TRUE(has(shell(cat("STEPLADDER_BIN_DIR=", folder_ / "", " ", kStepladder, " ", train)).out,
                  deep + "/data.bin"))
      << "whole where it is no terminal";
}

// ---- ablate ----------------------------------------------------------------------------------------------

TEST_F(HarnessCliAblate, MeasuresReferencesNeighboursAndAblationsInTurns) {
  const Outcome outcome = stepladder(ablation("--rungs 03"));
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  const std::string& tuned = tuned_rung().name;
  EXPECT_EQ(
      measured(),
      cat("00_fp32_baseline only/03_fused_adamw 02_tf32 03_fused_adamw without/03_fused_adamw ", tuned, " ",
          tuned, " without/03_fused_adamw 03_fused_adamw 02_tf32 only/03_fused_adamw 00_fp32_baseline"));
  const Json json = exported();
  ASSERT_EQ(json["ablations"].size(), 1U);
  const Json& row = json["ablations"][0];
  EXPECT_EQ(row["rung"], "03_fused_adamw");
  EXPECT_EQ(row["ladder"]["ratio"], 1.25);
  EXPECT_EQ(row["without"]["ratio"], 1.5);
  EXPECT_EQ(row["only"]["ratio"], 1.25);
  EXPECT_EQ(json["variants"].size(), 6U);
  EXPECT_EQ(
      json["plan"]["ablate"],
      Json({{"rungs", {"03_fused_adamw"}}, {"kinds", {"without", "only"}}, {"unchanged", Json::object()}}));
  for (const char* words : {"leave-one-out", "1.500 (1.500 to 1.500)"})
    EXPECT_TRUE(has(outcome.out, words)) << words << outcome.out;
  EXPECT_TRUE(has(stepladder("report results.json").out, "leave-one-out"));
}

TEST_F(HarnessCliAblate, AllRungsAndBothKindsByDefault) {
  const Outcome outcome = stepladder(ablation("--rounds 1"));
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  const Json rows = exported()["ablations"];
  std::vector<std::string> expected;
  for (const Rung& rung : ladder().rungs)
    if (!rung.parent.empty() && !rung.beside && rung.devices == 1) expected.push_back(rung.name);
  ASSERT_EQ(rows.size(), expected.size()) << "all but the first, those for several devices and those beside";
  std::map<std::string, std::string> status;
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["rung"], expected[i]);
    EXPECT_EQ(rows[i]["ladder"]["status"], "ok");
    for (const char* kind : {"without", "only"})
      status[cat(kind, "/", rows[i]["rung"].get<std::string>())] = rows[i][kind]["status"];
  }
  for (const Ablation& ablation : ablations()) {
    if (!ladder().listed(ablation.rung.name)) continue;
    const std::string why = ablation.unchanged();
    EXPECT_EQ(status[ablation.name], why.empty() ? "ok" : "unchanged") << ablation.name;
    EXPECT_TRUE(has(outcome.out, why)) << why;
  }
}

TEST_F(HarnessCliAblate, OneKindTakesOnlyItsRuns) {
  ASSERT_EQ(stepladder(ablation("--rungs fused_adamw --kinds only,only --rounds 1")).code, 0);
  EXPECT_EQ(measured(), "00_fp32_baseline only/03_fused_adamw 02_tf32 03_fused_adamw " + tuned_rung().name);
}

TEST_F(HarnessCliAblate, TheLargestBatchIsLookedForByBothEnds) {
  ASSERT_TRUE(ended(stepladder(ablation("--rungs 14 --rounds 1")), 0));
  const Results results = this->results();
  const auto workload = [&](const std::string& variant) {
    const auto run = std::ranges::find(results.runs, variant, &stepladder::Run::variant);
    return run == results.runs.end() ? "none" : run->workload();
  };
  EXPECT_EQ(results.plan["own_batch"], Json({{"14_large_batch", 16}, {"only/14_large_batch", 8}}));
  for (const char* reference : {"00_fp32_baseline", "13_cuda_graphs"})
    EXPECT_EQ(workload(reference), "gpt2-tiny B=4 T=32");
  EXPECT_EQ(workload("only/14_large_batch"), "gpt2-tiny B=8 T=32");
  EXPECT_EQ(workload("14_large_batch"), "gpt2-tiny B=16 T=32");
  const Json row = exported()["ablations"][0];
  expect_contract(folder_ / "results.json");
  EXPECT_EQ(row["without"]["ratio"], 4.0) << "the same step time, four times the tokens";
  EXPECT_EQ(row["only"]["ratio"], 2.0);
}

TEST_F(HarnessCliAblate, WhyNoBatchWasFoundIsSaid) {
  FakeRung{.name = "13_cuda_graphs",
           .before_start = "case $arguments in *--plan*) echo 'the driver is gone' >&2; exit 1 ;; esac"}
      .write(folder_);
  EXPECT_TRUE(is_refused(stepladder(ablation("--rungs 14 --rounds 1")), {"the driver is gone"}, kExitFailed));
}

TEST_F(HarnessCliAblate, ResumesOnlyTheSameAblation) {
  ASSERT_EQ(stepladder(ablation("--rungs 03 --rounds 1")).code, 0);
  EXPECT_EQ(stepladder(ablation("--rungs 03 --rounds 1")).code, 2) << "the file is there";
  const Json before = exported();
  EXPECT_EQ(stepladder(ablation("--rungs 03 --rounds 1 --resume")).code, 0);
  EXPECT_EQ(exported()["runs"], before["runs"]);
  EXPECT_TRUE(
      ended(stepladder(ablation("--rungs 03 --kinds only --rounds 1 --resume")), 4, {}, {"plan.rungs was"}));
}

TEST_F(HarnessCliAblate, AnAblationThatIsNotOkIsAStatusNotANumber) {
  FakeRung fake = ablation_of("only", "03_fused_adamw");
  fake.before_start = fails("unsupported", "no fp32 here");
  fake.write(folder_);
  EXPECT_TRUE(
      ended(stepladder(ablation("--rungs 03")), 0, {"unsupported", "only/03_fused_adamw", "no fp32 here"}))
      << "what the device can't do is no failure";
  fake = ablation_of("without", "03_fused_adamw");
  fake.loss = "9.5";
  fake.write(folder_);
  EXPECT_EQ(stepladder(ablation("--rungs 03 --overwrite")).code, 5);
  const Json row = exported()["ablations"][0];
  expect_contract(folder_ / "results.json");
  EXPECT_EQ(row["without"]["status"], "diverged");
  EXPECT_TRUE(has(row["without"]["reason"], "00_fp32_baseline has 4.9")) << row;
  EXPECT_FALSE(row["without"].contains("ratio"));
  EXPECT_EQ(row["ladder"]["ratio"], 1.25);
}

TEST_F(HarnessCliAblate, RoundsAndOrderAreChosenAsInARun) {
  const std::string only_03 = "--rungs 03 --kinds only ";
  ASSERT_EQ(stepladder(ablation(only_03 + "--order forward")).code, 0);
  const std::string round =
      "00_fp32_baseline only/03_fused_adamw 02_tf32 03_fused_adamw " + tuned_rung().name;
  EXPECT_EQ(measured(), round + " " + round);
  EXPECT_EQ(results().stopped["reason"], "rounds");

  const std::string until = only_03 + "--until-ci 1 --order shuffled --overwrite";
  ASSERT_TRUE(ended(stepladder(ablation(until)), 0));
  EXPECT_EQ(results().stopped["reason"], "interval");
  EXPECT_EQ(results().runs.size(), 30U) << "six rounds of the same time are the least";
  EXPECT_EQ(exported()["ablations"][0]["only"]["rounds"], 6);

  ASSERT_EQ(stepladder(ablation(only_03 + "--max-time 0.001s --overwrite")).code, 0);
  EXPECT_EQ(results().stopped["reason"], "max_time");
  EXPECT_EQ(results().runs.size(), 5U);
}

TEST_F(HarnessCliAblate, NothingIsClaimedOnThrottledRuns) {
  FakeRung hot = ablation_of("only", "03_fused_adamw");
  hot.telemetry = R"(,"sm_mhz":1200,"throttle":["hw_thermal_slowdown"])";
  hot.write(folder_);
  // throttled and slow in its first round
  FakeRung{.name = "03_fused_adamw",
           .step_ms = "$([ $hot = gpu_idle ] && echo 1 || echo 10).0",
           .telemetry = R"(,"throttle":["'$hot'"])",
           .before_start = "hot=$(cat counter 2>/dev/null || echo hw_slowdown); echo gpu_idle >counter"}
      .write(folder_);
  ASSERT_TRUE(ended(stepladder(ablation("--rungs 03")), 0, {"throttled", "only/03_fused_adamw"}));
  const Json row = exported()["ablations"][0];
  expect_contract(folder_ / "results.json");
  EXPECT_EQ(row["only"]["status"], "throttled");
  EXPECT_FALSE(row["only"].contains("ratio"));
  EXPECT_EQ(row["ladder"]["ratio"], 1.25) << "of the round that was not";
  EXPECT_EQ(row["ladder"]["rounds"], 1);
  EXPECT_EQ(row["without"]["ratio"], 1.5);
}

TEST_F(HarnessCliAblate, BadInputIsRefusedBeforeAnyRun) {
  const std::pair<std::string, const char*> cases[] = {
      {"--rungs 00", "00_fp32_baseline"},
      {"--rungs 03,00", "00_fp32_baseline"},
      {"--rungs 15", "15_multi_gpu trains"},
      {"--rungs fp8", "fp8 stands beside"},
      {"--rungs 03_fused_adam", "03_fused_adamw"},
      {"--kinds withuot", "without"},
      {"--rung 03", "--rungs"},
      {"--rungs 03 --resume --overwrite", "contradict"},
  };
  for (const auto& [arguments, wanted] : cases)
    EXPECT_TRUE(is_refused(stepladder(ablation(arguments)), {wanted})) << arguments;
  std::filesystem::remove(folder_ / "ablations/without_03_fused_adamw");
  EXPECT_TRUE(is_refused(stepladder(ablation("--rungs 03")),
                         {"ablations/without_03_fused_adamw", "cmake --build ", "--target ablations"}, 5));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "results.json"));
}

TEST_F(HarnessCli, ARungThatIsKilledAsItTellsItsVersionNeedsNoBuild) {
  write_script(folder_ / "03_fused_adamw", "kill -KILL $$\n");
  const Outcome killed = stepladder(plan("--rungs 03"));
  EXPECT_EQ(killed.code, 5);
  EXPECT_TRUE(one_line(killed.err) && says(killed.err, {"03_fused_adamw", "SIGKILL"}) &&
              !has(killed.err, "cmake"))
      << killed.err;
  write_script(folder_ / "03_fused_adamw", "echo something else\n");
  EXPECT_TRUE(is_refused(stepladder(plan("--rungs 03")), {"03_fused_adamw", "cmake --build"}, 5));
}

TEST_F(HarnessCli, ABuildWithoutAblationsSaysWhatIsMissing) {
  if (!ablations().empty()) GTEST_SKIP() << "this build has ablations";
  EXPECT_TRUE(is_refused(stepladder("ablate --backend cpu"), {"install git"}, 5));
}

// ---- results that are there ------------------------------------------------------------------------------

TEST_F(HarnessCli, AnExistingFileIsKeptUnlessToldOtherwise) {
  ASSERT_EQ(stepladder(plan("--rounds 1")).code, 0);
  const std::string before = read_file(folder_ / "results.json");
  EXPECT_TRUE(is_refused(stepladder(plan("--rounds 1")), {"--resume", "--overwrite"}));
  EXPECT_EQ(read_file(folder_ / "results.json"), before);
  EXPECT_EQ(stepladder(plan("--rounds 1 --resume")).code, 0);
  EXPECT_EQ(climbed(), "00 01 02");
  EXPECT_EQ(stepladder(plan("--rounds 2 --overwrite")).code, 0);
  EXPECT_EQ(climbed(), "00 01 02 02 01 00");
}

TEST_F(HarnessCli, AFileOfAnotherKindIsNotReplaced) {
  ASSERT_EQ(stepladder(plan("--rungs 00 --rounds 1")).code, 0);
  write_file(folder_ / "noise.json", R"({"schema": 2, "kind": "noise", "variants": []})");
  write_file(folder_ / "ladder.json", R"({"schema": 1, "rungs": []})");
  write_file(folder_ / "notes.txt", "of mine");
  write_file(folder_ / "notes.md", "# Of mine");
  ASSERT_EQ(stepladder(plan("--rungs 00 --rounds 1 --out other.json")).code, 0);
  FakeRung{.name = "00_fp32_baseline", .before_start = cat("touch ", folder_ / "started")}.write(folder_);
  const std::string profile = "profile 00 --backend cpu --model gpt2-tiny --data data.bin --out ";
  const std::tuple<std::string, std::string, std::string> cases[] = {
      {profile, "results.json", "holds runs"},
      {profile, "noise.json", "a noise file"},
      {plan("--rungs 00 --overwrite --out "), "noise.json", "a noise file"},
      {plan("--rungs 00 --out "), "noise.json", "a noise file"},
      {profile, "notes.txt", "Stepladder's own"},
      {plan("--rungs 00 --overwrite --out "), "notes.txt", "Stepladder's own"},
      {plan("--rungs 00 --overwrite --out "), "ladder.json", "Stepladder's own"},
      {"export results.json --format csv --out ", "noise.json", "a noise file"},
      {"export results.json --format short --out ", "noise.json", "a noise file"},
      {"export results.json --format short --out ", "results.json", "exported"},
      {"export results.json --format short --out ", "other.json", "another measurement"},
      {"export results.json --format csv --out ", "notes.txt", "Stepladder's own"},
      {"export results.json --format csv --out ", "ladder.json", "Stepladder's own"},
      {"export results.json --out ", "notes.txt", "Stepladder's own"},
      {"export results.json --format json --out ", "other.json", "a results file"},
      {"compare results.json results.json --out ", "notes.txt", "Stepladder's own"},
      {"compare results.json results.json --out ", "notes.md", "Stepladder's own"}};
  for (const auto& [command, file, what] : cases) {
    const std::string before = read_file(folder_ / file);
    EXPECT_TRUE(is_refused(stepladder(command + file), {file, what, "name another --out"}))
        << command << file;
    EXPECT_EQ(read_file(folder_ / file), before) << command;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "started")) << "it was measured first";
  EXPECT_EQ(stepladder(profile + "profile.json").code, kExitFailed) << "of the stand-in, which can't profile";
  for (const char* again :
       {"export results.json --format csv --out a.csv", "export results.json --out a.json",
        "export results.json --format short --out b.json",
        "compare results.json results.json --out a.md --out a.xml --out a.txt"})
    for (int time = 0; time < 2; ++time) {
      const Outcome outcome = stepladder(again);
      EXPECT_NE(outcome.code, kExitUsage) << again << ": " << outcome.err;
    }
  std::filesystem::create_directory(folder_ / "page");
  for (const std::string name : {"summary.md", "results.csv", "index.html", "published.md"}) {
    const std::string file = folder_ / ("page/" + name);
    write_file(file, "of mine");
    EXPECT_EQ(stepladder("report results.json --out page").code, kExitUsage) << name;
    EXPECT_EQ(read_file(file), "of mine");
    std::filesystem::remove(file);
  }
  std::filesystem::create_directory(folder_ / "all");
  std::filesystem::copy_file(folder_ / "results.json", folder_ / "all/history.json");
  EXPECT_EQ(stepladder("history all --out all").code, kExitUsage);
  EXPECT_EQ(read_file(folder_ / "all/history.json"), read_file(folder_ / "results.json"));
  write_file(folder_ / "damaged.json", "{");
  EXPECT_EQ(stepladder(plan("--rungs 00 --rounds 1 --overwrite --out damaged.json")).code, 0);
}

TEST_F(HarnessCli, ResumingAnotherPlanOrBuildIsRefusedByName) {
  ASSERT_EQ(stepladder(plan("--rounds 1")).code, 0);
  EXPECT_TRUE(
      is_refused(stepladder(plan("--rounds 1 --lr 0.002 --resume")), {"plan.lr", "0.0006", "0.002"}, 4));
  FakeRung{.name = "02_tf32", .source_hash = "changed"}.write(folder_);
  EXPECT_TRUE(
      ended(stepladder(plan("--rounds 1 --resume")), 4, {}, {"the sources of 02_tf32", "--overwrite"}));
}

TEST_F(HarnessCli, OnAnotherCardOrHostAnUnfinishedRoundIsMeasuredAgainAndAFinishedOneKept) {
  ASSERT_EQ(stepladder(plan("--rungs 00,01 --rounds 2")).code, 0);
  // The name of a card, and of a host that has the same processor; older files have it once for all runs.
  for (const auto& [host, card] :
       {std::pair("", "GPU-another"), std::pair("elsewhere", "elsewhere"), std::pair("elsewhere", "")}) {
    Results before = results();
    if (*host) before.context["host"] = host;
    for (stepladder::Run& run : before.runs) run.device = card, run.wall_ms = 7;
    before.complete = false;
    before.runs.pop_back();
    write_file(folder_ / "results.json", file_text(before));
    ASSERT_TRUE(
        ended(stepladder(plan("--rungs 00,01 --rounds 2 --resume")), 0, {}, {"[3/4] 01", "[4/4] 00"}));
    for (const stepladder::Run& run : results().runs)
      EXPECT_EQ(run.wall_ms == 7, run.round == 0) << run.variant;
    EXPECT_EQ(climbed(), "00 01 01 00");
    const std::string other = *card ? card : host;
    EXPECT_EQ(results().cards(), (std::set<std::string>{other, host_name()}));
    EXPECT_TRUE(says(stepladder("report results.json").out, {"2 hosts", other}));
  }
}

TEST_F(HarnessCli, ThreadsThatARungTellsOtherwiseInALaterRoundAreRefusedByName) {
  FakeRung{.name = "00_fp32_baseline", .config = R"(,"threads":'$OMP_NUM_THREADS')"}.write(folder_);
  const std::string command = plan("--rungs 00 --rounds 4 --resume");
  ASSERT_EQ(shell(cat("OMP_NUM_THREADS=2 ", kStepladder, " ", plan("--rungs 00 --rounds 2"))).code, 0);
  Results before = results();
  before.context.erase("thread_environment");  // as in files of older versions
  write_file(folder_ / "results.json", file_text(before));
  EXPECT_TRUE(ended(shell(cat("OMP_NUM_THREADS=1 ", kStepladder, " ", command)), kExitNotComparable, {},
                    {"00_fp32_baseline", "config.threads 2 / 1"}));
  EXPECT_EQ(results().runs.size(), 2U) << "what was measured stays";
  EXPECT_EQ(shell(cat("OMP_NUM_THREADS=2 ", kStepladder, " ", command)).code, 0);
}

TEST_F(HarnessCli, ACpuWithOtherCoresIsAnotherDevice) {
  ASSERT_EQ(stepladder(plan("--rungs 00,01 --rounds 1")).code, 0);
  Results here = results();
  here.context["cores"] = 1;
  write_file(folder_ / "few.json", file_text(here));
  here.context["cores"] = 64;
  write_file(folder_ / "many.json", file_text(here));
  const Outcome outcome = stepladder("report few.json many.json --out page");
  EXPECT_TRUE(ended(outcome, 0, {", 1 core;", ", 64 cores;"}));
  EXPECT_FALSE(has(outcome.out, "median ms")) << "of two devices ratios alone compare";
  EXPECT_TRUE(has(stepladder("report few.json few.json --out page").out, "median ms"));
  EXPECT_TRUE(says(stepladder("plan-run few.json many.json --wide").out, {", 1 core ", ", 64 cores"}));
}

TEST_F(HarnessCli, AnUnwritablePlaceIsNamedBeforeAnyRun) {
  FakeRung{.name = "00_fp32_baseline", .before_start = cat("touch ", folder_ / "started")}.write(folder_);
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  for (const char* out : {"data.bin/results.json", "/proc/results.json", "/dev/full", "pipe", ".", "-"})
    EXPECT_TRUE(is_refused(stepladder(plan(cat("--overwrite --out ", out))), {out})) << out;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "started"));
}

TEST_F(HarnessCli, KilledAtAnyMomentItLosesAtMostTheRunInProgress) {
  for (const char* name : {"00_fp32_baseline", "01_causal_mask", "02_tf32"}) {
    FakeRung{.name = name, .before_step = "sleep 0.004"}.write(folder_);
  }
  size_t kept = 0;
  for (uint64_t i = 0; i < 10; ++i) {
    const pid_t pid = start(plan("--rounds 5 --resume"));
    const double longest_ms = kept > 0 ? 600.0 : 600.0 * static_cast<double>(i + 1);  // for busy machines
    std::this_thread::sleep_for(1ms * static_cast<int>(random_uniform(42, i) * longest_ms));
    ::kill(pid, SIGKILL);
    wait_for(pid);
    if (!std::filesystem::exists(folder_ / "results.json")) continue;  // killed before the file existed
    const size_t now = results().runs.size();
    EXPECT_GE(now, kept) << "a finished run is gone";
    kept = now;
  }
  const Outcome outcome = stepladder(plan("--rounds 5 --resume"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_GT(kept, 0U);
  std::map<std::pair<std::string, int64_t>, int> times;
  for (const stepladder::Run& run : results().runs) ++times[{run.variant, run.round}];
  EXPECT_EQ(times.size(), 15U);
  for (const auto& [run, n] : times) EXPECT_EQ(n, 1) << run.first << " round " << run.second;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 15 - static_cast<std::ptrdiff_t>(kept))
      << "finished runs are not run again";
}

// ---- campaign

class HarnessCliCampaign : public HarnessCli {
 protected:
  /// A plan's command line that runs `rung` with six steps.
  static std::string run_of(const std::string& rung, const std::string& more = "") {
    return cat("run --rungs ", rung, " --batch 4 --steps 6 --warmup 2 ", more);
  }
  void write_plan(const std::vector<std::array<std::string, 2>>& parts) const {
    Json plan = Json::array();
    for (const auto& [name, command] : parts)
      plan.push_back({{"name", name}, {"about", "for a test"}, {"command", command}});
    write_file(folder_ / "plan.json", plan.dump());
  }
  std::string campaign(const std::string& more = "") const {
    return cat(
        "campaign --plan plan.json --backend cpu --model gpt2-tiny --seq 32 --data data.bin --out "
        "sub/c.jsonl ",
        more);
  }
  std::string file() const { return read_file(folder_ / "sub/c.jsonl"); }
  Part part(const std::string& name) const {
    for (Part& part : load_parts(folder_ / "sub/c.jsonl"))
      if (part.name == name) return std::move(part);
    ADD_FAILURE() << "no part " << name;
    return {};
  }
  /// Names of the parts in the file: "ladder last".
  std::string names() const {
    std::vector<std::string> names;
    for (const Part& part : load_parts(folder_ / "sub/c.jsonl")) names.push_back(part.name);
    return join(names, " ");
  }
  std::string climbed(const std::string& name) const { return sequence(part(name).results); }
};

TEST_F(HarnessCliCampaign, QuietTellsOnlyOfRunsThatFail) {
  FakeRung{.name = "01_causal_mask", .before_start = "exit 9"}.write(folder_);
  Outcome outcome = stepladder(plan("--rounds 1 --quiet"));
  EXPECT_TRUE(ended(outcome, kExitFailed, {"02_tf32"}, {"[2/3] 01_causal_mask"}));
  EXPECT_FALSE(has(outcome.err, "[1/3]") || has(outcome.err, "[3/3]")) << outcome.err;

  write_plan({{"one", run_of("00", "--rounds 1")}});
  outcome = stepladder(campaign("--quiet"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_FALSE(says(outcome.err, {"00_fp32"})) << outcome.err;
  outcome = stepladder(campaign());
  EXPECT_TRUE(has(outcome.err, "one: done")) << "the same part: " << outcome.err;
}

TEST_F(HarnessCliCampaign, GoesOnAfterItWasEndedAndWithTheRestWhereAPartFails) {
  write_file(folder_ / "plan.json",
             cat(R"([{"name": "ladder", "about": "all", "command": ")", run_of("00-02", "--rounds 2"), R"("},
 {"name": "apart", "about": "on two", "command": ")",
                 run_of("00"), R"(", "devices": 1000},
 {"name": "failing", "about": "no trace comes", "command": "profile 00 --steps 4 --warmup 1"},
 {"name": "last", "about": "of its own length", "command": ")",
                 run_of("01", "--seq 16 --rounds 1 --until-ci 99 --max-rounds 1"), R"("}])"));
  hang("02_tf32");
  FakeRung{.name = "00_fp32_baseline", .before_start = cat("echo $arguments >", folder_ / "told")}.write(
      folder_);
  for (const int signal : {SIGTERM, SIGKILL}) {
    std::filesystem::remove(folder_ / "pid");
    const pid_t pid = start(campaign());
    ASSERT_TRUE(appears("pid")) << read_file(folder_ / "err.txt");
    ::kill(pid, signal);
    EXPECT_EQ(wait_for(pid), 128 + signal);
    EXPECT_TRUE(ends(std::stoi(read_file(folder_ / "pid"))));
    expect_contract(folder_ / "sub/c.jsonl");
    EXPECT_FALSE(part("ladder").results.complete);
    EXPECT_EQ(part("ladder").exit_code, 143);
    EXPECT_EQ(climbed("ladder"), "00 01");
  }
  rung("02_tf32").write(folder_);
  Outcome outcome = stepladder(campaign());
  EXPECT_TRUE(ended(outcome, kExitFailed, {}, {"[3/6] 02_tf32", "[6/6]", "apart", "failing"}));
  EXPECT_FALSE(has(outcome.err, "[2/6]")) << "it was there";
  expect_contract(folder_ / "sub/c.jsonl");
  EXPECT_EQ(names(), "ladder apart failing last");
  EXPECT_EQ(part("ladder").about, "all");
  EXPECT_TRUE(part("ladder").results.complete);
  EXPECT_EQ(climbed("ladder"), "00 01 02 02 01 00");
  EXPECT_EQ(part("ladder").results.plan["seq"], 32) << "as all parts";
  EXPECT_EQ(part("last").results.plan["seq"], 16) << "its own";
  EXPECT_TRUE(has(part("apart").skipped, "1000"));
  const std::string kept = file();
  EXPECT_EQ(stepladder(campaign("--overwrite --retry-failed")).code, kExitUsage)
      << "which contradict each other";
  EXPECT_EQ(file(), kept);
  EXPECT_EQ(part("failing").exit_code, kExitFailed);
  EXPECT_TRUE(part("failing").profile.is_null());
  EXPECT_TRUE(says(read_file(folder_ / "told"), {"--profile 1", "--seq 32", "--batch 2"}))
      << "the preset's batch";

  outcome = stepladder(campaign());
  EXPECT_EQ(outcome.code, kExitFailed);
  EXPECT_FALSE(has(outcome.err, "run --rungs")) << "nothing is left of the others: " << outcome.err;
  outcome = stepladder("report sub/c.jsonl --out page");
  EXPECT_TRUE(says(outcome.out, {"==== ladder", "==== last", "gpt2-tiny B=4 T=32", "gpt2-tiny B=4 T=16"}));
  EXPECT_TRUE(says(outcome.err, {"apart", "failing"}));
  EXPECT_TRUE(is_refused(stepladder("export sub/c.jsonl"), {"sub/c.jsonl:ladder", "last"}));
}

TEST_F(HarnessCliCampaign, APartThatIsKilledFailsAndTheNextIsMeasured) {
  write_plan({{"first", run_of("00")}, {"second", run_of("01")}});
  FakeRung fake = rung("00_fp32_baseline");
  for (const auto& [signal, told] : {std::pair("KILL", "SIGKILL"), std::pair("TERM", "exit code 143")}) {
    fake.before_start = cat("kill -", signal, " $PPID; sleep 10");
    fake.write(folder_);
    EXPECT_TRUE(ended(stepladder(campaign("--overwrite")), kExitFailed, {}, {"first ", told, "goes on"}));
    EXPECT_GT(part("second").results.runs.size(), 0U);
  }
}

TEST_F(HarnessCliCampaign, RefusesAPlanThatMakesNoSenseBeforeAnyRun) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"list", "{}"},
      {"list", "[]"},
      {"JSON", "["},
      {"part 1", "[7]"},
      {"name", R"([{"name": "../a", "command": "run"}])"},
      {"name", R"([{"command": "run"}])"},
      {"part 2 (a)", R"([{"name": "a", "command": "run"}, {"name": "a", "command": "ablate"}])"},
      {"command", R"([{"name": "a", "command": "rm -r x"}])"},
      {"command", R"([{"name": "a", "command": ""}])"},
      {"command", R"([{"name": "a"}])"},
      {"--out", R"([{"name": "a", "command": "run --out=x.json"}])"},
      {"--overwrite", R"([{"name": "a", "command": "run --overwrite"}])"},
      {"--quiet", R"([{"name": "a", "command": "run --quiet"}])"},
      {"--help", R"([{"name": "a", "command": "run --rungs 00 --help"}])"},
      {"-h", R"([{"name": "a", "command": "run -h"}])"},
      {"-h", R"([{"name": "a", "command": "profile 00 -h"}])"},
      {"--roundz", R"([{"name": "a", "command": "run --roundz 3"}])"},
      {"--rounds", R"([{"name": "a", "command": "run --rounds none"}])"},
      {"devices", R"([{"name": "a", "command": "run", "devices": 0}])"},
      {"device", R"([{"name": "a", "command": "run", "device": 2}])"},
      {"peers", R"([{"name": "a", "command": "run", "peers": "none"}])"},
  };
  for (const auto& [wanted, plan] : bad) {
    write_file(folder_ / "plan.json", plan);
    const Outcome outcome = stepladder(campaign());
    EXPECT_TRUE(is_refused(outcome, {"plan.json", wanted})) << plan;
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "sub"));
  const Outcome ours = stepladder("campaign --backend cpu --dry-run");
  EXPECT_TRUE(ended(ours, 0, {}, {"days", "--parts", "--plan"}));
  std::istringstream told(ours.out);
  for (std::string line, before; std::getline(told, line); before = line)
    EXPECT_FALSE(has(line, "--preset cpu-quick") && has(before, "H200"))
        << "that measured another model: " << line;
  EXPECT_TRUE(has(ours.out, "in PyTorch\n  unknown how long; on an NVIDIA H200 "))
      << "a preset of its own, the same everywhere: " << ours.out;
  EXPECT_TRUE(has(ours.out, "stepladder profile 00 --preset")) << "a CPU has no --counters: " << ours.out;
  const std::string as_kept = "campaign --backend cpu --preset gpu-quick --dry-run --parts energy_16";
  const std::string alone = stepladder(as_kept).out, beside = stepladder(as_kept + " --peer pytorch").out;
  EXPECT_TRUE(has(alone, "unknown how long; on an NVIDIA H200 ")) << alone;
  EXPECT_TRUE(has(beside, "unknown how long; on an NVIDIA H200 ")) << beside;
  EXPECT_NE(alone.substr(0, alone.find("stepladder run")), beside.substr(0, beside.find("stepladder run")))
      << "peers take their time";
  EXPECT_TRUE(ended(stepladder("campaign --backend cpu --out sub/c.jsonl"), kExitUsage, {},
                    {"ablations", "--target ablations"}));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "sub"));
}

TEST_F(HarnessCliCampaign, MeasuresPeersBesideThePartsThatWantThem) {
  write_file(folder_ / "plan.json", R"([{"name": "both", "about": "", "command": "run --rungs 00"},
 {"name": "ours", "about": "", "command": "run --rungs 01", "peers": false}])");
  const std::string listing = stepladder(campaign("--peer pytorch --dry-run")).out;
  const size_t peer = listing.find("--peer pytorch"), ours = listing.find("run --rungs 01");
  EXPECT_LT(peer, ours) << listing;
  ASSERT_NE(ours, std::string::npos) << listing;
  EXPECT_EQ(listing.rfind("--peer"), peer) << "of the first alone: " << listing;
}

TEST_F(HarnessCliCampaign, OfAnotherCommitOrDeviceIsReplacedOnlyWhereAskedFor) {
  write_plan({{"one", run_of("00", "--rounds 1")}});
  const Outcome unknown = stepladder(campaign("--dry-run"));
  EXPECT_TRUE(has(unknown.out, "unknown") && unknown.err.empty()) << unknown.err;
  ASSERT_EQ(stepladder(campaign()).code, 0);
  EXPECT_TRUE(has(stepladder(campaign("--dry-run")).out, "done"));
  const Results good = part("one").results;
  for (const char* field : {"commit", "device", "trainers' commit"}) {
    Results other = good;
    if (*field == 'd') other.context["device"]["name"] = "another";
    if (*field == 't') other.context["stepladder_commit"] = good.context["commit"];
    if (*field != 'd') other.context["commit"] = "another";
    write_file(folder_ / "sub/c.jsonl", file_text(other, "one"));
    const std::string before = file();
    EXPECT_TRUE(
        is_refused(stepladder(campaign()), {"sub/c.jsonl:one", field, "another"}, kExitNotComparable));
    EXPECT_EQ(file(), before);
    const Outcome outcome = stepladder(campaign("--dry-run"));
    EXPECT_EQ(outcome.code, 0);
    EXPECT_EQ(has(outcome.out, "unknown"), *field == 'd') << "times of another device tell nothing";
    ASSERT_TRUE(ended(stepladder(campaign("--overwrite")), 0, {}, {"[1/1]"}));
    EXPECT_EQ(part("one").results.context["commit"], good.context["commit"]);
    EXPECT_EQ(climbed("one"), "00");
  }
  write_file(folder_ / "sub/c.jsonl", "[]");
  EXPECT_EQ(stepladder(campaign()).code, kExitUsage);
}

TEST_F(HarnessCliCampaign, WhatIsMeasuredAgainStaysUntilARunIsFinished) {
  write_plan({{"a", run_of("00,01", "--rounds 2")}, {"b", run_of("00", "--rounds 1")}});
  ASSERT_EQ(stepladder(campaign()).code, 0);
  const std::string before = file();
  EXPECT_EQ(stepladder(campaign("--overwrite --dtype fp16")).code, kExitUsage) << "a rung refuses it";
  EXPECT_EQ(file(), before) << "nothing was measured";

  hang("00_fp32_baseline");
  const pid_t pid = start(campaign("--overwrite"));
  ASSERT_TRUE(appears("pid")) << read_file(folder_ / "err.txt");
  ::kill(pid, SIGTERM);
  EXPECT_EQ(wait_for(pid), 128 + SIGTERM);
  EXPECT_EQ(file(), before);
  rung("00_fp32_baseline").write(folder_);
  EXPECT_EQ(stepladder(campaign("--overwrite --parts b")).code, 0);
  EXPECT_EQ(part("a").last_session, parts_from(before).at(0).last_session) << "another part stays";
  EXPECT_NE(part("b").last_session, parts_from(before).at(1).last_session);
  EXPECT_EQ(climbed("b"), "00");
}

TEST_F(HarnessCliCampaign, APartThatCannotBeMeasuredIsToldBeforeAnyIs) {
  for (const char* wrong : {"--rungs 77", "--rungs 00 --batch 99999", "--rungs 00 --seq 9999",
                            "--rungs 00 --data nowhere.txt", "--rungs 00 --warmup 9"}) {
    write_plan(
        {{"good", run_of("00", "--rounds 1")}, {"bad", cat("run --batch 4 --steps 6 --warmup 2 ", wrong)}});
    const Outcome dry = stepladder(campaign("--dry-run")), outcome = stepladder(campaign());
    EXPECT_EQ(dry.code, 0);
    EXPECT_EQ(outcome.code, kExitUsage) << wrong;
    for (const std::string& said : {dry.err, outcome.err})
      EXPECT_TRUE(one_line(said) && says(said, {"bad"})) << said;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "sub/c.jsonl")) << "nothing was measured";
  }
  EXPECT_EQ(stepladder(campaign("--parts good")).code, 0) << "which is not asked of those that aren't chosen";
}

TEST_F(HarnessCliCampaign, APartOfAnotherPlanIsMeasuredAgainByItself) {
  write_plan({{"a", run_of("00", "--rounds 1")}, {"b", run_of("01", "--rounds 1")}});
  ASSERT_EQ(stepladder(campaign()).code, 0);
  const std::string before = part("a").last_session;
  write_plan({{"a", run_of("00", "--rounds 1")}, {"b", run_of("01", "--rounds 1 --seed 3")}});
  EXPECT_TRUE(ended(stepladder(campaign()), kExitNotComparable, {}, {"seed", "--overwrite --parts b"}));
  ASSERT_EQ(stepladder(campaign("--overwrite --parts b")).code, 0);
  EXPECT_EQ(part("a").last_session, before);
  EXPECT_EQ(part("b").results.plan["seed"], 3);
}

TEST_F(HarnessCliCampaign, BeginsNothingForWhichNoTimeIsLeftAndGoesOnLater) {
  for (const std::string own : {"", " --max-time 1h"}) {
    write_plan({{"slow", run_of("00", "--rounds 3" + own)}, {"next", run_of("01", "--rounds 1")}});
    FakeRung slow = rung("00_fp32_baseline");
    slow.before_start = "sleep 1.2";
    slow.write(folder_);
    EXPECT_EQ(stepladder(campaign("--max-time soon")).code, kExitUsage);
    EXPECT_TRUE(ended(stepladder(campaign("--max-time 1s")), 0, {}, {"--max-time"}));
    EXPECT_EQ(climbed("slow"), "00") << own;
    EXPECT_EQ(part("slow").results.stopped["reason"], "max_time");
    EXPECT_EQ(names(), "slow") << own;
    rung("00_fp32_baseline").write(folder_);
    EXPECT_EQ(stepladder(campaign()).code, 0);
    EXPECT_EQ(climbed("slow"), "00 00 00") << own;
    EXPECT_EQ(climbed("next"), "01");
    std::filesystem::remove(folder_ / "sub/c.jsonl");
  }
}

TEST_F(HarnessCliCampaign, KeepsThePartsThatAnotherPlanDoesNotName) {
  write_plan({{"a", run_of("00", "--rounds 1")}, {"b", run_of("01", "--rounds 1")}});
  ASSERT_EQ(stepladder(campaign()).code, 0);
  write_plan({{"c", run_of("02", "--rounds 1")}, {"b", run_of("01", "--rounds 2")}});
  ASSERT_EQ(stepladder(campaign()).code, 0);
  EXPECT_EQ(names(), "a b c");
  EXPECT_EQ(climbed("a"), "00");
  EXPECT_EQ(climbed("b"), "01 01");
  expect_contract(folder_ / "sub/c.jsonl");
}

TEST_F(HarnessCliCampaign, MeasuresThePartsThatAreNamedAlone) {
  write_plan({{"a", run_of("00", "--rounds 1")}, {"b", run_of("01", "--rounds 1")}, {"c", run_of("02")}});
  ASSERT_EQ(stepladder(campaign("--parts b")).code, 0);
  EXPECT_EQ(names(), "b");
  const std::string listing = stepladder(campaign("--parts c,a --dry-run")).out;
  EXPECT_LT(listing.find("a: for a test"), listing.find("c: for a test"))
      << "in the plan's order: " << listing;
  EXPECT_TRUE(says(listing, {"\n2 parts"}));
  ASSERT_EQ(stepladder(campaign("--parts a")).code, 0);
  EXPECT_EQ(names(), "b a");
  EXPECT_TRUE(is_refused(stepladder(campaign("--parts a,bb")), {"--parts bb", " b?"}));
}

TEST_F(HarnessCliCampaign, APartOnSeveralDevicesGoesOnWhereThereAreAsMany) {
  const std::string counted = run_of("13,15", "--rounds 1 --devices {devices}");
  write_plan({{"some", counted}});
  const std::string listing = stepladder(campaign("--dry-run")).out;
  const size_t begin = listing.find("run --rungs"), end = listing.find('\n', begin);
  std::string command = listing.substr(begin, end - begin);
  ASSERT_TRUE(says(command, {"--devices 2 "})) << listing;
  command.replace(command.find("--devices 2"), 11, "--devices 2,3");

  // The part as measured on a machine with three devices.
  write_plan({{"some", run_of("00", "--rounds 1")}});
  ASSERT_EQ(stepladder(campaign()).code, 0);
  Results there = part("some").results;
  there.context["command_line"] = cat("stepladder ", command, " --out sub/c.jsonl --part some --resume");
  there.plan["devices"] = {2, 3};
  write_plan({{"some", counted}});
  for (const bool complete : {true, false}) {
    there.complete = complete;
    Part whole;
    whole.name = "some";
    whole.results = there;
    whole.exit_code = 0;
    whole.last_session = "0123456789abcdef";
    write_file(folder_ / "sub/c.jsonl", lines_of(whole));
    const std::string before = file();
    EXPECT_TRUE(
        ended(stepladder(campaign()), 0, {}, {complete ? "some: done" : "some: skipped: needs 3 devices"}));
    EXPECT_EQ(file(), before) << "which is left as it was";
  }
}

TEST_F(HarnessCliCampaign, FilesOfSeveralCardsAreJoinedByCat) {
  write_plan({{"a", run_of("00", "--rounds 1")}, {"b", run_of("01", "--rounds 1")}});
  ASSERT_EQ(stepladder(campaign("--parts a")).code, 0);
  std::filesystem::rename(folder_ / "sub/c.jsonl", folder_ / "one.jsonl");
  ASSERT_EQ(stepladder(campaign()).code, 0);
  ASSERT_EQ(shell("cat one.jsonl sub/c.jsonl >both.jsonl").code, 0);
  const Json both = parse_json(stepladder("export both.jsonl --format json").out);
  ASSERT_EQ(both["parts"].size(), 2U);
  EXPECT_EQ(both["parts"][0]["result"]["runs"].size(), 2U) << "the other card's round is another";
  EXPECT_EQ(both["parts"][0]["result"]["variants"][0]["rounds"], 2);
  EXPECT_TRUE(says(stepladder("report both.jsonl --out page").out, {"==== a", "==== b"}));
  std::filesystem::copy(folder_ / "both.jsonl", folder_ / "again.jsonl");
  const std::string twice = stepladder("report both.jsonl again.jsonl:a --out page").out;
  EXPECT_TRUE(says(twice, {"==== a:", "==== a of again.jsonl:"})) << twice;
  EXPECT_TRUE(
      is_refused(shell(cat("cat one.jsonl one.jsonl >twice.jsonl; ", kStepladder, " report twice.jsonl")),
                 {"twice.jsonl", "line", "second time"}));
}

TEST_F(HarnessCliCampaign, ADamagedFileIsRefusedByItsNameAndLine) {
  write_plan({{"one", run_of("00", "--rounds 1")}});
  ASSERT_EQ(stepladder(campaign()).code, 0);
  const std::string good = file();
  for (const std::string& damaged : {good + "{}\n", good + "x\n", good + "[7]\n"}) {
    write_file(folder_ / "sub/c.jsonl", damaged);
    for (const char* more : {"", "--dry-run"})
      EXPECT_TRUE(is_refused(stepladder(campaign(more)), {"sub/c.jsonl", "line", "--overwrite"})) << more;
    for (const char* command :
         {"report sub/c.jsonl", "export sub/c.jsonl --format json", "export sub/c.jsonl:one"})
      EXPECT_TRUE(is_refused(stepladder(command), {"sub/c.jsonl"})) << command;
  }
  EXPECT_EQ(stepladder(campaign("--overwrite")).code, 0);
  EXPECT_EQ(climbed("one"), "00");
}

TEST_F(HarnessCliCampaign, ADryRunRefusesWhatARunWouldAndQuotesNoControlCharacters) {
  write_plan({{"one", run_of("00")}});
  for (const char* wrong : {"--preset nonsense", "--ladder nowhere.json"})
    EXPECT_TRUE(is_refused(stepladder(campaign(cat("--dry-run ", wrong))), {"no"})) << wrong;
  write_plan({{"one", run_of("00", "--data \"\033[31mred\"")}});
  EXPECT_FALSE(has(stepladder(campaign("--dry-run")).out, "\033"));
}

TEST_F(HarnessCliCampaign, AShortExportKeepsWhatAPageShows) {
  write_plan({{"one", run_of("00", "--rounds 2")}});
  FakeRung{.name = "00_fp32_baseline", .step_ms = "10.1234567", .loss = "4.5678912"}.write(folder_);
  ASSERT_EQ(stepladder(campaign()).code, 0) << read_file(folder_ / "err.txt");
  ASSERT_EQ(stepladder("export sub/c.jsonl --format short --out short.jsonl.gz").code, 0);
  const Part whole = part("one"), kept = load_parts(folder_ / "short.jsonl.gz").at(0);
  EXPECT_EQ(kept.name + kept.about, "onefor a test");
  EXPECT_EQ(to_json(kept.results.runs[0])["steps"].dump(),
            R"({"step_ms":[10.123,10.123,10.123,10.123,10.123,10.123],)"
            R"("loss":[4.56789,4.56789,4.56789,4.56789,4.56789,4.56789]})");
  EXPECT_EQ(whole.results.runs[0].steps[0].step_ms, 10.123457);
  EXPECT_TRUE(whole.results.runs[0].steps[0].grad_norm);
  EXPECT_EQ(kept.results.runs[0].summary->median_step_ms, whole.results.runs[0].summary->median_step_ms);
  EXPECT_TRUE(kept.results.runs[1].summary->memory.by_name.empty());
  EXPECT_EQ(stepladder("export short.jsonl.gz --format short").out,
            stepladder("export short.jsonl.gz:one --format short").out);
}

TEST_F(HarnessCliCampaign, APartOfItIsReadByItsName) {
  write_plan({{"one", run_of("00,01", "--rounds 2")}, {"failing", run_of("02", "--rounds 1")}});
  rung("00_fp32_baseline").write(folder_);
  FakeRung{.name = "02_tf32", .before_start = "exit 9"}.write(folder_);
  stepladder(campaign());
  const Outcome lines = stepladder("export sub/c.jsonl:one --format csv");
  EXPECT_EQ(lines.code, 0) << lines.err;
  EXPECT_TRUE(has(lines.out, "\n00_fp32_baseline,") && !has(lines.out, "02_tf32")) << lines.out;
  EXPECT_TRUE(has(stepladder("compare sub/c.jsonl:one sub/c.jsonl:one").out, "00_fp32_baseline"));
  EXPECT_TRUE(has(stepladder("report sub/c.jsonl:one --out page").out, "01_causal_mask"));
  EXPECT_EQ(stepladder("resume sub/c.jsonl:one --rounds 3").code, 0);
  EXPECT_EQ(climbed("one"), "00 01 01 00 00 01");
  for (const char* wrong :
       {"sub/c.jsonl:two", "sub/c.jsonl:", "sub/c.jsonl", "sub/none.json:one", "data.bin:one"}) {
    const Outcome outcome = stepladder(cat("export ", wrong, " --format csv"));
    EXPECT_EQ(outcome.code, kExitUsage) << wrong;
    EXPECT_TRUE(one_line(outcome.err) && has(outcome.err, "sub/c.jsonl") == has(wrong, "c.jsonl"))
        << outcome.err;
    EXPECT_EQ(has(outcome.err, "sub/c.jsonl:one"), has(wrong, "c.jsonl")) << outcome.err;
  }
}

TEST_F(HarnessCliCampaign, AShortExportKeepsOfARunUntilALossItsFirstStepsTheLastAndTheSecondsOfEvaluations) {
  write_plan({{"one", "run --rungs 00 --batch 4 --rounds 1 --until-loss 6 --max-steps 200 --eval-every 50"}});
  FakeRung learns = rung("00_fp32_baseline");
  learns.step_ms = "1", learns.loss = "4.$((500 - i))";
  learns.before_step =
      R"([ $((i % 50)) = 0 ] && say '{"event":"eval","step":'$i',"val_loss":'$((9 - i / 50))'}'
                          [ $i = 150 ] && break)";
  learns.write(folder_);
  ASSERT_EQ(stepladder(campaign()).code, 0) << read_file(folder_ / "err.txt");
  expect_contract(folder_ / "sub/c.jsonl");
  ASSERT_EQ(stepladder("export sub/c.jsonl --format short --out short.jsonl").code, 0);
  const Results kept = load_results(folder_ / "short.jsonl"), whole = part("one").results;
  EXPECT_EQ(kept.runs[0].steps.size(), 100U);
  ASSERT_EQ(kept.runs[0].evaluations.size(), 4U);
  EXPECT_EQ(kept.runs[0].evaluations.back().seconds, 0.15);
  EXPECT_NEAR(aggregate(kept).at(0).numbers->to_loss->steps.value, 150, 1e-9);
  EXPECT_EQ(whole.runs[0].steps.size(), 150U);
  EXPECT_EQ(kept.runs[0].steps.back().loss, whole.runs[0].steps.back().loss);

  learns.before_step = "";  // the trainer ends without an evaluation
  learns.write(folder_);
  write_plan({{"one", "run --rungs 00 --batch 4 --rounds 1 --until-loss 6 --max-steps 80 --eval-every 50"}});
  EXPECT_EQ(stepladder(campaign("--overwrite")).code, kExitInconclusive) << read_file(folder_ / "err.txt");
  const std::string text = stepladder("export sub/c.jsonl --format short").out;
  EXPECT_EQ(results_in(text).runs[0].steps.size(), 80U);
}

TEST_F(HarnessCli, NoRungOutlivesAKilledParent) {
  hang("00_fp32_baseline");
  const pid_t pid = start(plan());
  ASSERT_TRUE(appears("pid"));
  ::kill(pid, SIGKILL);
  wait_for(pid);
  EXPECT_TRUE(ends(std::stoi(read_file(folder_ / "pid"))));
}

TEST_F(HarnessCli, CtrlCEndsTheChildKeepsFinishedRunsAndTellsHowToGoOn) {
  hang("01_causal_mask");
  const pid_t pid = start(plan("--rounds 1"));
  ASSERT_TRUE(appears("pid"));
  ::kill(pid, SIGINT);
  EXPECT_EQ(wait_for(pid), 130);
  EXPECT_TRUE(ends(std::stoi(read_file(folder_ / "pid"))));
  const std::string err = read_file(folder_ / "err.txt");
  const std::string last = err.substr(err.rfind('\n', err.size() - 2) + 1);
  EXPECT_TRUE(has(last, "interrupted") && has(last, "`stepladder resume results.json`")) << err;
  expect_contract(folder_ / "results.json");
  EXPECT_EQ(climbed(), "00");
  // A later run neither replaces nor loses an unfinished file.
  EXPECT_EQ(stepladder(plan("--rounds 1")).code, 2);
  rung("01_causal_mask").write(folder_);
  EXPECT_EQ(stepladder(plan("--rounds 1 --resume")).code, 0);
  EXPECT_EQ(climbed(), "00 01 02");
}

TEST_F(HarnessCli, HeedsSignalsThatWhoeverStartedItHasBlocked) {
  EXPECT_EQ(shell(cat("timeout 60 env --block-signal=CHLD ", kStepladder, " ", plan("--rounds 1"))).code, 0);
  hang("00_fp32_baseline");
  const pid_t pid = start_in(
      folder_, cat("export STEPLADDER_BIN_DIR=", folder_ / "", "; exec timeout 60 env --block-signal=TERM ",
                   kStepladder, " ", plan("--rungs 00 --rounds 1 --overwrite")));
  ASSERT_TRUE(appears("pid"));
  ::kill(pid, SIGTERM);  // `timeout` passes the signal on
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(wait_for(pid), 128 + SIGTERM);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST_F(HarnessCli, AFullDiskKeepsWhatWasMeasured) {
  // A file size limit makes writes fail as a full disk does.
  const Outcome outcome = shell(cat("ulimit -f 16; exec ", kStepladder, " ", plan("--rounds 20")));
  EXPECT_EQ(outcome.code, 5) << outcome.err;
  const std::string last = outcome.err.substr(outcome.err.rfind('\n', outcome.err.size() - 2) + 1);
  EXPECT_TRUE(says(last, {"results.json", "ulimit -f", "--resume"})) << outcome.err;
  const size_t kept = results().runs.size();
  EXPECT_GT(kept, 0U);
  EXPECT_LT(kept, 60U);
  size_t told = 0;
  for (size_t at = 0; (at = outcome.err.find(", round ", at)) != std::string::npos; ++at) ++told;
  EXPECT_EQ(told, kept) << "a run is told once it is in the file";
}

TEST_F(HarnessCli, TooLittleMemoryToMapHangsNothing) {
#if defined(STEPLADDER_SANITIZED)
  GTEST_SKIP() << "a sanitizer maps more than any limit";
#endif
  const auto limited = [&](int seconds, const char* command) {
    return shell(cat("export OPENBLAS_NUM_THREADS=2; ulimit -v 150000; timeout -s KILL ", seconds, " ",
                     kStepladder, " ", command));
  };
  if (limited(10, "--version").code == 128 + SIGKILL) GTEST_SKIP() << "this OpenBLAS hangs when it is loaded";
  const Outcome outcome = limited(60, "list");
  if (has(outcome.err, "error while loading shared libraries")) GTEST_SKIP() << "CUDA's alone are larger";
  EXPECT_TRUE(ended(outcome, 0, {"00_fp32_baseline"}));
}

// ---- report ----------------------------------------------------------------------------------------------

TEST_F(HarnessCli, ReportWritesTheTableEvenWithoutPython) {
  ASSERT_EQ(stepladder(plan()).code, 0);
  const Outcome outcome = stepladder("report results.json --out report");
  EXPECT_TRUE(is_refused(outcome, {"warning", "python3-matplotlib"}, 0));
  EXPECT_TRUE(has(read_file(folder_ / "report/summary.md"), "| 02_tf32 |"));
  EXPECT_TRUE(has(outcome.out, "02_tf32"));
}

TEST_F(HarnessCli, ChartsAreDrawnWhateverBackendANotebookNames) {
  ASSERT_EQ(stepladder(plan()).code, 0);
  write_script(folder_ / "python", "printf 'backend %s \\033[31m\\n' \"$MPLBACKEND\"\n");
  const Outcome outcome =
      shell(cat("MPLBACKEND=module://matplotlib_inline.backend_inline STEPLADDER_PYTHON=", folder_ / "python",
                " ", kStepladder, " report results.json --out report"));
  EXPECT_TRUE(ended(outcome, 0, {"backend agg "}));
  EXPECT_FALSE(has(outcome.out, "\033")) << "what a file name holds";
}

TEST_F(HarnessCli, ReportReadsAnUnfinishedRun) {
  ASSERT_EQ(stepladder(plan("--rounds 1")).code, 0);
  std::string file = read_file(folder_ / "results.json");
  file.resize(file.find("01_causal_mask\",\"source_hash"));  // cuts the file within the second run's line
  write_file(folder_ / "results.json", file);
  EXPECT_TRUE(ended(stepladder("report results.json --out report"), 0, {"Unfinished", "1 of 3 runs"}));
  EXPECT_TRUE(has(read_file(folder_ / "report/summary.md"), "| 00_fp32_baseline |"));
}

TEST_F(HarnessCli, ReportOfAFileWithoutAFinishedRunSaysHowToGoOn) {
  ASSERT_EQ(stepladder(plan("--rounds 1")).code, 0);
  Results none = results();
  none.runs.clear();
  write_file(folder_ / "results.json", file_text(none));
  EXPECT_TRUE(is_refused(stepladder("report results.json --out report"), {"stepladder resume results.json"}));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "report"));
}

TEST_F(HarnessCli, ReportLooksForThePlaceOfItsTablesFirst) {
  ASSERT_EQ(stepladder(plan("--rounds 1")).code, 0);
  const std::string begin = "<!-- stepladder: begin -->\n", end = "<!-- stepladder: end -->\n";
  EXPECT_TRUE(is_refused(stepladder("report results.json --out report --into nowhere.md"), {"nowhere.md"}));
  for (const std::string& text :
       {std::string("text\n"), begin + "text\n", end + begin, begin + end + begin + end}) {
    write_file(folder_ / "no-marks.md", text);
    EXPECT_TRUE(is_refused(stepladder("report results.json --out report --into no-marks.md"),
                           {"no-marks.md", "stepladder: begin"}))
        << text;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "report")) << text;
    std::filesystem::remove_all(folder_ / "report");
  }
}

TEST_F(HarnessCli, WhatIsPrintedFitsInAHundredColumns) {
  ASSERT_EQ(stepladder(plan()).code, 0);
  for (const char* command :
       {"--help", "run --help", "resume --help", "gate --help", "export --help", "report --help",
        "report results.json --out report", "compare results.json results.json", "list",
        "plan-run results.json", "diff 00 01 --results results.json"}) {
    std::istringstream lines(stepladder(command).out);
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(text_width(line), line.starts_with(' ') && has(command, "diff") ? 400U : 100U)
          << command << ": " << line;
  }
}

TEST_F(HarnessCli, WhereNothingWasMeasuredYetSaysWhatMeasures) {
  for (const char* command : {"plan-run", "export"})
    EXPECT_TRUE(is_refused(stepladder(command), {kLatestResults, "stepladder run"}));
  EXPECT_FALSE(has(stepladder("export other.json").err, "stepladder run"));
}

TEST_F(HarnessCli, ReportNamesTheFileThatItsPageRefuses) {
  const std::string python = stepladder::python();
  if (std::system(cat(python, " -c 'import jinja2, jsonschema, matplotlib' 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << python << " lacks what the reports need";
  const std::string profile = R"({"line":"session","schema":3,"session":"a","plan":{},"context":{"device":)"
                              R"({"backend":"cpu","name":"x"}}})"
                              "\n{\"line\":\"profile\",\"session\":\"a\"";
  for (const auto& [text, wanted] : std::map<std::string, const char*>{
           {profile + "}\n", "profile"},
           {profile + ",\"phases\":7}\n", "profile"},
           {R"({"schema": 9, "kind": "history"})", "schema 9"},
           {R"({"schema": 3, "kind": "history"})", "series"},
           {R"({"schema": 3, "kind": "history", "series": [{}]})", "series[0]"}}) {
    write_file(folder_ / "mutated.json", text);
    EXPECT_TRUE(is_refused(
        shell(cat("STEPLADDER_PYTHON=", python, " ", kStepladder, " report mutated.json --out report")),
        {"mutated.json", wanted}))
        << text;
  }
}

TEST_F(HarnessCli, ReportOfSeveralResultsIsOneReport) {
  ASSERT_EQ(stepladder(plan()).code, 0);
  Results other = results();
  write_file(folder_ / "again.json", file_text(other));
  EXPECT_TRUE(ended(stepladder("report results.json again.json --out report"), 0));
  EXPECT_TRUE(has(read_file(folder_ / "report/summary.md"), "median ms"));
  other.context["device"]["name"] = "Tesla T4";
  write_file(folder_ / "again.json", file_text(other));
  const Outcome outcome = stepladder("report results.json again.json --out report");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const std::string& text : {outcome.out, read_file(folder_ / "report/summary.md")}) {
    EXPECT_TRUE(has(text, "Tesla T4") && has(text, "x baseline")) << text;
    EXPECT_FALSE(has(text, "median ms")) << text;
  }
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "report"))
    names.insert(entry.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"results.csv", "summary.md"})) << "and nothing else without Python";
}

TEST_F(HarnessCli, ReportLeadsWithTheFileThatHoldsTheMostOfALadder) {
  ASSERT_EQ(stepladder(plan()).code, 0);
  Results few = results();
  std::erase_if(few.runs, [](const stepladder::Run& run) { return run.variant != "02_tf32"; });
  write_file(folder_ / "few.json", file_text(few));
  Results beside = results();  // more rows, of trainers beside the ladder
  for (const char* trainer : {"fp8", "recompute", "fp8_recompute", "own_kernels"})
    for (stepladder::Run run : few.runs) run.variant = trainer, beside.runs.push_back(run);
  std::erase_if(beside.runs, [](const stepladder::Run& run) { return run.variant.starts_with("0"); });
  write_file(folder_ / "beside.json", file_text(beside));
  write_file(folder_ / "noise.json", R"({"schema": 2, "kind": "noise"})");
  Part profile;
  profile.profile = {{"profile", {{"ceilings", Json::object()}}}};
  profile.last_session = "fedcba9876543210";
  write_file(folder_ / "profile.json", lines_of(profile));
  EXPECT_TRUE(ended(
      stepladder("report few.json beside.json noise.json profile.json results.json few.json --out report"), 0,
      {}, {"noise.json", "noise"}));
  const std::string summary = read_file(folder_ / "report/summary.md");
  const size_t first = summary.find("# results.json"), second = summary.find("# few.json");
  EXPECT_LT(first, second) << summary;
  EXPECT_LT(first, summary.find("# beside.json")) << summary;
  EXPECT_NE(second, std::string::npos);
  EXPECT_EQ(summary.find("# few.json", second + 1), std::string::npos) << "given twice, told once";
  EXPECT_EQ(stepladder("report noise.json").code, 2);
}

TEST_F(HarnessCli, ReportIntoWhatIsNoFolderIsOneLine) {
  ASSERT_EQ(stepladder(plan()).code, 0);
  write_file(folder_ / "file", "");
  for (const char* out : {"file", "file/below", "/proc/nowhere", "/dev/null"})
    EXPECT_TRUE(is_refused(stepladder(std::string("report results.json --out ") + out), {out})) << out;
}

// ---- diff ------------------------------------------------------------------------------------------------

TEST_F(HarnessCli, DiffShowsTheLinesAndWhatTheyBuy) {
  ASSERT_EQ(stepladder(plan()).code, 0);
  const Outcome outcome = stepladder("diff 01 tf32 --results results.json");
  EXPECT_TRUE(ended(outcome, 0,
                    {"--- 01_causal_mask\n+++ 02_tf32\n@@",
                     "\n+  const Precision precision = Precision::tf32;\n", "02_tf32", "01_causal_mask"}));
  EXPECT_FALSE(has(outcome.out, "\033")) << "no colour but on a terminal";
  EXPECT_FALSE(has(stepladder("diff 02 02 --results results.json").out, "@@"));
}

TEST_F(HarnessCli, TreeThatWasMovedWithItsBuildIsReadWhereItIs) {
  ASSERT_EQ(stepladder(plan()).code, 0);
  const std::string bin = folder_ / "tree/build/cpu/bin";
  std::filesystem::create_directories(bin);
  for (const char* file : {"stepladder", "libstepladder.so", "libstepladder_harness.so"})
    std::filesystem::copy_file(cat(STEPLADDER_BIN "/", file), cat(bin, "/", file));
  std::filesystem::create_directories(folder_ / "tree/scripts/peers");
  std::filesystem::create_directories(folder_ / "tree/variants");
  write_file(folder_ / "tree/variants/01_causal_mask.cpp", "one\n");
  write_file(folder_ / "tree/variants/02_tf32.cpp", "two\n");
  EXPECT_TRUE(ended(run_in(folder_, cat(bin, "/stepladder diff 01 02 --results results.json")), 0,
                    {"\n-one\n+two\n"}));
}

}  // namespace
}  // namespace stepladder
