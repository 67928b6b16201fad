#include "bench/report/trials.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/base/text.h"
#include "bench/plan/ladder_file.h"
#include "bench/results/crossing.h"
#include "bench/results/json.h"
#include "model/error.h"

namespace stepladder {
namespace {

std::optional<double> mean_of_all(const std::vector<std::optional<double>>& values) {
  double sum = 0.0;
  for (const auto& value : values) {
    if (!value) return std::nullopt;
    sum += *value;
  }
  if (values.empty()) return std::nullopt;
  return sum / static_cast<double>(values.size());
}

/// A learning rate, of single precision as a trainer takes it.
std::string rate_text(double rate) {
  return number_text(static_cast<float>(rate));
}

/// The Trial made of these runs: one part's, of one trainer on one workload.
Trial trial_of(const Part& part, const std::vector<const Run*>& runs) {
  const Json& plan = part.results.plan;
  Trial trial;
  trial.part = part.name, trial.ladder = ladder_of(part.results).name, trial.trainer = runs.front()->variant,
  trial.workload = runs.front()->workload();
  const std::string validated = whole_text_at(plan, "val_data");
  trial.judged = cat(whole_text_at(plan, "data"), plan.value("shuffle", Json()) == true ? " shuffled" : "",
                     validated.empty() ? "" : " and " + validated, ", ", whole_text_at(plan, "eval_batches"),
                     " batches, seed ", whole_text_at(plan, "seed"));
  trial.lr = number_at(plan, "lr").value_or(0.0);
  const auto count = [&](const char* field) {
    return plan.contains(field) && plan[field].is_number_integer() ? plan[field].get<int64_t>() : 0;
  };
  trial.steps = count("steps");
  trial.seeds = runs.size();
  if (count("decay_steps") > 0) {
    trial.warmup = count("warmup_lr_steps");
    trial.min_lr = number_at(plan, "min_lr");
  }
  if (plan.value("until_loss", Json()).is_number()) trial.until = plan["until_loss"].get<double>();
  std::vector<std::optional<double>> losses, steps, seconds, ms;
  for (const Run* run : runs) {
    if (run->status != Status::ok) {
      if (trial.failed.empty()) trial.failed = run->outcome();
      continue;
    }
    losses.push_back(run->summary->val_loss);
    ms.emplace_back(mean_step_ms(*run));
    const auto reached = reached_loss(*run);
    trial.at_first |= reached_at_first(*run);
    steps.push_back(reached ? std::optional(reached->steps) : std::nullopt);
    seconds.push_back(reached ? std::optional(reached->seconds) : std::nullopt);
  }
  trial.loss = mean_of_all(losses), trial.step_ms = mean_of_all(ms);
  trial.to_loss = mean_of_all(steps), trial.seconds = mean_of_all(seconds);
  if (trial.failed.empty() && !trial.until && !trial.loss) trial.failed = "no validation loss";
  return trial;
}

}  // namespace

std::string Trial::options() const {
  std::string text = cat("--lr ", rate_text(lr), until ? " --max-steps " : " --steps ", steps);
  if (warmup) text += cat(" --decay-steps ", steps, " --warmup-lr-steps ", *warmup);
  if (min_lr) text += cat(" --min-lr ", rate_text(*min_lr));
  return text;
}

bool Trial::contests(const Trial& other) const {
  return trainer == other.trainer && workload == other.workload && judged == other.judged &&
         until == other.until && (until || steps == other.steps);
}

std::vector<Trial> trials_of(const std::vector<Part>& parts) {
  std::vector<Trial> trials;
  std::map<RowKey, size_t> places;
  for (const Part& part : parts) {
    if (!part.name.starts_with(Trial::kPart)) continue;
    std::map<std::string, std::vector<const Run*>> by_workload;
    for (const Run& run : part.results.runs) {
      by_workload[run.workload()].push_back(&run);
      places.emplace(run.row(), places.size());
    }
    for (const auto& [workload, runs] : by_workload) trials.push_back(trial_of(part, runs));
  }
  std::ranges::stable_sort(trials, {}, [&](const Trial& t) {
    const double of_loss = t.loss.value_or(INFINITY);
    return std::tuple(places.at({t.trainer, t.workload}), t.judged, t.until.value_or(-1.0),
                      t.until ? 0 : t.steps, !t.worked(), !t.failed.empty(),
                      t.until && t.worked() ? *t.to_loss : of_loss);
  });
  return trials;
}

std::vector<Trial> best_of(const std::vector<Trial>& ranked) {
  std::vector<Trial> best;
  for (const Trial& trial : ranked)
    if (trial.worked() && (best.empty() || !best.back().contests(trial))) best.push_back(trial);
  return best;
}

Section section_of(const std::vector<Trial>& ranked, size_t most) {
  Section section;
  if (ranked.empty()) return section;
  const auto any = [&](auto has) { return std::ranges::any_of(ranked, has); };
  const auto number = [](std::optional<double> value, int digits) -> Cell {
    return value ? fixed(*value, digits) : kNone;
  };
  const bool to_loss = any([](const Trial& t) { return t.until.has_value(); });
  const bool workloads = any([&](const Trial& t) { return t.workload != ranked.front().workload; });
  std::vector<std::pair<size_t, Trial>> shown;
  size_t place = 0;
  for (const Trial& trial : ranked) {
    place = !shown.empty() && shown.back().second.contests(trial) ? place + 1 : 1;
    if (place <= most) shown.emplace_back(place, trial);
  }
  using Placed = std::pair<size_t, Trial>;
  Columns<Placed> columns;
  columns.add_text("trainer", [](const Placed& p) { return p.second.trainer; });
  columns.add_text_if_it_differs(shown, "workload", [](const Placed& p) { return p.second.workload; });
  columns.add_text_if_it_differs(shown, "judged on",
                                 [](const Placed& p) { return printable(p.second.judged, 300); });
  columns.add_text_if_it_differs(shown, "to a loss of", [](const Placed& p) {
    return p.second.until ? number_text(*p.second.until) : kNone;
  });
  columns.add({.title = "place", .meaning = "among the trainer's trials, to the loss or of as many steps"},
              [](const Placed& p) { return p.second.worked() ? std::to_string(p.first) : kNone; });
  columns.add({.title = "rate", .meaning = "learning rate after the warm-up"},
              [](const Placed& p) { return rate_text(p.second.lr); });
  columns.add({.title = "steps", .meaning = "at which the schedule ends"},
              [](const Placed& p) { return grouped(p.second.steps); });
  columns.add({"warm-up"},
              [](const Placed& p) { return p.second.warmup ? grouped(*p.second.warmup) : kNone; });
  columns.add({.title = "last rate", .meaning = "learning rate at the end of the schedule"},
              [](const Placed& p) { return p.second.min_lr ? rate_text(*p.second.min_lr) : kNone; });
  columns.add({.title = "seeds", .priority = 2},
              [](const Placed& p) { return std::to_string(p.second.seeds); });
  columns.add(
      {.title = "validation loss", .meaning = "after the last step that was made, mean over the seeds"},
      [=](const Placed& p) { return number(p.second.loss, 4); });
  if (to_loss) {
    columns.add({"steps to the loss"}, [](const Placed& p) -> Cell {
      return p.second.to_loss ? rounded(*p.second.to_loss) : kNone;
    });
    columns.add({"seconds"}, [=](const Placed& p) { return number(p.second.seconds, 2); });
  }
  columns.add({.title = "ms a step", .priority = 1, .meaning = "mean without the first step"},
              [=](const Placed& p) { return number(p.second.step_ms, 2); });
  columns.add({.title = "result", .align = Align::left, .reasons = true}, [](const Placed& p) -> std::string {
    if (!p.second.failed.empty()) return printable(p.second.failed, 300);
    if (!p.second.worked()) return cat("above ", number_text(*p.second.until));
    return p.second.at_first ? "reached by the first evaluation: give --eval-every" : "ok";
  });
  section.tables.push_back(columns.table(shown, "Trials"));
  if (shown.size() < ranked.size())
    section.notes.push_back({cat("Of ", ranked.size(), " trials the best ", most, " of each trainer",
                                 to_loss ? "" : " and number of steps", " are shown; the file has all.")});
  for (const Trial& best : best_of(ranked))
    if (!best.at_first)
      section.notes.push_back(
          {cat("Best of ", workloads ? cat(best.trainer, ", ", best.workload, ",") : best.trainer,
               best.until ? cat(" to a loss of ", number_text(*best.until))
                          : cat(" in ", grouped(best.steps), " steps"),
               ": `", best.options(), "`")});
  return section;
}

}  // namespace stepladder
