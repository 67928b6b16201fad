// Tables as data, and what renders them: for a terminal, as Markdown, as CSV and as JSON.
#pragma once

#include <unistd.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/base/statistics.h"
#include "bench/base/text.h"

namespace stepladder {

/// `text` without what would be markup, HTML or a mention in GitHub's Markdown.
std::string markdown_text(const std::string& text);

/// A cell where there is nothing to say.
inline const std::string kNone = "-";
/// "1.02 (1.01 to 1.03)", "1.02" without an interval, kNone of nothing: with `digits` after the point, or as
/// sized() has it.
std::string text_of(const std::optional<Estimate>& estimate, std::optional<int> digits = {});
/// "1.01 to 1.03" of that; kNone without an interval.
std::string interval_text(const Estimate& estimate, std::optional<int> digits = {});

enum class Align { left, right };

/// What stands in a cell. A terminal and Markdown show value and interval, "1.02 (1.01 to 1.03)"; the page
/// has room for the rest.
struct Cell {
  std::string text;
  std::string between = {};  // "1.01 to 1.03"
  std::string hint = {};     // how it came about
  std::string more = {};     // stands below the text

  Cell(std::string of, std::string interval = "", std::string why = "", std::string below = "")
      : text(std::move(of)), between(std::move(interval)), hint(std::move(why)), more(std::move(below)) {}
  Cell(const char* of) : text(of) {}
  /// Text and interval of an estimate as text_of() has them; kNone of nothing.
  static Cell of(const std::optional<Estimate>& estimate, std::optional<int> digits = {},
                 std::string why = "");
};

class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::right;
    int spare = 0;         // left out where there is no room: 1 before 2; 0 never
    bool reasons = false;  // of the last one: "crash: why", whose why may stand below the table
    std::string unit = {};
    std::string meaning = {};

    std::string header() const { return unit.empty() ? title : title + " " + unit; }
  };
  explicit Table(std::vector<Column> columns, std::string heading = "")
      : columns_(std::move(columns)), heading_(std::move(heading)) {}

  static constexpr size_t kWidth = 100;  // where stdout is no terminal

  /// A row: as many cells as columns.
  void add(std::vector<Cell> cells);

  const std::string& heading() const { return heading_; }
  /// The columns that terminal() shows.
  std::vector<Column> shown(bool wide, size_t width = terminal_width(STDOUT_FILENO, kWidth)) const;
  bool empty() const { return rows_.empty(); }

  /// Columns as wide as their widest cell, two spaces apart. Control characters in cells become '?'. Unless
  /// it may be `wide`, spare columns are left out, and named, until the rest fits `width`. Reasons that don't
  /// fit are cut to their first word and stand below the table; any other last column may go beyond the
  /// width.
  std::string terminal(bool wide = false, size_t width = terminal_width(STDOUT_FILENO, kWidth)) const;
  /// A GitHub table; what would be markup in a cell is escaped. With `least`, spare columns below it are left
  /// out, and intervals.
  std::string markdown(int least = 0) const;
  /// RFC 4180 with Unix line ends; the columns' titles are its first line.
  std::string csv() const;
  /// {"heading": .., "columns": [{"title", "unit", "align", "priority", "reasons", "meaning"}], "rows":
  /// [[..]]}: a cell is its text, or {"text", "between", "hint", "more"}. Priority 0 is always shown, others
  /// the higher the longer.
  nlohmann::ordered_json json() const;

 private:
  std::vector<size_t> widths() const;
  /// The columns that fit, and the names of those left out, first those that say nothing.
  std::pair<std::vector<size_t>, std::vector<std::string>> fitting(size_t width) const;
  size_t least_of_last() const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
  std::string heading_;
};

/// The columns of a table of `Row`s: each with its header and what a row says in it.
template <class Row>
class Columns {
 public:
  using Of = std::function<Cell(const Row&)>;

  void add(Table::Column column, Of cell) {
    columns_.push_back(std::move(column));
    cells_.push_back(std::move(cell));
  }
  /// One of numbers, or of text.
  void add(const std::string& title, Of cell) { add(Table::Column{title}, std::move(cell)); }
  void add_text(const std::string& title, Of cell) {
    add(Table::Column{title, Align::left}, std::move(cell));
  }

  template <class Rows>
  Table table(const Rows& rows, const std::string& heading = "") const {
    Table table(columns_, heading);
    for (const Row& row : rows) {
      std::vector<Cell> cells;
      for (const Of& cell : cells_) cells.push_back(cell(row));
      table.add(std::move(cells));
    }
    return table;
  }

 private:
  std::vector<Table::Column> columns_;
  std::vector<Of> cells_;
};

}  // namespace stepladder
