// What a device uses for the steps of a run, by its own counter.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "bench/results/results.h"
#include "bench/run/telemetry.h"

namespace stepladder {

/// The steps of a run after which the energy used so far must be known.
struct EnergyDue {
  int64_t warmup = 0, steps = 0, eval_every = 0;  // 0 for never or not before the end

  bool after(int64_t done) const {
    return done == warmup || done == steps || (eval_every > 0 && done % eval_every == 0);
  }
};

/// The device that a trainer on `backend` uses, as Telemetry takes it: `told`, the uuid that the trainer
/// told, else `only`, where there is but one. Nothing where neither is known: kDeviceNotTold says so.
std::optional<std::string> metered_device(const std::string& backend, const std::string& told,
                                          const std::string& only = "");
inline constexpr const char* kMixed = "it evaluates after other steps than those it was asked to";
inline constexpr const char* kDeviceNotTold = "the trainer did not tell the uuid of its device";

/// Reads a device's counter while a process runs on it. The harness reads, not that process, which would
/// stand still for the milliseconds that it takes.
class EnergyMeter {
 public:
  /// Before the first step.
  explicit EnergyMeter(Telemetry& telemetry) : telemetry_(telemetry), first_(telemetry.joules()) {}

  /// Joules since then, evaluations left out; nothing where they are unknown, or were read within
  /// the last tenth of a second, in which the counter may not have moved, unless this is `due`.
  std::optional<double> after_step(bool due);
  /// Where the step before it was not due, it may have been told late, or not read: what the steps use can't
  /// be told from what the evaluation does, and is unknown from then on.
  void after_evaluation();

  /// Whether another process has used the device meanwhile; nothing where the device doesn't tell.
  std::optional<bool> shared() const { return shared_; }
  std::string unknown() const;

 private:
  using Clock = std::chrono::steady_clock;
  /// Joules since the first reading, evaluations included; nothing where they are unknown, and once the
  /// counter went back.
  std::optional<double> used();
  void look_for_others(Clock::time_point now);

  Telemetry& telemetry_;
  const std::optional<double> first_;  // joules that the counter begins with
  double used_ = 0.0, last_ = 0.0, evaluations_ = 0.0;
  bool was_due_ = true, mixed_ = false;  // of the latest step; of steps with an evaluation
  bool went_back_ = false;               // the counter
  Clock::time_point read_, looked_;
  std::optional<bool> shared_;
};

/// Reads the device of one rank after its trainer's events: on this machine the harness does, elsewhere
/// `stepladder rank`.
class RankMeter {
 public:
  struct Asked {
    std::string backend = {};  // of a trainer that tells none
    std::string device = {};   // that is sampled where the trainer does not tell which it has
    bool only = false;         // it is the only one, so that its joules are the trainer's
    bool clocks = false;       // of the device, instead of what the trainer tells of them
    EnergyDue due = {};
  };
  RankMeter(TelemetryOfDevices& devices, Asked asked) : devices_(devices), asked_(std::move(asked)) {}

  /// Adds `energy_j` and clocks to a step, as they are right after it.
  void add_to(nlohmann::json& event);

  /// What is known of the device besides the joules of each step.
  struct Energy {
    std::optional<bool> shared;
    std::string unknown;
  };
  Energy energy() const;

 private:
  void start(const nlohmann::json& event);

  TelemetryOfDevices& devices_;
  const Asked asked_;
  Telemetry* telemetry_ = nullptr;
  std::optional<EnergyMeter> meter_;
  std::string unknown_ = "the trainer did not start";
  int64_t steps_ = 0;
};

/// Shorter than this a timed part says nothing: the counter moves ten times a second.
inline constexpr double kLeastEnergyMs = 2000.0;

struct StepEnergy {
  std::optional<double> joules;
  std::string unknown;  // why there are none
};
/// Of a step, the mean over those after the first `warmup`.
StepEnergy energy_of(std::span<const Step> steps, size_t warmup);

}  // namespace stepladder
