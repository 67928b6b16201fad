#include "bench/results/learns.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "bench/results/mean.h"

namespace stepladder {

std::vector<double> smoothed_losses(const Run& run) {
  const size_t size = std::min(kSmoothedSteps, run.steps.size());
  std::vector<double> means;
  for (size_t first = 0; size > 0 && first + size <= run.steps.size(); first += size) {
    double sum = 0.0;
    for (const Step& step : std::span(run.steps).subspan(first, size))
      sum += step.loss.value_or(std::numeric_limits<double>::infinity());
    means.push_back(sum / static_cast<double>(size));
  }
  return means;
}

Learns learns_the_same(std::span<const double> base, std::span<const double> next, double margin,
                       double confidence) {
  if (base.empty() || next.empty()) return Learns::not_shown;
  if (std::ranges::any_of(next, [](double loss) { return !std::isfinite(loss); })) return Learns::worse;
  if (base.size() + next.size() < 3)
    return next.front() - base.front() > margin ? Learns::worse : Learns::not_shown;
  const Mean difference = difference_of_means(base, next);
  if (bound(difference, 1 - confidence) > margin) return Learns::worse;
  return base.size() >= kMinBaselines && bound(difference, confidence) < margin ? Learns::same
                                                                                : Learns::not_shown;
}

Learns learns_the_same(const Rounds& base, const Rounds& next, double tolerance) {
  constexpr double kMayBeWrong = 0.01;
  std::vector<std::vector<double>> before, after;  // by run, then by window
  for (const auto& [round, run] : base) before.push_back(smoothed_losses(*run));
  for (const auto& [round, run] : next) after.push_back(smoothed_losses(*run));
  size_t windows = SIZE_MAX;
  for (const auto* side : {&before, &after})
    for (const auto& losses : *side) windows = std::min(windows, losses.size());
  Learns all = Learns::same;
  for (size_t window = 0; window < windows; ++window) {
    const auto losses = [&](const std::vector<std::vector<double>>& side) {
      std::vector<double> of_window;
      for (const auto& run : side) of_window.push_back(run[window]);
      return of_window;
    };
    const std::vector<double> was = losses(before);
    const double margin =
        tolerance * std::abs(std::reduce(was.begin(), was.end()) / static_cast<double>(was.size()));
    const Learns one =
        learns_the_same(was, losses(after), margin, 1 - kMayBeWrong / static_cast<double>(windows));
    if (one == Learns::worse) return one;
    if (one == Learns::not_shown) all = one;
  }
  return all;
}

}  // namespace stepladder
