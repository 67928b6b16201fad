// JSON: parsing, printing, and reading fields of files that may hold anything.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace stepladder {

using Json = nlohmann::ordered_json;

/// Parses JSON nested at most 32 deep, no key twice in an object; 1.0 is the same number as 1. Throws
/// InputError with what is wrong.
Json parse_json(const std::string& text);

/// JSON as text. Bytes that are not UTF-8, which a path may hold, are replaced, so that the text is valid
/// JSON.
std::string dump(const Json& json, int indent = -1);

/// Checks that `was` and `now` are equal. Throws Error with kExitNotComparable where they aren't: "`what`:
/// `field` was .., now it is ..; `way_out`"; for objects, `field` is the first field that differs.
void require_same(const std::string& what, const std::string& field, const Json& was, const Json& now,
                  const std::string& way_out);

/// A field as text, for a file that may hold anything; "" where it is missing or null.
std::string whole_text_at(const Json& json, const std::string& key);
/// whole_text_at() for display: one line, cut to 200 bytes.
std::string text_at(const Json& json, const std::string& key);
/// A field as a number, for a file that may hold anything; nothing where it is something else or missing.
std::optional<double> number_at(const Json& json, const std::string& key);

}  // namespace stepladder
