#include <chrono>
#include <filesystem>
#include <memory>

#include "bench/child.h"
#include "bench/commands.h"
#include "bench/machine.h"
#include "bench/pairs.h"
#include "bench/text.h"
#include "bench/verdict_options.h"
#include "model/atomic_file.h"

namespace stepladder {
namespace {

namespace fs = std::filesystem;

struct GateOptions {
  std::string base, next;
  std::vector<std::string> rungs = {"all"};
  int64_t pairs = 5, max_pairs = 20;
  double max_time = 1e9;  // seconds
  std::string results = "reports/gate";
  MeasureOptions measure;
  VerdictOptions verdict;

  std::vector<Option> options() {
    const char* plan = MeasureOptions::kPlan;
    auto all = measure.workload_options(
        {{"rungs", &rungs, "LIST", "such as 00,02_tf32, or all", plan},
         {"pairs", &pairs, "N", "before the first look", plan, kMinPairs, 1000},
         {"max-pairs", &max_pairs, "N", "when to give up", plan, kMinPairs, 1000},
         {"max-time", &max_time, "SECONDS", "starts no further pair after that", plan, 0, 1e9}});
    all.push_back({"results", &results, "DIR", "base.json and new.json, replaced", MeasureOptions::kFiles});
    const auto last = verdict.options();
    all.insert(all.end(), last.begin(), last.end());
    return all;
  }
};

/// The chosen rungs that both folders have; `missing` gets what only one has.
std::vector<Rung> common_rungs(const GateOptions& options, std::vector<std::string>& missing) {
  for (const std::string& folder : {options.base, options.next})
    if (!fs::is_directory(folder)) throw InputError(cat(folder, " is no folder: name a build's bin/"));
  std::vector<Rung> rungs;
  for (const Rung& rung : chosen_rungs(options.rungs)) {
    const bool base = fs::exists(fs::path(options.base) / rung.name);
    const bool next = fs::exists(fs::path(options.next) / rung.name);
    if (base && next)
      rungs.push_back(rung);
    else if (base || next || options.rungs != std::vector<std::string>{"all"})
      missing.push_back(cat(rung.name, base   ? " is missing in NEW: not compared."
                                       : next ? " is missing in BASE: not compared."
                                              : " is missing in both folders: not compared."));
  }
  if (rungs.empty())
    throw Error(cat("not comparable: ", options.base, " and ", options.next, " have no rung in common"),
                kExitNotComparable);
  return rungs;
}

/// Of the build in `folder`. Whose sources it was made of only the running build's own folder tells.
Json context_of(const std::string& folder, const std::string& command_line, const DeviceProbe& probe) {
  Json context = machine_context(command_line, probe);
  std::error_code none;
  if (!fs::equivalent(folder, bin_dir(), none)) context["commit"] = "";
  context["bin_dir"] = folder;
  return context;
}

Side side_of(const GateOptions& options, const std::string& folder, const std::vector<Rung>& rungs,
             const DeviceProbe& probe, const Plan* other) {
  Side side;
  for (const Rung& rung : rungs) {
    Program program = program_of(rung, folder);
    // A batch that is looked for is BASE's: the two do the same work or can't be compared.
    if (other || !options.measure.batch.empty()) program.batch = BatchSize::usual;
    side.plan.programs.push_back(std::move(program));
  }
  complete(side.plan, options.measure, probe);
  if (other) side.plan.own_batch = other->own_batch;
  side.plan.stopping.rounds = options.max_pairs;
  return side;
}

/// Adds pairs until every row has a verdict, the pairs are used up, or time is.
Comparison measure(const GateOptions& options, const Side& base, const Side& next, PairedRuns& pairs,
                   const Limits& limits) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto first = static_cast<size_t>(options.pairs);
  Looks looks(first, static_cast<size_t>(options.max_pairs), limits);
  for (;;) {
    pairs.measure_pair();
    const bool late = std::chrono::duration<double>(Clock::now() - start).count() > options.max_time;
    if (pairs.pairs() < first && !late && !pairs.exhausted()) continue;
    Comparison comparison = looks.look(base.results, next.results, pairs.pairs());
    for (const ComparedRow& row : comparison.rows)
      if (row.judgement != Judgement::inconclusive) pairs.set_done({row.variant, row.workload});
    if (!late && !pairs.exhausted()) continue;
    if (late && overall(comparison.rows) == Judgement::inconclusive)
      comparison.notes.push_back(cat("--max-time was up after ", pairs.pairs(), " pairs."));
    return comparison;
  }
}

int gate(const GateOptions& options, const std::string& command_line) {
  if (options.max_pairs < options.pairs)
    throw InputError(cat("--max-pairs ", options.max_pairs, " is less than --pairs ", options.pairs));
  std::vector<std::string> missing;
  const std::vector<Rung> rungs = common_rungs(options, missing);
  const DeviceProbe probe = probe_device(options.measure.rung.backend, options.measure.rung.device);
  if (!probe.error.empty()) throw Error(probe.error);
  if (!options.verdict.out.empty()) AtomicFile writable(options.verdict.out);

  Side base = side_of(options, options.base, rungs, probe, nullptr);
  Side next = side_of(options, options.next, rungs, probe, &base.plan);
  const InterruptGuard guard;
  for (auto [side, name] : {std::pair(&base, "base"), std::pair(&next, "new")}) {
    const std::string& folder = side == &base ? options.base : options.next;
    side->results.context = context_of(folder, command_line, probe);
    side->results.plan = side->plan.json();
    side->results.complete = true;
    side->file =
        std::make_unique<ResultsFile>(cat(options.results, "/", name, ".json"), side->results.context,
                                      side->results.plan, Existing::overwrite);
  }
  const Limits limits = options.verdict.limits(base.results.context, base.results.plan);
  PairedRuns pairs(base, next, probe.device.name, options.measure.timeout);
  Comparison comparison = measure(options, base, next, pairs, limits);
  base.file->finish();
  next.file->finish();
  comparison.base = cat(options.base, ", ", comparison.base);
  comparison.next = cat(options.next, ", ", comparison.next);
  comparison.notes.insert(comparison.notes.end(), missing.begin(), missing.end());
  return options.verdict.deliver(std::move(comparison));
}

}  // namespace

void add_gate_command(CLI::App& app, const std::string& command_line, int& exit_code) {
  auto options = std::make_shared<GateOptions>();
  CLI::App* command =
      app.add_subcommand("gate", "measures two builds in turns until it is clear whether one is slower");
  add_help(*command, "");
  command->add_option("BASE_BIN", options->base, "bin/ of the build to compare with")
      ->required()
      ->type_name("");
  command->add_option("NEW_BIN", options->next, "bin/ of the build that is judged")
      ->required()
      ->type_name("");
  add_options(*command, options->options());
  command->callback([options, command_line, &exit_code] { exit_code = gate(*options, command_line); });
}

}  // namespace stepladder
