#include "model/atomic_file.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "model/fd.h"
#include "tests/files.h"

// Declared here because <sys/mount.h> of glibc 2.35 and the first 2.36 clashes with <linux/fs.h>.
extern "C" int mount(const char* source, const char* target, const char* type, unsigned long flags,
                     const void* data) noexcept;
extern "C" int umount(const char* target) noexcept;

namespace {
int flushed_folders = 0;
}

/// Replaces the C library's fsync() to count flushed folders.
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

TEST(AtomicFile, WhatItReplacesKeepsItsModeAndOwner) {
  const TempFolder folder;
  const std::string path = folder / "file";
  write_file(path, "old");
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  const bool given = ::chown(path.c_str(), 65534, 65534) == 0;  // succeeds for root alone
  write_atomically(path, "new");
  struct stat file {};
  ASSERT_EQ(::stat(path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 07777, 0640U);
  EXPECT_TRUE(!given || (file.st_uid == 65534 && file.st_gid == 65534));
}

TEST(AtomicFile, AFileThatCannotBeReplacedIsNamedBeforeItIsWritten) {
  const TempFolder folder;
  const std::string path = folder / "file";
  write_file(path, "old");
  ASSERT_EQ(::chmod((folder / "").c_str(), 01777), 0);  // sticky, as /tmp is
  {
    const Nobody nobody;
    if (::geteuid() == 0 || !nobody.there_is_one()) GTEST_SKIP() << "root alone is here";
    const bool others = ::geteuid() == 65534;  // false: the file is this user's own
    EXPECT_TRUE(!others || says(input_error([&] { AtomicFile file(path); }), {path}));
  }
  if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount(path.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0)
    GTEST_SKIP() << "nothing may be mounted here";
  EXPECT_TRUE(says(input_error([&] { AtomicFile file(path); }), {path}));
  ::umount(path.c_str());
  write_atomically(path, "new");
  // An immutable file, which only root may change; not every file system supports the flag.
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  int flags = 0;
  if (::ioctl(file.get(), FS_IOC_GETFLAGS, &flags) != 0) return;
  flags |= FS_IMMUTABLE_FL;
  if (::ioctl(file.get(), FS_IOC_SETFLAGS, &flags) != 0) return;
  EXPECT_TRUE(says(input_error([&] { AtomicFile again(path); }), {path}));
  flags &= ~FS_IMMUTABLE_FL;
  EXPECT_EQ(::ioctl(file.get(), FS_IOC_SETFLAGS, &flags), 0);
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
