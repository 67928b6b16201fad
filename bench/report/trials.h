// Trials of `stepladder tune`: each trainer's schedules, ranked.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/base/section.h"
#include "bench/results/lines.h"

namespace stepladder {

/// What one schedule came to on one workload, by a part of a results file.
struct Trial {
  static constexpr const char* kPart = "trial_";  // how the parts of trials begin

  std::string part, ladder, trainer, workload;
  std::string judged;  // the data, the batches of a validation loss, the first seed
  double lr = 0.0;
  int64_t steps = 0;
  std::optional<int64_t> warmup;  // steps; nothing where the trainer has a schedule of its own
  std::optional<double> min_lr;   // at the end of the steps
  std::optional<double> until;    // the loss to train to
  size_t seeds = 0;
  std::string failed;                      // why a run failed; "" where none did
  std::optional<double> loss;              // validation loss after the last step, mean over the seeds
  std::optional<double> to_loss, seconds;  // until the loss, means over the seeds; all have to reach it
  std::optional<double> step_ms;
  bool at_first = false;  // a run was below its loss at its first evaluation: it got there sooner

  /// Options with which `stepladder run` trains as the trial did.
  std::string options() const;
  bool worked() const { return failed.empty() && (until ? to_loss.has_value() : loss.has_value()); }
  /// Trials of one contest are ranked against each other: a trainer's trials to a loss, or of as many steps,
  /// on the same data.
  bool contests(const Trial& other) const;
};

/// The trials among the parts of a results file, ranked: trainer by trainer in the order of the file, data by
/// data, to a loss by the steps to it, else horizon by horizon by validation loss. Trials that failed come
/// last.
std::vector<Trial> trials_of(const std::vector<Part>& parts);

/// The trials that won their contests.
std::vector<Trial> best_of(const std::vector<Trial>& ranked);

/// A table of the best `most` trials of each contest, and the options of the best.
Section section_of(const std::vector<Trial>& ranked, size_t most);

}  // namespace stepladder
