#include "bench/base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "model/error.h"

namespace stepladder {
namespace {

/// std::to_chars as a string. The longest double, fixed, has 309 digits before the point.
template <class Float, class... Format>
std::string formatted(Float number, Format... format) {
  std::array<char, 512> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number, format...);
  return {buffer.data(), end};
}

}  // namespace

std::string join(const std::vector<std::string>& parts, const std::string& separator) {
  std::string joined;
  for (const std::string& part : parts) joined += (joined.empty() ? "" : separator) + part;
  return joined;
}

std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  const std::ptrdiff_t first = number < 0 ? 1 : 0;
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > first; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

std::string fixed(double number, int digits) {
  return formatted(number, std::chars_format::fixed, digits);
}
std::string sized(double number) {
  const double size = std::abs(number);
  return fixed(number, size < 10 ? 3 : size < 100 ? 2 : size < 1000 ? 1 : 0);
}
std::string percent_of(double log_ratio, int digits) {
  const double value = std::expm1(log_ratio) * 100;
  return (value < 0 ? "" : "+") + fixed(value, digits);
}

std::string scientific(double number) {
  return formatted(number, std::chars_format::scientific, 2);
}

std::string number_text(float number) {
  return formatted(number);
}
std::string number_text(double number) {
  return formatted(number);
}

double of_float(double number) {
  const auto narrow = static_cast<float>(number);
  return std::isfinite(narrow) ? number_from<double>(number_text(narrow)).value() : number;
}

std::string bytes_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  auto size = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; size >= 1000 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
  return fixed(size, 1) + " " + kUnits[unit];
}

std::string without_controls(std::string text, std::string_view but) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F are controls too, of two bytes: a terminal takes U+009B for ESC [.
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (c == 0xc2 && next >= 0x80 && next < 0xa0)
      text[i] = text[i + 1] = '?';
    else if ((c < 0x20 && but.find(text[i]) == std::string_view::npos) || c == 0x7f)
      text[i] = '?';
  }
  return text;
}

std::string printable(std::string_view text, size_t limit) {
  if (text.size() <= limit) return without_controls(std::string(text));
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;  // no half character
  return without_controls(std::string(text.substr(0, limit))) + "...";
}

std::string path_error(const std::filesystem::filesystem_error& error) {
  return cat(error.path1().string(), ": ", error.code().message(), "; check the path");
}

size_t text_width(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

std::string box(std::vector<std::pair<std::string, std::string>> rows) {
  for (auto& row : rows) row.second = printable(row.second, kMaxCell);
  size_t left = 0, right = 0;
  for (const auto& [name, value] : rows) {
    left = std::max(left, text_width(name));
    right = std::max(right, text_width(value));
  }
  const std::string rule = "+" + std::string(left + 2, '-') + "+" + std::string(right + 2, '-') + "+\n";
  std::string text = rule;
  for (const auto& [name, value] : rows) {
    if (name.empty()) {
      text += rule;
      continue;
    }
    text += cat("| ", name, std::string(left - text_width(name), ' '), " | ", value,
                std::string(right - text_width(value), ' '), " |\n");
  }
  return text + rule;
}

std::string shell_quoted(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_quoted(word);
  return line;
}

std::vector<std::string> shell_words(const std::string& line) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = '\0';
  for (size_t i = 0; i < line.size(); ++i) {
    if ((line[i] == ' ' || line[i] == '\n' || line[i] == '\t') && quote == '\0') {
      in_word = false;
      continue;
    }
    if (!std::exchange(in_word, true)) words.emplace_back();
    if (line[i] == quote || (quote == '\0' && (line[i] == '\'' || line[i] == '"')))
      quote = quote == '\0' ? line[i] : '\0';
    else
      words.back() += line[i] == '\\' && quote != '\'' && i + 1 < line.size() ? line[++i] : line[i];
  }
  return words;
}

}  // namespace stepladder
