// Progress of runs on stderr: on a terminal one line that is updated, elsewhere a line per finished run; with
// --quiet only lines of runs that failed or were disturbed.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "bench/base/options.h"
#include "bench/results/results.h"

namespace stepladder {

/// Shows the progress of a measurement on stderr.
class Progress {
 public:
  static inline bool quiet = false;  // for the whole process
  static Option quiet_option(const std::string& group);

  explicit Progress(size_t total_runs);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Sets how many runs have finished: fewer than before where runs are measured again.
  void set_done(size_t runs) { done_ = runs; }
  /// Shows that a run starts. Runs of one `key`, a rung on a workload, should take equally long.
  void start(const std::string& key, int64_t round, int64_t steps);
  void step(const Step& step);
  void finish(const Run& run);

 private:
  using Clock = std::chrono::steady_clock;
  double seconds_left() const;
  std::string label() const;
  void show(const std::string& line) const;
  void clear() const;

  const bool terminal_;  // stderr is a terminal, and not --quiet
  const size_t total_;
  size_t done_ = 0;
  std::string key_;
  int64_t round_ = 0, steps_ = 0, steps_done_ = 0;
  Clock::time_point start_;
  std::map<std::string, double> seconds_;  // seconds of the last finished run, by key
};

}  // namespace stepladder
