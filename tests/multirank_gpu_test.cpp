// Several ranks on CUDA devices, started as the harness starts them: they learn what one device learns with
// as many micro-batches, and end together. With NCCL 2.30 or newer and NCCL_MULTI_RANK_GPU_ENABLE=1 ranks
// share devices, so these tests run, slowly, on fewer devices too.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "bench/run/events.h"
#include "model/data.h"
#include "model/device.h"
#include "tests/files.h"
#include "tests/losses.h"
#include "tests/processes.h"
#include "tests/tokens.h"

namespace stepladder {
namespace {

using nlohmann::json;

bool share_devices() {
  const char* asked = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return asked && std::string(asked) == "1";
}

/// A test for GetParam() ranks.
class MultirankGpu : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const int devices = cuda_device_count();
    if (devices < (share_devices() ? 1 : GetParam()))
      GTEST_SKIP() << "needs " << GetParam() << " CUDA devices";
    write_learnable_tokens(folder_ / "data.bin", 200000);
  }

  /// Starts rank `rank` of `world`, without rank variables if `world` is 1. `elsewhere` gives the rank
  /// another host name.
  pid_t start(const std::string& rung, int rank, int world, const std::string& options,
              bool elsewhere = false) const {
    const std::string environment =
        world == 1 ? ""
                   : cat("RANK=", rank, " WORLD_SIZE=", world,
                         " LOCAL_RANK=", share_devices() ? rank % cuda_device_count() : rank,
                         " MASTER_ADDR=127.0.0.1 MASTER_PORT=", 20000 + getpid() % 12000, ' ');
    const std::string line = cat(elsewhere ? "hostname elsewhere && " : "", environment, "exec '",
                                 STEPLADDER_BIN, '/', rung, "' --backend cuda --model gpt2-tiny --seq 128",
                                 " --batch 4 --lr 1e-3 --vocab none --cache '' --deterministic --data '",
                                 folder_ / "data.bin", "' --events 3 ", divisible_, options, " 3>'",
                                 folder_ / cat("events.", rank), "' >/dev/null 2>>'", folder_ / "err", "'");
    std::filesystem::remove(folder_ / cat("events.", rank));  // an earlier start's events
    const pid_t child = fork();
    if (child != 0) return child;
    if (elsewhere) execlp("unshare", "unshare", "--uts", "sh", "-c", line.c_str(), nullptr);
    execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    _exit(127);
  }
  std::vector<pid_t> start_all(const std::string& rung, int world, const std::string& options) const {
    std::filesystem::remove(folder_ / "err");  // an earlier job's messages
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < world; ++rank) ranks.push_back(start(rung, rank, world, options));
    return ranks;
  }
  std::string errors() const { return read_file(folder_ / "err"); }
  std::vector<double> losses(int rank = 0) const {
    std::vector<double> all;
    std::ifstream file(folder_ / cat("events.", rank));
    for (std::string line; std::getline(file, line);)
      if (const json event = parse_event(line); !event.is_null() && event["event"] == "step")
        all.push_back(event["loss"].get<double>());
    return all;
  }
  std::vector<double> losses_of(const std::string& rung, int world, const std::string& options) const {
    for (const pid_t rank : start_all(rung, world, options)) EXPECT_EQ(wait_for(rank), 0) << errors();
    return losses();
  }
  // bf16's epsilon: several ranks sum gradients in another order and round in between.
  static constexpr double kBf16 = 0x1p-8;
  static constexpr double kFp8 = 0.02;  // the tolerance of fp8 in the ladder
  // Muon makes small singular values as large as the others, and so what rounding has left in them.
  static constexpr double kMuon = 0.02;

  TempFolder folder_;
  /// A model whose channels any number of ranks can share, and whose largest layer's gradients exceed the
  /// logits: ranks that send gradients through the logits' memory take turns.
  const int heads_ = GetParam() % 2 == 0 ? 2 * GetParam() : GetParam();
  /// More than two ranks stop at step 24: after it the model has memorised the text; its loss, below 1, falls
  /// by a tenth a step, and rounding moves it by up to 1 %, on the CPU too.
  const std::string until_known_ = GetParam() == 2 ? "--steps 50" : "--steps 24";
  const std::string divisible_ = cat("--channels ", 64 * heads_, " --heads ", heads_, ' ');
};

TEST_P(MultirankGpu, RanksLearnWhatOneLearnsWithAsManyMicroBatches) {
  const auto expected = losses_of("15_multi_gpu", 1, cat(until_known_, " --accumulate ", GetParam()));
  EXPECT_LT(expected.back(), expected.front() - 1.0);
  for (const char* rung : {"15_multi_gpu", "16_zero1", "17_copy_engines"}) {
    expect_close(losses_of(rung, GetParam(), until_known_), expected, kBf16);
    for (int rank = 1; rank < GetParam(); ++rank) EXPECT_EQ(losses(rank), losses(0)) << rung << ' ' << rank;
  }
}

TEST_P(MultirankGpu, RanksLearnInFp8WhatOneLearns) {
  const auto expected = losses_of("fp8", 1, cat(until_known_, " --accumulate ", GetParam()));
  EXPECT_LT(expected.back(), expected.front() - 1.0);
  expect_close(losses_of("fp8_zero1", GetParam(), until_known_), expected, kFp8);
  for (int rank = 1; rank < GetParam(); ++rank) EXPECT_EQ(losses(rank), losses(0)) << rank;
}

