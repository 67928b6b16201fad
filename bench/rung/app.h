// A rung as a program: a complete trainer that also reports every step to a harness.
#pragma once

#include <optional>
#include <string>

#include "bench/run/events.h"
#include "bench/rung/training.h"
#include "model/comm.h"
#include "model/gpt2.h"
#include "model/rendezvous.h"

namespace stepladder {

class RungApp {
 public:
  explicit RungApp(const RungBuild& build) : build_(build) {}

  /// Trains as the command line says, or samples with --steps 0. Returns the exit code: 0, 3 where the loss
  /// of --until-loss was not reached, or 128 plus the signal that stopped it after a whole step. Throws for
  /// any other failure.
  int run(int argc, const char* const* argv);

  /// Tells stderr and the harness why the run ended. Returns `code`.
  int fail(const std::string& status, const std::string& reason, ExitCode code);

 private:
  const RungBuild& build_;
  std::optional<EventWriter> events_;
  World world_;
  std::optional<Rendezvous> ranks_;  // outlives the run, to tell other ranks how it ended
};

}  // namespace stepladder
