// What `ulimit` leaves this process.
#pragma once

#include <cstdint>
#include <optional>

namespace stepladder {

struct Mappable {
  int64_t bytes;
  const char* command;  // that sets the limit: "ulimit -v"
};

/// What this process may still map; nothing where that is not limited.
std::optional<Mappable> mappable_bytes();

/// Where that is limited, makes this process skip the exit handlers of libraries: an OpenBLAS thread that
/// can't get its buffer retries for ever, and OpenBLAS's handler would wait for it. Called by main().
void end_in_spite_of_limits();

}  // namespace stepladder
