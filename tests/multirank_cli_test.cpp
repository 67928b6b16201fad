// `stepladder run --devices` through the real binary, with real ranks on the CPU and with faults.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <sstream>
#include <thread>

#include "bench/results/file.h"
#include "bench/results/json.h"
#include "bench/run/child.h"
#include "model/data.h"
#include "tests/command.h"
#include "tests/contract.h"
#include "tests/files.h"
#include "tests/machines.h"
#include "tests/processes.h"
#include "tests/results.h"
#include "tests/tokens.h"

namespace stepladder {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr const char* kStepladder = STEPLADDER_BIN "/stepladder";

class MultiDeviceCli : public testing::Test {
 protected:
  MultiDeviceCli() { write_random_tokens(folder_ / "data.bin", 20000); }
  void SetUp() override {
    if (!open_mpi_is_here()) GTEST_SKIP() << "no mpirun: apt-get install openmpi-bin";
  }

  std::string run(const std::string& more) const {
    return cat(kStepladder, " run --backend cpu --model gpt2-tiny --seq 32 --rounds 1 --warmup 1 --data ",
               folder_ / "data.bin", " --out ", folder_ / "results.json", " ", more);
  }
  /// The exit status of a shell command line; its output is in out.txt and err.txt.
  int shell(const std::string& command) const { return run_in(folder_, command).code; }
  std::string said() const { return read_file(folder_ / "out.txt") + read_file(folder_ / "err.txt"); }
  Results results() const { return load_results(folder_ / "results.json"); }

  /// Starts a run of minutes on two ranks. Returns the harness's process id.
  pid_t start_long_run() const {
    return start(run("--rungs 15 --devices 2 --batch 2 --steps 100000 --timeout 600 --overwrite"));
  }
  pid_t start(const std::string& of_harness) const { return start_in(folder_, "exec " + of_harness); }
  /// Process ids of the two ranks once they have met; a fault before they meet would be noticed only at the
  /// meeting's time limit.
  static std::vector<pid_t> ranks_of(const std::string& folder) {
    std::vector<pid_t> pids;
    for (int i = 0; i < 600 && pids.size() < 2; ++i) {
      std::this_thread::sleep_for(100ms);
      pids.clear();
      const auto found = output_of({"pgrep", "-f", cat("^[^ ]*15_multi_gpu .*", folder)});
      std::istringstream lines(found.value_or(""));
      for (pid_t pid; lines >> pid;)
        if (has_thread(pid, "rendezvous")) pids.push_back(pid);
    }
    return pids;
  }

  /// Kills the second of two ranks; expects `harness` to fail within 30 s and both ranks to be gone.
  void expect_killed_rank_ends(pid_t harness) const {
    const auto ranks = ranks_of(folder_ / "data.bin");
    ASSERT_EQ(ranks.size(), 2U) << said();
    const auto fault = Clock::now();
    ::kill(ranks[1], SIGKILL);
    EXPECT_EQ(wait_for(harness), kExitFailed) << said();
    EXPECT_LT(Clock::now() - fault, 30s);
    for (const pid_t pid : ranks) EXPECT_TRUE(ends(pid));
  }

