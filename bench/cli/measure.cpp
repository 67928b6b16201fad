#include "bench/cli/measure.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "bench/base/place.h"
#include "bench/base/text.h"
#include "bench/plan/ladder_file.h"
#include "bench/plan/presets.h"
#include "bench/report/ablation.h"
#include "bench/report/report.h"
#include "bench/report/rows_table.h"
#include "bench/report/speedups.h"
#include "bench/results/json.h"
#include "bench/run/child.h"
#include "bench/run/placeholders.h"
#include "bench/run/progress.h"
#include "bench/run/ranks.h"
#include "bench/verdict/certificate.h"
#include "bench/verdict/paired.h"
#include "model/data.h"

namespace stepladder {
namespace {

constexpr double kMost = 1e6;  // the most steps, or rounds

Stopping stopping_of(const MeasureOptions& options, int64_t rounds) {
  Stopping stopping;
  stopping.rounds = options.rounds.value_or(rounds);
  stopping.until_ci = options.until_ci;
  if (!options.max_time.empty()) stopping.max_time_s = duration_s(options.max_time);
  if (options.max_rounds && !options.until_ci)
    throw InputError("--max-rounds bounds --until-ci; without that, --rounds says how many");
  stopping.max_rounds = options.max_rounds.value_or(std::max(stopping.max_rounds, stopping.rounds));
  if (stopping.max_rounds < stopping.rounds)
    throw InputError(cat("--max-rounds ", stopping.max_rounds, " is less than --rounds ", stopping.rounds));
  return stopping;
}

/// The program's name in its own ladder: without the prefix of a peer's ladder.
std::string name_in_ladder(const Program& program) {
  const std::string prefix = program.peer + "/";
  return program.peer.empty() || !program.variant.starts_with(prefix) ? program.variant
                                                                      : program.variant.substr(prefix.size());
}

/// Whether any program that is measured takes the option that `placeholder` stands for.
bool anyone_takes(const Plan& plan, const std::string& placeholder) {
  return std::ranges::any_of(plan.programs,
                             [&](const Program& program) { return is_told(program, placeholder); });
}

/// Whether any program is told option `name`: our rungs are told all; others by {name}, or by {arguments} if
/// it is one of the options that peers share.
bool anyone_is_told(const Plan& plan, const RungSettings& asked, const std::string& name) {
  return std::ranges::any_of(plan.programs, [&](const Program& program) {
    if (program.native || uses(program, name)) return true;
    const auto arguments = asked.shared_arguments(program.math, /*native=*/false);
    return uses(program, "arguments") && std::ranges::count(arguments, "--" + name) > 0;
  });
}

/// Checks that each program trains the model that its row will name. The user's --model counts more than a
/// ladder's own. Throws InputError.
void check_models(const Plan& plan, bool model_given) {
  const std::string& model = *plan.settings.model;
  const auto& known = Config::names();
  const bool unknown = !plan.ladder.built_in() && std::ranges::find(known, model) == known.end();
  for (const Program& program : plan.programs) {
    if (unknown && uses(program, "arguments"))  // {arguments} are a rung's options, for GPT-2
      throw InputError(cat(program.variant, program.native ? " trains" : " is told how to train", " GPT-2, ",
                           plan.ladder.name, " trains ", model, ": if that is one of ", join(known, ", "),
                           ", name it as \"model\" of its workload, or by --model"));
    if (!program.model.empty() && program.model != model && !model_given)
      throw InputError(cat(program.variant, " trains ", program.model, ", the others ", model,
                           ": if they are the same, name it as \"model\" of its workload, or by --model"));
  }
}

/// Checks that each option given is told to some command of the ladder. Throws InputError.
void check_used(const Plan& plan, RungSettings asked) {
  const auto unused = [&](const std::string& name, const std::string& how) {
    return InputError(cat("--", name, ": no command of ", plan.ladder.name, " has ", how));
  };
  if (asked.model && !anyone_takes(plan, "model")) throw unused("model", "{model}");
  RungSettings usual;
  const std::vector<Option> defaults = usual.shared_options();
  for (const Option& option : asked.shared_options()) {
    const std::string& name = option.name;
    if (name == "backend" || name == "device") continue;  // Stepladder uses these itself
    const auto same = std::ranges::find(defaults, name, &Option::name);
    if (same->text() == option.text() || anyone_is_told(plan, asked, name)) continue;
    const bool placeholder = name == "data" || name == "lr" || name == "seed";
    throw unused(name, placeholder ? cat("{", name, "}") : "it: only rungs of Stepladder's own do");
  }
  if (asked.eval_batches != usual.eval_batches && !anyone_takes(plan, "arguments"))
    throw unused("eval-batches", "{arguments}");
  if (asked.dtype && std::ranges::find(plan.programs, MathMode::half, &Program::math) == plan.programs.end())
    throw InputError(
        "--dtype: none of the rungs named has a choice of types; 05_mixed_precision and those above it do");
}

/// Checks model, batch and data before the first run, and tokenises text once, so that no run's start-up pays
/// for it. Throws InputError for what no rung could train on.
void check_workload(Plan& plan) {
  plan.settings.batch = plan.batch.front();
  if (!anyone_takes(plan, "arguments")) return;  // no program takes a rung's options
  if (*plan.settings.seq > RungSettings::kMaxSeq)
    throw InputError(
        cat("--seq: ", *plan.settings.seq, " is out of range: from 1 to ", RungSettings::kMaxSeq));
  if (const int64_t most = std::ranges::max(plan.batch); most > RungSettings::kMaxBatch)
    throw InputError(cat("--batch: ", most, " is out of range: from 1 to ", RungSettings::kMaxBatch));
  std::error_code none;
  if (const std::filesystem::path text = here_or_shared(plan.settings.data);
      text.filename() == "dictionary.txt" && !std::filesystem::exists(text, none))
    throw InputError(cat(text.string(), ": is not there; ", shared_dir(),
                         "/scripts/prepare_data.py --dictionary makes it"));
  std::optional<Dataset> data;
  for (int64_t batch : plan.batch) {
    plan.settings.batch = batch;
    const Config config = plan.settings.resolve();
    if (!data) data = open_dataset(plan.settings.data, plan.settings.val_data, plan.settings.vocab, config.V);
    int64_t sequences = batch;
    for (const Workload& workload : workloads_of(plan, 0)) {
      sequences = std::max(sequences, global_batch(workload.config));
      const Program& program = workload.program;
      if (program.native && !is_ablation(program.variant) && !has_independent_ranks(workload.config))
        check_devices(*our_rung(name_in_ladder(program)), config.C, workload.devices);
    }
    if (plan.settings.eval_skip > 0)
      plan.settings.check_validation(
          Loader(data->val, *plan.settings.batch, *plan.settings.seq).batches_per_epoch(), data->val->path());
    Loader(data->train, sequences, config.T).next();  // throws for tokens that the model doesn't know
  }
}

/// Our executable that searches for the batch of `program`: the program itself, or the rung of its name.
std::string batch_finder(const Program& program, const Plan& plan) {
  for (const Program& other : plan.programs)
    if (other.native && name_in_ladder(other) == name_in_ladder(program)) return other.command.front();
  throw InputError(
      cat(program.variant, ": no rung of ours is called that and looks for its batch: give --batch"));
}

/// The batch of each program that searches for one: the batch that our rung of that name finds, for a peer
/// too.
std::map<std::string, int64_t> own_batches(const Plan& plan, int64_t max_batch) {
  std::map<std::string, int64_t> batches, found;  // batches by variant; found: by executable
  const RungSettings& s = plan.settings;
  for (const Program& program : plan.programs) {
    if (program.batch != BatchSize::largest) continue;
    const std::string executable = batch_finder(program, plan);
    if (!found.contains(executable)) {
      std::vector<std::string> ask = {executable,    "--plan",
                                      "--model",     *s.model,
                                      "--seq",       std::to_string(*s.seq),
                                      "--vocab",     s.vocab,
                                      "--max-batch", std::to_string(max_batch)};
      append(ask, s.shared_arguments(program.math, /*native=*/true));
      std::string answer;
      const ChildEnd end = run_for_output(ask, answer, kProbeTimeout);
      if (end.how == ChildEnd::How::timed_out)
        throw Error(
            cat(program.variant, " found no batch within ", kProbeTimeout, " s: leave it out of --rungs"));
      if (!end.ok())
        throw Error(cat(program.variant, " found no batch that fits", end.last_words(),
                        ": leave it out of --rungs, or choose a smaller --seq or --model"));
      found[executable] = parse_json(answer).at("batch").get<int64_t>();
    }
    batches[program.variant] = found[executable];
  }
  return batches;
}

/// Checks --devices and the launcher's options. Throws InputError where no chosen rung trains on several
/// devices, for a batch that the devices can't share, ranks that can't be started here, or more devices than
/// there are, unless a launcher, which may use other machines, starts the ranks.
void check_devices(const Plan& plan) {
  const Launcher& launcher = plan.launcher;
  const auto with_several = [](const Program& program) { return program.devices > 1; };
  const bool several = std::ranges::any_of(plan.programs, with_several);
  const std::vector<std::pair<const char*, bool>> of_several = {
      {"--devices", !plan.devices.empty()},
      {"--launcher", !launcher.words.empty()},
      {"--independent-ranks", plan.independent_ranks},
      {"--scaling strong", plan.scaling == "strong"}};
  for (const auto& [option, given] : of_several)
    if (given && !several)
      throw InputError(cat(option, ": none of the rungs chosen trains on several devices"));
  if (plan.independent_ranks && std::ranges::none_of(plan.programs, [&](const Program& one) {
        return with_several(one) && one.native;
      }))
    throw InputError("--independent-ranks: only rungs of Stepladder's own can");
  if (!launcher.words.empty()) {
    if (std::ranges::none_of(plan.devices, [](int64_t devices) { return devices > 1; }))
      throw InputError("--launcher starts as many ranks as --devices says: give 2 or more");
    if (std::ranges::none_of(plan.programs, [&](const Program& program) {
          return with_several(program) && !program.starts_ranks();
        }))
      throw InputError(
          "--launcher: of those chosen each starts its ranks itself, as its command has {devices}");
    check_launcher(launcher, plan.devices.front());
  } else {
    if (!launcher.interface.empty())
      throw InputError("--interface is where the ranks of a --launcher report to: give one");
    if (launcher.meet_s != Launcher().meet_s)
      throw InputError("--launch-timeout is for the ranks of a --launcher: give one");
  }
  for (const Workload& workload : workloads_of(plan, 0)) {
    if (!launcher.words.empty() && workload.has_launcher()) continue;  // the launcher may use other machines
    if (workload.backend == "cuda" && workload.devices > plan.devices_present)
      throw InputError(cat("--devices ", workload.devices, ": this machine has ", plan.devices_present));
    if (workload.has_launcher()) check_mpirun(workload.devices);
  }
}

/// "Besides its steps a run took 412 ms, 350 of them before the first (medians of 8 runs)."; "" where no run
/// is ok.
std::string besides_steps(const std::vector<Run>& runs) {
  std::vector<double> besides, before;
  for (const Run& run : runs) {
    if (run.status != Status::ok || !run.peer.empty()) continue;
    besides.push_back(besides_steps_ms(run));
    before.push_back(run.summary->startup_ms);
  }
  if (besides.empty()) return "";
  return cat("Besides its steps a run took ", fixed(median(besides), 0), " ms, ", fixed(median(before), 0),
             " of them before the first (medians of ", counted(std::ssize(besides), "run"), ").\n");
}

bool missed_its_loss(const Run& run) {
  return run.summary && run.summary->to_loss && !run.summary->to_loss->reached;
}

int exit_code_of(const Results& results) {
  return std::ranges::any_of(results.runs, failed, &Run::status) ? kExitFailed
         : std::ranges::any_of(results.runs, missed_its_loss)    ? kExitInconclusive
                                                                 : kExitOk;
}

/// Sets until when runs train: for --steps, until a loss, or for --steps from each of --seeds. Throws
/// InputError.
void set_until(Plan& plan, const MeasureOptions& options) {
  if (options.until_loss) {
    if (plan.independent_ranks)
      throw InputError("--until-loss: ranks that train as --independent-ranks can't stop together");
    if (options.steps)
      throw InputError("--until-loss decides how many steps there are; --max-steps bounds them");
    if (options.seeds)
      throw InputError("--until-loss is another measure than --seeds: its --rounds are of a seed each");
    plan.settings.until_loss = options.until_loss;
    plan.settings.steps = options.max_steps.value_or(20'000);
    if (plan.settings.eval_every == 0) plan.settings.eval_every = kEvalEvery;
  } else if (plan.seeds) {
    if (!options.steps || options.rounds || options.until_ci)
      throw InputError(
          "--seeds N says how many runs there are, --steps how long each is, both beforehand: give --steps, "
          "and leave --rounds and --until-ci out");
    plan.settings.until_loss = 0.0;  // no loss is that low
    plan.settings.shuffle = true;    // else the order of the data ignores the seed
    if (plan.settings.eval_every == 0) plan.settings.eval_every = static_cast<int>(plan.settings.steps);
  } else if (options.max_steps || options.rung.eval_every > 0) {
    throw InputError(
        cat(options.max_steps ? "--max-steps" : "--eval-every", " belongs to --until-loss: give a loss"));
  }
}

/// The place of the results: FILE, or FILE:PART.
std::string place_of(const MeasureOptions& options) {
  return options.part.empty() ? options.out : cat(options.out, ":", name_and_about(options.part).first);
}

/// "For 95 % intervals, 4 rounds more (about 40 s): `stepladder resume ...`" and a line's end; "" where all
/// rounds asked for give them, or speed tells nothing.
std::string rounds_more(const Findings& findings, const MeasureOptions& options) {
  const Results& results = findings.results();
  const int64_t rounds = results.rounds_begun(), more = kLeastRoundsForInterval - rounds;
  if (text_at(results.stopped, "reason") != "rounds" || more <= 0 || options.seeds || !options.part.empty() ||
      std::ranges::any_of(findings.rows, emulates) ||
      std::ranges::none_of(findings.rows, [](const ResultRow& row) { return row.numbers.has_value(); }))
    return "";
  const double each = spent_s(results) / static_cast<double>(rounds);
  const std::string command =
      resuming(results, place_of(options), {"--rounds", std::to_string(kLeastRoundsForInterval)});
  return cat("For 95 % intervals, ", counted(more, "round"), " more (about ",
             duration_text(each * static_cast<double>(more)), "): `", printable(command, kMaxMessage), "`\n");
}

}  // namespace

Ladder MeasureOptions::ladder_asked() const {
  return ladder_at(ladder.empty() ? ladder_file(preset) : ladder);
}

double duration_s(const std::string& text) {
  const size_t digits = text.find_last_of("0123456789.") + 1;
  const std::string unit = text.substr(digits);
  const double scale = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  const auto value = number_from<double>(text.substr(0, digits));
  if (scale == 0 || !value || !(*value > 0 && *value * scale <= 1e9))
    throw InputError(cat("--max-time: '", text, "' is no duration: 90s, 20m or 2h, for example"));
  return *value * scale;
}

Option peer_option(std::vector<std::string>& peers) {
  return {"peer", &peers, "PEER",
          "another ladder to measure beside it: pytorch, llmc=PATH of train_gpt2cu, stepladder, or its file",
          MeasureOptions::kPlan};
}

Option part_option(std::string& part, const char* group) {
  return {"part", &part, "NAME", "what this is called in a FILE of several; \"name: about\" describes it too",
          group};
}

std::vector<Option> MeasureOptions::ladder_options() {
  return {{"ladder", &ladder, "FILE",
           "learning, or a file of your own (docs/own-trainer.md); default: the ladder of time", kPlan},
          {"python", &python, "PATH", "what {python} stands for in a ladder's commands", kPlan}};
}

std::vector<Option> MeasureOptions::device_options() {
  return {{"devices", &devices, "LIST",
           "how many devices the rungs for several run on, such as 4 or 1,2,4; default: all that are here",
           kPlan, Allowed{1, kMaxDevices}},
          {"launcher", &launcher.words, "COMMAND",
           "starts their ranks on several machines: 'srun --nodes 2', mpirun, torchrun or a script of yours; "
           "{devices} in it is how many",
           kPlan},
          {"interface", &launcher.interface, "NAME",
           "where they report to: a network interface or address of this machine", kPlan},
          {"launch-timeout", &launcher.meet_s, "SECONDS", "for all of them to report", kPlan, {1, 1e6}}};
}

std::vector<Option> MeasureOptions::workload_options(std::vector<Option> plan) {
  const std::vector<Option> first = {
      {"preset", &preset, "NAME",
       cat("one of ", join(texts_of(presets(), &Preset::name), ", "), "; default: by the device"), kPlan},
      {"rungs", &rungs, "LIST", "such as 01,02_tf32, 02-05, or all", kPlan}};
  const std::vector<Option> workload = {
      {"model", &rung.model, "NAME", cat("one of ", join(Config::names(), ", ")), kWorkload},
      {"batch", &batch, "LIST",
       "sequences in a batch; 16,64 measures both; default: the preset's, and what 14_large_batch finds",
       kWorkload, Allowed{1, kMaxWorkload}},
      {"seq", &rung.seq, "N", "tokens of a sequence", kWorkload, {1, kMaxWorkload}},
      {"steps", &steps, "N", "optimizer steps of a run, warm-up included", kWorkload, {1, kMost}},
      {"warmup", &warmup, "N", "first steps that are left out of the summary", kWorkload, {0, kMost}},
  };
  const std::vector<Option> last = {
      {"timeout", &timeout, "SECONDS", "a run that takes longer is killed", kFiles, {0.001, 1e9}},
      Progress::quiet_option(kFiles)};
  return first + plan + workload + rung.shared_options() + last;
}

std::vector<Option> MeasureOptions::loss_options() {
  return {{"until-loss", &until_loss, "LOSS",
           "train until the validation loss is no higher, in each round from another seed; instead of "
           "--steps",
           kLoss, Allowed{1e-6, 1000}},
          {"max-steps", &max_steps, "N", "at most; default: 20000", kLoss, {1, kMost}},
          {"eval-every", &rung.eval_every, "N", "steps between validation losses; 0: 50", kLoss,
           Allowed{0, kMost}},
          {"eval-batches", &rung.eval_batches, "N", "batches of a validation loss", kLoss, {1, kMost}}};
}

std::vector<Option> MeasureOptions::options(std::vector<Option> plan) {
  return workload_options(std::move(plan)) + loss_options() +
         std::vector<Option>{
             {"rounds", &rounds, "N", "runs of each rung, alternating; default: the preset's", kRounds,
              Allowed{1, kMost}},
             {"order", &order, "NAME",
              "of the rungs: forth and back, always forth, or shuffled in each round", kRounds,
              Allowed{"abba", "forward", "shuffled"}},
             {"order-seed", &order_seed, "N", "of --order shuffled", kRounds},
             {"until-ci", &until_ci, "PERCENT",
              "add rounds until each median's 95 % interval is within this much of it", kRounds,
              Allowed{0.001, 100}},
             {"max-rounds", &max_rounds, "N", "at most, with --until-ci; default: 30", kRounds, {1, kMost}},
             {"max-time", &max_time, "DURATION",
              "begin no round that would take the runs beyond this: 90s, 20m, 2h", kRounds},
             {"out", &out, "FILE", "results as JSON Lines", kFiles},
             part_option(part, kFiles),
             {"resume", &resume, "", "go on with what FILE holds of the same plan; --rounds may be more",
              kFiles},
             {"retry-failed", &retry_failed, "", "with --resume: run again what failed", kFiles},
             {"overwrite", &overwrite, "", "replace FILE, or its part", kFiles},
             wide_option(wide, kFiles),
             {kCheckOnly, &check_only, "", "", ""},
         };
}

void complete(Plan& plan, const MeasureOptions& options, const DeviceProbe& probe) {
  const DeviceInfo& device = probe.device;
  const Preset& preset = preset_for(options.preset, device);
  const WorkloadDefaults& usual = plan.ladder.workload;
  if (!options.batch.empty())
    plan.batch = options.batch;
  else
    plan.batch = usual.batch.empty() ? preset.batch : usual.batch;
  const bool one_batch = !options.batch.empty() || !usual.batch.empty();
  for (Program& program : plan.programs) {
    if (program.batch == BatchSize::own && options.batch.empty())
      plan.own_batch[program.variant] = program.own_batch;
    else if (one_batch && plan.ablate.is_null())  // an ablation of the batch searches for its batch
      program.batch = BatchSize::usual;
  }
  plan.settings = options.rung;
  const bool takes_model =
      std::ranges::any_of(plan.ladder.rungs, [](const Rung& rung) { return is_told(rung, "model"); });
  plan.settings.model =
      options.rung.model.value_or(usual.model.value_or(takes_model ? preset.model : plan.ladder.name));
  plan.settings.seq = options.rung.seq.value_or(usual.seq.value_or(preset.seq));
  plan.settings.steps = options.steps.value_or(usual.steps.value_or(preset.steps));
  if (options.certify_loss && !options.seeds)
    throw InputError("--certify-loss is of the mean over seeds: give --seeds and --steps");
  if (options.certify_loss && *options.seeds < static_cast<int64_t>(kMinPairs))
    throw InputError(cat("--certify-loss takes --seeds ", kMinPairs, " or more"));
  plan.certify_loss = options.certify_loss;
  plan.seeds = options.seeds.has_value();
  if (!options.checked) check_used(plan, options.rung);
  check_models(plan, options.rung.model.has_value());
  set_until(plan, options);
  if (options.rung.eval_batches != RungSettings().eval_batches && !plan.settings.until_loss &&
      options.rung.val_data.empty())
    throw InputError("--eval-batches are of a validation loss: give --until-loss, --seeds or --val-data");
  if (options.order_seed != MeasureOptions().order_seed && options.order != "shuffled")
    throw InputError("--order-seed is of --order shuffled: give that");
  plan.settings.backend = device.backend;
  plan.warmup = options.warmup.value_or(usual.warmup.value_or(preset.warmup));
  if (plan.settings.until_loss) plan.warmup = std::min<int64_t>(plan.warmup, plan.settings.eval_every - 1);
  plan.stopping = stopping_of(options, options.seeds.value_or(usual.rounds.value_or(preset.rounds)));
  plan.order = options.order;
  plan.order_seed = options.order_seed;
  if (plan.warmup >= plan.settings.steps)
    throw InputError(cat(options.warmup ? "" : "the usual ", "--warmup ", plan.warmup,
                         " leaves none of --steps ", plan.settings.steps,
                         " to time: give a smaller --warmup"));
  plan.device = device;
  plan.timeout_s = options.timeout;
  plan.devices_present = probe.devices;
  plan.devices = options.devices;
  plan.launcher = options.launcher;
  check_devices(plan);
  check_workload(plan);
  if (options.check_only) return;
  for (const Program& program : plan.programs)
    if (!plan.source_hashes.contains(program.variant))
      plan.source_hashes[program.variant] = program.source_hash();
  plan.own_batch.merge(own_batches(plan, preset.max_batch));
}

int measure(const MeasureOptions& options, Plan plan) {
  return measure(options, std::move(plan), require_device(options.rung.backend, options.rung.device));
}

int measure(const MeasureOptions& options, Plan plan, const DeviceProbe& probe) {
  if (options.resume && options.overwrite) throw InputError("--resume and --overwrite contradict each other");
  complete(plan, options, probe);
  if (options.check_only) return kExitOk;
  if (options.retry_failed && !options.resume)
    throw InputError("--retry-failed runs again what failed in a file that --resume goes on with");
  const Existing existing = options.retry_failed ? Existing::retry
                            : options.resume     ? Existing::resume
                            : options.overwrite  ? Existing::overwrite
                                                 : Existing::refuse;
  if (probe.telemetry.contains("missing"))
    notice(cat("clocks, power and temperature stay unknown: ",
               printable(probe.telemetry["missing"].get<std::string>(), 300)));
  const InterruptGuard guard;
  Json context = machine_context(probe);
  if (!plan.ladder.built_in()) {  // the trainers are of the ladder's commit
    context["stepladder_commit"] = context["commit"];
    context["commit"] = commit_of(plan.ladder);
  }
  if (existing == Existing::refuse || existing == Existing::overwrite)
    check_same_kind(options.out, "results");
  ResultsFile file(options.out, context, plan.json(), existing, options.part);
  if (const std::string busy = busy_note(context); !busy.empty()) notice(busy);
  if (plan.settings.until_loss)
    for (const Program& program : plan.programs)
      if (!is_told(program, "seed"))
        notice(program.variant + ": its command has no {seed}, so each round may train from the same one");
  const size_t runs_before = file.results().runs.size();
  Json stopped;
  try {
    stopped = carry_out(plan, file);
  } catch (const Interrupted& e) {
    file.interrupt(128 + e.signal);
    notice(file.begun() ? cat("interrupted; ", counted(std::ssize(file.results().runs), "finished run"),
                              " kept in ", place_of(options), ": ",
                              options.brief ? "the same command with --resume"
                                            : cat("`", resuming(file.results(), place_of(options)), "`"),
                              " goes on")
                        : cat("interrupted before a run was finished: ", options.out, " is as it was"));
    return 128 + e.signal;
  }
  const bool late = text_at(stopped, "reason") == "max_time";
  if (text_at(stopped, "reason") == "failed" && exit_code_of(file.results()) == kExitFailed)
    notice(cat("every rung has failed in some round, so no further one begins: `",
               resuming(file.results(), place_of(options), {"--retry-failed"}), "` runs those again"));
  file.finish(std::move(stopped), exit_code_of);
  const Findings findings(file.results());
  if (options.brief)
    for (const Certificate& c : findings.certificates)
      std::cout << options.part << ": " << c.found() << ": " << c.verdict() << std::endl;
  else
    std::cout << section_of(findings).terminal(options.wide) << besides_steps(file.results().runs)
              << rounds_more(findings, options) << "\nwrote " << printable(options.out, kMaxMessage)
              << std::endl;
  const auto& runs = file.results().runs;
  if (late && runs.size() == runs_before)
    notice(
        "nothing more was measured: the runs that are there have taken what --max-time gives them all; a "
        "longer one goes on");
  if (const auto missed = std::ranges::count_if(runs, missed_its_loss); missed > 0 && !options.brief)
    notice(cat("the validation loss of ", number_text(*options.until_loss), " was not reached in ", missed,
               " of ", runs.size(), " runs: ",
               plan.tuned.empty() ? "raise --max-steps or --until-loss"
                                  : "raise --until-loss, or tune longer schedules"));
  const int code = exit_code_of(file.results());
  return options.certify_loss && code == kExitOk ? exit_code(findings.certificates) : code;
}

}  // namespace stepladder
