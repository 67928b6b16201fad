// The report of a results file: its table for the terminal and for Markdown.
#pragma once

#include <string>
#include <vector>

#include "bench/results/rounds.h"

namespace stepladder {

/// What a context says of other processes that kept the machine busy, in a sentence; "" where it was as good
/// as idle.
std::string busy_note(const Json& context);

/// A line that stands between the reader and a wrong reading of the table.
struct Note {
  std::string text;
  bool warning = false;  // of the measurement; else of how to read it
};
std::vector<Note> report_notes(const Results& results);

/// Of rungs on the CPU, whose speed says nothing, how many learn as the first one does; "" elsewhere.
std::string learning(const Results& results);

/// How many times faster the fastest rung is than each peer's fastest on its workload, within rounds.
/// Throttled rows don't count, and rungs on several devices only where there are no others.
std::vector<Speedup> against_peers(const Results& results);

/// The answer (the fastest rung, in how much memory, and against whom), what was measured on what, the table,
/// and the notes. `ratios_only` leaves out milliseconds, tokens and bytes, which those of another device
/// beside them would be compared with. Tables that are not `wide` fit the terminal, or 100 columns where
/// there is none.
std::string terminal_report(const Results& results, bool ratios_only = false, bool wide = true);
std::string markdown_report(const Results& results, bool ratios_only = false);

/// The rows of two rungs, and how many times faster `after` is on each workload that both were measured on.
std::string two_rungs(const Results& results, const std::string& before, const std::string& after,
                      bool wide = false);

}  // namespace stepladder
