// "{batch}" and the like in the commands of a ladder file.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace stepladder {

/// What stands for each placeholder, by its name without braces.
using Values = std::map<std::string, std::string>;

/// Stands for a rung's options, one word each; only as a word of its own.
inline constexpr const char* kArguments = "{arguments}";
/// Stands for the words of a ladder file's switches, on or off; only as a word of its own.
inline constexpr const char* kSwitches = "{switches}";

/// Throws InputError for "{name}" of small letters and underscores that stands for nothing. Other braces are
/// text.
void check_placeholders(const std::string& text);
/// `text` with the values that there are; other placeholders stay.
std::string filled(const std::string& text, const Values& values);
/// Whether a word has "{name}".
bool uses(const std::vector<std::string>& words, const std::string& name);
/// Whether a rung or program has "{name}" in its command or environment.
template <class Commanded>
bool uses(const Commanded& of, const std::string& name) {
  return uses(of.command, name) || uses(of.environment, name);
}
/// Whether it is told `name`: by its placeholder, or among all arguments.
template <class Commanded>
bool is_told(const Commanded& of, const std::string& name) {
  return uses(of, name) || uses(of, "arguments");
}

}  // namespace stepladder
