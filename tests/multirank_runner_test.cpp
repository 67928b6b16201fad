// A run on several devices: how the runner starts its ranks, merges their reports, and ends it.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <chrono>
#include <thread>

#include "bench/plan/plan.h"
#include "bench/results/run_json.h"
#include "bench/run/placeholders.h"
#include "bench/run/runner.h"
#include "model/rendezvous.h"
#include "tests/fake_rung.h"
#include "tests/files.h"
#include "tests/processes.h"
#include "tests/results.h"

namespace stepladder {
namespace {

using namespace std::chrono_literals;

/// Ranks that the harness starts itself (cuda) or through mpirun (cpu).
class Ranks : public testing::TestWithParam<const char*> {
 protected:
  static constexpr int kRanks = 3;

  Ranks() {
    workload_.backend = GetParam();
    workload_.devices = kRanks;
    workload_.config["world_size"] = kRanks;
    if (mpi()) workload_.launcher = mpirun_here();
    fake_.before_start =
        cat("RANK=${RANK:-${OMPI_COMM_WORLD_RANK:-0}}; echo $$ >", folder_ / "pid", "$RANK\n");
    fake_.loss = "$([ $RANK = 0 ] && echo 4.$((90 - i)) || echo null)";  // only rank 0 reports the loss
  }
  void SetUp() override {
    if (mpi() && !open_mpi_is_here()) GTEST_SKIP() << "no mpirun: apt-get install openmpi-bin";
  }
  static bool mpi() { return std::string(GetParam()) == "cpu"; }

  stepladder::Run measure() {
    fake_.write(folder_);
    const auto start = std::chrono::steady_clock::now();
    stepladder::Run run = run_program(workload_, [this](const Step&) { ++steps_heard_; });
    EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);
    return run;
  }
  pid_t pid(int rank) const { return std::stoi(read_file(folder_ / cat("pid", rank))); }
  /// The start of a rank's reason for failing, with its host if a launcher started it.
  static std::string name(int rank) {
    return mpi() ? cat("rank ", rank, " (", host_name(), "): ") : cat("rank ", rank, ": ");
  }
  void expect_nothing_left() const {
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::string told = folder_ / cat("pid", rank);
      if (!std::filesystem::exists(told) || read_file(told).empty()) continue;  // wrote no process id
      EXPECT_TRUE(ends(pid(rank))) << rank;
    }
  }

  const TempFolder folder_;
  FakeRung fake_;
  Workload workload_ = fake_.workload(folder_);
  int steps_heard_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Started, Ranks, testing::Values("cuda", "cpu"), [](const auto& starter) {
  return std::string(starter.param) == "cpu" ? "ByMpirun" : "ByTheHarness";
});

TEST_P(Ranks, AStepTakesAsLongAsTheSlowestRank) {
  fake_.step_ms = "$((i % 3 == RANK ? 20 : 10)).5";  // each rank in turn is the slowest
  const stepladder::Run run = measure();
  ASSERT_EQ(run.status, Status::ok) << run.reason;
  EXPECT_EQ(steps_heard_, 6) << "those of one rank";
  ASSERT_EQ(run.steps.size(), 6U);
  for (const Step& step : run.steps) EXPECT_EQ(step.step_ms, 20.5);
  EXPECT_EQ(run.steps[5].loss, 4.85);
  ASSERT_EQ(run.ranks.size(), size_t{kRanks});
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(run.ranks[rank].rank, rank);
    ASSERT_EQ(run.ranks[rank].step_ms.size(), 6U);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(run.ranks[rank].step_ms[i], i % 3 == rank ? 20.5 : 10.5);
    EXPECT_EQ(run.ranks[rank].memory.live_peak, 1048576);
  }
  EXPECT_EQ(run.summary->median_step_ms, 20.5);
  EXPECT_DOUBLE_EQ(run.summary->tokens_per_second, kRanks * 4 * 64 / 0.0205) << "of all ranks";
  EXPECT_EQ(run.workload(), "gpt2-tiny B=4 T=64 on 3 devices");
}

TEST_P(Ranks, EachRanksClockAndPowerAreKept) {
  workload_.warmup = 4;
  fake_.telemetry = R"(,"sm_mhz":1'$((i < 4 ? 9 : RANK))'00,"power_w":6'$RANK'0.5)";
  const stepladder::Run run = measure();
  ASSERT_EQ(run.status, Status::ok) << run.reason;
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(run.ranks[rank].sm_mhz, 1000 + 100 * rank) << "of the timed steps";
    EXPECT_EQ(run.ranks[rank].power_w, 600.5 + 10 * rank);
  }
  const Json json = to_json(run);
  EXPECT_EQ(to_json(run_from(json)), json);
}

