// Certificates that a loss is reached in a fixed number of steps: the mean validation loss over seeds, and
// the chance of a mean as low if the true mean were the loss.
#pragma once

#include <string>
#include <vector>

#include "bench/base/section.h"
#include "bench/results/mean.h"
#include "bench/results/results.h"
#include "model/error.h"

namespace stepladder {

/// A row's claim that its mean validation loss after `steps` steps is at most `loss`.
struct Certificate {
  static constexpr double kLevel = 0.01;
  /// What the parts of a search for the fewest steps are called, each followed by its steps: parts that
  /// looked, and parts whose seeds took no part in the looking.
  static constexpr const char *kSearch = "search_", *kFresh = "certify_";

  std::string variant, workload;
  std::string part;  // name of the part that it is from, where several are shown
  double loss = 0.0;
  int64_t steps = 0;
  std::vector<int64_t> seeds;
  std::vector<double> losses;  // validation loss of each seed after the last step
  Mean mean;
  double p = 1.0;       // one-sided p-value of Student's t
  std::string refusal;  // why the runs are no sample; "" where they are one

  bool holds() const { return refusal.empty() && p < kLevel; }
  double deviation() const;     // standard deviation of the losses
  std::string verdict() const;  // "CERTIFIED", "NOT CERTIFIED" or "REFUSED"
  /// "mean loss 1.9358 of 6 seeds, p 0.0002"; the refusal where there is one.
  std::string found() const;
};

/// A certificate of each row of a part, peers left out. A certificate is refused where a run failed, stopped
/// since it reached a loss, has another number of steps than the first run, or lacks a validation loss after
/// the last step; where a seed occurs twice, runs ignore their seeds, or all losses are equal; and for fewer
/// than kMinPairs seeds, or than the plan has.
std::vector<Certificate> certificates(const Results& results, double loss, const std::string& part = "");

/// A section with a table of the certificates, and in notes each seed's loss.
Section section_of(const std::vector<Certificate>& certificates);
/// A section with a table of certificates of several numbers of steps, fewest first.
Section of_horizons(std::vector<Certificate> certificates);

/// kExitOk where all hold, kExitNotComparable where one is refused, else kExitInconclusive.
ExitCode exit_code(const std::vector<Certificate>& certificates);

}  // namespace stepladder
