// Several ranks on the CPU under mpirun: they learn what one rank learns, resume on another number of ranks,
// and end together when one fails.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "bench/run/events.h"
#include "model/data.h"
#include "model/safetensors.h"
#include "tests/files.h"
#include "tests/losses.h"
#include "tests/processes.h"
#include "tests/tokens.h"

namespace stepladder {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;
namespace fs = std::filesystem;

const std::string kBin = STEPLADDER_BIN;

class Multirank : public testing::Test {
 protected:
  void SetUp() override {
    if (!open_mpi_is_here()) GTEST_SKIP() << "no mpirun: install openmpi-bin and libopenmpi-dev";
    if (!fs::exists(kBin + "/libstepladder_mpi.so"))
      GTEST_SKIP() << "built without MPI: install libopenmpi-dev and build again";
    write_learnable_tokens(folder_ / "data.bin", 20000);
  }

  /// A rung's command line for gpt2-tiny with a small vocabulary. In fp32 no sum is rounded to 16 bits, so
  /// that ranks agree with accumulation; with `dtype` "" the rung keeps its own type.
  std::string rung(const std::string& name, const std::string& options,
                   const char* dtype = " --dtype fp32") const {
    return cat("'", kBin, "/", name, "' --backend cpu --model gpt2-tiny --vocabulary 512 --seq 32 --batch 1",
               dtype, " --lr 1e-3 --vocab none --data '", folder_ / "data.bin", "' ", options);
  }
  std::string eventful(const std::string& name, const std::string& options) const {
    return rung(name, "--events 3 " + options);
  }

  /// Starts a rank of each command under mpirun. A single program of mpirun's picks its command by rank,
  /// since Open MPI 5.0.7 crashes when given several.
  pid_t start(const std::vector<std::string>& commands) const {
    std::string by_rank;
    for (size_t rank = 0; rank < commands.size(); ++rank)
      by_rank += cat(rank, ") exec ", commands[rank], " ;;\n");
    write_file(folder_ / "by_rank", cat("case $OMPI_COMM_WORLD_RANK in\n", by_rank, "esac\n"));
    return start(static_cast<int>(commands.size()), cat("sh '", folder_ / "by_rank", "'"));
  }
  /// Starts `ranks` ranks of one command line under mpirun.
  pid_t start(int ranks, const std::string& command) const {
    const std::string per_rank = cat("sh -c 'r=$OMPI_COMM_WORLD_RANK; echo $$ >\"", folder_ / "pid.",
                                     "$r\"; ", "exec 3>\"", folder_ / "events.", "$r\"; exec \"$@\"' sh ");
    const std::string line = cat("exec env OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 OMPI_MCA_btl=self,vader ",
                                 "mpirun --oversubscribe --allow-run-as-root --bind-to none -n ", ranks, " ",
                                 per_rank, command, " >'", folder_ / "out", "' 2>'", folder_ / "err", "'");
    const pid_t child = fork();
    if (child != 0) return child;
    execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    _exit(127);
  }
  /// The exit code of a job that its ranks refuse. mpirun kills the other ranks at once, without the second
  /// that ranks of a running job would need.
  int refused(int ranks, const std::string& command) const {
    return refused(std::vector(static_cast<size_t>(ranks), command));
  }
  int refused(const std::vector<std::string>& commands) const {
    const Environment at_once("OMPI_MCA_odls_base_sigkill_timeout", "0");
    return wait_for(start(commands));
  }
  void run(int ranks, const std::string& command) const {
    ASSERT_EQ(wait_for(start(ranks, command)), 0) << errors();
  }
  void run_alone(const std::string& command) const {
    ASSERT_EQ(
        std::system(
            cat("env OMP_NUM_THREADS=1 ", command, " 3>'", folder_ / "events.0", "' >/dev/null").c_str()),
        0);
  }

  /// The exit code of a command that runs without mpirun.
  int alone(const std::string& command) const {
    return exit_code(std::system(
        cat("env OMP_NUM_THREADS=1 ", command, " >'", folder_ / "out", "' 2>'", folder_ / "err", "'")
            .c_str()));
  }

