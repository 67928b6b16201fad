// Command lines for tests to run, and what they came to.
#pragma once

#include <cstdlib>
#include <string>

#include "model/error.h"
#include "tests/files.h"
#include "tests/processes.h"

namespace stepladder {

struct Outcome {
  int code = 0;
  std::string out, err;
};

/// A shell's command line in `folder`; what it says stays there, in out.txt and err.txt.
inline Outcome run_in(const TempFolder& folder, const std::string& command) {
  const int status = std::system(cat("cd ", folder / "", "; { ", command, "; } >out.txt 2>err.txt").c_str());
  return {exit_code(status), read_file(folder / "out.txt"), read_file(folder / "err.txt")};
}

[[nodiscard]] inline bool one_line(const std::string& text) {
  return !text.empty() && text.find('\n') == text.size() - 1;
}

}  // namespace stepladder
