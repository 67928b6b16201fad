// A comparison as a person reads it, for a terminal and for a pull request, and as a machine does.
#pragma once

#include <string>

#include "bench/verdict/comparison.h"

namespace stepladder {

/// As wide as a terminal, or as it has to be.
std::string terminal_report(const Comparison& comparison, bool wide = true);
std::string markdown_report(const Comparison& comparison);
/// {"schema": 2, "kind": "comparison", "verdict": "PASS", "exit_code": 0, "rows": [..], ..}
Json to_json(const Comparison& comparison);

/// In `format` text, which may be `wide`, markdown, json, github or junit.
std::string report_in(const std::string& format, const Comparison& comparison, bool wide = true);

}  // namespace stepladder
