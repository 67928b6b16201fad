// What a reader of a report has to know besides its numbers.
#pragma once

#include <string>
#include <vector>

#include "bench/base/section.h"
#include "bench/report/speedups.h"

namespace stepladder {

/// What was measured on what, how often and when, in a line.
std::string title(const Results& results);

/// Why rounds of a row don't count.
std::string disturbed_note(const ResultRow& row);

/// What a context says of other processes that kept the machine busy, in a sentence; "" where it was as good
/// as idle.
std::string busy_note(const Json& context);

/// How the tables of a file are read, and what stands between the reader and a wrong reading of them.
std::vector<Note> notes_of(const Findings& file);

}  // namespace stepladder
