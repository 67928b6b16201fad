#include "bench/base/table.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <utility>

#include "model/error.h"

namespace stepladder {
namespace {

constexpr size_t kRule = 20;  // most dashes below the header of a last column of text

std::string padded(const std::string& text, size_t to, Align align) {
  const std::string space(to - std::min(to, text_width(text)), ' ');
  return align == Align::left ? text + space : space + text;
}

std::string figures(double value, std::optional<int> digits) {
  return digits ? fixed(value, *digits) : sized(value);
}

/// A cell's text with its interval in brackets.
std::string text_in(const Cell& cell) {
  return printable(cell.between.empty() ? cell.text : cat(cell.text, " (", cell.between, ")"), kMaxCell);
}

/// "crash" of "crash: exit status 7".
std::string without_reason(const std::string& cell) {
  return cell.substr(0, cell.find(": "));
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string cell = "\"";
  for (const char c : text) cell += c == '"' ? "\"\"" : std::string(1, c);
  return cell + "\"";
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

Cell Cell::of(const std::optional<Estimate>& estimate, std::optional<int> digits, std::string why) {
  if (!estimate) return kNone;
  Cell cell{figures(estimate->value, digits), estimate->interval ? interval_text(*estimate, digits) : "",
            std::move(why)};
  if (!digits) cell.number = estimate;
  return cell;
}

Cell Cell::of(double number, std::string why) {
  Estimate estimate;
  estimate.value = number;
  return of(estimate, {}, std::move(why));
}

void Table::add(std::vector<Cell> cells) {
  check(cells.size() == columns_.size(), "a row of ", cells.size(), " cells in a table of ", columns_.size(),
        " columns");
  for (Cell& cell : cells)
    for (std::string* text : {&cell.text, &cell.between, &cell.hint, &cell.more})
      *text = without_controls(*text);
  rows_.push_back(std::move(cells));
}

void Table::even_digits() {
  for (size_t column = 0; column < columns_.size(); ++column) {
    double least = HUGE_VAL, most = 0.0;
    for (const auto& row : rows_) {
      const double size = row[column].number ? std::abs(row[column].number->value) : 0.0;
      if (size > 0.0) least = std::min(least, size);
      most = std::max(most, size);
    }
    for (auto& row : rows_) {
      Cell& cell = row[column];
      if (!cell.number) continue;
      const int digits = column_digits(least, most);
      cell.text = fixed(cell.number->value, digits);
      if (!cell.between.empty()) cell.between = interval_text(*cell.number, digits);
    }
  }
}

std::vector<size_t> Table::widths() const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    widths.push_back(text_width(columns_[i].header()));
    for (const auto& row : rows_) widths[i] = std::max(widths[i], text_width(text_in(row[i])));
  }
  return widths;
}

/// Least width of the last column: its text may run on, as nothing follows it.
size_t Table::least_of_last() const {
  const Column& last = columns_.back();
  if (last.priority > 0) return widths().back();
  size_t least = text_width(last.header());
  if (last.reasons)
    for (const auto& row : rows_) least = std::max(least, text_width(without_reason(text_in(row.back()))));
  return least;
}

std::pair<std::vector<size_t>, std::vector<std::string>> Table::fitting(size_t width) const {
  const std::vector<size_t> wide = widths();
  const size_t last = columns_.size() - 1;
  std::vector<size_t> shown;
  std::vector<std::string> left_out;
  size_t total = least_of_last();
  for (size_t i = 0; i <= last; ++i) {
    if (i < last) total += wide[i] + 2;
    shown.push_back(i);
  }
  const auto priority = [&](size_t i) {
    const bool says = i == 0 || i == last || rows_.empty() ||
                      std::ranges::any_of(rows_, [&](const auto& row) { return row[i].text != kNone; });
    const int own = columns_[i].priority ? columns_[i].priority : INT_MAX;
    return says ? own : own - INT_MAX;  // columns without any value leave first
  };
  while (total > width) {
    const auto next = std::ranges::min_element(shown, {}, priority);
    if (next == shown.end() || priority(*next) == INT_MAX) break;
    total -= wide[*next] + 2;
    left_out.push_back(columns_[*next].header());
    shown.erase(next);
  }
  return {shown, left_out};
}

std::vector<Table::Column> Table::shown(bool wide) const {
  std::vector<Column> columns;
  for (const size_t i : fitting(wide ? SIZE_MAX : terminal_width(STDOUT_FILENO, kWidth)).first)
    columns.push_back(columns_[i]);
  return columns;
}

std::string Table::terminal(bool wide, size_t width) const {
  const size_t last = columns_.size() - 1;
  std::vector<size_t> room = widths();
  const auto [shown, left_out] = fitting(wide ? SIZE_MAX : width);
  std::vector<std::string> ends;  // each row's last cell
  for (const auto& row : rows_) ends.push_back(text_in(row.back()));
  std::string below;
  if (columns_[last].reasons && !wide) {
    room[last] = least_of_last();
    size_t before = 0;
    for (const size_t i : shown) before += i == last ? 0 : room[i] + 2;
    for (size_t row = 0; row < rows_.size(); ++row) {
      const std::string word = without_reason(ends[row]);
      if (word != ends[row] && before + text_width(ends[row]) > width) {
        for (size_t i = 0; i < last && columns_[i].align == Align::left; ++i)
          below += (i > 0 ? ", " : "") + rows_[row][i].text;
        below += ": " + std::exchange(ends[row], word) + "\n";
      }
      room[last] = std::max(room[last], text_width(ends[row]));
    }
  }

  std::string text;
  const auto add_line = [&, &shown = shown](const auto& cell) {
    std::string line;
    for (const size_t i : shown)
      line += (i != shown.front() ? "  " : "") + padded(cell(i), room[i], columns_[i].align);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  add_line([&](size_t i) { return columns_[i].header(); });
  add_line([&](size_t i) {
    const bool may_go_on = i == last && columns_[i].align == Align::left;
    return std::string(may_go_on ? std::min(room[i], kRule) : room[i], '-');
  });
  for (size_t row = 0; row < rows_.size(); ++row)
    add_line([&](size_t i) { return i == last ? ends[row] : text_in(rows_[row][i]); });
  text += below;
  if (!left_out.empty()) text += "--wide also shows: " + join(left_out, ", ") + "\n";
  return text;
}

std::string Table::markdown(int least) const {
  std::vector<size_t> shown;
  for (size_t i = 0; i < columns_.size(); ++i)
    if (columns_[i].priority == 0 || columns_[i].priority >= least) shown.push_back(i);
  std::string text;
  const auto add_line = [&](const auto& cell) {
    for (const size_t i : shown) text += (i == shown.front() ? "|" : "") + cell(i) + "|";
    text += "\n";
  };
  add_line([&](size_t i) { return cat(" ", markdown_text(columns_[i].header()), " "); });
  add_line([&](size_t i) { return std::string(columns_[i].align == Align::left ? " :--- " : " ---: "); });
  for (const auto& row : rows_)
    add_line(
        [&](size_t i) { return cat(" ", markdown_text(least > 0 ? row[i].text : text_in(row[i])), " "); });
  return text;
}

std::string Table::csv() const {
  std::string text;
  const auto add_line = [&](const auto& cell) {
    for (size_t i = 0; i < columns_.size(); ++i) text += (i > 0 ? "," : "") + csv_cell(cell(i));
    text += "\n";
  };
  add_line([&](size_t i) { return columns_[i].title; });
  for (const auto& row : rows_) add_line([&](size_t i) { return row[i].text; });
  return text;
}

nlohmann::ordered_json Table::json() const {
  using Json = nlohmann::ordered_json;
  Json columns = Json::array(), rows = Json::array();
  for (const Column& c : columns_)
    columns.push_back({{"title", c.title},
                       {"unit", c.unit},
                       {"align", c.align == Align::left ? "left" : "right"},
                       {"priority", c.priority},
                       {"reasons", c.reasons},
                       {"meaning", c.meaning}});
  for (const auto& row : rows_) {
    Json cells = Json::array();
    for (const Cell& cell : row)
      cells.push_back((cell.between + cell.hint + cell.more).empty()
                          ? Json(text_in(cell))
                          : Json{{"text", printable(cell.text, kMaxCell)},
                                 {"between", cell.between},
                                 {"hint", printable(cell.hint, kMaxCell)},
                                 {"more", printable(cell.more, kMaxCell)}});
    rows.push_back(std::move(cells));
  }
  return {{"heading", heading_}, {"columns", std::move(columns)}, {"rows", std::move(rows)}};
}

}  // namespace stepladder
