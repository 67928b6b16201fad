// A rung's executable: options, files, exit codes, events, signals.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <thread>

#include "bench/run/events.h"
#include "model/cpu/parallel.h"
#include "model/data.h"
#include "model/gpt2.h"
#include "model/tokenizer.h"
#include "tests/command.h"
#include "tests/files.h"
#include "tests/processes.h"
#include "tests/questions.h"
#include "tests/trainers.h"

namespace stepladder {
namespace {

namespace fs = std::filesystem;
using Args = std::vector<std::string>;
using nlohmann::json;

constexpr const char* kRung = "00_fp32_baseline";

struct Result {
  int code;  // exit code, or minus the signal
  std::string out, err;
  std::vector<json> events;

  json last() const { return events.empty() ? json() : events.back(); }
  std::vector<json> of(const std::string& kind) const {
    std::vector<json> found;
    for (const json& event : events)
      if (event["event"] == kind) found.push_back(event);
    return found;
  }
};

class RungCli : public testing::Test {
 protected:
  void SetUp() override {
    // The text repeats every 16 tokens.
    std::vector<uint16_t> tokens(4000);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(i * 7 % 16);
    write_token_file(path("data.bin"), tokens);
  }

  std::string path(const std::string& name) const { return folder_ / name; }

  /// Options of a model that steps in a millisecond, on the repeating text.
  Args tiny(const Args& more) const {
    Args args = {"--backend", "cpu",        "--data",       path("data.bin"),
                 "--vocab",   path("none"), "--layers",     "2",
                 "--heads",   "2",          "--channels",   "16",
                 "--max-seq", "32",         "--vocabulary", "256",
                 "--batch",   "2",          "--lr",         "1e-2"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }

  /// Starts a rung with events on descriptor 3; calls `setup` in the child first.
  template <class Setup>
  pid_t start(const Args& args, Setup setup, const char* rung = kRung) const {
    const std::string program = std::string(STEPLADDER_BIN) + "/" + rung;
    const std::string out = path("out"), err = path("err"), events = path("events");
    std::vector<char*> argv = {const_cast<char*>(program.c_str())};
    for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
    argv.push_back(nullptr);
    const pid_t child = fork();
    if (child != 0) return child;
    const auto redirect = [](const std::string& file, int to) {
      const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      if (fd != to) {
        dup2(fd, to);
        close(fd);
      }
    };
    redirect(out, 1);
    redirect(err, 2);
    redirect(events, 3);
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that times out leaves no child behind
    setup();
    execv(argv[0], argv.data());
    _exit(127);
  }

  Result wait(pid_t child) const {
    int status = 0;
    waitpid(child, &status, 0);
    Result result{WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_file(path("out")),
                  read_file(path("err")), events_so_far()};
    return result;
  }

  std::vector<json> events_so_far() const {
    std::vector<json> events;
    std::ifstream file(path("events"));
    for (std::string line; std::getline(file, line);)
      if (const json event = parse_event(line); !event.is_null()) events.push_back(event);
    return events;
  }

  Result run(const Args& args, const char* rung = kRung) const {
    return wait(start(
        args, [] {}, rung));
  }

  /// Expects the exit code, and one line on stderr that contains `what`.
  static void expect_error(const Result& result, int code, const std::string& what) {
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_TRUE(result.err.starts_with(std::string(kRung) + ": error: ")) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_TRUE(says(result.err, {what}));
  }

  struct Halves {
    Result whole, rest;
  };
  /// Trains `steps` steps at once (checkpoint "whole"), then in two parts that meet at step `half`
  /// (checkpoints "half" and "resumed"), and expects the same losses and last checkpoint. `first`: options
  /// that a resumed run has from its checkpoint.
  Halves train_in_halves(size_t half, size_t steps, Args options, const Args& first = {},
                         const char* rung = kRung) const {
    options.insert(options.end(), {"--events", "3", "--steps"});
    const auto train = [&](size_t last, const Args& more) {
      Args args = tiny(options);
      args.push_back(cat(last));
      args.insert(args.end(), more.begin(), more.end());
      Result result = run(args, rung);
      EXPECT_EQ(result.code, 0) << rung << ": " << result.err;
      return result;
    };
    const auto from_start = [&](size_t last, const char* file) {
      Args more = {"--checkpoint", path(file)};
      more.insert(more.end(), first.begin(), first.end());
      return train(last, more);
    };
    const Result whole = from_start(steps, "whole");
    from_start(half, "half");
    const Result rest = train(steps, {"--resume", path("half"), "--checkpoint", path("resumed")});
    const auto all = whole.of("step"), second = rest.of("step");
    EXPECT_EQ(second.size(), steps - half) << rung;
    for (size_t i = 0; i < second.size() && half + i < all.size(); ++i)
      EXPECT_EQ(second[i]["loss"], all[half + i]["loss"]) << rung;
    EXPECT_FALSE(read_file(path("whole")).empty()) << rung;
    EXPECT_TRUE(read_file(path("whole")) == read_file(path("resumed"))) << rung;
    return {whole, rest};
  }

  TempFolder folder_;
};

TEST_F(RungCli, UnknownOptionIsAUsageErrorThatNamesTheNearest) {
  expect_error(run({"--bath", "4"}), kExitUsage, "--batch");
  expect_error(run({"--warmup-steps=4"}), kExitUsage, "--warmup-lr-steps");
  expect_error(run({"train"}), kExitUsage, "'train'");
}

TEST_F(RungCli, ValueOutOfRangeIsAUsageErrorThatNamesTheOption) {
  for (const Args& args :
       {Args{"--batch", "0"}, Args{"--batch", "99999999"}, Args{"--batch", "4x"}, Args{"--steps", "-1"},
        Args{"--seed", "-1"}, Args{"--lr", "nan"}, Args{"--lr", "inf"}, Args{"--beta2", "1"},
        Args{"--backend", "gpu"}, Args{"--top-k", "1.5"}, Args{"--events", "57"}, Args{"--prompt"},
        Args{"--data", ""}})
    expect_error(run(args), kExitUsage, args.front());
}

TEST_F(RungCli, NoFolderKeepsAlgorithmsWhereNoneIsAskedFor) {
  EXPECT_EQ(run(tiny({"--steps", "1", "--cache", ""})).code, 0);
}

TEST_F(RungCli, ARangeHoldsItsLimits) {
  for (const auto& [option, limit] :
       {std::pair("--grad-clip", "1e-9"), std::pair("--grad-clip", "1e9"), std::pair("--loss-scale", "1e30")})
    EXPECT_EQ(run({"--model", "gpt2-tiny", "--backend", "cpu", "--plan", option, limit}).code, 0) << limit;
}

TEST_F(RungCli, ContradictionsAreUsageErrors) {
  expect_error(run({"--init", "a", "--resume", "b"}), kExitUsage, "--init and --resume");
  expect_error(run({"--checkpoint-every", "2"}), kExitUsage, "--checkpoint");
  expect_error(run({"--until-loss", "3"}), kExitUsage, "--eval-every");
  expect_error(run(tiny({"--until-loss", "9", "--eval-every", "1"})), kExitUsage, "--until-loss 9");
  expect_error(run(tiny({"--eval-every", "1", "--eval-skip", "2000000"})), kExitUsage, "--eval-skip 2000000");
  expect_error(run(tiny({"--channels", "17"})), kExitUsage, "C=17");
  for (const char* name : {"checkpoint", "save-weights", "times"})
    expect_error(run(tiny({"--steps", "0", cat("--", name), "x"})), kExitUsage, name);
  expect_error(run(tiny({"--seq", "33"})), kExitUsage, "T=33");
}

TEST_F(RungCli, UnknownModelNamesTheNearest) {
  expect_error(run({"--backend", "cpu", "--model", "gpt2-midium"}), kExitUsage, "gpt2-medium");
}

TEST_F(RungCli, HelpListsLongOptionsAndShowsItselfForH) {
  const Result help = run({"--help-all"});
  EXPECT_EQ(help.code, 0);
  for (const char* option :
       {"--data", "--batch", "--warmup-lr-steps", "--sample-every", "--events", "--version", "--lr"})
    EXPECT_TRUE(says(help.out, {option})) << option;
  EXPECT_FALSE(std::regex_search(help.out, std::regex("(^|\\s)-[a-gi-z]")));
  EXPECT_EQ(run({"-h"}).out, run({"--help"}).out);
  EXPECT_NE(run({"-h"}).out, help.out);
  EXPECT_TRUE(run({"--version"}).out.starts_with(std::string(kRung) + " "));
}

TEST_F(RungCli, WhatItWritesReplacesNoFileOfAnotherKind) {
  const std::string mine = path("mine"), text = "of my own\n";
  for (const std::string option : {"--checkpoint", "--save-weights", "--times"}) {
    write_file(mine, text);
    expect_error(run(tiny({"--steps", "1", option, mine})), kExitUsage, mine);
    EXPECT_EQ(read_file(mine), text) << option;
    write_file(mine, "");  // an empty file, as mktemp makes
    for (const char* time : {"first", "again"})
      EXPECT_EQ(run(tiny({"--steps", "1", option, mine})).code, 0) << option << ", " << time;
    fs::remove(mine);
  }
}

TEST_F(RungCli, NoFileThatItWritesReplacesAnother) {
  for (const char* other : {"--save-weights", "--times"})
    expect_error(run(tiny({"--steps", "1", "--checkpoint", path("one"), other, path("./one")})), kExitUsage,
                 other);
  ASSERT_EQ(run(tiny({"--steps", "1", "--checkpoint", path("one")})).code, 0);
  expect_error(run(tiny({"--steps", "2", "--resume", path("one"), "--save-weights", path("one")})),
               kExitUsage, "--save-weights");
  EXPECT_EQ(run(tiny({"--steps", "2", "--resume", path("one"), "--checkpoint", path("one")})).code, 0);
}

TEST_F(RungCli, WeightsAndCheckpointsReplaceOnlyTheirLikeOfOurs) {
  ASSERT_EQ(
      run(tiny({"--steps", "1", "--checkpoint", path("state"), "--save-weights", path("weights")})).code, 0);
  std::string others = read_file(path("weights"));  // a file of Hugging Face, without our metadata
  others.replace(others.find("stepladder.config"), 17, "somebodys.comment");
  write_file(path("others"), others);
  for (const auto& [option, file] :
       {std::pair("--save-weights", "state"), std::pair("--save-weights", "others"),
        std::pair("--checkpoint", "weights"), std::pair("--checkpoint", "others")}) {
    const std::string before = read_file(path(file));
    expect_error(run(tiny({"--steps", "1", option, path(file)})), kExitUsage, path(file));
    EXPECT_EQ(read_file(path(file)), before) << option;
  }
  EXPECT_EQ(run(tiny({"--steps", "1", "--init", path("others")})).code, 0) << "it can be read";
}

TEST_F(RungCli, AnotherModelsConfigBesideNewWeightsIsFoundBeforeTraining) {
  fs::create_directory(path("folder"));
  write_file(path("folder/config.json"), R"({"n_head": 1, "n_embd": 64})");
  expect_error(run(tiny({"--steps", "1", "--save-weights", path("folder/model.safetensors"), "--checkpoint",
                         path("state")})),
               kExitUsage, "config.json");
  EXPECT_FALSE(fs::exists(path("folder/model.safetensors")));
  EXPECT_FALSE(fs::exists(path("state"))) << "it was trained before";
}

TEST_F(RungCli, TextByAnotherNameIsNotTakenForTokens) {
  for (const char* name : {"notes.md", "notes"}) {
    write_file(path(name), std::string(5000, 'a') + "\n\tB\xc3\xa9\n");
    expect_error(run(tiny({"--steps", "1", "--data", path(name)})), kExitUsage, "notes.txt");
    expect_error(run(tiny({"--steps", "1", "--val-data", path(name)})), kExitUsage, "notes.txt");
  }
  std::string raw;
  for (int i = 0; i < 4000; ++i) raw += {static_cast<char>(i % 16), '\0'};
  write_file(path("tokens"), raw);
  EXPECT_EQ(run(tiny({"--steps", "1", "--data", path("tokens")})).code, 0);
}

TEST_F(RungCli, BadDataIsAUsageErrorThatNamesTheFile) {
  const std::string good = read_file(path("data.bin"));
  const auto with = [&](const std::string& name, const std::string& content) {
    std::ofstream(path(name), std::ios::binary) << content;
    return run(tiny({"--data", path(name)}));
  };
  expect_error(with("truncated.bin", good.substr(0, good.size() - 100)), kExitUsage, path("truncated.bin"));
  expect_error(with("odd.bin", "abc"), kExitUsage, path("odd.bin"));
  expect_error(with("empty.bin", ""), kExitUsage, path("empty.bin"));
  const Result tokens = with("short.bin", std::string("a\0b\0", 4));
  expect_error(tokens, kExitUsage, path("short.bin"));
  EXPECT_TRUE(says(tokens.err, {"2 tokens", "65"}));  // fewer than B T + 1 tokens
  std::string outside = good;
  outside[1024 + 11] = '\x01';  // token 5 becomes >= 256
  expect_error(with("outside.bin", outside), kExitUsage, path("outside.bin"));
  expect_error(run(tiny({"--data", path("missing.bin")})), kExitUsage, path("missing.bin"));
  expect_error(run(tiny({"--batch", "1000"})), kExitUsage, path("data.bin"));
}

TEST_F(RungCli, APathThatCannotBeLookedAtIsAUsageErrorThatNamesIt) {
  fs::create_symlink("loop", path("loop"));
  const std::string longer = path(std::string(300, 'x'));
  for (const std::string& bad : {path("loop"), path("loop/shard.bin"), longer}) {
    expect_error(run(tiny({"--data", bad})), kExitUsage, bad);
    expect_error(run(tiny({"--steps", "0", "--vocab", bad})), kExitUsage, bad);
  }
}

TEST_F(RungCli, BatchThatDoesNotFitTellsTheLargestThatDoes) {
  const auto with_batch = [&](const std::string& batch) {
    return run(tiny({"--layers", "64", "--max-seq", "2048", "--batch", batch, "--events", "3"}));
  };
  const Result result = with_batch("16384");
  expect_error(result, kExitFailed, "B=16384 T=2048");
  EXPECT_EQ(result.last()["status"], "oom");
  std::smatch fits;
  const std::string reason = result.last()["reason"];
  ASSERT_TRUE(std::regex_search(reason, fits, std::regex("iB .* --batch (\\d+)$"))) << reason;
  // The margin of 2 covers changes of free memory between two runs.
  const Result next = with_batch(std::to_string(std::stoll(fits[1]) + 2));
  EXPECT_EQ(next.last()["status"], "oom");
}

TEST_F(RungCli, WhereThreadsTakeTheMemoryFewerAreTheWayOut) {
  const Environment threads("OMP_NUM_THREADS", "10000000");
  expect_error(run(tiny({})), kExitFailed, "lower OMP_NUM_THREADS from 10000000");
}

TEST_F(RungCli, AnyRungLooksForItsBatchUpToAMaximum) {
  Args args = tiny({"--plan", "--max-batch", "9"});
  args.erase(std::find(args.begin(), args.end(), "--batch"), std::find(args.begin(), args.end(), "--lr"));
  EXPECT_EQ(json::parse(run(args).out)["batch"], 8);
  args.insert(args.end(), {"--batch", "3"});
  EXPECT_EQ(json::parse(run(args).out)["batch"], 3) << "who names a batch gets it";
}

TEST_F(RungCli, EveryRungLearnsARepeatingText) {
  for (const RungBuild& rung : linked_rungs()) {
    const Result result = run(tiny({"--steps", "20", "--events", "3"}), rung.name.c_str());
    EXPECT_EQ(result.code, 0) << result.err;
    const auto steps = result.of("step");
    ASSERT_EQ(steps.size(), 20U) << rung.name;
    EXPECT_NEAR(steps.front()["loss"], std::log(256.0), 0.1) << rung.name;  // uniform probabilities
    EXPECT_LT(steps.back()["loss"], 0.6 * steps.front()["loss"].get<double>()) << rung.name;
  }
}

TEST_F(RungCli, TrainingEndsAtTheFirstValidationLossThatIsLowEnough) {
  for (const char* rung : {"00_fp32_baseline", "13_cuda_graphs"}) {
    const Result result = run(tiny({"--steps", "40", "--eval-every", "2", "--eval-batches", "1",
                                    "--until-loss", "4.5", "--events", "3"}),
                              rung);
    ASSERT_EQ(result.code, 0) << result.err;
    const auto evaluations = result.of("eval");
    EXPECT_EQ(evaluations.front()["step"], 0);
    EXPECT_NEAR(evaluations.front()["val_loss"], std::log(256.0), 0.1);
    for (const json& evaluation : evaluations)
      EXPECT_EQ(evaluation["val_loss"] <= 4.5, evaluation == evaluations.back()) << evaluation;
    EXPECT_EQ(evaluations.back()["step"], result.of("step").size());
    EXPECT_LT(result.of("step").size(), 40U);
  }
  const Result missed =
      run(tiny({"--steps", "2", "--eval-every", "1", "--until-loss", "0.5", "--events", "3"}));
  EXPECT_EQ(missed.code, kExitInconclusive);
  EXPECT_TRUE(says(missed.err, {"0.5", "2 steps", "--steps"}));
  EXPECT_EQ(missed.last()["event"], "end");
}

TEST_F(RungCli, LossScaleThatOverflowsIsToldAndRecovers) {
  const Result result = run(
      tiny({"--steps", "40", "--dtype", "fp16", "--loss-scale", "1e9", "--events", "3"}), "13_cuda_graphs");
  ASSERT_EQ(result.code, 0) << result.err;
  const int64_t skipped = result.of("end").front()["skipped_steps"];
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, 20);
  EXPECT_TRUE(result.out.find(" | steps skipped " + std::to_string(skipped)) != std::string::npos)
      << result.out;
  const auto steps = result.of("step");
  EXPECT_LT(steps.back()["loss"], 0.6 * steps.front()["loss"].get<double>());
}

TEST_F(RungCli, EventsAreCompleteAndInOrder) {
  const Result result =
      run(tiny({"--steps", "4", "--eval-every", "2", "--eval-batches", "2", "--events", "3"}));
  ASSERT_EQ(result.code, 0) << result.err;
  std::string order;
  for (const json& event : result.events) order += event["event"].get<std::string>() + " ";
  EXPECT_EQ(order, "start step step eval step step eval end ");

  const json start = result.events.front();
  EXPECT_EQ(start["variant"], kRung);
  EXPECT_EQ(start["backend"], "cpu");
  EXPECT_EQ(start["source_hash"].get<std::string>().size(), 64U);
  EXPECT_EQ(start["config"]["B"], 2);
  EXPECT_EQ(start["config"]["T"], 32);
  EXPECT_EQ(start["config"]["lr"], 1e-2);
  EXPECT_EQ(start["config"]["seed"], 1337);
  EXPECT_EQ(start["config"]["threads"], max_threads());
  EXPECT_FALSE(start["device"]["name"].get<std::string>().empty());
  EXPECT_GT(start["startup_ms"], 0.0);
  EXPECT_LT(start["startup_ms"], 60e3);
  int64_t total = 0;
  for (const json& bytes : start["memory_by_name"]) total += bytes.get<int64_t>();

  int64_t next = 0;
  for (const json& step : result.of("step")) {
    EXPECT_EQ(step["step"], next++);
    for (const char* key : {"step_ms", "device_ms", "loss", "grad_norm", "lr"})
      EXPECT_GT(step[key], 0.0) << key;
  }
  EXPECT_EQ(result.of("eval").back()["step"], 4);
  const json memory = result.last()["memory_bytes"];
  EXPECT_EQ(memory["live_peak"], total);
  EXPECT_GE(memory["reserved_peak"], total);
  EXPECT_GT(memory["process_peak"], 0);
  EXPECT_GT(memory["by_name"]["params"], 0);
}

TEST_F(RungCli, OutputHasABoxAStepLineAndASummary) {
  const Result result = run(tiny({"--steps", "3"}));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(result.out.starts_with("+--"));
  EXPECT_EQ(result.out.find('\x1b'), std::string::npos) << "escape codes without a terminal";
  const std::regex line(
      R"(\nstep 3/3 \| loss \d\.\d{4} \| norm \d+\.\d{4} \| lr 3\.00e-03 \| \d+\.\d{3} ms \| MFU n/a \| [\d,]+ tok/s\n)");
  EXPECT_TRUE(std::regex_search(result.out, line)) << result.out;
  EXPECT_TRUE(std::regex_search(result.out, std::regex("\nmedian \\d+\\.\\d\\d ms \\| [^\n]*\n$")))
      << result.out;
}

TEST_F(RungCli, TheBoxHasWhatIsOnAlone) {
  const std::regex off("\n\\| (shuffle|deterministic|val-data|max-batch) ");
  const std::regex on("\n\\| deterministic +\\| true ");
  const std::string usual = run(tiny({"--steps", "1"})).out;
  EXPECT_FALSE(std::regex_search(usual, off)) << usual;
  const std::string asked = run(tiny({"--steps", "1", "--deterministic"})).out;
  EXPECT_TRUE(std::regex_search(asked, on)) << asked;
}

/// Writes 5 training shards, each with 4 batches of 2 x 32 tokens, and a validation shard; no two batches are
/// alike.
void write_shards(const fs::path& folder) {
  fs::create_directory(folder);
  for (size_t shard = 0; shard < 6; ++shard) {
    std::vector<uint16_t> tokens(4 * 64 + 1);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>((i * i + shard * 31) % 256);
    write_token_file(
        (folder / (std::string(shard > 0 ? "t_train_" : "t_val_") + std::to_string(shard) + ".bin")).string(),
        tokens);
  }
}

TEST_F(RungCli, ResumedRunOnShardsIsBitwiseTheUninterruptedOne) {
  write_shards(folder_ / "shards");
  for (const char* rung : {kRung, "04_pinned_loader"}) {
    std::vector<json> curves;
    for (const Args& order : {Args{}, Args{"--shuffle"}}) {
      Args options = {"--accumulate",   "3", "--eval-every", "100",
                      "--eval-batches", "4", "--data",       path("shards")};
      options.insert(options.end(), order.begin(), order.end());
      // 16 steps of 3 batches are more than two epochs of 20 batches; the checkpoint falls within a shard.
      const auto [whole, rest] = train_in_halves(9, 16, options, {"--seed", "7"}, rung);
      EXPECT_EQ(rest.of("eval").back()["val_loss"], whole.of("eval").back()["val_loss"]);
      EXPECT_EQ(whole.events.front()["config"]["shuffle"], order.size() == 1);
      curves.push_back(whole.of("step").front()["loss"]);
    }
    EXPECT_NE(curves[0], curves[1]) << "--shuffle changes nothing";
  }
}

TEST_F(RungCli, ADamagedShardIsAUsageErrorThatNamesIt) {
  write_shards(folder_ / "shards");
  const std::string shard = path("shards/t_train_3.bin"), good = read_file(shard);
  const auto with = [&](const std::string& content) {
    std::ofstream(shard, std::ios::binary) << content;
    return run(tiny({"--data", path("shards/*.bin"), "--steps", "20"}));
  };
  expect_error(with(good.substr(0, good.size() - 2)), kExitUsage, shard);
  expect_error(with("x" + good.substr(1)), kExitUsage, shard);
  std::string outside = good;
  outside[1024 + 2 * 70 + 1] = '\x01';  // token 70 becomes >= 256
  expect_error(with(outside), kExitUsage, shard + ": token 3");
  expect_error(with(outside), kExitUsage, " at position 70 ");
  expect_error(run(tiny({"--data", path("shards/*.npy")})), kExitUsage, path("shards/*.npy"));
  expect_error(run(tiny({"--data", path("shards/*_val_*")})), kExitUsage, "t_val_0.bin");
  fs::create_directory(folder_ / "empty");
  expect_error(run(tiny({"--data", path("empty")})), kExitUsage, path("empty"));
  expect_error(run(tiny({"--val-data", path("empty")})), kExitUsage, path("empty"));
}

TEST_F(RungCli, ResumedRunIsBitwiseTheUninterruptedOne) {
  train_in_halves(3, 6, {"--accumulate", "2"});
  // A resumed run takes the model's shape from the checkpoint.
  const Result alone = run({"--backend", "cpu", "--data", path("data.bin"), "--batch", "2", "--resume",
                            path("whole"), "--steps", "7"});
  EXPECT_EQ(alone.code, 0) << alone.err;
  expect_error(run(tiny({"--resume", path("whole"), "--steps", "6"})), kExitUsage, path("whole"));
  expect_error(run(tiny({"--resume", path("whole"), "--steps", "7", "--seed", "4"})), kExitUsage, "--seed 4");
  std::string damaged = read_file(path("half"));
  const std::string batch = R"("stepladder.batch":")", many = "9223372036854775807";
  const size_t at = damaged.find(batch) + batch.size(), size = damaged.find('"', at) - at;
  damaged.replace(at, size, many);
  uint64_t header = 0;
  std::memcpy(&header, damaged.data(), sizeof header);
  header += many.size() - size;
  std::memcpy(damaged.data(), &header, sizeof header);
  write_file(path("damaged"), damaged);
  expect_error(run(tiny({"--resume", path("damaged"), "--steps", "6"})), kExitUsage, "stepladder.batch");
}

TEST_F(RungCli, RungsOfTheLadderOfLearningGoOnToTheLastBitAndSample) {
  for (const Rung& rung : trainers_of(*our_ladder("learning"))) {
    const char* name = rung.name.c_str();
    const auto [whole, rest] = train_in_halves(
        3, 6, {"--accumulate", "2", "--eval-every", "6", "--eval-batches", "2", "--deterministic"}, {}, name);
    EXPECT_EQ(rest.of("eval").back()["val_loss"], whole.of("eval").back()["val_loss"]) << name;

    const Args resumed = {"--backend", "cpu", "--vocab",  "none", "--resume",        path("whole"),
                          "--steps",   "0",   "--prompt", "ab",   "--sample-tokens", "8"};
    const Result sample = run(resumed, name);
    EXPECT_EQ(sample.code, 0) << sample.err;
    EXPECT_EQ(sample.out.size(), 2U + 8U + 1U) << name;
    EXPECT_EQ(run(resumed, name).out, sample.out) << name;
    // Rung 13 refuses these checkpoints: they have another architecture, or no AdamW moments of the matrices.
    const Result other = run(resumed, "13_cuda_graphs");
    EXPECT_EQ(other.code, kExitUsage) << name;
    EXPECT_TRUE(says(other.err, {path("whole"), rung.name == "01_muon" ? "stepladder.m.h.0.attn.c_attn.weight"
                                                                       : "\"stepladder_"}));
  }
}

TEST_F(RungCli, SavedWeightsStartAnotherRun) {
  const Result first =
      run(tiny({"--steps", "5", "--save-weights", path("weights"), "--eval-every", "5", "--events", "3"}));
  ASSERT_EQ(first.code, 0) << first.err;
  const Result second = run(
      tiny({"--steps", "1", "--lr", "0", "--init", path("weights"), "--eval-every", "1", "--events", "3"}));
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(first.of("eval").back()["val_loss"], second.of("eval").back()["val_loss"]);
}

TEST_F(RungCli, LossThatIsNotANumberEndsTheRunAsDiverged) {
  const Result result =
      run(tiny({"--steps", "200", "--lr", "100", "--weight-decay", "100", "--warmup-lr-steps", "0",
                "--checkpoint", path("diverged"), "--events", "3"}));
  expect_error(result, kExitFailed, "at step ");
  EXPECT_EQ(result.last()["status"], "diverged");
  EXPECT_TRUE(result.of("step").back()["loss"].is_null());
  EXPECT_FALSE(fs::exists(path("diverged")));
}

TEST_F(RungCli, StopSignalFinishesTheStepAndLeavesACheckpoint) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const pid_t child =
        start(tiny({"--steps", "1000000", "--checkpoint", path("stopped"), "--events", "3"}), [] {});
    for (int i = 0; i < 1000 && events_so_far().size() < 4; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    kill(child, signal);
    const Result result = wait(child);
    EXPECT_EQ(result.code, 128 + signal) << result.err;
    EXPECT_EQ(result.last()["status"], "interrupted");
    EXPECT_TRUE(says(result.err, {"--resume " + path("stopped"), "--checkpoint " + path("stopped")}));
    const auto done = std::to_string(result.of("step").size() + 1);
    const Result resumed = run(tiny({"--resume", path("stopped"), "--steps", done, "--events", "3"}));
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(resumed.of("step").size(), 1U);
    fs::remove(path("stopped"));
  }
}

