// How a run ended: by what its processes told and how they went, and which rank is to blame.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/results/results.h"
#include "bench/run/child.h"
#include "bench/run/child_report.h"

namespace stepladder {

struct Ending {
  Status status = Status::ok;
  std::string reason;
};

/// How one process of a run ended. Only rank 0 has the loss. Throws InputError where a native one refused its
/// options.
Ending ending_of(const ChildEnd& end, const ChildReport& report, const Run& run, const Workload& workload,
                 size_t rank);

/// The first rank that told of an error.
std::optional<size_t> first_with_error(const std::deque<ChildReport>& reports);

/// The rank to blame for the end of a job, with how it ended. `command` started the ranks itself: how that
/// ended is no rank's. `exits` are ranks, as they ended.
std::pair<size_t, ChildEnd> blamed(JobEnd job_end, const std::deque<ChildReport>& reports,
                                   const std::vector<Run>& parts, const std::vector<size_t>& exits,
                                   bool command);

/// The first error of a `stepladder rank` among the words of a launcher, else the launcher's; " (words)", ""
/// for none.
std::string launcher_words(const ChildEnd& end);

/// Where none failed: the end of a rank that had not told how it did when its launcher, or the command that
/// starts ranks, ended, which is to blame. `hosts` are the ranks', "" where unknown.
std::optional<Ending> left_by_launcher(const ChildEnd& end, const std::string& launcher,
                                       const std::deque<ChildReport>& reports,
                                       const std::vector<std::string>& hosts);

}  // namespace stepladder
