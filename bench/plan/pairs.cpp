#include "bench/plan/pairs.h"

#include "bench/results/configuration.h"
#include "bench/run/runner.h"
#include "model/error.h"

namespace stepladder {

void Side::add(Run run) {
  require_alike(results, run);
  if (file) file->add(run);
  results.runs.push_back(std::move(run));
}

PairedRuns::PairedRuns(Side& base, Side& next, DeviceInfo device, double timeout_s)
    : base_(base),
      next_(next),
      device_(std::move(device)),
      timeout_s_(timeout_s),
      most_(static_cast<size_t>(base.plan.stopping.rounds)),
      progress_(2 * most_ * runs_of(base.plan, 0).size()) {
  for (const PlannedRun& run : runs_of(base.plan, 0))
    rows_.emplace(run.program.variant, workload_of(config_of(base.plan, run)));
}

void PairedRuns::measure_pair() {
  check(!exhausted(), "no pair is left to measure");
  const auto round = static_cast<int64_t>(pairs_);
  const auto base_runs = runs_of(base_.plan, round), next_runs = runs_of(next_.plan, round);
  check(base_runs.size() == next_runs.size(), "pairs of ", base_runs.size(), " and ", next_runs.size(),
        " runs");
  const bool base_first = pairs_ % 2 == 0;
  for (size_t i = 0; i < base_runs.size(); ++i) {
    const RowKey row(base_runs[i].program.variant, workload_of(config_of(base_.plan, base_runs[i])));
    if (done_.contains(row)) continue;
    for (const bool base : {base_first, !base_first}) {
      Side& side = base ? base_ : next_;
      RunRequest request = request_for(side.plan, base ? base_runs[i] : next_runs[i], device_, timeout_s_);
      request.telemetry = &telemetry_;
      progress_.start(cat(row.first, " ", row.second, base ? ", BASE" : ", NEW"), request.round,
                      request.steps);
      Run run = run_program(request, [&](const Step& step) { progress_.step(step); });
      progress_.finish(run);
      if (run.status != Status::ok) set_done(row);
      side.add(std::move(run));
    }
  }
  ++pairs_;
}

}  // namespace stepladder
