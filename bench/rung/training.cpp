#include "bench/rung/training.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <string_view>

#include "bench/base/process.h"
#include "bench/base/text.h"
#include "bench/rung/reporter.h"
#include "bench/rung/sampler.h"
#include "model/atomic_file.h"
#include "model/checkpoint.h"
#include "model/hellaswag.h"
#include "model/safetensors.h"

namespace stepladder {
namespace {

volatile std::sig_atomic_t stop_signal = 0;  // the signal that asked to stop
volatile std::sig_atomic_t answers_signal = 0;

/// From now on SIGINT, SIGTERM and SIGHUP set stop_signal instead of ending the process; a second signal
/// ends it. With `speaks` the first signal is answered on stderr.
void catch_stop_signals(bool speaks) {
  answers_signal = static_cast<int>(speaks);
  struct sigaction action = {};
  action.sa_handler = [](int signal) {
    stop_signal = signal;
    constexpr std::string_view kAnswer = "\nends after this step; once more ends it now\n";
    if (answers_signal == 0) return;
    [[maybe_unused]] const ssize_t told = ::write(STDERR_FILENO, kAnswer.data(), kAnswer.size());
  };
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before = {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);  // nohup, or a script's &
  }
}

/// The steps of a session that is set up.
class Training {
 public:
  Training(RunSession& session, Reporter& reporter, const Dataset& data);

  /// Goes on from a checkpoint. Throws InputError where the checkpoint has all the steps already.
  void resume(const TrainState& state);
  /// Makes sure that all ranks go on from the same state, and shows them progress with each micro-batch.
  void agree(Rendezvous& ranks);
  /// Trains until all steps are done, the loss is reached, or stops() says to stop. Returns false in the last
  /// case.
  template <class Stops>
  bool run(Stops stops);
  int64_t done() const { return done_; }
  bool missed_loss() const { return settings_.until_loss && !reached_; }
  /// Evaluates before the first step, if training goes on until a loss. Throws InputError where that loss is
  /// reached already.
  void begin();

 private:
  void step();
  void evaluate();
  void save();

