// This process as the operating system sees it.
#pragma once

namespace stepladder {

/// From now on SIGINT, SIGTERM and SIGHUP set stop_signal() instead of ending the process; a second one ends
/// it. `speaks`: the first one is answered on stderr.
void catch_stop_signals(bool speaks);
/// The signal that asked to stop, 0 when none has.
int stop_signal();

}  // namespace stepladder
