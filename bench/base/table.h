// Text tables: the same cells for a terminal and for Markdown.
#pragma once

#include <string>
#include <vector>

namespace stepladder {

/// `text` without what would be markup, HTML or a mention in GitHub's Markdown.
std::string markdown_text(const std::string& text);

enum class Align { left, right };

class Table {
 public:
  struct Column {
    std::string header;
    Align align = Align::right;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// A row: as many cells as columns.
  void add(std::vector<std::string> cells);

  /// Columns as wide as their widest cell, two spaces apart. Control characters in cells become '?'.
  std::string terminal() const;
  /// A GitHub table; what would be markup in a cell is escaped.
  std::string markdown() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace stepladder
