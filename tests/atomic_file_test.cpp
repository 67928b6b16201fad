#include "model/atomic_file.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/files.h"

namespace {
int flushed_folders = 0;
}

/// The C library's, which counts folders too.
extern "C" int fsync(int fd) {
  struct stat what {};
  if (::fstat(fd, &what) == 0 && S_ISDIR(what.st_mode)) ++flushed_folders;
  return reinterpret_cast<int (*)(int)>(::dlsym(RTLD_NEXT, "fsync"))(fd);
}

namespace stepladder {
namespace {

TEST(AtomicFile, FlushesItsFolderHoweverItIsNamed) {
  const TempFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder / "");
  for (const std::string& name :
       {std::string("new"), std::string("new"), std::string("./other"), folder / "third"}) {
    flushed_folders = 0;
    write_atomically(name, "text");
    EXPECT_EQ(flushed_folders, 1) << name;
    EXPECT_EQ(read_file(name), "text");
  }
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace stepladder
