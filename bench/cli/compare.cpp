#include <filesystem>

#include "bench/base/text.h"
#include "bench/cli/commands.h"
#include "bench/cli/verdict_options.h"
#include "bench/plan/ladder_file.h"
#include "bench/results/file.h"
#include "bench/results/json.h"

namespace stepladder {
namespace {

struct CompareOptions {
  static constexpr const char* kLoss = "Until a loss";
  std::string base, next;
  std::optional<double> until_loss;
  std::vector<std::string> steps_from;
  VerdictOptions verdict;

  std::vector<Option> options() {
    return std::vector<Option>{
               {"BASE", &base, "", "results file to compare with"},
               {"NEW", &next, "", "results file that is judged"},
               {"until-loss", &until_loss, "LOSS",
                "judge the seconds to this validation loss; default: the loss that the runs "
                "trained to",
                kLoss, Allowed{0, 1000}},
               {"steps-from", &steps_from, "BASE,NEW",
                "two results files of runs until a loss, of any device: their steps, times of "
                "a step of the others",
                kLoss}} +
           verdict.options();
  }
};

/// The loss to judge by, which is stored in both plans; none where the runs were not trained to a loss.
std::optional<double> loss_of(const CompareOptions& options, Results& base, Results& next) {
  const auto of_base = number_at(base.plan, "until_loss"), of_next = number_at(next.plan, "until_loss");
  if (!options.until_loss) return of_base && of_next ? of_next : std::nullopt;
  for (const auto& [trained_to, results] : {std::pair(of_base, &base), std::pair(of_next, &next)}) {
    if (trained_to && *options.until_loss < *trained_to)
      throw InputError(cat("--until-loss ", number_text(*options.until_loss), ": the runs stopped at ",
                           number_text(*trained_to), "; train them to the lower loss"));
    results->plan["until_loss"] = *options.until_loss;
  }
  return options.until_loss;
}

int compare_files(CompareOptions& options) {
  if (!options.steps_from.empty() && options.steps_from.size() != 2)
    throw InputError("--steps-from takes two files: those of BASE's steps and of NEW's");
  options.verdict.check_files();
  const Results base = load_measured(options.base), next = load_measured(options.next);
  const bool joined = !options.steps_from.empty();
  Results base_steps = joined ? load_measured(options.steps_from[0]) : base,
          next_steps = joined ? load_measured(options.steps_from[1]) : next;
  const std::optional<double> loss = loss_of(options, base_steps, next_steps);
  if (joined && !loss)
    throw InputError("--steps-from: the two were not trained until a loss; give --until-loss");
  if (!loss) require_comparable(base, next);  // before the noise is read
  Limits limits = options.verdict.limits(loss, next.context, next.plan);
  if (joined) limits.base_times = &base, limits.next_times = &next;
  Comparison comparison = compare(base_steps, next_steps, limits);
  std::error_code none;
  if (std::filesystem::equivalent(options.base, options.next, none))
    comparison.notes.emplace_back("BASE and NEW are the same file: of course nothing differs.");
  const auto same = [&](const char* key) { return text_at(base.context, key) == text_at(next.context, key); };
  comparison.notes.emplace_back(
      is_of_a_gate(base) && same("command_line") && same("host") && same("time")
          ? "One gate measured the two, in turns."
          : "No gate is known to have measured the two in turns, as `stepladder gate` does: what the machine "
            "did in between counts as change.");
  return options.verdict.deliver(std::move(comparison), limits);
}

}  // namespace

Command compare_command() {
  return command<CompareOptions>(
      "compare", "two results files: is the new one slower, or larger? Does it reach a loss sooner?",
      compare_files);
}

}  // namespace stepladder
