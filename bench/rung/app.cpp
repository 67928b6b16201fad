#include "bench/rung/app.h"

#include <chrono>
#include <iostream>
#include <thread>

#include "bench/base/text.h"
#include "bench/rung/sampler.h"
#include "bench/rung/session.h"

namespace stepladder {

int RungApp::run(int argc, const char* const* argv) {
  RungSettings settings;
  const auto train_or_sample = [&]() -> int {
    events_.emplace(static_cast<int>(settings.events.value_or(-1)));
    settings.check();
    world_ = World::from_environment();
    if (world_.rank > 0) std::cout.setstate(std::ios::failbit);  // only rank 0 prints
    RunSession session(build_, settings, world_, ranks_);
    if (settings.steps > 0) return train(session, *events_);
    sample(session);
    return kExitOk;
  };
  const std::string about = cat(build_.name, ": trains GPT-2; ", row_of(build_.name).changes);
  return run_command_line({.name = build_.name,
                           .about = about,
                           .options = settings.options(),
                           .run = train_or_sample,
                           .usual = {"data", "model", "batch", "seq", "steps", "accumulate", "lr", "seed",
                                     "backend", "device", "dtype", "eval-every", "sample-every", "prompt",
                                     "init", "resume", "checkpoint", "save-weights"}},
                          cat(STEPLADDER_VERSION, " source ", build_.source_hash), argc, argv);
}

int RungApp::fail(const std::string& status, const std::string& reason, ExitCode code) {
  if (events_) events_->write({{"event", "error"}, {"status", status}, {"reason", reason}});
  const bool told = ranks_ && world_.rank > 0;  // rank 0 prints the reason
  // Wait for rank 0, which mostly meets the same error: if rank 0 ends the job, the job counts as
  // unsupported; if this rank did, it would count as a job with a failed rank.
  if (told && status == "unsupported") std::this_thread::sleep_for(std::chrono::seconds(2));
  if (ranks_) ranks_->fail(reason);
  if (!told)
    std::cerr << cat(build_.name, ": error: ", world_.size > 1 ? cat("rank ", world_.rank, ": ") : "",
                     printable(reason, kMaxMessage), '\n')
              << std::flush;
  return code;
}

}  // namespace stepladder
