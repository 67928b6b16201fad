#include "model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "model/error.h"
#include "model/fd.h"

namespace stepladder {

MappedFile::MappedFile(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a FIFO must not block us
  if (!fd.open()) throw InputError(cat(path, ": cannot open: ", std::strerror(errno), "; check the path"));
  struct stat info {};
  ::fstat(fd.get(), &info);
  if (!S_ISREG(info.st_mode)) throw InputError(cat(path, ": not a regular file; name a file"));
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return;
  void* const map = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (map == MAP_FAILED)
    throw InputError(cat(path, ": cannot map: ", std::strerror(errno), "; free some memory"));
  bytes_ = {static_cast<const std::byte*>(map), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace stepladder
