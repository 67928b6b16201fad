// Whether one trainer learns as well as another: by their losses.
#pragma once

#include <span>
#include <vector>

#include "bench/results/rounds.h"

namespace stepladder {

/// Runs of the baseline that a margin is tested against, at least.
inline constexpr size_t kMinBaselines = 6;
/// Runs of at most so many steps are held to each other step by step.
inline constexpr size_t kShortRun = 50;
/// Losses of so many steps are averaged before longer ones are held to each other.
inline constexpr size_t kSmoothedSteps = 100;

/// The mean loss of each full window of kSmoothedSteps, of all steps where they are fewer. A window with a
/// loss that is not finite is infinite.
std::vector<double> smoothed_losses(const Run& run);

enum class Learns { same, worse, not_shown };
/// Whether NEW learns as well as BASE: `same` where the upper bound of the difference of mean losses lies
/// below `margin`, `worse` where the lower one lies above it, each with that confidence. A loss each, of runs
/// of BASE (at least kMinBaselines, or it is not shown that they are the same) and of NEW (at least one). One
/// run of each has no spread: `worse` is then a difference over the margin.
Learns learns_the_same(std::span<const double> base, std::span<const double> next, double margin,
                       double confidence = 0.99);
/// Whether NEW learns as well by smoothed losses, with a margin of `tolerance` x BASE's mean: `same` where
/// all windows are, `worse` where one is; 99 % over all windows together.
Learns learns_the_same(const Rounds& base, const Rounds& next, double tolerance);

}  // namespace stepladder
