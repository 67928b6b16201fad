// What a run's process, or one of its ranks, tells: events, and what they come to.
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

/// A report that makes no sense: the run's status is crash, its reason this.
struct BadReport : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

/// Events of one process, taken as they come, into its Run and into what a Run does not have.
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

  /// Takes an event's line. Throws BadReport, and Error with kExitNotComparable where the executable is no
  /// longer the one of the plan.
  void take(std::string_view line);
  /// Whether the run has trained to the loss that was to be reached.
  bool reached() const;
  /// Throws BadReport where the steps took longer than the process that made them.
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
  std::optional<FlopsPerToken> flops;  // a rung of ours tells them
  std::optional<Failure> error;
  std::optional<ChildEnd> exit;  // of a rank of a launcher
  std::string host, device;
  double from_first_ms = 0.0;  // to the last step, as they were told

  /// Nothing where nobody reads it.
  std::optional<RankMeter::Energy> energy() const {
    if (!workload_.telemetry || !started) return std::nullopt;
    return meter_ ? meter_->energy() : energy_elsewhere_;
  }

 private:
  using Event = nlohmann::json;

  void take(const std::string& kind, const Event& event);
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
  const bool first_;  // rank 0, which is on the device that is sampled and is heard of
  const bool launched_;
  const std::chrono::steady_clock::time_point created_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point first_step_;
  std::optional<RankMeter> meter_;  // of a rank here
  RankMeter::Energy energy_elsewhere_{{}, "its device's energy was not read"};
  const std::function<void(const Step&)>& on_step_;
};

}  // namespace stepladder
