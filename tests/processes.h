// Whether processes that a test started are gone.
#pragma once

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "model/error.h"

namespace stepladder {

/// Whether process `pid` runs; a zombie does not.
inline bool alive(pid_t pid) {
  std::ifstream file(cat("/proc/", pid, "/stat"));
  std::string stat;
  std::getline(file, stat, '\0');  // fails where it ends meanwhile; a streambuf's iterators would throw
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat[name_end + 2] != 'Z';
}

/// Whether it is gone within ten seconds.
inline bool ends(pid_t pid) {
  for (int i = 0; i < 500 && alive(pid); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return !alive(pid);
}

}  // namespace stepladder
