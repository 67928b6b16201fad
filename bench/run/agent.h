// One rank of a job on several machines, as a launcher starts it: `stepladder rank`.
#pragma once

#include <string>
#include <vector>

#include "bench/run/energy.h"

namespace stepladder {

struct AgentOptions {
  std::string to = {};       // HOST:PORT of the harness
  std::string folder = {};   // where the trainer runs
  std::string backend = {};  // assumed where the trainer tells no backend
  bool clocks = false;       // read the device's clocks, which the trainer doesn't tell
  EnergyDue due = {};
  std::vector<std::string> command = {};

  /// These options as arguments of `stepladder rank`, with the command last.
  std::vector<std::string> arguments() const;
};

/// Runs one rank: reads its number from the launcher's variables, meets the other ranks at the harness, and
/// starts the trainer with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT once
/// all ranks are there. Hands the trainer's events on, with what the harness can't read from afar:
///
///   "energy_j":..,"sm_mhz":..,..            in a step
///   {"event":"exit","status":..,"stderr":"..","shared":..,"unknown":".."}
///
/// `status` is 128 + n for signal n; `shared` and `unknown` are those of RankMeter::Energy. Returns the
/// trainer's exit status, or 0 where a loss was not reached. The trainer never outlives this process, which
/// ends when the harness hangs up or gives no sign of life. Throws InputError for an environment without rank
/// or secret, Error where the harness is not reached or is gone, Interrupted.
int run_as_rank(const AgentOptions& options);

}  // namespace stepladder