  const TempFolder folder_;
  const Environment no_sample_{"STEPLADDER_BUSY_SAMPLE_MS", "0"};  // skips the load sample
};

TEST_F(MultiDeviceCli, TwoRanksTrainAndAreMeasured) {
  ASSERT_EQ(shell(run("--rungs 13,15 --devices 1,2 --batch 2 --steps 4")), 0) << said();
  const Results measured = results();
  ASSERT_EQ(measured.runs.size(), 3U);
  const stepladder::Run* two = measured.find({"15_multi_gpu", "gpt2-tiny B=2 T=32 on 2 devices"}, 0);
  ASSERT_TRUE(two);
  EXPECT_EQ(two->config["world_size"], 2);
  ASSERT_EQ(two->ranks.size(), 2U);
  for (size_t i = 0; i < two->steps.size(); ++i)
    EXPECT_EQ(two->steps[i].step_ms, std::max(two->ranks[0].step_ms[i], two->ranks[1].step_ms[i]));
  const Json file = exported(folder_ / "results.json");
  expect_contract(folder_ / "results.json");
  EXPECT_EQ(file["scaling"][0]["against"], "15_multi_gpu");
  EXPECT_EQ(file["scaling"][0]["devices"], 2);
  EXPECT_NE(said().find("efficiency %"), std::string::npos);
}

/// mpirun given as --launcher, with a script between it and the ranks.
class LaunchedByMpirun : public MultiDeviceCli {
 protected:
  LaunchedByMpirun() { on_machine(""); }
  /// Sets shell commands that run before rank $OMPI_COMM_WORLD_RANK reports; "$@" starts the rank.
  void on_machine(const std::string& commands) const {
    write_file(folder_ / "machine.sh", cat(commands, "\nexec \"$@\"\n"));
  }
  /// A command line that runs a two-rank trainer: it reports start and steps, then runs the shell commands
  /// `rest`.
  std::string trainer(const std::string& rest) const {
    write_file(folder_ / "trainer.sh", cat(R"(say() { printf '%s\n' "$1" >&$STEPLADDER_EVENTS; }
say '{"event":"start","rank":'$RANK',"config":{"B":2,"T":32,"world_size":2}}'
say '{"event":"step","step":0,"step_ms":0.1,"loss":5}'
say '{"event":"step","step":1,"step_ms":0.1,"loss":5}'
)",
                                           rest, "\n"));
    write_file(folder_ / "ladder.json", R"({"name": "mine",
 "workload": {"batch": [2], "seq": 32, "steps": 2, "warmup": 1, "rounds": 1},
 "rungs": [{"name": "00_mine", "changes": "", "requires": {"devices": 2}, "command": ["sh", "trainer.sh"]}]})");
    return cat(kStepladder, " run --ladder ladder.json --backend cpu --out ", folder_ / "results.json",
               by_mpirun());
  }
  std::string by_mpirun() const {
    return cat(" --devices 2 --interface lo --launcher 'mpirun --oversubscribe --bind-to none ",
               "--allow-run-as-root sh ", folder_ / "machine.sh", "' ");
  }
  std::string launched(const std::string& more) const {
    return run(cat("--rungs 15 --batch 2", by_mpirun(), more));
  }
  /// Expects a crash with `reason` after `other` replaces `word` in rank 1's arguments.
  void expect_crash(const std::string& word, const std::string& other,
                    std::initializer_list<std::string> reason) const {
    on_machine(cat("[ $OMPI_COMM_WORLD_RANK = 1 ] && for word; do shift; case $word in *", word,
                   ") word=", other, ";; esac; set -- \"$@\" \"$word\"; done"));
    const auto start = Clock::now();
    EXPECT_EQ(shell(launched("--overwrite --steps 4 --data data.bin")), kExitFailed) << said();
    EXPECT_LT(Clock::now() - start, 30s);
    EXPECT_EQ(results().runs.at(0).status, Status::crash);
    EXPECT_TRUE(says(results().runs.at(0).reason, reason));
  }
};

TEST_F(LaunchedByMpirun, RanksLearnWhatThoseOfTheHarnessDo) {
  ASSERT_EQ(shell(run("--rungs 15 --devices 2 --batch 2 --steps 4")), 0) << said();
  const stepladder::Run by_harness = results().runs.at(0);
  ASSERT_EQ(shell(launched("--overwrite --steps 4")), 0) << said();
  const stepladder::Run by_launcher = results().runs.at(0);
  ASSERT_EQ(by_launcher.ranks.size(), 2U);
  for (size_t i = 0; i < by_harness.steps.size(); ++i)
    EXPECT_EQ(by_launcher.steps.at(i).loss, by_harness.steps[i].loss) << i;
}

TEST_F(LaunchedByMpirun, RanksThatTakeTooLongAreATimeoutAndNotTheLaunchers) {
  ASSERT_EQ(shell(launched("--steps 1000000 --timeout 4")), kExitFailed) << said();
  EXPECT_TRUE(ended(results().runs.at(0), Status::timeout, {"4 s", "--timeout"}));
}

