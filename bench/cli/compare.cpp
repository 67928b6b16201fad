#include <memory>

#include "bench/cli/commands.h"
#include "bench/cli/verdict_options.h"
#include "bench/results/file.h"

namespace stepladder {
namespace {

struct CompareOptions {
  std::string base, next;
  VerdictOptions verdict;
};

int compare_files(const CompareOptions& options) {
  const Results base = load_results(options.base), next = load_results(options.next);
  require_comparable(base, next);
  Comparison comparison = compare(base, next, options.verdict.limits(next.context, next.plan));
  comparison.notes.emplace_back(
      "The two were measured one after the other: what the machine did in between counts as change. "
      "`stepladder gate` measures both builds in turns.");
  return options.verdict.deliver(std::move(comparison));
}

}  // namespace

void add_compare_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* command = app.add_subcommand("compare", "two results files: is the new one slower, or larger?");
  add_help(*command, "");
  command->add_option("BASE", options->base, "results file to compare with")->required()->type_name("");
  command->add_option("NEW", options->next, "results file that is judged")->required()->type_name("");
  add_options(*command, options->verdict.options());
  command->callback([options, &exit_code] { exit_code = compare_files(*options); });
}

}  // namespace stepladder
