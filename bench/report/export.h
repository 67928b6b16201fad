// Results in formats that other tools read.
#pragma once

#include <string>
#include <vector>

#include "bench/report/speedups.h"
#include "bench/results/results.h"

namespace stepladder {

/// Google Benchmark's JSON, for its tools/compare.py and other readers: a row for each run that is ok and not
/// throttled or shared, named VARIANT/MODEL/B:n/T:n, the rounds as repetitions. real_time is the run's median
/// step in milliseconds; cpu_time, which the format requires, is the median of device_ms where that is known,
/// else real_time. The numbers of the run's summary are counters.
Json google_benchmark(const Results& results);

/// Results shortened to what a page shows. Of a step the time, with five digits, and the loss, with six; of a
/// run until a loss the first 99 steps (or its warm-up, if longer) and the last one, and at each evaluation
/// the seconds of training until then; of each rank the median of its timed steps; the names of allocations
/// in disturbed runs and one other run of a row, but not of ablations.
Results shortened(Results results);

/// Results as CSV (RFC 4180 with Unix line ends), a line for each run; a run that is not ok has empty
/// numbers. Every number and word of a run's summary, or of a row, has a column: numbers and words that no
/// column was chosen for come last.
std::string csv(const Results& results);
/// CSV as above, with a line for each row of the files.
std::string csv(const std::vector<NamedFindings>& files);

/// The runs that google_benchmark() leaves out, one line each: "02_tf32 gpt2 B=16 T=1024, round 0: oom: ...".
std::vector<std::string> left_out(const Results& results);

}  // namespace stepladder
