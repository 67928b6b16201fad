#include "bench/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

namespace stepladder {
namespace {

template <class Float>
std::string shortest(Float number) {
  std::array<char, 64> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number);
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
  const int size = std::snprintf(nullptr, 0, "%.*f", digits, number);
  std::string text(static_cast<size_t>(size), '\0');
  std::snprintf(text.data(), text.size() + 1, "%.*f", digits, number);
  return text;
}

std::string number_text(float number) {
  return shortest(number);
}
std::string number_text(double number) {
  return shortest(number);
}

std::string bytes_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  auto size = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; size >= 1000 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
  return fixed(size, 1) + " " + kUnits[unit];
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
    text += "| " + name + std::string(left - name.size(), ' ') + " | " + value;
    text += std::string(right - value.size(), ' ') + " |\n";
  }
  return text + rule;
}

}  // namespace stepladder
