// One run: a program in a process of its own, from its start to a status.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/results/results.h"
#include "bench/run/program.h"
#include "bench/run/ranks.h"
#include "bench/run/telemetry.h"
#include "model/device.h"

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
};

/// Runs a program and survives anything that it does. A status per run:
///
///   ok           it reported every step and its end
///   oom, unsupported, diverged   it said so; diverged also for a loss that is not finite
///   crash        a signal, an exit status, or a report that makes no sense; the reason says which
///   timeout      killed after timeout_s
///
/// A trainer of a ladder file may leave out most of what ours tell, and what it tells is held to what it was
/// asked for; a wrong number is a crash, with the event named.
///
/// On several devices that is the status of the rank that failed first, which ends the others; the reason
/// begins with "rank 2: ", and with "rank 2 (node01): " where a launcher starts them, which reports to a Hub.
/// Else the harness starts the ranks itself; those of our rungs on the CPU, which talk through MPI, mpirun
/// starts.
///
/// `on_step` hears of each step of rank 0. Throws InputError with the child's words when a rung refuses its
/// input (exit status 2), since every other one would too; Interrupted; Error when the executable cannot be
/// started, and with kExitNotComparable when it is no longer the one of the plan.
Run run_program(const RunRequest& request, const std::function<void(const Step&)>& on_step);

}  // namespace stepladder
