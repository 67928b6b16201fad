// A path for a file that a command needs for a while.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

#include "model/error.h"

namespace stepladder {

/// A path in the system's folder for such files. The destructor removes the file, if there is one.
struct TemporaryFile {
  const std::string path;

  explicit TemporaryFile(const char* purpose)
      : path((std::filesystem::temp_directory_path() / cat("stepladder_", purpose, "_", ::getpid()))
                 .string()) {}
  ~TemporaryFile() {
    std::error_code error;
    std::filesystem::remove(path, error);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
};

}  // namespace stepladder
