// Environment variables, exit codes and ends of processes that tests start.
#pragma once

#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "model/error.h"

namespace stepladder {

/// Sets an environment variable; restores it at the end of this object's life.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~Environment() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

/// The exit code in a status of waitpid() or system(); 128 + the signal if a signal ended the process, as in
/// shells.
inline int exit_code(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Whether `mpirun` is Open MPI's, which can start ranks on the CPU.
inline bool open_mpi_is_here() {
  return std::system("mpirun --version 2>/dev/null | grep -q 'Open MPI'") == 0;
}

/// Waits for the child `pid` and returns its exit code; kills the child and returns -1 before ctest's own
/// time limit would leave it behind.
inline int wait_for(pid_t pid) {
  constexpr auto kPause = std::chrono::milliseconds(10), kLongest = std::chrono::milliseconds(240'000);
  int status = 0;
  for (auto waited = kPause; waited < kLongest; waited += kPause) {
    if (::waitpid(pid, &status, WNOHANG) == pid) return exit_code(status);
    std::this_thread::sleep_for(kPause);
  }
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  return -1;
}

/// Whether process `pid` runs; a zombie does not.
inline bool alive(pid_t pid) {
  std::ifstream file(cat("/proc/", pid, "/stat"));
  std::string stat;
  std::getline(file, stat, '\0');  // fails if the process ends meanwhile; a streambuf's iterators would throw
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat[name_end + 2] != 'Z';
}

/// Whether a thread of process `pid` has this name.
inline bool has_thread(pid_t pid, const std::string& name) {
  std::error_code ended;  // set if the process ends meanwhile
  std::filesystem::directory_iterator task(cat("/proc/", pid, "/task"), ended);
  for (; !ended && task != std::filesystem::directory_iterator(); task.increment(ended)) {
    std::ifstream file(task->path() / "comm");
    if (std::string of_thread; std::getline(file, of_thread) && of_thread == name) return true;
  }
  return false;
}

/// Whether process `pid` ends within ten seconds.
inline bool ends(pid_t pid) {
  for (int i = 0; i < 500 && alive(pid); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return !alive(pid);
}

}  // namespace stepladder
