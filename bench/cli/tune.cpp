#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>

#include "bench/base/process.h"
#include "bench/base/text.h"
#include "bench/cli/commands.h"
#include "bench/cli/measure.h"
#include "bench/plan/ladder_file.h"
#include "bench/report/trials.h"
#include "bench/run/placeholders.h"
#include "bench/run/progress.h"

namespace stepladder {
namespace {

constexpr size_t kShown = 3;  // trials of each contest, in the terminal

struct TuneOptions {
  static constexpr const char* kTrials = "Trials";

  std::vector<std::string> peers;
  std::vector<int64_t> steps, warmups = {10};
  std::vector<double> lr, decays = {0.1};
  MeasureOptions measure;

  TuneOptions() { measure.rung.seed = 1; }  // `run` begins with another: the seeds compared later are fresh

  std::vector<Option> options() {
    std::vector<Option> all = measure.workload_options(
        measure.ladder_options() +
        std::vector<Option>{{"peer", &peers, "PEER",
                             "another ladder whose trainers get the same trials: pytorch, llmc=PATH of "
                             "train_gpt2cu, or its file",
                             MeasureOptions::kPlan}});
    std::erase_if(all, [](const Option& option) {
      static const std::set<std::string> ours = {"steps", "lr", "min-lr", "warmup-lr-steps", "decay-steps"};
      return ours.contains(option.name);
    });
    std::vector<Option> of_loss = measure.loss_options();
    std::erase_if(of_loss, [](const Option& option) { return option.name == "max-steps"; });
    for (Option& option : of_loss)
      if (option.name == "eval-every")
        option.help = "steps between validation losses; 0: 50, in short trials a tenth of their steps";
    return std::vector<Option>{
               {"steps", &steps, "LIST", "how long a trial is: its rate decays until then", kTrials,
                Allowed{1, 1e6}},
               {"lr", &lr, "LIST", "learning rates after the warm-up", kTrials, Allowed{1e-9, 100}},
               {"warmup-lr-steps", &warmups, "LIST", "steps of linear warm-up", kTrials, Allowed{0, 1e6}},
               {"decay-to", &decays, "LIST", "shares of --lr at the end of a trial", kTrials, Allowed{0, 1}},
               {"seeds", &measure.seeds, "N", "runs of each trial, from --seed on; default: 1", kTrials,
                Allowed{1, 1000}},
               {"max-time", &measure.max_time, "DURATION",
                "begin no trial that would take this call beyond it: 9m; --resume goes on", kTrials}} +
           all + of_loss +
           std::vector<Option>{
               {"out", &measure.out, "FILE", "results as JSON Lines, each trial a part",
                MeasureOptions::kFiles},
               {"resume", &measure.resume, "", "go on with what FILE holds of the same trials",
                MeasureOptions::kFiles},
               {"retry-failed", &measure.retry_failed, "", "with --resume: run again what failed",
                MeasureOptions::kFiles},
               {"overwrite", &measure.overwrite, "", "replace the trials in FILE", MeasureOptions::kFiles},
               wide_option(measure.wide, MeasureOptions::kFiles)};
  }
};

/// A schedule that is tried.
struct Schedule {
  int64_t steps, warmup;
  double share, lr;
};

/// All schedules asked for, the shortest first.
std::vector<Schedule> schedules(const TuneOptions& options) {
  if (options.steps.empty() || options.lr.empty())
    throw InputError("tune: which trials? give --steps and --lr, such as --steps 400,800 --lr 3e-4,1e-3");
  std::vector<int64_t> steps = options.steps;
  std::ranges::sort(steps);
  std::vector<Schedule> all;
  for (const int64_t length : steps)
    for (const double share : options.decays)
      for (const int64_t warmup : options.warmups)
        for (const double lr : options.lr) all.push_back({length, warmup, share, lr});
  return all;
}

/// The options of `run` that measure a trial of a program, as a part of the file.
MeasureOptions trial_of(const TuneOptions& options, const Program& program, const Schedule& schedule) {
  MeasureOptions trial = options.measure;
  trial.brief = trial.checked = true;
  trial.max_time.clear();
  trial.rung.lr = static_cast<float>(schedule.lr);
  trial.part =
      cat(Trial::kPart, program.variant, "_lr", number_text(trial.rung.lr), "_steps", schedule.steps);
  if (uses(program, "arguments")) {  // a rung's options, which tell of warm-up and decay
    trial.rung.warmup_lr_steps = schedule.warmup;
    trial.rung.decay_steps = schedule.steps;
    trial.rung.min_lr = static_cast<float>(schedule.lr * schedule.share);
    trial.part += cat("_warmup", schedule.warmup, "_to", number_text(schedule.share));
  }
  trial.rung.eval_skip = trial.rung.eval_batches;  // `run` evaluates on the batches before those
  if (trial.rung.eval_every == 0)
    trial.rung.eval_every = static_cast<int>(std::clamp<int64_t>(schedule.steps / 10, 1, kEvalEvery));
  trial.rounds = trial.until_loss ? std::optional(trial.seeds.value_or(1)) : std::nullopt;
  trial.seeds = trial.until_loss ? std::nullopt : std::optional(trial.seeds.value_or(1));
  (trial.until_loss ? trial.max_steps : trial.steps) = schedule.steps;
  return trial;
}

/// What a resumed file already holds of the trials.
struct Kept {
  std::set<std::string> parts;             // those that need no time
  std::map<std::string, double> per_step;  // the most seconds a step by trainer, start-up included
};

Kept kept_in(const MeasureOptions& asked) {
  Kept kept;
  if (std::error_code none; !asked.resume || !std::filesystem::exists(asked.out, none)) return kept;
  const auto wanted = static_cast<size_t>(asked.seeds.value_or(1)) * std::max<size_t>(asked.batch.size(), 1);
  for (const Part& part : load_parts(asked.out)) {
    const std::vector<Run>& runs = part.results.runs;
    if (runs.empty()) continue;
    const bool failed = std::ranges::any_of(runs, [](const Run& run) { return run.status != Status::ok; });
    if (runs.size() >= wanted && !(asked.retry_failed && failed)) kept.parts.insert(part.name);
    double seconds = 0.0;
    for (const Run& run : runs) seconds += run.wall_ms * 1e-3;
    double& longest = kept.per_step[runs.front().variant];
    longest = std::max(longest, seconds / part.results.plan.value("steps", 1.0));
  }
  return kept;
}

/// Checks, before the first trial, the workload, and that each option is some trainer's. Throws InputError.
void check(const TuneOptions& options, const std::vector<Program>& trainers, const Schedule& first, Plan plan,
           const DeviceProbe& probe) {
  const auto told =
      std::ranges::find_if(trainers, [](const Program& program) { return uses(program, "arguments"); });
  if (told == trainers.end() &&
      (options.warmups != TuneOptions().warmups || options.decays != TuneOptions().decays))
    throw InputError(
        "--warmup-lr-steps and --decay-to: no command of these has {arguments}, which tells of them");
  if (const int64_t warmup = std::ranges::max(options.warmups);
      told != trainers.end() && warmup >= first.steps)
    throw InputError(cat("--warmup-lr-steps ", warmup, " leaves none of --steps ", first.steps));
  for (const Program& program : trainers)
    if (!is_told(program, "lr"))
      throw InputError(cat(program.variant, ": its command has no {lr} to tune: leave it out by --rungs"));
  plan.programs = trainers;
  MeasureOptions whole = trial_of(options, told == trainers.end() ? trainers.front() : *told, first);
  whole.checked = false, whole.check_only = true;
  measure(whole, plan, probe);
}

int tune(TuneOptions& options) {
  const MeasureOptions& asked = options.measure;
  const double limit = asked.max_time.empty() ? INFINITY : duration_s(asked.max_time);
  const std::vector<Schedule> all = schedules(options);
  Plan plan;
  plan.ladder = asked.ladder_asked();
  const std::vector<Program> trainers = programs(plan.ladder, asked.rungs, options.peers, asked.python);
  std::map<std::string, std::string> hashes;
  for (const Program& program : trainers) hashes[program.variant] = program.source_hash();
  const DeviceProbe probe = require_device(asked.rung.backend, asked.rung.device);
  check(options, trainers, all.front(), plan, probe);
  std::set<std::string> parts;
  for (const Schedule& schedule : all)
    for (const Program& program : trainers) parts.insert(trial_of(options, program, schedule).part);
  const auto start = std::chrono::steady_clock::now();
  Kept kept = kept_in(asked);
  size_t left = 0;
  int worst = kExitOk;
  std::set<std::string> tried;
  // Every trainer makes a trial before any makes the next, so that all had the same where time ran out.
  for (const Schedule& schedule : all) {
    const auto lasts = [&](const Program& program) {
      return kept.per_step[program.variant] * static_cast<double>(schedule.steps);
    };
    double whole = 0.0;
    for (const Program& program : trainers)
      if (!kept.parts.contains(trial_of(options, program, schedule).part)) whole += lasts(program);
    for (const Program& program : trainers) {
      const MeasureOptions trial = trial_of(options, program, schedule);
      if (!tried.insert(trial.part).second) continue;  // a trainer with a schedule of its own
      const double expected = &program == &trainers.front() ? whole : lasts(program);
      if (!kept.parts.contains(trial.part) && (left > 0 || ms_since(start) * 1e-3 + expected > limit)) {
        ++left;
        continue;
      }
      plan.programs = {program};
      plan.source_hashes = {{program.variant, hashes[program.variant]}};
      const auto begun = std::chrono::steady_clock::now();
      if (!Progress::quiet) notice(cat("trial ", tried.size(), " of ", parts.size(), ": ", trial.part));
      const int code = measure(trial, plan, probe);
      if (code != kExitOk && code != kExitInconclusive && code != kExitFailed) return code;
      worst = std::max(worst, code);
      double& longest = kept.per_step[program.variant];
      longest = std::max(longest, ms_since(begun) * 1e-3 / static_cast<double>(schedule.steps));
    }
  }
  std::vector<Trial> ranked;
  if (std::error_code none; std::filesystem::exists(asked.out, none)) {
    ranked = trials_of(load_measured_parts(asked.out));
    std::cout << section_of(ranked, kShown).terminal(asked.wide) << "\nwrote "
              << printable(asked.out, kMaxMessage) << std::endl;
  }
  if (left > 0)
    notice(cat("--max-time left no time for ", left, " of ", parts.size(),
               " trials: the same command with --resume goes on"));
  const std::vector<Trial> best = best_of(ranked);
  const bool each = std::ranges::all_of(trainers, [&](const Program& program) {
    return std::ranges::any_of(
               best,
               [&](const Trial& t) { return t.trainer == program.variant && t.until == asked.until_loss; }) ||
           std::ranges::any_of(ranked, [&](const Trial& t) {
             return t.trainer == program.variant && t.failed.starts_with(name_of(Status::unsupported));
           });
  });
  return each ? kExitOk : std::max(worst, int{kExitInconclusive});
}

}  // namespace

Command tune_command() {
  return command<TuneOptions>("tune", "find each trainer's learning rate and schedule, by the same trials",
                              tune);
}

}  // namespace stepladder
