// Configurations: what the runs of a row have in common besides variant and workload, and what two results
// must have in common to be compared, or to be points of one history.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/results/results.h"

namespace stepladder {

/// The configuration that all rows of results share, by field ("device.name"): ladder, environment, the
/// device's model (on the CPU with what decides how many threads there are) and the plan's settings. Seed and
/// rounds, which make samples of a row, are left out.
Json configuration_of(const Results& results);
/// The configuration of a run that came to its end, by field ("config.dtype"): its backend, and its config
/// without the seed and the versions of the software that it ran on.
Json configuration_of(const Run& run);
/// The software versions that the runs tell, by name, "torch" say: "2.10.0", or several.
std::map<std::string, std::string> versions_told(const Results& results);

/// Settings besides model, batch and length that change a step's time, where they differ from the defaults;
/// the precision of 16-bit rungs always: "dtype bf16, accumulate 2".
std::string settings_of(const Json& config);

/// A field in which two configurations differ.
struct Difference {
  std::string field, was, is;  // "" where unknown
};
/// The fields in which two configurations differ. A field that only one of them has, as in files of other
/// versions, doesn't count; of the path of data, which may lie in another checkout, only the last name
/// counts.
std::vector<Difference> differences(const Json& was, const Json& is);

/// Checks that `run` is configured and built as the other runs of its row. Throws Error with
/// kExitNotComparable, naming variant and fields, where it isn't. Runs without a summary pass: they may not
/// have told their configuration.
void require_alike(const Results& results, const Run& run);
/// Checks in the same way that the runs of each row are alike; the error names `what`.
void require_alike(const Results& results, const std::string& what);

}  // namespace stepladder
