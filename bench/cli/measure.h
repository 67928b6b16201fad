// What commands that measure share: their options, the plan made from them, and measuring it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/base/options.h"
#include "bench/plan/plan.h"
#include "bench/results/file.h"
#include "bench/run/machine.h"

namespace stepladder {

/// The options that --help shows of a command that measures.
inline const std::set<std::string> kUsualOptions = {
    "preset",     "rungs",    "ladder", "peer",      "devices", "model",     "batch",  "seq",
    "steps",      "warmup",   "rounds", "pairs",     "kinds",   "max-pairs", "limit",  "results",
    "until-loss", "max-time", "data",   "threshold", "noise",   "python",    "tuned",  "eval-every",
    "format",     "out",      "resume", "overwrite", "plan",    "parts",     "dry-run"};

/// The option with which a campaign checks its parts before it begins.
inline constexpr const char* kCheckOnly = "check-only";
inline constexpr int kEvalEvery = 50;  // steps between validation losses, where nothing else is asked for

/// The workload, how often it is run, and where the results go.
struct MeasureOptions {
  static constexpr const char *kPlan = "Plan", *kRounds = "Rounds",
                              *kWorkload = "Workload, by default the preset's", *kFiles = "Results",
                              *kLoss = "Until a loss, or to a certificate (docs/loss.md)";

  std::string preset, ladder, python = "python3";
  std::vector<std::string> rungs = {"all"};
  std::vector<int64_t> batch, devices;
  std::optional<int64_t> steps, warmup, rounds, max_rounds;
  std::string order = "abba", max_time;
  uint64_t order_seed = 1337;
  std::optional<double> until_ci, until_loss;
  std::optional<int64_t> max_steps, seeds;
  std::optional<double> certify_loss;
  RungSettings rung;  // the options that a rung's executable has too
  std::string out = kLatestResults, part;
  bool resume = false, retry_failed = false, overwrite = false, wide = false;
  bool brief = false;       // prints a line per certificate in place of the report
  bool check_only = false;  // for a campaign's parts: says what is wrong, measures nothing
  bool checked = false;     // whether each option was checked to be some program's, of this plan or another
  double timeout = 1800.0;
  Launcher launcher;

  /// Options of commands that write a results file: workload_options(), how often, until when, and where
  /// results go.
  std::vector<Option> options(std::vector<Option> plan);
  /// --ladder and --python, for commands that also measure other ladders than ours.
  std::vector<Option> ladder_options();
  /// --devices and the launcher's options, for commands that measure on several devices.
  std::vector<Option> device_options();
  /// The command's own options, `plan`, and those for preset, rungs, workload and what a rung takes.
  std::vector<Option> workload_options(std::vector<Option> plan);
  /// Options for the loss to train to, and how often it is evaluated.
  std::vector<Option> loss_options();
  /// The ladder of --ladder, or else the preset's.
  Ladder ladder_asked() const;
};

/// The option --peer of commands that measure other ladders too.
Option peer_option(std::vector<std::string>& peers);
/// The option --part of commands that add to a results file.
Option part_option(std::string& part, const char* group);

/// Completes a plan that has its programs, from options, preset and device. Throws InputError for a workload
/// that no rung could train on.
void complete(Plan& plan, const MeasureOptions& options, const DeviceProbe& probe);

/// Seconds of a --max-time: "90", "90s", "20m" or "2h". Throws InputError for anything else.
double duration_s(const std::string& text);

/// Completes `plan`, which has its programs, from options and preset; measures what the results file does not
/// hold yet; prints the report. Returns the exit code: 0, 3 where a run missed its loss, 5 where one failed,
/// or 128 plus the signal that interrupted it. Throws for wrong options, and for an error that is not a
/// single run's.
int measure(const MeasureOptions& options, Plan plan, const DeviceProbe& probe);
/// Measures on the device that the options name.
int measure(const MeasureOptions& options, Plan plan);

}  // namespace stepladder
