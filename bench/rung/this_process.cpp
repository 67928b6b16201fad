#include "bench/rung/this_process.h"

#include <unistd.h>

#include <csignal>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>

#include "model/error.h"

namespace stepladder {
namespace {

volatile std::sig_atomic_t g_stop_signal = 0;

}  // namespace

double process_age_ms() {
  std::ifstream file("/proc/self/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  // The command, field 2, is in parentheses and may hold anything; field 22 is the start in ticks since boot.
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double start_ticks = 0.0;
  if (!(fields >> start_ticks)) throw std::runtime_error("/proc/self/stat: no start time");

  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const double now_ms = static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
  return now_ms - start_ticks * 1e3 / static_cast<double>(sysconf(_SC_CLK_TCK));
}

void catch_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = [](int signal) { g_stop_signal = signal; };
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before = {};
    sigaction(signal, nullptr, &before);
    if (signal != SIGHUP || before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);  // nohup
  }
}

int stop_signal() {
  return g_stop_signal;
}

}  // namespace stepladder
