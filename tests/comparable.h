// Results to compare, and a model of their noise.
#pragma once

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "bench/base/statistics.h"
#include "bench/results/results.h"
#include "model/random.h"

namespace stepladder {

/// A successful run: one warm-up step, then steps of `ms`.
inline Run run_of(const std::string& variant, int64_t round, const std::vector<double>& ms) {
  Run run;
  run.variant = variant;
  run.source_hash = "abc";
  run.backend = "cuda";
  run.round = round;
  run.config = {{"model", "gpt2"}, {"B", 16}, {"T", 1024}, {"seed", 1337}, {"dtype", "bf16"}};
  run.steps.push_back({0, true, 900.0, 900.0, 10.5, 1.0, 1e-3});
  for (double step : ms) run.steps.push_back({std::ssize(run.steps), false, step, step, 4.5, 1.0, 1e-3});
  Summary summary;
  summary.median_step_ms = summary.p10_step_ms = summary.p90_step_ms = median(ms);
  summary.first_step_ms = 900;
  summary.startup_ms = 500;
  summary.warmup_steps = 1;
  summary.tokens_per_second = 16384e3 / summary.median_step_ms;
  summary.memory = {int64_t{8} << 30, int64_t{9} << 30, int64_t{10} << 30, {{"params/wte", 1 << 20}}};
  run.summary = summary;
  return run;
}

inline Results results_of(const std::string& commit, const std::string& time) {
  Results results;
  results.context = {
      {"version", "0.1.0"},
      {"commit", commit},
      {"build", "GNU 12.2.0 -O3"},
      {"time", time},
      {"cpu", "a"},
      {"cores", 2},
      {"device",
       {{"backend", "cuda"}, {"name", "NVIDIA H200"}, {"compute_capability", 90}, {"driver", "580"}}}};
  results.plan = {{"rungs", {"00_fp32_baseline"}},
                  {"model", "gpt2"},
                  {"batch", {16}},
                  {"seq", 1024},
                  {"steps", 40},
                  {"warmup", 1},
                  {"rounds", 10},
                  {"lr", 0.0006},
                  {"seed", 1337},
                  {"data", "/base/data/austen.txt"}};
  results.complete = true;
  return results;
}

/// Random numbers, of which the seed fixes every one.
class NormalNumbers {
 public:
  explicit NormalNumbers(uint64_t seed) : seed_(seed) {}
  /// Uniform in [0,1).
  double uniform() { return random_uniform(seed_, counter_++); }
  /// Standard normal.
  double normal() {
    const double radius = std::sqrt(-2 * std::log1p(-uniform()));  // Box and Muller 1958
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  uint64_t seed_, counter_ = 0;
};

/// A noise model in logarithms of time: each run is off by `process` (standard deviation) and each of its
/// steps by `step`, correlated by `correlation` with the step before (AR(1)); all runs drift by up to `drift`
/// from the first to the last. The seed fixes every number.
class NoisyMachine : public NormalNumbers {
 public:
  double process = 0.006, drift = 0.01, step = 0.004, correlation = 0.7;

  NoisyMachine(uint64_t seed, int64_t runs) : NormalNumbers(seed), runs_(runs) { slope_ = 2 * uniform() - 1; }

  /// A machine where a random half of the processes is slower by `slower` (a ratio less 1), with almost no
  /// other noise.
  static NoisyMachine with_two_speeds(uint64_t seed, int64_t runs, double slower) {
    NoisyMachine machine(seed, runs);
    machine.process = machine.drift = 0.0;
    machine.step = 1e-4;
    machine.second_speed_ = slower;
    return machine;
  }

  /// Milliseconds of the next process's steps; `slower` is a ratio less 1.
  std::vector<double> next(double slower) {
    const double place = static_cast<double>(done_++) / static_cast<double>(runs_);
    double level = std::log1p(slower) + process * normal() + drift * slope_ * place;
    if (second_speed_ > 0.0 && uniform() < 0.5) level += std::log1p(second_speed_);
    double noise = step * normal();
    std::vector<double> ms;
    for (int i = 0; i < 20; ++i) {
      ms.push_back(40.0 * std::exp(level + noise));
      noise = correlation * noise + step * std::sqrt(1 - correlation * correlation) * normal();
    }
    return ms;
  }

 private:
  double slope_ = 0.0, second_speed_ = 0.0;
  int64_t runs_, done_ = 0;
};

}  // namespace stepladder
