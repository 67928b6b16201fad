#include "bench/plan/carry_out.h"

#include <algorithm>

#include "bench/results/rounds.h"
#include "bench/run/progress.h"
#include "bench/run/telemetry.h"

namespace stepladder {
namespace {

/// A run that learns something else than the baseline on the same data is no faster way of training. A peer
/// starts from other weights: its losses are recorded, not compared.
void check_learning(Run& run, double tolerance, const std::vector<Run>& finished) {
  if (run.status != Status::ok || !run.peer.empty() || run.variant == ladder().front().name) return;
  if (is_apart(run.config)) return;  // which is a reference for speed
  const auto baseline = std::find_if(finished.begin(), finished.end(), [&](const Run& other) {
    return other.variant == ladder().front().name && other.status == Status::ok &&
           other.config.at("model") == run.config.at("model") && other.config.at("T") == run.config.at("T") &&
           global_batch(other.config) == global_batch(run.config);
  });
  if (baseline == finished.end()) return;
  run.reason = divergence(*baseline, run, tolerance);
  if (!run.reason.empty()) run.status = Status::diverged;
}

/// A run that was not started, as it would be reported.
Run unsupported_run(const RunRequest& request, const std::string& reason) {
  Run run = asked_for(request);
  run.backend = request.backend;
  run.status = Status::unsupported;
  run.reason = reason;
  return run;
}

}  // namespace

Json carry_out(const Plan& plan, const DeviceInfo& device, double timeout_s, ResultsFile& file) {
  std::optional<Telemetry> telemetry;  // for peers; opened here, so that none of their steps waits for it
  if (std::any_of(plan.programs.begin(), plan.programs.end(),
                  [](const Program& p) { return !p.peer.empty(); }))
    telemetry.emplace(device.uuid);
  const Stopping& stopping = plan.stopping;
  const int64_t most = stopping.until_ci ? stopping.max_rounds : stopping.rounds;
  Progress progress(runs_of(plan, 0).size() * static_cast<size_t>(most), file.results().runs.size());
  for (int64_t round = 0;; ++round) {
    const Results& measured = file.results();
    const auto in_round = [&](const Run& run) { return run.round == round; };
    const bool begun = std::any_of(measured.runs.begin(), measured.runs.end(), in_round);
    if (const std::string reason = begun ? "" : stop_reason(stopping, measured, round); !reason.empty()) {
      const auto widest = widest_interval_percent(measured);
      return {{"reason", reason},
              {"rounds", round},
              {"widest_interval_percent", widest ? Json(*widest) : Json()},
              {"spent_s", spent_s(measured)}};
    }
    for (const PlannedRun& planned : runs_of(plan, round)) {
      RunRequest request = request_for(plan, planned, device.name, timeout_s);
      if (!planned.program.peer.empty()) request.telemetry = &*telemetry;
      const std::string workload = workload_of(request.config);
      if (measured.find(planned.program.variant, workload, planned.round)) continue;
      progress.start(planned.program.variant + " " + workload, planned.round, plan.settings.steps);
      Run run = planned.unsupported.empty()
                    ? run_program(request, [&](const Step& step) { progress.step(step); })
                    : unsupported_run(request, planned.unsupported);
      check_learning(run, planned.program.tolerance, measured.runs);
      progress.finish(run);
      file.add(std::move(run));
    }
  }
}

}  // namespace stepladder
