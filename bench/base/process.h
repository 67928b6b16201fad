// When a process started, from /proc.
#pragma once

#include <sys/types.h>

#include <optional>

namespace stepladder {

/// Milliseconds from boot to the start of a process, or of this process where `pid` is 0; time suspended
/// counts. Resolution is a clock tick, 10 ms. Nothing where the process is gone.
std::optional<double> process_start_ms(pid_t pid);
/// Milliseconds from boot to now; time suspended counts.
double ms_since_boot();

}  // namespace stepladder