  RunSession& session_;
  const RungSettings& settings_;
  Reporter& reporter_;
  Loader batches_;
  std::optional<Loader> validation_;
  std::optional<Sampler> sampler_;
  std::optional<HellaSwag> hellaswag_;
  int64_t done_ = 0;      // steps
  bool reached_ = false;  // the loss to stop at
};

Training::Training(RunSession& session, Reporter& reporter, const Dataset& data)
    : session_(session),
      settings_(session.settings),
      reporter_(reporter),
      batches_(data.train, session.config.B, session.config.T, session.team().rank, session.team().size) {
  if (settings_.shuffle) batches_.shuffle(settings_.seed);
  if (settings_.eval_every > 0) {
    validation_.emplace(data.val, session.config.B, session.config.T);
    settings_.check_validation(validation_->batches_per_epoch(), data.val->path());
  }
  if (settings_.sample_every > 0 && session.is_first())
    sampler_.emplace(settings_, data.encoding == "bytes", session.config.V);
  if (!settings_.hellaswag.empty())
    hellaswag_.emplace(settings_.hellaswag, session.config.V, session.config.T);
}

void Training::resume(const TrainState& state) {
  if (state.step >= settings_.steps)
    throw InputError(cat(settings_.resume, ": ", state.step, " steps are done; --steps counts them too"));
  if (settings_.seed != state.seed && settings_.seed != RungSettings{}.seed)
    throw InputError(cat("--seed ", settings_.seed, ": ", settings_.resume, " goes on with its own, ",
                         state.seed, ": leave it out"));
  if (state.batch > std::numeric_limits<int64_t>::max() / 2)  // counting on would overflow
    throw InputError(cat(settings_.resume, ": stepladder.batch is ", state.batch, ": it is damaged"));
  done_ = state.step;
  session_.settings.seed = state.seed;
  if (settings_.shuffle) batches_.shuffle(state.seed);
  batches_.seek(state.batch);
}

void Training::agree(Rendezvous& ranks) {
  ranks.agree("the state to go on from",
              cat("step ", done_, ", batch ", batches_.index(), ", seed ", settings_.seed));
  batches_.on_next([&ranks] { ranks.progress(); });
}

void Training::begin() {
  if (!settings_.until_loss) return;
  session_.trainer->gather_state();
  evaluate();
  if (reached_)
    throw InputError(cat("--until-loss ", number_text(*settings_.until_loss), ": the validation loss is ",
                         fixed(*reporter_.val_loss(), 4),
                         done_ == 0 ? " before the first step" : " already"));
}

template <class Stops>
bool Training::run(Stops stops) {
  Trainer& trainer = *session_.trainer;
  while (done_ < settings_.steps && !reached_ && !stops()) {
    step();
    const bool last = done_ == settings_.steps;
    const auto due = [&](int64_t every) { return every > 0 && (last || done_ % every == 0); };
    if (due(settings_.eval_every) || due(settings_.sample_every)) trainer.gather_state();  // for forward()
    if (due(settings_.eval_every)) evaluate();
    if (due(settings_.sample_every) && sampler_)
      std::cout << "---- sample after " << done_ << " steps\n"
                << sampler_->text(sampler_->draw(session_)) << "\n----" << std::endl;
    if (due(settings_.checkpoint_every) && !last && !reached_) save();
  }
  if (!settings_.checkpoint.empty()) save();
  return reached_ || done_ == settings_.steps;
}

void Training::step() {
  const float lr = settings_.schedule().at(done_);
  if (session_.tracer) session_.tracer->begin_step(done_);
  if (session_.ranks) session_.ranks->begin_step(done_);
  // The clock runs from before the batch is fetched until the device is synchronised.
  const auto start = std::chrono::steady_clock::now();
  Ops& ops = *session_.ops;
  ops.device().start_timer();
  session_.trainer->step(batches_, done_, lr);
  ops.device().stop_timer();
  if (session_.ranks) session_.ranks->progress();  // from here this rank only waits for the others
  ops.synchronize();
  const double step_ms = ms_since(start);
  if (session_.ranks) session_.ranks->end_step();
  if (session_.tracer) session_.tracer->end_step(done_, step_ms);
  ++done_;
  reporter_.step(done_, lr, step_ms);
  if (!std::isfinite(reporter_.loss()))
    throw DivergedError(
        cat("the loss is ", reporter_.loss(), " at step ", done_, ": lower --lr or look at --data"));
}

void Training::evaluate() {
  validation_->seek(settings_.eval_skip);  // the same batches every time
  const double loss = session_.trainer->evaluate(*validation_, settings_.eval_batches);
  reporter_.evaluated(done_, loss);
  if (hellaswag_) {  // on all ranks, none of which waits for another meanwhile
    const size_t right = hellaswag_->right_answers(*session_.decoder, [this] {
      if (session_.ranks) session_.ranks->progress();
    });
    std::cout << accuracy_text(right, hellaswag_->size()) << " after " << done_ << " steps" << std::endl;
  }
  if (!settings_.until_loss) return;
  const bool reached = loss <= *settings_.until_loss;
  reached_ = session_.ranks ? session_.ranks->any(reached) : reached;
}

void Training::save() {
  session_.trainer->gather_state();
  if (!session_.is_first()) return;
  save_checkpoint(settings_.checkpoint, *session_.ops, *session_.trainer,
                  {done_, batches_.index(), settings_.seed});
  std::cout << "checkpoint " << printable(settings_.checkpoint, kMaxMessage) << " after " << done_ << " steps"
            << std::endl;
}

/// Checks that we wrote the weights in a file, and that it has the optimizer's state if and only if
/// `resumes`. Throws InputError.
void check_is_ours(const std::string& path, bool resumes) {
  const auto metadata = Safetensors(path).metadata();
  if (!metadata.contains("stepladder.config") || metadata.contains("stepladder.step") != resumes)
    throw InputError(path);
}

/// Fails before training if an output can't be written, or would replace something else than such an output.
void check_outputs(const RunSession& session) {
  const RungSettings& settings = session.settings;
  struct Output {
    const char *option, *what;
    const std::string& path;
    std::function<void(const std::string&)> read;  // throws for a file of another kind
  };
  std::map<std::string, const char*> outputs;
  for (const auto& [option, what, path, read] : std::initializer_list<Output>{
           {"--checkpoint", "checkpoint that Stepladder wrote", settings.checkpoint,
            [](const std::string& file) { check_is_ours(file, true); }},
           {"--save-weights", "file of weights alone that Stepladder wrote", settings.save_weights,
            [](const std::string& file) { check_is_ours(file, false); }},
           {"--times", "list of times", settings.times, [](const std::string& file) {
              std::ifstream times(file);
              nlohmann::json::parse(times).get<std::vector<double>>();
            }}}) {
    if (path.empty()) continue;
    std::error_code none;
    try {
      if (std::filesystem::is_regular_file(path, none) && std::filesystem::file_size(path, none) > 0)
        read(path);
    } catch (const std::exception&) {
      throw InputError(
          cat(path, ": is there and no ", what, ", and ", option, " would replace it: name another file"));
    }
    AtomicFile probe(path);
    const auto [other, first] = outputs.emplace(target_of(path), option);
    if (!first)
      throw InputError(
          cat(path, ": ", option, " would replace what ", other->second, " leaves there: name another file"));
  }
  if (!settings.save_weights.empty())
    check_config_beside(settings.save_weights, session.config, session.architecture());
}

/// Tells stderr and the harness which signal ended the run before its last step. Returns the exit code.
int stopped(const RunSession& session, EventWriter& events, int64_t done) {
  const int signal = stop_signal != 0 ? stop_signal : SIGTERM;  // another rank got the signal
  const std::string reason =
      cat(signal == SIGINT ? "interrupted" : "terminated", " after step ", done, "/", session.settings.steps);
  events.write({{"event", "error"}, {"status", "interrupted"}, {"reason", reason}});
  const std::string& checkpoint = session.settings.checkpoint;
  std::cerr << session.build.name << ": " << reason
            << (checkpoint.empty() || !session.is_first()
                    ? ""
                    : cat("; go on with --resume ", checkpoint, " --checkpoint ", checkpoint,
                          " and the other options as before"))
            << std::endl;
  return 128 + signal;
}

}  // namespace

