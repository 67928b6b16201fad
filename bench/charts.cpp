#include "bench/charts.h"

#include <iostream>
#include <vector>

#include "bench/child.h"
#include "bench/machine.h"
#include "model/error.h"

namespace stepladder {
namespace {

constexpr double kChartsTimeout = 300.0;  // seconds

}  // namespace

bool draw_charts(const std::string& script, const std::string& input, const std::string& out) {
  const std::string path = cat(STEPLADDER_SOURCE_DIR "/reports/", script);
  std::vector<std::string> written;
  ChildEnd end;
  try {
    end = run_child({python(), path, input, "--out", out}, Channel::out, kChartsTimeout,
                    [&](std::string_view line) {
                      written.emplace_back(line);
                      return true;
                    });
  } catch (const Interrupted&) {
    throw;
  } catch (const Error& e) {
    std::cerr << "stepladder: warning: no charts: " << e.what()
              << "; install python3 and python3-matplotlib\n";
    return true;
  }
  if (end.how == ChildEnd::How::exited && end.code == 0) {
    for (const std::string& line : written) std::cout << line << "\n";
    return true;
  }
  const bool no_matplotlib = end.stderr_tail.find("matplotlib") != std::string::npos;
  std::cerr << "stepladder: warning: no charts: "
            << (no_matplotlib ? cat(python(),
                                    " has no matplotlib; install python3-matplotlib, or name another "
                                    "Python in STEPLADDER_PYTHON")
                              : cat(path, " failed", end.last_words()))
            << "\n";
  return no_matplotlib;
}

}  // namespace stepladder
