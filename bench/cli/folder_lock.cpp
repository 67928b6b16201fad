#include "bench/cli/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "model/error.h"

namespace stepladder {

std::optional<Fd> lock_folder(const std::string& path, const std::string& way_out) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.open())  // the folder is missing if it could not be made
    throw InputError(cat(path, ": ", error ? error.message() : std::strerror(errno), "; ", way_out));
  if (::flock(folder.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return {};
  return folder;
}

}  // namespace stepladder
