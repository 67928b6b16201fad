#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>

#include "bench/base/place.h"
#include "bench/base/text.h"
#include "bench/cli/commands.h"
#include "bench/cli/measure.h"
#include "bench/plan/ladder_file.h"
#include "bench/report/ablation.h"
#include "bench/results/rounds.h"
#include "bench/run/child.h"
#include "bench/run/machine.h"
#include "bench/run/placeholders.h"
#include "bench/run/runner.h"
#include "bench/verdict/learning.h"

namespace stepladder {
namespace {

struct CheckOptions {
  std::string ladder, python = "python3";
  std::optional<std::string> model, data;
  std::optional<int64_t> batch, seq;
  int64_t steps = 3;
  double timeout = 300.0;
  std::vector<std::string> rungs = {"all"}, command;

  std::vector<Option> options() {
    const char* group = "Check";
    return {{"ladder", &ladder, "FILE", "check its rungs, in place of a command", group},
            {"rungs", &rungs, "LIST", "of the ladder, such as 01,02_tf32, 02-05, or all", group},
            {"batch", &batch, "N", "what {batch} stands for; default: the ladder's, or 4", group,
             Allowed{1, kMaxWorkload}},
            {"seq", &seq, "N", "what {seq} stands for; default: the ladder's, or 64", group, {1, 1 << 20}},
            {"steps", &steps, "N", "what {steps} stands for", group, {1, 1000}},
            {"model", &model, "NAME", "what {model} stands for; default: the ladder's, or gpt2-tiny", group},
            {"data", &data, "PATH", "what {data} stands for", group},
            {"python", &python, "PATH", "what {python} stands for", group},
            {"timeout", &timeout, "SECONDS", "when to end it", group, {0.001, 1e9}}};
  }
};

constexpr const char* kCommand = "check";  // the name of the ladder made from a bare command

/// A command as a ladder of one rung, in the current folder.
Ladder ladder_of_command(const std::vector<std::string>& command) {
  for (const std::string& word : command) check_placeholders(word);
  const Json row = {{"name", "trainer"}, {"changes", ""}, {"command", command}};
  return ladder_from({{"name", kCommand}, {"rungs", {row}}}, std::filesystem::current_path());
}

using Rows = std::vector<std::pair<std::string, std::string>>;

std::string times_of(const Run& run) {
  std::vector<std::string> times;
  for (const Step& step : run.steps) times.push_back(sized(step.step_ms));
  constexpr size_t kShown = 5;
  const bool more = times.size() > kShown;
  times.resize(std::min(times.size(), kShown));
  return join(times, ", ") + (more ? ", ..." : "") + " ms";
}

/// Table rows of what the trainer told in a run that is ok.
Rows told(const Run& run) {
  const Memory& memory = run.summary->memory;
  const int64_t peak = std::max(memory.live_peak, memory.process_peak);
  return {{"backend", run.backend},
          {"B, T", cat(run.config.at("B").dump(), ", ", run.config.at("T").dump())},
          {"steps", std::to_string(run.steps.size())},
          {"step times", times_of(run)},
          {"loss", cat(number_text(*run.steps.front().loss), " to ", number_text(*run.steps.back().loss))},
          {"memory", peak > 0 ? bytes_text(peak) : "not told"},
          {"start-up", cat(fixed(run.summary->startup_ms, 0), " ms")}};
}

/// Table rows of what the trainer can be used for as it is, and what to add for the rest. `ignores_seed`:
/// whether it learned the same from another seed.
Rows uses_of(const Run& run, const Program& program, const Ladder& ladder, bool ignores_seed) {
  const bool of_file = ladder.name != kCommand;
  const std::string file = of_file ? "its ladder file" : "a ladder file",
                    yes = of_file ? "yes" : "yes, from a ladder file (docs/own-trainer.md)";
  const bool held_to_a_loss = std::isfinite(program.tolerance),
             tuned = is_told(program, "lr") && is_told(program, "steps");
  return {
      {"run", yes},
      {"gate", held_to_a_loss ? yes : cat("yes; losses are not compared: \"tolerance\" in ", file)},
      {"run --until-loss, --seeds",
       run.evaluations.empty()    ? cat("no validation loss came: after a step, ", kTellsValidationLoss)
       : ignores_seed             ? "no: it learns the same to the bit from two seeds"
       : is_told(program, "seed") ? "yes"
                                  : "yes; all rounds train from one seed: {seed} in its command"},
      {"tune", run.evaluations.empty() ? "no: by a validation loss"
               : tuned                 ? "yes"
                                       : "no: {lr} and {steps} in its command"},
      {"ablate", ladder.switches.empty() ? cat("no: \"switches\" in ", file, ", {switches} in its command")
                                         : cat("yes: switches ", join(ladder.switch_names(), ", "))}};
}

/// Names a stepladder.py that Python finds before the harness's: beside the script, or for `python -m` in the
/// working directory. "" where there is none.
std::string shadowing_module(const Program& program) {
  namespace fs = std::filesystem;
  const auto script =
      std::ranges::find_if(program.command, [](const std::string& word) { return word.ends_with(".py"); });
  fs::path folder = program.folder.empty() ? fs::current_path() : fs::path(program.folder);
  if (script != program.command.end()) folder = (folder / *script).parent_path();
  const fs::path copy = folder / "stepladder.py", ours = fs::path(trainer_module_dir()) / "stepladder.py";
  std::error_code none;
  if (!fs::exists(copy, none) || fs::equivalent(copy, ours, none)) return "";
  return cat(copy.string(),
             " is imported in place of ours, which may be another: remove it, the harness puts ",
             ours.parent_path().string(), " on PYTHONPATH");
}

/// Notes on what is not wrong, but worth a change.
std::vector<std::string> advice(const Run& run, const Program& program, const WorkloadDefaults& asked) {
  std::vector<std::string> lines;
  if (run.steps.size() > 1 && run.steps.front().loss == run.steps.back().loss)
    lines.emplace_back("its loss is the same at the first and the last step: does it train, on new batches?");
  if (run.summary->memory.live_peak + run.summary->memory.process_peak == 0)
    lines.emplace_back("its end has no memory_bytes: tables and the gate know nothing of its memory");
  for (const std::string& odd :
       {little_covered(*run.summary), asked.model ? missing_math(program.math, run.config) : "",
        contradicted_math(program.math, run.config)})
    if (!odd.empty()) lines.push_back(odd);
  if (run.lingered)
    lines.push_back(cat("it did not end within ", kLingering,
                        " s of telling its end, and was ended: each run of it takes that much longer"));
  for (const char* name : {"batch", "seq"})
    if (!is_told(program, name))
      lines.push_back(cat("its command has no {", name, "}: --", name, " can't change what it does"));
  return lines;
}

/// Runs a program and prints the outcome; `brief` leaves out what a run that is ok told. Its losses are held
/// to those of rung `first` among the runs `finished`, to which it is added. Returns whether it is ok.
bool check_one(Plan& plan, const Program& program, const std::string& first, std::vector<Run>& finished,
               bool brief = false) {
  plan.source_hashes[program.variant] = program.source_hash();
  const WorkloadDefaults& asked = plan.ladder.workload;
  const auto workload_of = [&](int64_t round) {
    Workload workload = workload_for(plan, program, plan.batch.front(), round, program.devices);
    // Accept the batch and length that a command has built in, unless others were asked for.
    if (asked.batch.empty() && !is_told(program, "batch")) workload.config.erase("B");
    if (!asked.seq && !is_told(program, "seq")) workload.config.erase("T");
    return workload;
  };
  const Workload workload = workload_of(0);
  std::cout << program.variant << ": " << printable(shell_line(workload.command), kMaxMessage) << std::endl;
  Run run = run_program(workload, [](const Step&) {});
  const bool ended_well = run.status == Status::ok;
  check_learning(run, program.tolerance, first, finished);
  const bool good = run.status == Status::ok;
  if (ended_well && !good) run.reason += "; leave \"tolerance\" out where seed or data differ between rungs";
  finished.push_back(run);
  std::vector<std::string> notes;
  if (!good) {
    std::cout << "wrong (" << name_of(run.status) << "): " << printable(run.reason, kMaxMessage) << "\n";
    if (!run.stderr_tail.empty())
      std::cout << "its last words on stderr:\n" << without_controls(run.stderr_tail, "\n");
  } else if (!brief) {
    bool same_from_two_seeds = false;
    if (!run.evaluations.empty() && is_told(program, "seed")) {
      const Run other = run_program(workload_of(1), [](const Step&) {});  // a round has a seed of its own
      same_from_two_seeds = other.status == Status::ok && ignores_seed({{0, &run}, {1, &other}});
    }
    std::cout << box(told(run)) << "ready for\n"
              << box(uses_of(run, program, plan.ladder, same_from_two_seeds));
    notes = advice(run, program, asked);
  }
  if (const std::string other = shadowing_module(program); !other.empty() && !brief) notes.push_back(other);
  for (const std::string& line : notes) std::cout << "note: " << printable(line, kMaxMessage) << "\n";
  std::cout << (good ? "ok\n" : "") << std::endl;
  return good;
}

/// Whether runs were ok, by the program's command and environment.
using Checked = std::map<std::pair<std::vector<std::string>, std::vector<std::string>>, bool>;

/// Checks a ladder file's trainer as `ablate` starts it: with each switch alone and, of those that are fine
/// alone, with each left out, unless some exclude each other. Says which switches break it. Returns whether
/// none does.
bool check_each_switch(Plan& plan, const std::string& python, std::vector<Run>& finished, Checked& checked) {
  const Ladder& file = plan.ladder;
  const auto broken = [&](const std::vector<std::string>& names, const char* kind) {
    Ladder ladder = file;
    ladder.rungs = rungs_of_switches(file, names, {kind});
    std::vector<std::string> variants;
    for (const Program& program : programs(ladder, {"all"}, {}, python)) {
      const auto [outcome, is_new] = checked.try_emplace({program.command, program.environment}, false);
      const bool is_there = std::ranges::find(finished, kAllOff, &Run::variant) != finished.end();
      const std::string first = is_there ? kAllOff : file.rungs.front().name;  // which may be all off
      if (is_new) outcome->second = check_one(plan, program, first, finished, /*brief=*/true);
      if (!outcome->second) variants.push_back(program.variant);
    }
    return variants;
  };
  std::vector<std::string> fine, wrong;
  for (const std::string& name : file.switch_names()) {
    const std::vector<std::string> variants = broken({name}, kOnly);
    if (variants.empty())
      fine.push_back(name);
    else if (variants.front() == kAllOff)
      return false;
    else
      wrong.push_back(cat("the switch ", name, " breaks it"));
  }
  if (std::ranges::all_of(file.switches, [](const Switch& one) { return one.excludes.empty(); })) {
    std::vector<std::string> left_out = broken(fine, kWithout);  // breaking variants: all on, or one left out
    for (std::string& variant : left_out) variant.erase(0, variant.find('/') + 1);
    if (std::erase(left_out, kAllOn) == 0) {
      for (const std::string& name : left_out) wrong.push_back(cat("it needs the switch ", name));
    } else {
      std::vector<std::string> clash = fine;
      std::erase_if(clash, [&](const std::string& name) { return std::ranges::count(left_out, name) > 0; });
      wrong.push_back(cat("it breaks with ", join(clash.empty() ? fine : clash, ", "), " together"));
    }
  }
  for (const std::string& line : wrong) std::cout << "wrong: " << line << std::endl;
  return wrong.empty();
}

/// Checks that there is either a command or a ladder. Throws InputError.
void check_words(const CheckOptions& options) {
  if (options.ladder.empty() && options.command.empty())
    throw InputError("which trainer? stepladder check-trainer COMMAND..., or --ladder FILE");
  if (!options.command.empty() && options.command.front().starts_with('-'))
    throw InputError(cat(printable(options.command.front(), 60),
                         ": no option of check-trainer, which go before the command"));
  if (options.ladder.empty() && options.command.front().ends_with(".json"))
    throw InputError(cat(printable(options.command.front(), 60), ": a ladder file is given by --ladder"));
  if (!options.ladder.empty() && !options.command.empty())
    throw InputError(cat(printable(options.command.front(), 60),
                         ": --ladder has the commands; --rungs LIST says which of them"));
  if (options.ladder.empty() && options.rungs != CheckOptions().rungs)
    throw InputError("--rungs: are of a ladder: give --ladder FILE too");
}

/// Checks that some command has the placeholder of a --model or --data that was given. Throws InputError.
void check_told(const CheckOptions& options, const std::vector<Program>& programs) {
  for (const auto& [name, given] :
       {std::pair("model", options.model.has_value()), std::pair("data", options.data.has_value())})
    if (given &&
        std::ranges::none_of(programs, [name = name](const Program& one) { return is_told(one, name); }))
      throw InputError(cat("--", name, ": no command of these has {", name, "}"));
}

int check_trainer(CheckOptions& options) {
  check_words(options);
  Plan plan;
  plan.ladder = options.ladder.empty() ? ladder_of_command(options.command) : load_ladder(options.ladder);
  plan.programs = programs(plan.ladder, options.rungs, {}, options.python);
  check_told(options, plan.programs);
  WorkloadDefaults& asked = plan.ladder.workload;
  if (options.batch) asked.batch = {*options.batch};
  if (options.seq) asked.seq = options.seq;
  if (options.model) asked.model = options.model;
  constexpr int64_t kSmallBatch = 4, kShortSeq = 64;
  plan.batch = {asked.batch.empty() ? kSmallBatch : asked.batch.front()};
  plan.settings.seq = asked.seq.value_or(kShortSeq);
  plan.settings.model = asked.model.value_or("gpt2-tiny");
  plan.settings.steps = options.steps;
  plan.settings.until_loss = 0.0;  // never reached: shows whether the trainer evaluates
  plan.settings.eval_every = static_cast<int>(options.steps);
  if (options.data) plan.settings.data = *options.data;
  const DeviceProbe probe = probe_device("auto", 0);
  plan.settings.backend = probe.error.empty() ? probe.device.backend : "cpu";
  plan.device = probe.device;
  plan.timeout_s = options.timeout;
  const InterruptGuard guard;
  bool good = true;
  std::vector<Run> finished;
  Checked checked;
  for (const Program& program : plan.programs)
    good &= checked[{program.command, program.environment}] =
        check_one(plan, program, plan.ladder.rungs.front().name, finished);
  if (plan.ladder.switched && options.rungs == CheckOptions().rungs)
    good &= check_each_switch(plan, options.python, finished, checked);
  return good ? kExitOk : kExitFailed;
}

}  // namespace

Command check_trainer_command() {
  const auto options = std::make_shared<CheckOptions>();
  return {.name = "check-trainer",
          .about =
              "is a trainer of your own fit to be measured? Runs it for three steps, from two seeds if it "
              "evaluates, and says what is wrong",
          .options = options->options(),
          .run = [options] { return check_trainer(*options); },
          .footer =
              "stepladder check-trainer [OPTION]... COMMAND...; docs/trainer-reference.md says what it must "
              "tell.",
          .rest = &options->command};
}

}  // namespace stepladder
