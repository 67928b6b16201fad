// Starting the ranks of a job on this machine, one process for each device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/run/child.h"

namespace stepladder {

/// `command` for each of `devices` ranks, to be run with Channel::events. Without `mpi` they are processes of
/// our own that find each other as torchrun's do: RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR
/// and MASTER_PORT, a port that was free. With it mpirun starts them, and each tells how it ended as its last
/// line:
/// {"event":"exit","status":137}. They share the cores of this machine. Throws Error where no port is free.
Job job_of_ranks(const std::vector<std::string>& command, int64_t devices, bool mpi);

/// Throws InputError, with what to install, where there is no mpirun to start `devices` ranks.
void check_mpirun(int64_t devices);

}  // namespace stepladder
