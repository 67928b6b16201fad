// Numbers out of text.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace stepladder {

/// All of `text` as a Number, an integer in base `base` (default 10); nothing if it is not one, or if more
/// text follows.
template <class Number, class... Base>
std::optional<Number> number_from(std::string_view text, Base... base) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base...);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace stepladder