  std::string errors() const { return read_file(folder_ / "err"); }
  std::vector<json> events(int rank, const std::string& kind) const {
    std::vector<json> found;
    std::ifstream file(folder_ / cat("events.", rank));
    for (std::string line; std::getline(file, line);)
      if (const json event = parse_event(line); !event.is_null() && event["event"] == kind)
        found.push_back(event);
    return found;
  }
  std::vector<double> losses(int rank = 0) const {
    std::vector<double> all;
    for (const json& step : events(rank, "step")) all.push_back(step["loss"].get<double>());
    return all;
  }
  std::vector<double> val_losses(int rank) const {
    std::vector<double> all;
    for (const json& eval : events(rank, "eval")) all.push_back(eval["val_loss"].get<double>());
    return all;
  }
  static constexpr double kSame = 1e-5;

  /// The process id of a rank, once it has made three steps.
  pid_t process_of(int rank) const {
    for (int i = 0; i < 3000 && losses(rank).size() < 3; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::ifstream file(folder_ / cat("pid.", rank));
    pid_t pid = 0;
    EXPECT_TRUE(file >> pid && pid > 1) << errors();
    return pid;
  }
  /// The messages of a job of 4 ranks after `signal` to rank 2, which must end the job within 30 s.
  std::string words_after(int signal) const {
    const pid_t job = start(4, eventful("15_multi_gpu", "--steps 1000000"));
    const pid_t victim = process_of(2);
    const auto begin = Clock::now();
    if (victim > 1) kill(victim, signal);
    EXPECT_NE(wait_for(job), 0);
    EXPECT_LT(std::chrono::duration<double>(Clock::now() - begin).count(), 30.0);
    for (int rank = 0; rank < 4; ++rank) {  // the stopped rank must be gone too
      pid_t pid = 0;
      std::ifstream(folder_ / cat("pid.", rank)) >> pid;
      EXPECT_TRUE(ends(pid)) << "rank " << rank << " is still there";
    }
    return errors();
  }

  TempFolder folder_;
};

TEST_F(Multirank, RanksLearnWhatOneLearnsWithAsManyMicroBatches) {
  for (const int ranks : {2, 4}) {
    run_alone(eventful("15_multi_gpu", cat("--steps 50 --accumulate ", ranks)));
    const auto expected = losses();
    EXPECT_LT(expected.back(), expected.front() - 1.0);
    run(ranks, eventful("15_multi_gpu", "--steps 50"));
    expect_close(losses(), expected, kSame);
    for (int rank = 1; rank < ranks; ++rank) EXPECT_EQ(losses(rank), losses()) << "rank " << rank;
  }
}

TEST_F(Multirank, RanksAccumulateToo) {
  run_alone(eventful("15_multi_gpu", "--steps 10 --accumulate 6"));
  const auto expected = losses();
  for (const char* name : {"15_multi_gpu", "16_zero1", "17_copy_engines"}) {
    run(2, eventful(name, "--steps 10 --accumulate 3"));
    expect_close(losses(), expected, kSame);
  }
}

TEST_F(Multirank, AStepOfManyMicroBatchesIsNoHang) {
  run(2, eventful("15_multi_gpu", "--steps 2 --accumulate 50"));
  double ms = events(0, "step").at(1)["step_ms"].get<double>() / 50;
  // Tries again if the machine has become faster: a short step would not look like a hang.
  for (int trial = 0; trial < 5; ++trial) {
    const int64_t micro_batches = std::lround(3000 / ms);
    run(2, eventful("15_multi_gpu", cat("--steps 1 --hang-timeout 1 --accumulate ", micro_batches)));
    const double step = events(0, "step").at(0)["step_ms"];
    if (step > 1500) return;
    ms = step / static_cast<double>(micro_batches);
  }
  FAIL() << "no step took longer than 1.5 s";
}

TEST_F(Multirank, EvaluationIsOfWhatAllRanksHaveLearned) {
  const std::string options = "--steps 9 --eval-every 3 --eval-batches 2 --lr 1e-2";
  std::vector<double> expected;
  for (const char* name : {"15_multi_gpu", "16_zero1", "17_copy_engines"}) {
    run(2, eventful(name, options));
    const std::vector<double> found = val_losses(1);
    if (expected.empty()) expected = found;
    ASSERT_EQ(found.size(), 3U);
    expect_close(found, expected, kSame);
  }
}

TEST_F(Multirank, IndependentRanksEachLearnWhatOneDeviceDoes) {
  for (const char* name : {"15_multi_gpu", "16_zero1", "17_copy_engines", "muon_zero1"}) {
    run_alone(eventful(name, "--steps 5"));
    const auto alone = losses();
    const json memory = events(0, "start").at(0)["memory_by_name"];
    run(2, eventful(name, "--steps 5 --independent-ranks"));
    EXPECT_EQ(losses(0), alone) << name;
    EXPECT_EQ(losses(1), alone) << name;
    const json start = events(1, "start").at(0);
    EXPECT_EQ(start["config"]["independent_ranks"], true);
    EXPECT_EQ(start["memory_by_name"], memory) << "nothing is spread";
  }
}

TEST_F(Multirank, SpreadingTheOptimizerChangesNothing) {
  run(4, eventful("15_multi_gpu", "--steps 50"));
  const auto expected = losses();
  run(4, eventful("16_zero1", "--steps 50"));
  expect_close(losses(), expected, kSame);
}

TEST_F(Multirank, ARankKeepsItsShareOfTheOptimizer) {
  const std::vector<const char*> adamw = {"params/wte", "params/qkvw", "adam_m/fcw", "adam_v/lnfb"},
                                 muon = {"params/wte",  "params/qkvw",    "muon_m/fcw",
                                         "adam_v/lnfb", "scratch/muon_x", "scratch/muon_gram"};
  for (const auto& [name, spread] : {std::pair("16_zero1", adamw), std::pair("muon_zero1", muon)}) {
    const std::string command = eventful(name, "--layers 4 --steps 1");
    run(4, command);
    const auto of_four = events(1, "start").at(0)["memory_by_name"];
    run(1, command);
    const auto alone = events(0, "start").at(0)["memory_by_name"];
    constexpr int64_t kBuckets = 4;
    for (const char* tensor : spread)
      EXPECT_LE(of_four[tensor].get<int64_t>(), alone[tensor].get<int64_t>() / 4 + kBuckets * 256)
          << name << ": " << tensor;
  }
}

TEST_F(Multirank, CheckpointOfFourRanksResumesOnTwo) {
  for (const std::string name : {"15_multi_gpu", "16_zero1"}) {
    run(4, eventful(name, "--steps 20"));
    const auto all = losses();
    const std::string checkpoint = folder_ / (name + ".ckpt");
    run(4, eventful(name, cat("--steps 10 --checkpoint '", checkpoint, "'")));
    run(2, eventful(name, cat("--steps 20 --accumulate 2 --resume '", checkpoint, "'")));
    expect_close(losses(), {all.begin() + 10, all.end()}, kSame);
  }
}

TEST_F(Multirank, AnyNumberOfRanksLearnsWhatOneDoes) {
  for (const int ranks : {5, 7}) {
    const std::string shape = cat("--layers 1 --channels ", 16 * ranks, " --heads ", ranks, " --steps 8 ");
    for (const auto& [name, one] :
         {std::pair("15_multi_gpu", "15_multi_gpu"), std::pair("16_zero1", "15_multi_gpu"),
          std::pair("muon_zero1", "03_rotary")}) {
      run_alone(eventful(one, cat(shape, "--accumulate ", ranks)));
      const auto expected = losses();
      run(ranks, eventful(name, shape));
      expect_close(losses(), expected, kSame);
      EXPECT_EQ(losses(ranks - 1), losses());
    }
  }
}

TEST_F(Multirank, ANumberOfRanksThatCannotShareTheOptimizerIsRefusedWithSomeThatCan) {
  for (const char* name : {"16_zero1", "fp8_zero1", "muon_zero1"}) {
    const int status =
        std::system(cat("RANK=0 LOCAL_RANK=0 WORLD_SIZE=5 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 ",
                        rung(name, "--steps 1", ""), " 2>'", folder_ / "err", "'")
                        .c_str());
    EXPECT_EQ(WEXITSTATUS(status), kExitUsage);
    EXPECT_TRUE(says(errors(), {name, "5 devices", "128 channels", "2, 4, 8"})) << errors();
  }
}

TEST_F(Multirank, RanksLearnInFp8WhatOneLearns) {
  constexpr double kWithin = 1e-3;  // covers bf16 sums of FP8 gradients
  const auto fp8 = [&](const std::string& name, const std::string& options) {
    return rung(name, "--batch 2 --events 3 " + options, "");  // more tokens make single roundings count less
  };
  run_alone(fp8("fp8", "--steps 20 --accumulate 4 --eval-every 1 --eval-batches 2"));
  const auto expected = losses(), evaluated = val_losses(0);
  EXPECT_LT(expected.back(), expected.front() - 0.5);
  const std::string checkpoint = folder_ / "fp8.ckpt";
  run(4, fp8("fp8_zero1", cat("--steps 10 --eval-every 1 --eval-batches 2 --checkpoint '", checkpoint, "'")));
  expect_close(losses(), {expected.begin(), expected.begin() + 10}, kWithin);
  expect_close(val_losses(0), {evaluated.begin(), evaluated.begin() + 10}, kWithin);
  // Validation losses of all ranks are equal to the last bit, since all quantise by the same scales.
  for (int rank = 1; rank < 4; ++rank) EXPECT_EQ(val_losses(rank), val_losses(0)) << "rank " << rank;
  run(2, fp8("fp8_zero1", cat("--steps 20 --accumulate 2 --resume '", checkpoint, "'")));
  expect_close(losses(), {expected.begin() + 10, expected.end()}, kWithin);
}

TEST_F(Multirank, RanksOnShuffledShardsLearnWhatOneDoes) {
  for (int shard = 0; shard < 3; ++shard) {
    std::vector<uint16_t> tokens(700);
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<uint16_t>((i * i + 31 * i * shard) % 512);
    write_token_file(folder_ / cat("shard_", shard, ".bin"), tokens);
  }
  const std::string shards = cat(" --data '", folder_ / "shard_*.bin", "' --shuffle ");
  run_alone(eventful("15_multi_gpu", "--steps 30 --accumulate 2" + shards));  // an epoch has 42 batches
  const auto expected = losses();
  run(2, eventful("15_multi_gpu", "--steps 30" + shards));
  expect_close(losses(), expected, kSame);
  const std::string plain = eventful("15_multi_gpu", "--steps 2");
  EXPECT_EQ(refused({plain, plain + " --shuffle"}), kExitFailed);
  EXPECT_TRUE(says(errors(), {"rank 1 (", "another configuration"})) << errors();
}

TEST_F(Multirank, EveryRankReportsWhoItIsAndOneSpeaks) {
  run(2, eventful("15_multi_gpu", "--steps 2"));
  for (int rank = 0; rank < 2; ++rank) {
    const json start = events(rank, "start").at(0);
    EXPECT_EQ(start["rank"], rank);
    EXPECT_EQ(start["config"]["world_size"], 2);
    EXPECT_EQ(events(rank, "end").size(), 1U);
  }
  const std::string out = read_file(folder_ / "out");
  const size_t first = out.find("step 1/2");
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(out.find("step 1/2", first + 1), std::string::npos);
}

TEST_F(Multirank, ASignalToOneRankStopsAllAfterTheSameStep) {
  const pid_t job = start(2, eventful("15_multi_gpu", "--steps 1000000 --checkpoint " + (folder_ / "ck")));
  kill(process_of(1), SIGTERM);
  EXPECT_EQ(wait_for(job), 128 + SIGTERM) << errors();
  EXPECT_EQ(losses(0), losses(1));
  EXPECT_EQ(events(0, "error").at(0)["status"], "interrupted");
  const size_t hint = errors().find("; go on with --resume ");
  EXPECT_NE(hint, std::string::npos) << errors();
  EXPECT_EQ(errors().find("; go on with --resume ", hint + 1), std::string::npos) << "which one rank says";
}

TEST_F(Multirank, KilledRankEndsTheJobWithItsName) {
  EXPECT_TRUE(says(words_after(SIGKILL), {"rank 2 (", "died"}));
}

TEST_F(Multirank, StoppedRankEndsTheJobWithItsName) {
  EXPECT_TRUE(says(words_after(SIGSTOP), {"rank 2 (", "hangs", "10 s"}));
}

TEST_F(Multirank, RanksOfAnotherConfigurationBuildOrDataAreRefused) {
  std::vector<uint16_t> other(20000, 7);
  write_token_file(folder_ / "other.bin", other);
  const std::string plain = eventful("15_multi_gpu", "--steps 2");
  const struct {
    std::string rank1, says;
  } cases[] = {{eventful("15_multi_gpu", "--steps 2 --lr 2e-3"), "another configuration"},
               {eventful("15_multi_gpu", "--steps 2 --max-batch 2"), "another configuration"},
               {eventful("15_multi_gpu", "--steps 2 --eval-every 1"), "another configuration"},
               {eventful("16_zero1", "--steps 2"), "another build"}};
  for (const auto& c : cases) {
    EXPECT_EQ(refused({plain, c.rank1}), kExitFailed) << errors();
    EXPECT_TRUE(says(errors(), {"error: ", "rank 1 (", c.says})) << errors();
  }
  // The same path holds other tokens on each rank, as on two machines.
  fs::copy_file(folder_ / "other.bin", folder_ / "data1.bin");
  const std::string differs =
      cat("sh -c 'cd \"", folder_ / "",
          "\" && mkdir -p $1 && cd $1 && cp ../$2 t.bin && shift 2 && exec \"$@\"' sh ");
  const std::string relative =
      cat("'", kBin, "/15_multi_gpu' --backend cpu --model gpt2-tiny --vocabulary 512 --seq 32",
          " --batch 1 --vocab none --data t.bin --steps 2");
  EXPECT_EQ(refused({differs + "a data.bin " + relative, differs + "b other.bin " + relative}), kExitFailed);
  EXPECT_TRUE(says(errors(), {"rank 1 (", "other data"})) << errors();
}

// Memory limits rank 0 to fewer sequences than the 512 that fit rank 1.
TEST_F(Multirank, RanksThatLookForALargestBatchTakeRank0s) {
#if defined(STEPLADDER_SANITIZED)
  GTEST_SKIP() << "the sanitizer maps more than the limit";
#endif
  const std::string command =
      cat("'", kBin, "/15_multi_gpu' --backend cpu --model gpt2-tiny --layers 1 --channels 16",
          " --heads 1 --vocabulary 8192 --seq 32 --max-batch 512 --dtype fp32", " --vocab none --data '",
          folder_ / "data.bin", "' --steps 1 --events 3");
  const pid_t job = start({cat("sh -c 'ulimit -v 800000; exec \"$@\"' sh ", command), command});
  const int ended = wait_for(job);
  if (errors().find("error while loading shared libraries") != std::string::npos)
    GTEST_SKIP() << "CUDA's alone are larger";
  ASSERT_EQ(ended, 0) << errors();
  const int64_t batch = events(0, "start").at(0)["config"]["B"];
  EXPECT_EQ(events(1, "start").at(0)["config"]["B"], batch);
  EXPECT_LT(batch, 512);
}

TEST_F(Multirank, RanksThatWouldGoOnFromDifferentCheckpointsAreRefused) {
  const auto resumed = [&](const std::string& file) {
    return eventful("15_multi_gpu", cat("--steps 4 --resume '", folder_ / file, "'"));
  };
  run(2, eventful("15_multi_gpu", cat("--steps 1 --seed 7 --checkpoint '", folder_ / "one", "'")));
  const std::pair<const char*, const char*> others[] = {{"--steps 2 --seed 7", "step 2"},
                                                        {"--steps 1 --seed 8", "seed 8"},
                                                        {"--steps 1 --seed 7 --accumulate 2", "batch 4"}};
  for (const auto& [options, difference] : others) {
    run(2, eventful("15_multi_gpu", cat(options, " --checkpoint '", folder_ / "other", "'")));
    EXPECT_EQ(refused({resumed("one"), resumed("other")}), kExitFailed) << options;
    EXPECT_TRUE(says(errors(), {"rank 1 (", "step 1, batch 2, seed 7", difference})) << errors();
  }
}

TEST_F(Multirank, RanksGoOnWithTheLossScaleOfTheFirst) {
  using Trainers = std::pair<std::string, std::vector<std::string>>;  // who saves, and who resumes the file
  for (const auto& [saves, names] :
       {Trainers("15_multi_gpu", {"15_multi_gpu", "16_zero1"}), Trainers("03_rotary", {"muon_zero1"})}) {
    // The second rank's file is at the same step but has no loss scale, since it was saved in bf16.
    for (const std::string dtype : {"fp16", "bf16"})
      run_alone(rung(saves, cat("--events 3 --steps 2 --checkpoint '", folder_ / dtype, "'"),
                     cat(" --dtype ", dtype).c_str()));
    const float scaler[] = {256.0F, 0.0F, 0.0F, 0.0F};  // replaces 65536, the scale where a file has none
    const std::string saved = read_file(folder_ / "fp16");
    write_file(folder_ / "fp16",
               saved.substr(0, saved.size() - sizeof scaler) + bytes_of(std::span<const float>(scaler)));
    for (const std::string& name : names) {
      const auto resumed = [&](const char* file) {
        return rung(name, cat("--events 3 --steps 8 --resume '", folder_ / file, "'"), " --dtype fp16");
      };
      run(2, resumed("fp16"));
      const auto expected = losses();
      EXPECT_EQ(wait_for(start({resumed("fp16"), resumed("bf16")})), 0) << errors();
      for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(losses(rank), expected) << name << ", rank " << rank;
    }
  }
}

// ---- a trainer of other parameters than GPT-2's ----------------------------------------------------------

// A configuration with a vocabulary to pad, and with three layers, which two and four ranks pad to four.
constexpr const char* kUntied = "tests/untied_trainer";
constexpr const char* kSmall = " --layers 3 --channels 64 --heads 2 --vocabulary 600 ";

TEST_F(Multirank, RanksThatOwnWholeMatricesLearnWhatOneLearns) {
  for (const auto& [name, one] : {std::pair(kUntied, kUntied), std::pair("muon_zero1", "03_rotary")}) {
    for (const int ranks : {2, 4}) {
      const std::string evaluated = cat(kSmall, "--batch 2 --steps 30 --eval-every 10 --eval-batches 2 ");
      run_alone(eventful(one, cat(evaluated, "--accumulate ", ranks)));
      const auto expected = losses(), expected_later = val_losses(0);
      EXPECT_LT(expected.back(), expected.front() - 0.4);
      EXPECT_EQ(expected_later.size(), 3U);
      run(ranks, eventful(name, evaluated));
      expect_close(losses(), expected, kSame);
      expect_close(val_losses(ranks - 1), expected_later, kSame);
      EXPECT_EQ(losses(ranks - 1), losses());
    }
  }
}

TEST_F(Multirank, ATrainerOfItsOwnParametersResumesToTheLastBit) {
  for (const auto& [name, one] : {std::pair(kUntied, kUntied), std::pair("muon_zero1", "03_rotary")}) {
    const auto train = [&](const char* trainer, int steps, const std::string& file, const std::string& more) {
      return eventful(trainer, cat(kSmall, "--steps ", steps, " --checkpoint '", folder_ / file, "' ", more));
    };
    const std::string from_half = cat("--resume '", folder_ / "half", "'");
    for (const int ranks : {1, 2}) {
      run(ranks, train(name, 6, "whole", ""));
      const auto all = losses();
      run(ranks, train(name, 3, "half", ""));
      run(ranks, train(name, 6, "resumed", from_half));
      EXPECT_EQ(losses(), (std::vector<double>{all.begin() + 3, all.end()})) << name << ' ' << ranks;
      EXPECT_EQ(read_file(folder_ / "resumed"), read_file(folder_ / "whole")) << name << ' ' << ranks;
      if (ranks == 1) continue;
      run_alone(train(one, 6, "alone", "--accumulate 2 " + from_half));
      expect_close(losses(), {all.begin() + 3, all.end()}, kSame);
      // The trainer for one device makes a checkpoint that more ranks resume.
      run_alone(train(one, 3, "half", "--accumulate 4 "));
      run_alone(train(one, 6, "alone", "--accumulate 4 " + from_half));
      const auto alone = losses();
      run(4, train(name, 6, "resumed", from_half));
      expect_close(losses(), alone, kSame);
    }
  }
}

TEST_F(Multirank, RanksThatShareMuonSampleWhatOneSamples) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += cat("A is the first letter; ", i, " times.\n");
  write_file(folder_ / "text.txt", text);
  const std::string checkpoint = folder_ / "muon.ckpt", sampling = "--prompt a --sample-tokens 16 ";
  run(2, rung("muon_zero1", cat(kSmall, sampling, "--vocabulary 256 --data '", folder_ / "text.txt",
                                "' --steps 4 --sample-every 4 --checkpoint '", checkpoint, "'")));
  const std::string told = read_file(folder_ / "out");
  ASSERT_EQ(alone(cat("'", kBin, "/03_rotary' --backend cpu --vocab none --dtype fp32 --steps 0 ", sampling,
                      "--resume '", checkpoint, "'")),
            0)
      << errors();
  const std::string sampled = read_file(folder_ / "out");
  EXPECT_EQ(sampled.size(), 1U + 16U + 1U);
  EXPECT_NE(told.find("\n" + sampled), std::string::npos) << told << sampled;
}

TEST_F(Multirank, WhatIsNotGpt2GoesOutUnderItsOwnName) {
  const std::string own = folder_ / "own.safetensors", checkpoint = folder_ / "own.ckpt";
  run_alone(
      eventful(kUntied, cat(kSmall, "--steps 2 --save-weights '", own, "' --checkpoint '", checkpoint, "'")));
  const json beside = json::parse(read_file(folder_ / "config.json"));
  EXPECT_EQ(beside["model_type"], "stepladder_untied");
  EXPECT_EQ(beside["architectures"], json({"stepladder_untied"}));
  EXPECT_FALSE(beside.contains("activation_function"));
  const Safetensors file(own);
  EXPECT_EQ(json::parse(file.metadata().at("stepladder.config")), beside);
  for (const char* name : {"transformer.ln_e.weight", "lm_head.weight", "transformer.h.2.mlp.c_fc.weight"})
    EXPECT_TRUE(file.tensors().contains(name)) << name;
  for (const char* name : {"transformer.wpe.weight", "transformer.h.3.mlp.c_fc.weight"})
    EXPECT_FALSE(file.tensors().contains(name)) << name;

  // The trainer starts from its own file, which tells its sizes, and samples text.
  const std::string start = cat("'", kBin, "/", kUntied, "' --backend cpu --seq 32 ");
  const std::string data = cat(" --batch 1 --vocab none --data '", folder_ / "data.bin", "' --steps 1");
  EXPECT_EQ(alone(cat(start, "--init '", own, "'", data)), 0) << errors();
  const std::string sampled =
      cat(start, "--vocab none --init '", own, "' --steps 0 --prompt a --sample-tokens 8");
  EXPECT_EQ(alone(sampled), 0) << errors();
  const std::string text = read_file(folder_ / "out");
  EXPECT_GT(text.size(), 1U);
  EXPECT_EQ(alone(sampled), 0);
  EXPECT_EQ(read_file(folder_ / "out"), text);

  // A trainer of GPT-2 refuses the untied trainer's files, and the untied trainer refuses GPT-2's.
  run_alone(eventful("16_zero1", cat(kSmall, "--steps 2 --checkpoint '", folder_ / "gpt2.ckpt", "'")));
  const std::string gpt2 = cat("'", kBin, "/16_zero1' --backend cpu --seq 32 ");
  for (const auto& [trainer, from] :
       {std::pair(gpt2, "--init '" + own), std::pair(gpt2, "--resume '" + checkpoint),
        std::pair(start, "--init '" + (folder_ / "gpt2.ckpt")),
        std::pair(start, "--resume '" + (folder_ / "gpt2.ckpt"))}) {
    EXPECT_EQ(alone(cat(trainer, from, "'", data, "0")), kExitUsage) << from;  // data + "0": --steps 10
    const std::string file_name = from.substr(from.find('\'') + 1);
    EXPECT_TRUE(says(errors(), {file_name, "\"gpt2\"", "\"stepladder_untied\""})) << errors();
  }
  const std::string saved = "--steps 1 --save-weights '" + (folder_ / "gpt2.safetensors") + "'";
  EXPECT_EQ(refused(1, rung("16_zero1", kSmall + saved)), kExitUsage) << "the config.json there is another's";
}

TEST_F(Multirank, RungsForOneDeviceRefuseToBeRanks) {
  EXPECT_EQ(refused(2, rung("13_cuda_graphs", "--steps 2")), kExitUsage);
  EXPECT_TRUE(says(errors(), {"13_cuda_graphs", "2 ranks"})) << errors();
}

}  // namespace
}  // namespace stepladder
