#include "bench/measure.h"

#include <algorithm>
#include <iostream>

#include "bench/ablation.h"
#include "bench/child.h"
#include "bench/ladder.h"
#include "bench/machine.h"
#include "bench/presets.h"
#include "bench/progress.h"
#include "bench/ranks.h"
#include "bench/report.h"
#include "bench/results_file.h"
#include "bench/runner.h"
#include "bench/text.h"
#include "model/data.h"
#include "model/random.h"

namespace stepladder {
namespace {

constexpr double kMost = 1e6;  // steps, rounds

}  // namespace

namespace {

/// A program at a batch, on each number of devices that it is asked for.
void add_runs(const Plan& plan, const Program& program, int64_t batch, int64_t round,
              std::vector<PlannedRun>& runs) {
  if (program.devices == 1) {
    runs.push_back({program, batch, round});
  } else if (plan.devices.empty() && plan.devices_present < program.devices) {
    runs.push_back({program, batch, round, 1, cat("needs ", program.devices, " devices")});
  } else {
    for (const int64_t devices : plan.devices.empty() ? std::vector{plan.devices_present} : plan.devices) {
      PlannedRun run{program, plan.scaling == "strong" ? batch / devices : batch, round, devices};
      runs.push_back(run);
      run.apart = plan.apart && devices > 1 && program.peer.empty();
      if (run.apart) runs.push_back(run);
    }
  }
}

}  // namespace

std::vector<int64_t> whole_numbers(const char* option, const std::vector<std::string>& texts, int64_t most) {
  std::vector<int64_t> numbers;
  for (const std::string& text : texts) {
    int64_t number = 0;
    if (!CLI::detail::lexical_cast(text, number) || number < 1 || number > most)
      throw InputError(cat(option, ": '", text, "' is not a whole number from 1 to ", most));
    if (std::count(numbers.begin(), numbers.end(), number) == 0) numbers.push_back(number);
  }
  return numbers;
}

std::vector<PlannedRun> runs_of(const Plan& plan, int64_t round) {
  std::vector<PlannedRun> runs;
  for (int64_t batch : plan.batch)
    for (const Program& program : plan.programs)
      if (!plan.own_batch.contains(program.variant)) add_runs(plan, program, batch, round, runs);
  for (const Program& program : plan.programs)
    if (const auto own = plan.own_batch.find(program.variant); own != plan.own_batch.end())
      runs.push_back({program, own->second, round});
  if (plan.order == "abba" && round % 2 == 1) std::reverse(runs.begin(), runs.end());
  if (plan.order == "shuffled") {  // Fisher and Yates
    const uint64_t seed = random_bits(plan.order_seed, static_cast<uint64_t>(round));
    for (size_t i = runs.size(); i > 1; --i) std::swap(runs[i - 1], runs[random_bits(seed, i) % i]);
  }
  return runs;
}

namespace {

/// Seconds of "90", "90s", "20m" or "2h". Throws InputError for anything else.
double duration_s(const std::string& text) {
  const size_t digits = text.find_last_of("0123456789.") + 1;
  const std::string unit = text.substr(digits);
  const double scale = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  double value = 0;
  if (scale == 0 || !CLI::detail::lexical_cast(text.substr(0, digits), value) || !(value > 0 && value <= 1e9))
    throw InputError(cat("--max-time: '", text, "' is no duration: 90s, 20m or 2h, for example"));
  return value * scale;
}

Stopping stopping_of(const MeasureOptions& options, const Preset& preset) {
  Stopping stopping;
  stopping.rounds = options.rounds.value_or(preset.rounds);
  if (options.until_ci) stopping.until_ci = std::stod(number_text(*options.until_ci));  // as typed
  if (!options.max_time.empty()) stopping.max_time_s = duration_s(options.max_time);
  if (options.max_rounds && !options.until_ci)
    throw InputError("--max-rounds bounds --until-ci; without that, --rounds says how many");
  stopping.max_rounds = options.max_rounds.value_or(std::max(stopping.max_rounds, stopping.rounds));
  if (stopping.max_rounds < stopping.rounds)
    throw InputError(cat("--max-rounds ", stopping.max_rounds, " is less than --rounds ", stopping.rounds));
  return stopping;
}

/// Throws InputError for a model, batch or data that no rung could train on. Text is tokenised here, once, so
/// that no run's start-up pays for it.
void check_workload(Plan& plan) {
  std::optional<Dataset> data;
  for (int64_t batch : plan.batch) {
    plan.settings.batch = batch;
    for (const int64_t devices : plan.devices)
      if (plan.scaling == "strong" && batch % devices != 0)
        throw InputError(
            cat("--scaling strong: ", devices, " devices can't share --batch ", batch, " evenly"));
    const Config config = plan.settings.resolve();
    if (!data) data = open_dataset(plan.settings.data, plan.settings.val_data, plan.settings.vocab, config.V);
    int64_t sequences = batch;
    for (const PlannedRun& run : runs_of(plan, 0)) {
      sequences = std::max(sequences, run.batch * run.devices);
      if (run.program.peer.empty() && !is_ablation(run.program.variant) && !run.apart)
        check_devices(find_rung(run.program.variant), config.C, run.devices);
    }
    Loader(data->train, sequences, config.T);
  }
}

/// Of each program that looks for its batch: what its rung finds, which its peer is measured on too.
std::map<std::string, int64_t> own_batches(const Plan& plan, int64_t max_batch) {
  std::map<std::string, int64_t> batches, found;  // by variant, by executable
  const RungSettings& s = plan.settings;
  for (const Program& program : plan.programs) {
    if (program.batch != BatchSize::largest) continue;
    const std::string executable = program.peer.empty()
                                       ? program.command.front()
                                       : bin_dir() + "/" + program.variant.substr(program.peer.size() + 1);
    if (!found.contains(executable)) {
      std::vector<std::string> ask = {executable,    "--plan",
                                      "--model",     *s.model,
                                      "--seq",       std::to_string(*s.seq),
                                      "--vocab",     s.vocab,
                                      "--max-batch", std::to_string(max_batch)};
      const auto shared = s.shared_arguments(program.math, /*peer=*/false);
      ask.insert(ask.end(), shared.begin(), shared.end());
      const auto answer = output_of(ask);
      if (!answer)
        throw Error(cat(program.variant, " found no batch that fits: leave it out of --rungs, or choose a ",
                        "smaller --seq or --model"));
      found[executable] = parse_json(*answer).at("batch").get<int64_t>();
    }
    batches[program.variant] = found[executable];
  }
  return batches;
}

/// Throws InputError for more devices than there are, or ranks that nothing here can start.
void check_devices(const Plan& plan) {
  for (const PlannedRun& run : runs_of(plan, 0)) {
    if (plan.settings.backend == "cuda" && run.devices > plan.devices_present)
      throw InputError(cat("--devices ", run.devices, ": this machine has ", plan.devices_present));
    if (run.devices > 1 && run.program.through_mpi(plan.settings.backend)) check_mpirun(run.devices);
  }
}

}  // namespace

void complete(Plan& plan, const MeasureOptions& options, const DeviceProbe& probe) {
  const DeviceInfo& device = probe.device;
  const Preset& preset = options.preset.empty() ? default_preset(device) : find_preset(options.preset);
  plan.batch =
      options.batch.empty() ? preset.batch : whole_numbers("--batch", options.batch, RungSettings::kMaxBatch);
  plan.settings = options.rung;
  plan.settings.model = options.rung.model.value_or(preset.model);
  plan.settings.seq = options.rung.seq.value_or(preset.seq);
  plan.settings.steps = options.steps.value_or(preset.steps);
  plan.settings.backend = device.backend;
  plan.warmup = options.warmup.value_or(preset.warmup);
  plan.stopping = stopping_of(options, preset);
  plan.order = options.order;
  plan.order_seed = options.order_seed;
  if (plan.warmup >= plan.settings.steps)
    throw InputError(
        cat("--warmup ", plan.warmup, " leaves none of --steps ", plan.settings.steps, " to time"));
  plan.devices_present = probe.devices;
  check_devices(plan);
  if (options.rung.dtype &&
      std::none_of(plan.programs.begin(), plan.programs.end(),
                   [](const Program& program) { return program.math == MathMode::half; }))
    throw InputError("--dtype: all of the rungs named train in fp32; only mixed-precision rungs choose");
  check_workload(plan);
  for (const Program& program : plan.programs) plan.source_hashes[program.variant] = program.source_hash();
  plan.own_batch = own_batches(plan, preset.max_batch);
}

Json config_of(const Plan& plan, const PlannedRun& run) {
  const RungSettings& s = plan.settings;
  Json config = {{"model", *s.model}, {"B", run.batch}, {"T", *s.seq}, {"seed", s.seed}};
  if (run.devices > 1) config["world_size"] = run.devices;
  if (run.apart) config["apart"] = true;
  return config;
}

RunRequest request_for(const Plan& plan, const PlannedRun& run, const std::string& device_name,
                       double timeout_s) {
  RungSettings s = plan.settings;
  RunRequest request;
  request.program = run.program;
  request.source_hash = plan.source_hashes.at(run.program.variant);
  request.device_name = device_name;
  request.round = run.round;
  request.config = config_of(plan, run);
  request.backend = s.backend;
  request.devices = run.devices;
  request.steps = s.steps;
  request.warmup = plan.warmup;
  request.timeout_s = timeout_s;
  request.arguments = {"--model", *s.model,
                       "--batch", std::to_string(run.batch),
                       "--seq",   std::to_string(*s.seq),
                       "--steps", std::to_string(s.steps),
                       "--vocab", s.vocab};
  if (!s.val_data.empty())
    request.arguments.insert(request.arguments.end(), {"--eval-every", std::to_string(s.steps)});
  if (run.apart) request.arguments.emplace_back("--apart");
  if (run.devices > 1) s.device = 0;  // each rank's own
  const auto shared = s.shared_arguments(run.program.math, !run.program.peer.empty());
  request.arguments.insert(request.arguments.end(), shared.begin(), shared.end());
  return request;
}

namespace {

/// A run that learns something else than the baseline on the same data is no faster way of training. A peer
/// starts from other weights: its losses are recorded, not compared.
void check_learning(Run& run, double tolerance, const std::vector<Run>& finished) {
  if (run.status != Status::ok || !run.peer.empty() || run.variant == ladder().front().name) return;
  if (is_apart(run.config)) return;  // which is a reference for speed
  const auto baseline = std::find_if(finished.begin(), finished.end(), [&](const Run& other) {
    return other.variant == ladder().front().name && other.status == Status::ok &&
           other.config.at("model") == run.config.at("model") && other.config.at("T") == run.config.at("T") &&
           global_batch(other.config) == global_batch(run.config);
  });
  if (baseline == finished.end()) return;
  run.reason = divergence(*baseline, run, tolerance);
  if (!run.reason.empty()) run.status = Status::diverged;
}

/// A run that was not started, as it would be reported.
Run unsupported_run(const RunRequest& request, const std::string& reason) {
  Run run = asked_for(request);
  run.backend = request.backend;
  run.status = Status::unsupported;
  run.reason = reason;
  return run;
}

/// Measures what `file` does not hold yet. Returns why it ended: the results' "stopped".
Json fill(const Plan& plan, const DeviceInfo& device, double timeout_s, ResultsFile& file) {
  std::optional<Telemetry> telemetry;  // for peers; opened here, so that none of their steps waits for it
  if (std::any_of(plan.programs.begin(), plan.programs.end(),
                  [](const Program& p) { return !p.peer.empty(); }))
    telemetry.emplace(device.uuid);
  const Stopping& stopping = plan.stopping;
  const int64_t most = stopping.until_ci ? stopping.max_rounds : stopping.rounds;
  Progress progress(runs_of(plan, 0).size() * static_cast<size_t>(most), file.results().runs.size());
  for (int64_t round = 0;; ++round) {
    const Results& measured = file.results();
    const auto in_round = [&](const Run& run) { return run.round == round; };
    const bool begun = std::any_of(measured.runs.begin(), measured.runs.end(), in_round);
    if (const std::string reason = begun ? "" : stop_reason(stopping, measured, round); !reason.empty()) {
      const auto widest = widest_interval_percent(measured);
      return {{"reason", reason},
              {"rounds", round},
              {"widest_interval_percent", widest ? Json(*widest) : Json()},
              {"spent_s", spent_s(measured)}};
    }
    for (const PlannedRun& planned : runs_of(plan, round)) {
      RunRequest request = request_for(plan, planned, device.name, timeout_s);
      if (!planned.program.peer.empty()) request.telemetry = &*telemetry;
      const std::string workload = workload_of(request.config);
      if (measured.find(planned.program.variant, workload, planned.round)) continue;
      progress.start(planned.program.variant + " " + workload, planned.round, plan.settings.steps);
      Run run = planned.unsupported.empty()
                    ? run_program(request, [&](const Step& step) { progress.step(step); })
                    : unsupported_run(request, planned.unsupported);
      check_learning(run, planned.program.tolerance, measured.runs);
      progress.finish(run);
      file.add(std::move(run));
    }
  }
}

/// "Besides its steps a run took 412 ms, 350 of them before the first (medians of 8 runs)."; "" where none is
/// ok.
std::string besides_steps(const std::vector<Run>& runs) {
  std::vector<double> besides, before;
  for (const Run& run : runs) {
    if (run.status != Status::ok || !run.peer.empty()) continue;
    besides.push_back(besides_steps_ms(run));
    before.push_back(run.summary->startup_ms);
  }
  if (besides.empty()) return "";
  return cat("Besides its steps a run took ", fixed(median(besides), 0), " ms, ", fixed(median(before), 0),
             " of them before the first (medians of ", besides.size(), " runs).\n");
}

}  // namespace

std::vector<Option> MeasureOptions::workload_options(std::vector<Option> plan) {
  std::vector<std::string> names;
  for (const Preset& p : presets()) names.emplace_back(p.name);
  std::vector<Option> all = {
      {"preset", &preset, "NAME", cat("one of ", join(names, ", "), "; default: by the device"), kPlan}};
  all.insert(all.end(), plan.begin(), plan.end());
  const std::vector<Option> workload = {
      {"model", &rung.model, "NAME", cat("one of ", join(Config::names(), ", ")), kWorkload},
      {"batch", &batch, "LIST", "sequences in a batch; 16,64 measures both; default: also what rungs find",
       kWorkload},
      {"seq", &rung.seq, "N", "tokens of a sequence", kWorkload, 1, 32768},
      {"steps", &steps, "N", "optimizer steps of a run, warm-up included", kWorkload, 1, kMost},
      {"warmup", &warmup, "N", "first steps that are left out of the summary", kWorkload, 0, kMost},
  };
  all.insert(all.end(), workload.begin(), workload.end());
  const std::vector<Option> shared = rung.shared_options();
  all.insert(all.end(), shared.begin(), shared.end());
  all.push_back({"timeout", &timeout, "SECONDS", "a run that takes longer is killed", kFiles, 0.001, 1e9});
  return all;
}

std::vector<Option> MeasureOptions::options(std::vector<Option> plan) {
  std::vector<Option> all = workload_options(std::move(plan));
  const std::vector<Option> more = {
      {"rounds", &rounds, "N", "runs of each rung, in turns; default: the preset's", kRounds, 1, kMost},
      {"order",
       &order,
       "NAME",
       "of the rungs: forth and back, always forth, or shuffled in each round",
       kRounds,
       0,
       0,
       {"abba", "forward", "shuffled"}},
      {"order-seed", &order_seed, "N", "of --order shuffled", kRounds},
      {"until-ci", &until_ci, "PERCENT",
       "add rounds until each median's 95 % interval is within this much of it", kRounds, 0.001, 100},
      {"max-rounds", &max_rounds, "N", "at most, with --until-ci; default: 30", kRounds, 1, kMost},
      {"max-time", &max_time, "DURATION", "begin no round that would take the runs beyond this: 90s, 20m, 2h",
       kRounds},
      {"out", &out, "FILE", "results as JSON", kFiles},
      {"resume", &resume, "", "go on with what FILE holds of the same plan", kFiles},
      {"overwrite", &overwrite, "", "replace FILE", kFiles},
  };
  all.insert(all.end() - 1, more.begin(), more.end());
  return all;
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
               {"rounds", stopping.rounds},
               {"order", order},
               {"order_seed", order == "shuffled" ? Json(order_seed) : Json()},
               {"until_ci", stopping.until_ci ? Json(*stopping.until_ci) : Json()},
               {"max_rounds", stopping.until_ci ? Json(stopping.max_rounds) : Json()},
               {"max_time_s", stopping.max_time_s ? Json(*stopping.max_time_s) : Json()},
               {"source_hashes", source_hashes}};
  RungSettings told = settings;
  json.update(options_json(told.shared_options(), {RungSettings::kData, RungSettings::kTraining,
                                                   RungSettings::kDevice, RungSettings::kOps}));
  if (!ablate.is_null()) json["ablate"] = ablate;
  if (std::any_of(programs.begin(), programs.end(), [](const Program& p) { return p.devices > 1; })) {
    json["devices"] = devices.empty() ? std::vector{devices_present} : devices;
    json["scaling"] = scaling;
    if (apart) json["apart"] = true;
    json["runs_in_round"] = runs_of(*this, 0).size();
  }
  return json;
}

