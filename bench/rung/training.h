// Training with one rung, from its first step to its last.
#pragma once

#include "bench/run/events.h"
#include "bench/rung/session.h"

namespace stepladder {

/// The loss is no longer a number. Status `diverged`.
class DivergedError : public Error {
 public:
  using Error::Error;
};

/// Sets the session up, trains as its settings say and tells of it. Returns the exit code: 0, 3
/// where the loss of --until-loss was not reached, or 128 plus the signal that stopped it after a whole step.
/// Throws what goes wrong.
int train(RunSession& session, EventWriter& events);

}  // namespace stepladder
