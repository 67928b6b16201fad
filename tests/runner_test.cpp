#include "bench/run/runner.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "bench/base/text.h"
#include "bench/plan/ladder.h"
#include "bench/results/rounds.h"
#include "bench/results/run_json.h"
#include "bench/run/child.h"
#include "bench/run/events.h"
#include "bench/run/machine.h"
#include "model/fd.h"
#include "tests/fake_rung.h"
#include "tests/files.h"
#include "tests/processes.h"
#include "tests/results.h"

namespace {
std::atomic<time_t> suspended_s = 0;
}

/// Replaces the C library's clock_gettime() to imitate a machine that was suspended for `suspended_s`: only
/// the clock since boot counts that time.
extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long failed = ::syscall(SYS_clock_gettime, clock, now);
  if (failed == 0 && clock == CLOCK_BOOTTIME) now->tv_sec += suspended_s;
  return static_cast<int>(failed);
}

namespace stepladder {
namespace {

class RunnerTest : public testing::Test {
 protected:
  RunnerTest() { workload_.timeout_s = 30; }
  stepladder::Run measure() {
    fake_.write(folder_);
    return run_program(workload_, [this](const Step&) { ++steps_heard_; });
  }

  /// Makes the rung a trainer of a ladder file, which names its model, on a device whose peak is known.
  void of_a_ladder_file() {
    workload_.program.folder = folder_ / "";
    workload_.program.native = false;
    workload_.source_hash = workload_.program.source_hash();
    workload_.config["model"] = "gpt2";
    workload_.device.name = "NVIDIA H200";
  }

