// The events that a run's process, or one of its ranks, sends, and what they add up to.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "bench/results/results.h"
#include "bench/run/child.h"
#include "bench/run/workload.h"
#include "model/parameters.h"

namespace stepladder {

/// An invalid report of a trainer: the run's status is crash, its reason this error's text.
struct BadReport : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Reads the events of one process as they come, into its Run and into the fields below.
class ChildReport {
 public:
  ChildReport(Run& run, const Workload& workload, size_t rank,
              const std::function<void(const Step&)>& on_step)
      : run_(run),
        workload_(workload),
        rank_(static_cast<int64_t>(rank)),
        first_(rank == 0),
        launched_(workload.has_launcher()),
        on_step_(on_step) {
    if (workload.telemetry && !launched_)
      meter_.emplace(*workload.telemetry, RankMeter::Asked{.backend = workload.backend,
                                                           .device = workload.device.uuid,
                                                           .only = workload.devices == 1,
                                                           .clocks = !workload.program.native && first_,
                                                           .due = workload.energy_due()});
  }

  /// Takes an event's line; ignores events of unknown kinds. Throws BadReport, and Error with
  /// kExitNotComparable where the executable is no longer the one of the plan.
  void take(std::string_view line);
  /// Whether the validation loss after the latest step is at most Workload::until_loss.
  bool reached() const;
  /// Checks that the steps' times add up to at most `wall_ms`, the time of their process. Throws BadReport.
  void check_steps(double wall_ms) const;

  struct Failure {
    std::string status, reason;
  };
  bool failed() const {
    return exit && (exit->how != ChildEnd::How::exited || workload_.is_failure(exit->code));
  }
  bool started = false, ended = false;
  Summary summary;  // only what the process itself reports: startup_ms, memory, compile, skipped_steps
  std::optional<double> val_loss;
  std::optional<FlopsPerToken> flops;  // only our rungs tell them
  std::optional<Failure> error;
  std::optional<ChildEnd> exit;  // how a rank that a launcher started has exited
  std::string host, device;
  /// The time from a step's arrival to the next one's where no evaluation was between, and the steps' own.
  double between_arrivals_ms = 0.0, in_steps_ms = 0.0;

  /// Energy of this rank's device; nothing where telemetry is off or the trainer did not start.
  std::optional<RankMeter::Energy> energy() const {
    if (!workload_.telemetry || !started) return std::nullopt;
    return meter_ ? meter_->energy() : energy_elsewhere_;
  }

 private:
  using Event = nlohmann::json;

  void start(const Event& event);
  Event config_of(const Event& event) const;
  void check_identity(const Event& event) const;
  void step(const Event& event);
  void exited(const Event& event);
  void evaluated(const Event& event);
  void end(const Event& event);

  Run& run_;
  const Workload& workload_;
  size_t between_steps_ = 0;  // bytes of events since the last step
  const int64_t rank_;
  const bool first_;  // rank 0, whose steps go to on_step_
  const bool launched_;
  const std::chrono::steady_clock::time_point created_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_step_;
  std::optional<RankMeter> meter_;  // for a rank that this process starts
  RankMeter::Energy energy_elsewhere_{{}, "its device's energy was not read"};
  const std::function<void(const Step&)>& on_step_;
};

}  // namespace stepladder
