// main() of every rung's executable: trains or samples with the one rung that is linked in, and reports every
// step to a harness.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <new>
#include <optional>
#include <string>
#include <thread>

#include "bench/base/text.h"
#include "bench/run/events.h"
#include "bench/rung/sampler.h"
#include "bench/rung/session.h"
#include "bench/rung/training.h"
#include "model/comm.h"
#include "model/gpt2.h"
#include "model/limits.h"
#include "model/rendezvous.h"

namespace stepladder {
namespace {

class RungApp {
 public:
  /// Trains as the command line says, or samples with --steps 0. Returns the exit code: 0, 3 where the loss
  /// of --until-loss was not reached, or 128 plus the signal that stopped it after a whole step. Throws for
  /// any other failure.
  int run(int argc, const char* const* argv) {
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

  /// Tells stderr and the harness why the run ended. Returns `code`.
  int fail(const std::string& status, const std::string& reason, ExitCode code) {
    if (events_) events_->write({{"event", "error"}, {"status", status}, {"reason", reason}});
    const bool told = ranks_ && world_.rank > 0;  // rank 0 prints the reason
    // Rank 0 mostly meets the same error. Wait for it to end the job, which then counts as unsupported; ended
    // by this rank, the job would count as one with a failed rank.
    if (told && status == "unsupported") std::this_thread::sleep_for(std::chrono::seconds(2));
    if (ranks_) ranks_->fail(reason);
    if (!told)
      std::cerr << cat(build_.name, ": error: ", world_.size > 1 ? cat("rank ", world_.rank, ": ") : "",
                       printable(reason, kMaxMessage), '\n')
                << std::flush;
    return code;
  }

 private:
  const RungBuild& build_ = linked_rungs().front();
  std::optional<EventWriter> events_;
  World world_;
  std::optional<Rendezvous> ranks_;  // outlives the run, to tell other ranks how it ended
};

}  // namespace
}  // namespace stepladder

int main(int argc, char** argv) {
  using namespace stepladder;
  std::signal(SIGXFSZ, SIG_IGN);  // a file that passes `ulimit -f` is then an error that names it
  skip_exit_handlers_if_limited();
  RungApp app;
  try {
    return app.run(argc, argv);
  } catch (const OutOfMemoryError& e) {
    return app.fail("oom", e.what(), e.code());
  } catch (const std::bad_alloc&) {
    return app.fail("oom", "out of host memory: use a smaller --batch, --seq or --model", kExitFailed);
  } catch (const UnsupportedError& e) {
    return app.fail("unsupported", e.what(), e.code());
  } catch (const DivergedError& e) {
    return app.fail("diverged", e.what(), e.code());
  } catch (const Error& e) {
    return app.fail("error", e.what(), e.code());
  } catch (const std::filesystem::filesystem_error& e) {
    return app.fail("error", path_error(e), kExitUsage);
  } catch (const std::exception& e) {
    return app.fail("error", e.what(), kExitFailed);
  }
}
