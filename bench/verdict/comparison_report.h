// A comparison as text for a terminal and for a pull request, and as JSON, GitHub annotations and JUnit's
// XML.
#pragma once

#include <string>

#include "bench/verdict/comparison.h"

namespace stepladder {

/// The report in `format`: markdown, json, github, junit, or text, which is as wide as the terminal or, if
/// `wide`, as wide as it has to be.
std::string report_in(const std::string& format, const Comparison& comparison, bool wide = true);

}  // namespace stepladder
