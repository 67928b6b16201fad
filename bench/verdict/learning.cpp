#include "bench/verdict/learning.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "bench/base/text.h"
#include "bench/plan/ladder_file.h"
#include "bench/results/crossing.h"
#include "model/error.h"

namespace stepladder {
namespace {

/// The mean of values; nothing for fewer than two.
std::optional<Mean> mean_if(std::span<const double> values) {
  return values.size() < 2 ? std::nullopt : std::optional(mean_of(values));
}

std::optional<Mean> product(const std::optional<Mean>& one, const std::optional<Mean>& other) {
  return one && other ? std::optional(*one + *other) : std::nullopt;
}

double geometric_mean(std::span<const double> values) {
  double logs = 0.0;
  for (const double value : values) logs += std::log(value);
  return values.empty() ? 0.0 : std::exp(logs / static_cast<double>(values.size()));
}

/// A pair's sign for the sign test: positive where NEW took longer, negative where BASE did, 0 in a tie.
double sign_of(const SeedPair& pair) {
  if (!pair.base_steps || !pair.next_steps) return (pair.base_steps ? 1 : 0) - (pair.next_steps ? 1 : 0);
  return std::log(*pair.next_steps / *pair.base_steps) + pair.log_time.value_or(0.0);
}

// ---- runs

std::optional<double> steps_to(double loss, const Run& run, const char* side, int64_t seed) {
  try {
    if (run.evaluations.empty()) throw InputError("it has no validation losses");
    return crossing(run.evaluations, loss);
  } catch (const InputError& e) {
    throw InputError(cat(side, ", seed ", seed, ": ", e.what()));
  }
}

std::optional<double> log_ratio(const std::optional<double>& base, const std::optional<double>& next) {
  return base && next && *base > 0.0 && *next > 0.0 ? std::optional(std::log(*next / *base)) : std::nullopt;
}

double median_startup(const Rounds& rounds) {
  std::vector<double> ms;
  for (const auto& [round, run] : rounds)
    ms.push_back(run->summary->startup_ms + run->summary->first_step_ms);
  return median(ms);
}

}  // namespace

double LearningChange::p_changed() const {
  return std::min(1.0, 2 * std::min(p_slower, p_faster));
}

LearningChange learning_change(std::span<const SeedPair> pairs, std::span<const double> times) {
  LearningChange change;
  change.seeds = pairs.size();
  std::vector<double> steps, time, joules;
  size_t slower = 0, faster = 0;
  for (SeedPair pair : pairs) {
    if (!times.empty()) pair.log_time.reset();
    change.base_missed += !pair.base_steps;
    change.next_missed += !pair.next_steps;
    if (const auto x = log_ratio(pair.base_steps, pair.next_steps)) steps.push_back(*x);
    if (pair.log_time) time.push_back(*pair.log_time);
    if (pair.log_joules) joules.push_back(*pair.log_joules);
    const double sign = sign_of(pair);
    slower += sign > 0;
    faster += sign < 0;
  }
  if (!times.empty()) time.assign(times.begin(), times.end());
  change.steps = mean_if(steps);
  change.time = mean_if(time);
  change.seconds = product(change.steps, change.time);
  change.joules = product(change.steps, mean_if(joules));
  if (change.by_signs()) {
    change.p_slower = sign_test(slower, faster);
    change.p_faster = sign_test(faster, slower);
  } else if (change.seconds && std::min(steps.size(), time.size()) >= kMinCertainPairs) {
    change.p_slower = p_above(*change.seconds);
    change.p_faster = p_below(*change.seconds);
  }
  return change;
}

std::optional<Interval> LearningNumbers::interval(const Mean& of) const {
  const bool enough = of.df >= static_cast<double>(kMinCertainPairs - 1);
  return enough && no_interval.empty() ? std::optional(interval_of(of, kFactorConfidence)) : std::nullopt;
}

size_t seeds_to_tell(double change, double deviation, double alpha) {
  constexpr double kPower = 0.9;
  const auto found = [&](size_t seeds) {
    const auto df = static_cast<double>(seeds - 1);
    return std::log1p(change) * std::sqrt(static_cast<double>(seeds)) >=
           deviation * (student_t_quantile(1 - alpha / 2, df) + student_t_quantile(kPower, df));
  };
  size_t fewest = kMinCertainPairs, most = kMaxSeeds;  // binary search, as found() is monotonic
  while (fewest < most) {
    const size_t middle = (fewest + most) / 2;
    if (found(middle))
      most = middle;
    else
      fewest = middle + 1;
  }
  return fewest;
}

std::map<int64_t, const Run*> by_seed(const Rounds& rounds, const std::string& side) {
  std::map<int64_t, const Run*> seeds;
  for (const auto& [round, run] : rounds) {
    const auto seed = run->config.find("seed");
    const bool known = seed != run->config.end() && seed->is_number_integer();
    const auto [at, added] = seeds.emplace(known ? seed->get<int64_t>() : round, run);
    if (!added)
      throw Error(cat(side, side.empty() ? "" : "'s ", printable(run->variant, 100), " has the seed ",
                      at->first, " in rounds ", at->second->round, " and ", round,
                      ", and a seed counts once: measure each round from another"),
                  kExitNotComparable);
  }
  return seeds;
}

bool has_fixed_order(const Results& results) {
  const Json shuffle = results.plan.value("shuffle", Json());
  return shuffle.is_boolean() && !shuffle.get<bool>() && ladder_of(results).built_in();
}

bool ignores_seed(const std::map<int64_t, const Run*>& seeds) {
  for (auto one = seeds.begin(); one != seeds.end(); ++one)
    for (auto other = std::next(one); other != seeds.end(); ++other)
      if (same_curve(*one->second, *other->second)) return true;
  return false;
}

/// Throws Error with kExitNotComparable where two runs evaluated after other steps, as long as both trained:
/// the one that does so more often stops in an earlier dip.
void require_same_evaluations(const Run& was, const Run& is, int64_t seed) {
  const auto steps = [](const Run& run) {
    std::vector<int64_t> all;
    for (const Evaluation& one : run.evaluations)
      if (one.step > 0) all.push_back(one.step);
    return all;
  };
  const std::vector<int64_t> before = steps(was), after = steps(is);
  for (size_t i = 0; i + 1 < std::min(before.size(), after.size()); ++i)  // but for a run's last
    if (before[i] != after[i])
      throw Error(cat("not comparable, BASE / NEW: from seed ", seed, " they evaluate after step ", before[i],
                      " / ", after[i], ": both have to evaluate when it is due"),
                  kExitNotComparable);
}

LearningNumbers learning_numbers(const Rounds& base, const Rounds& next, double loss, double alpha,
                                 const StepTimes* times) {
  const auto before = by_seed(base, "BASE"), after = by_seed(next, "NEW");
  LearningNumbers numbers;
  numbers.loss = loss;
  std::vector<SeedPair> pairs;
  std::vector<double> base_steps, next_steps, base_ms, next_ms, log_times;
  const auto add_times = [&](const Run& was, const Run& is) {
    if (was.disturbed() || is.disturbed()) return;
    // What passes between steps counts where both tell it: work that moves there makes nothing sooner.
    const double was_covered = was.summary->covered.value_or(0.0),
                 is_covered = is.summary->covered.value_or(0.0);
    const bool to_next = was_covered > 0.0 && is_covered > 0.0;
    base_ms.push_back(mean_step_ms(was) / (to_next ? was_covered : 1.0));
    next_ms.push_back(mean_step_ms(is) / (to_next ? is_covered : 1.0));
    log_times.push_back(std::log(next_ms.back() / base_ms.back()));
  };
  numbers.same_curves = true;
  for (const auto& [seed, is] : after) {
    const auto found = before.find(seed);
    if (found == before.end()) continue;
    const Run& was = *found->second;
    require_same_evaluations(was, *is, seed);
    SeedPair& pair = pairs.emplace_back();
    pair.base_steps = steps_to(loss, was, "BASE", seed);
    pair.next_steps = steps_to(loss, *is, "NEW", seed);
    numbers.same_curves = numbers.same_curves && same_curve(was, *is);
    if (pair.base_steps && pair.next_steps) {
      base_steps.push_back(*pair.base_steps);
      next_steps.push_back(*pair.next_steps);
    }
    if (times) continue;
    const size_t known = log_times.size();
    add_times(was, *is);
    if (log_times.size() == known) continue;
    pair.log_time = log_times.back();
    pair.log_joules = log_ratio(joules_of_step(was), joules_of_step(*is));
  }
  if (pairs.empty())
    throw Error("not comparable: BASE and NEW have no seed in common; train both from the same --seed",
                kExitNotComparable);
  if (times)
    for (const auto& [was, is] : pairs_of(times->base, times->next)) add_times(*was, *is);

  numbers.change = times ? learning_change(pairs, log_times) : learning_change(pairs);
  numbers.base_steps = geometric_mean(base_steps);
  numbers.next_steps = geometric_mean(next_steps);
  numbers.base_ms = geometric_mean(base_ms);
  numbers.next_ms = geometric_mean(next_ms);
  numbers.base_startup_ms = median_startup(times ? times->base : base);
  numbers.next_startup_ms = median_startup(times ? times->next : next);
  if (const auto& seconds = numbers.change.seconds) {
    const double deviation = seconds->error() * std::sqrt(static_cast<double>(base_steps.size()));
    for (const int percent : {1, 2, 5}) {
      const size_t needed = seeds_to_tell(percent / 100.0, deviation, alpha);
      numbers.more.push_back({percent, needed - std::min(needed, pairs.size())});
    }
  }
  for (const auto& [side, seeds] : {std::pair("BASE", &before), std::pair("NEW", &after)})
    if (ignores_seed(*seeds))
      numbers.forget_interval(
          cat(side, " learns the same to the bit from several seeds: it ignores its seed"));
  return numbers;
}

void LearningNumbers::forget_interval(const std::string& why) {
  no_interval = why;
  change.p_slower = change.p_faster = 1.0;
  more.clear();
}

// ---- learning the same

bool equal_losses(std::span<const double> differences) {
  constexpr double kLevel = 0.01;
  if (differences.size() < kMinCertainPairs) return false;
  const Mean difference = mean_of(differences);
  return p_above(difference, -kEqualLoss) <= kLevel && p_below(difference, kEqualLoss) <= kLevel;
}

}  // namespace stepladder
