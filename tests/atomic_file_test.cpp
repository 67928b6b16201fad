#include "model/atomic_file.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

TEST(AtomicFile, LeavesNothingWhereItsWriterIsKilled) {
  const TempFolder folder;
  const int nameless = ::open((folder / "").c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
  if (nameless < 0) GTEST_SKIP() << "this file system has no files without names";
  ::close(nameless);
  write_file(folder / "old", "before");
  const pid_t pid = ::fork();
  if (pid == 0) {
    AtomicFile file(folder / "old");
    file.write("half");
    ::raise(SIGKILL);
  }
  ::waitpid(pid, nullptr, 0);
  EXPECT_EQ(read_file(folder / "old"), "before");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / ""), {}), 1);
  AtomicFile file(folder / "old");
  file.write("after");
  file.commit();
  EXPECT_EQ(read_file(folder / "old"), "after");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / ""), {}), 1);
}

}  // namespace
}  // namespace stepladder
