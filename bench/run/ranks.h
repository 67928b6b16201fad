// Starting the ranks of a job on this machine, one process for each device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/run/child.h"

namespace stepladder {

/// Who starts the ranks: we do, as processes that find each other as torchrun's do (RANK, LOCAL_RANK,
/// WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, a port that was free); mpirun, where each tells
/// how it ended as its last line, {"event":"exit","status":137}; or the command itself.
enum class Starter { harness, mpirun, command };

/// `process` for each of `devices` ranks, to be run with Channel::events. They share the cores of this
/// machine. Throws Error where no port is free.
Job job_of_ranks(const Job::Process& process, int64_t devices, Starter starter);

/// Throws InputError, with what to install, where there is no mpirun to start `devices` ranks.
void check_mpirun(int64_t devices);

}  // namespace stepladder
