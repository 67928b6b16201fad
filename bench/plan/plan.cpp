#include "bench/plan/plan.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "bench/base/place.h"
#include "bench/base/text.h"
#include "bench/results/learns.h"
#include "bench/results/rounds.h"
#include "bench/run/machine.h"
#include "bench/run/placeholders.h"
#include "bench/run/progress.h"
#include "bench/run/runner.h"
#include "bench/run/telemetry.h"
#include "model/error.h"
#include "model/random.h"

namespace stepladder {
namespace {

/// Adds a program's workloads at a batch, one for each number of devices asked for. Throws InputError where
/// devices can't share the batch.
void add_workloads(const Plan& plan, const Program& program, int64_t batch, int64_t round,
                   std::vector<Workload>& workloads) {
  if (program.devices == 1) {
    workloads.push_back(workload_for(plan, program, batch, round));
  } else if (plan.devices.empty() && plan.devices_present < program.devices) {
    workloads.push_back(workload_for(plan, program, batch, round));
    workloads.back().unsupported = cat("needs ", program.devices, " devices");
  } else {
    for (const int64_t devices : plan.devices.empty() ? std::vector{plan.devices_present} : plan.devices) {
      const bool strong = plan.scaling == "strong";
      if (strong && batch % devices != 0)
        throw InputError(
            cat("--scaling strong: ", devices, " devices can't share --batch ", batch, " evenly"));
      const int64_t each = strong ? batch / devices : batch;
      workloads.push_back(workload_for(plan, program, each, round, devices));
      if (plan.independent_ranks && devices > 1 && program.native)
        workloads.push_back(workload_for(plan, program, each, round, devices, /*independent_ranks=*/true));
    }
  }
}

/// The earliest run of the baseline, rung `first`, whose losses are comparable with those of `config`; null
/// where there is none.
const Run* baseline_of(const Json& config, const std::string& first, const std::vector<Run>& finished) {
  const auto found = std::ranges::find_if(finished, [&](const Run& other) {
    return other.variant == first && other.status == Status::ok && same_task(other.config, config);
  });
  return found == finished.end() ? nullptr : &*found;
}

/// Compares earlier runs with the first baseline, which has just been measured. Such runs come first in a
/// shuffled round, and after rounds in which the baseline failed.
void check_earlier(const Plan& plan, const std::string& first, ResultsFile& file) {
  std::vector<Run> diverged;
  for (Run run : file.results().runs) {
    const auto program = std::ranges::find(plan.programs, run.variant, &Program::variant);
    if (run.status != Status::ok || program == plan.programs.end()) continue;
    check_learning(run, program->tolerance, first, file.results().runs);
    if (run.status != Status::ok) diverged.push_back(std::move(run));
  }
  for (Run& run : diverged) {
    notice(cat(run.variant, " ", run.workload(), ", round ", run.round, ": ", name_of(run.status), ", ",
               run.reason));
    file.add(std::move(run));
  }
}

/// The options that a rung is given, as words of its command line.
std::vector<std::string> rung_arguments(const RungSettings& s, const Workload& workload, int64_t batch) {
  std::vector<std::string> arguments = {"--model", *s.model,
                                        "--batch", std::to_string(batch),
                                        "--seq",   std::to_string(*s.seq),
                                        "--steps", std::to_string(s.steps),
                                        "--vocab", s.vocab};
  if (s.until_loss) append(arguments, {"--until-loss", number_text(*s.until_loss)});
  if (const int64_t every = s.until_loss ? s.eval_every : s.val_data.empty() ? 0 : s.steps; every > 0)
    append(arguments,
           {"--eval-every", std::to_string(every), "--eval-batches", std::to_string(s.eval_batches)});
  if (s.eval_skip > 0) append(arguments, {"--eval-skip", std::to_string(s.eval_skip)});
  if (has_independent_ranks(workload.config)) append(arguments, {"--independent-ranks"});
  append(arguments, s.shared_arguments(workload.program.math, workload.program.native));
  return arguments;
}

/// Fills in the placeholders of a program with the run's values.
void fill(Workload& workload, const RungSettings& s, int64_t batch) {
  const Values values = {{"backend", s.backend},
                         {"batch", std::to_string(batch)},
                         {"data", s.data},
                         {"device", std::to_string(s.device)},
                         {"devices", std::to_string(workload.devices)},
                         {"lr", number_text(s.lr)},
                         {"model", *s.model},
                         {"seed", std::to_string(s.seed)},
                         {"seq", std::to_string(*s.seq)},
                         {"steps", std::to_string(s.steps)}};
  std::vector<std::string>&command = workload.command, &environment = workload.environment;
  for (const std::string& word : workload.program.command) {
    if (word != kArguments) {
      command.push_back(filled(word, values));
      continue;
    }
    append(command, rung_arguments(s, workload, batch));
  }
  for (const std::string& variable : workload.program.environment)
    environment.push_back(filled(variable, values));
  if (workload.program.native) return;  // native trainers get the following values as options
  environment.push_back("STEPLADDER_STEPS=" + std::to_string(s.steps));
  if (s.until_loss) {
    environment.push_back("STEPLADDER_UNTIL_LOSS=" + number_text(*s.until_loss));
    environment.push_back("STEPLADDER_EVAL_EVERY=" + std::to_string(s.eval_every));
    if (s.eval_skip > 0) environment.push_back("STEPLADDER_EVAL_SKIP=" + std::to_string(s.eval_skip));
  }
  constexpr std::string_view kModulePath = "PYTHONPATH=";  // begins with stepladder.py's folder
  const auto own =
      std::ranges::find_if(environment, [&](const auto& v) { return v.starts_with(kModulePath); });
  const char* const outer = std::getenv("PYTHONPATH");
  const std::string more = own != environment.end() ? own->substr(kModulePath.size()) : outer ? outer : "";
  if (own != environment.end()) environment.erase(own);
  environment.push_back(cat(kModulePath, trainer_module_dir(), more.empty() ? "" : ":" + more));
}

}  // namespace

void check_learning(Run& run, double tolerance, const std::string& first, const std::vector<Run>& finished) {
  if (run.status != Status::ok || !run.peer.empty() || run.variant == first) return;
  if (has_independent_ranks(run.config)) return;  // they are a reference for speed alone
  const Run* baseline = baseline_of(run.config, first, finished);
  if (!baseline) return;
  if (std::min(baseline->steps.size(), run.steps.size()) <= kShortRun) {
    run.reason = divergence(*baseline, first, run, tolerance);
  } else {
    Rounds base, next{{run.round, &run}};
    for (const Run& other : finished) {
      if (other.status != Status::ok || !same_task(other.config, run.config)) continue;
      if (other.variant == first) base.emplace(other.round, &other);
      if (other.row() == run.row()) next.emplace(other.round, &other);
    }
    if (learns_the_same(base, next, tolerance) == Learns::worse)
      run.reason = cat("mean losses of ", kSmoothedSteps, " steps are over ", first,
                       "'s by more than the tolerance of ", tolerance);
  }
  if (!run.reason.empty()) run.status = Status::diverged;
}

std::vector<Workload> workloads_of(const Plan& plan, int64_t round) {
  std::vector<Workload> workloads;
  for (int64_t batch : plan.batch)
    for (const Program& program : plan.programs)
      if (!plan.own_batch.contains(program.variant)) add_workloads(plan, program, batch, round, workloads);
  for (const Program& program : plan.programs)
    if (const auto own = plan.own_batch.find(program.variant); own != plan.own_batch.end())
      add_workloads(plan, program, own->second, round, workloads);
  if (plan.order == "abba" && round % 2 == 1) std::ranges::reverse(workloads);
  if (plan.order == "shuffled") {  // Fisher and Yates
    const uint64_t seed = random_bits(plan.order_seed, static_cast<uint64_t>(round));
    for (size_t i = workloads.size(); i > 1; --i)
      std::swap(workloads[i - 1], workloads[random_bits(seed, i) % i]);
  }
  return workloads;
}

Workload workload_for(const Plan& plan, const Program& program, int64_t batch, int64_t round, int64_t devices,
                      bool independent_ranks) {
  RungSettings s = plan.settings;
  if (!program.folder.empty())  // the program runs in that folder
    for (std::string* path : {&s.data, &s.val_data, &s.vocab})
      if (!path->empty()) *path = std::filesystem::absolute(here_or_shared(*path));
  if (s.until_loss) s.seed += static_cast<uint64_t>(round);  // the steps to a loss vary by seed
  if (devices > 1) s.device = 0;                             // each rank has its own device

  Workload workload;
  workload.program = program;
  const auto hash = plan.source_hashes.find(program.variant);
  if (hash != plan.source_hashes.end()) workload.source_hash = hash->second;
  workload.config = {{"model", *s.model}, {"B", batch}, {"T", *s.seq}};
  if (is_told(program, "seed")) workload.config["seed"] = s.seed;  // else the program has its own seed
  if (devices > 1) workload.config["world_size"] = devices;
  if (independent_ranks) workload.config["independent_ranks"] = true;
  if (const auto found = plan.tuned.find(program.variant); found != plan.tuned.end()) {
    const Tuned& tuned = found->second;
    const std::string whole = workload_of(workload.config);
    const std::string own = is_told(program, "model") ? whole : whole.substr(whole.rfind(" B=") + 1);
    if (tuned.workload != own && (own == whole || !tuned.workload.ends_with(" " + own)))
      throw InputError(cat("--tuned: the trials of ", program.variant, " are of ", tuned.workload,
                           ", not of ", own, ": `stepladder tune` makes some"));
    s.lr = tuned.lr, s.steps = tuned.steps;
    if (tuned.warmup_lr_steps) {
      s.warmup_lr_steps = *tuned.warmup_lr_steps, s.decay_steps = tuned.steps;
      s.min_lr = tuned.min_lr;
    }
  }
  workload.round = round;
  workload.steps = s.steps;
  workload.warmup = plan.warmup;
  workload.devices = devices;
  workload.until_loss = s.until_loss;
  if (s.until_loss) workload.eval_every = s.eval_every;
  workload.backend = s.backend;
  workload.device = plan.device;
  workload.launcher = plan.launcher;
  if (workload.launcher.words.empty() && program.through_mpi(s.backend)) workload.launcher = mpirun_here();
  workload.timeout_s = plan.timeout_s;
  fill(workload, s, batch);
  return workload;
}

std::vector<int64_t> device_counts(int64_t present) {
  std::vector<int64_t> counts;
  for (int64_t count = 2; count < present; count *= 2) counts.push_back(count);
  counts.push_back(std::max<int64_t>(2, present));
  return counts;
}

Json Plan::json() const {
  std::vector<std::string> rungs, peers;
  for (const Program& program : programs) (program.peer.empty() ? rungs : peers).push_back(program.variant);
  Json json = {{"rungs", rungs},
               {"peers", peers},
               {"model", settings.model.value()},
               {"batch", batch},
               {"own_batch", own_batch},
               {"seq", settings.seq.value()},
               {"steps", settings.steps},
               {"warmup", warmup},
               {"until_loss", settings.until_loss && !seeds ? Json(*settings.until_loss) : Json()},
               {"rounds", stopping.rounds},
               {"order", order},
               {"order_seed", order == "shuffled" ? Json(order_seed) : Json()},
               {"until_ci", stopping.until_ci ? Json(*stopping.until_ci) : Json()},
               {"max_rounds", stopping.until_ci ? Json(stopping.max_rounds) : Json()},
               {"max_time_s", stopping.max_time_s ? Json(*stopping.max_time_s) : Json()},
               {"source_hashes", source_hashes}};
  if (seeds) json["seeds"] = true;
  if (certify_loss) json["certify_loss"] = *certify_loss;
  if (settings.until_loss) json["eval_every"] = settings.eval_every;
  if (settings.until_loss || !settings.val_data.empty()) json["eval_batches"] = settings.eval_batches;
  if (settings.eval_skip > 0) json["eval_skip"] = settings.eval_skip;
  RungSettings told = settings;
  json.update(options_json(told.shared_options(), {RungSettings::kData, RungSettings::kTraining,
                                                   RungSettings::kDevice, RungSettings::kOps}));
  if (!settings.min_lr) json.erase("min_lr");  // older files lack it
  for (const auto& [variant, schedule] : tuned) {
    Json& one = json["tuned"][variant];
    one = {{"lr", of_float(schedule.lr)}, {"steps", schedule.steps}};
    if (schedule.warmup_lr_steps) one["warmup_lr_steps"] = *schedule.warmup_lr_steps;
    if (schedule.min_lr) one["min_lr"] = of_float(*schedule.min_lr);
  }
  if (!ladder.usual()) json["ladder"] = ladder.json();
  if (!ablate.is_null()) json["ablate"] = ablate;
  if (std::ranges::any_of(programs, [](const Program& p) { return p.devices > 1; })) {
    json["devices"] = devices.empty() ? std::vector{devices_present} : devices;
    json["scaling"] = scaling;
    if (independent_ranks) json["independent_ranks"] = true;
    if (!launcher.words.empty()) json["launcher"] = launcher.words;
    json["runs_in_round"] = workloads_of(*this, 0).size();
  }
  return json;
}

std::optional<double> widest_interval_percent(const Results& results, int64_t least_rounds) {
  std::optional<double> widest;
  for (const ResultRow& variant : rows_of(results)) {
    if (!variant.numbers) continue;
    const Estimate& ms = variant.numbers->median_step_ms;
    if (ms.rounds < least_rounds) return std::numeric_limits<double>::infinity();
    if (!ms.interval) continue;
    widest = std::max(widest.value_or(0.0), (ms.interval->hi - ms.interval->lo) / 2 / ms.value * 100);
  }
  return widest;
}

double spent_s(const Results& results) {
  double ms = 0.0;
  for (const Run& run : results.runs) ms += run.wall_ms;
  return ms * 1e-3;
}

std::string stop_reason(const Stopping& stopping, const Results& results, int64_t rounds) {
  if (rounds == 0) return "";
  if (rounds >= stopping.rounds) {
    if (!stopping.until_ci) return "rounds";
    const bool enough = rounds >= kLeastRoundsForInterval;
    const auto widest = enough ? widest_interval_percent(results, kLeastRoundsForInterval) : std::nullopt;
    if (widest && *widest <= *stopping.until_ci) return "interval";
    if (rounds >= stopping.max_rounds) return "max_rounds";
  }
  if (std::ranges::count(rows_of(results), Status::ok, &ResultRow::status) == 0) return "failed";
  // The next round takes as long as the mean round in the file, which may hold later rounds too.
  const double spent = spent_s(results), held = static_cast<double>(results.rounds_begun());
  const bool fits = !stopping.max_time_s || spent + spent / held <= *stopping.max_time_s;
  return fits ? "" : "max_time";
}

Json carry_out(const Plan& plan, ResultsFile& file) {
  TelemetryOfDevices telemetry;
  const Stopping& stopping = plan.stopping;
  const std::string& first = plan.ladder.rungs.front().name;
  const int64_t most = stopping.until_ci ? stopping.max_rounds : stopping.rounds;
  Progress progress(workloads_of(plan, 0).size() * static_cast<size_t>(most));
  for (int64_t round = 0;; ++round) {
    const Results& measured = file.results();
    const auto in_round = [&](const Run& run) { return run.round == round; };
    const bool begun = std::ranges::any_of(measured.runs, in_round);
    if (const std::string reason = begun ? "" : stop_reason(stopping, measured, round); !reason.empty()) {
      const auto widest = widest_interval_percent(measured);
      return {{"reason", reason},
              {"rounds", measured.rounds_begun()},
              {"widest_interval_percent", widest ? Json(*widest) : Json()},
              {"spent_s", spent_s(measured)}};
    }
    std::vector<Workload> workloads = workloads_of(plan, round);
    const auto is_due = [&](const Workload& workload) { return !measured.find(workload.row(), round); };
    // Runs of one round are compared, so they have to be of one card, or on the CPU of one host.
    const auto elsewhere = [&](const Run& run) {
      return in_round(run) && measured.device_of(run) != identity_of(plan.device);
    };
    if (std::ranges::any_of(workloads, is_due) && std::ranges::any_of(measured.runs, elsewhere))
      file.restart_round(round);
    progress.set_done(measured.runs.size());
    for (Workload& workload : workloads) {
      if (!is_due(workload)) continue;
      workload.telemetry = &telemetry;
      const auto& [variant, name] = workload.row();
      progress.start(cat(variant, " ", name), round, workload.steps);
      Run run = run_program(workload, [&](const Step& step) { progress.step(step); });
      if (!workload.until_loss) check_learning(run, workload.program.tolerance, first, measured.runs);
      const bool is_first_baseline =
          run.variant == first && !workload.until_loss && !baseline_of(run.config, first, measured.runs);
      file.add(run);
      progress.finish(run);  // reported once the run can't be lost
      if (plan.seeds && run.status == Status::ok && !run.summary->val_loss)
        throw Error(cat(run.variant, " told no validation loss after its last step, for which --seeds asks: ",
                        kTellsValidationLoss),
                    kExitFailed);
      if (is_first_baseline) check_earlier(plan, first, file);
    }
  }
}

}  // namespace stepladder
