#include "bench/pairs.h"

#include "bench/runner.h"
#include "model/error.h"

namespace stepladder {
namespace {

Json config_of(const Plan& plan, const PlannedRun& run) {
  return {{"model", *plan.settings.model}, {"B", run.batch}, {"T", *plan.settings.seq}};
}

}  // namespace

void Side::add(Run run) {
  if (file) file->add(run);
  results.runs.push_back(std::move(run));
}

PairedRuns::PairedRuns(Side& base, Side& next, std::string device_name, double timeout_s)
    : base_(base),
      next_(next),
      device_name_(std::move(device_name)),
      timeout_s_(timeout_s),
      base_runs_(order(base.plan)),
      next_runs_(order(next.plan)),
      most_(static_cast<size_t>(base.plan.rounds)),
      progress_(2 * base_runs_.size(), 0) {
  check(base_runs_.size() == next_runs_.size(), "pairs of ", base_runs_.size(), " and ", next_runs_.size(),
        " runs");
  for (const PlannedRun& run : base_runs_)
    keys_.emplace(run.program.variant, workload_of(config_of(base.plan, run)));
}

void PairedRuns::measure_pair() {
  check(!exhausted(), "no pair is left to measure");
  const size_t size = base_runs_.size() / most_;
  const bool base_first = pairs_ % 2 == 0;
  for (size_t i = pairs_ * size; i < (pairs_ + 1) * size; ++i) {
    const Key key(base_runs_[i].program.variant, workload_of(config_of(base_.plan, base_runs_[i])));
    if (done_.contains(key)) continue;
    for (const bool base : {base_first, !base_first}) {
      Side& side = base ? base_ : next_;
      const auto request =
          request_for(side.plan, base ? base_runs_[i] : next_runs_[i], device_name_, timeout_s_);
      progress_.start(cat(key.first, " ", key.second, base ? ", BASE" : ", NEW"), request.round,
                      request.steps);
      Run run = run_program(request, [&](const Step& step) { progress_.step(step); });
      progress_.finish(run);
      if (run.status != Status::ok) set_done(key);
      side.add(std::move(run));
    }
  }
  ++pairs_;
}

}  // namespace stepladder