TEST_F(LaunchedByMpirun, OnlyOneRankThatLingersIsEndedAndTheRunKept) {
  ASSERT_EQ(shell(trainer(R"(say '{"event":"end"}'; [ $RANK = 0 ] || sleep 300)")), 0) << said();
  EXPECT_EQ(results().runs.at(0).status, Status::ok) << results().runs[0].reason;
}

TEST_F(LaunchedByMpirun, ALauncherMayCleanUpAfterATrainerThatTellsNonsense) {
  std::filesystem::create_directory(folder_ / "tmp");
  const std::string run = trainer(R"(say '{"event":"step","step":7,"step_ms":1,"loss":5}'; sleep 300)");
  ASSERT_EQ(shell(cat("export TMPDIR=", folder_ / "tmp", "; ", run)), kExitFailed) << said();
  EXPECT_EQ(results().runs.at(0).status, Status::crash);
  for (const auto& left : std::filesystem::recursive_directory_iterator(folder_ / "tmp"))
    EXPECT_TRUE(left.is_directory()) << left.path();
}

TEST_F(LaunchedByMpirun, RanksOfTwoMachinesTrainTogether) {
  if (!two_machines_are_permitted())
    GTEST_SKIP() << "no network namespaces here: needs unshare, ip and the right to use them";
  write_file(folder_ / "machines.sh", kMakeTwoMachines);
  write_script(folder_ / "ssh.sh",
               "pid=$(cat $1.pid); shift\nexec nsenter -t $pid --net --uts sh -c \"$*\"\n");
  ASSERT_EQ(shell(cat(kOnTwoMachines,
                      run("--rungs 15 --devices 1,2 --batch 2 --steps 4 --interface switch --launcher "
                          "'mpirun --allow-run-as-root --bind-to none --mca plm_rsh_agent ./ssh.sh "
                          "-H node01:1,node02:1'"))),
            0)
      << said();
  const stepladder::Run together = results().runs.back();
  ASSERT_EQ(together.ranks.size(), 2U);
  EXPECT_EQ(together.ranks[0].host, "node01");
  EXPECT_EQ(together.ranks[1].host, "node02");
  EXPECT_EQ(exported(folder_ / "results.json")["scaling"][0].value("machines", 0), 2);
  EXPECT_TRUE(says(said(), {"machines"}));
}

TEST_F(LaunchedByMpirun, ARankWithAnotherBuildOrOtherDataIsNamed) {
  std::filesystem::create_directory(folder_ / "other");  // rank 1's folder, with other data
  write_token_file(folder_ / "other/data.bin", std::vector<uint16_t>(20000, 7));
  const std::string folder = std::filesystem::path(folder_ / "x").parent_path();
  expect_crash(folder, folder_ / "other", {"rank 1 (", "--data"});
  expect_crash("/15_multi_gpu", STEPLADDER_BIN "/16_zero1", {"rank 1 (", "another build"});
  expect_crash("/15_multi_gpu", "/nowhere/15_multi_gpu", {"rank 1 (", "cannot start /nowhere/15_multi_gpu"});
}

TEST_F(MultiDeviceCli, RanksOfALauncherWithoutMpiAreToldWhichHasIt) {
  // srun --mpi=none starts ranks like this; Open MPI would end such a process.
  write_file(folder_ / "srun", R"(for SLURM_PROCID in 0 1; do
  export SLURM_PROCID SLURM_NTASKS=2 SLURM_LOCALID=$SLURM_PROCID SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_JOBID=7 SLURM_NODELIST=$(hostname)
  "$@" & ranks="$ranks $!"
done
for rank in $ranks; do wait $rank || status=$?; done
exit $status
)");
  EXPECT_EQ(shell(run("--rungs 15 --devices 2 --batch 2 --steps 4 --launcher 'sh srun'")), kExitFailed);
  EXPECT_TRUE(says(results().runs.at(0).reason, {"mpirun", "srun --mpi=pmix"})) << results().runs[0].reason;
}

