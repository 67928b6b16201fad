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

PairedRuns::PairedRuns(Side& base, Side& next)
    : base_(base),
      next_(next),
      most_(static_cast<size_t>(base.plan.stopping.rounds)),
      progress_(2 * most_ * workloads_of(base.plan, 0).size()) {
  for (const Workload& workload : workloads_of(base.plan, 0)) rows_.insert(workload.row());
}

void PairedRuns::measure_pair() {
  check(!exhausted(), "no pair is left to measure");
  const auto round = static_cast<int64_t>(pairs_);
  std::vector<Workload> of_base = workloads_of(base_.plan, round), of_next = workloads_of(next_.plan, round);
  check(of_base.size() == of_next.size(), "pairs of ", of_base.size(), " and ", of_next.size(), " runs");
  const bool base_first = pairs_ % 2 == 0;
  for (size_t i = 0; i < of_base.size(); ++i) {
    const RowKey row = of_base[i].row();
    if (done_.contains(row)) continue;
    for (const bool base : {base_first, !base_first}) {
      Workload& workload = base ? of_base[i] : of_next[i];
      workload.telemetry = &telemetry_;
      progress_.start(cat(row.first, " ", row.second, base ? ", BASE" : ", NEW"), round, workload.steps);
      Run run = run_program(workload, [&](const Step& step) { progress_.step(step); });
      if (run.status != Status::ok) set_done(row);
      (base ? base_ : next_).add(run);
      progress_.finish(run);  // reported once the run can't be lost
    }
  }
  ++pairs_;
}

}  // namespace stepladder
