// `stepladder run --launcher` over two machines: network namespaces with host names of their own where the
// system permits them, and processes of this machine. Tests what the launcher starts, where ranks report, and
// how jobs end.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>

#include "bench/results/file.h"
#include "bench/results/json.h"
#include "bench/run/machine.h"
#include "bench/run/ranks.h"
#include "tests/command.h"
#include "tests/contract.h"
#include "tests/files.h"
#include "tests/machines.h"
#include "tests/processes.h"
#include "tests/results.h"

namespace stepladder {
namespace {

using namespace std::chrono_literals;

constexpr const char* kStepladder = STEPLADDER_BIN "/stepladder";

/// A launcher: starts ranks 0 and 1 on the two machines, and waits for them.
constexpr const char* kLaunch = R"(ranks=
for RANK in 0 1; do
  into= LOCAL_RANK=$RANK
  if [ -s node01.pid ]; then into="nsenter -t $(cat node0$((RANK + 1)).pid) --net --uts" LOCAL_RANK=0; fi
  RANK=$RANK WORLD_SIZE=2 LOCAL_RANK=$LOCAL_RANK $into sh rank.sh "$@" & ranks="$ranks $!"
done
status=0
for rank in $ranks; do wait $rank || status=$?; done
exit $status
)";

/// A trainer of $1 steps; only its rank 0 reports the loss.
constexpr const char* kTrainer = R"(say() { printf '%s\n' "$1" >&$STEPLADDER_EVENTS; }
echo $$ >trainer$RANK.pid; echo $PPID >agent$RANK.pid
loss=null; [ $RANK = 0 ] && loss=5
say '{"event":"start","rank":'$RANK',"config":{"B":4,"T":32,"world_size":'$WORLD_SIZE'}}'
i=0
while [ $i -lt $1 ]; do
  . ./step.sh
  sleep 0.05
  say '{"event":"step","step":'$i',"step_ms":50,"loss":'$loss'}'
  i=$((i + 1))
done
say '{"event":"end"}'
)";

enum class Machines { one, two };

