// A comparison as text for a terminal and for a pull request, and as JSON, GitHub annotations and JUnit's
// XML.
#pragma once

#include <string>

#include "bench/verdict/comparison.h"

namespace stepladder {

/// A report as wide as the terminal or, if `wide`, as wide as it has to be.
std::string terminal_report(const Comparison& comparison, bool wide = true);
std::string markdown_report(const Comparison& comparison);
/// {"schema": 3, "kind": "comparison", "verdict": "PASS", "exit_code": 0, "rows": [..], ..}
Json to_json(const Comparison& comparison);

/// The report in `format`: text, which may be `wide`, markdown, json, github or junit.
std::string report_in(const std::string& format, const Comparison& comparison, bool wide = true);

}  // namespace stepladder
