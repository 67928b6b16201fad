// Training with one rung, from its first step to its last.
#pragma once

#include "bench/run/events.h"
#include "bench/rung/session.h"

namespace stepladder {

/// Thrown when the loss is no longer finite: status `diverged`.
class DivergedError : public Error {
 public:
  using Error::Error;
};

/// Sets the session up, trains as its settings say and reports the run. Returns the exit code: 0, 3 where the
/// loss of --until-loss was not reached, or 128 plus the signal that stopped it after a whole step. Throws
/// for any other failure.
int train(RunSession& session, EventWriter& events);

}  // namespace stepladder
