// Energy that a device uses for the steps of a run, by the device's own counter.
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
  int64_t warmup = 0, steps = 0, eval_every = 0;  // eval_every 0: never, or only at the end

  bool after(int64_t done) const {
    return done == warmup || done == steps || (eval_every > 0 && done % eval_every == 0);
  }
};

inline constexpr const char* kMixed = "it evaluates after other steps than those it was asked to";

/// Reads a device's energy counter while a trainer runs on the device. The harness reads it, since a reading
/// takes milliseconds in which the trainer would stand still.
class EnergyMeter {
 public:
  /// Reads the counter, so construct the meter before the first step.
  explicit EnergyMeter(Telemetry& telemetry) : telemetry_(telemetry), first_(telemetry.joules()) {}

  /// Joules since construction, without evaluations. Nothing where they are unknown or, unless `due`, where
  /// the last reading is under 0.1 s old: the counter may not have moved since.
  std::optional<double> after_step(bool due);
  /// Counts the joules since the last reading as the evaluation's. If the step before the evaluation was not
  /// due, they may include that step's: the steps' energy is unknown from then on.
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
  const std::optional<double> first_;  // the counter at construction
  double used_ = 0.0, last_ = 0.0, evaluations_ = 0.0;
  bool was_due_ = true, mixed_ = false;  // the latest step was due; steps' and evaluations' energy is mixed
  bool went_back_ = false;               // the counter's value fell
  Clock::time_point read_, looked_;
  std::optional<bool> shared_;
};

/// Reads one rank's device after each of its trainer's events: in the harness for ranks on this machine, in
/// `stepladder rank` elsewhere.
class RankMeter {
 public:
  struct Asked {
    std::string backend = {};  // assumed where the trainer tells no backend
    std::string device = {};   // sampled where the trainer does not tell its device
    bool only = false;         // `device` is the only one, so its joules are the trainer's
    bool clocks = false;       // read the device's clocks instead of the trainer's own
    EnergyDue due = {};
  };
  RankMeter(TelemetryOfDevices& devices, Asked asked) : devices_(devices), asked_(std::move(asked)) {}

  /// Adds the device's `energy_j` and clocks, read right after the step, to a step's event.
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

/// Shortest timed part with a known energy: the counter moves ten times a second.
inline constexpr double kLeastEnergyMs = 2000.0;

struct StepEnergy {
  std::optional<double> joules;
  std::string unknown;  // why there are no joules
};
/// Mean joules of a step, over the steps after the first `warmup`.
StepEnergy energy_of(std::span<const Step> steps, size_t warmup);

}  // namespace stepladder
