#include "bench/rung_app.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <map>
#include <optional>

#include "bench/ceilings.h"
#include "bench/ladder.h"
#include "bench/profile.h"
#include "bench/rung_settings.h"
#include "bench/statistics.h"
#include "bench/telemetry.h"
#include "bench/text.h"
#include "bench/this_process.h"
#include "model/atomic_file.h"
#include "model/checkpoint.h"
#include "model/devices.h"
#include "model/flops.h"
#include "model/random.h"
#include "model/sample.h"
#include "model/tokenizer.h"
#include "model/traced_ops.h"

namespace stepladder {
namespace {

using Clock = std::chrono::steady_clock;
using Rows = std::vector<std::pair<std::string, std::string>>;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

template <class T>
nlohmann::ordered_json optional(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

/// Bytes of the trainer for this configuration, its constructor run against a planning arena.
int64_t planned_bytes(const TrainerFactory& make, Ops& ops, const Config& config, const Hyper& hyper) {
  Arena arena;
  make(ops, arena, config, hyper);
  return arena.bytes();
}

/// The same, known to fit. Throws OutOfMemoryError with what was wanted, what there is, and the largest batch
/// that would fit.
int64_t fitting_bytes(const TrainerFactory& make, Ops& ops, const Config& config, const Hyper& hyper) {
  const int64_t wanted = planned_bytes(make, ops, config, hyper), free = ops.memory().free;
  if (wanted <= free) return wanted;
  Config trial = config;
  int64_t fits = 0, too_large = config.B;  // bytes grow with the batch
  while (too_large - fits > 1) {
    trial.B = fits + (too_large - fits) / 2;
    (planned_bytes(make, ops, trial, hyper) <= free ? fits : too_large) = trial.B;
  }
  throw OutOfMemoryError(cat("out of memory: B=", config.B, " T=", config.T, " wants ", bytes_text(wanted),
                             ", ", bytes_text(free), " are free; ",
                             fits > 0 ? cat("the largest batch that fits is --batch ", fits)
                                      : "not even --batch 1 fits: use a smaller --seq or --model"));
}

/// The largest power of two whose trainer fits into what is free, and for which there are `max_batch`
/// sequences of data; 1 where not even that fits.
int64_t largest_batch(const TrainerFactory& make, Ops& ops, Config config, const Hyper& hyper,
                      int64_t max_batch) {
  const int64_t free = ops.memory().free;
  for (config.B = 1; 2 * config.B <= max_batch; config.B *= 2) {
    Config twice = config;
    twice.B = 2 * config.B;
    if (planned_bytes(make, ops, twice, hyper) > free) break;
  }
  return config.B;
}

/// Bytes by the part of a name before the slash: params, grads, activations, ...
std::map<std::string, int64_t> by_group(const Arena& arena) {
  std::map<std::string, int64_t> groups;
  for (const auto& [name, bytes] : arena.by_name()) groups[name.substr(0, name.find('/'))] += bytes;
  return groups;
}

/// Whether its weights, gradients and activations have --dtype.
bool in_16_bits(const Rung& rung) {
  return rung.math == MathMode::half || rung.math == MathMode::fp8;
}

/// Tells token files apart: a digest of their length and of up to a million tokens, evenly spread.
std::string digest_of(std::span<const uint16_t> tokens) {
  constexpr size_t kMost = 1 << 20;
  uint64_t digest = tokens.size();
  for (size_t i = 0; i < tokens.size(); i += 1 + tokens.size() / kMost)
    digest = random_bits(digest, tokens[i]);
  return cat(tokens.size(), " tokens, ", std::hex, digest);
}

/// GPT-2's tokenizer, or its byte tokens where there is no vocabulary.
class Text {
 public:
  Text(const std::string& vocab_dir, bool bytes) {
    if (!bytes) bpe_.emplace(vocab_dir);
  }
  std::vector<int32_t> encode(const std::string& text) const {
    return bpe_ ? bpe_->encode(text) : encode_bytes(text);
  }
  std::string decode(std::span<const int32_t> tokens) const {
    return bpe_ ? bpe_->decode(tokens) : decode_bytes(tokens);
  }

 private:
  std::optional<Tokenizer> bpe_;
};

/// How fast `ms` a step is, as tokens per second and MFU.
class Speed {
 public:
  Speed(const Config& config, const Hyper& hyper, const Rung& rung, const DeviceInfo& device, int devices)
      : tokens_(static_cast<double>(config.B * config.T * hyper.accumulate * devices)),
        nanogpt_(flops_per_token_nanogpt(config)),
        llmc_(flops_per_token_llmc(config)),
        peak_(peak_flops(device.name, rung.math)) {
    if (peak_) *peak_ *= devices;
  }

  double tokens_per_second(double ms) const { return tokens_ / ms * 1e3; }
  std::string mfu_nanogpt(double ms) const { return percent(nanogpt_, ms); }
  std::string mfu_llmc(double ms) const { return percent(llmc_, ms); }
  std::string peak() const { return peak_ ? fixed(*peak_ * 1e-12, 1) + " TFLOP/s" : "n/a"; }

 private:
  std::string percent(double flops_per_token, double ms) const {
    const auto fraction = mfu(flops_per_token, tokens_per_second(ms), peak_);
    return fraction ? fixed(*fraction * 100, 1) + "%" : "n/a";
  }

  double tokens_, nanogpt_, llmc_;
  std::optional<double> peak_;
};

/// One run, from its settings to its last line.
class Run {
 public:
  Run(const RungBuild& build, RungSettings& settings, const std::vector<Option>& options, EventWriter& events,
      const World& world, std::optional<Rendezvous>& ranks)
      : build_(build),
        rung_(row_of(build.name)),
        settings_(settings),
        options_(options),
        events_(events),
        world_(world),
        ranks_(ranks) {}

  /// Returns the exit code.
  int train();
  /// Prints the prompt and what follows it, nothing else.
  void sample();

 private:
  void open_device();
  void trace();
  void meet(const Dataset& data);
  void choose_batch(const Dataset& data);
  /// The ranks that train one model.
  World team() const { return settings_.apart ? World{} : world_; }
  int64_t plan() const { return fitting_bytes(build_.make, *ops_, config_, settings_.hyper); }
  void build_trainer(int64_t bytes);
  void load_or_init();
  TrainState resume();
  void print_box(const Dataset& data) const;
  std::string precision() const;
  nlohmann::ordered_json config_json() const;
  void send_start() const;
  void step(Loader& batches);
  void evaluate(Loader& validation);
  void print_sample();
  void save(const Loader& batches);
  void send_end();
  bool stops();
  int stopped();
  void print_summary() const;
  std::string continuation(std::span<const int32_t> prompt);

  const RungBuild& build_;
  const Rung rung_;
  RungSettings& settings_;
  const std::vector<Option>& options_;
  EventWriter& events_;
  const World& world_;
  std::optional<Rendezvous>& ranks_;  // in a world of more than 1

  std::unique_ptr<Ops> ops_;
  TracedOps* traced_ = nullptr;  // the same, where steps are traced
  std::optional<Profile> profile_;
  DeviceInfo device_;
  Config config_;
  std::optional<Arena> arena_;
  std::unique_ptr<Trainer> trainer_;
  std::optional<Text> text_;
  std::optional<Speed> speed_;
  std::optional<Telemetry> telemetry_;  // for the harness

  int64_t done_ = 0;  // steps
  std::vector<double> step_ms_;
  double loss_ = 0.0;
  std::optional<double> val_loss_;
};

void Run::open_device() {
  if (world_.size > 1) {
    if (rung_.devices < 2)
      throw InputError(cat(build_.name, " trains on one device, and was started as ", world_.size,
                           " ranks: use a rung for several, as `stepladder list` has them"));
    const bool cuda = settings_.backend == "cuda" || cuda_device_count() > 0;
    if (settings_.backend != "cpu" && cuda) {
      settings_.device = world_.local_rank;
      if (world_.local_rank >= cuda_device_count())
        throw InputError(cat("rank ", world_.rank, " is number ", world_.local_rank + 1,
                             " on this machine, which has ", cuda_device_count(),
                             " CUDA devices: start one rank for each"));
    }
  }
  ops_ = make_ops(settings_.backend, settings_.device, settings_.ops_options());
  device_ = ops_->device();
  const std::string reason = unsupported_reason(rung_, device_);
  if (!reason.empty()) throw UnsupportedError(reason);
}

/// The other ranks, which must be about the same.
void Run::meet(const Dataset& data) {
  if (world_.size == 1) return;
  // What decides which batches are read, and when all ranks meet outside a step.
  nlohmann::ordered_json config = config_json();
  config.update(options_json(options_, {RungSettings::kSampling}));
  config["max_batch"] = optional(settings_.max_batch);
  config["checkpoint_every"] = settings_.checkpoint_every;
  for (const auto& [name, file] :
       {std::pair("checkpoint", settings_.checkpoint), std::pair("save_weights", settings_.save_weights),
        std::pair("init", settings_.init), std::pair("resume", settings_.resume)})
    config[name] = !file.empty();
  const Identity identity{build_.source_hash, config.dump(), digest_of(data.train->tokens())};
  RendezvousLimits limits;
  if (settings_.hang_timeout)
    limits.step_s = limits.first_step_s = static_cast<double>(*settings_.hang_timeout);
  ranks_.emplace(
      world_, identity,
      [this](const std::string& reason, bool speaks) {
        events_.write({{"event", "error"}, {"status", "error"}, {"reason", reason}});
        if (speaks) std::cerr << cat(build_.name, ": error: ", reason, '\n') << std::flush;
        std::_Exit(kExitFailed);  // the main thread may wait for ever for a rank that is gone
      },
      limits);
  if (!settings_.apart) ops_->join(*ranks_);
}

/// From here on every op is noted; which costs host time.
void Run::trace() {
  profile_.emplace(measure_ceilings(*ops_, config_));
  auto traced = std::make_unique<TracedOps>(std::move(ops_));
  traced_ = traced.get();
  ops_ = std::move(traced);
}

void Run::build_trainer(int64_t bytes) {
  arena_.emplace(*ops_, bytes);
  trainer_ = build_.make(*ops_, *arena_, config_, settings_.hyper);
}

void Run::load_or_init() {
  trainer_->reset();
  if (settings_.init.empty()) {
    init_params(*ops_, trainer_->params, config_, settings_.seed);
  } else {
    load_weights(settings_.init, *ops_, trainer_->params, config_);
  }
}

TrainState Run::resume() {
  trainer_->reset();
  return load_checkpoint(settings_.resume, *ops_, *trainer_, config_);
}

void Run::choose_batch(const Dataset& data) {
  const int64_t sequences = (std::ssize(data.train->tokens()) - 1) / config_.T;
  config_.B = largest_batch(build_.make, *ops_, config_, settings_.hyper,
                            std::min(sequences, settings_.max_batch.value_or(RungSettings::kMaxBatch)));
  if (ranks_) config_.B = std::stoll(ranks_->share(std::to_string(config_.B)));  // one batch for all
  settings_.batch = config_.B;
}

int Run::train() {
  open_device();
  const bool search = !settings_.batch && (settings_.max_batch || build_.batch == BatchSize::largest);
  config_ = settings_.resolve();
  config_.half = settings_.half_type(rung_, device_);
  check_devices(rung_, config_.C, team().size);
  const Dataset data = open_dataset(settings_.data, settings_.val_data, settings_.vocab, config_.V);
  meet(data);
  if (search) choose_batch(data);
  speed_.emplace(config_, settings_.hyper, rung_, device_, team().size);
  const int64_t bytes = plan();
  if (settings_.plan) {
    std::cout << nlohmann::ordered_json{{"batch", config_.B}, {"memory_bytes", bytes}} << std::endl;
    return kExitOk;
  }
  const bool first = world_.rank == 0;
  // What can't be written after hours of training is better known now.
  for (const std::string& path : {settings_.checkpoint, settings_.save_weights})
    if (!path.empty() && first) AtomicFile probe(path);

  Loader batches(data.train, config_.B, config_.T, team().rank, team().size);
  std::optional<Loader> validation;
  if (settings_.eval_every > 0) validation.emplace(data.val, config_.B, config_.T);
  if (settings_.sample_every > 0 && first) text_.emplace(settings_.vocab, data.encoding == "bytes");

  if (settings_.profile) trace();
  build_trainer(bytes);
  if (settings_.resume.empty()) {
    load_or_init();
  } else {
    const TrainState state = resume();
    if (state.step >= settings_.steps)
      throw InputError(cat(settings_.resume, ": ", state.step, " steps are done; --steps counts them too"));
    done_ = state.step;
    settings_.seed = state.seed;
    batches.seek(state.batch);
  }
  if (ranks_) {
    ranks_->agree("the state to go on from",
                  cat("step ", done_, ", batch ", batches.index(), ", seed ", settings_.seed));
    batches.on_next([this] { ranks_->progress(); });
  }
  trainer_->prepare();
  // --dtype fp32 means all of it.
  if (in_16_bits(rung_) && config_.half == DType::f32) ops_->set_matmul_precision(Precision::fp32);
  print_box(data);

  ops_->synchronize();  // the first step's clock is for the first step
  catch_stop_signals();
  send_start();
  while (done_ < settings_.steps && !stops()) {
    step(batches);
    const bool last = done_ == settings_.steps;
    const auto due = [&](int64_t every) { return every > 0 && (last || done_ % every == 0); };
    if (due(settings_.eval_every) || due(settings_.sample_every)) trainer_->gather_state();  // for forward()
    if (due(settings_.eval_every)) evaluate(*validation);
    if (due(settings_.sample_every) && first) print_sample();
    if (due(settings_.checkpoint_every) && !last) save(batches);
  }
  if (!settings_.checkpoint.empty()) save(batches);
  if (!events_.connected()) throw Error("the reader of --events is gone");
  if (done_ < settings_.steps) return stopped();
  if (!settings_.save_weights.empty()) trainer_->gather_state();
  if (!settings_.save_weights.empty() && first)
    save_weights(settings_.save_weights, *ops_, trainer_->params, config_);
  send_end();
  print_summary();
  return kExitOk;
}

/// Whether this rank, or any other, was told to stop.
bool Run::stops() {
  const bool stop = stop_signal() != 0 || !events_.connected();
  return ranks_ ? ranks_->any(stop) : stop;
}

int Run::stopped() {
  const int signal = stop_signal() != 0 ? stop_signal() : SIGTERM;  // that another rank was told
  const std::string reason =
      cat(signal == SIGINT ? "interrupted" : "terminated", " after step ", done_, "/", settings_.steps);
  events_.write({{"event", "error"}, {"status", "interrupted"}, {"reason", reason}});
  std::cerr << build_.name << ": " << reason
            << (settings_.checkpoint.empty() ? "" : "; go on with --resume " + settings_.checkpoint)
            << std::endl;
  return 128 + signal;
}

void Run::print_box(const Dataset& data) const {
  Rows rows = {{"rung", build_.name}, {"device", device_.name}};
  if (device_.compute_capability > 0)
    rows.emplace_back("compute capability", cat("sm_", device_.compute_capability));
  rows.emplace_back("device memory", bytes_text(device_.total_memory));
  if (!device_.driver.empty()) rows.emplace_back("driver", device_.driver);
  if (!device_.runtime.empty()) rows.emplace_back("runtime", device_.runtime);
  rows.emplace_back("BLAS", device_.blas);
  rows.emplace_back("attention", device_.attention);
  rows.emplace_back(cat("peak, ", name_of(rung_.math)), speed_->peak());
  rows.emplace_back("precision", precision());
  const auto section = [&](const Rows& more) {
    rows.emplace_back();
    rows.insert(rows.end(), more.begin(), more.end());
  };
  section(option_rows(options_, {RungSettings::kData}));
  rows.emplace_back("encoding", data.encoding);
  rows.emplace_back("training tokens", grouped(static_cast<int64_t>(data.train->tokens().size())));
  rows.emplace_back("validation tokens", grouped(static_cast<int64_t>(data.val->tokens().size())));
  section(option_rows(options_, {RungSettings::kModel}));
  rows.emplace_back("parameters", grouped(config_.num_params()));
  section(option_rows(options_, {RungSettings::kTraining, RungSettings::kOps}));
  rows.emplace_back();
  for (const auto& [group, bytes] : by_group(*arena_)) rows.emplace_back(group, bytes_text(bytes));
  rows.emplace_back("memory", bytes_text(arena_->bytes()));
  std::cout << box(rows) << std::flush;
}

/// What is cast to what.
std::string Run::precision() const {
  const DType half = trainer_->weights.wte.dtype;
  if (half == DType::f32) return rung_.math == MathMode::tf32 ? "f32, GEMM inputs TF32" : "f32";
  const bool fp8 = rung_.math == MathMode::fp8;
  return cat(name_of(half), " weights, activations",
             fp8 ? " and gradients, GEMM inputs FP8" : ", gradients and GEMM inputs",
             "; f32 master weights, AdamW, statistics, accumulation and loss",
             half == DType::f16 ? "; dynamic loss scaling" : "");
}

nlohmann::ordered_json Run::config_json() const {
  nlohmann::ordered_json config = {
      {"model", config_.model},
      {"B", config_.B},
      {"T", config_.T},
      {"max_T", config_.max_T},
      {"V", config_.V},
      {"L", config_.L},
      {"NH", config_.NH},
      {"C", config_.C},
      {"world_size", world_.size},
      {"dtype", name_of(in_16_bits(rung_) ? config_.half : DType::f32)},
      {"math", name_of(rung_.math)},
  };
  if (settings_.apart) config["apart"] = true;
  config.update(options_json(options_, {RungSettings::kData, RungSettings::kTraining, RungSettings::kOps}));
  return config;
}

void Run::send_start() const {
  events_.write({{"event", "start"},
                 {"variant", build_.name},
                 {"source_hash", build_.source_hash},
                 {"backend", device_.backend},
                 {"rank", world_.rank},
                 {"host", host_name()},
                 {"config", config_json()},
                 {"device", device_json(device_)},
                 {"startup_ms", process_age_ms()},
                 {"memory_by_name", arena_->by_name()}});
}

void Run::step(Loader& batches) {
  const float lr = settings_.schedule().at(done_);
  // The first one traced sets tracing up, and is left out unless there is none before it.
  const bool traced = settings_.profile && done_ + 1 >= *settings_.profile;
  if (traced) traced_->begin_step();
  if (ranks_) ranks_->begin_step(done_);
  const auto start = Clock::now();
  ops_->start_timer();
  trainer_->step(batches, done_, lr);
  ops_->stop_timer();
  if (ranks_) ranks_->progress();  // what keeps this rank now is another
  ops_->synchronize();
  // A slow-down of known size, for tests of what is to find it.
  if (settings_.test_slowdown > 0.0)
    for (const double ms = ms_since(start) * (1 + settings_.test_slowdown / 100); ms_since(start) < ms;) {
    }
  const double step_ms = ms_since(start);
  if (ranks_) ranks_->end_step();
  if (traced) {
    const TracedOps::Step times = traced_->end_step();
    if (done_ >= *settings_.profile) profile_->add(times, traced_->calls(), step_ms, ops_->device_ms());
  }

  // Opened after the first step, so that neither start-up nor a step pays for it.
  if (events_.wanted() && !telemetry_) telemetry_.emplace(device_.uuid);
  const DeviceState state = telemetry_ ? telemetry_->sample() : DeviceState();
  const double device_ms = ops_->device_ms(), norm = trainer_->grad_norm();
  loss_ = trainer_->train_loss();
  step_ms_.push_back(step_ms);
  events_.write({{"event", "step"},
                 {"step", done_},
                 {"step_ms", step_ms},
                 {"device_ms", device_ms},
                 {"loss", loss_},
                 {"grad_norm", norm},
                 {"lr", lr},
                 {"sm_mhz", optional(state.sm_mhz)},
                 {"memory_mhz", optional(state.memory_mhz)},
                 {"power_w", optional(state.power_w)},
                 {"temperature_c", optional(state.temperature_c)},
                 {"throttle", optional(state.throttle)}});
  ++done_;
  const std::string steps = std::to_string(settings_.steps);
  std::cout << "step " << std::setw(static_cast<int>(steps.size())) << done_ << "/" << steps << " | loss "
            << fixed(loss_, 4) << " | norm " << fixed(norm, 4) << " | lr " << scientific(lr) << " | "
            << fixed(step_ms, 3) << " ms | MFU " << speed_->mfu_nanogpt(step_ms) << " | "
            << grouped(std::llround(speed_->tokens_per_second(step_ms))) << " tok/s" << std::endl;
  if (!std::isfinite(loss_))
    throw DivergedError(cat("the loss is ", loss_, " at step ", done_, ": lower --lr or look at --data"));
}

void Run::evaluate(Loader& validation) {
  validation.seek(0);  // the same batches every time
  val_loss_ = trainer_->evaluate(validation, settings_.eval_batches);
  events_.write({{"event", "eval"}, {"step", done_}, {"val_loss", *val_loss_}});
  std::cout << "validation loss " << fixed(*val_loss_, 4) << " after " << done_ << " steps" << std::endl;
}

std::string Run::continuation(std::span<const int32_t> prompt) {
  return text_->decode(generate(*trainer_, prompt, settings_.sample_tokens, settings_.sampling()));
}

void Run::print_sample() {
  std::cout << "---- sample after " << done_ << " steps\n"
            << settings_.prompt << continuation(text_->encode(settings_.prompt)) << "\n----" << std::endl;
}

void Run::save(const Loader& batches) {
  trainer_->gather_state();
  if (world_.rank > 0) return;
  save_checkpoint(settings_.checkpoint, *ops_, *trainer_, {done_, batches.index(), settings_.seed});
  std::cout << "checkpoint " << settings_.checkpoint << " after " << done_ << " steps" << std::endl;
}

void Run::send_end() {
  if (profile_) {
    const auto before = std::span<const double>(step_ms_).first(
        static_cast<size_t>(std::max<int64_t>(*settings_.profile - 1, 0)));
    const bool known = before.size() > 1;  // the first one warms up
    events_.write(
        {{"event", "profile"},
         {"profile", profile_->json(traced_->source(),
                                    known ? std::optional(median(before.subspan(1))) : std::nullopt)}});
  }
  const MemoryInfo memory = ops_->memory();
  nlohmann::ordered_json end = {{"event", "end"}};
  // Only where there is something to tell.
  if (trainer_->loss_scaler.data) end["skipped_steps"] = trainer_->skipped_steps();
  const CompileInfo compile = ops_->compile_info();
  if (compile.search_ms + compile.capture_ms > 0.0)
    end["compile"] = {{"search_ms", compile.search_ms},
                      {"capture_ms", compile.capture_ms},
                      {"searched", compile.searched},
                      {"from_cache", compile.from_cache}};
  end["memory_bytes"] = {{"live_peak", arena_->bytes()},
                         {"reserved_peak", memory.reserved_peak},
                         {"process_peak", memory.process_peak},
                         {"by_name", by_group(*arena_)}};
  events_.write(end);
}

void Run::print_summary() const {
  const std::span<const double> all = step_ms_;
  const double ms = median(all.subspan(all.size() > 1 ? 1 : 0));  // the first step warms up
  std::cout << "median " << fixed(ms, 2) << " ms | " << grouped(std::llround(speed_->tokens_per_second(ms)))
            << " tok/s | MFU " << speed_->mfu_nanogpt(ms) << " (nanoGPT's formula), " << speed_->mfu_llmc(ms)
            << " (llm.c's) | loss " << fixed(loss_, 4)
            << (val_loss_ ? cat(" | validation loss ", fixed(*val_loss_, 4)) : "")
            << (trainer_->skipped_steps() > 0 ? cat(" | steps skipped ", trainer_->skipped_steps()) : "")
            << std::endl;
}

void Run::sample() {
  if (world_.size > 1) throw InputError("--steps 0 only samples, on one device: start it without a launcher");
  open_device();
  const bool named = settings_.vocab != RungSettings().vocab && settings_.vocab != "none";
  settings_.batch = 1;
  config_ = settings_.resolve();  // which also finds the vocabulary that comes with the project
  text_.emplace(settings_.vocab, !named && !std::filesystem::exists(settings_.vocab + "/vocab.bpe"));
  const auto prompt = text_->encode(settings_.prompt);
  config_.half = settings_.half_type(rung_, device_);
  config_.T = positions_to_sample(std::ssize(prompt), settings_.sample_tokens, config_.T);
  build_trainer(plan());
  if (settings_.resume.empty()) {
    load_or_init();
  } else {
    resume();
  }
  trainer_->prepare();
  std::cout << settings_.prompt << continuation(prompt) << std::endl;
}

}  // namespace

int RungApp::run(int argc, const char* const* argv) {
  RungSettings settings;
  const auto options = settings.options();
  CLI::App app(cat(build_.name, ": trains GPT-2; ", row_of(build_.name).changes), build_.name);
  add_options(app, options);
  add_help(app, cat(build_.name, " ", STEPLADDER_VERSION, " source ", build_.source_hash));
  if (!parse_command_line(app, argc, argv)) {
    flush_output();
    return kExitOk;
  }

  events_ = EventWriter(static_cast<int>(settings.events.value_or(-1)));
  settings.check();
  world_ = World::from_environment();
  if (world_.rank > 0) std::cout.setstate(std::ios::failbit);  // rank 0 tells
  Run run(build_, settings, options, events_, world_, ranks_);
  int exit_code = kExitOk;
  if (settings.steps > 0)
    exit_code = run.train();
  else
    run.sample();
  if (world_.rank == 0) flush_output();
  return exit_code;
}

int RungApp::fail(const std::string& status, const std::string& reason, ExitCode code) {
  events_.write({{"event", "error"}, {"status", status}, {"reason", reason}});
  const bool told = ranks_ && world_.rank > 0;  // by rank 0
  if (ranks_) ranks_->fail(reason);
  if (!told)
    std::cerr << cat(build_.name, ": error: ", world_.size > 1 ? cat("rank ", world_.rank, ": ") : "", reason,
                     '\n')
              << std::flush;
  return code;
}

}  // namespace stepladder