class Launched : public testing::TestWithParam<Machines> {
 protected:
  Launched() {
    write_file(folder_ / "machines.sh", kMakeTwoMachines);
    write_file(folder_ / "launch.sh", kLaunch);
    write_file(folder_ / "trainer.sh", kTrainer);
    write_file(folder_ / "alone.sh", cat("RANK=0 WORLD_SIZE=1\n", kTrainer));
    write_file(folder_ / "ladder.json", R"({"name": "mine",
 "workload": {"batch": [4], "seq": 32, "steps": 5, "warmup": 1, "rounds": 1},
 "rungs": [{"name": "alone", "changes": "", "command": ["sh", "alone.sh", "{steps}"]},
           {"name": "both", "parent": "alone", "changes": "", "requires": {"devices": 2},
            "environment": {"GREETING": "batch, {batch}"}, "command": ["sh", "trainer.sh", "{steps}"]}]})");
    on_machine("");
    in_step("");
  }
  void SetUp() override {
    if (two() && !two_machines_are_permitted())
      GTEST_SKIP() << "no network namespaces here: needs unshare, ip and the right to use them";
  }
  static bool two() { return GetParam() == Machines::two; }

  /// Sets shell commands that each rank's machine runs before the rank reports; "$@" starts the rank.
  void on_machine(const std::string& commands) const {
    write_file(folder_ / "rank.sh", cat(commands, "\nexec \"$@\"\n"));
  }
  /// Sets shell commands that the trainer runs before step $i.
  void in_step(const std::string& commands) const { write_file(folder_ / "step.sh", commands); }

  /// The exit status of a run of `rungs`; said() has its output.
  int run(const std::string& more = "", const std::string& rungs = "both",
          const std::string& launcher = "sh launch.sh") {
    const auto start = std::filesystem::file_time_type::clock::now();
    const Outcome outcome = run_in(
        folder_,
        cat(two() ? kOnTwoMachines : "", "sh -c 'echo $$ >harness.pid; exec \"$@\"' sh ", kStepladder,
            " run --ladder ladder.json --backend cpu --out r.json --devices 2 --rungs ", rungs,
            " --interface ", two() ? "switch" : "lo", " --timeout 100 --launcher '", launcher, "' ", more));
    const std::string fault = folder_ / "fault";  // a test writes this file when its fault happens
    const auto begin = std::filesystem::exists(fault) ? std::filesystem::last_write_time(fault) : start;
    EXPECT_LT(std::filesystem::file_time_type::clock::now() - begin, 30s);
    return outcome.code;
  }
  std::string said() const { return read_file(folder_ / "out.txt") + read_file(folder_ / "err.txt"); }
  std::string errors() const { return read_file(folder_ / "err.txt"); }
  Results results() const { return load_results(folder_ / "r.json"); }

  static std::string host(int rank) { return two() ? cat("node0", rank + 1) : read_host(); }
  static std::string read_host() {
    std::string name = read_file("/proc/sys/kernel/hostname");
    return name.substr(0, name.find('\n'));
  }
  /// A rank's name in messages: "rank 1 (node02)".
  static std::string name(int rank) { return cat("rank ", rank, " (", host(rank), ")"); }

  /// Expects that a run failed with `status`: one run that crashed with a reason that begins with `who` and
  /// contains `parts`, and nothing left behind.
  void expect_crash(int status, const std::string& who, std::initializer_list<std::string> parts) const {
    EXPECT_EQ(status, kExitFailed);
    const Results measured = results();
    ASSERT_EQ(measured.runs.size(), 1U) << said();
    EXPECT_EQ(measured.runs[0].status, Status::crash);
    EXPECT_TRUE(measured.runs[0].reason.starts_with(who)) << measured.runs[0].reason;
    EXPECT_TRUE(says(measured.runs[0].reason, parts)) << said();
    EXPECT_EQ(measured.runs[0].reason.find('\n'), std::string::npos);
    expect_nothing_left();
  }
  void expect_nothing_left() const {
    for (const char* pid : {"trainer0.pid", "trainer1.pid", "agent0.pid", "agent1.pid"})
      if (std::filesystem::exists(folder_ / pid) && std::filesystem::file_size(folder_ / pid) > 0) {
        EXPECT_TRUE(ends(std::stoi(read_file(folder_ / pid)))) << pid;
      }
  }

  const TempFolder folder_;
  const Environment no_sample_{"STEPLADDER_BUSY_SAMPLE_MS", "0"};  // skips the load sample
};

std::string name_of_machines(const testing::TestParamInfo<Machines>& machines) {
  return machines.param == Machines::one ? "OneMachine" : "TwoMachines";
}
INSTANTIATE_TEST_SUITE_P(On, Launched, testing::Values(Machines::one, Machines::two), name_of_machines);

TEST_P(Launched, RanksAreMeasuredIntoOneFile) {
  in_step(R"([ $i = 0 ] && echo "$LOCAL_RANK $LOCAL_WORLD_SIZE $WORLD_SIZE $GREETING" >told$RANK
[ $i = 0 ] && echo "$MASTER_ADDR $MASTER_PORT" >master$RANK
[ $i = 0 ] && env | grep ^STEPLADDER_EVENTS >events$RANK
)");
  ASSERT_EQ(run("", "all"), 0) << said();
  const Results measured = results();
  ASSERT_EQ(measured.runs.size(), 2U);
  const stepladder::Run& both = measured.runs[1];
  ASSERT_EQ(both.ranks.size(), 2U);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(both.ranks[rank].host, host(rank));
    EXPECT_EQ(both.ranks[rank].step_ms.size(), 5U);
    EXPECT_EQ(read_file(folder_ / cat("told", rank)),
              two() ? "0 1 2 batch, 4\n" : cat(rank, " 2 2 batch, 4\n"));
    EXPECT_EQ(read_file(folder_ / cat("events", rank)), "STEPLADDER_EVENTS=3\n")
        << "and no path of the harness's machine, which it would prefer";
  }
  const std::string master = read_file(folder_ / "master0");
  EXPECT_TRUE(master.starts_with(two() ? "10.99.0.2 " : "127.0.0.1 ")) << master;
  EXPECT_EQ(read_file(folder_ / "master1"), master);
  const Json file = exported(folder_ / "r.json");
  EXPECT_EQ(file["plan"]["launcher"], "sh launch.sh");
  EXPECT_EQ(file["scaling"][0]["devices"], 2);
  EXPECT_EQ(file["scaling"][0].value("machines", 0), two() ? 2 : 1);
  expect_contract(folder_ / "r.json");
}

