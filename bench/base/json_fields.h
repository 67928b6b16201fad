// Fields of JSON objects that others have written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/base/text.h"
#include "model/error.h"
#include "model/nearest.h"

namespace stepladder {

/// What a T is called in JSON, and whether `value` is one. Where T is no other type, it is an object.
template <class T, class Json>
std::pair<const char*, bool> is_a(const Json& value) {
  if constexpr (std::is_same_v<T, bool>)
    return {"true or false", value.is_boolean()};
  else if constexpr (std::is_same_v<T, double>)
    return {"a number", value.is_number()};
  else if constexpr (std::is_same_v<T, int64_t>)
    return {"a whole number",
            value.is_number_integer() &&
                (!value.is_number_unsigned() || std::in_range<int64_t>(value.template get<uint64_t>()))};
  else if constexpr (std::is_same_v<T, std::string>)
    return {"a string", value.is_string()};
  else if constexpr (std::is_same_v<T, std::vector<std::string>>)
    return {"a list of strings",
            value.is_array() &&
                std::all_of(value.begin(), value.end(), [](const Json& x) { return x.is_string(); })};
  else
    return {"an object", value.is_object()};
}

/// A field; nothing where it is missing or null. Throws InputError, "'lr' is not a number", where it is of
/// another type.
template <class T, class Json>
std::optional<T> field_if(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::nullopt;
  const auto [kind, right] = is_a<T>(*found);
  if (!right) throw InputError(cat("'", key, "' is not ", kind));
  return std::optional<T>(std::in_place,
                          found->template get<T>());  // older libraries convert to optionals too
}

/// A field that has to be there. Throws InputError, "'lr' (a number) is missing", where it isn't.
template <class T, class Json>
T field_at(const Json& object, const char* key) {
  if (auto value = field_if<T>(object, key)) return *std::move(value);
  throw InputError(cat("'", key, "' (", is_a<T>(Json()).first, ") is missing"));
}

/// Checks that all keys of an object are in `known`. Throws InputError for another key, with a near known
/// one, or all.
template <class Json>
void check_keys(const Json& object, const std::vector<std::string>& known) {
  for (const auto& [key, value] : object.items())
    if (std::ranges::find(known, key) == known.end())
      throw InputError(cat("unknown key '", printable(key, 60), "'",
                           suggestion(key, known, cat("known are ", join(known, ", ")))));
}

}  // namespace stepladder