TEST_F(LaunchedByMpirun, ALossThatIsNotReachedIsNoFailure) {
  EXPECT_EQ(shell(launched("--until-loss 0.1 --max-steps 4 --eval-every 2 --eval-batches 1")),
            kExitInconclusive)
      << said();
  EXPECT_EQ(results().runs.at(0).status, Status::ok) << results().runs.at(0).reason;
  EXPECT_EQ(results().runs.at(0).ranks.size(), 2U);
}

TEST_F(LaunchedByMpirun, AKilledRankEndsTheRun) {
  expect_killed_rank_ends(start(launched("--steps 100000 --timeout 600")));
  EXPECT_TRUE(says(results().runs.at(0).reason, {"rank ", "SIGKILL"}));
}

TEST_F(MultiDeviceCli, StrongScalingLearnsWhatTheBaselineDoes) {
  // A step has as many sequences as 00's, so check_learning() compares the losses.
  ASSERT_EQ(shell(run("--rungs 00,15 --devices 2 --scaling strong --batch 4 --steps 4")), 0) << said();
  const Results measured = results();
  const stepladder::Run* shared = measured.find({"15_multi_gpu", "gpt2-tiny B=2 T=32 on 2 devices"}, 0);
  ASSERT_TRUE(shared);
  EXPECT_EQ(shared->status, Status::ok) << shared->reason;
}

TEST_F(MultiDeviceCli, OneDeviceIsARowThatSaysSo) {
  ASSERT_EQ(shell(run("--rungs 15 --batch 2 --steps 2")), 0) << said();
  EXPECT_EQ(results().runs.at(0).status, Status::unsupported);
  EXPECT_EQ(results().runs.at(0).reason, "needs 2 devices");
}

TEST_F(MultiDeviceCli, AKilledRankEndsTheRun) {
  expect_killed_rank_ends(start_long_run());
  const Results measured = results();
  ASSERT_EQ(measured.runs.size(), 1U) << "the failed run is in the file";
  EXPECT_TRUE(ended(measured.runs[0], Status::crash, {"rank "}));
}

TEST_F(MultiDeviceCli,
       ALauncherThatOutlivesAKilledRankIsEnded) {  // as Open MPI's does once in a hundred times
  const std::string mpirun = *output_of({"sh", "-c", "command -v mpirun"});
  write_script(folder_ / "mpirun", cat(mpirun, " \"$@\"\n[ $1 = --version ] || sleep 100\n"));
  const Environment path("PATH", cat(folder_ / "", ":", std::getenv("PATH")));
  expect_killed_rank_ends(start_long_run());
}

TEST_F(MultiDeviceCli, AnMpirunThatFailsIsToBlameAndNoRank) {
  write_script(folder_ / "mpirun", R"([ $1 = --version ] && { echo 'mpirun (Open MPI) 4.1.4'; exit; }
echo '--------------------------------------------------------------------------
There are not enough slots available in the system to satisfy the 2
slots that were requested.
--------------------------------------------------------------------------' >&2
exit 1
)");
  const Environment path("PATH", cat(folder_ / "", ":", std::getenv("PATH")));
  EXPECT_EQ(shell(run("--rungs 15 --devices 2 --batch 2 --steps 4")), kExitFailed);
  const std::string reason = results().runs.at(0).reason;
  EXPECT_TRUE(reason.starts_with("the launcher (mpirun ")) << reason;
  EXPECT_TRUE(says(reason, {"exit status 1", "not enough slots"})) << reason;
}

TEST_F(MultiDeviceCli, AnMpirunThatIsNotOpenMpisIsRefused) {
  write_script(folder_ / "mpirun", "echo HYDRA build details:\n");
  const Environment path("PATH", cat(folder_ / "", ":", std::getenv("PATH")));
  EXPECT_EQ(shell(run("--rungs 15 --devices 2 --batch 2 --steps 4")), kExitUsage);
  EXPECT_TRUE(says(said(), {"mpirun", "Open MPI"}));
}