TEST_P(Launched, EachDevicesClockAndEnergyAreReadWhereItIs) {
  std::string trainer = kTrainer;
  const std::string config = R"("rank":'$RANK',)";
  trainer.replace(trainer.find(config), config.size(),
                  config + R"("backend":"cuda","device":{"name":"fake","uuid":"GPU-'$RANK'"},)");
  write_file(folder_ / "trainer.sh", trainer);
  in_step("sleep 0.5; say() { printf '%s\\n' \"$1\" | sed 's/:50,/:550,/' >&$STEPLADDER_EVENTS; }");
  on_machine(cat("export STEPLADDER_NVML=", STEPLADDER_FAKE_NVML, " FAKE_NVML_PROCESSES=1"));
  ASSERT_EQ(run("--steps 7"), 0) << said();
  const stepladder::Run measured = results().runs.at(0);
  for (const Rank& rank : measured.ranks) {
    EXPECT_EQ(rank.device, cat("GPU-", rank.rank));
    EXPECT_EQ(rank.sm_mhz, 1755);
    EXPECT_EQ(rank.power_w, 698.5);
    ASSERT_TRUE(rank.joules);
    EXPECT_NEAR(*rank.joules, 700 * 0.56, 100) << "700 W";
  }
  ASSERT_TRUE(measured.summary->joules);
  EXPECT_DOUBLE_EQ(*measured.summary->joules, *measured.ranks[0].joules + *measured.ranks[1].joules);
  EXPECT_EQ(measured.summary->shared, false);
}

TEST_P(Launched, ATrainersOwnEventsAreNotTakenForTheHarnesss) {
  in_step(R"(say '{"event":"exit","status":7,"stderr":"forged"}'
say '{"event":"energy","unknown":"forged","shared":true}'
[ $i = 0 ] || say '{"event":"measured","energy_j":1e9,"sm_mhz":1}'
)");
  ASSERT_EQ(run(), 0) << said();
  const stepladder::Run measured = results().runs.at(0);
  EXPECT_FALSE(says(measured.summary->joules_unknown, {"forged"}));
  EXPECT_FALSE(measured.shared());
  for (const Step& step : measured.steps) EXPECT_NE(step.device.sm_mhz, 1);
}

TEST_P(Launched, AKilledTrainerIsNamed) {
  in_step("[ $i = 3 ] && { [ $RANK = 1 ] && kill -9 $$; sleep 100; }");
  expect_crash(run(), name(1), {"SIGKILL", "step 3 of 5"});
}

TEST_P(Launched, AStoppedTrainerIsNamed) {
  in_step("[ $i = 3 ] && { [ $RANK = 1 ] && kill -STOP $$; sleep 100; }");
  expect_crash(run(), name(1), {"stopped", "step 3 of 5"});
}

TEST_P(Launched, ATrainersLastWordsAreKept) {
  in_step("[ $i = 2 ] && { [ $RANK = 0 ] && { echo 'no more tokens' >&2; exit 7; }; sleep 100; }");
  expect_crash(run(), name(0), {"status 7", "no more tokens"});
}

TEST_P(Launched, ARankWhoseReporterIsKilledIsNamed) {
  in_step("[ $i = 2 ] && { [ $RANK = 1 ] && kill -9 $PPID; sleep 100; }");
  expect_crash(run(), cat("rank 1 (", host(1), ", process "), {"died"});
}

TEST_P(Launched, ARankThatIsSilentIsNamed) {
  in_step(two() ? "[ $i = 2 ] && { [ $RANK = 1 ] && ip link set eth0 down; sleep 100; }"
                : "[ $i = 2 ] && { [ $RANK = 1 ] && kill -STOP $PPID; sleep 100; }");
  expect_crash(run(), cat("rank 1 (", host(1), ", process "), {"10 s"});
}

