#include "model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "model/error.h"

namespace stepladder {

MappedFile::MappedFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO must not block us
  if (fd < 0) throw InputError(cat(path, ": cannot open: ", std::strerror(errno), "; check the path"));
  struct stat info {};
  ::fstat(fd, &info);
  const auto size = static_cast<size_t>(info.st_size);
  void* map = nullptr;
  int error = 0;
  if (S_ISREG(info.st_mode) && size > 0) {
    map = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    error = map == MAP_FAILED ? errno : 0;
  }
  ::close(fd);
  if (!S_ISREG(info.st_mode)) throw InputError(cat(path, ": not a regular file; name a file"));
  if (error) throw InputError(cat(path, ": cannot map: ", std::strerror(error), "; free some memory"));
  if (map) bytes_ = {static_cast<const std::byte*>(map), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace stepladder
