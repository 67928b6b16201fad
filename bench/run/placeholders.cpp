#include "bench/run/placeholders.h"

#include <algorithm>

#include "model/error.h"
#include "model/nearest.h"

namespace stepladder {
namespace {

const std::vector<std::string> kNames = {"arguments", "backend", "batch", "data",    "device",
                                         "devices",   "lr",      "model", "path",    "python",
                                         "seed",      "seq",     "steps", "switches"};

}  // namespace

void check_placeholders(const std::string& text) {
  for (size_t open = text.find('{'); open != std::string::npos; open = text.find('{', open + 1)) {
    const size_t close = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", open + 1);
    if (close == std::string::npos || text[close] != '}' || close == open + 1) continue;
    const std::string name = text.substr(open + 1, close - open - 1);
    if (std::ranges::find(kNames, name) == kNames.end())
      throw InputError(cat("{", name, "} stands for nothing: did you mean {", nearest(name, kNames), "}?"));
    if ((name == "arguments" && text != kArguments) || (name == "switches" && text != kSwitches))
      throw InputError(
          cat("{", name, "} in '", text, "': it is several words, so it must be a word by itself"));
  }
}

std::string filled(const std::string& text, const Values& values) {
  std::string out;
  for (size_t at = 0; at < text.size();) {  // in one pass: a value may have braces of its own
    const auto here = std::ranges::find_if(values, [&](const auto& value) {
      return text.compare(at, value.first.size() + 2, "{" + value.first + "}") == 0;
    });
    out += here == values.end() ? text.substr(at, 1) : here->second;
    at += here == values.end() ? 1 : here->first.size() + 2;
  }
  return out;
}

bool uses(const std::vector<std::string>& words, const std::string& name) {
  const std::string placeholder = "{" + name + "}";
  return std::ranges::any_of(words,
                             [&](const std::string& word) { return word.find(placeholder) != word.npos; });
}

}  // namespace stepladder
