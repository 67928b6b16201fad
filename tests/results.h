// Results files for tests.
#pragma once

#include <string>

#include "bench/report/speedups.h"
#include "bench/results/file.h"
#include "bench/results/lines.h"
#include "bench/results/run_json.h"
#include "tests/files.h"

namespace stepladder {

/// Results from an export's JSON: context, plan, runs, and how they ended.
inline Results results_from(const Json& json) {
  Results results;
  results.context = json.at("context");
  results.plan = json.at("plan");
  results.complete = json.at("complete");
  results.stopped = json.value("stopped", Json());
  for (const Json& run : json.at("runs")) results.runs.push_back(run_from(run));
  return results;
}

/// Whether a run has this status, and a reason that says each of `parts`.
[[nodiscard]] inline ::testing::AssertionResult ended(const Run& run, Status status,
                                                      const std::vector<std::string>& parts = {}) {
  if (run.status == status) return says(run.reason, parts);
  return ::testing::AssertionFailure() << "status " << name_of(run.status) << ": " << run.reason;
}

/// The text of a results file with one session.
inline std::string file_text(const Results& results, const std::string& part = "",
                             const std::string& session = "0123456789abcdef") {
  Part whole;
  std::tie(whole.name, whole.about) = name_and_about(part);
  whole.results = results;
  whole.last_session = session;
  return lines_of(whole);
}

/// The measurements in the text of a results file with one part.
inline Results results_in(const std::string& text) {
  return parts_from(text).at(0).results;
}

/// The export of the results file at `path`, which has one part.
inline Json exported(const std::string& path) {
  const Part part = load_parts(path).at(0);
  return part.profile.is_null() ? results_file_json(part.results) : part.profile;
}

}  // namespace stepladder
