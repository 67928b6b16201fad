#include <memory>

#include "bench/commands.h"
#include "bench/measure.h"

namespace stepladder {
namespace {

struct RunOptions {
  std::vector<std::string> rungs = {"all"}, peers;
  std::string peer_python = "python3";
  MeasureOptions measure;

  std::vector<Option> options() {
    constexpr const char* kPlan = MeasureOptions::kPlan;
    return measure.options({
        {"rungs", &rungs, "LIST", "such as 00,02_tf32, or all", kPlan},
        {"peer", &peers, "PEER", "measure beside our rungs: pytorch, or llmc=PATH of train_gpt2cu", kPlan},
        {"peer-python", &peer_python, "PATH", "a Python with PyTorch", kPlan},
    });
  }
};

int run(const RunOptions& options, const std::string& command_line) {
  Plan plan;
  plan.programs = programs(chosen_rungs(options.rungs), options.peers, options.peer_python);
  if (!options.measure.batch.empty())  // which then is everyone's
    for (Program& program : plan.programs) program.batch = BatchSize::usual;
  return measure(options.measure, std::move(plan), command_line);
}

}  // namespace

void add_run_command(CLI::App& app, const std::string& command_line, int& exit_code) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "climb the ladder and measure each rung");
  add_help(*command, "");
  add_options(*command, options->options());
  command->callback([options, command_line, &exit_code] { exit_code = run(*options, command_line); });
}

}  // namespace stepladder
