// What a run is asked for.
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

/// What to run and what is expected of it.
struct RunRequest {
  Program program;
  /// Of a ladder file's trainer: its command and environment, placeholders filled. Ours take `arguments`.
  std::vector<std::string> command, environment;
  std::string source_hash;       // of the program when the plan was made
  DeviceInfo device;             // its name picks the peak of MFU
  std::string unsupported = {};  // why it is not to be started
  int64_t round = 0;
  Json config = Json::object();        // model, B, T, seed: recorded even when the child says nothing
  bool model_is_told = false;          // to the child, which then has to train that
  std::vector<std::string> arguments;  // for a rung's executable
  int64_t steps = 0, warmup = 0;       // of `steps`, the first `warmup` are left out of the summary
  double timeout_s = 0.0;
  std::string backend;               // decides how several ranks are started
  int64_t devices = 1;               // and processes, one each
  Launcher launcher = {};            // starts them where there are several, and it has words
  int64_t eval_every = 0;            // steps, 0 for never or not before the end
  std::optional<double> until_loss;  // a validation loss that ends it before its last step
  /// Where energy is read, and clocks and power for a peer, which doesn't sample them; null for neither.
  TelemetryOfDevices* telemetry = nullptr;

  /// Whether its ranks are started for it.
  bool has_ranks() const { return devices > 1 && !program.starts_ranks(); }
  /// Whether they report from afar.
  bool has_launcher() const { return has_ranks() && !launcher.words.empty(); }
  /// Whether its command starts several ranks, which then write to paths.
  bool command_starts_ranks() const { return devices > 1 && program.starts_ranks(); }
  /// A loss that was not reached is none.
  bool is_failure(int64_t exit_status) const {
    return exit_status != 0 && !(exit_status == kExitInconclusive && until_loss);
  }
  EnergyDue energy_due() const { return {warmup, steps, eval_every}; }
};

}  // namespace stepladder
