// Numbers and boxes as people read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/number.h"  // number_from(), the inverse of number_text()

namespace stepladder {

std::string join(const std::vector<std::string>& parts, const std::string& separator);

/// 12345678 as "12,345,678".
std::string grouped(int64_t number);
/// `digits` after the point.
std::string fixed(double number, int digits);
/// About four significant digits, never as a power of ten: "0.512", "41.70", "1240".
std::string sized(double number);
/// "6.00e-04".
std::string scientific(double number);
/// The shortest text that reads back as the same number: "0.0006" from a float 6e-4.
std::string number_text(float number);
std::string number_text(double number);
template <class Integer>
std::string number_text(Integer number) {
  return std::to_string(number);
}
/// A float that was widened, as the double that has no more digits: 10.98 from 10.979999542236328.
double of_float(double number);
/// "512 B", "1.5 KiB", "139.1 GiB".
std::string bytes_text(int64_t bytes);

/// One line of foreign text, safe on a terminal: control characters as '?', cut to `limit` bytes with "...".
std::string printable(std::string_view text, size_t limit);
/// Bytes of an error message: an argument that it quotes may be longer.
inline constexpr size_t kMaxMessage = 4000;

/// A two-column box, its columns as wide as the widest cell; a row with an empty first cell is a rule.
std::string box(const std::vector<std::pair<std::string, std::string>>& rows);

}  // namespace stepladder
