// Is a loss reached in a fixed number of steps? A certificate: the mean validation loss over seeds, and the
// chance of so low a mean were the true one the loss.
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
  /// What the parts of a search for the fewest steps are called, each with its steps: those that looked, and
  /// those whose seeds took no part in that.
  static constexpr const char *kSearch = "search_", *kFresh = "certify_";

  std::string variant, workload;
  std::string part;  // of a results file that holds several, where its name tells them apart
  double loss = 0.0;
  int64_t steps = 0;
  std::vector<int64_t> seeds;
  std::vector<double> losses;  // of each seed, after the last step
  Mean mean;
  double p = 1.0;       // one-sided, of Student's t
  std::string refusal;  // why the runs are no sample; "" where they are

  bool holds() const { return refusal.empty() && p < kLevel; }
  double deviation() const;     // of the losses
  std::string verdict() const;  // "CERTIFIED"
  /// "mean loss 1.9358 of 6 seeds, p 0.0002"; the refusal where there is one.
  std::string found() const;
};

/// A certificate of each row, peers left out. Refused are runs that failed, that stopped where they reached a
/// loss, that are of unequal steps or without a validation loss after the last; a seed that counts twice, or
/// is ignored; and fewer than kMinPairs seeds.
std::vector<Certificate> certificates(const Results& results, double loss);

/// A table, and in notes each seed's loss.
Section section_of(const std::vector<Certificate>& certificates);
/// Those of several numbers of steps, fewest first, as a table alone.
Section of_horizons(std::vector<Certificate> certificates);

/// kExitOk where all hold, kExitNotComparable where one is refused, else kExitInconclusive.
ExitCode exit_code(const std::vector<Certificate>& certificates);

}  // namespace stepladder
