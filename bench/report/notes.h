// What a reader of a report has to know besides its numbers.
#pragma once

#include <string>
#include <vector>

#include "bench/base/section.h"
#include "bench/report/speedups.h"

namespace stepladder {

/// A line on what was measured, on which device, how often and when.
std::string title(const Results& results);

/// Why rounds of a row don't count.
std::string disturbed_note(const ResultRow& row);

/// A sentence on other processes that kept the machine busy, as a context tells; "" where the machine was as
/// good as idle.
std::string busy_note(const Json& context);

/// How the tables of a file are read, and warnings that keep the reader from misreading them.
std::vector<Note> notes_of(const Findings& file);

}  // namespace stepladder