TEST_P(Launched, ARankThatDoesNotComeIsNamed) {
  on_machine("[ $RANK = 1 ] && sleep 100");
  expect_crash(run("--launch-timeout 2"), "rank 1 ",
               {"2 s", cat("rank 0 (", host(0), ")"), "--launch-timeout"});
}

TEST_P(Launched, AHarnessThatIsNotReachedIsNamedWithTheWayOut) {
  // The command rewritten here is `stepladder rank --to HOST:PORT ...`.
  on_machine(two() ? "[ $RANK = 1 ] && ip link set eth0 down"
                   : "[ $RANK = 1 ] && { program=$1; shift 3; set -- $program rank --to ${1%:*}:1 \"$@\"; }");
  expect_crash(run("--launch-timeout 13"), "rank 1 ", {cat("rank 1 on ", host(1)), "--interface"});
}

TEST_P(Launched, ARankWithoutTheSecretIsToldHowToPassItOn) {
  on_machine("[ $RANK = 1 ] && unset STEPLADDER_JOB_SECRET");
  expect_crash(run("--launch-timeout 2"), "rank 1 ", {"STEPLADDER_JOB_SECRET", "mpirun -x", host(1)});
}

TEST_P(Launched, ARankOfAnotherJobIsSentAway) {
  on_machine("[ $RANK = 1 ] && export STEPLADDER_JOB_SECRET=0123456789abcdef0123456789abcdef");
  expect_crash(run("--launch-timeout 2"), "rank 1 ", {"sent away", "STEPLADDER_JOB_SECRET"});
}

TEST_P(Launched, StrangersAreNamedAndDisturbNothing) {
  on_machine(R"(caller() { bash -c 'exec 3<>/dev/tcp/'${1%:*}'/'${1#*:}'; '"$2"; }
[ $RANK = 0 ] && { caller $4 'head -c 300000 /dev/urandom >&3' 2>/dev/null; caller $4 'echo hello >&3; cat <&3'; }
[ $RANK = 1 ] && caller $4 'sleep 7' & [ $RANK = 1 ] && sleep 6)");
  ASSERT_EQ(run(), 0) << said();
  for (const char* why : {"secret", "nothing"})
    EXPECT_TRUE(says(errors(), {two() ? "sent away 10.99.0." : "sent away 127.0.0.1:", why}));
}

TEST_P(Launched, TwoRanksThatSayTheSameAreAnError) {
  on_machine("RANK=0 LOCAL_RANK=0");
  expect_crash(run(), "rank 0", {"came twice"});
}

TEST_P(Launched, AWorldOfAnotherSizeIsAnError) {
  on_machine("WORLD_SIZE=3");
  expect_crash(run(), "rank ", {"world of 3", " of 2"});
}

TEST_P(Launched, ALauncherThatLeavesItsRanksAloneIsNamed) {
  on_machine("echo 'no such partition' >&2; exit 3");
  expect_crash(run(), "the launcher (sh ", {"rank 0", "exit status 3", "no such partition"});
}

TEST_P(Launched, RanksOfALauncherThatIsNotKnownAreToldWhichAre) {
  write_file(folder_ / "hydra.sh", R"(for rank in 0 1; do
  PMI_RANK=$rank PMI_SIZE=2 MPI_LOCALRANKID=$rank "$@" || status=$? &
done
wait
exit 2
)");
  expect_crash(run("", "both", "sh hydra.sh"), "the launcher (sh ",
               {"PMI_RANK", "mpirun", "torchrun", "srun"});
}

TEST_P(Launched, WhatIsMeasuredIsKeptAndGoneOnWithByTheSameLauncherAlone) {
  ASSERT_EQ(run(), 0) << said();
  EXPECT_EQ(run("--resume --rounds 2"), 0) << said();
  EXPECT_EQ(results().runs.size(), 2U);
  EXPECT_EQ(run("--resume --rounds 2", "both", "sh ./launch.sh"), kExitNotComparable);
  EXPECT_TRUE(says(errors(), {"launcher"}));
  // `resume` doesn't run a launcher that only the results file names.
  const auto resume = [&](const std::string& more) {
    return run_in(folder_, cat(two() ? kOnTwoMachines : "", kStepladder, " resume r.json --rounds 3", more))
        .code;
  };
  EXPECT_EQ(resume(" --ladder ladder.json"), kExitUsage);
  EXPECT_TRUE(says(errors(), {"r.json", "--launcher 'sh launch.sh'"}));
  EXPECT_EQ(resume(" --ladder ladder.json --launcher 'sh launch.sh'"), 0) << said();
  EXPECT_EQ(results().runs.size(), 3U);
}

