// The memory that `ulimit` leaves this process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace stepladder {

/// The number after `word` in a file of words such as /proc/meminfo; 0 when there is none.
int64_t number_after(const std::string& file, const std::string& word);

struct Mappable {
  int64_t bytes;
  const char* command;  // the command that sets the limit: "ulimit -v"
};

/// The bytes that this process may still map; empty where they are not limited.
std::optional<Mappable> mappable_bytes();

/// Where mapping is limited, makes this process skip the exit handlers of libraries: an OpenBLAS thread that
/// can't get its buffer retries for ever, and OpenBLAS's handler would wait for it. Called by main().
void skip_exit_handlers_if_limited();

}  // namespace stepladder
