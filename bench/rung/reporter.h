// What a run tells while it trains: lines for a person, events for the harness.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/run/events.h"
#include "bench/run/telemetry.h"
#include "bench/rung/session.h"

namespace stepladder {

class Reporter {
 public:
  /// Reports on a session whose model and batch are chosen.
  Reporter(const RunSession& session, EventWriter& events);

  /// Prints a box with everything that decides the run.
  void describe(const Dataset& data) const;
  void start();
  /// Reports the step that makes `done` steps. Samples the device for the harness.
  void step(int64_t done, float lr, double step_ms);
  void evaluated(int64_t done, double val_loss);
  /// Reports the profile and the run's summary.
  void end();

  double loss() const { return loss_; }
  /// The validation loss of the last evaluation.
  std::optional<double> val_loss() const { return val_loss_; }

 private:
  double tokens_per_second(double ms) const { return tokens_ / ms * 1e3; }
  std::string mfu_text(double flops_per_token, double ms) const;

  const RunSession& session_;
  EventWriter& events_;
  const double tokens_;                 // of a step, of all ranks that train one model
  std::optional<double> peak_;          // FLOP/s of these ranks; nothing for an unknown device
  std::optional<Telemetry> telemetry_;  // samples for step events
  std::vector<double> step_ms_;
  double loss_ = 0.0;
  std::optional<double> val_loss_;
};

}  // namespace stepladder