TEST_F(MultiDeviceCli, ARungUnderAnotherMpirunDoesNotTrainAlone) {
  for (const std::string& command :
       {cat(kStepladder, " train 00 --steps 1"), std::string(STEPLADDER_BIN "/15_multi_gpu --steps 1")}) {
    EXPECT_EQ(shell(cat("PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 ", command, " --backend cpu")), kExitUsage)
        << command;
    EXPECT_TRUE(says(said(), {"PMI_RANK", "mpirun", "torchrun", "srun"})) << command;
  }
}

TEST_F(MultiDeviceCli, AStoppedRankEndsTheRun) {
  const pid_t harness = start_long_run();
  const auto ranks = ranks_of(folder_ / "data.bin");
  ASSERT_EQ(ranks.size(), 2U) << said();
  const pid_t stopped = ranks[0];
  const std::string environment = read_file(cat("/proc/", stopped, "/environ"));
  const size_t rank = environment.find("OMPI_COMM_WORLD_RANK=") + std::strlen("OMPI_COMM_WORLD_RANK=");
  const auto fault = Clock::now();
  ::kill(stopped, SIGSTOP);
  EXPECT_EQ(wait_for(harness), kExitFailed) << said();
  EXPECT_LT(Clock::now() - fault, 30s);
  for (const pid_t pid : ranks) EXPECT_TRUE(ends(pid));
  EXPECT_EQ(results().runs.at(0).status, Status::crash);
  const std::string reason = results().runs.at(0).reason;
  EXPECT_TRUE(reason.starts_with(cat("rank ", environment[rank]))) << reason;
  EXPECT_EQ(reason.find("rank ", 1), std::string::npos) << "one is to blame: " << reason;
}

TEST_F(MultiDeviceCli, NoRankOutlivesAHarnessThatIsKilledOrInterrupted) {
  for (const int signal : {SIGKILL, SIGINT}) {
    const pid_t harness = start_long_run();
    const auto ranks = ranks_of(folder_ / "data.bin");
    ASSERT_EQ(ranks.size(), 2U) << said();
    ::kill(harness, signal);
    EXPECT_EQ(wait_for(harness), 128 + signal);
    for (const pid_t pid : ranks) EXPECT_TRUE(ends(pid));
  }
}

/// Checks of options, which need no mpirun.
class MultiDeviceOptions : public MultiDeviceCli {
 protected:
  void SetUp() override {}
  void refused(const std::string& command, const std::vector<std::string>& words) const {
    EXPECT_TRUE(is_refused(run_in(folder_, command), words)) << command;
  }
};

TEST_F(MultiDeviceOptions, WhatMakesNoSenseIsRefused) {
  refused(run("--rungs 15 --devices 0"), {"--devices", "0 is out of range"});
  refused(run("--rungs 15 --devices two"), {"--devices", "'two'"});
  refused(run("--rungs 15 --devices 2 --scaling sideways"), {"--scaling"});
  refused(run("--rungs 00,13 --devices 1,2"), {"--devices", "rungs"});
  refused(run("--rungs 13 --scaling strong"), {"--scaling", "rungs"});
  refused(run("--rungs 15 --devices 2 --launch-timeout 3"), {"--launch-timeout", "--launcher"});
  refused(cat(kStepladder, " profile 15 --backend cpu"), {"15_multi_gpu", "several devices"});
  refused(run("--rungs 13 --independent-ranks"), {"--independent-ranks", "rungs"});
  refused(run("--rungs 15 --devices 2 --independent-ranks --until-loss 4"),
          {"--until-loss", "--independent-ranks"});
  refused(run("--rungs 16 --devices 2,5 --batch 2"), {"16_zero1", "5 devices", "4, 8"});
  refused("PATH=/nowhere " + run("--rungs 15 --devices 2 --batch 2"),
          {"mpirun", "apt-get install openmpi-bin"});
}

TEST_F(MultiDeviceOptions, ABatchThatDevicesCannotShareIsRefused) {
  if (!open_mpi_is_here()) GTEST_SKIP() << "no mpirun: apt-get install openmpi-bin";
  refused(run("--rungs 15 --devices 2 --scaling strong --batch 3"),
          {"--scaling strong", "2 devices", "--batch 3"});
}

}  // namespace
}  // namespace stepladder
