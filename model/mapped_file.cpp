#include "model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "model/error.h"

namespace stepladder {

OpenFile::OpenFile(const std::string& path)
    : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {  // a FIFO must not block us
  if (!fd_.open()) throw InputError(cat(path, ": cannot open: ", std::strerror(errno), "; check the path"));
  struct stat info {};
  ::fstat(fd_.get(), &info);
  if (!S_ISREG(info.st_mode)) throw InputError(cat(path, ": not a regular file; name a file"));
  size_ = static_cast<size_t>(info.st_size);
}

void OpenFile::read(size_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw InputError(cat(path_, ": cannot read: ", std::strerror(errno), "; look at its disk"));
    if (got == 0)
      throw InputError(cat(path_, ": has become shorter since it was opened, when it had ", size_, " bytes",
                           "; write it again, and leave it alone while a run reads it"));
    offset += static_cast<size_t>(got);
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
}

MappedFile::MappedFile(const std::string& path) {
  const OpenFile file(path);
  if (file.size() == 0) return;
  void* const map = ::mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (map == MAP_FAILED)
    throw InputError(cat(path, ": cannot map: ", std::strerror(errno), "; free some memory"));
  bytes_ = {static_cast<const std::byte*>(map), file.size()};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace stepladder
