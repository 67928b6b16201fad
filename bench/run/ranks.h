// Starting the ranks of a job, one process for each device: on this machine, or by a launcher on several.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/run/agent.h"
#include "bench/run/child.h"
#include "bench/run/hub.h"

namespace stepladder {

/// Who starts the ranks: we do, as processes that find each other as torchrun's do (RANK, LOCAL_RANK,
/// WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, a port that was free); mpirun, where each tells
/// how it ended as its last line, {"event":"exit","status":137}; or the command itself.
enum class Starter { harness, mpirun, command };

/// `process` for each of `devices` ranks, to be run with Channel::events. They share the cores of this
/// machine. Throws Error where no port is free.
Job job_of_ranks(const Job::Process& process, int64_t devices, Starter starter);

/// How a user's launcher starts the ranks, here and on other machines.
struct Launcher {
  std::string words;           // "srun --nodes 2", {devices} in them for how many ranks; "" for none
  std::string interface = {};  // where they report to: see address_of_interface()
  double meet_s = 25.0;        // for all of them to come
};

/// The words before those of the rank. To mpirun, srun and torchrun is added what they need: how many ranks,
/// to pass the secret on, that it is no Python. Throws InputError where there are none.
std::vector<std::string> launcher_command(const std::string& words, int64_t devices);

/// Throws InputError for a launcher that is not there, or an interface.
void check_launcher(const Launcher& launcher, int64_t devices);

/// A job whose ranks the launcher starts, each as `stepladder rank` with `rank`, which report to `hub`.
Job job_of_launcher(const Launcher& launcher, AgentOptions rank, int64_t devices, Hub& hub);

/// Throws InputError, with what to install, where there is no mpirun to start `devices` ranks.
void check_mpirun(int64_t devices);

}  // namespace stepladder