TEST_P(Launched, AGateMeasuresThemToo) {
  const Outcome outcome =
      run_in(folder_, cat(two() ? kOnTwoMachines : "", kStepladder,
                          " gate . . --ladder ladder.json --backend cpu --rungs both --devices 2 --pairs 5 "
                          "--max-pairs 5 --interface ",
                          two() ? "switch" : "lo", " --launcher 'sh launch.sh' --results gate"));
  ASSERT_TRUE(ended(outcome, kExitOk));
  const Results base = load_results(folder_ / "gate/base.jsonl");
  ASSERT_EQ(base.runs.size(), 5U);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(base.runs[4].ranks.at(rank).host, host(rank));
}

TEST_P(Launched, NoRankOutlivesTheHarness) {
  in_step("[ $i = 3 ] && { [ $RANK = 1 ] && kill -9 $(cat harness.pid); sleep 100; }");
  EXPECT_EQ(run(), 128 + SIGKILL);
  expect_nothing_left();
}

TEST_P(Launched, AnInterruptEndsTheRanksAndKeepsWhatThereIs) {
  ASSERT_EQ(run(), 0) << said();
  in_step("[ $i = 3 ] && { [ $RANK = 1 ] && kill -INT $(cat harness.pid); sleep 100; }");
  EXPECT_EQ(run("--resume --rounds 2"), 128 + SIGINT);
  expect_nothing_left();
  EXPECT_EQ(results().runs.size(), 1U);
}

/// A trainer in PyTorch, DistributedDataParallel over gloo. In step.sh, $PPID is the trainer's process.
constexpr const char* kPytorchTrainer = R"(import os, subprocess, sys
import stepladder, torch
rank = os.environ["RANK"]
for name, pid in (("trainer", os.getpid()), ("agent", os.getppid())):
    with open(f"{name}{rank}.pid", "w") as file:
        file.write(f"{pid}\n")
torch.distributed.init_process_group("gloo")
torch.manual_seed(int(rank))
inputs = torch.randn(4, 32)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run = stepladder.start(4, 32, versions=os.environ.get("OTHER", torch.__version__), data=os.environ.get("DATA", "mine"))
for i in range(int(sys.argv[1])):
    subprocess.run(["sh", "-c", f"i={i}; . ./step.sh"])
    with run.step() as step:
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step.loss = loss
)";

class PytorchLaunched : public Launched {
 protected:
  PytorchLaunched() {
    write_file(folder_ / "train.py", kPytorchTrainer);
    write_file(folder_ / "trainer.sh", cat("exec ", python(), " train.py \"$@\"\n"));
    on_machine("");
  }
  void SetUp() override {
    Launched::SetUp();
    static const bool has_it =
        std::system(cat(python(), " -c 'import torch.distributed' 2>/dev/null").c_str()) == 0;
    if (!has_it)
      GTEST_SKIP() << "no PyTorch for " << python() << ": STEPLADDER_PYTHON names a Python that has it";
  }
  void on_machine(const std::string& commands) const {  // gloo would otherwise look up each host's name
    Launched::on_machine(cat("export GLOO_SOCKET_IFNAME=", two() ? "eth0" : "lo", "\n", commands));
  }
  /// Runs `command` on rank 1 before its fourth step, and notes the time.
  void to_rank_1(const std::string& command) const {
    in_step(cat("[ $i = 3 ] && [ $RANK = 1 ] && { touch fault; ", command, "; }"));
  }
};
INSTANTIATE_TEST_SUITE_P(On, PytorchLaunched, testing::Values(Machines::two), name_of_machines);

