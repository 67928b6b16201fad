// Processes as the kernel's record has them.
#pragma once

#include <sys/types.h>

#include <optional>

namespace stepladder {

/// Milliseconds from the boot to the start of a process, or of this one where `pid` is 0; those that the
/// machine was suspended count. Resolution is a clock tick, 10 ms. Nothing where it is gone.
std::optional<double> process_start_ms(pid_t pid);
/// Milliseconds from the boot to now, those that the machine was suspended included.
double ms_since_boot();

}  // namespace stepladder