TEST_P(MultirankGpu, RanksThatOwnWholeMatricesLearnWhatOneLearns) {
  const std::string options = "--layers 3 --steps 20";  // of 3 layers, some ranks own nothing but padding
  const auto expected = losses_of("03_rotary", 1, cat(options, " --accumulate ", GetParam()));
  EXPECT_LT(expected.back(), expected.front() - 1.0);
  expect_close(losses_of("muon_zero1", GetParam(), options), expected, kMuon);
  for (int rank = 1; rank < GetParam(); ++rank) EXPECT_EQ(losses(rank), losses(0)) << rank;
}

TEST_P(MultirankGpu, RanksAccumulateToo) {
  const std::string options = "--narrow-access --steps 10 --accumulate ";
  const auto expected = losses_of("15_multi_gpu", 1, cat(options, 3 * GetParam()));
  for (const char* rung : {"15_multi_gpu", "16_zero1", "17_copy_engines"})
    expect_close(losses_of(rung, GetParam(), cat(options, 3)), expected, kBf16);
}

TEST_P(MultirankGpu, IndependentRanksEachLearnWhatOneDeviceDoes) {
  for (const char* rung : {"16_zero1", "muon_zero1"}) {
    const auto alone = losses_of(rung, 1, "--steps 5");
    EXPECT_EQ(losses_of(rung, GetParam(), "--steps 5 --independent-ranks"), alone) << rung;
    for (int rank = 1; rank < GetParam(); ++rank) EXPECT_EQ(losses(rank), alone) << rung << ' ' << rank;
  }
}

TEST_P(MultirankGpu, CheckpointResumesOnFewerDevices) {
  const int fewer = GetParam() % 2 == 0 ? GetParam() / 2 : 1;
  for (const auto& [rung, tolerance] : {std::pair<std::string, double>("16_zero1", kBf16),
                                        {"17_copy_engines", kBf16},
                                        {"fp8_zero1", kFp8},
                                        {"muon_zero1", kMuon}}) {
    const auto all = losses_of(rung, GetParam(), "--steps 20");
    const std::string checkpoint = folder_ / (rung + ".ckpt");
    losses_of(rung, GetParam(), cat("--steps 10 --checkpoint '", checkpoint, "'"));
    expect_close(
        losses_of(rung, fewer,
                  cat("--steps 20 --accumulate ", GetParam() / fewer, " --resume '", checkpoint, "'")),
        {all.begin() + 10, all.end()}, tolerance);
  }
}

TEST_P(MultirankGpu, KilledOrStoppedRankEndsTheOthersWithItsName) {
  struct Case {
    const char* rung;
    int signal;
    const char* words;
  };
  for (const auto& [rung, signal, words] : {Case{"15_multi_gpu", SIGKILL, "died"},
                                            {"15_multi_gpu", SIGSTOP, "hangs"},
                                            {"17_copy_engines", SIGKILL, "died"},
                                            {"17_copy_engines", SIGSTOP, "hangs"}}) {
    const auto ranks = start_all(rung, GetParam(), "--steps 1000000");
    for (int i = 0; i < 6000 && losses(1).size() < 3; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const auto begin = std::chrono::steady_clock::now();
    kill(ranks[1], signal);
    for (const pid_t rank : ranks) {
      if (rank == ranks[1]) continue;
      EXPECT_EQ(wait_for(rank), kExitFailed);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
    kill(ranks[1], SIGKILL);
    wait_for(ranks[1]);
    EXPECT_TRUE(says(errors(), {"rank 1 (", words}));
  }
}

TEST_P(MultirankGpu, CopyEnginesOfSeveralMachinesAreUnsupportedAndLeftToNccl) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may name a machine";
  const Environment host("NCCL_HOSTID", "one");  // without a host id NCCL looks for a network
  for (const std::string rung : {"17_copy_engines", "fp8_zero1", "muon_zero1"})
    for (const auto& [option, code] : {std::pair{"", kExitFailed}, {" --nccl", kExitOk}}) {
      std::vector<pid_t> ranks;
      for (int rank = 0; rank < GetParam(); ++rank)
        ranks.push_back(start(rung, rank, GetParam(), cat("--steps 2", option), rank == 1));
      EXPECT_EQ(wait_for(ranks[0]), code) << errors();
      for (const pid_t rank : ranks)
        if (rank != ranks[0]) wait_for(rank);
      EXPECT_EQ(static_cast<bool>(says(read_file(folder_ / "events.0"), {"unsupported"})), code != kExitOk)
          << rung << option;
    }
  EXPECT_TRUE(says(errors(), {"elsewhere", "--nccl"})) << errors();
}

TEST_P(MultirankGpu, MoreRanksThanDevicesIsAUsageError) {
  if (share_devices()) GTEST_SKIP() << "NCCL_MULTI_RANK_GPU_ENABLE=1 allows it";
  const int devices = cuda_device_count();
  EXPECT_EQ(wait_for(start("15_multi_gpu", devices, devices + 1, "--steps 2")), kExitUsage);
  EXPECT_TRUE(says(errors(), {cat("rank ", devices), cat(devices, " CUDA devices")}));
}

INSTANTIATE_TEST_SUITE_P(Devices, MultirankGpu, testing::Values(2, 4, 5, 7),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace stepladder
