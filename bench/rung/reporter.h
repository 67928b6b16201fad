// What a run tells while it trains: lines for a person, events for the harness.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/run/events.h"
#include "bench/run/telemetry.h"
#include "bench/rung/session.h"

namespace stepladder {

/// How fast a step is, as tokens per second and MFU.
class Speed {
 public:
  explicit Speed(const RunSession& session);

  double tokens_per_second(double ms) const { return tokens_ / ms * 1e3; }
  std::string mfu_nanogpt(double ms) const { return percent(nanogpt_, ms); }
  std::string mfu_llmc(double ms) const { return percent(llmc_, ms); }
  std::string peak() const;

 private:
  std::string percent(double flops_per_token, double ms) const;

  double tokens_, nanogpt_, llmc_;
  std::optional<double> peak_;
};

class Reporter {
 public:
  /// Of a session whose model and batch are chosen.
  Reporter(const RunSession& session, EventWriter& events);

  /// The box with everything that decides the run.
  void describe(const Dataset& data) const;
  void start();
  /// A step that is done, `done` of them now. Samples the device for the harness.
  void step(int64_t done, float lr, double step_ms);
  void evaluated(int64_t done, double val_loss);
  void saved(int64_t done) const;
  /// The profile and what the run came to.
  void end();

  double loss() const { return loss_; }

 private:
  const RunSession& session_;
  EventWriter& events_;
  const Speed speed_;
  std::optional<Telemetry> telemetry_;  // for the harness
  std::vector<double> step_ms_;
  double loss_ = 0.0;
  std::optional<double> val_loss_;
};

}  // namespace stepladder
