#pragma once

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

namespace stepladder {

/// A file, once somebody writes it, that is gone with this.
struct TemporaryFile {
  std::string path;
  explicit TemporaryFile(std::string name) : path(std::move(name)) {}
  ~TemporaryFile() {
    std::error_code error;
    std::filesystem::remove(path, error);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
};

}  // namespace stepladder
