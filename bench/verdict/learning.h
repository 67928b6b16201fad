// Whether NEW reaches a loss sooner than BASE, and whether that is certain: two factors, steps to the loss
// and the time of a step, each with an interval over pairs of runs from the same seed; their product, the
// seconds, is judged.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/results/mean.h"
#include "bench/results/rounds.h"
#include "bench/verdict/paired.h"

namespace stepladder {

/// What two runs from the same seed tell.
struct SeedPair {
  std::optional<double> base_steps, next_steps;  // steps to the loss; nothing where it wasn't reached
  std::optional<double> log_time, log_joules;    // of a step, log(NEW / BASE); nothing where unknown
};

/// What is behind a change of the seconds to a loss: means of log(NEW / BASE).
struct LearningChange {
  size_t seeds = 0;                         // pairs
  size_t base_missed = 0, next_missed = 0;  // pairs in which BASE, or NEW, didn't reach the loss
  std::optional<Mean> steps;                // over the pairs in which both reached it
  std::optional<Mean> time;                 // of a step, over the pairs that know it
  std::optional<Mean> seconds, joules;      // steps to the loss x time, or joules, of a step
  /// One-sided p-values of a t test of the seconds; 1 for fewer than kMinCertainPairs pairs. Where a seed
  /// missed the loss, they are of a sign test over the pairs instead: the run that missed the loss counts as
  /// the slower one, and ties are left out.
  double p_slower = 1.0, p_faster = 1.0;

  bool by_signs() const { return base_missed + next_missed > 0; }
  double p_changed() const;  // two-sided
};

/// The factors and their product over pairs. `times`, where there are any, are log ratios of the time of a
/// step by pairs of other runs, and stand in for the pairs' own; the sign test then compares steps alone.
LearningChange learning_change(std::span<const SeedPair> pairs, std::span<const double> times = {});

/// The seeds with which a t test at the two-sided level `alpha` finds a change of `change`, a ratio less 1,
/// in nine of ten cases, if the log ratios of pairs have the standard deviation `deviation`: at least
/// kMinCertainPairs, at most kMaxSeeds.
size_t seeds_to_tell(double change, double deviation, double alpha);
inline constexpr size_t kMaxSeeds = 10'000;

/// A row of a comparison of runs until a loss.
struct LearningNumbers {
  double loss = 0.0;
  LearningChange change;
  double base_steps = 0.0, next_steps = 0.0;  // steps to the loss, geometric means over pairs that reached it
  double base_ms = 0.0, next_ms = 0.0;        // time of a step, geometric means; 0 where unknown
  double base_startup_ms = 0.0, next_startup_ms = 0.0;  // start-up and first step, medians
  std::string no_interval;   // why the seeds are no sample: "BASE learns the same to the bit from .."
  bool same_curves = false;  // BASE and NEW have equal curves from each seed
  /// How many more seeds would tell a change of 1, 2 and 5 %; empty where the spread is unknown.
  struct More {
    int percent = 0;
    size_t seeds = 0;
  };
  std::vector<More> more;

  /// Records why the seeds are no sample: there are then no intervals, no verdicts and no `more`.
  void forget_interval(const std::string& why);
  /// The interval of one of the changes with kFactorConfidence; nothing from fewer than kMinCertainPairs
  /// seeds.
  std::optional<Interval> interval(const Mean& of) const;
};
inline constexpr double kFactorConfidence = 0.95;

/// A row's runs by the seed in their config, by their round where the config has no seed. Throws Error with
/// kExitNotComparable where a seed occurs twice, naming `side`.
std::map<int64_t, const Run*> by_seed(const Rounds& rounds, const std::string& side = "");
/// Whether rungs of ours saw their data in the same order from each seed, so that seeds differ in
/// initialisation alone.
bool has_fixed_order(const Results& results);
/// Whether two of the runs have learnt the same to the bit.
bool ignores_seed(const std::map<int64_t, const Run*>& seeds);

/// Runs whose times of a step stand in for those of the runs that learn.
struct StepTimes {
  Rounds base, next;
};

/// Pairs the runs of BASE and NEW by the seed in their config, else by round, and compares them. `alpha` is
/// for LearningNumbers::more. Throws Error with kExitNotComparable where a side has a seed twice or no seed
/// is common; InputError as crossing() does, naming side and seed.
LearningNumbers learning_numbers(const Rounds& base, const Rounds& next, double loss, double alpha,
                                 const StepTimes* times = nullptr);

// ---- learning the same

/// How much the loss may differ, in nats, after a change that is meant to affect speed alone.
inline constexpr double kEqualLoss = 0.005;
/// Two one-sided t tests at 1 %: whether the mean difference over pairs lies within kEqualLoss of 0.
bool equal_losses(std::span<const double> differences);

}  // namespace stepladder
