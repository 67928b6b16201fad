#include "bench/base/table.h"

#include <algorithm>

#include "bench/base/text.h"
#include "model/error.h"

namespace stepladder {
namespace {

constexpr size_t kMaxCell = 400;  // bytes

/// Columns that UTF-8 text takes on a terminal: bytes that are not continuations.
size_t width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, size_t to, Align align) {
  const std::string space(to - std::min(to, width(text)), ' ');
  return align == Align::left ? text + space : space + text;
}

}  // namespace

std::string markdown_text(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '<' || c == '@') {
      out += c == '<' ? "&lt;" : "&#64;";
      continue;
    }
    if (std::string("\\`*[]|").find(c) != std::string::npos) out += '\\';
    out += c;
  }
  return out;
}

void Table::add(std::vector<std::string> cells) {
  check(cells.size() == columns_.size(), "a row of ", cells.size(), " cells in a table of ", columns_.size(),
        " columns");
  for (std::string& cell : cells) cell = printable(cell, kMaxCell);
  rows_.push_back(std::move(cells));
}

std::string Table::terminal() const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(width(column.header));
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));

  std::string text;
  const auto add_line = [&](const auto& cell) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i)
      line += (i ? "  " : "") + padded(cell(i), widths[i], columns_[i].align);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  add_line([&](size_t i) { return columns_[i].header; });
  add_line([&](size_t i) { return std::string(widths[i], '-'); });
  for (const auto& row : rows_) add_line([&](size_t i) { return row[i]; });
  return text;
}

std::string Table::markdown() const {
  std::string text = "|";
  for (const Column& column : columns_) text += " " + markdown_text(column.header) + " |";
  text += "\n|";
  for (const Column& column : columns_) text += column.align == Align::left ? " :--- |" : " ---: |";
  text += "\n";
  for (const auto& row : rows_) {
    text += "|";
    for (const std::string& cell : row) text += " " + markdown_text(cell) + " |";
    text += "\n";
  }
  return text;
}

}  // namespace stepladder
