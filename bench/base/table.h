// Text tables: the same cells for a terminal and for Markdown.
#pragma once

#include <unistd.h>

#include <functional>
#include <optional>
#include <string>
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

class Table {
 public:
  struct Column {
    std::string header;
    Align align = Align::right;
    int spare = 0;         // left out where there is no room: 1 before 2; 0 never
    bool reasons = false;  // of the last one: "crash: why", whose why may stand below the table
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// A row: as many cells as columns.
  void add(std::vector<std::string> cells);

  /// Columns as wide as their widest cell, two spaces apart. Control characters in cells become '?'. Unless
  /// it may be `wide`, spare columns are left out, and named, until the rest fits `width`. Reasons that don't
  /// fit are cut to their first word and stand below the table; any other last column may go beyond the
  /// width.
  std::string terminal(bool wide = false, size_t width = terminal_width(STDOUT_FILENO, kWidth)) const;
  static constexpr size_t kWidth = 100;  // where stdout is no terminal
  /// A GitHub table; what would be markup in a cell is escaped.
  std::string markdown() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// The columns of a table of `Row`s: each with its header and what a row says in it.
template <class Row>
class Columns {
 public:
  using Cell = std::function<std::string(const Row&)>;

  void add(Table::Column column, Cell cell) {
    columns_.push_back(std::move(column));
    cells_.push_back(std::move(cell));
  }
  /// One of numbers, or of text.
  void add(const std::string& header, Cell cell) { add(Table::Column{header}, std::move(cell)); }
  void add_text(const std::string& header, Cell cell) {
    add(Table::Column{header, Align::left}, std::move(cell));
  }

  Table table(const std::vector<Row>& rows) const {
    Table table(columns_);
    for (const Row& row : rows) {
      std::vector<std::string> cells;
      for (const Cell& cell : cells_) cells.push_back(cell(row));
      table.add(std::move(cells));
    }
    return table;
  }

 private:
  std::vector<Table::Column> columns_;
  std::vector<Cell> cells_;
};

}  // namespace stepladder
