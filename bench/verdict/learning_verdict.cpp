#include "bench/verdict/learning_verdict.h"

#include <algorithm>
#include <cmath>

#include "bench/base/text.h"
#include "bench/results/learns.h"

namespace stepladder {
namespace {

/// Why neither FASTER nor SLOWER holds, and with how many seeds more one would.
std::string untold_text(const LearningNumbers& n) {
  const LearningChange& change = n.change;
  const auto of_all = [&](size_t missed) { return cat(change.seeds - missed, " of ", change.seeds); };
  if (!n.no_interval.empty()) return n.no_interval;
  if (std::min(change.base_missed, change.next_missed) == change.seeds)
    return "no seed of either reached the loss to stay";
  if (change.seeds < kMinCertainPairs)
    return cat(counted(static_cast<int64_t>(change.seeds), "seed"), " in common, ", kMinCertainPairs,
               " are the least");
  if (change.by_signs())
    return cat(of_all(change.base_missed), " seeds of BASE and ", of_all(change.next_missed),
               " of NEW reached the loss to stay, and signs alone don't tell");
  if (!change.seconds) return "the times of a step are not known";
  std::vector<std::string> texts;
  for (const LearningNumbers::More& more : n.more)
    texts.push_back(more.seeds == 0 ? cat(more.percent, " % would be told")
                                    : cat(more.percent, " % takes ", more.seeds, " more seeds"));
  return join(texts, ", ");
}

/// Where NEW learns something else than BASE: "" where it does not.
std::string divergence_from_base(const Rounds& base, const Rounds& next, double tolerance) {
  for (const auto& [run, other] : pairs_of(next, base)) {
    Run reference = *other;
    reference.variant = "BASE";
    const std::string apart = divergence(reference, *run, tolerance);
    if (!apart.empty()) return cat("NEW: diverged: ", apart);
  }
  return "";
}

}  // namespace

std::string described(const Results& results) {
  const std::string commit = text_at(results.context, "commit"), time = text_at(results.context, "time");
  return cat(commit.empty() ? "an unknown commit" : "commit " + commit, time.empty() ? "" : ", " + time);
}

void learn(ComparedRow& row, const RowKey& key, const Rounds& base, const Rounds& next, const Limits& limits,
           double alpha) {
  StepTimes times;
  if (limits.base_times) times = {rounds_of(*limits.base_times, key), rounds_of(*limits.next_times, key)};
  for (const auto& [rounds, side] :
       {std::pair(&times.base, "BASE's times"), std::pair(&times.next, "NEW's times")})
    if (row.reason.empty() && limits.base_times)
      row.reason = rounds->empty() ? cat(side, ": there are none") : failure(*rounds, side);
  if (!row.reason.empty()) return;
  try {
    row.learning =
        learning_numbers(base, next, *limits.until_loss, alpha, limits.base_times ? &times : nullptr);
  } catch (const InputError& e) {
    row.reason = e.what();
  }
}

void judge_learning(std::vector<ComparedRow>& rows, double alpha) {
  std::vector<ComparedRow*> learning;
  std::vector<double> p_values;
  for (ComparedRow& row : rows)
    if (row.learning) learning.push_back(&row), p_values.push_back(row.learning->change.p_changed());
  const std::vector<bool> changed = holm(p_values, alpha);
  for (size_t i = 0; i < learning.size(); ++i) {
    ComparedRow& row = *learning[i];
    const LearningChange& change = row.learning->change;
    row.verdict = !changed[i]                         ? Verdict::not_told_apart
                  : change.p_faster < change.p_slower ? Verdict::faster
                                                      : Verdict::slower;
    if (!changed[i])
      row.reason = untold_text(*row.learning);
    else if (change.by_signs())
      row.reason = cat("by the signs of ", change.seeds, " pairs; the loss was reached to stay by ",
                       change.seeds - change.base_missed, " of BASE and ", change.seeds - change.next_missed,
                       " of NEW");
  }
}

void add_learning_notes(Comparison& comparison, const std::vector<Disagreement>& intended,
                        const Limits& limits) {
  for (const Disagreement& one : intended)
    comparison.notes.push_back(cat("An intended change? BASE / NEW: ", one.text(), "."));
  for (const ComparedRow& row : comparison.rows)
    if (row.learning && row.learning->same_curves)
      comparison.notes.push_back(cat(row.variant, ", ", row.workload,
                                     ": BASE and NEW learn the same to the bit from each seed, so only the "
                                     "time of a step can differ."));
  if (limits.base_times)
    comparison.notes.push_back(cat("Steps to the loss are of the runs of --steps-from (", comparison.base,
                                   " / ", comparison.next, "), times of a step of BASE and NEW (",
                                   described(*limits.base_times), " / ", described(*limits.next_times),
                                   ")."));
}

bool learns_as_base(ComparedRow& row, const Rounds& base, const Rounds& next, double tolerance) {
  const auto steps = [](const Rounds& rounds) { return rounds.begin()->second->steps.size(); };
  if (std::min(steps(base), steps(next)) <= kShortRun) {
    row.reason = divergence_from_base(base, next, tolerance);
    return row.reason.empty();
  }
  const Learns learns = learns_the_same(base, next, tolerance);
  if (learns == Learns::worse)
    row.reason =
        cat("NEW: diverged: mean losses are certainly over BASE's by more than the tolerance of ", tolerance);
  return learns == Learns::same || !std::isfinite(tolerance);
}

std::string equality_text(const ComparedRow& row, const Rounds& base, const Rounds& next) {
  std::vector<double> differences;
  for (const auto& [run, other] : pairs_of(next, base))
    if (run->summary->val_loss && other->summary->val_loss)
      differences.push_back(*run->summary->val_loss - *other->summary->val_loss);
  if (differences.size() < kMinCertainPairs) return "";
  return cat(row.variant, ", ", row.workload, ": the validation loss after the last step changed by ",
             fixed(mean_of(differences).value, 4), " nats; ",
             equal_losses(differences) ? "it is" : "it is not shown to be", " equal within ",
             number_text(kEqualLoss), " (two one-sided t tests, ", differences.size(), " pairs).");
}

}  // namespace stepladder
