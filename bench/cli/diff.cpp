#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <optional>

#include "bench/base/place.h"
#include "bench/base/text.h"
#include "bench/cli/commands.h"
#include "bench/plan/ladder_file.h"
#include "bench/plan/settings.h"
#include "bench/report/report.h"
#include "bench/results/file.h"
#include "bench/run/child.h"
#include "model/environment.h"

namespace stepladder {
namespace {

constexpr double kDiffTimeout = 30.0;  // seconds

struct DiffOptions {
  std::string before, after, ladder, results;
  bool wide = false;

  std::vector<Option> options() {
    return {{"A", &before, "", "a rung"},
            {"B", &after, "", "the rung compared with it"},
            {"ladder", &ladder, "FILE",
             "whose rungs they are: learning, or a file of your own; default: the ladder of time", "Diff"},
            {"results", &results, "FILE",
             "what both were measured in; default: reports/latest, where it is there", "Diff"},
            wide_option(wide, "Diff")};
  }
};

std::string source_of(const Rung& rung, const Ladder& of) {
  std::string path = cat(of.built_in() ? shared_dir() : of.folder, "/", rung.shown);
  if (!std::filesystem::exists(path))
    throw InputError(cat(path, ": not there; run stepladder where its sources are"));
  return path;
}

/// The escape sequence that colours a line of a unified diff.
const char* colour_of(std::string_view line) {
  if (line.starts_with("---") || line.starts_with("+++")) return "\033[1m";
  if (line.starts_with("@")) return "\033[36m";
  return line.starts_with("+") ? "\033[32m" : line.starts_with("-") ? "\033[31m" : "";
}

void print(const std::string& line, bool coloured) {
  const std::string_view colour = coloured ? colour_of(line) : "";
  std::cout << colour << without_controls(line, "\t") << (colour.empty() ? "\n" : "\033[0m\n");
}

/// The shell line that starts a rung of a ladder file.
std::string started_by(const Rung& rung) {
  std::vector<std::string> words = rung.environment;
  append(words, rung.command);
  return shell_line(words);
}

/// Prints the unified diff of the sources and, for a ladder file's rungs, how their commands differ. Throws
/// Error when `diff` cannot be run.
void print_diff(const Rung& before, const Rung& after, const Ladder& of) {
  const bool coloured = ::isatty(STDOUT_FILENO) != 0 && environment_variable("NO_COLOR").empty();
  bool differ = false;
  if (!of.built_in() && started_by(before) != started_by(after)) {
    print("- " + started_by(before), coloured);
    print("+ " + started_by(after), coloured);
    differ = true;
  }
  if (of.built_in() || (!before.shown.empty() && !after.shown.empty())) {
    const ChildEnd end = run_child({"diff", "--unified", "--label", before.name, "--label", after.name,
                                    source_of(before, of), source_of(after, of)},
                                   Channel::out, kDiffTimeout, [&](std::string_view line) {
                                     print(std::string(line), coloured);
                                     return true;
                                   });
    if (end.how != ChildEnd::How::exited || end.code > 1) throw Error(cat("diff failed", end.last_words()));
    differ |= end.code == 1;
  }
  if (!differ) print(cat("no line differs: ", after.name, " changes this: ", after.changes), coloured);
}

/// Whether `results` are of `ladder`, with the same commands for `rungs`.
bool is_of(const Results& results, const Ladder& ladder, const std::vector<std::string>& rungs) {
  const Ladder measured = ladder_of(results);
  if (measured.name != ladder.name) return false;
  return std::ranges::all_of(rungs, [&](const std::string& name) {
    const Rung *was = measured.listed(name), *is = ladder.listed(name);
    return !was || !is || (was->command == is->command && was->environment == is->environment);
  });
}

/// The results to show: those of the file asked for, else the latest in this folder or, for our ladder, those
/// in the installation's folder. Nothing if the latest are of another ladder. Throws InputError if the file
/// asked for is of another ladder.
std::optional<Results> measured(const std::string& asked_for, const Ladder& ladder,
                                const std::vector<std::string>& rungs) {
  std::string latest = kLatestResults;
  if (ladder.built_in()) latest = here_or_shared(latest);
  if (asked_for.empty() && !std::filesystem::exists(latest)) return std::nullopt;
  Results results = load_measured(asked_for.empty() ? latest : asked_for);
  if (is_of(results, ladder, rungs)) return results;
  if (asked_for.empty()) return std::nullopt;
  throw InputError(cat(asked_for, ": was measured with another ladder"));
}

int diff(DiffOptions& options) {
  const Ladder ladder = ladder_at(options.ladder);
  const Rung& before = ladder.find(options.before);
  const Rung& after = ladder.find(options.after);
  const auto results = measured(options.results, ladder, {before.name, after.name});
  print_diff(before, after, ladder);
  std::cout << "\n"
            << (results ? two_rungs(*results, before.name, after.name).terminal(options.wide)
                        : cat("Not measured: no results of them in reports/latest here; `stepladder run ",
                              options.ladder.empty() ? "" : cat("--ladder ", options.ladder, " "), "--rungs ",
                              before.name, ",", after.name,
                              " --out FILE` measures, and --results names that file.\n"));
  return kExitOk;
}

}  // namespace

Command diff_command() {
  return command<DiffOptions>("diff", "what one rung changes against another, and what that buys", diff);
}

}  // namespace stepladder
