#include "bench/results/learns.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "bench/results/mean.h"

namespace stepladder {

std::vector<double> smoothed_losses(const Run& run) {
  const std::span<const Step> steps = run.steps;
  const size_t windows = steps.empty() ? 0 : std::max<size_t>(1, steps.size() / kSmoothedSteps);
  std::vector<double> means;
  for (size_t window = 0; window < windows; ++window) {
    const auto rest = steps.subspan(window * kSmoothedSteps);
    const auto of_window = window + 1 < windows ? rest.first(kSmoothedSteps) : rest;
    double sum = 0.0;
    for (const Step& step : of_window) sum += step.loss.value_or(std::numeric_limits<double>::infinity());
    means.push_back(sum / static_cast<double>(of_window.size()));
  }
  return means;
}

Learns learns_the_same(std::span<const double> base, std::span<const double> next, double margin,
                       double confidence) {
  if (base.empty() || next.empty()) return Learns::not_shown;
  const auto finite = [](double loss) { return std::isfinite(loss); };
  if (!std::ranges::all_of(next, finite)) return Learns::worse;
  if (!std::ranges::all_of(base, finite)) return Learns::not_shown;
  if (base.size() + next.size() < 3)
    return next.front() - base.front() > margin ? Learns::worse : Learns::not_shown;
  // NEW's mean and its single runs may each be `worse`: they share the probability of being wrong.
  const double wrong = (1 - confidence) / 2;
  const Mean difference = difference_of_means(base, next);
  if (bound(difference, wrong) > margin) return Learns::worse;
  for (const double& loss : next)
    if (base.size() > 1 &&
        bound(difference_of_means(base, {&loss, 1}), wrong / static_cast<double>(next.size())) > margin)
      return Learns::worse;
  const double upper = bound(difference, confidence);
  if (base.size() < kMinBaselines || upper >= margin) return Learns::not_shown;
  return upper < -margin ? Learns::better : Learns::same;
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
    if (one == Learns::not_shown || all == Learns::same) all = one;
  }
  return all;
}

}  // namespace stepladder
