// Placeholders, such as "{batch}", in the commands of a ladder file.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace stepladder {

/// The value of each placeholder, by its name without braces.
using Values = std::map<std::string, std::string>;

/// The placeholder of a rung's options, one word each; must be a word of its own.
inline constexpr const char* kArguments = "{arguments}";
/// The placeholder of the words that turn a ladder file's switches on or off; must be a word of its own.
inline constexpr const char* kSwitches = "{switches}";

/// Throws InputError for an unknown "{name}" of small letters and underscores, and for "{arguments}" or
/// "{switches}" within a word. Other braces are text.
void check_placeholders(const std::string& text);
/// `text` with `values` in place of their placeholders; placeholders without a value stay.
std::string filled(const std::string& text, const Values& values);
/// Whether one of the words contains "{name}".
bool uses(const std::vector<std::string>& words, const std::string& name);
/// Whether a rung or program has "{name}" in its command or environment.
template <class Commanded>
bool uses(const Commanded& of, const std::string& name) {
  return uses(of.command, name) || uses(of.environment, name);
}
/// Whether a rung or program is told `name`: by its placeholder, or by "{arguments}".
template <class Commanded>
bool is_told(const Commanded& of, const std::string& name) {
  return uses(of, name) || uses(of, "arguments");
}

}  // namespace stepladder
