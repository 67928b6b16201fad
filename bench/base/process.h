// Processes as the kernel's record has them.
#pragma once

#include <sys/types.h>

#include <optional>

namespace stepladder {

/// Milliseconds since a process was started; resolution is a clock tick, 10 ms. Nothing where it is gone.
std::optional<double> process_age_ms(pid_t pid);

}  // namespace stepladder
