// Signals that ask this process to stop.
#pragma once

namespace stepladder {

/// From now on SIGINT, SIGTERM and SIGHUP set stop_signal() instead of ending the process; a second signal
/// ends it. With `speaks` the first signal is answered on stderr.
void catch_stop_signals(bool speaks);
/// The signal that asked to stop, 0 when none has.
int stop_signal();

}  // namespace stepladder
