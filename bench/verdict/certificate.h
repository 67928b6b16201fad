// Is a loss reached in a fixed number of steps? A certificate: the mean validation loss over seeds, and the
// chance of so low a mean were the true one the loss.
#pragma once

#include <string>
#include <vector>

#include "bench/results/mean.h"
#include "bench/results/results.h"
#include "model/error.h"

namespace stepladder {

/// A row's claim that its mean validation loss after `steps` steps is at most `loss`.
struct Certificate {
  static constexpr double kLevel = 0.01;

  std::string variant, workload;
  double loss = 0.0;
  int64_t steps = 0;
  std::vector<int64_t> seeds;
  std::vector<double> losses;  // of each seed, after the last step
  Mean mean;
  double p = 1.0;       // one-sided, of Student's t
  std::string refusal;  // why the runs are no sample; "" where they are

  bool holds() const { return refusal.empty() && p < kLevel; }
  double deviation() const;  // of the losses
};

/// A certificate of each row, peers left out. Refused are runs that failed, that stopped where they reached a
/// loss, that are of unequal steps or without a validation loss after the last; a seed that counts twice, or
/// is ignored; and fewer than kMinPairs seeds.
std::vector<Certificate> certificates(const Results& results, double loss);

/// Table and sentences, for a terminal or, as Markdown, to paste into a pull request.
std::string certificate_text(const std::vector<Certificate>& certificates, bool markdown, bool wide = false);

/// kExitOk where all hold, kExitNotComparable where one is refused, else kExitInconclusive.
ExitCode exit_code(const std::vector<Certificate>& certificates);

}  // namespace stepladder
