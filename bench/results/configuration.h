// What identifies a row besides its variant and workload: what its runs have in common, and what two results
// must have in common to be compared, or to be points of one history.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/results/results.h"

namespace stepladder {

/// What all rows of results share, by field ("device.name"): their ladder, the device's model, on the CPU
/// with what decides how many threads there are, and what the plan asks for. Seed and rounds are samples of a
/// row.
Json configuration_of(const Results& results);
/// What a run that came to its end has, by field ("config.dtype"): its backend, and its config without the
/// seed and the versions of the software that it ran on.
Json configuration_of(const Run& run);
/// Those by name, "torch" say, as the runs tell them: "2.10.0", or several.
std::map<std::string, std::string> versions_told(const Results& results);

/// What else of a configuration than model, batch and length changes a step's time, where it is not the
/// default: "dtype fp16, accumulate 2".
std::string settings_of(const Json& config);

/// A field of which two configurations tell something else.
struct Difference {
  std::string field, was, is;  // "" where unknown
};
/// A field that only one of them has, as files of other versions do, is none. Of a file or folder of data,
/// which may lie in another checkout, the name counts.
std::vector<Difference> differences(const Json& was, const Json& is);

/// Throws Error with kExitNotComparable, naming variant and fields, unless `run` is configured and built as
/// those of its row are. Runs that failed may not have told.
void require_alike(const Results& results, const Run& run);
/// Requires that of all its runs; the error names `what`.
void require_alike(const Results& results, const std::string& what);

}  // namespace stepladder
