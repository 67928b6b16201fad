#include "bench/results/crossing.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/error.h"

namespace stepladder {
namespace {

/// Neighbouring evaluations, pooled: means of the loss and of the step's logarithm.
struct Pool {
  double loss = 0.0, log_step = 0.0, size = 1.0;

  void add(const Pool& other) {
    const double all = size + other.size;
    loss = (loss * size + other.loss * other.size) / all;
    log_step = (log_step * size + other.log_step * other.size) / all;
    size = all;
  }
};

/// The best curve through the evaluations that never rises, in least squares.
std::vector<Pool> falling_curve(std::span<const Evaluation> evaluations) {
  std::vector<Pool> pools;
  for (const Evaluation& evaluation : evaluations) {
    if (evaluation.step < 1) continue;
    if (!evaluation.val_loss)
      throw InputError(cat("the validation loss after step ", evaluation.step, " is not finite"));
    pools.push_back({*evaluation.val_loss, std::log(static_cast<double>(evaluation.step))});
    while (pools.size() > 1 && pools.back().loss >= pools[pools.size() - 2].loss) {
      const Pool last = pools.back();
      pools.pop_back();
      pools.back().add(last);
    }
  }
  return pools;
}

/// The crossing in steps; `stopped` where there is none, or the first evaluation was below the loss already.
double crossing_until(double stopped, std::span<const Evaluation> evaluations, double loss) {
  try {
    return crossing(evaluations, loss).value_or(stopped);
  } catch (const InputError&) {
    return stopped;
  }
}

}  // namespace

std::optional<double> crossing(std::span<const Evaluation> evaluations, double loss) {
  const std::vector<Pool> curve = falling_curve(evaluations);
  const auto below = std::ranges::find_if(curve, [&](const Pool& pool) { return pool.loss <= loss; });
  if (below == curve.end()) return std::nullopt;
  if (below == curve.begin())
    throw InputError(cat("the loss of ", loss, " is reached at the first evaluation: evaluate more often"));
  const Pool& above = *(below - 1);
  const double share = (above.loss - loss) / (above.loss - below->loss);
  return std::exp(std::lerp(above.log_step, below->log_step, share));
}

std::optional<ReachedLoss> reached_loss(const Run& run) {
  const std::optional<ToLoss>& until = run.summary->to_loss;
  if (!until || !until->reached) return std::nullopt;
  const auto stopped = static_cast<double>(until->steps);
  const double steps = crossing_until(stopped, run.evaluations, until->loss);
  const std::optional<double> joules = joules_of_step(run);
  return ReachedLoss{.steps = steps,
                     .seconds = steps * mean_step_ms(run) * 1e-3,
                     .tokens = until->tokens * steps / stopped,
                     .joules = joules ? std::optional(steps * *joules) : std::nullopt};
}

std::optional<double> joules_of_step(const Run& run) {
  const auto& until = run.summary->to_loss;
  if (run.summary->joules || !until || !until->joules) return run.summary->joules;
  return *until->joules / static_cast<double>(until->steps);
}

bool reached_at_first(const Run& run) {
  const auto first = std::ranges::find_if(run.evaluations, [](const Evaluation& e) { return e.step > 0; });
  return run.summary && run.summary->to_loss && first != run.evaluations.end() && first->val_loss &&
         *first->val_loss <= run.summary->to_loss->loss;
}

size_t first_timed(const Run& run) {
  return static_cast<size_t>(std::ranges::find(run.steps, false, &Step::warmup) - run.steps.begin());
}

double mean_ms(const Run& run, size_t first) {
  double mean = 0.0, n = 0.0;
  for (size_t i = first; i < run.steps.size(); ++i) mean += (run.steps[i].step_ms - mean) / ++n;
  return mean;
}

double mean_step_ms(const Run& run) {
  const Summary& summary = *run.summary;
  if (summary.to_loss && summary.to_loss->steps > 1)
    return (summary.to_loss->seconds * 1e3 - summary.first_step_ms) /
           static_cast<double>(summary.to_loss->steps - 1);
  return mean_ms(run, first_timed(run));
}

bool same_curve(const Run& one, const Run& other) {
  const size_t steps = std::min(one.steps.size(), other.steps.size());
  const auto evaluation = [](const Evaluation& e) { return std::pair(e.step, e.val_loss); };
  return std::ranges::equal(one.evaluations, other.evaluations, {}, evaluation, evaluation) &&
         std::ranges::equal(std::span(one.steps).first(steps), std::span(other.steps).first(steps), {},
                            &Step::loss, &Step::loss);
}

}  // namespace stepladder
