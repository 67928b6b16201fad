// A section of a report as data, and what renders it. Nothing but what made the section words or decides.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/base/table.h"

namespace stepladder {

/// A line that stands between the reader and a wrong reading of the tables.
struct Note {
  std::string text;
  bool warning = false;  // of the measurement; else of how to read it
};

/// A number that answers a question, "Fastest step: 27.55 ms", and what it is of. A page has room for them.
struct Fact {
  std::string title, value, more = {};
};

struct Section {
  std::string heading = {};
  std::vector<std::string> sentences = {};
  std::vector<Fact> facts = {};
  std::vector<Table> tables = {};  // each with the heading that it has
  std::vector<Note> notes = {};

  /// "x baseline: times as fast as the lowest rung.": each column of a meaning once, of those that are shown.
  std::string legend(bool wide = true) const;
  /// The heading as it is, sentences and notes folded to the terminal's width, and the tables as
  /// Table::terminal() has them.
  std::string terminal(bool wide) const;
  /// Headings are of `level` and, of tables, one below it.
  std::string markdown(int level = 2) const;
  /// Its parts by name, and its legend.
  nlohmann::ordered_json json() const;
};

/// One after the other.
std::string terminal(const std::vector<Section>& sections, bool wide);
std::string markdown(const std::vector<Section>& sections, int level = 2);

}  // namespace stepladder
