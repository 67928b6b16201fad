#include "model/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "model/error.h"

namespace stepladder {

std::string target_of(const std::string& path) {
  std::error_code error;
  // Absolute, so that the path has a folder to flush: weakly_canonical() returns a bare new name as it is.
  std::filesystem::path target = std::filesystem::absolute(path, error);
  for (int links = 0; links < 40 && std::filesystem::is_symlink(target, error); ++links)
    target = target.parent_path() / std::filesystem::read_symlink(target, error);
  target = std::filesystem::weakly_canonical(target, error);
  return error ? path : target.string();
}

namespace {

/// What keeps the file at `target` from being replaced, for an error message; "" if nothing does.
const char* why_not_replaced(const std::string& target, const std::string& folder) {
  struct statx file {};
  if (::statx(AT_FDCWD, target.c_str(), 0, STATX_BASIC_STATS, &file) != 0) return "";
  const uint64_t is = file.stx_attributes & file.stx_attributes_mask;
  if (is & STATX_ATTR_MOUNT_ROOT) return "it is mounted by itself, so no other can take its place";
  if (is & (STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND)) return "it is immutable (lsattr shows it)";
  struct stat in {};
  const uid_t user = ::geteuid();
  if (user != 0 && ::stat(folder.c_str(), &in) == 0 && (in.st_mode & S_ISVTX) && in.st_uid != user &&
      file.stx_uid != user)
    return "it is another user's, in a folder where only they may replace it (sticky)";
  return "";
}

/// Gives a new file the owner, mode and access list of the file `from` that it replaces, as far as this user
/// may.
void take_access(int fd, const std::string& from) {
  struct stat old {};
  if (::stat(from.c_str(), &old) != 0) return;
  [[maybe_unused]] const bool given =
      ::fchown(fd, static_cast<uid_t>(-1), old.st_gid) == 0 && ::fchown(fd, old.st_uid, old.st_gid) == 0;
  ::fchmod(fd, old.st_mode & 0777);
  constexpr const char* kAccessList = "system.posix_acl_access";
  std::array<char, 4096> list;
  const ssize_t size = ::getxattr(from.c_str(), kAccessList, list.data(), list.size());
  if (size > 0) ::fsetxattr(fd, kAccessList, list.data(), static_cast<size_t>(size), 0);
}

}  // namespace

void flush_folder_of(const std::string& target) {
  const auto folder = std::filesystem::path(target).parent_path();
  const Fd folder_fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder_fd.open()) ::fsync(folder_fd.get());
}

AtomicFile::AtomicFile(const std::string& path) : path_(path), target_(target_of(path)) {
  std::error_code error;
  const auto kind = std::filesystem::status(target_, error).type();
  if (kind != std::filesystem::file_type::not_found && kind != std::filesystem::file_type::regular)
    throw InputError(cat(path, ": cannot write: not a regular file; name another file"));
  temporary_ = cat(target_, ".", ::getpid(), ".tmp");
  const auto folder = std::filesystem::path(target_).parent_path();
  if (const std::string why = why_not_replaced(target_, folder); !why.empty())
    throw InputError(cat(path, ": cannot be replaced: ", why, "; name another file"));
  fd_ = Fd(::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666));
  named_ = !fd_.open();
  if (named_) {
    ::unlink(temporary_.c_str());  // left by a dead process of the same id, or a link
    fd_ = Fd(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  }
  if (!fd_.open()) fail("cannot write");
  take_access(fd_.get(), target_);
}

AtomicFile::~AtomicFile() {
  if (named_ && !temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t size) {
  if (!write_all(fd_.get(), {static_cast<const char*>(data), size})) fail("cannot write");
}

void AtomicFile::commit() {
  name();
  if (fd_.close() != 0) fail("cannot close");
  put_in_place();
}

Fd AtomicFile::commit_locked() {
  name();
  ::flock(fd_.get(), LOCK_EX | LOCK_NB);
  ::fcntl(fd_.get(), F_SETFL, O_APPEND);
  put_in_place();
  return std::move(fd_);
}

void AtomicFile::name() {
  if (::fsync(fd_.get()) != 0) fail("cannot flush to disk");
  if (named_) return;
  ::unlink(temporary_.c_str());  // left by a dead process of the same id
  named_ = ::linkat(AT_FDCWD, cat("/proc/self/fd/", fd_.get()).c_str(), AT_FDCWD, temporary_.c_str(),
                    AT_SYMLINK_FOLLOW) == 0;
  if (!named_) fail("cannot put in place");
}

void AtomicFile::put_in_place() {
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("cannot put in place");
  temporary_.clear();

  flush_folder_of(target_);  // so that the rename itself survives a power cut
}

void AtomicFile::fail(const char* what) const {
  const int error = errno;
  const char* cure = error == ENOENT                      ? "; create the folder first"
                     : error == ENOSPC || error == EDQUOT ? "; free some space or name another disk"
                                                          : "; name another file";
  throw InputError(cat(path_, ": ", what, ": ", std::strerror(error), cure));
}

void write_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace stepladder
