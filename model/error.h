// Errors that reach the user. Only `main` catches; what() is one line that names the thing and the way out.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace stepladder {

/// Documented exit codes, shared by every executable (docs/commands.md). Never a count.
enum ExitCode : int {
  kExitOk = 0,
  kExitRegression = 1,
  kExitUsage = 2,  // bad option, file or value
  kExitInconclusive = 3,
  kExitNotComparable = 4,
  kExitFailed = 5,  // a run failed, diverged, or did not fit
};

/// Base of all errors with an exit code.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, ExitCode code = kExitFailed)
      : std::runtime_error(what), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// The input is wrong: an option, a data file, a checkpoint. Exit code 2.
class InputError : public Error {
 public:
  explicit InputError(const std::string& what) : Error(what, kExitUsage) {}
};

/// The device lacks what a rung or an op needs. Status `unsupported`.
class UnsupportedError : public Error {
 public:
  explicit UnsupportedError(const std::string& what) : Error(what, kExitFailed) {}
};

/// The run does not fit in memory. Status `oom`.
class OutOfMemoryError : public Error {
 public:
  explicit OutOfMemoryError(const std::string& what) : Error(what, kExitFailed) {}
};

/// Concatenates its arguments as a stream would.
template <class... Args>
std::string cat(const Args&... args) {
  std::ostringstream s;
  (s << ... << args);
  return s.str();
}

/// Throws std::invalid_argument with the concatenated message unless `ok`; holds in Release too.
template <class... Args>
void check(bool ok, const Args&... message) {
  if (!ok) throw std::invalid_argument(cat(message...));
}

}  // namespace stepladder
