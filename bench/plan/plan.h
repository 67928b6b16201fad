// What is measured, and in which order.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/plan/programs.h"
#include "bench/plan/settings.h"
#include "bench/results/file.h"
#include "bench/run/workload.h"

namespace stepladder {

/// The schedule that a trainer was tuned to.
struct Tuned {
  std::string workload;  // workload of the tuning trials
  float lr = 0.0F;
  int64_t steps = 0;
  std::optional<int64_t> warmup_lr_steps;  // nothing where the trainer has a schedule of its own
  std::optional<float> min_lr;             // at the end of the steps
};

/// When a plan has enough rounds.
struct Stopping {
  int64_t rounds = 1;  // fewest rounds; without until_ci, all rounds
  /// Stop once every row has kLeastRoundsForInterval rounds and its interval's half-width is at most this, in
  /// percent ..
  std::optional<double> until_ci;
  int64_t max_rounds = 30;           // .. or after this many rounds
  std::optional<double> max_time_s;  // of all runs together; no round that would exceed it is begun
};

/// Everything that decides what is measured.
struct Plan {
  Ladder ladder = stepladder::ladder();
  std::vector<Program> programs;
  Json ablate;  // rungs and kinds of an ablation; else null
  std::vector<int64_t> batch;
  RungSettings settings;
  std::map<std::string, Tuned> tuned;  // schedules by variant, which replace the settings'
  int64_t warmup = 0;
  Stopping stopping;
  bool seeds = false;                  // each round trains all of its steps from a seed of its own
  std::optional<double> certify_loss;  // to certify: the mean validation loss over seeds is at most this
  std::string order = "abba";
  uint64_t order_seed = 0;
  std::vector<int64_t> devices;    // numbers of devices to run on; empty: all present
  std::string scaling = "weak";    // `batch` is each device's; "strong": of all devices
  bool independent_ranks = false;  // also train on all devices at once, each by itself
  int64_t devices_present = 1;
  DeviceInfo device;
  double timeout_s = 0.0;                            // of a run
  Launcher launcher;                                 // starts runs on several devices
  std::map<std::string, int64_t> own_batch;          // by variant that has its own
  std::map<std::string, std::string> source_hashes;  // by variant

  Json json() const;
};

/// The workloads of a round in the plan's order: A B C in each (forward), every other round backwards, so
/// that drift of the machine hits all alike (abba), or in an order that depends on the seed and the round
/// alone (shuffled). Throws InputError where devices can't share a batch evenly.
std::vector<Workload> workloads_of(const Plan& plan, int64_t round);

/// The workload of a program of the plan with `batch` sequences on each device.
Workload workload_for(const Plan& plan, const Program& program, int64_t batch, int64_t round,
                      int64_t devices = 1, bool independent_ranks = false);

/// Marks a run as diverged if it learns something else than the baseline, rung `first`, on the same data or,
/// in a long run, learns worse, by the runs `finished` before it. A peer starts from other weights: its
/// losses are recorded, not compared.
void check_learning(Run& run, double tolerance, const std::string& first, const std::vector<Run>& finished);

/// Numbers of devices: 2, 4, 8 and so on, the last of them `present`, or 2 where fewer are present.
std::vector<int64_t> device_counts(int64_t present);

/// What a trainer in Python does after a step to tell its validation loss.
inline constexpr const char* kTellsValidationLoss = "`if run.evaluation_due: run.evaluated(validate())`";

/// Half the width of the widest interval of a variant's median step, in percent of the median, over the
/// variants that are ok. Infinite where a variant's numbers come from fewer than `least_rounds` rounds;
/// nothing while no variant has an interval.
std::optional<double> widest_interval_percent(const Results& results, int64_t least_rounds = 0);

/// Seconds that the runs took together.
double spent_s(const Results& results);

/// Why no further round is due after `rounds` rounds: "rounds", "interval", "max_rounds", "max_time",
/// "failed" (no variant is ok in all of its rounds); "" while a further round is due.
std::string stop_reason(const Stopping& stopping, const Results& results, int64_t rounds);

/// Measures what `file` does not hold yet, round after round, until there are enough rounds. Returns why the
/// plan ended: the results' "stopped". Throws Error once a run of a plan by seeds tells no validation loss.
Json carry_out(const Plan& plan, ResultsFile& file);

}  // namespace stepladder