TEST_P(Ranks, APeersClockIsSampledOnTheFirstDeviceAlone) {
  TelemetryOfDevices telemetry;
  workload_.telemetry = &telemetry;
  workload_.program.peer = "pytorch";
  workload_.program.folder = folder_ / "";
  workload_.program.native = false;
  workload_.launcher = {};
  workload_.source_hash = workload_.program.source_hash();
  fake_.telemetry = R"(,"sm_mhz":1'$RANK'00)";
  const stepladder::Run run = measure();
  ASSERT_EQ(run.status, Status::ok) << run.reason;
  EXPECT_NE(run.ranks[0].sm_mhz, 1000);
  EXPECT_EQ(run.ranks[1].sm_mhz, 1100) << "its own";
}

TEST_P(Ranks, MfuIsAgainstThePeakOfAllDevices) {
  workload_.device.name = "NVIDIA H200";
  const double of_all = *measure().summary->mfu_nanogpt;
  workload_.devices = 1;
  workload_.config.erase("world_size");  // as in the config of a run on one device
  const stepladder::Run alone = measure();
  ASSERT_EQ(alone.status, Status::ok) << alone.reason;
  EXPECT_DOUBLE_EQ(of_all, *alone.summary->mfu_nanogpt);
}

TEST_P(Ranks, AKilledRankEndsTheJobAndIsNamed) {
  fake_.before_step = "[ $i = 3 ] && { [ $RANK = 2 ] && kill -9 $$; sleep 100; }";
  EXPECT_TRUE(ended(measure(), Status::crash, {"rank 2", "SIGKILL", "step 3 of 6"}));
  expect_nothing_left();
}

TEST_P(Ranks, ARankThatFailsEndsThoseThatIgnoreSIGTERM) {
  fake_.before_step = "[ $i = 2 ] && { [ $RANK = 1 ] && exit 7; trap '' TERM; while :; do sleep 0.1; done; }";
  EXPECT_TRUE(ended(measure(), Status::crash, {"rank 1", "status 7"}));
  expect_nothing_left();
}

TEST_P(Ranks, WhatARankReportsIsTheStatus) {
  fake_.before_step =
      R"([ $i = 1 ] && { [ $RANK = 1 ] && { say '{"event":"error","status":"oom","reason":"why not"}'; exit 5; }; sleep 100; })";
  const stepladder::Run run = measure();
  EXPECT_EQ(run.status, Status::oom);
  EXPECT_EQ(run.reason, name(1) + "why not");
  expect_nothing_left();
}

TEST_P(Ranks, RefusedInputEndsThePlan) {
  fake_.before_step = R"(say '{"event":"error","status":"error","reason":"x.bin: truncated"}'; exit 2)";
  EXPECT_EQ(input_error([&] { measure(); }), "x.bin: truncated");
}

TEST_P(Ranks, AReportOfOneRankThatMakesNoSenseIsACrash) {
  fake_.before_step = "[ $RANK = 1 ] && i=3";
  EXPECT_TRUE(ended(measure(), Status::crash, {"rank 1", "step 3", "step 0"}));
  expect_nothing_left();
}

TEST_P(Ranks, ALineOfOneRankThatIsTooLongIsThatRanks) {
  fake_.before_step = "[ $i$RANK = 21 ] && { head -c 1200000 /dev/zero | tr '\\0' x >&3; sleep 100; }";
  const stepladder::Run run = measure();
  EXPECT_EQ(run.status, Status::crash);
  EXPECT_TRUE(run.reason.starts_with(name(1)) && says(run.reason, {"too long a line"})) << run.reason;
  expect_nothing_left();
}

TEST_P(Ranks, ATimeoutEndsAllOfThem) {
  workload_.timeout_s = 3.0;
  fake_.before_step = "[ $RANK = 1 ] && sleep 100";
  const stepladder::Run run = measure();
  EXPECT_EQ(run.status, Status::timeout) << run.reason;
  expect_nothing_left();
}

TEST_P(Ranks, ThatTrainEachAloneAreNoJob) {
  fake_.device = R"(,"rank":0)";
  EXPECT_TRUE(ended(measure(), Status::crash, {"rank 0 of 3", "as rank "}));
  fake_.device = R"(,"rank":'$RANK')";
  fake_.config = R"(,"world_size":1)";
  EXPECT_TRUE(ended(measure(), Status::crash, {" of 1", "as rank ", " of 3"}));
}

