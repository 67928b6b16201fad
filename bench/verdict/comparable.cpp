#include "bench/verdict/comparable.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "bench/base/text.h"
#include "bench/results/json.h"
#include "model/error.h"

namespace stepladder {
namespace {

/// The first run that came to its end, and so has told its configuration; else the first run.
const Run& told(const Rounds& rounds) {
  const auto ended =
      std::ranges::find_if(rounds, [](const auto& r) { return r.second->summary.has_value(); });
  return *(ended == rounds.end() ? rounds.begin() : ended)->second;
}

void require_none(const std::vector<Disagreement>& differing) {
  if (!differing.empty())
    throw Error(cat("not comparable, BASE / NEW: ", join(texts_of(differing, &Disagreement::text), ", ")),
                kExitNotComparable);
}

void require_common_row(const Results& base, const Results& next) {
  const Rows before(base), after(next);
  if (std::ranges::none_of(after.order, [&](const RowKey& key) { return before.find(key) != nullptr; }))
    throw Error("not comparable: BASE and NEW have no rung on the same workload in common",
                kExitNotComparable);
}

/// Takes out of `from`, and returns, the disagreements whose field is one of `fields`, or begins with one of
/// them that ends in '.'.
std::vector<Disagreement> taken(std::vector<Disagreement>& from, const std::vector<std::string>& fields) {
  const auto listed = [&](const Disagreement& one) {
    return std::ranges::any_of(fields, [&](const std::string& field) {
      return one.difference.field == field ||
             (field.ends_with('.') && one.difference.field.starts_with(field));
    });
  };
  std::vector<Disagreement> found;
  std::ranges::copy_if(from, std::back_inserter(found), listed);
  std::erase_if(from, listed);
  return found;
}

/// The first learning rate that two runs tell of one of their steps differently, but for rounding.
std::optional<Difference> other_rate(const Run& was, const Run& is) {
  for (size_t i = 0; i < std::min(was.steps.size(), is.steps.size()); ++i) {
    const Step &before = was.steps[i], &after = is.steps[i];
    if (!before.lr || !after.lr || before.step != after.step) continue;
    if (std::abs(*before.lr - *after.lr) > 1e-6 * std::abs(*before.lr))
      return Difference{cat("learning rate of step ", before.step), number_text(*before.lr),
                        number_text(*after.lr)};
  }
  return std::nullopt;
}

/// The fields in which BASE and NEW differ. Throws Error with kExitNotComparable where a row's runs are
/// unlike each other.
std::vector<Disagreement> disagreements(const Results& base, const Results& next) {
  require_alike(base, "BASE is not comparable");
  require_alike(next, "NEW is not comparable");
  std::vector<Disagreement> differing;
  for (Difference& one : differences(configuration_of(base), configuration_of(next)))
    differing.push_back({std::move(one), {}});
  const size_t of_all = differing.size();
  const bool by_plan =
      std::ranges::any_of(differing, [](const Disagreement& d) { return d.difference.field == "plan.lr"; });
  const Rows before(base), after(next);
  for (const RowKey& key : after.order) {
    const Rounds* other = before.find(key);
    if (!other) continue;
    const Run &was = told(*other), &is = told(*after.find(key));
    std::vector<Difference> of_row = differences(configuration_of(was), configuration_of(is));
    if (std::optional<Difference> rate = other_rate(was, is); rate && !by_plan) of_row.push_back(*rate);
    // Rungs with the same difference are reported together, and with the plans where those differ in the same
    // way.
    for (const Difference& one : of_row) {
      const auto name = [](const Difference& d) { return d.field.substr(d.field.find('.') + 1); };
      auto same = std::ranges::find_if(differing, [&](const Disagreement& d) {
        return name(d.difference) == name(one) && d.difference.was == one.was && d.difference.is == one.is;
      });
      if (same == differing.end()) same = differing.insert(same, {one, {}});
      const bool told_of_all = same - differing.begin() < static_cast<std::ptrdiff_t>(of_all);
      if (!told_of_all) add_once(same->rungs, key.first);
    }
  }
  return differing;
}

}  // namespace

Rows::Rows(const Results& results) {
  for (const Run& run : results.runs) {
    if (!run.peer.empty()) continue;
    const RowKey key = run.row();
    if (!rounds.contains(key)) order.push_back(key);
    rounds[key][run.round] = &run;
  }
}

const Rounds* Rows::find(const RowKey& key) const {
  const auto found = rounds.find(key);
  return found == rounds.end() ? nullptr : &found->second;
}

std::string Disagreement::text() const {
  const auto shown = [](const std::string& value) {
    return value.empty() ? "unknown" : printable(value, 200);
  };
  return cat(printable(difference.field, 100), " ", shown(difference.was), " / ", shown(difference.is),
             rungs.empty()       ? ""
             : rungs.size() == 1 ? cat(" (", printable(rungs.front(), 100), ")")
                                 : cat(" (", rungs.size(), " rungs)"));
}

void require_comparable(const Results& base, const Results& next) {
  std::vector<Disagreement> differing = disagreements(base, next);
  // Losses are compared round by round, so the rounds' seeds have to be the same.
  const std::string was = text_at(base.plan, "seed"), is = text_at(next.plan, "seed");
  if (was != is) differing.push_back({{"plan.seed", was, is}, {}});
  require_none(differing);
  require_common_row(base, next);
}

std::vector<Disagreement> require_comparable_steps(const Results& base, const Results& next) {
  std::vector<Disagreement> differing = disagreements(base, next);
  require_none(
      taken(differing, {"plan.model", "plan.seq", "plan.steps", "plan.data", "plan.val_data",
                        "plan.eval_every", "plan.eval_batches", "plan.eval_skip", "plan.until_loss"}));
  require_common_row(base, next);
  return differing;
}

void require_comparable_times(const Results& base, const Results& next) {
  std::vector<Disagreement> differing = disagreements(base, next);
  require_none(taken(
      differing, {"backend", "device.", "environment", "cpu", "cores", "thread_environment", "plan.warmup"}));
  require_common_row(base, next);
}

}  // namespace stepladder
