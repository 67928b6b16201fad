// When a validation loss was reached to stay, and what that took.
#pragma once

#include <optional>
#include <span>

#include "bench/results/results.h"

namespace stepladder {

/// Steps after which the validation loss is at most `loss` for good, interpolated between evaluations: where
/// the best curve through them that never rises (isotonic regression, by pooling adjacent evaluations that
/// rise) crosses `loss`, linear in the logarithm of the step. A dip is thus averaged with what follows it,
/// and the evaluation that a run stopped at counts as it is. Nothing where the loss wasn't reached, or not to
/// stay. The evaluation before the first step doesn't count.
/// Throws InputError where an evaluation is not finite, or the first one after a step is below `loss`
/// already.
std::optional<double> crossing(std::span<const Evaluation> evaluations, double loss);

/// What it took a run to reach its loss: at the crossing, or at the evaluation that it stopped at where its
/// evaluations don't tell one. Nothing where it didn't reach it, or was not to reach any.
struct ReachedLoss {
  double steps = 0.0, seconds = 0.0, tokens = 0.0;
  std::optional<double> joules;
};
std::optional<ReachedLoss> reached_loss(const Run& run);

/// Whether the first evaluation of a run was at or below its loss already, so that nothing is interpolated.
bool reached_at_first(const Run& run);

/// A run's mean time of a step without the first, in ms: all steps of a run until a loss, else those timed.
double mean_step_ms(const Run& run);

/// Whether two runs have learnt the same to the bit: all evaluations, and the losses of the steps that both
/// have.
bool same_curve(const Run& one, const Run& other);

}  // namespace stepladder
