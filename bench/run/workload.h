// What one run is asked for, resolved once.
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

/// A trainer on a model, a batch, a length, a number of steps and devices. What starts the trainer is made
/// from it, the run's line in a results file begins as its `config`, and that keys the row.
struct Workload {
  Program program;
  std::string source_hash;                        // of the program when the plan was made
  std::vector<std::string> command, environment;  // without placeholders
  Json config = Json::object();  // model, B, T, seed: recorded even when the trainer tells nothing
  int64_t round = 0;
  int64_t steps = 0, warmup = 0;     // the first `warmup` of `steps` are left out of the summary
  int64_t devices = 1;               // and processes, one each
  int64_t eval_every = 0;            // steps; 0: never, or only at the end
  std::optional<double> until_loss;  // a validation loss that ends it before its last step
  std::string unsupported = {};      // why it is not started

  // Where it runs, and for how long.
  std::string backend;     // decides how several ranks are started
  DeviceInfo device;       // its name picks the peak of MFU
  Launcher launcher = {};  // starts the ranks where there are several, and it has words
  double timeout_s = 0.0;
  /// Where energy is read, and clocks and power of a trainer that doesn't tell them; null for neither.
  TelemetryOfDevices* telemetry = nullptr;

  RowKey row() const { return {program.variant, workload_of(config)}; }
  /// Whether its ranks are started for it.
  bool has_ranks() const { return devices > 1 && !program.starts_ranks(); }
  /// Whether a launcher starts them, mpirun those of our rungs on the CPU.
  bool has_launcher() const { return has_ranks() && !launcher.words.empty(); }
  /// Whether its command starts several ranks, which then write to paths.
  bool command_starts_ranks() const { return devices > 1 && program.starts_ranks(); }
  /// Exit 3, loss not reached, is not a failure.
  bool is_failure(int64_t exit_status) const {
    return exit_status != 0 && !(exit_status == kExitInconclusive && until_loss);
  }
  EnergyDue energy_due() const { return {warmup, steps, eval_every}; }
};

}  // namespace stepladder
