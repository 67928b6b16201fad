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

/// Rungs that published tables have as one step, on a workload: how many times faster the last of them is
/// than the rung before the first, and PyTorch's counterparts of the two. Only where the two ends are ok.
struct GroupGain {
  std::string name, workload, before;
  std::vector<std::string> rungs;  // that took part
  Json config;                     // of the last one
  Estimate ratio;
  std::optional<Estimate> pytorch;
};

/// All that follows from a results file, derived once.
struct Findings {
  Findings(const Results& results);  // which outlive them

  const Results& results() const { return *of_; }

  Ladder ladder;
  std::vector<ResultRow> rows;
  std::vector<AblatedRung> ablated;
  std::vector<AblatedPair> pairs;
  std::vector<ScaledRun> scaled;
  std::vector<PredictedRun> predicted;
  std::vector<GroupGain> groups;
  std::vector<Certificate> certificates;  // of the loss that the plan asks to be certified

  /// Null where there is none.
  const ResultRow* find(const std::string& variant, const std::string& workload) const;

 private:
  const Results* of_;
};

/// A file as others call it: its name, and that of a campaign's part.
struct NamedFindings {
  std::string name, called;
  const Findings* file = nullptr;
};

Json to_json(const ResultRow& row);
/// A whole results file: what was measured, and the rows that follow from it.
Json results_file_json(const Findings& findings);
Json results_file_json(const Results& results);

}  // namespace stepladder
