#include "bench/plan/stopping.h"

#include <algorithm>
#include <limits>

#include "bench/results/rounds.h"

namespace stepladder {

std::optional<double> widest_interval_percent(const Results& results, int64_t least_rounds) {
  std::optional<double> widest;
  for (const ResultRow& variant : rows_of(results)) {
    if (!variant.numbers) continue;
    const Estimate& ms = variant.numbers->median_step_ms;
    if (ms.rounds < least_rounds) return std::numeric_limits<double>::infinity();
    if (!ms.interval) continue;
    widest = std::max(widest.value_or(0.0), (ms.interval->hi - ms.interval->lo) / 2 / ms.value * 100);
  }
  return widest;
}

double spent_s(const Results& results) {
  double ms = 0.0;
  for (const Run& run : results.runs) ms += run.wall_ms;
  return ms * 1e-3;
}

std::string stop_reason(const Stopping& stopping, const Results& results, int64_t rounds) {
  if (rounds == 0) return "";
  if (rounds >= stopping.rounds) {
    if (!stopping.until_ci) return "rounds";
    const bool enough = rounds >= kLeastRoundsForInterval;
    const auto widest = enough ? widest_interval_percent(results, kLeastRoundsForInterval) : std::nullopt;
    if (widest && *widest <= *stopping.until_ci) return "interval";
    if (rounds >= stopping.max_rounds) return "max_rounds";
  }
  if (std::ranges::count(rows_of(results), Status::ok, &ResultRow::status) == 0) return "failed";
  // The next round takes as long as the mean round in the file, which may hold later rounds too.
  const double spent = spent_s(results), held = static_cast<double>(results.rounds_begun());
  const bool fits = !stopping.max_time_s || spent + spent / held <= *stopping.max_time_s;
  return fits ? "" : "max_time";
}

}  // namespace stepladder