  const TempFolder folder_;
  FakeRung fake_;
  Workload workload_ = fake_.workload(folder_);
  int steps_heard_ = 0;
};

/// Reads the energy of the NVML that tests have.
class MeteredRunner : public RunnerTest {
 protected:
  MeteredRunner() { workload_.telemetry = &telemetry_; }
  const Environment library_{"STEPLADDER_NVML", STEPLADDER_FAKE_NVML};
  TelemetryOfDevices telemetry_;
};

/// Reads the energy of a counter as in /sys/class/powercap.
class RaplRunner : public RunnerTest {
 protected:
  RaplRunner() { workload_.telemetry = &telemetry_; }
  /// Shell code by which the counter counts this many joules more; by mv, as a counter's file is never empty.
  std::string use(int joules) const {
    return cat("uj=$((${uj:-0} + ", joules, "000000)); echo $uj >", counter_, ".new; mv ", counter_, ".new ",
               counter_, "; ");
  }
  const TempFolder rapl_;
  const std::string counter_ = energy_counter(rapl_);
  const Environment counters_{"STEPLADDER_RAPL", rapl_ / ""};
  TelemetryOfDevices telemetry_;
};

TEST(EventWriter, EventsOfTwoThreadsStayWhole) {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  const Fd read(fds[0]);
  Fd write(fds[1]);
  constexpr int kEach = 50;
  std::thread writers([&] {
    EventWriter events(write.get());
    const auto tell = [&](const char* name) {
      for (int i = 0; i < kEach; ++i) events.write({{"event", name}, {"long", std::string(100'000, 'x')}});
    };
    std::thread other(tell, "error");
    tell("step");
    other.join();
    write.close();
  });
  std::string text;
  std::array<char, 1 << 16> buffer;
  for (ssize_t n; (n = ::read(read.get(), buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<size_t>(n));
  writers.join();
  int whole = 0;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    whole += parse_event(std::string_view(text).substr(begin, end - begin)).is_object();
  EXPECT_EQ(whole, 2 * kEach);
}

TEST_F(RunnerTest, ATrainerOfALadderFileIsNotStartedOnAGpuThatItCannotUse) {
  workload_.program.folder = "/";
  workload_.program.native = false;
  workload_.program.compute_capability = 80;
  workload_.device.backend = "cuda";
  workload_.device.name = "Tesla T4";
  workload_.device.compute_capability = 75;
  EXPECT_TRUE(ended(measure(), Status::unsupported, {"sm_80", "sm_75", "Tesla T4"}));
  EXPECT_EQ(steps_heard_, 0);
}

TEST_F(RunnerTest, OfATrainerFasterThanItsPeakTheLadderFileMayBeWrong) {
  of_a_ladder_file();
  fake_.step_ms = "0.5";
  EXPECT_TRUE(ended(measure(), Status::crash, {"MFU of", "math", "ladder file"}));
}

TEST_F(RunnerTest, ATrainerWhoseMathIsNotToldHasNoMfu) {
  of_a_ladder_file();
  for (const auto math : {std::optional<MathMode>(), std::optional(MathMode::half)}) {
    workload_.program.math = math;
    const stepladder::Run run = measure();
    ASSERT_EQ(run.status, Status::ok) << run.reason;
    EXPECT_EQ(run.summary->mfu_nanogpt.has_value(), math.has_value());
    EXPECT_EQ(run.summary->mfu_llmc.has_value(), math.has_value());
  }
}

TEST_F(RunnerTest, MicroBatchesThatARungAccumulatesCountAndThoseThatATrainerRecordsDoNot) {
  fake_.config = R"(,"accumulate":4)";
  fake_.step_ms = "10";
  EXPECT_DOUBLE_EQ(measure().summary->tokens_per_second, 4 * 4 * 64 / 0.010);
  fake_.config = R"(,"accumulate":4,"whole_batch":false)";
  EXPECT_DOUBLE_EQ(measure().summary->tokens_per_second, 4 * 4 * 64 / 0.010) << "whatever it says";
}

TEST_F(RunnerTest, AWholeRunIsOk) {
  fake_.step_ms = "1$i.5";  // 10.5, 11.5, .. 15.5
  const stepladder::Run run = measure();
  ASSERT_EQ(run.status, Status::ok) << run.reason;
  EXPECT_EQ(run.reason, "");
  EXPECT_EQ(run.variant, "00_fp32_baseline");
  EXPECT_EQ(run.source_hash, "abc123");
  EXPECT_EQ(run.backend, "cpu");
  EXPECT_EQ(steps_heard_, 6);
  ASSERT_EQ(run.steps.size(), 6U);
  EXPECT_DOUBLE_EQ(run.steps[5].step_ms, 15.5);
  EXPECT_DOUBLE_EQ(*run.steps[5].device_ms, 9.5);
  EXPECT_DOUBLE_EQ(*run.steps[5].loss, 4.85);
  EXPECT_DOUBLE_EQ(*run.steps[5].grad_norm, 1.5);
  EXPECT_DOUBLE_EQ(*run.steps[5].lr, 0.001);
  EXPECT_EQ(run.config["B"], 4) << "what was asked for stands";
  EXPECT_EQ(run.config["dtype"], "f32") << "what the rung adds is kept";
}

TEST_F(RunnerTest, CyclesAreThoseOfTheTimedStepsAndNoneWhereTheRungCountsNone) {
  EXPECT_EQ(measure().summary->cycles, std::nullopt);
  fake_.telemetry = R"(,"cycles":'$((50000000 + i * 1000))')";
  const stepladder::Run run = measure();
  ASSERT_EQ(run.status, Status::ok) << run.reason;
  EXPECT_EQ(run.steps[5].cycles, 50005000);
  EXPECT_EQ(run.summary->cycles, 50003500) << "the median of the last four";
}

TEST_F(MeteredRunner, EnergyIsReadBesideTheRunAndAnotherProcessOnTheDeviceIsNoticed) {
  const Environment processes("FAKE_NVML_PROCESSES", "2");
  fake_.step_ms = "600";
  const stepladder::Run run = measure();
  ASSERT_EQ(run.status, Status::ok) << run.reason;
  ASSERT_TRUE(run.summary->joules) << run.summary->joules_unknown;
  EXPECT_NEAR(*run.summary->joules, 700 * 0.6, 0.2 * 700 * 0.6) << "700 W; the shell takes a little longer";
  EXPECT_EQ(run.summary->shared, true);
  EXPECT_STREQ(run.disturbance(), "shared");
}

TEST_F(MeteredRunner, EnergyOfItsOnlyDeviceIsReadThoughTheTrainerDoesNotTellWhichItIs) {
  workload_.device.uuid = "GPU-0";
  workload_.until_loss = 2;
  fake_.device = R"(,"backend":"cuda","device":{"name":"fake"})";
  const stepladder::Run run = measure();
  ASSERT_EQ(run.status, Status::ok) << run.reason;
  EXPECT_TRUE(run.summary->to_loss->joules) << run.summary->joules_unknown;
}

/// Shell code of a rung that evaluates before the first step and after each step.
const std::string kEvaluates =
    R"(say '{"event":"eval","step":'$i',"val_loss":'$((10 - i)).25'}'; [ $((10 - i)) -lt ${ends_below:-0} ] && break)";

TEST_F(RunnerTest, TheValidationLossIsThatAfterTheLastStep) {
  fake_.before_step = R"([ $i = 2 ] && say '{"event":"eval","step":2,"val_loss":4.5}')";
  stepladder::Run run = measure();
  ASSERT_EQ(run.status, Status::ok) << run.reason;
  EXPECT_FALSE(run.summary->val_loss) << "one after the second step is none";
  fake_.before_step = "";
  fake_.before_end = R"(say '{"event":"eval","step":'$steps',"val_loss":4.25}')";
  run = measure();
  ASSERT_EQ(run.status, Status::ok) << run.reason;
  EXPECT_EQ(run.summary->val_loss, 4.25);
}

TEST_F(RunnerTest, TimeToALossIsThatOfAllStepsBeforeTheEvaluationThatReachedIt) {
  workload_.until_loss = 6.5;
  workload_.eval_every = 1;
  fake_.step_ms = "1$i.5";
  fake_.before_step = "ends_below=7; " + kEvaluates;
  const stepladder::Run run = measure();
  ASSERT_EQ(run.status, Status::ok) << run.reason;
  ASSERT_EQ(run.evaluations.size(), 5U);
  EXPECT_EQ(run.evaluations[0].step, 0);
  EXPECT_EQ(run.evaluations[4].val_loss, 6.25);
  const ToLoss& took = *run.summary->to_loss;
  EXPECT_TRUE(took.reached);
  EXPECT_EQ(took.steps, 4);
  EXPECT_NEAR(took.seconds, 0.0105 + 0.0115 + 0.0125 + 0.0135, 1e-9);
  EXPECT_EQ(took.tokens, 4 * 4 * 64);
  const Json json = to_json(run);
  EXPECT_EQ(to_json(run_from(json)), json);
}

TEST_F(RunnerTest, ALossThatIsNotReachedIsSaidAndTheRunIsKept) {
  workload_.until_loss = 2;
  fake_.before_step = kEvaluates;
  fake_.before_end = "trap 'exit 3' EXIT";  // a rung's exit status when it misses the loss
  const stepladder::Run run = measure();
  ASSERT_EQ(run.status, Status::ok) << run.reason;
  EXPECT_FALSE(run.summary->to_loss->reached);
  EXPECT_EQ(run.summary->to_loss->steps, 6);
  workload_.until_loss.reset();
  EXPECT_EQ(measure().status, Status::crash) << "an exit status of a loss that nobody asked for";
}

TEST_F(RaplRunner, EnergyOfEvaluationsIsNotThatOfTraining) {
  workload_.until_loss = 2;
  workload_.eval_every = 3;
  // Each step takes 1 J, each evaluation 1,000 J, with time for the harness to read between them.
  fake_.before_step =
      cat("if [ $i = 3 ]; then sleep 0.3; ", use(1000),
          "say '{\"event\":\"eval\",\"step\":3,\"val_loss\":9}'; ", "sleep 0.2; fi; ", use(1), "sleep 0.12");
  const stepladder::Run run = measure();
  ASSERT_EQ(run.status, Status::ok) << run.reason;
  EXPECT_NEAR(run.summary->to_loss->joules.value(), 6.0, 1.5);
}

TEST_F(RaplRunner, ACounterThatStandsStillLeavesNoJoules) {
  fake_.step_ms = "1000";
  const stepladder::Run run = measure();
  ASSERT_EQ(run.status, Status::ok) << run.reason;
  EXPECT_FALSE(run.summary->joules.has_value()) << *run.summary->joules;
  EXPECT_TRUE(says(run.summary->joules_unknown, {"still"}));
  workload_.until_loss = 2;
  workload_.eval_every = 3;
  fake_.before_step = kEvaluates;
  const stepladder::Run to_loss = measure();
  ASSERT_EQ(to_loss.status, Status::ok) << to_loss.reason;
  EXPECT_FALSE(to_loss.summary->to_loss->joules.has_value());
}

TEST_F(RaplRunner, AnEvaluationThatIsToldLateLeavesNoJoules) {
  fake_.before_step = cat("[ $i = 5 ] && uj=$((${uj:-0} + 50000000)); ", use(1),
                          "sleep 0.01; [ $i = 10 ] && say '{\"event\":\"eval\",\"step\":10,\"val_loss\":9}'");
  fake_.step_ms = "300";
  workload_.steps = 12;
  workload_.command.back() = "12";
  const stepladder::Run run = measure();
  ASSERT_EQ(run.status, Status::ok) << run.reason;
  EXPECT_FALSE(run.summary->joules.has_value()) << *run.summary->joules;
  EXPECT_TRUE(says(run.summary->joules_unknown, {"evaluates"}));
}

TEST_F(RunnerTest, ARunThatEndsAboveTheLossItWasToReachIsACrash) {
  workload_.until_loss = 2;
  fake_.before_step = "ends_below=7; " + kEvaluates;
  EXPECT_EQ(measure().status, Status::crash);
  fake_.before_step = kEvaluates + "; " + kEvaluates;
  EXPECT_EQ(measure().status, Status::crash) << "two evaluations of one state";
}

TEST_F(RunnerTest, KeepsNoMoreDigitsThanWereMeasured) {
  fake_.step_ms = "0.12363399999418";
  fake_.loss = "10.979999542236328";  // a float printed as double
  const stepladder::Run run = measure();
  ASSERT_EQ(run.status, Status::ok) << run.reason;
  EXPECT_EQ(number_text(run.steps[0].step_ms), "0.123634");
  EXPECT_EQ(number_text(*run.steps[0].loss), "10.98");
  fake_.step_ms = "1e-9";
  EXPECT_EQ(measure().status, Status::crash) << "no time";
}

TEST_F(RunnerTest, AConfigThatNoFileCouldHoldIsACrash) {
  fake_.device = R"(,"config":{"dtype":[[[[1]]]]})";
  EXPECT_TRUE(ended(measure(), Status::crash, {"config"}));
}

TEST_F(RunnerTest, AConfigIsHeldToTheContractOfTheFiles) {
  for (const auto& [key, value] : {std::pair("threads", "0"), std::pair("threads", "-1"),
                                   std::pair("threads", "2.5"), std::pair("threads", R"("x")")}) {
    fake_.config = cat(",\"", key, "\":", value);
    EXPECT_TRUE(ended(measure(), Status::crash, {key})) << fake_.config;
  }
  fake_.config = R"(,"threads":2,"data_hash":18446744073709551615,"mesh":[[0,1],[2,3]],"layers":[{"h":1}])";
  EXPECT_EQ(measure().config["layers"], Json({{{"h", 1}}}));
}

TEST_F(RunnerTest, WhatAConfigTellsAsNullIsNotTold) {
  fake_.config = R"(,"threads":null,"world_size":null,"independent_ranks":null,"lr":null)";
  const stepladder::Run run = measure();
  EXPECT_EQ(run.status, Status::ok) << run.reason;
  for (const char* key : {"threads", "world_size", "independent_ranks"})
    EXPECT_FALSE(run.config.contains(key)) << key;
  EXPECT_TRUE(run.config.contains("lr"));
}

TEST_F(RunnerTest, WhetherRanksAreIndependentIsNotForATrainerToSay) {
  for (const char* told : {R"("independent_ranks":true)", R"("independent_ranks":"yes")"}) {
    fake_.config = cat(",", told);
    EXPECT_TRUE(ended(measure(), Status::crash, {"independent_ranks"})) << told;
  }
  fake_.config = R"(,"independent_ranks":false)";
  EXPECT_EQ(measure().status, Status::ok);
  workload_.config["independent_ranks"] = true;
  EXPECT_EQ(measure().status, Status::crash);
  fake_.config = R"(,"independent_ranks":true)";
  EXPECT_EQ(measure().status, Status::ok);
}

TEST_F(RunnerTest, ADeviceMayHaveNoUuid) {
  fake_.device = R"(,"device":{"backend":"cuda","name":"fake"})";  // llm.c reports no UUID
  const stepladder::Run run = measure();
  EXPECT_EQ(run.status, Status::ok) << run.reason;
}

TEST_F(RunnerTest, SummaryLeavesOutTheWarmup) {
  fake_.step_ms = "$((i < 2 ? 20 - i * 9 : 10 + i % 2))";  // 20 11 | 10 11 10 11
  const stepladder::Run run = measure();
  ASSERT_EQ(run.status, Status::ok) << run.reason;
  // The kept steps exclude 20, so one more step is warm-up: 20 11 10 | 11 10 11
  EXPECT_EQ(run.summary->warmup_steps, 3);
  EXPECT_TRUE(run.steps[2].warmup);
  EXPECT_FALSE(run.steps[3].warmup);
  EXPECT_DOUBLE_EQ(run.summary->median_step_ms, 11.0);
  EXPECT_DOUBLE_EQ(run.summary->first_step_ms, 20.0);
  EXPECT_DOUBLE_EQ(run.summary->startup_ms, 12.5);
  EXPECT_DOUBLE_EQ(run.summary->tokens_per_second, 4 * 64 / 0.011);
  EXPECT_EQ(run.summary->memory.live_peak, 1048576);
  EXPECT_EQ(run.summary->memory.process_peak, 3145728);
  EXPECT_EQ(run.summary->memory.by_name.at("params/wte"), 1024);
  EXPECT_FALSE(run.summary->mfu_nanogpt) << "the peak of a fake device is unknown";
}

TEST_F(RunnerTest, MfuIsAgainstTheDevicesPeakAndNeverOverOne) {
  workload_.device.name = "NVIDIA H200";
  workload_.device.backend = "cuda";
  workload_.device.compute_capability = 90;
  const stepladder::Run slow = measure();
  ASSERT_EQ(slow.status, Status::ok) << slow.reason;
  EXPECT_GT(*slow.summary->mfu_nanogpt, 0.0);
  EXPECT_LT(*slow.summary->mfu_nanogpt, 1.0);
  const auto at = [&](MathMode math) {
    workload_.program.math = math;
    return measure().summary->mfu_nanogpt;
  };
  const auto fp32 = at(MathMode::fp32);
  EXPECT_LT(at(MathMode::tf32), fp32);
  fake_.config = R"(,"compute_capability":75)";
  EXPECT_EQ(at(MathMode::tf32), fp32) << "as which it has no TF32";
  fake_.step_ms = "0.0000$((i + 1))";
  EXPECT_TRUE(ended(measure(), Status::crash, {"MFU"}));
}

TEST_F(RunnerTest, ASignalIsACrashThatNamesItAndTheLastWords) {
  fake_.before_step = "[ $i = 3 ] && { echo first >&2; echo 'about to fall' >&2; kill -SEGV $$; }";
  const stepladder::Run run = measure();
  EXPECT_TRUE(ended(run, Status::crash, {"SIGSEGV", "step 3 of 6", "about to fall"}));
  EXPECT_EQ(run.steps.size(), 3U);
  EXPECT_FALSE(run.summary);
}

TEST_F(RunnerTest, AHangIsATimeoutAndNothingIsLeftRunning) {
  // The child ignores SIGTERM and has a child of its own.
  fake_.before_step = cat("[ $i = 2 ] && { trap '' TERM INT; sleep 100 & echo $! >", folder_ / "grandchild",
                          "; while :; do sleep 1; done; }");
  stepladder::Run run;
  std::chrono::steady_clock::duration took{};
  // Doubles the time limit until the child gets as far as its hang.
  for (workload_.timeout_s = 1.0; !std::filesystem::exists(folder_ / "grandchild");
       workload_.timeout_s *= 2) {
    const auto start = std::chrono::steady_clock::now();
    run = measure();
    took = std::chrono::steady_clock::now() - start;
  }
  EXPECT_LT(took, std::chrono::seconds(100)) << "waited for the grandchild";
  EXPECT_TRUE(ended(run, Status::timeout,
                    {cat(number_text(workload_.timeout_s / 2), " s"), "step 2 of 6", "--timeout"}));
  const pid_t grandchild = std::stoi(read_file(folder_ / "grandchild"));
  EXPECT_TRUE(ends(grandchild));
}

TEST_F(RunnerTest, ARunIsNoRankOfTheJobThatTheHarnessIsStartedIn) {
  const char* const surroundings[] = {
      "RANK",         "WORLD_SIZE",    "LOCAL_RANK",           "MASTER_ADDR",
      "SLURM_PROCID", "SLURM_STEP_ID", "OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE",
      "PMI_RANK",     "ALPS_APP_PE",   "FLUX_TASK_RANK",       "PALS_RANKID"};
  fake_.before_start = "";
  for (const char* name : surroundings) {
    ::setenv(name, "1", 1);
    fake_.before_start += cat("echo \"$", name, "\" >>", folder_ / "seen", "\n");
  }
  EXPECT_EQ(measure().status, Status::ok);
  for (const char* name : surroundings) ::unsetenv(name);
  EXPECT_EQ(read_file(folder_ / "seen"), std::string(std::size(surroundings), '\n'));
}

TEST_F(RunnerTest, WhatARunLeavesBehindIsEnded) {
  fake_.before_end = cat("sleep 100 & echo $! >", folder_ / "grandchild");
  EXPECT_EQ(measure().status, Status::ok);
  const pid_t grandchild = std::stoi(read_file(folder_ / "grandchild"));
  EXPECT_TRUE(ends(grandchild));
}

TEST_F(RunnerTest, WhatTheRungReportsIsItsStatus) {
  const std::pair<const char*, Status> cases[] = {{"oom", Status::oom},
                                                  {"unsupported", Status::unsupported},
                                                  {"diverged", Status::diverged},
                                                  {"error", Status::crash},
                                                  {"interrupted", Status::crash}};
  for (const auto& [status, expected] : cases) {
    fake_.before_start =
        cat(R"(say '{"event":"error","status":")", status, R"(","reason":"why not"}'; exit 5)");
    const stepladder::Run run = measure();
    EXPECT_EQ(run.status, expected);
    EXPECT_EQ(run.reason, "why not");
    EXPECT_FALSE(run.summary);
  }
}

TEST_F(RunnerTest, AFailureIsReadWhateverBytesItsReasonHas) {
  // The shell prints \303, half a UTF-8 character, and other invalid bytes.
  for (const char* bytes : {"\\303", "\\377", "\\340\\200\\200", "\\355\\240\\200", "\\364\\220\\200\\200"}) {
    fake_.before_start =
        cat(R"(printf '{"event":"error","status":"oom","reason":"caf)", bytes, R"("}\n' >&3; exit 5)");
    EXPECT_TRUE(ended(measure(), Status::oom, {"caf?"}));
  }
}

TEST_F(RunnerTest, RefusedInputEndsThePlan) {
  fake_.before_start = R"(say '{"event":"error","status":"error","reason":"x.bin: truncated"}'; exit 2)";
  EXPECT_EQ(input_error([this] { measure(); }), "x.bin: truncated");
}

TEST_F(RunnerTest, ACrashTellsTheLastLineWithoutItsColours) {
  fake_.before_step =
      R"(printf '\033[%03000d\n' 1 >&2; printf '\033[31mout of \033[1mluck\033[0m\n' >&2; exit 1)";
  const stepladder::Run run = measure();
  EXPECT_EQ(run.status, Status::crash);
  EXPECT_TRUE(says(run.reason, {"(out of luck)"})) << run.reason;
}

TEST_F(RunnerTest, ReportsThatMakeNoSenseAreCrashes) {
  const auto crash = [&](const std::string& commands) {
    fake_.before_step = commands;
    const stepladder::Run run = measure();
    EXPECT_EQ(run.status, Status::crash) << commands;
    EXPECT_FALSE(run.summary);
    return run.reason;
  };
  EXPECT_TRUE(says(crash("say 'Segmentation \033[2J fault'"), {"'Segmentation ?[2J fault'"}));
  EXPECT_TRUE(says(crash("head -c 3000000 /dev/zero >&3"), {"too long"}));
  EXPECT_TRUE(says(crash("head -c 3000000 /dev/urandom >&3"), {"event stream: '"}));
  EXPECT_TRUE(says(crash("i=3"), {"step 3", "step 0"}));
  EXPECT_TRUE(says(crash(R"(say '{"event":"step","step":"0"}')"), {"whole number", "'step'"}));
  EXPECT_TRUE(
      says(crash(R"(say '{"event":"step","step":9223372036854775808}')"), {"whole number", "'step'"}));
  EXPECT_TRUE(says(crash(R"(say '{"event":"step","step":0}')"), {"number", "'step_ms'"}));
  EXPECT_TRUE(says(crash(R"(say '{"event":"step","step":0,"step_ms":-4}')"), {"took -4 ms"}));
  EXPECT_TRUE(says(crash(R"(say '{"event":"step","step":0,"step_ms":1e999}')"), {":1e999}'"}));
  EXPECT_TRUE(says(crash(R"(say '{"event":"step","step":0,"step_ms":5e-324}')"), {"step 0", "nanosecond"}));
  EXPECT_TRUE(
      says(crash(R"(say '{"event":"step","step":0,"step_ms":1e308}')"), {"step_ms", "1e+308", "30 s"}));
  EXPECT_TRUE(says(crash(R"(say '{"event":"step","step":0,"step_ms":1,"power_w":1e308}')"), {"power_w"}));
  EXPECT_TRUE(says(crash(R"(say '{"event":"end"}')"), {"object", "'memory_bytes'"}));
  for (const char* key : {"device_ms", "cycles", "grad_norm"})
    EXPECT_TRUE(
        says(crash(cat(R"(say '{"event":"step","step":0,"step_ms":1,")", key, "\":-1}'")), {key, "-1"}));
  for (const char* cycles : {"0", "0.5", "1e-300"})
    EXPECT_TRUE(says(crash(cat(R"(say '{"event":"step","step":0,"step_ms":1,"loss":1,"cycles":)", cycles,
                               "}'; i=1; steps=1")),
                     {"step 0", "cycles", cycles}));
  EXPECT_TRUE(
      says(crash(R"(say '{"event":"step","step":'$i',"step_ms":5000,"loss":4.5}'; i=$((i + 1)); continue)"),
           {"30000 ms", "ran for"}));
  EXPECT_TRUE(says(
      crash(R"(while :; do say '{"event":"step","step":'$i',"step_ms":0.001,"loss":4}'; i=$((i+1)); done)"),
      {"more than", "6 steps"}));
  EXPECT_TRUE(says(crash(R"(say '{"event":"start","config":{},"startup_ms":1,"memory_by_name":{}}')"),
                   {"second start"}));
  EXPECT_TRUE(says(crash(R"(say "{\"event\":\"eval\",\"x\":\"$(head -c 300000 /dev/zero | tr '\0' x)\"}")"),
                   {"event of 3000", "bytes"}));
  for (const char* event : {R"({"event":"step","step":6,"step_ms":1,"loss":4})",
                            R"({"event":"eval","step":6,"val_loss":4})", R"({"event":"end"})"}) {
    fake_.before_end =
        cat(R"(say '{"event":"end","memory_bytes":{"live_peak":1,"reserved_peak":1,"process_peak":1}}'
say ')",
            event, "'; exit 0");
    EXPECT_TRUE(
        says(crash(""), {cat("event after its end: ", parse_event(event)["event"].get<std::string>())}));
  }
  fake_.before_end = "";
  EXPECT_TRUE(says(crash("steps=4"), {"reported 4 of 6 steps"}));
  EXPECT_TRUE(says(crash("exit 0"), {"its end", "0 of 6 steps"}));
  EXPECT_EQ(crash("echo oops >&2; exit 7"), "exit status 7 (oops)");
}

TEST_F(RunnerTest, AWrongFieldIsNamedWithItsEvent) {
  const auto reason = [&](const std::string& event) {
    fake_.before_step = cat("[ $i = 2 ] && say '", event, "'");
    return measure().reason;
  };
  EXPECT_TRUE(says(reason(R"({"event":"step","step":2})"), {"step 2", "number", "'step_ms'"}));
  EXPECT_TRUE(
      says(reason(R"({"event":"step","step":2,"step_ms":1,"lr":"x"})"), {"step 2", "number", "'lr'"}));
  EXPECT_TRUE(
      says(reason(R"({"event":"eval","step":"2","val_loss":1})"), {"eval", "whole number", "'step'"}));
  EXPECT_TRUE(says(reason(R"({"event":"eval","step":2,"val_loss":1e300})"), {"eval", "val_loss"}));
  EXPECT_TRUE(says(reason(R"({"event":"end","memory_bytes":{"live_peak":-5}})"), {"end", "-5", "live_peak"}));
  EXPECT_TRUE(says(reason(R"({"event":"error","reason":"x"})"), {"error", "string", "'status'"}));
}

TEST_F(RunnerTest, ABatchOfNothingIsACrash) {
  for (const char* shape : {R"("B":0,"T":64)", R"("B":4,"T":-1)", R"("B":4,"T":9223372036854775807)"}) {
    workload_.config = {{"model", "gpt2-tiny"}};  // check-trainer may ask for no B and T
    fake_.before_start = cat(
        R"(say '{"event":"start","variant":"'$name'","source_hash":"'$source_hash'","backend":"cpu","config":{)",
        shape, "}}'; exit 0");
    EXPECT_TRUE(ended(measure(), Status::crash, {"start", shape[4] == '0' ? "B" : "T"})) << shape;
  }
}

TEST_F(RunnerTest, NestedConfigsAreACrash) {
  for (const size_t depth : {20, 50'000}) {
    write_file(folder_ / "start",
               cat(R"({"event":"start","backend":"cpu","startup_ms":1,"memory_by_name":{},"config":{"x":)",
                   std::string(depth, '['), std::string(depth, ']'), "}}\n"));
    fake_.before_start = cat("cat ", folder_ / "start", " >&3");
    const stepladder::Run run = measure();
    EXPECT_TRUE(ended(run, Status::crash, {"event stream: '"}));
    EXPECT_NO_THROW(run_from(parse_json(to_json(run).dump())));
  }
}

TEST_F(RunnerTest, MemoryOfLessThanNothingIsACrash) {
  for (const char* peak : {"live_peak", "reserved_peak", "process_peak"}) {
    Json bytes = {{"live_peak", 1}, {"reserved_peak", 1}, {"process_peak", 1}};
    bytes[peak] = -5;
    fake_.before_end = cat("say '", Json{{"event", "end"}, {"memory_bytes", bytes}}.dump(), "'; exit 0");
    EXPECT_TRUE(ended(measure(), Status::crash, {peak, "-5"}));
  }
}

TEST_F(RunnerTest, StepsBeforeTheStartAreACrash) {
  fake_.before_start = R"(say '{"event":"step","step":0,"step_ms":1,"loss":1}')";
  EXPECT_TRUE(says(measure().reason, {"step before"}));
}

TEST_F(RunnerTest, ALossThatIsNotFiniteIsDiverged) {
  fake_.loss = "$([ $i = 4 ] && echo null || echo 4.5)";
  const stepladder::Run run = measure();
  EXPECT_TRUE(ended(run, Status::diverged, {"step 4", "loss"}));
  EXPECT_FALSE(run.summary);
}

TEST_F(RunnerTest, AnotherBuildThanThePlansIsNotMeasured) {
  fake_.source_hash = "other";
  EXPECT_TRUE(throws([this] { measure(); }, kExitNotComparable));
}

TEST_F(RunnerTest, SourcesAreHashedInPiecesAndOnlyAgainWhenTheyHaveChanged) {
  constexpr size_t kSize = 32 << 20;
  const std::string data = folder_ / "data";
  write_file(data, "tokens");
  std::filesystem::resize_file(data, kSize);
  const auto at = [&](int hours) {
    std::filesystem::last_write_time(
        data, std::filesystem::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  at(2);
  Program program;
  program.variant = "mine";
  program.folder = folder_ / "";
  program.sources = {"data"};
  const auto number = [](const char* file, const std::string& key) {
    const std::string text = read_file(file);
    return std::stoull(text.substr(text.find(key) + key.size()));
  };
  write_file("/proc/self/clear_refs", "5");  // resets the peak
  const auto before = number("/proc/self/status", "VmHWM:");
  const std::string hash = program.source_hash();
  EXPECT_LT(number("/proc/self/status", "VmHWM:") - before, kSize / 1024 / 2) << "KiB: it is held in memory";
  const auto read = number("/proc/self/io", "rchar:");
  EXPECT_EQ(program.source_hash(), hash);
  EXPECT_LT(number("/proc/self/io", "rchar:") - read, kSize / 2) << "read again";
  write_file(data, "others");
  std::filesystem::resize_file(data, kSize);
  at(1);
  EXPECT_NE(program.source_hash(), hash);
}

TEST_F(RunnerTest, AMissingExecutableIsNamed) {
  EXPECT_TRUE(throws([this] { run_program(workload_, [](const Step&) {}); }, kExitFailed,
                     {folder_ / "00_fp32_baseline"}));
}

TEST_F(RunnerTest, DivergenceNamesTheStepAndTheValues) {
  const stepladder::Run baseline = measure();
  EXPECT_EQ(divergence(baseline, "00", measure(), 0.0), "");
  fake_.loss = "4.$((90 - i + (i == 3) * 5))";  // 4.92 instead of 4.87 at step 3
  const stepladder::Run other = measure();
  EXPECT_EQ(divergence(baseline, "00", other, 0.0103), "");
  const std::string reason = divergence(baseline, "00", other, 0.0102);
  EXPECT_TRUE(says(reason, {"step 3: loss 4.92, 00 has 4.87"}));
}

TEST(Divergence, LossesOfZeroAreTheSame) {
  stepladder::Run one;
  one.steps.emplace_back().loss = 0.0;
  stepladder::Run other = one;
  EXPECT_EQ(divergence(one, "one", other, 0.0), "");
  other.steps[0].loss = 1e-9;
  EXPECT_NE(divergence(one, "one", other, 0.1), "");
  other.steps[0].loss.reset();  // files may lack a loss
  EXPECT_NE(divergence(one, "one", other, 0.1), "");
}

TEST(Child, OutputOfIsWhatASuccessfulCommandPrints) {
  EXPECT_EQ(output_of({"sh", "-c", "echo one; echo two"}), "one\ntwo");
  EXPECT_EQ(output_of({"printf", "one"}), "one");
  EXPECT_EQ(output_of({"printf", "one\\n\\ntwo"}), "one\n\ntwo");
  EXPECT_EQ(output_of({"sh", "-c", "sleep 100 & printf one"}), "one");
  EXPECT_EQ(output_of({"true"}), "");
  EXPECT_EQ(output_of({"sh", "-c", "echo one; exit 1"}), std::nullopt);
  EXPECT_EQ(output_of({"sh", "-c", "sleep 100"}, 0.1), std::nullopt);
  EXPECT_EQ(output_of({"/nowhere/program"}), std::nullopt);
}

TEST(Child, OutputOfWhatIsInterruptedIsNotMerelyMissing) {
  const auto interrupted = [] {
    try {
      output_of({"sh", "-c", "kill -INT $PPID; sleep 60"});
    } catch (const Interrupted& e) {
      std::_Exit(e.signal);
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(interrupted(), testing::ExitedWithCode(SIGINT), "");
}

TEST(Child, OutputOfWhatPrintsWithoutAnEndIsNone) {
  EXPECT_EQ(output_of({"sh", "-c", "yes | head -c 4000000"}).value_or("").size(), 3'999'999U);
  for (const char* endless : {"yes", "cat /dev/zero"}) {
    const TempFolder folder;
    EXPECT_EQ(output_of({"sh", "-c", cat("echo $$ >", folder / "pid", "; exec ", endless)}, 60.0),
              std::nullopt);
    EXPECT_FALSE(alive(std::stoi(read_file(folder / "pid"))));
  }
}

TEST(Child, ItsLastWordsAreTheLineThatSaysSomething) {
  const auto words = [](const std::string& text) { return ChildEnd{.stderr_tail = text}.last_words(); };
  const std::string rule = std::string(76, '-') + "\n";
  EXPECT_EQ(words("starting\n" + rule + "All nodes which are allocated for\nthis job are filled.\n\n" + rule),
            " (All nodes which are allocated for this job are filled.)");
  EXPECT_EQ(words("error: no such file\n=====\n"), " (error: no such file)");
  EXPECT_EQ(words(rule), "");
}

TEST(Probe, TellsHowItEndedWhereItToldNothing) {
  using How = ChildEnd::How;
  const std::string killed = why_no_device({.how = How::signalled, .code = SIGKILL, .stderr_tail = ""});
  EXPECT_TRUE(says(killed, {"SIGKILL", "again"}) && killed.find("driver") == std::string::npos) << killed;
  const std::string crashed = why_no_device(
      {.how = How::signalled, .code = SIGSEGV, .stderr_tail = "blas_thread_init: pthread_create failed\n"});
  EXPECT_TRUE(says(crashed, {"SIGSEGV", "pthread_create failed"}));
  EXPECT_TRUE(
      says(why_no_device({.how = How::timed_out, .code = SIGKILL, .stderr_tail = ""}), {"60 s", "driver"}));
  EXPECT_TRUE(says(why_no_device({.code = 3, .stderr_tail = "words\n"}), {"exit status 3", "words"}));
}

TEST(Child, WhatAListenerThrowsEndsTheChild) {
  const TempFolder folder;
  const auto listen = [](std::string_view) -> bool { throw Error("enough"); };
  EXPECT_THROW(run_child({"sh", "-c", cat("echo $$ >", folder / "pid", "; echo line; sleep 100")},
                         Channel::out, 50, listen),
               Error);
  EXPECT_FALSE(alive(std::stoi(read_file(folder / "pid"))));
}

TEST(Child, AnEventThatIsTornIsNotHandedOver) {
  std::vector<std::string> lines;
  run_child({"sh", "-c", "printf 'whole\\ntorn' >&3"}, Channel::events, 50, [&](std::string_view line) {
    lines.emplace_back(line);
    return true;
  });
  EXPECT_EQ(lines, std::vector<std::string>{"whole"});
}

TEST(Child, EndsNoProcessThatIsNotOfItsJob) {
  const TempFolder folder;
  const std::string pid = folder / "pid";
  // A shell ends during the job and leaves its child to this process.
  const pid_t shell = fork();
  if (shell == 0) execlp("sh", "sh", "-c", cat("sleep 100 & echo $! >", pid, "; sleep 0.5").c_str(), nullptr);
  while (!std::filesystem::exists(pid) || read_file(pid).empty())
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // several clock ticks
  EXPECT_EQ(output_of({"sh", "-c", "sleep 1"}, 30.0), "");
  const pid_t other = std::stoi(read_file(pid));
  EXPECT_TRUE(alive(other));
  kill(other, SIGKILL);
  waitpid(shell, nullptr, 0);
  waitpid(other, nullptr, 0);
}

TEST(Child, EndsWhatLeftItsGroupThoughTheMachineWasSuspendedMeanwhile) {
  const TempFolder folder;
  const std::string daemon =
      cat("setsid sh -c 'echo $$ >", folder / "pid", "; exec sleep 100' & echo started; sleep 0.2");
  run_child({"sh", "-c", daemon}, Channel::out, 50, [](std::string_view) {
    suspended_s = 3600;
    return true;
  });
  suspended_s = 0;
  EXPECT_TRUE(ends(std::stoi(read_file(folder / "pid"))));
}

TEST(Child, EndsWhatJoinedTheGroupOfThisProcess) {
  const TempFolder folder;
  const std::string daemon =
      cat("import os; os.fork() and os._exit(0); os.setpgid(0, ", ::getpgrp(), "); open('", folder / "pid",
          "', 'w').write(str(os.getpid())); "
          "os.execlp('sleep', 'sleep', '100')");
  run_child({"sh", "-c",
             cat("python3 -c \"", daemon, "\"; while ! [ -s ", folder / "pid", " ]; do sleep 0.01; done")},
            Channel::out, 50, [](std::string_view) { return true; });
  EXPECT_TRUE(ends(std::stoi(read_file(folder / "pid"))));
}

TEST(Child, ManyLinesArriveWholeAndInOrder) {
  int expected = 0;
  const ChildEnd end =
      run_child({"sh", "-c", "i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done"}, Channel::out, 50,
                [&](std::string_view line) { return line == std::to_string(expected) && ++expected; });
  EXPECT_EQ(end.how, ChildEnd::How::exited);
  EXPECT_EQ(expected, 20000);
}

}  // namespace
}  // namespace stepladder
