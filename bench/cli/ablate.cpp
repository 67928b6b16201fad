#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "bench/base/text.h"
#include "bench/cli/commands.h"
#include "bench/cli/measure.h"
#include "bench/plan/ladder_file.h"
#include "bench/plan/programs.h"
#include "bench/report/ablation.h"
#include "model/error.h"

namespace stepladder {
namespace {

struct AblateOptions {
  std::vector<std::string> kinds = {kWithout, kOnly};
  bool pairs = false;
  MeasureOptions measure;

  AblateOptions() { measure.out = "reports/latest/ablation.jsonl"; }

  std::vector<Option> options() {
    constexpr const char* kPlan = MeasureOptions::kPlan;
    return measure.options(
        measure.ladder_options() +
        std::vector<Option>{
            {"kinds", &kinds, "LIST", "leave out of the tuned trainer, or add alone to the first", kPlan,
             Allowed{kWithout, kOnly}},
            {"pairs", &pairs, "", "with --ladder: also each two switches alone, for how they interact",
             kPlan}});
  }
};

bool can_be_ablated(const Rung& rung) {
  return !rung.beside && rung.devices == 1;
}

const Ablation& find_ablation(std::string_view name) {
  if (ablations().empty())
    throw Error(
        "this build has no ablations, since it found no git to merge them with: install git, configure "
        "and build again");
  const Ablation* found = listed_ablation(name);
  check(found != nullptr, "no ablation ", name);
  return *found;
}

/// The plan of an ablation: the first and the tuned rung, `rungs` and the rungs before them, and the
/// ablations, each next to its reference.
Plan plan_of(const Ladder& ladder, const std::vector<Rung>& rungs, const std::vector<std::string>& kinds) {
  const Rung &first = ladder.rungs.front(), &tuned = tuned_rung(ladder);
  std::set<std::string> climbed = {first.name, tuned.name};
  std::vector<std::string> names;
  std::map<std::string, std::vector<Program>> programs;  // programs by kind of ablation
  Json unchanged = Json::object();
  for (const Rung& rung : rungs) {
    if (rung.parent.empty())
      throw InputError(cat("--rungs: ", rung.name, " has no optimisation to ablate: name a rung above it"));
    if (!can_be_ablated(rung))
      throw InputError(cat("--rungs: ", rung.name,
                           rung.beside ? " stands beside the ladder" : " trains on several devices",
                           ": measure it with stepladder run"));
    names.push_back(rung.name);
    climbed.insert({rung.name, rung.parent});
    for (const std::string& kind : kinds) {
      if (rung.batch == BatchSize::largest) {
        // `only` is the first rung at the largest batch that fits; `without` needs no program: at the usual
        // batch, the tuned rung is measured anyway.
        if (kind != kOnly) continue;
        Program& program = programs[kind].emplace_back(program_of(first));
        program.variant = cat(kOnly, "/", rung.name);
        program.batch = BatchSize::largest;
        continue;
      }
      const Ablation& ablation = find_ablation(kind + "/" + rung.name);
      if (const std::string why = ablation.unchanged(); !why.empty()) {
        unchanged[ablation.name] = why;
        continue;
      }
      // Add the ablation's reference too, where the reference is an ablation itself.
      for (const std::string& name : {ablation.reference.name, ablation.name}) {
        if (is_ablation(name) && std::ranges::count(programs[kind], name, &Program::variant) == 0)
          programs[kind].push_back(program_of(find_ablation(name)));
      }
    }
  }
  Plan plan;
  plan.ladder = ladder;
  for (const Rung& rung : ladder.rungs) {
    if (!climbed.contains(rung.name)) continue;
    if (rung.name == tuned.name) append(plan.programs, programs[kWithout]);
    plan.programs.push_back(program_of(rung));
    if (rung.name == first.name) append(plan.programs, programs[kOnly]);
  }
  plan.ablate = {{"rungs", names}, {"kinds", kinds}, {"unchanged", unchanged}};
  return plan;
}

/// The plan of ablating a ladder file's switches: all off, each alone, each two alone, each left out, all on;
/// the switches that --rungs doesn't name stay off.
Plan plan_of_switches(const AblateOptions& options) {
  const Ladder file = load_ladder(options.measure.ladder);
  if (!file.switched)
    throw InputError(
        cat("--ladder ", options.measure.ladder,
            ": it has no \"switches\" and \"command\", which are what is ablated: docs/own-trainer.md"));
  std::vector<std::string> names = file.switch_names();
  if (const std::vector<std::string>& asked = options.measure.rungs;
      asked != std::vector<std::string>{"all"}) {
    for (const std::string& name : asked)
      if (std::ranges::count(names, name) == 0)
        throw InputError(cat("--rungs: no switch of ", file.name, " is called ", printable(name, 60)));
    std::erase_if(names, [&](const std::string& name) { return std::ranges::count(asked, name) == 0; });
  }

  Ladder ladder = file;
  std::vector<std::string> kinds = options.kinds;
  if (options.pairs) kinds.emplace_back(kBoth);
  ladder.rungs = rungs_of_switches(file, names, kinds);

  Plan plan;
  plan.ladder = ladder;
  plan.programs = programs(ladder, {"all"}, {}, options.measure.python);
  std::erase_if(plan.ladder.rungs, [](const Rung& rung) { return is_ablation(rung.name); });
  plan.ablate = {{"rungs", names}, {"kinds", options.kinds}, {"unchanged", Json::object()}};
  return plan;
}

int ablate(AblateOptions& options) {
  const std::string& asked = options.measure.ladder;
  const Ladder* ours = our_ladder(asked.empty() ? ladder().name : asked);
  if (!ours) return measure(options.measure, plan_of_switches(options));
  if (options.pairs) throw InputError("--pairs is of the switches of a ladder file: give one by --ladder");
  std::vector<Rung> rungs = ours->chosen(options.measure.rungs);
  if (options.measure.rungs == std::vector<std::string>{"all"})
    std::erase_if(rungs, [](const Rung& rung) { return rung.parent.empty() || !can_be_ablated(rung); });
  if (rungs.empty())
    throw InputError(cat("--ladder ", ours->name,
                         ": it has no rung above its first to ablate; leave it out for the ladder of time"));
  std::vector<std::string> kinds;
  for (const char* kind : {kWithout, kOnly})
    if (std::ranges::count(options.kinds, kind) > 0) kinds.emplace_back(kind);
  return measure(options.measure, plan_of(*ours, rungs, kinds));
}

}  // namespace

Command ablate_command() {
  return command<AblateOptions>("ablate", "measure each rung left out, and each alone", ablate,
                                kUsualOptions);
}

}  // namespace stepladder
