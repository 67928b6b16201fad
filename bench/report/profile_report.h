// A profile as people read it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace stepladder {

/// Tables of a profile file as docs/results-schema.md has it: phases, kernel types, kernels, and ops against
/// their floors. What takes long comes first; the file has the rest.
std::string terminal_profile(const nlohmann::ordered_json& file, bool wide = false);
std::string markdown_profile(const nlohmann::ordered_json& file);

}  // namespace stepladder
