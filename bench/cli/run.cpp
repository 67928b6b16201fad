#include "bench/cli/commands.h"
#include "bench/cli/measure.h"
#include "bench/plan/ladder_file.h"
#include "bench/plan/presets.h"

namespace stepladder {
namespace {

struct RunOptions {
  std::vector<std::string> peers;
  std::string scaling = "weak";
  bool independent_ranks = false;
  MeasureOptions measure;

  std::vector<Option> options() {
    constexpr const char* kPlan = MeasureOptions::kPlan;
    return measure.options(
        measure.ladder_options() +
        std::vector<Option>{
            {"peer", &peers, "PEER",
             "another ladder to measure beside it: pytorch, llmc=PATH of train_gpt2cu, stepladder, or its "
             "file",
             kPlan}} +
        measure.device_options() +
        std::vector<Option>{
            {"scaling", &scaling, "NAME", "--batch is each device's, or shared by all of them", kPlan,
             Allowed{"weak", "strong"}},
            {"independent-ranks", &independent_ranks, "",
             "also each of several devices by itself at the same time: tells slow devices from communication",
             kPlan},
        });
  }
};

int run(RunOptions& options) {
  Plan plan;
  plan.scaling = options.scaling;
  plan.independent_ranks = options.independent_ranks;
  const MeasureOptions& asked = options.measure;
  plan.ladder = ladder_at(asked.ladder.empty() ? ladder_file(asked.preset) : asked.ladder);
  plan.programs = programs(plan.ladder, asked.rungs, options.peers, asked.python);
  return measure(asked, std::move(plan));
}

}  // namespace

Command run_command() {
  return command<RunOptions>("run", "climb the ladder and measure each rung", run, kUsualOptions);
}

}  // namespace stepladder
