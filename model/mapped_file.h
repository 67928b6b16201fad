// Read-only files in memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace stepladder {

/// A regular file, memory-mapped. Empty files have empty bytes().
class MappedFile {
 public:
  /// Throws InputError naming the path: missing, unreadable, not a regular file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace stepladder
