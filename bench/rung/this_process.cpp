#include "bench/rung/this_process.h"

#include <unistd.h>

#include <csignal>
#include <initializer_list>
#include <string_view>

namespace stepladder {
namespace {

volatile std::sig_atomic_t g_stop_signal = 0, g_speaks = 0;

}  // namespace

void catch_stop_signals(bool speaks) {
  g_speaks = static_cast<int>(speaks);
  struct sigaction action = {};
  action.sa_handler = [](int signal) {
    g_stop_signal = signal;
    constexpr std::string_view kAnswer = "\nends after this step; once more ends it now\n";
    if (g_speaks == 0) return;
    [[maybe_unused]] const ssize_t told = ::write(STDERR_FILENO, kAnswer.data(), kAnswer.size());
  };
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before = {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);  // nohup, or a script's &
  }
}

int stop_signal() {
  return g_stop_signal;
}

}  // namespace stepladder
