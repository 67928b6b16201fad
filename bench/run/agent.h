// One rank of a job on several machines, as a launcher starts it: `stepladder rank`.
#pragma once

#include <string>
#include <vector>

#include "bench/run/energy.h"

namespace stepladder {

struct AgentOptions {
  std::string to = {};       // HOST:PORT of the harness
  std::string folder = {};   // where the trainer runs
  std::string backend = {};  // of a trainer that tells none
  bool clocks = false;       // of a trainer that doesn't tell its device's
  EnergyDue due = {};
  std::vector<std::string> command = {};

  /// The same as options of `stepladder rank`, for ranks of the harness; command last.
  std::vector<std::string> arguments() const;
};

/// Asks the launcher's variables who this is, meets the other ranks at the harness, and runs the trainer with
/// RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT once all ranks are there.
/// Hands on what it tells, with what the harness can't read from afar:
///
///   "energy_j":..,"sm_mhz":..,..            in a step
///   {"event":"exit","status":..,"stderr":"..","shared":..,"unknown":".."}
///
/// `status` is 128 + n for signal n; `shared` and `unknown` are RankMeter's.
/// Returns the trainer's exit status, 0 where it did not reach a loss. No trainer outlives it, and it ends
/// when the harness hangs up or gives no sign of life. Throws InputError for an environment without rank or
/// secret, Error where the harness is not reached or is gone, Interrupted.
int run_as_rank(const AgentOptions& options);

}  // namespace stepladder