TEST_P(PytorchLaunched, RanksTrainTogetherWhoeverCallsTheirPorts) {
  in_step(R"([ $i = 2 ] && [ $RANK = 1 ] &&
  bash -c 'exec 3<>/dev/tcp/'$MASTER_ADDR/$MASTER_PORT'; head -c 300000 /dev/urandom >&3' 2>/dev/null)");
  on_machine(R"([ $RANK = 1 ] && bash -c 'exec 3<>/dev/tcp/'${4%:*}'/'${4#*:}'; echo hello >&3; cat <&3')");
  ASSERT_EQ(run(), 0) << said();
  EXPECT_TRUE(says(errors(), {"sent away 10.99.0.", "secret"}));
  const stepladder::Run together = results().runs.at(0);
  ASSERT_EQ(together.ranks.size(), 2U);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(together.ranks[rank].host, host(rank));
    EXPECT_EQ(together.ranks[rank].step_ms.size(), 5U);
  }
  EXPECT_LT(together.steps[4].loss, together.steps[0].loss);
  expect_nothing_left();
}

TEST_P(PytorchLaunched, AKilledRankIsNamedThoughTheOtherTellsOfIt) {
  to_rank_1("kill -9 $PPID");
  expect_crash(run(), name(1), {"SIGKILL", "step 3 of 5"});
}

TEST_P(PytorchLaunched, AStoppedRankIsNamed) {
  to_rank_1("kill -STOP $PPID");
  expect_crash(run(), name(1), {"stopped", "step 3 of 5"});
}

TEST_P(PytorchLaunched, AnUnreachableHostIsNamed) {
  to_rank_1("ip link set eth0 down");
  expect_crash(run(), cat("rank 1 (", host(1), ", process "), {"10 s"});
}

TEST_P(PytorchLaunched, ARankOfAnotherBuildOrOtherDataIsNamed) {
  for (const char* differs : {"OTHER", "DATA"}) {
    on_machine(cat("[ $RANK = 1 ] && export ", differs, "=another"));
    expect_crash(run("--overwrite"),
                 "ranks train differently: ", {name(0), cat(name(1), " with "), "another"});
  }
}

TEST_P(PytorchLaunched, NoRankOutlivesTheHarness) {
  to_rank_1("kill -9 $(cat harness.pid)");
  EXPECT_EQ(run(), 128 + SIGKILL);
  expect_nothing_left();
}

/// Puts a program called `name` on PATH for one run.
class LauncherOnPath : public Launched {
 protected:
  int run_with(const std::string& name, const std::string& script, const std::string& launcher) {
    write_script(folder_ / name, script);
    const Environment path("PATH", cat(folder_ / "", ":", std::getenv("PATH")));
    return run("", "both", launcher);
  }
};
INSTANTIATE_TEST_SUITE_P(On, LauncherOnPath, testing::Values(Machines::one, Machines::two), name_of_machines);

TEST_P(LauncherOnPath, SrunFindsItsAllocationAndItsVariablesAreRead) {
  const Environment job("SLURM_JOB_ID", "7");
  in_step("[ $i = 0 ] && echo $RANK $LOCAL_RANK $WORLD_SIZE >told$RANK");
  const int status = run_with("srun", R"([ "$1 $2 $SLURM_JOB_ID" = "--ntasks=2 --nodes=2 7" ] || exit 4
shift 2
for SLURM_PROCID in 0 1; do
  into= SLURM_LOCALID=$SLURM_PROCID
  if [ -s node01.pid ]; then into="nsenter -t $(cat node0$((SLURM_PROCID + 1)).pid) --net --uts" SLURM_LOCALID=0; fi
  export SLURM_PROCID SLURM_NTASKS=2 SLURM_LOCALID SLURM_STEP_ID=0
  $into "$@" &
done
wait
)",
                              "srun --nodes=2");
  ASSERT_EQ(status, 0) << said();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(results().runs.at(0).ranks.at(rank).host, host(rank));
    EXPECT_EQ(read_file(folder_ / cat("told", rank)), cat(rank, two() ? " 0 2\n" : cat(" ", rank, " 2\n")));
  }
}

