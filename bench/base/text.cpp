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

std::string printable(std::string_view text, size_t limit) {
  std::string line(text.substr(0, limit));
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text.size() > limit ? line + "..." : line;
}

std::string box(const std::vector<std::pair<std::string, std::string>>& rows) {
  size_t left = 0, right = 0;
  for (const auto& [name, value] : rows) {
    left = std::max(left, name.size());
    right = std::max(right, value.size());
  }
  const std::string rule = "+" + std::string(left + 2, '-') + "+" + std::string(right + 2, '-') + "+\n";
  std::string text = rule;
  for (const auto& [name, value] : rows) {
    if (name.empty()) {
      text += rule;
      continue;
    }
    text += cat("| ", name, std::string(left - name.size(), ' '), " | ", value,
                std::string(right - value.size(), ' '), " |\n");
  }
  return text + rule;
}

}  // namespace stepladder
