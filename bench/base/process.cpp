#include "bench/base/process.h"

#include <unistd.h>

#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

#include "model/error.h"

namespace stepladder {

std::optional<double> process_start_ms(pid_t pid) {
  // In a namespace of process ids /proc may know this process by another id.
  std::ifstream file(pid == 0 ? "/proc/self/stat" : cat("/proc/", pid, "/stat"));
  // The command, field 2, is in parentheses and may hold anything; field 22 is the start in ticks since boot.
  std::string skipped;
  std::getline(file, skipped, '\0');
  const size_t name_end = skipped.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(skipped.substr(name_end + 1));
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double start_ticks = 0.0;
  if (!(fields >> start_ticks)) return std::nullopt;
  return start_ticks * 1e3 / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double ms_since_boot() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

}  // namespace stepladder
