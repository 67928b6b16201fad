// How a struct lists its fields, once for reading and writing.
//
// `fields(a, x)` calls the archive `a` with each field's name and value. `added` are fields that older files
// lack, `if_any` fields that are written only where they have a value.
#pragma once

#include <concepts>
#include <nlohmann/json.hpp>
#include <type_traits>

namespace stepladder {

template <class T, class Struct>
concept Any = std::same_as<std::remove_const_t<T>, Struct>;

// Calls for fields that have the same name in a file as in their struct `x`.
#define STEPLADDER_FIELD(name) a(#name, x.name);
#define STEPLADDER_ADDED(name) a.added(#name, x.name);
#define STEPLADDER_EACH(what, ...) NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(what, __VA_ARGS__))

}  // namespace stepladder
