// When a process started, from /proc, and how long ago something was.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>

namespace stepladder {

/// Milliseconds from boot to the start of a process, or of this process where `pid` is 0; time suspended
/// counts. Resolution is a clock tick, 10 ms. Nothing where the process is gone.
std::optional<double> process_start_ms(pid_t pid);
/// Milliseconds from boot to now; time suspended counts.
double ms_since_boot();

inline double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace stepladder
