// Whether one trainer learns as well as another: by their losses.
#pragma once

#include <span>
#include <vector>

#include "bench/results/rounds.h"

namespace stepladder {

/// Fewest runs of BASE for the verdict `same`.
inline constexpr size_t kMinBaselines = 6;
/// Runs of at most so many steps are compared step by step.
inline constexpr size_t kShortRun = 50;
/// Losses of so many steps are averaged before longer runs are compared.
inline constexpr size_t kSmoothedSteps = 100;

/// The mean losses of windows of kSmoothedSteps steps, of which the last takes the remainder. The mean of a
/// window with a loss that is not finite is infinite.
std::vector<double> smoothed_losses(const Run& run);

enum class Learns { same, better, worse, not_shown };
/// Whether NEW learns as well as BASE: `same` where the upper bound of the difference of mean losses lies
/// below `margin`, `better` where it lies below minus `margin`, `worse` where the lower bound lies above it,
/// or that of a single run of NEW, with `confidence` for both together. `base` and `next` hold a loss of each
/// run; `same` and `better` take at least kMinBaselines runs of BASE. One run on each side has no spread: a
/// difference over the margin is then `worse`, any other `not_shown`.
Learns learns_the_same(std::span<const double> base, std::span<const double> next, double margin,
                       double confidence = 0.99);
/// Whether NEW learns as well by smoothed losses, with a margin of `tolerance` x BASE's mean: `same` where
/// each window is `same`, `better` or `worse` where one is, with a confidence of 99 % over all windows
/// together.
Learns learns_the_same(const Rounds& base, const Rounds& next, double tolerance);

}  // namespace stepladder