TEST_F(RungCli, ASignalThatItWasStartedToIgnoreIsIgnored) {
  const pid_t child =
      start(tiny({"--steps", "1000000", "--events", "3"}), [] { std::signal(SIGINT, SIG_IGN); });
  for (int i = 0; i < 1000 && events_so_far().size() < 4; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  kill(child, SIGINT);
  kill(child, SIGTERM);
  EXPECT_EQ(wait(child).code, 128 + SIGTERM);
}

TEST_F(RungCli, AStopSignalIsAnsweredAtOnce) {
  for (const bool heard : {false, true}) {  // a harness that hears events prints its own answer
    Args args = tiny({"--steps", "1000000", "--checkpoint", path("stopped"), "--checkpoint-every", "1"});
    if (heard) args.insert(args.end(), {"--events", "3"});
    const pid_t child = start(args, [] {});
    for (int i = 0; i < 1000 && !fs::exists(path("stopped")); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    kill(child, SIGINT);
    const Result result = wait(child);
    EXPECT_EQ(says(result.err, {"ends after this step"}), !heard) << result.err;
    fs::remove(path("stopped"));
  }
}

TEST_F(RungCli, CheckpointThatCannotBeWrittenKeepsTheOldOne) {
  ASSERT_EQ(run(tiny({"--steps", "1", "--checkpoint", path("kept")})).code, 0);
  const std::string before = read_file(path("kept"));
  const auto full_disk = [] {
    const rlimit limit{40000, 40000};
    setrlimit(RLIMIT_FSIZE, &limit);
  };
  const Result result = wait(start(tiny({"--steps", "2", "--checkpoint", path("kept")}), full_disk));
  expect_error(result, kExitUsage, path("kept"));
  EXPECT_TRUE(read_file(path("kept")) == before);
  // A checkpoint that can't be written fails before the first step.
  const Result nowhere = run(tiny({"--steps", "2", "--checkpoint", path("none/kept")}));
  expect_error(nowhere, kExitUsage, path("none/kept"));
  EXPECT_EQ(nowhere.out, "");
}

TEST_F(RungCli, TooLittleMemoryToMapIsAnErrorAndNoHang) {
#if defined(STEPLADDER_SANITIZED)
  GTEST_SKIP() << "a sanitizer maps more than any limit";
#endif
  int trained = 0, refused = 0;
  for (const rlim_t mib : {120, 150, 200, 300, 400, 500, 600, 700, 800, 1000}) {
    const auto limited = [&](unsigned seconds, const Args& args) {
      return wait(start(args, [mib, seconds] {
        const rlimit limit{mib << 20, mib << 20};
        setrlimit(RLIMIT_AS, &limit);
        for (const char* threads : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) setenv(threads, "2", 1);
        alarm(seconds);
      }));
    };
    if (limited(10, {"--version"}).code == -SIGALRM) continue;  // OpenBLAS 0.3.29 hangs while it loads
    const Result result = limited(60, tiny({"--steps", "2"}));
    if (result.err.find("error while loading shared libraries") != std::string::npos)
      GTEST_SKIP() << "CUDA's alone are larger";
    EXPECT_GE(result.code, 0) << mib << " MiB: ended by a signal";
    if (result.code == 0)
      ++trained;
    else if (result.err.find("ulimit -v") != std::string::npos)
      ++refused;
    if (result.code != 0) expect_error(result, result.code, "memory");
  }
  EXPECT_GT(trained, 0);
  EXPECT_GT(refused, 0);
}

TEST_F(RungCli, SamplingPrintsOnlyTextAndRepeats) {
  ASSERT_EQ(run(tiny({"--steps", "2", "--checkpoint", path("model")})).code, 0);
  const Args args = {"--backend", "cpu",  "--steps",  "0",  "--resume",        path("model"),
                     "--vocab",   "none", "--prompt", "ab", "--sample-tokens", "8"};
  const Result first = run(args), second = run(args);
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_TRUE(first.out.starts_with("ab")) << first.out;
  EXPECT_EQ(first.out.size(), 2U + 8U + 1U) << first.out;  // one byte a token
  EXPECT_EQ(first.out, second.out);
  EXPECT_TRUE(
      std::regex_match(first.err, std::regex("8 tokens in [0-9.]+ s: the first after [0-9.]+ ms, then "
                                             "[0-9.]+ ms a token, [0-9.]+ tokens/s\n")))
      << first.err;

  Args many = args;
  many.back() = "30";
  for (const char* seed : {"1", "2", "3", "4"}) {
    many.insert(many.end(), {"--top-k", "0", "--temperature", "100", "--seed", seed});
    EXPECT_TRUE(std::ranges::none_of(run(many).out, [](unsigned char c) {
      return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
    })) << "a token of each byte, ESC too";
    many.resize(args.size());
  }

  Args without_vocabulary = args;
  *std::ranges::find(without_vocabulary, "none") = path("nowhere");
  expect_error(run(without_vocabulary), kExitUsage, path("nowhere"));
}

TEST_F(RungCli, HellaSwagIsAnsweredBesideTheValidationLossAndFromACheckpoint) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "ab";  // a completion that goes on so is the right one
  write_file(path("text.txt"), text);
  const auto token = [](const char* character) { return static_cast<uint16_t>(encode_bytes(character)[0]); };
  const uint16_t a = token("a"), b = token("b"), c = token("c");
  write_questions(path("questions.bin"), {{1, {a, b}, {{b, b}, {a}}}, {0, {b, a}, {{b, a}, {c}}}});
  const Args of_text = {"--data", path("text.txt"), "--vocab", "none", "--hellaswag", path("questions.bin")};
  Args training =
      tiny({"--steps", "100", "--eval-every", "100", "--lr", "0.01", "--checkpoint", path("model")});
  training.insert(training.end(), of_text.begin(), of_text.end());
  const Result trained = run(training);
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_TRUE(says(trained.out, {"HellaSwag accuracy 1.0000 (2 of 2) after 100 steps"}));
  Args asking = {"--backend", "cpu", "--steps", "0", "--resume", path("model")};
  asking.insert(asking.end(), of_text.begin(), of_text.end());
  const Result asked = run(asking);
  EXPECT_EQ(asked.code, 0) << asked.err;
  EXPECT_EQ(asked.out, "HellaSwag accuracy 1.0000 (2 of 2)\n");

  write_file(path("foreign.bin"), "PAR1");
  asking.back() = path("foreign.bin");
  expect_error(run(asking), kExitUsage, path("foreign.bin"));
  expect_error(run(tiny({"--hellaswag", path("questions.bin")})), kExitUsage, "--eval-every");
}

TEST_F(RungCli, AnEmptyPromptIsOneThatTheModelHasATokenFor) {
  write_file(path("text.txt"), std::string(1000, 'a'));
  const Args training = tiny({"--data", path("text.txt"), "--steps", "2", "--sample-every", "1"});
  EXPECT_EQ(run(training).code, 0);
  EXPECT_EQ(run(tiny({"--vocab", "none", "--steps", "0", "--sample-tokens", "2"})).code, 0);
  expect_error(run(tiny({"--vocab", "none", "--steps", "0", "--vocabulary", "50", "--prompt", "z"})),
               kExitUsage, "--prompt: token 89");
}

TEST_F(RungCli, OutputThatCannotBeWrittenIsAFailure) {
  const Args sampling = {"--backend", "cpu", "--model",  "gpt2-tiny", "--vocab",         "none",
                         "--steps",   "0",   "--prompt", "a",         "--sample-tokens", "2"};
  for (const Args& args : {tiny({"--steps", "1"}), Args{"--help"}, sampling}) {
    std::string line = cat("'", STEPLADDER_BIN, "/02_tf32'");
    for (const std::string& arg : args) line += cat(" '", arg, "'");
    EXPECT_TRUE(
        ended(run_in(folder_, "exec " + line + " >/dev/full"), kExitFailed, {}, {"output", "disk full"}))
        << line;
  }
}

TEST_F(RungCli, RunEndsWhenTheReaderOfItsEventsIsGone) {
  const auto close_reader = [] {
    int ends[2];
    if (pipe(ends) == 0) {
      close(ends[0]);
      dup2(ends[1], 3);
    }
  };
  const Result result = wait(start(tiny({"--steps", "1000000", "--events", "3"}), close_reader));
  expect_error(result, kExitFailed, "reader of --events");
}

TEST(Events, TornLinesAreNull) {
  EXPECT_EQ(parse_event(R"({"event":"end"})")["event"], "end");
  for (const char* line :
       {"", "{", R"({"event":"st)", "[]", "null", R"({"event":1})", R"({"step":0})", "\xff"})
    EXPECT_TRUE(parse_event(line).is_null()) << line;
}

}  // namespace
}  // namespace stepladder
