#include <algorithm>
#include <memory>

#include "bench/ablation.h"
#include "bench/commands.h"
#include "bench/ladder.h"
#include "bench/measure.h"

namespace stepladder {
namespace {

struct AblateOptions {
  std::vector<std::string> rungs = {"all"}, kinds = {kWithout, kOnly};
  MeasureOptions measure;

  AblateOptions() { measure.out = "reports/latest/ablation.json"; }

  std::vector<Option> options() {
    constexpr const char* kPlan = MeasureOptions::kPlan;
    return measure.options({
        {"rungs", &rungs, "LIST", "which to ablate, such as 03,07_flash_attention, or all", kPlan},
        {"kinds",
         &kinds,
         "LIST",
         "leave out of the tuned trainer, or add alone to the first",
         kPlan,
         0,
         0,
         {kWithout, kOnly}},
    });
  }
};

int ablate(const AblateOptions& options, const std::string& command_line) {
  std::vector<Rung> rungs = chosen_rungs(options.rungs);
  if (options.rungs == std::vector<std::string>{"all"}) rungs.erase(rungs.begin());
  Plan plan;
  std::vector<std::string> kinds;
  for (const char* kind : {kWithout, kOnly})
    if (std::count(options.kinds.begin(), options.kinds.end(), kind) > 0) kinds.emplace_back(kind);
  plan.programs = ablation_programs(rungs, kinds);
  std::vector<std::string> names;
  for (const Rung& rung : rungs) names.push_back(rung.name);
  plan.ablate = {{"rungs", names}, {"kinds", kinds}};
  return measure(options.measure, std::move(plan), command_line);
}

}  // namespace

void add_ablate_command(CLI::App& app, const std::string& command_line, int& exit_code) {
  auto options = std::make_shared<AblateOptions>();
  CLI::App* command = app.add_subcommand("ablate", "measure each rung left out, and each alone");
  add_help(*command, "");
  add_options(*command, options->options());
  command->callback([options, command_line, &exit_code] { exit_code = ablate(*options, command_line); });
}

}  // namespace stepladder
