// Files that are either whole or not there.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "model/fd.h"

namespace stepladder {

/// The absolute path of the file that `path` leads to, also through links whose target doesn't exist yet.
std::string target_of(const std::string& path);

/// Flushes the folder that holds the file `target`, with the names in it, to the disk, where the file system
/// can.
void flush_folder_of(const std::string& target);

/// Writes an unnamed file (O_TMPFILE) in the folder of `path`; commit() puts it in place, with the owner and
/// mode of the file it replaces. Without commit(), an older file of that name stays as it was. A process that
/// is killed leaves nothing behind, except path.PID.tmp if it is killed in commit() or the file system has no
/// O_TMPFILE.
class AtomicFile {
 public:
  /// Opens the file to write. Throws InputError naming the path when it can't be written or replaced: no such
  /// folder, no permission, a device, a mount.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends `size` bytes. Throws InputError naming the path (disk full).
  void write(const void* data, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Flushes to the disk and renames over the target. Throws as write() does.
  void commit();
  /// Commits as commit() does, and returns the file, locked (flock) and open for appending.
  Fd commit_locked();

 private:
  void name();
  void put_in_place();
  [[noreturn]] void fail(const char* what) const;

  std::string path_;       // as the caller names it
  std::string target_;     // with links resolved: a link stays a link
  std::string temporary_;  // the file's name until it is in place, then ""
  bool named_ = true;      // whether the file has its temporary name already
  Fd fd_;
};

/// Replaces the contents of the file at `path` by `text`, atomically. Throws as AtomicFile does.
void write_atomically(const std::string& path, std::string_view text);

}  // namespace stepladder