TEST_P(LauncherOnPath, TheScriptOfTheManualStartsRanksBySsh) {
  const std::string page = read_file(STEPLADDER_SOURCE_DIR "/docs/multi-device.md");
  const size_t end = page.find("```", page.find("over_ssh")), begin = page.rfind("```sh\n", end - 1) + 6;
  write_file(folder_ / "over_ssh", page.substr(begin, end - begin));
  // A stand-in for ssh: passes no environment on, and gives the command to a shell.
  const int status = run_with("ssh", R"(
if [ -s $1.pid ]; then into="nsenter -t $(cat $1.pid) --net --uts"; fi
shift
cd /
exec $into env -i PATH="$PATH" sh -c "$*"
)",
                              "sh over_ssh {devices} node01 node02");
  ASSERT_EQ(status, 0) << said();
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(results().runs.at(0).ranks.at(rank).host, host(rank));
}

/// Option errors that are found before anything runs.
class LauncherOptions : public Launched {
 protected:
  void refused(const std::string& arguments, const std::vector<std::string>& words) const {
    EXPECT_TRUE(is_refused(
        run_in(folder_, cat(kStepladder, " run --ladder ladder.json --backend cpu --out r.json --rungs both ",
                            arguments)),
        words))
        << arguments;
  }
};
INSTANTIATE_TEST_SUITE_P(On, LauncherOptions, testing::Values(Machines::one));

TEST_P(LauncherOptions, ThatMakeNoSenseAreRefused) {
  refused("--launcher srun", {"--launcher", "--devices"});
  refused("--launcher srun --devices 1", {"--launcher", "--devices"});
  refused("--launcher ' ' --devices 2", {"--launcher"});
  refused("--launcher \"sh 'my launcher.sh\" --devices 2", {"quote", "sh 'my launcher.sh"});
  refused("--launcher sh --devices 2 --interface no0", {"--interface no0", "lo (127.0.0.1)"});
  refused("--interface lo --devices 2", {"--interface", "--launcher"});
  refused("--launcher ./nowhere --devices 2", {"--launcher", "./nowhere"});
  write_script(folder_ / "mpiexec", "echo HYDRA build details: >&1\n");
  refused("--launcher ./mpiexec --devices 2", {"--launcher", "./mpiexec", "Open MPI"});
}

TEST(LauncherCommand, IsGivenWhatItsRanksNeed) {
  using Words = std::vector<std::string>;
  const auto words = [](const std::string& text) { return launcher_command(text, 8); };
  EXPECT_EQ(words("mpirun -H a:4,b:4"),
            (Words{"mpirun", "-x", "STEPLADDER_JOB_SECRET", "-n", "8", "-H", "a:4,b:4"}));
  EXPECT_EQ(words("/opt/mpi/bin/mpiexec -np 8"),
            (Words{"/opt/mpi/bin/mpiexec", "-x", "STEPLADDER_JOB_SECRET", "-np", "8"}));
  EXPECT_EQ(words("srun --nodes 2"), (Words{"srun", "--ntasks=8", "--nodes", "2"}));
  EXPECT_EQ(words("srun --ntasks=2 torchrun"), (Words{"srun", "--ntasks=2", "torchrun"}));
  EXPECT_EQ(words("torchrun --nproc-per-node 4"),
            (Words{"torchrun", "--no_python", "--nproc-per-node", "4"}));
  EXPECT_EQ(words("sh 'my launcher.sh'\n  n={devices}"), (Words{"sh", "my launcher.sh", "n=8"}));
  EXPECT_EQ(words(R"(mine "two words" "")"), (Words{"mine", "two words", ""}));
}

TEST(LaunchedRanks, OnlyBindTheInterfaceThatIsAskedFor) {
  const LaunchedRanks ranks(1, {.words = "", .interface = "127.0.0.1"});
  EXPECT_TRUE(ranks.address().starts_with("127.0.0.1:"));
  EXPECT_EQ(address_text(address_of_interface("lo")), "127.0.0.1");
  const std::string elsewhere = address_text(address_of_interface(""));
  if (elsewhere.starts_with("127.")) GTEST_SKIP() << "no other interface here";
  const int port = std::stoi(ranks.address().substr(ranks.address().find(':') + 1));
  EXPECT_FALSE(connect_to(resolve(elsewhere, port), in_seconds(2.0)).open());
}

}  // namespace
}  // namespace stepladder