TEST_P(Ranks, ShareTheCores) {
  ::unsetenv("OMP_NUM_THREADS");
  fake_.before_start += cat("echo $OMP_NUM_THREADS >", folder_ / "threads", "$RANK\n");
  ASSERT_EQ(measure().status, Status::ok);
  const unsigned each = std::max(1U, std::thread::hardware_concurrency() / kRanks);
  EXPECT_EQ(read_file(folder_ / "threads1"), cat(each, "\n"));
}

class OwnRanks : public Ranks {};
INSTANTIATE_TEST_SUITE_P(Started, OwnRanks, testing::Values("cuda"));

TEST_P(OwnRanks, WhatOneReportsIsTheStatusWhereAllOfThemHang) {
  fake_.before_step =
      R"([ $i = 1 ] && { [ $RANK = 1 ] && say '{"event":"error","status":"oom","reason":"why not"}'; sleep 100; })";
  workload_.timeout_s = 2;
  const stepladder::Run run = measure();
  EXPECT_EQ(run.status, Status::oom);
  EXPECT_EQ(run.reason, "rank 1: why not");
  expect_nothing_left();
}

TEST_P(OwnRanks, AreToldWhoTheyAreAndWhereToMeet) {
  fake_.before_start +=
      cat("echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT >",
          folder_ / "told", "$RANK\necho $STEPLADDER_JOB_SECRET >", folder_ / "secret", "$RANK\n");
  const auto secret = [this] { return read_file(folder_ / "secret0"); };
  ASSERT_EQ(measure().status, Status::ok);
  const std::string before = secret();
  EXPECT_EQ(before.size(), 33U) << "128 bits in hex: " << before;
  ASSERT_EQ(measure().status, Status::ok);
  EXPECT_NE(secret(), before) << "each job has its own";
  EXPECT_EQ(read_file(folder_ / "secret2"), secret());
  std::string port;
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string told = read_file(folder_ / cat("told", rank));
    const std::string expected = cat(rank, " ", rank, " 3 3 127.0.0.1 ");
    ASSERT_EQ(told.substr(0, expected.size()), expected);
    if (rank == 0) port = told.substr(expected.size());
    EXPECT_EQ(told.substr(expected.size()), port) << "the same for all";
  }
  EXPECT_GT(std::stoi(port), 1023);
}

TEST_P(OwnRanks, JoulesAreThoseOfAllDevicesAndUnknownWhereOneIsNotTold) {
  const Environment library("STEPLADDER_NVML", STEPLADDER_FAKE_NVML);
  TelemetryOfDevices telemetry;
  workload_.telemetry = &telemetry;
  workload_.device.uuid = "GPU-0";
  workload_.until_loss = 2;
  fake_.step_ms = "600";
  fake_.device = R"(,"backend":"cuda","device":{"name":"fake","uuid":"GPU-'$RANK'"})";
  const stepladder::Run told = measure();
  ASSERT_EQ(told.status, Status::ok) << told.reason;
  EXPECT_NEAR(told.summary->joules.value(), kRanks * 700 * 0.6, 0.2 * kRanks * 700 * 0.6) << "700 W each";
  EXPECT_GT(told.summary->to_loss->joules.value(), kRanks * 700 * 0.6 * 5);

  const char* of_none = R"(,"backend":"cuda","device":{"name":"fake"})";
  const char* not_of_rank_2 =
      R"(,"backend":"cuda","device":{"name":"fake","uuid":"'$([ $RANK = 2 ] || echo GPU-$RANK)'"})";
  for (const char* device : {of_none, not_of_rank_2}) {
    fake_.device = device;
    const stepladder::Run run = measure();
    ASSERT_EQ(run.status, Status::ok) << run.reason;
    EXPECT_EQ(run.summary->joules, std::nullopt) << device;
    EXPECT_TRUE(says(run.summary->joules_unknown, {"uuid"})) << run.summary->joules_unknown;
    EXPECT_EQ(run.summary->to_loss->joules, std::nullopt) << device;
  }
}

TEST_P(OwnRanks, AStoppedRankEndsTheJobAndIsNamed) {
  fake_.before_step = "[ $i = 2 ] && { [ $RANK = 1 ] && kill -STOP $$; sleep 100; }";
  EXPECT_TRUE(ended(measure(), Status::crash, {"rank 1", "stopped", "step 2 of 6"}));
  expect_nothing_left();
}

// ---- the plan --------------------------------------------------------------------------------------------

Plan plan_of(std::vector<int64_t> devices, int64_t present) {
  Plan plan;
  plan.programs = {Program{{.command = {kArguments}, .native = true}, "one"},
                   Program{{.command = {kArguments}, .devices = 2, .native = true}, "several"}};
  plan.batch = {16, 64};
  plan.devices = std::move(devices);
  plan.devices_present = present;
  plan.settings.model = "gpt2";
  plan.settings.seq = 1024;
  return plan;
}

