// Rows held against each other: how many times faster a rung is than those below it and than its peers.
#pragma once

#include <vector>

#include "bench/plan/ladder.h"
#include "bench/report/ablation.h"
#include "bench/report/scaling.h"
#include "bench/results/rounds.h"
#include "bench/verdict/certificate.h"

namespace stepladder {

/// Rows with their speed-ups, in the order of the ladder, workload by workload as they first appear; peers
/// after the rungs.
std::vector<ResultRow> aggregate(const Results& results);

/// The gain of a group of rungs on a workload: how many times faster its last rung is than the rung before
/// its first, and the same for PyTorch's counterparts of these two. Only where both rungs are ok and
/// undisturbed.
struct GroupGain {
  std::string name, workload, before;
  std::vector<std::string> rungs;  // rungs that took part
  Json config;                     // config of the last rung
  Estimate ratio;
  std::optional<Estimate> pytorch;
};

/// All that follows from a results file, derived once.
struct Findings {
  Findings(const Results& results);  // `results` has to outlive the findings

  const Results& results() const { return *of_; }

  Ladder ladder;
  std::vector<ResultRow> rows;
  std::vector<AblatedRung> ablated;
  std::vector<AblatedPair> pairs;
  std::vector<ScaledRun> scaled;
  std::vector<PredictedRun> predicted;
  std::vector<GroupGain> groups;
  std::vector<Certificate> certificates;  // of the loss that the plan asks to be certified

  /// The row of a variant on a workload; null where there is none.
  const ResultRow* find(const std::string& variant, const std::string& workload) const;

 private:
  const Results* of_;
};

/// The findings of a file, with its name and what texts call it: that name, or "part NAME" for a part of a
/// campaign.
struct NamedFindings {
  std::string name, called;
  const Findings* file = nullptr;
};

Json to_json(const ResultRow& row);
/// A whole results file: what was measured, and the rows that follow from it.
Json results_file_json(const Findings& findings);

}  // namespace stepladder
