// Two builds measured alternating: A B, B A, ..., each run a process of its own.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "bench/plan/plan.h"
#include "bench/run/progress.h"

namespace stepladder {

/// One of the two builds: its plan, and its results so far.
struct Side {
  Plan plan;
  Results results;
  std::unique_ptr<ResultsFile> file;  // keeps the runs too; null: no file does

  void add(Run run);
};

/// Measures pairs of runs. The plans of both sides have the same rungs, workloads and rounds; the number of
/// rounds is the most pairs measured.
class PairedRuns {
 public:
  PairedRuns(Side& base, Side& next);

  /// Measures one more pair of each rung and workload that is not done: A B from the first to the last, next
  /// time B A from the last to the first, so that drift cancels within a pair and over two pairs. A rung and
  /// workload with a run that is not ok is done.
  void measure_pair();
  size_t pairs() const { return pairs_; }
  bool exhausted() const { return pairs_ == most_ || done_.size() == rows_.size(); }
  void set_done(const RowKey& row) { done_.insert(row); }

 private:
  Side &base_, &next_;
  TelemetryOfDevices telemetry_;
  const size_t most_;
  std::set<RowKey> rows_, done_;
  size_t pairs_ = 0;
  Progress progress_;
};

}  // namespace stepladder
