#include "bench/cli/charts.h"

#include <cstdlib>
#include <iostream>

#include "bench/base/place.h"
#include "bench/base/text.h"
#include "bench/run/child.h"
#include "bench/run/machine.h"
#include "model/error.h"

namespace stepladder {

bool draw(const std::string& script, const std::vector<std::string>& arguments) {
  constexpr double kTimeout = 300.0;  // seconds
  const std::string path = cat(shared_dir(), "/reports/", script);
  const auto warn = [](const auto&... what) { notice(cat("warning: ", what...)); };
  std::vector<std::string> command = {python(), path};
  append(command, arguments);
  ::setenv("MPLBACKEND", "agg", 1);  // a notebook sets a backend that this Python may lack
  ChildEnd end;
  try {
    end = run_child(command, Channel::out, kTimeout, [&](std::string_view line) {
      if (line.starts_with("! "))
        warn(line.substr(2));
      else
        std::cout << printable(line, kMaxMessage) << "\n";
      return true;
    });
  } catch (const Error& e) {
    warn("no charts: ", e.what(),
         "; install python3, python3-jinja2, python3-jsonschema and python3-matplotlib");
    return true;
  }
  if (end.ok()) return true;
  if (end.how == ChildEnd::How::timed_out) {
    warn("no charts: ", path, " took longer than ", kTimeout, " s");
    return false;
  }
  const auto said_after = [&](const std::string& words, char to) {
    const size_t at = end.stderr_tail.rfind(words);
    if (at == std::string::npos) return std::string();
    const size_t from = at + words.size();
    return printable(end.stderr_tail.substr(from, end.stderr_tail.find(to, from) - from), 800);
  };
  if (const std::string wrong = said_after(": error: ", '\n'); end.code == kExitUsage && !wrong.empty())
    throw InputError(wrong);
  const std::string lacking = said_after("No module named '", '\'');
  if (lacking.empty())
    warn("no charts: ", path, " failed", end.last_words());
  else
    warn("no charts: ", python(), " has no ", lacking, "; install python3-", lacking,
         ", or name another Python in STEPLADDER_PYTHON");
  return !lacking.empty();
}

}  // namespace stepladder
