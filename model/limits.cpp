#include "model/limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>

namespace stepladder {

int64_t number_after(const std::string& file, const std::string& word) {
  std::ifstream in(file);
  int64_t number = 0;
  for (std::string next; in >> next;)
    if (next == word) return in >> number ? number : 0;
  return 0;
}

std::optional<Mappable> mappable_bytes() {
  struct Limit {
    __rlimit_resource resource;
    const char *used, *command;
  };
  std::optional<Mappable> least;
  for (const auto& [resource, used, command] :
       {Limit{RLIMIT_AS, "VmSize:", "ulimit -v"}, Limit{RLIMIT_DATA, "VmData:", "ulimit -d"}}) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
    const int64_t kib = number_after("/proc/self/status", used);
    const int64_t left = std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) - kib * 1024);
    if (!least || left < least->bytes) least = {left, command};
  }
  return least;
}

void skip_exit_handlers_if_limited() {
  if (!mappable_bytes()) return;
  // This handler runs after handlers that are registered later, and before the libraries' own.
  ::on_exit(
      [](int status, void*) {
        std::cout.flush();
        std::fflush(nullptr);
        ::_exit(status);
      },
      nullptr);
}

}  // namespace stepladder
