#include <filesystem>

#include "bench/base/text.h"
#include "bench/cli/commands.h"
#include "bench/plan/ladder.h"
#include "bench/plan/programs.h"
#include "bench/run/child.h"
#include "bench/run/machine.h"

namespace stepladder {
namespace {

/// A subcommand that takes a rung and hands everything after it to the rung's executable.
Command rung_command(const std::string& name, const std::string& about,
                     const std::vector<std::string>& first_arguments) {
  const auto rest = std::make_shared<std::vector<std::string>>();
  const auto run = [name, first_arguments, rest]() -> int {
    if (rest->empty() || rest->front().starts_with("-"))
      throw InputError(cat("which rung? stepladder ", name, " RUNG [OPTION]..., for example stepladder ",
                           name, " ", ladder().rungs.front().name));
    const Rung& rung = find_rung(rest->front());
    std::vector<std::string> arguments = {(std::filesystem::path(bin_dir()) / rung.trainer).string()};
    append(arguments, first_arguments);
    append(arguments, own_batch_arguments(rung));  // the last --batch counts: the user's, which follows
    arguments.insert(arguments.end(), rest->begin() + 1, rest->end());
    exec(arguments);
  };
  return {.name = name,
          .about = about,
          .options = {},
          .run = run,
          .footer = cat("stepladder ", name, " RUNG [OPTION]...; --help after RUNG lists its options, and ",
                        "`stepladder list` the rungs."),
          .rest = rest.get(),
          .takes_rung = true};
}

}  // namespace

Command train_command() {
  return rung_command("train", "train with one rung, by itself", {});
}

Command sample_command() {
  return rung_command("sample", "sample text with one rung from a checkpoint", {"--steps", "0"});
}

}  // namespace stepladder