int train(RunSession& session, EventWriter& events) {
  const RungSettings& settings = session.settings;
  session.open_device();
  session.choose_model();
  const Dataset data = open_dataset(settings.data, settings.val_data, settings.vocab, session.config.V);
  // Runs in another thread, which may outlive the session while the main thread's error is on its way.
  session.meet(data, [&events, name = session.build.name](const std::string& reason, bool speaks) {
    events.write({{"event", "error"}, {"status", "error"}, {"reason", reason}});
    if (speaks) std::cerr << cat(name, ": error: ", reason, '\n') << std::flush;
    std::_Exit(kExitFailed);  // the main thread may wait for ever for a rank that is gone
  });
  session.choose_batch(data);
  const int64_t bytes = session.plan_memory();
  if (settings.plan) {
    std::cout << Json{{"batch", session.config.B}, {"memory_bytes", bytes}} << std::endl;
    return kExitOk;
  }
  if (session.is_first()) check_outputs(session);

  Reporter reporter(session, events);
  Training training(session, reporter, data);
  if (settings.profile) session.tracer.emplace(*session.ops, session.config, *settings.profile);
  if (const auto state = session.build_trainer()) training.resume(*state);
  if (session.ranks) training.agree(*session.ranks);
  reporter.describe(data);

  session.ops->synchronize();  // keeps set-up out of the first step's time
  catch_stop_signals(/*speaks=*/!settings.events && session.is_first());
  reporter.start();
  training.begin();
  const bool complete = training.run([&] {  // whether this rank, or any other, was told to stop
    const bool stop = stop_signal != 0 || !events.connected();
    return session.ranks ? session.ranks->any(stop) : stop;
  });
  if (!events.connected()) throw Error("the reader of --events is gone");
  if (!complete) return stopped(session, events, training.done());
  if (!settings.save_weights.empty()) {
    session.trainer->gather_state();
    if (session.is_first())
      save_weights(settings.save_weights, *session.ops, session.trainer->tensors().params, session.config,
                   session.trainer->architecture());
  }
  reporter.end();
  if (!training.missed_loss()) return kExitOk;
  if (session.is_first())
    std::cerr << cat(session.build.name, ": the validation loss of ", number_text(*settings.until_loss),
                     " was not reached in ", settings.steps, " steps: raise --steps or --until-loss\n")
              << std::flush;
  return kExitInconclusive;
}

}  // namespace stepladder
