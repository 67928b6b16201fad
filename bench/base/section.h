// A section of a report as data, and its renderers, which add no words and decide nothing.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/base/table.h"

namespace stepladder {

/// A line that keeps the reader from misreading the tables.
struct Note {
  std::string text;
  bool warning = false;  // a warning about the measurement; else how to read the tables
};

/// A number that answers a question, "Fastest step: 27.55 ms", with details in `more`. Only the page shows
/// facts.
struct Fact {
  std::string title, value, more = {};
};

struct Section {
  std::string heading = {};
  std::vector<std::string> sentences = {};
  std::vector<Fact> facts = {};
  std::vector<Table> tables = {};  // each with its own heading, if any
  std::vector<Note> notes = {};

  /// The meanings of the columns shown, each once: "x baseline: times as fast as the lowest rung.".
  std::string legend(bool wide = true) const;
  /// The section for a terminal: the heading as it is, sentences and notes folded to the terminal's width,
  /// and the tables as Table::terminal() has them.
  std::string terminal(bool wide) const;
  /// The section as Markdown, its heading of `level`, its tables' headings one level below.
  std::string markdown(int level = 2) const;
  /// Heading, sentences, notes and tables of the section as JSON, and its legend().
  nlohmann::ordered_json json() const;
};

/// The sections one after the other.
std::string terminal(const std::vector<Section>& sections, bool wide);
std::string markdown(const std::vector<Section>& sections, int level = 2);

}  // namespace stepladder
