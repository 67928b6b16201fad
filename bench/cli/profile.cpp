#include <iostream>
#include <optional>

#include "bench/base/text.h"
#include "bench/cli/commands.h"
#include "bench/cli/measure.h"
#include "bench/cli/temporary_file.h"
#include "bench/plan/ladder.h"
#include "bench/plan/presets.h"
#include "bench/plan/programs.h"
#include "bench/plan/settings.h"
#include "bench/report/profile_report.h"
#include "bench/results/file.h"
#include "bench/results/json.h"
#include "bench/run/counters.h"
#include "bench/run/machine.h"
#include "bench/run/progress.h"
#include "bench/run/runner.h"
#include "model/atomic_file.h"

namespace stepladder {
namespace {

struct ProfileOptions {
  std::string rung, preset, out, trace, part, format = "text";
  int64_t warmup = 5;
  double timeout = 1800.0;
  bool wide = false, counters = false;
  RungSettings settings;  // the rung's options

  ProfileOptions() { settings.steps = 10; }

  /// The options of a rung that determine what a step does.
  std::vector<Option> of_rung() {
    std::vector<Option> chosen;
    for (Option option : settings.options()) {
      if (option.name == "steps") option.help = "optimizer steps, those before the traced ones too";
      if (option.name == "model") option.help = "default: the preset's";
      for (const char* group : {RungSettings::kData, RungSettings::kModel, RungSettings::kTraining,
                                RungSettings::kDevice, RungSettings::kOps, RungSettings::kSearch})
        if (option.group == group && option.name != "hang-timeout" && option.name != "independent-ranks")
          chosen.push_back(option);
    }
    return chosen;
  }
  std::vector<Option> options() {
    const std::vector<Option> own = {
        {"RUNG", &rung, "", "such as 10 or 10_padded_vocab"},
        {"preset", &preset, "NAME",
         "whose model, sequence and first batch are the defaults; default: by the device", "Profile"},
        {"out", &out, "FILE", "a results file with the profile", "Profile"},
        {"trace", &trace, "FILE", "the last step as a timeline, for ui.perfetto.dev", "Profile"},
        {"counters", &counters, "",
         "DRAM and L2 traffic and instructions by kernel type, counted by ncu in a further run", "Profile"},
        part_option(part, "Profile"),
        {"format", &format, "NAME", "of what is printed", "Profile", {"text", "json", "markdown"}},
        {"warmup", &warmup, "N", "of --steps, those before the first that is traced", "Profile", {0, 1e6}},
        {"timeout", &timeout, "SECONDS", "a run that takes longer is killed", "Profile", {0.001, 1e9}},
        Progress::quiet_option("Profile"),
        wide_option(wide, "Profile"),
    };
    return own + of_rung();
  }
};

/// Checks --out. Throws InputError if it can't be written, or holds runs that the profile would replace.
void check_place(const ProfileOptions& options) {
  check_same_kind(options.out, "results");
  if (kind_of(options.out) == "results")
    for (const Part& part : load_parts(options.out))
      if (part.name == name_and_about(options.part).first && !part.results.runs.empty())
        throw InputError(
            cat(options.out, " holds runs, which the profile would replace: name another --out"));
  make_folder_of(options.out);
  AtomicFile probe(options.out);
}

/// Checks --trace. Throws InputError if it can't be written, would replace a file of another kind, or names
/// the file of --out.
void check_trace(const ProfileOptions& options) {
  check_same_kind(options.trace, "timeline", "name another --trace");
  make_folder_of(options.trace);
  if (!options.out.empty() && target_of(options.trace) == target_of(options.out))
    throw InputError(cat("--trace and --out both name ", options.trace, ": give each a file of its own"));
  AtomicFile probe(options.trace);
}

/// The command line of a rung's program that runs as `options` say.
std::vector<std::string> traced_command(ProfileOptions options, const Workload& workload, const Rung& rung) {
  ProfileOptions defaults;
  defaults.settings.steps = RungSettings().steps;  // the rung's default
  std::vector<std::string> command = {workload.program.command.front()};
  append(command, arguments_of(options.of_rung(), defaults.of_rung()));
  if (!options.settings.batch) append(command, own_batch_arguments(rung));
  return command;
}

/// Counts what the kernels of the step after the warm-up do, in a run of its own. `trace` has a step's
/// timeline.
Json counters(const Ncu& ncu, ProfileOptions options, const Workload& workload, const Rung& rung,
              const std::string& trace, const Json& profile) {
  if (profile.at("kernels").empty())
    throw Error(cat("--counters needs CUPTI, to know the op that launched a kernel; times come from ",
                    text_at(profile, "times")));
  options.settings.steps =
      std::max<int64_t>(2, options.warmup + 1);  // the first step searches and records too
  if (!Progress::quiet) notice("counting what the kernels of a step do, with ncu");
  const auto kernels =
      count_kernels(ncu, traced_command(options, workload, rung), options.settings.steps, options.timeout);
  return counters_by_type(ncu, kernels, load_json(trace), profile);
}

int trace(ProfileOptions& options) {
  RungSettings& settings = options.settings;
  const Rung& rung = find_rung(options.rung);
  if (rung.devices > 1) throw InputError(cat(rung.name, " trains on several devices, a profile is of one"));
  if (options.warmup >= settings.steps)
    throw InputError(
        cat("--warmup ", options.warmup, " leaves none of --steps ", settings.steps, " to trace"));
  if (!options.out.empty()) check_place(options);  // before minutes of measuring
  if (!options.trace.empty()) check_trace(options);
  const DeviceProbe probe = require_device(settings.backend, settings.device);
  std::optional<Ncu> ncu;
  if (options.counters) {
    if (probe.device.backend == "cpu")
      throw InputError("--counters are those of a CUDA device, this is the CPU");
    ncu = find_ncu();
  }
  const Preset& preset = preset_for(options.preset, probe.device);
  // With --model the sequence length defaults to the model's own; a rung of the largest batch searches for
  // its batch.
  if (!settings.model && !settings.seq) settings.seq = preset.seq;
  if (!settings.model) settings.model = preset.model;
  if (!settings.batch && rung.batch != BatchSize::largest) settings.batch = preset.batch.front();

  Workload workload;
  workload.program = program_of(rung);
  workload.source_hash = workload.program.source_hash();
  workload.device = probe.device;
  workload.config["model"] = *settings.model;
  workload.command = traced_command(options, workload, rung);
  append(workload.command, {"--profile", std::to_string(options.warmup)});
  std::optional<TemporaryFile> timeline;  // a temporary timeline for --counters without --trace
  if (options.counters && options.trace.empty()) timeline.emplace("timeline");
  const std::string kept = timeline ? timeline->path : options.trace;
  if (!kept.empty()) append(workload.command, {"--trace", kept});
  workload.steps = settings.steps;
  workload.warmup = options.warmup;
  workload.timeout_s = options.timeout;
  if (!Progress::quiet)
    notice(cat(workload.steps, " steps of ", rung.name, " with ", *settings.model, " on ", probe.device.name,
               probe.device.backend == "cpu" && *settings.model != preset.model
                   ? ", which may take minutes; a smaller --model, --seq or --batch is faster"
                   : ""));
  const Json context = machine_context(probe);
  std::optional<ResultsFile> out;  // open from here on: its time is that of the profile
  if (!options.out.empty())
    out.emplace(options.out, context, Json::object(), Existing::overwrite, options.part);
  Progress progress(1);
  progress.start(rung.name, 0, workload.steps);
  const Run run = run_program(workload, [&](const Step& step) { progress.step(step); });
  progress.finish(run);
  if (run.status != Status::ok) throw Error(cat(rung.name, ": ", run.outcome()));
  if (run.profile.is_null()) throw Error(cat(rung.name, " ended without a profile"));

  Json file = {{"schema", kSchema}, {"context", context}};
  file["profile"] = {{"variant", run.variant},
                     {"source_hash", run.source_hash},
                     {"backend", run.backend},
                     {"config", run.config}};
  file["profile"].update(run.profile);
  std::optional<Error> uncounted;  // error of counting, told after the profile is written
  if (ncu) {
    try {
      file["profile"]["counters"] = counters(*ncu, options, workload, rung, kept, run.profile);
    } catch (const Error& e) {
      uncounted = e;
    }
  }
  std::cout << (options.format == "json"       ? dump(file, 2) + "\n"
                : options.format == "markdown" ? section_of_profile(file).markdown(1)
                                               : section_of_profile(file).terminal(options.wide))
            << std::flush;
  if (out) {
    out->add_profile(file["profile"]);
    out->finish();
  }
  if (!uncounted) return kExitOk;
  notice(cat("error: ", uncounted->what()));
  return uncounted->code();
}

/// Traces the rung. If the profile was to become a part of a file and fails, the file's part records that.
int profile(ProfileOptions& options) try { return trace(options); } catch (const Error& e) {
  if (e.code() == kExitFailed && !options.out.empty() && !options.part.empty()) {
    const Json context = machine_context(require_device(options.settings.backend, options.settings.device));
    ResultsFile(options.out, context, Json::object(), Existing::overwrite, options.part).interrupt(e.code());
  }
  throw;
}

}  // namespace

Command profile_command() {
  return command<ProfileOptions>("profile", "where the time of a rung's step goes, traced apart from runs",
                                 profile, kUsualOptions);
}

}  // namespace stepladder
