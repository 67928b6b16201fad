// Numbers out of text.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace stepladder {

/// The number that `text` is, in base `base` where it is an integer; nothing for text that is no Number or
/// goes on behind it.
template <class Number, class... Base>
std::optional<Number> number_from(std::string_view text, Base... base) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base...);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace stepladder
