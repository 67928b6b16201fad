#include "bench/base/table.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "model/error.h"

namespace stepladder {
namespace {

constexpr size_t kRule = 20;  // dashes over a last column, whose text may be long

std::string padded(const std::string& text, size_t to, Align align) {
  const std::string space(to - std::min(to, text_width(text)), ' ');
  return align == Align::left ? text + space : space + text;
}

std::string figures(double value, std::optional<int> digits) {
  return digits ? fixed(value, *digits) : sized(value);
}

/// "crash" of "crash: exit status 7".
std::string without_reason(const std::string& cell) {
  return cell.substr(0, cell.find(": "));
}

}  // namespace

std::string markdown_text(const std::string& text) {
  const auto in_word = [&](size_t at) { return at < text.size() && std::isalnum(text[at] & 0x7f) != 0; };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '<' || c == '@' || c == '&') {
      out += c == '<' ? "&lt;" : c == '@' ? "&#64;" : "&amp;";
      continue;
    }
    const bool marks = c == '_' ? !in_word(i - 1) || !in_word(i + 1)
                                : std::string_view("\\`*[]|~#").find(c) != std::string_view::npos;
    if (marks) out += '\\';
    out += c;
  }
  return out;
}

std::string text_of(const std::optional<Estimate>& estimate, std::optional<int> digits) {
  if (!estimate) return kNone;
  const std::string value = figures(estimate->value, digits);
  return estimate->interval ? cat(value, " (", interval_text(*estimate, digits), ")") : value;
}

std::string interval_text(const Estimate& estimate, std::optional<int> digits) {
  const auto& interval = estimate.interval;
  return interval ? cat(figures(interval->lo, digits), " to ", figures(interval->hi, digits)) : kNone;
}

void Table::add(std::vector<std::string> cells) {
  check(cells.size() == columns_.size(), "a row of ", cells.size(), " cells in a table of ", columns_.size(),
        " columns");
  for (std::string& cell : cells) cell = printable(cell, kMaxCell);
  rows_.push_back(std::move(cells));
}

std::string Table::terminal(bool wide, size_t width) const {
  const size_t last = columns_.size() - 1;
  std::vector<size_t> widths, shown;
  std::vector<std::string> left_out;
  size_t total = 0, least = text_width(columns_[last].header);  // of the last: a text may go on, as nothing
  for (size_t i = 0; i <= last; ++i) {                          // stands behind it
    widths.push_back(text_width(columns_[i].header));
    for (const auto& row : rows_) widths[i] = std::max(widths[i], text_width(row[i]));
    if (i < last) total += widths[i] + 2;
    shown.push_back(i);
  }
  if (columns_[last].reasons)
    for (const auto& row : rows_) least = std::max(least, text_width(without_reason(row[last])));
  if (columns_[last].spare > 0) least = widths[last];
  total += least;
  // Columns that say nothing go first.
  const auto spare = [&](size_t i) {
    const bool says = i == 0 || i == last || rows_.empty() ||
                      std::ranges::any_of(rows_, [&](const auto& row) { return row[i] != kNone; });
    return !says ? 0 : columns_[i].spare ? columns_[i].spare : INT_MAX;
  };
  while (!wide && total > width) {
    const auto next = std::ranges::min_element(shown, {}, spare);
    if (next == shown.end() || spare(*next) == INT_MAX) break;
    total -= widths[*next] + 2;
    left_out.push_back(columns_[*next].header);
    shown.erase(next);
  }

  std::vector<std::vector<std::string>> rows = rows_;
  std::string below;
  if (columns_[last].reasons && !wide) {
    widths[last] = least;
    for (auto& row : rows) {
      const std::string word = without_reason(row[last]);
      if (word != row[last] && total - least + text_width(row[last]) > width) {
        for (size_t i = 0; i < last && columns_[i].align == Align::left; ++i)
          below += (i > 0 ? ", " : "") + row[i];
        below += ": " + std::exchange(row[last], word) + "\n";
      }
      widths[last] = std::max(widths[last], text_width(row[last]));
    }
  }

  std::string text;
  const auto add_line = [&](const auto& cell) {
    std::string line;
    for (const size_t i : shown)
      line += (i != shown.front() ? "  " : "") + padded(cell(i), widths[i], columns_[i].align);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  add_line([&](size_t i) { return columns_[i].header; });
  add_line([&](size_t i) {
    const bool may_go_on = i == last && columns_[i].align == Align::left;
    return std::string(may_go_on ? std::min(widths[i], kRule) : widths[i], '-');
  });
  for (const auto& row : rows) add_line([&](size_t i) { return row[i]; });
  text += below;
  if (!left_out.empty()) text += "--wide also shows: " + join(left_out, ", ") + "\n";
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
