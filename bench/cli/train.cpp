#include <filesystem>

#include "bench/base/options.h"
#include "bench/cli/commands.h"
#include "bench/plan/ladder.h"
#include "bench/run/child.h"
#include "bench/run/machine.h"

namespace stepladder {
namespace {

/// A subcommand that takes a rung and hands everything after it to the rung's executable.
void add_rung_command(CLI::App& app, const std::string& name, const std::string& about,
                      const std::vector<std::string>& first_arguments) {
  CLI::App* command = app.add_subcommand(name, about);
  add_help(*command, "");
  command->footer(cat("stepladder ", name, " RUNG [OPTION]...; --help after RUNG lists its options, and ",
                      "`stepladder list` the rungs."));
  command->prefix_command();
  command->callback([command, name, first_arguments] {
    std::vector<std::string> rest = command->remaining();
    if (rest.empty() || rest.front().starts_with("-"))
      throw InputError(cat("which rung? stepladder ", name, " RUNG [OPTION]..., for example stepladder ",
                           name, " ", ladder().front().name));
    const std::string rung = find_rung(rest.front()).name;
    std::vector<std::string> arguments = {(std::filesystem::path(bin_dir()) / rung).string()};
    arguments.insert(arguments.end(), first_arguments.begin(), first_arguments.end());
    arguments.insert(arguments.end(), rest.begin() + 1, rest.end());
    exec(arguments);
  });
}

}  // namespace

void add_train_command(CLI::App& app) {
  add_rung_command(app, "train", "train with one rung, by itself", {});
}

void add_sample_command(CLI::App& app) {
  add_rung_command(app, "sample", "sample text with one rung from a checkpoint", {"--steps", "0"});
}

}  // namespace stepladder
