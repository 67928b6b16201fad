#include <filesystem>

#include "bench/cli/commands.h"
#include "bench/cli/verdict_options.h"
#include "bench/plan/ladder_file.h"
#include "bench/results/file.h"
#include "bench/results/json.h"

namespace stepladder {
namespace {

struct CompareOptions {
  std::string base, next;
  VerdictOptions verdict;

  std::vector<Option> options() {
    return std::vector<Option>{{"BASE", &base, "", "results file to compare with"},
                               {"NEW", &next, "", "results file that is judged"}} +
           verdict.options();
  }
};

/// Whether one gate measured both: then they began at the same moment.
bool of_one_gate(const Results& base, const Results& next) {
  const auto same = [&](const char* key) { return text_at(base.context, key) == text_at(next.context, key); };
  return is_of_a_gate(base) && same("command_line") && same("host") && same("time");
}

int compare_files(CompareOptions& options) {
  options.verdict.check_files();
  const Results base = load_measured(options.base), next = load_measured(options.next);
  require_comparable(base, next);
  const Limits limits = options.verdict.limits(next.context, next.plan);
  Comparison comparison = compare(base, next, limits);
  std::error_code none;
  if (std::filesystem::equivalent(options.base, options.next, none))
    comparison.notes.emplace_back("BASE and NEW are the same file: of course nothing differs.");
  comparison.notes.emplace_back(
      of_one_gate(base, next)
          ? "One gate measured the two, in turns."
          : "No gate is known to have measured the two in turns, as `stepladder gate` does: what the machine "
            "did in between counts as change.");
  return options.verdict.deliver(std::move(comparison), limits);
}

}  // namespace

Command compare_command() {
  return command<CompareOptions>("compare", "two results files: is the new one slower, or larger?",
                                 compare_files);
}

}  // namespace stepladder
