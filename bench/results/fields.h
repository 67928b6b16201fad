// How a struct lists its fields, once for reading and writing.
//
// `fields(a, x)` calls the archive `a` with each field's name and value. a.added() lists a field that older
// files lack, a.if_any() one that is written only where it has a value.
#pragma once

#include <concepts>
#include <nlohmann/json.hpp>
#include <type_traits>

namespace stepladder {

template <class T, class Struct>
concept Any = std::same_as<std::remove_const_t<T>, Struct>;

// Macros that list fields of a struct `x` under the names that they have in the struct.
#define STEPLADDER_FIELD(name) a(#name, x.name);
#define STEPLADDER_ADDED(name) a.added(#name, x.name);
#define STEPLADDER_EACH(what, ...) NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(what, __VA_ARGS__))

}  // namespace stepladder