std::vector<Rung> chosen_rungs(const std::vector<std::string>& names) {
  if (names == std::vector<std::string>{"all"}) return ladder();
  std::vector<std::string> wanted;
  for (const std::string& name : names) wanted.push_back(find_rung(name).name);
  std::vector<Rung> rungs;
  for (const Rung& rung : ladder())
    if (std::count(wanted.begin(), wanted.end(), rung.name) > 0) rungs.push_back(rung);
  return rungs;
}

int measure(const MeasureOptions& options, Plan plan, const std::string& command_line) {
  if (options.resume && options.overwrite) throw InputError("--resume and --overwrite contradict each other");
  const DeviceProbe probe = probe_device(options.rung.backend, options.rung.device);
  if (!probe.error.empty()) throw Error(probe.error);
  complete(plan, options, probe);
  const Existing existing = options.resume      ? Existing::resume
                            : options.overwrite ? Existing::overwrite
                                                : Existing::refuse;
  if (probe.telemetry.contains("missing"))
    std::cerr << "stepladder: clocks, power and temperature stay unknown: "
              << printable(probe.telemetry["missing"].get<std::string>(), 300) << std::endl;
  const InterruptGuard guard;
  const Json context = machine_context(command_line, probe);
  ResultsFile file(options.out, context, plan.json(), existing);
  if (const std::string busy = busy_note(context); !busy.empty())
    std::cerr << "stepladder: " << busy << std::endl;
  Json stopped;
  try {
    stopped = fill(plan, probe.device, options.timeout, file);
  } catch (const Interrupted& e) {
    std::cerr << "stepladder: interrupted; " << file.results().runs.size() << " finished runs are kept in "
              << options.out << ": the same command with --resume goes on\n";
    return 128 + e.signal;
  }
  file.finish(std::move(stopped));
  std::cout << terminal_report(file.results()) << besides_steps(file.results().runs) << "\nwrote "
            << options.out << std::endl;
  const auto& runs = file.results().runs;
  const bool good = std::all_of(runs.begin(), runs.end(), [](const Run& r) {
    return r.status == Status::ok || r.status == Status::unsupported;
  });
  return good ? kExitOk : kExitFailed;
}

}  // namespace stepladder
