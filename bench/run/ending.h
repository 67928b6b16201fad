// How a run ended, from its processes' events and exits, and which rank is to blame.
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

/// How one process of a run ended. Only rank 0 has the loss. Throws InputError where a native program refused
/// its options.
Ending ending_of(const ChildEnd& end, const ChildReport& report, const Run& run, const Workload& workload,
                 size_t rank);

/// The first rank that sent an error event.
std::optional<size_t> first_with_error(const std::deque<ChildReport>& reports);

/// The rank to blame for the end of a job, and how that rank ended. `command`: the workload's command started
/// the ranks, and its exit status belongs to no rank. `exits` lists ranks in the order of their ends.
std::pair<size_t, ChildEnd> blamed(JobEnd job_end, const std::deque<ChildReport>& reports,
                                   const std::vector<Run>& parts, const std::vector<size_t>& exits,
                                   bool command);

/// The first error of a `stepladder rank` in a launcher's stderr, else the launcher's last words, in
/// parentheses; "" where there are none.
std::string launcher_words(const ChildEnd& end);

/// The ending of a job whose launcher, or command that starts ranks, ended before a rank had told its end:
/// the launcher is to blame. Nothing where every rank told its end. `hosts` has each rank's host, "" where
/// unknown.
std::optional<Ending> left_by_launcher(const ChildEnd& end, const std::string& launcher,
                                       const std::deque<ChildReport>& reports,
                                       const std::vector<std::string>& hosts);

}  // namespace stepladder
