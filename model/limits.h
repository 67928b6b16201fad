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

/// Where that is limited, lets this process end without what libraries do last: a thread of OpenBLAS that
/// can't have its buffer asks for it for ever, and OpenBLAS would wait for its end. To be called by main().
void end_in_spite_of_limits();

}  // namespace stepladder
