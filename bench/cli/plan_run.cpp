#include <algorithm>
#include <filesystem>
#include <iostream>
#include <limits>
#include <set>

#include "bench/base/table.h"
#include "bench/base/text.h"
#include "bench/cli/commands.h"
#include "bench/plan/ladder_file.h"
#include "bench/report/ablation.h"
#include "bench/report/report.h"
#include "bench/report/speedups.h"
#include "bench/results/file.h"
#include "model/error.h"

namespace stepladder {
namespace {

struct PlanRunOptions {
  std::vector<std::string> results = {kLatestResults};
  std::optional<double> tokens;
  std::optional<double> price_per_hour;
  bool wide = false;

  std::vector<Option> options() {
    const char* plan = "Training run";
    return {
        {"RESULT", &results, "", "results files of the devices to compare"},
        {"tokens", &tokens, "N", "to train on; default: what the loss took of runs until a loss, else 10e9",
         plan, Allowed{1, 1e18}},
        {"price-per-hour", &price_per_hour, "MONEY", "of a device", plan, {0, 1e9}},
        wide_option(wide, plan)};
  }
};

/// Measured throughput and energy, extrapolated to a whole training run.
struct Extrapolated {
  std::string device;
  ResultRow row;
  std::optional<double> asked;  // tokens

  /// What training until the loss took, where no tokens were asked for; null where there is nothing to tell.
  const TimeToLoss* to_loss() const {
    const auto& reached = row.numbers->to_loss;
    return !asked && reached && reached->reached > 0 ? &*reached : nullptr;
  }
  double tokens() const { return to_loss() ? to_loss()->tokens.value : asked.value_or(10e9); }
  /// Time or energy for all tokens, in `unit`: tokens over a rate, so the rate's upper bound gives the lower
  /// bound.
  Estimate over(const Estimate& rate, double unit) const {
    Estimate whole{.value = tokens() / rate.value / unit, .interval = {}, .rounds = rate.rounds};
    if (rate.interval)
      whole.interval = {tokens() / rate.interval->hi / unit, tokens() / rate.interval->lo / unit};
    return whole;
  }
  Estimate hours() const {
    return to_loss() ? scaled(to_loss()->seconds, 1 / 3600.0) : over(row.numbers->tokens_per_second, 3600.0);
  }
  std::optional<Estimate> kwh() const {
    if (to_loss())
      return to_loss()->joules ? std::optional(scaled(*to_loss()->joules, 1 / 3.6e6)) : std::nullopt;
    const auto& rate = row.numbers->tokens_per_joule;
    return rate ? std::optional(over(*rate, 3.6e6)) : std::nullopt;
  }
};

int plan_run(PlanRunOptions& options) {
  std::vector<Extrapolated> rows;
  double seconds = std::numeric_limits<double>::max();
  std::set<std::string> seen;
  std::error_code none;
  for (const std::string& path : options.results) {
    if (!seen.insert(std::filesystem::weakly_canonical(path, none).string()).second && !none) continue;
    const Results results = load_measured(path);
    const size_t before = rows.size();
    for (const ResultRow& row : aggregate(results)) {
      if (!row.claimable() || is_ablation(row.variant)) continue;
      rows.push_back({results.device_model(), row, options.tokens});
      if (rows.back().to_loss()) continue;
      double timed = 0.0;
      for (const auto& [round, run] : row.runs)
        timed += static_cast<double>(timed_steps(*run)) * run->summary->median_step_ms * 1e-3;
      seconds = std::min(seconds, timed);
    }
    if (rows.size() == before)
      throw InputError(cat(path,
                           ": each rung in it failed in a round, or was throttled or shared in all of them: "
                           "nothing to extrapolate from"));
  }

  using Row = Extrapolated;
  Columns<Row> columns;
  columns.add({.title = "device", .align = Align::left, .priority = 5},
              [](const Row& x) { return x.device; });
  columns.add_text("trainer", [](const Row& x) { return x.row.variant; });
  columns.add({.title = "workload", .align = Align::left, .priority = 3},
              [](const Row& x) { return x.row.workload; });
  const bool to_loss = std::ranges::any_of(rows, [](const Row& x) { return x.to_loss() != nullptr; });
  if (to_loss) {
    columns.add({"loss"}, [](const Row& x) {
      return x.to_loss() ? cat("<= ", number_text(x.to_loss()->loss)) : kNone;
    });
    columns.add({"tokens"}, [](const Row& x) { return rounded(x.tokens()); });
    columns.add({"reached"}, [](const Row& x) -> std::string {
      return x.to_loss() ? cat(x.to_loss()->reached, " of ", x.row.runs.size()) : kNone;
    });
  }
  columns.add({.title = "tok/s", .priority = 1},
              [](const Row& x) { return rounded(x.row.numbers->tokens_per_second.value); });
  if (std::ranges::all_of(rows, [](const Row& x) { return x.hours().value < 0.01; }))
    columns.add({"seconds"}, [](const Row& x) { return text_of(scaled(x.hours(), 3600.0)); });
  else
    columns.add({"hours"}, [](const Row& x) { return text_of(x.hours()); });
  columns.add({.title = "kWh", .priority = 2}, [](const Row& x) { return text_of(x.kwh()); });
  if (options.price_per_hour)
    columns.add({.title = "rent", .priority = 6}, [&](const Row& x) {
      const auto devices = static_cast<double>(world_size(x.row.config));
      return text_of(scaled(x.hours(), *options.price_per_hour * devices));
    });
  const auto extrapolated = std::ranges::find_if(rows, [](const Row& x) { return !x.to_loss(); });
  const std::string from =
      extrapolated == rows.end()
          ? "Measured: the steps until the loss, medians of the runs that reached it"
          : cat(to_loss ? "Runs that reached a loss are measured. " : "",
                "Extrapolated, not run: ", rounded(extrapolated->tokens()), " tokens, from ", sized(seconds),
                " s of timed steps or more in each row");
  std::cout << columns.table(rows).terminal(options.wide) << "\n"
            << folded(cat(from,
                          ". Data, evaluation, checkpoints and failures come on top; energy is the devices', "
                          "without hosts and cooling."))
            << "\n"
            << std::flush;
  return kExitOk;
}

}  // namespace

Command plan_run_command() {
  return command<PlanRunOptions>(
      "plan-run", "hours, energy and money of a whole training run, from what was measured", plan_run);
}

}  // namespace stepladder
