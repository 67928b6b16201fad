#include "bench/base/text.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iostream>
#include <optional>

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

/// The first UTF-8 character of `text` and its number of bytes; nothing and 1 where the first byte begins no
/// valid one.
std::pair<std::optional<char32_t>, size_t> character_at(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return {byte(0), 1};
  const size_t size = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < size) return {std::nullopt, 1};
  char32_t code = byte(0) & (0xffU >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {std::nullopt, 1};
    code = code << 6 | (byte(i) & 0x3f);
  }
  const char32_t least = size == 4 ? 0x10000 : size == 3 ? 0x800 : 0x80;
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  if (code < least || surrogate || code > 0x10ffff) return {std::nullopt, 1};
  return {code, size};
}

/// Whether a character moves a terminal's cursor, starts a command to the terminal, or turns the direction of
/// text.
bool is_control(char32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x061c || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

/// `text` with '?' for each byte of its bad characters. `bad` judges a character by its code, if it has one,
/// and its bytes.
template <class Bad>
std::string without(std::string text, const Bad& bad) {
  for (size_t i = 0, size = 0; i < text.size(); i += size) {
    const auto [code, bytes] = character_at(std::string_view(text).substr(i));
    size = bytes;
    if (bad(code, std::string_view(text).substr(i, size))) text.replace(i, size, size, '?');
  }
  return text;
}

/// The text in lines of at most `width` columns, broken at spaces where there are any.
std::vector<std::string> lines_of(std::string text, size_t width) {
  std::vector<std::string> lines;
  while (text_width(text) > width) {
    size_t end = 0;  // end of the text that fits
    for (size_t columns = 0; (columns += (text[end] & 0xC0) != 0x80) <= width;) ++end;
    const size_t space = text.rfind(' ', end);
    const bool word = space != std::string::npos && space > 0;
    lines.push_back(text.substr(0, word ? space : end));
    text.erase(0, word ? space + 1 : end);
  }
  lines.push_back(std::move(text));
  return lines;
}

constexpr double kMany = 1e15;  // larger numbers are written in scientific notation

/// Digits after the point that give a number of this size four significant ones.
int sized_digits(double size) {
  return size < 10 ? 3 : size < 100 ? 2 : size < 1000 ? 1 : 0;
}

}  // namespace

std::string join(const std::vector<std::string>& parts, const std::string& separator) {
  std::string joined;
  for (size_t i = 0; i < parts.size(); ++i) joined += (i == 0 ? "" : separator) + parts[i];
  return joined;
}

std::vector<std::string> split(const std::string& list, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = list.find(separator, begin);
    parts.push_back(list.substr(begin, end == std::string::npos ? end : end - begin));
  }
  return parts;
}

std::string rounded(double number) {
  return std::abs(number) < kMany ? grouped(std::llround(number)) : scientific(number);
}
std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  const std::ptrdiff_t first = number < 0 ? 1 : 0;
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > first; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

std::string fixed(double number, int digits) {
  if (std::abs(number) >= kMany) return scientific(number);
  const std::string text = formatted(number, std::chars_format::fixed, digits);
  return text.starts_with('-') && text.find_first_not_of("-0.") == std::string::npos ? text.substr(1) : text;
}
std::string sized(double number) {
  return fixed(number, sized_digits(std::abs(number)));
}
int column_digits(double least, double most) {
  return std::min(sized_digits(least), sized_digits(most / 10));
}
std::string percent_of(double log_ratio, int digits) {
  const std::string text = fixed(std::expm1(log_ratio) * 100, digits);
  return (text.starts_with('-') ? "" : "+") + text;
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

std::string duration_text(double seconds) {
  return seconds < 90     ? fixed(seconds, 0) + " s"
         : seconds < 5400 ? fixed(seconds / 60, 0) + " min"
                          : fixed(seconds / 3600, 1) + " h";
}

std::string valid_utf8(std::string text) {
  return without(std::move(text), [](std::optional<char32_t> code, std::string_view) { return !code; });
}

std::string without_controls(std::string text, std::string_view allowed) {
  return without(std::move(text), [&](std::optional<char32_t> code, std::string_view bytes) {
    const bool kept = bytes.size() == 1 && allowed.find(bytes) != std::string_view::npos;
    return !kept && (!code || is_control(*code));
  });
}

void notice(const std::string& text) {
  std::cerr << cat("stepladder: ", printable(text, kMaxMessage), "\n") << std::flush;
}

std::string counted(const std::string& number, const std::string& noun) {
  return number + " " + noun + (number == "1" ? "" : "s");
}
std::string counted(int64_t number, const std::string& noun) {
  return counted(std::to_string(number), noun);
}

std::string printable(std::string_view text, size_t limit) {
  if (text.size() <= limit) return without_controls(std::string(text));
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;  // no half character
  return without_controls(std::string(text.substr(0, limit))) + "...";
}

std::string path_error(const std::filesystem::filesystem_error& error) {
  if (error.path1().empty())  // thrown by current_path()
    return cat("the current folder: ", error.code().message(), "; change to one that is there");
  return cat(error.path1().string(), ": ", error.code().message(), "; check the path");
}

size_t terminal_width(int fd, size_t otherwise) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : otherwise;
}

size_t prose_width() {
  constexpr size_t kMost = 100;
  return std::min(kMost, terminal_width(STDOUT_FILENO, kMost));
}

std::string folded(const std::string& text, size_t width) {
  return join(lines_of(text, width), "\n");
}

size_t text_width(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

std::string box(std::vector<std::pair<std::string, std::string>> rows, size_t width) {
  constexpr size_t kFrame = 7, kLeast = 20;  // columns of the frame; fewest columns of a value
  size_t left = 0, right = 0;
  for (auto& [name, value] : rows) {
    value = printable(value, kMaxCell);
    left = std::max(left, text_width(name));
    right = std::max(right, text_width(value));
  }
  right = std::min(right, std::max(kLeast, width - std::min(width, left + kFrame)));
  const std::string rule = "+" + std::string(left + 2, '-') + "+" + std::string(right + 2, '-') + "+\n";
  std::string text = rule;
  for (const auto& [name, value] : rows) {
    if (name.empty()) {
      text += rule;
      continue;
    }
    std::string first = name;
    for (const std::string& line : lines_of(value, right)) {
      text += cat("| ", first, std::string(left - text_width(first), ' '), " | ", line,
                  std::string(right - text_width(line), ' '), " |\n");
      first.clear();
    }
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
  if (quote != '\0') throw InputError(cat("a quote is not closed in ", printable(line, 200)));
  return words;
}

}  // namespace stepladder
