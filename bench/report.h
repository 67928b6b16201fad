// The report of a results file: its table for the terminal and for Markdown.
#pragma once

#include <string>

#include "bench/results.h"

namespace stepladder {

/// What was measured on what, the table, and what stands between the reader and a wrong reading of it.
std::string terminal_report(const Results& results);
std::string markdown_report(const Results& results);

}  // namespace stepladder
