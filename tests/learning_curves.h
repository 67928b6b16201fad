// Simulated validation losses: a trend, and noise like rung 13's.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "bench/results/results.h"
#include "tests/comparable.h"

namespace stepladder {

/// Simulated validation losses near 3, fitted to rungs 13 and fp8 and PyTorch's 13 on H200s and H100s
/// (reports/, B=16, T=1024, three seeds): a trend of 3 + 1.4 ln(4000 / step); a shift of a run's log steps,
/// since rounding alone moves runs of one seed apart; and a wiggle that follows the order of the data, so
/// that the runs of a seed share most of the wiggle's variance. The seed fixes every number.
class LearningCurves : public NormalNumbers {
 public:
  static constexpr double kLoss = 3.0, kSteps = 4000.0, kSlope = 1.4;
  double shift = 0.024;   // standard deviation of a run's log steps
  double wiggle = 0.028;  // standard deviation of the loss around its trend
  double shared = 0.88;   // share of the wiggle's variance that runs of a seed have in common
  double memory = 30.0;   // steps over which the wiggle's correlation falls to 1/e
  int64_t last_step = 6000;

  using NormalNumbers::NormalNumbers;

  /// Two curves of a new seed, evaluated every `every` steps; the second trainer takes `more` steps (a ratio
  /// less 1).
  struct Both {
    std::vector<Evaluation> base, next;
  };
  Both next(double more, int64_t every) {
    const double common = wiggle * std::sqrt(shared), apart = wiggle * std::sqrt(1 - shared);
    const double base_at = kSteps * std::exp(shift * normal()),
                 next_at = kSteps * (1 + more) * std::exp(shift * normal());
    double both_wiggle = normal(), base_wiggle = normal(), next_wiggle = normal();
    const double kept = std::exp(-static_cast<double>(every) / memory), fresh = std::sqrt(1 - kept * kept);
    Both both;
    for (int64_t step = every; step <= last_step; step += every) {
      const auto loss = [&](double at, double own_wiggle) {
        return kLoss + kSlope * std::log(at / static_cast<double>(step)) + common * both_wiggle +
               apart * own_wiggle;
      };
      both.base.push_back({step, loss(base_at, base_wiggle)});
      both.next.push_back({step, loss(next_at, next_wiggle)});
      for (double* x : {&both_wiggle, &base_wiggle, &next_wiggle}) *x = kept * *x + fresh * normal();
    }
    return both;
  }
};

/// Runs of two trainers from the same seeds until a loss of 3, evaluated every 100 steps; NEW takes
/// `more_steps` more steps and `more_time` more time a step (ratios less 1).
struct TrainedPair {
  static constexpr const char* kRung = "13_cuda_graphs";
  Results base = results_of("aaa", "2025-01-31T12:00:00.000Z"),
          next = results_of("bbb", "2025-01-31T13:00:00.000Z");

  TrainedPair(int64_t seeds, double more_steps, double more_time, uint64_t noise = 1) {
    LearningCurves curves(noise);
    for (Results* of : {&base, &next})
      of->plan.update(
          {{"until_loss", 3.0}, {"val_data", "val.bin"}, {"eval_every", 100}, {"eval_batches", 8}});
    for (int64_t seed = 1337; seed < 1337 + seeds; ++seed) {
      LearningCurves::Both both = curves.next(more_steps, 100);
      const double ms = 30 * std::exp(0.001 * curves.normal());
      base.runs.push_back(run(seed, std::move(both.base), ms));
      next.runs.push_back(
          run(seed, std::move(both.next), ms * (1 + more_time) * std::exp(0.001 * curves.normal())));
      next.runs.back().source_hash = "def";
    }
  }

 private:
  static stepladder::Run run(int64_t seed, std::vector<Evaluation> losses, double ms) {
    stepladder::Run run = run_of(kRung, seed - 1337, {ms, ms});
    run.config["seed"] = seed;
    run.steps.back().loss = 4.5 + 1e-3 * static_cast<double>(seed);
    run.evaluations = std::move(losses);
    for (Evaluation& evaluation : run.evaluations)
      evaluation.seconds = ms * static_cast<double>(evaluation.step) / 1e3;  // the run keeps only two steps
    const int64_t steps = run.evaluations.back().step;
    const double seconds = (run.summary->first_step_ms + ms * static_cast<double>(steps - 1)) / 1e3;
    run.summary->to_loss =
        ToLoss{.loss = 3.0, .reached = true, .steps = steps, .seconds = seconds, .tokens = 1e6, .joules = {}};
    return run;
  }
};

}  // namespace stepladder
