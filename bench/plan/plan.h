// What measuring commands share: their options, the plan that follows from them, and carrying it out.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/base/options.h"
#include "bench/plan/settings.h"
#include "bench/plan/stopping.h"
#include "bench/results/results.h"
#include "bench/run/machine.h"
#include "bench/run/program.h"
#include "bench/run/runner.h"

namespace stepladder {

/// The workload, how often it is run, and where the results go.
struct MeasureOptions {
  static constexpr const char *kPlan = "Plan", *kRounds = "Rounds",
                              *kWorkload = "Workload, by default the preset's", *kFiles = "Results";

  std::string preset;
  std::vector<std::string> batch;
  std::optional<int64_t> steps, warmup, rounds, max_rounds;
  std::string order = "abba", max_time;
  uint64_t order_seed = 1337;
  std::optional<float> until_ci;
  RungSettings rung;  // the options that a rung's executable has too
  std::string out = "reports/latest/results.json";
  bool resume = false, overwrite = false;
  double timeout = 1800.0;

  /// `plan`, which says what to measure, and then those above.
  std::vector<Option> options(std::vector<Option> plan);
  /// The same without how often it is run and where the results go.
  std::vector<Option> workload_options(std::vector<Option> plan);
};

/// Everything that decides what is measured.
struct Plan {
  std::vector<Program> programs;
  Json ablate;  // of an ablation: its rungs and kinds
  std::vector<int64_t> batch;
  RungSettings settings;
  int64_t warmup = 0;
  Stopping stopping;
  std::string order = "abba";
  uint64_t order_seed = 0;
  std::vector<int64_t> devices;  // asked for, of programs for several; empty: all that are present
  std::string scaling = "weak";  // on several devices, batch is each one's; "strong": all of theirs
  bool apart = false;            // also each of several devices by itself, at the same time
  int64_t devices_present = 1;
  std::map<std::string, int64_t> own_batch;          // by variant, of programs that look for it
  std::map<std::string, std::string> source_hashes;  // by variant

  Json json() const;
};

/// Fills in what options, preset and device decide of a plan that has its programs. Throws InputError for a
/// workload that no rung could train on.
void complete(Plan& plan, const MeasureOptions& options, const DeviceProbe& probe);

struct PlannedRun {
  Program program;
  int64_t batch, round;  // sequences on each device
  int64_t devices = 1;
  std::string unsupported = {};  // why it is not run
  bool apart = false;
};

/// model, B, T, seed and, on several devices, world_size and whether they are apart.
Json config_of(const Plan& plan, const PlannedRun& run);

/// The runs of a round in the plan's order: A B C in each (forward), every other round backwards, so that
/// drift of the machine hits all alike (abba), or in an order that depends on the seed and the round alone
/// (shuffled).
std::vector<PlannedRun> runs_of(const Plan& plan, int64_t round);

RunRequest request_for(const Plan& plan, const PlannedRun& run, const std::string& device_name,
                       double timeout_s);

/// A list option's numbers, each once. Throws InputError for one that is not from 1 to `most`.
std::vector<int64_t> whole_numbers(const char* option, const std::vector<std::string>& texts, int64_t most);

/// The rungs named, or all of them, in the ladder's order. Throws InputError for an unknown one.
std::vector<Rung> chosen_rungs(const std::vector<std::string>& names);

/// Completes `plan`, which has its programs, from options and preset; measures what the results file does not
/// hold yet; prints the report. Returns the exit code: 0, 5 where a run failed, or 128 plus the signal that
/// interrupted it. Throws what is wrong with the options, and what is no single run's fault.
int measure(const MeasureOptions& options, Plan plan, const std::string& command_line);

}  // namespace stepladder
