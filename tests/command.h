// Runs shell command lines for tests.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "model/error.h"
#include "tests/files.h"
#include "tests/processes.h"

namespace stepladder {

struct Outcome {
  int code = 0;
  std::string out, err;
};

/// Runs a shell command line in `folder`; its output stays there, in out.txt and err.txt.
inline Outcome run_in(const TempFolder& folder, const std::string& command) {
  const int status = std::system(cat("cd ", folder / "", "; { ", command, "; } >out.txt 2>err.txt").c_str());
  return {exit_code(status), read_file(folder / "out.txt"), read_file(folder / "err.txt")};
}

/// Starts a shell command line in `folder` in the background, in its own process group; its output goes to
/// out.txt and err.txt there. Put `exec` before the last command, so that the returned id is that program's.
inline pid_t start_in(const TempFolder& folder, const std::string& command) {
  const std::string line = cat("cd ", folder / "", "; exec >out.txt 2>err.txt; ", command);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setpgid(0, 0);
    ::signal(SIGINT, SIG_DFL);
    ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    ::_exit(127);
  }
  return pid;
}

/// The words after `stepladder` in the step `gate` of a workflow.
inline std::string command_of_gate(const std::string& workflow) {
  std::string step = read_file(STEPLADDER_SOURCE_DIR + workflow);
  step = step.substr(step.find("- name: gate"));
  step.resize(step.find("\n      -"));
  step = step.substr(step.find("stepladder gate") + std::string("stepladder ").size());
  std::ranges::replace(step, '\n', ' ');
  return step;
}

[[nodiscard]] inline bool one_line(const std::string& text) {
  return !text.empty() && text.find('\n') == text.size() - 1;
}

/// Whether a command ended with `code`, its output said each of `out`, and its errors each of `err`.
[[nodiscard]] inline ::testing::AssertionResult ended(const Outcome& outcome, int code,
                                                      const std::vector<std::string>& out = {},
                                                      const std::vector<std::string>& err = {}) {
  const auto said = says(outcome.out, out), complained = says(outcome.err, err);
  if (outcome.code == code && said && complained) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "exit code " << outcome.code << ", wanted " << code
                                       << "\noutput: " << (said ? outcome.out : said.message())
                                       << "\nerrors: " << (complained ? outcome.err : complained.message());
}

/// Whether a command ended with `code` and one line of errors, which says each of `parts`.
[[nodiscard]] inline ::testing::AssertionResult is_refused(const Outcome& outcome,
                                                           const std::vector<std::string>& parts = {},
                                                           int code = kExitUsage) {
  if (!one_line(outcome.err)) return ::testing::AssertionFailure() << "not one line: " << outcome.err;
  return ended(outcome, code, {}, parts);
}

}  // namespace stepladder
