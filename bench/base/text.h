// Numbers and boxes as people read them.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "model/number.h"  // number_from(), the inverse of number_text()

namespace stepladder {

std::string join(const std::vector<std::string>& parts, const std::string& separator);
/// The parts of a list such as "a,b", empty ones included.
std::vector<std::string> split(const std::string& list, char separator);

/// Adds the elements of `more` behind those of `to`.
template <class T, class More = std::initializer_list<T>>
void append(std::vector<T>& to, const More& more) {
  to.insert(to.end(), more.begin(), more.end());
}
/// Adds `x` behind the elements of `to` unless it is among them.
template <class T>
void add_once(std::vector<T>& to, const std::type_identity_t<T>& x) {
  if (std::ranges::count(to, x) == 0) to.push_back(x);
}
/// What `of` tells of each item: texts_of(rungs, &Rung::name).
template <class Items, class Of>
std::vector<std::string> texts_of(const Items& items, Of of) {
  std::vector<std::string> texts;
  for (const auto& item : items) texts.emplace_back(std::invoke(of, item));
  return texts;
}

/// 12345678 as "12,345,678".
std::string grouped(int64_t number);
/// A number rounded, as grouped() has it; from 1e15 up scientific, "1.00e+300".
std::string rounded(double number);
/// A number with `digits` after the point; from 1e15 up scientific.
std::string fixed(double number, int digits);
/// Three or four significant digits, three after the point at most: "0.512", "41.70", "1240", "0.012".
std::string sized(double number);
/// Digits after the point for numbers of a column, whose sizes are `least`, but for zeros, to `most`: four
/// significant ones for the smallest, as sized() has, and no more than five for the largest.
int column_digits(double least, double most);
/// A number in scientific notation, "6.00e-04".
std::string scientific(double number);
/// A log ratio as a signed percentage: "+2.03".
std::string percent_of(double log_ratio, int digits = 2);
/// The shortest text that reads back as the same number: "0.0006" from a float 6e-4.
std::string number_text(float number);
std::string number_text(double number);
template <class Integer>
std::string number_text(Integer number) {
  return std::to_string(number);
}
/// The double with the fewest digits for a float that was widened: 10.98 from 10.979999542236328.
double of_float(double number);
/// A size as text: "512 B", "1.5 KiB", "139.1 GiB".
std::string bytes_text(int64_t bytes);
/// A duration as text: "42 s", "12 min", "1.5 h".
std::string duration_text(double seconds);

/// Foreign text as UTF-8: each invalid byte becomes '?'.
std::string valid_utf8(std::string text);
/// Foreign text, safe on a terminal: each byte of a control character or of invalid UTF-8 becomes '?', except
/// the characters in `allowed`.
std::string without_controls(std::string text, std::string_view allowed = "");
/// without_controls(text), which is one line. A text over `limit` bytes is cut to that length, or before the
/// UTF-8 character that would be split, and "..." is appended.
std::string printable(std::string_view text, size_t limit);
/// Tells the user `text`, which may be foreign, in a line "stepladder: ..." on stderr.
void notice(const std::string& text);
/// A number with its noun: "1 round", "2 rounds".
std::string counted(const std::string& number, const std::string& noun);
std::string counted(int64_t number, const std::string& noun);
/// Most bytes of a message: an argument that it quotes may be longer.
inline constexpr size_t kMaxMessage = 4000;
/// Most bytes of a cell in a table or box.
inline constexpr size_t kMaxCell = 400;

/// Columns of the terminal that `fd` is; `otherwise` where `fd` is no terminal.
size_t terminal_width(int fd, size_t otherwise);
/// Columns for prose on stdout: the terminal's, 100 at most; 100 where stdout is no terminal.
size_t prose_width();
/// `text` in lines of at most `width` columns, broken at spaces where there are any.
std::string folded(const std::string& text, size_t width = prose_width());
/// Columns that UTF-8 text takes on a terminal: bytes that are not continuations.
size_t text_width(const std::string& text);

/// A word as a shell reads it back: in quotes where it has to be.
std::string shell_quoted(const std::string& word);
/// The words as a command line, which shell_words() takes apart again.
std::string shell_line(const std::vector<std::string>& words);
/// The words of a command line. Throws InputError where a quote is not closed.
std::vector<std::string> shell_words(const std::string& line);

/// The error for a path that can't be looked at: too long, a link to itself, or a current folder that is
/// gone.
std::string path_error(const std::filesystem::filesystem_error& error);

/// A text table of two columns in a frame of '+', '-' and '|', its columns as wide as their widest cell; a
/// row with an empty first cell is a rule. Values go on in the next line where `width` leaves no room for
/// them.
std::string box(std::vector<std::pair<std::string, std::string>> rows,
                size_t width = terminal_width(STDOUT_FILENO, SIZE_MAX));

}  // namespace stepladder
