#include "bench/rung/this_process.h"

#include <csignal>
#include <initializer_list>

namespace stepladder {
namespace {

volatile std::sig_atomic_t g_stop_signal = 0;

}  // namespace

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
