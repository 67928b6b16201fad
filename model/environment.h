// Reads environment variables.
#pragma once

#include <cstdlib>
#include <string>

namespace stepladder {

/// The value of an environment variable; empty where it is not set.
inline std::string environment_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

}  // namespace stepladder
