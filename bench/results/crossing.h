// When a run reached a validation loss to stay, and what the run took until then.
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

/// What a run took to reach its loss: until the crossing or, where the evaluations have no crossing, until
/// the evaluation at which the run stopped. Seconds and joules are those of a mean step, times the steps, so
/// that compiling in the first step isn't among them. reached_loss() is nothing where the run didn't reach
/// its loss, or had none to reach.
struct ReachedLoss {
  double steps = 0.0, seconds = 0.0, tokens = 0.0;
  std::optional<double> joules;
};
std::optional<ReachedLoss> reached_loss(const Run& run);

/// Whether a run's first evaluation had reached its target loss, which leaves no crossing to interpolate.
bool reached_at_first(const Run& run);

/// The place of a run's first timed step among its steps.
size_t first_timed(const Run& run);
/// The mean ms of a run's steps from step `first` on: a running mean, as the sum of any times may overflow.
double mean_ms(const Run& run, size_t first);
/// The mean time of a run's steps, in ms: of a run until a loss all steps but the first, else the timed
/// steps.
double mean_step_ms(const Run& run);

/// The mean joules of a run's timed steps or, where they are unknown, of all its steps until a loss.
std::optional<double> joules_of_step(const Run& run);

/// Whether two runs have learnt the same to the bit: all evaluations, and the losses of the steps that both
/// have.
bool same_curve(const Run& one, const Run& other);

}  // namespace stepladder
