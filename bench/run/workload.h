// What one run is asked for, with all options resolved.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/results/results.h"
#include "bench/run/energy.h"
#include "bench/run/program.h"
#include "bench/run/ranks.h"
#include "bench/run/telemetry.h"
#include "model/device.h"
#include "model/error.h"

namespace stepladder {

/// A trainer with its model, batch, length, steps and devices. The command that starts the trainer is made
/// from it; its `config` begins the run's line in a results file and, with the variant, keys the row.
struct Workload {
  Program program;
  std::string source_hash;                        // of the program when the plan was made
  std::vector<std::string> command, environment;  // without placeholders
  Json config = Json::object();  // model, B, T, seed: recorded even when the trainer tells nothing
  int64_t round = 0;
  int64_t steps = 0, warmup = 0;     // the first `warmup` of `steps` are left out of the summary
  int64_t devices = 1;               // as many processes
  int64_t eval_every = 0;            // steps; 0: never, or only at the end
  std::optional<double> until_loss;  // a validation loss that ends the run early
  std::string unsupported = {};      // why it is not started

  // Where it runs, and for how long.
  std::string backend;     // decides how several ranks are started
  DeviceInfo device;       // its name picks the peak of MFU
  Launcher launcher = {};  // starts the ranks where there are several, unless `words` is empty
  double timeout_s = 0.0;
  /// Reads energy, and the clocks and power that a trainer doesn't tell; null to read nothing.
  TelemetryOfDevices* telemetry = nullptr;

  RowKey row() const { return {program.variant, workload_of(config)}; }
  /// Whether a launcher starts several ranks; for our rungs on the CPU that is mpirun.
  bool has_launcher() const { return devices > 1 && !program.starts_ranks() && !launcher.words.empty(); }
  /// Whether the program's command starts several ranks, which then write to paths.
  bool command_starts_ranks() const { return devices > 1 && program.starts_ranks(); }
  /// Whether a program's exit status is a failure. In a run until a loss, 3 isn't: the loss was not reached.
  bool is_failure(int64_t exit_status) const {
    return exit_status != 0 && !(exit_status == kExitInconclusive && until_loss);
  }
  EnergyDue energy_due() const { return {warmup, steps, eval_every}; }
};

}  // namespace stepladder
