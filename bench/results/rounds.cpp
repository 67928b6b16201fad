#include "bench/results/rounds.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/base/text.h"
#include "model/error.h"

namespace stepladder {
namespace {

/// The runs that both have of the same rounds.
std::vector<std::pair<const Run*, const Run*>> pairs_of(const Rounds& one, const Rounds& other) {
  std::vector<std::pair<const Run*, const Run*>> pairs;
  for (const auto& [round, run] : one)
    if (const auto found = other.find(round); found != other.end()) pairs.emplace_back(run, found->second);
  return pairs;
}

/// Milliseconds a token, those of all devices counted.
double ms_per_token(const Run& run) {
  const Json& config = run.config;
  return run.summary->median_step_ms / (config.at("B").get<double>() * config.at("T").get<double>() *
                                        static_cast<double>(world_size(config)));
}

}  // namespace

Rounds rounds_of(const Results& results, const std::string& variant, const std::string& workload) {
  Rounds rounds;
  for (const Run& run : results.runs)
    if (run.variant == variant && run.workload() == workload) rounds[run.round] = &run;
  return rounds;
}

void drop_throttled(Rounds& rounds) {
  std::erase_if(rounds, [](const auto& round) { return round.second->throttled(); });
}

std::optional<Estimate> speedup(const Rounds& before, const Rounds& after) {
  std::vector<double> before_ms, after_ms;
  for (const auto& [was, is] : pairs_of(before, after)) {
    before_ms.push_back(ms_per_token(*was));
    after_ms.push_back(ms_per_token(*is));
  }
  if (after_ms.empty()) return std::nullopt;
  return speedup(before_ms, after_ms);
}

std::optional<Estimate> longer(const Rounds& rounds, const Rounds& than) {
  std::vector<double> ms;
  for (const auto& [run, other] : pairs_of(rounds, than))
    ms.push_back(run->summary->median_step_ms - other->summary->median_step_ms);
  if (ms.empty()) return std::nullopt;
  return median_over_rounds(ms);
}

double besides_steps_ms(const Run& run) {
  double ms = run.wall_ms;
  for (const Step& step : run.steps) ms -= step.step_ms;
  return ms;
}

std::string divergence(const Run& baseline, const Run& run, double tolerance) {
  const size_t steps = std::min(baseline.steps.size(), run.steps.size());
  for (size_t i = 0; i < steps; ++i) {
    const double expected = baseline.steps[i].loss.value(), loss = run.steps[i].loss.value();
    const double apart = std::abs(loss - expected) / std::abs(expected);
    if (!(apart <= tolerance))
      return cat("step ", i, ": loss ", number_text(loss), ", ", baseline.variant, " has ",
                 number_text(expected), "; they are ", apart, " apart, the tolerance is ", tolerance);
  }
  return "";
}

}  // namespace stepladder
