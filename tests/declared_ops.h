// Reads the names of the ops that model/ops/ declares.
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "tests/files.h"

namespace stepladder {

/// The names of the ops declared in model/ops/; without `with_host_memory` only those of ops that take no
/// pointer to host memory.
inline std::set<std::string> declared_ops(bool with_host_memory = true) {
  const std::string prefix = "kName = \"";
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(STEPLADDER_SOURCE_DIR "/model/ops")) {
    const std::string text = read_file(file.path());
    for (size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at + 1)) {
      const size_t name = at + prefix.size();
      const bool host_memory =
          text.substr(name, text.find("};", name) - name).find("void*") != std::string::npos;
      if (with_host_memory || !host_memory) names.insert(text.substr(name, text.find('"', name) - name));
    }
  }
  return names;
}

}  // namespace stepladder