std::vector<std::string> planned(const Plan& plan) {
  std::vector<std::string> lines;
  for (const Workload& workload : workloads_of(plan, 0))
    lines.push_back(cat(workload.program.variant, " B=", workload.config["B"].dump(), " x", workload.devices,
                        has_independent_ranks(workload.config) ? " independent" : "",
                        workload.unsupported.empty() ? "" : " " + workload.unsupported));
  return lines;
}

TEST(PlanOfDevices, ByDefaultIsAllThatArePresent) {
  EXPECT_EQ(planned(plan_of({}, 4)),
            (std::vector<std::string>{"one B=16 x1", "several B=16 x4", "one B=64 x1", "several B=64 x4"}));
}

TEST(PlanOfDevices, WithTooFewIsARowThatSaysSo) {
  EXPECT_EQ(planned(plan_of({}, 1)),
            (std::vector<std::string>{"one B=16 x1", "several B=16 x1 needs 2 devices", "one B=64 x1",
                                      "several B=64 x1 needs 2 devices"}));
}

TEST(PlanOfDevices, CountsOfACampaignDoubleUpToAllThatArePresent) {
  EXPECT_EQ(device_counts(8), (std::vector<int64_t>{2, 4, 8}));
  EXPECT_EQ(device_counts(6), (std::vector<int64_t>{2, 4, 6}));
  EXPECT_EQ(device_counts(2), (std::vector<int64_t>{2}));
  EXPECT_EQ(device_counts(1), (std::vector<int64_t>{2})) << "the least that there must be";
}

TEST(PlanOfDevices, HoldsEachNumberAskedForOfRungsForSeveralOnly) {
  Plan plan = plan_of({1, 4}, 4);
  plan.batch = {16};
  EXPECT_EQ(planned(plan), (std::vector<std::string>{"one B=16 x1", "several B=16 x1", "several B=16 x4"}));
  EXPECT_EQ(plan.json()["runs_in_round"], 3);
  plan.scaling = "strong";
  EXPECT_EQ(planned(plan), (std::vector<std::string>{"one B=16 x1", "several B=16 x1", "several B=4 x4"}));
  EXPECT_EQ(workloads_of(plan, 0)[2].config,
            (Json{{"model", "gpt2"}, {"B", 4}, {"T", 1024}, {"seed", 1337}, {"world_size", 4}}));
}

TEST(PlanOfDevices, StrongScalingLeavesNoSequenceOut) {
  Plan plan = plan_of({}, 3);
  plan.scaling = "strong";
  EXPECT_TRUE(
      says(input_error([&] { workloads_of(plan, 0); }), {"--scaling strong", "3 devices", "--batch 16"}));
  plan.devices_present = 32;
  EXPECT_TRUE(says(input_error([&] { workloads_of(plan, 0); }), {"32 devices", "--batch 16"}));
}

TEST(PlanOfDevices, ApartRunsTheSameOnEachDeviceByItself) {
  Plan plan = plan_of({1, 4}, 4);
  plan.batch = {16};
  plan.independent_ranks = true;
  plan.programs.push_back({{.command = {"peer"}, .devices = 2}, "peer", "pytorch", "/"});
  EXPECT_EQ(planned(plan),
            (std::vector<std::string>{"one B=16 x1", "several B=16 x1", "several B=16 x4",
                                      "several B=16 x4 independent", "peer B=16 x1", "peer B=16 x4"}));
  const Workload together = workloads_of(plan, 0)[2], independent = workloads_of(plan, 0)[3];
  EXPECT_EQ(together.row().second, "gpt2 B=16 T=1024 on 4 devices");
  EXPECT_EQ(independent.row().second, "gpt2 B=16 T=1024 on 4 independent devices");
  const auto asks_for = [](const Workload& workload) {
    return std::ranges::count(workload.command, "--independent-ranks");
  };
  EXPECT_EQ(asks_for(independent), 1);
  EXPECT_EQ(asks_for(together), 0);
  EXPECT_EQ(plan.json()["independent_ranks"], true);
}

TEST(PlanOfDevices, WithoutSuchRungsIsWhatItWas) {
  Plan plan = plan_of({}, 4);
  plan.programs.pop_back();
  for (const char* key : {"devices", "scaling", "independent_ranks", "runs_in_round"})
    EXPECT_FALSE(plan.json().contains(key));
}

}  // namespace
}  // namespace stepladder
