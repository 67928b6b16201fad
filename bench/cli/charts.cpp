#include "bench/cli/charts.h"

#include <iostream>

#include "bench/run/child.h"
#include "bench/run/machine.h"
#include "model/error.h"

namespace stepladder {
namespace {

constexpr double kTimeout = 300.0;  // seconds

}  // namespace

bool draw(const std::string& script, const std::vector<std::string>& arguments) {
  const std::string path = STEPLADDER_SOURCE_DIR "/reports/" + script;
  const auto warn = [](const auto&... what) { std::cerr << cat("stepladder: warning: ", what..., "\n"); };
  std::vector<std::string> command = {python(), path};
  command.insert(command.end(), arguments.begin(), arguments.end());
  ChildEnd end;
  try {
    end = run_child(command, Channel::out, kTimeout, [&](std::string_view line) {
      if (line.starts_with("! "))
        warn(line.substr(2));
      else
        std::cout << line << "\n";
      return true;
    });
  } catch (const Interrupted&) {
    throw;
  } catch (const Error& e) {
    warn("no charts: ", e.what(), "; install python3, python3-jinja2 and python3-matplotlib");
    return true;
  }
  if (end.how == ChildEnd::How::exited && end.code == 0) return true;
  const bool lacking = end.stderr_tail.find("No module named 'matplotlib'") != std::string::npos;
  if (lacking)
    warn("no charts: ", python(),
         " has no matplotlib; install python3-matplotlib, or name another Python in STEPLADDER_PYTHON");
  else
    warn("no charts: ", path, " failed", end.last_words());
  return lacking;
}

}  // namespace stepladder
