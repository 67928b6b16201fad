// Tables as data, and their renderers: for a terminal, as Markdown, as CSV and as JSON.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/base/statistics.h"
#include "bench/base/text.h"

namespace stepladder {

/// `text` with markup, HTML and mentions escaped for GitHub's Markdown.
std::string markdown_text(const std::string& text);

/// The text of a cell without a value.
inline const std::string kNone = "-";
/// An estimate as text: "1.02 (1.01 to 1.03)", "1.02" without an interval, kNone for nothing; with `digits`
/// after the point, or as sized() has it.
std::string text_of(const std::optional<Estimate>& estimate, std::optional<int> digits = {});
/// An estimate's interval as text, "1.01 to 1.03"; kNone without an interval.
std::string interval_text(const Estimate& estimate, std::optional<int> digits = {});

enum class Align { left, right };

/// The content of a cell. Terminal and Markdown show text and interval, "1.02 (1.01 to 1.03)"; the page shows
/// hint and more too.
struct Cell {
  std::string text;
  std::string between = {};             // "1.01 to 1.03"
  std::string hint = {};                // how the value came about
  std::string more = {};                // stands below the text
  std::optional<Estimate> number = {};  // the text's number, to be formatted with its column's digits

  Cell(std::string of, std::string interval = "", std::string why = "", std::string below = "")
      : text(std::move(of)), between(std::move(interval)), hint(std::move(why)), more(std::move(below)) {}
  Cell(const char* of) : text(of) {}
  /// A cell with an estimate's text and interval as text_of() has them; kNone for nothing. Without `digits`
  /// the number gets those of its column.
  static Cell of(const std::optional<Estimate>& estimate, std::optional<int> digits = {},
                 std::string why = "");
  /// A cell with a number, which gets the digits of its column.
  static Cell of(double number, std::string why = "");
};

class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::right;
    int priority = 0;      // order of leaving columns out where there is no room: 1 first; 0: never
    bool reasons = false;  // last column only: cells are "crash: why"; the why may stand below the table
    std::string unit = {};
    std::string meaning = {};

    std::string header() const { return unit.empty() ? title : title + " " + unit; }
  };
  explicit Table(std::vector<Column> columns, std::string heading = "")
      : columns_(std::move(columns)), heading_(std::move(heading)) {}

  static constexpr size_t kWidth = 100;  // columns where stdout is no terminal

  /// Adds a row of as many cells as columns.
  void add(std::vector<Cell> cells);
  /// Gives all numbers of a column as many digits after the point: four significant ones to the smallest, but
  /// no more than five to the largest.
  void even_digits();

  const std::string& heading() const { return heading_; }
  /// The columns that terminal() shows.
  std::vector<Column> shown(bool wide) const;
  bool empty() const { return rows_.empty(); }

  /// The table for a terminal: columns as wide as their widest cell, two spaces apart. Control characters in
  /// cells become '?'. Unless `wide`, columns with a priority are left out, and named, until the rest fits
  /// `width`, and reasons that don't fit stand below the table, with only their first word in the cell. Any
  /// other last column may go beyond the width.
  std::string terminal(bool wide = false, size_t width = terminal_width(STDOUT_FILENO, kWidth)) const;
  /// The table in GitHub's Markdown; markup in cells is escaped. A `least` above 0 leaves out intervals, and
  /// the columns whose priority is from 1 to `least` - 1.
  std::string markdown(int least = 0) const;
  /// The table as CSV (RFC 4180 with Unix line ends); the columns' titles are the first line.
  std::string csv() const;
  /// {"heading": .., "columns": [{"title", "unit", "align", "priority", "reasons", "meaning"}], "rows":
  /// [[..]]}: a cell is its text, or {"text", "between", "hint", "more"}. Columns of priority 0 are always
  /// shown; of the others the lowest priority is left out first.
  nlohmann::ordered_json json() const;

 private:
  std::vector<size_t> widths() const;
  /// The columns that fit, and the names of those left out; columns without any value are left out first.
  std::pair<std::vector<size_t>, std::vector<std::string>> fitting(size_t width) const;
  size_t least_of_last() const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
  std::string heading_;
};

/// The columns of a table of `Row`s: each has a header, and a function that makes its cell of a row.
template <class Row>
class Columns {
 public:
  using Of = std::function<Cell(const Row&)>;

  void add(Table::Column column, Of cell) {
    columns_.push_back(std::move(column));
    cells_.push_back(std::move(cell));
  }
  void add_text(const std::string& title, Of cell) {
    add({.title = title, .align = Align::left}, std::move(cell));
  }
  /// Adds a column of text if its cells differ among `rows`.
  template <class Rows>
  void add_text_if_it_differs(const Rows& rows, const std::string& title, Of cell) {
    const auto differs = [&](const Row& row) { return cell(row).text != cell(*rows.begin()).text; };
    if (std::ranges::any_of(rows, differs)) add_text(title, std::move(cell));
  }

  template <class Rows>
  Table table(const Rows& rows, const std::string& heading = "") const {
    Table table(columns_, heading);
    for (const Row& row : rows) {
      std::vector<Cell> cells;
      for (const Of& cell : cells_) cells.push_back(cell(row));
      table.add(std::move(cells));
    }
    table.even_digits();
    return table;
  }

 private:
  std::vector<Table::Column> columns_;
  std::vector<Of> cells_;
};

}  // namespace stepladder
