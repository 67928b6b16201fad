// Read-only files, open or in memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "model/fd.h"

namespace stepladder {

/// A regular file that is open for reading.
class OpenFile {
 public:
  /// Opens the file. Throws InputError naming the path: missing, unreadable, not a regular file.
  explicit OpenFile(const std::string& path);

  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }
  /// Bytes at the time of opening.
  size_t size() const { return size_; }
  /// Copies the bytes from `offset` on. Throws InputError naming the path where the file has become shorter,
  /// or can't be read. A mapping of a file that becomes shorter would end the process instead.
  void read(size_t offset, std::span<std::byte> bytes) const;

 private:
  std::string path_;
  Fd fd_;
  size_t size_ = 0;
};

/// A regular file, memory-mapped. Empty files have empty bytes().
class MappedFile {
 public:
  /// Maps the file. Throws InputError as OpenFile does.
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
