#include "bench/rung/session.h"

#include <algorithm>

#include "bench/base/text.h"
#include "model/device.h"
#include "model/fp8_linears.h"
#include "model/random.h"

namespace stepladder {
namespace {

/// A digest that tells data apart: of each shard's length and some of its tokens, evenly spread. It reads
/// about 4096 tokens in all, since each may be on another page of a file.
std::string digest_of(const Tokens& data) {
  const size_t most = std::max<size_t>(4, 4096 / std::max<size_t>(1, data.shards().size()));
  uint64_t digest = 0;
  for (const Shard& shard : data.shards()) {
    const auto file = shard.open();
    digest = random_bits(digest, shard.size);
    for (size_t i = 0; i < shard.size; i += 1 + shard.size / most) {
      uint16_t token = 0;
      file->read(shard.begin + i, {&token, 1});
      digest = random_bits(digest, token);
    }
  }
  return cat(data.size(), " tokens, ", std::hex, digest);
}

struct Model {
  std::unique_ptr<Trainer> trainer;
  std::unique_ptr<Decoder> decoder;
};

/// The trainer and, where the settings want one and it knows the trainer, the decoder. Throws InputError for
/// --hellaswag with a trainer that it doesn't know.
Model make_model(const RunSession& session, Arena& arena, const Config& config) {
  Model model{session.build.make(*session.ops, arena, config, session.settings.hyper), nullptr};
  const bool known = Decoder::knows(*model.trainer);
  if (!known && !session.settings.hellaswag.empty())
    throw InputError(cat("--hellaswag: model/decoder.cpp does not compute ", model.trainer->architecture(),
                         ": add its changes to GPT-2 there"));
  // On CUDA it needs the libraries, and heads of at most 256 channels.
  const bool here = session.device.backend != "cuda" || (session.build.libraries && config.HS() <= 256);
  if (!here && !session.settings.hellaswag.empty())
    throw InputError(
        cat("--hellaswag: on CUDA it needs cuBLAS, which own_kernels doesn't use, and heads of at "
            "most 256 channels: ",
            session.build.name, " has ", config.HS()));
  if (known && here && session.settings.decodes())
    model.decoder = std::make_unique<Decoder>(*session.ops, arena, *model.trainer);
  return model;
}

/// Bytes that a model of this configuration takes: its constructors run against a planning arena.
int64_t planned_bytes(const RunSession& session, const Config& config) {
  Arena arena;
  make_model(session, arena, config);
  return arena.bytes();
}

/// Bytes that a trainer with a batch of our choice may take.
int64_t room(const MemoryInfo& memory) {
  return memory.free - memory.later;
}

/// planned_bytes(), checked to fit into memory. Throws OutOfMemoryError with the bytes wanted and free, and
/// the largest batch that would fit.
int64_t fitting_bytes(const RunSession& session) {
  const Config& config = session.config;
  const int64_t wanted = planned_bytes(session, config);
  const MemoryInfo memory = session.ops->device().memory();
  if (wanted <= memory.free) return wanted;
  Config trial = config;
  int64_t fits = 0, too_large = config.B;  // bytes grow with the batch
  while (too_large - fits > 1) {
    trial.B = fits + (too_large - fits) / 2;
    (planned_bytes(session, trial) <= room(memory) ? fits : too_large) = trial.B;
  }
  throw OutOfMemoryError(cat("out of memory: B=", config.B, " T=", config.T, " wants ", bytes_text(wanted),
                             ", ", bytes_text(memory.free), " are free; ",
                             fits > 0 ? cat("the largest batch that fits is --batch ", fits)
                                      : "not even --batch 1 fits: use a smaller --seq or --model",
                             memory.limit));
}

/// The largest power of two, at most `max_batch`, for whose trainer there is room; 1 where there isn't even
/// room for 1.
int64_t largest_batch(const RunSession& session, int64_t max_batch) {
  const int64_t bytes = room(session.ops->device().memory());
  Config config = session.config;
  for (config.B = 1; 2 * config.B <= max_batch; config.B *= 2) {
    Config twice = config;
    twice.B = 2 * config.B;
    if (planned_bytes(session, twice) > bytes) break;
  }
  return config.B;
}

}  // namespace

RunSession::RunSession(const RungBuild& rung_build, RungSettings& run_settings, const World& run_world,
                       std::optional<Rendezvous>& rendezvous)
    : build(rung_build),
      rung(row_of(rung_build.name)),
      settings(run_settings),
      options(run_settings.options()),
      world(run_world),
      ranks(rendezvous) {}

void RunSession::open_device() {
  if (world.size > 1) {
    if (rung.devices < 2)
      throw InputError(cat(build.name, " trains on one device, and was started as ", world.size,
                           " ranks: use a rung for several, as `stepladder list` has them",
                           world.hint_without_launcher()));
    const bool cuda = settings.backend == "cuda" || cuda_device_count() > 0;
    if (settings.backend != "cpu" && cuda) settings.device = world.device_among(cuda_device_count());
  }
  OpsOptions how = settings.ops_options();
  how.libraries = build.libraries || settings.profile;  // a profile's ceilings are those of the libraries
  ops = make_ops(settings.backend, settings.device, how);
  device = ops->device().info();
  const std::string reason = unsupported_reason(rung.compute_capability, device);
  if (!reason.empty()) throw UnsupportedError(reason);
}

void RunSession::choose_model() {
  search_batch_ = !settings.batch && settings.max_batch;
  config = settings.resolve();
  settings.min_lr = settings.schedule().min_lr;  // also where it is a tenth of --lr
  config.half = settings.half_type(rung, device);
  check_devices(rung, config.C, team().size);
}

void RunSession::meet(const Dataset& data, Rendezvous::OnFailure on_failure) {
  if (world.size == 1) return;
  // Settings that ranks must share: those that decide which batches are read, and when ranks meet outside a
  // step.
  Json agreed = config_json();
  agreed.update(options_json(options, {RungSettings::kSampling}));
  agreed["max_batch"] = settings.max_batch ? Json(*settings.max_batch) : Json();
  agreed["checkpoint_every"] = settings.checkpoint_every;
  for (const auto& [name, file] :
       {std::pair("checkpoint", settings.checkpoint), std::pair("save_weights", settings.save_weights),
        std::pair("init", settings.init), std::pair("resume", settings.resume)})
    agreed[name] = !file.empty();
  const Identity identity{build.source_hash, dump(agreed), digest_of(*data.train),
                          device.backend == "cpu" ? "" : device.uuid};
  RendezvousLimits limits;
  if (settings.hang_timeout)
    limits.step_s = limits.first_step_s = static_cast<double>(*settings.hang_timeout);
  ranks.emplace(world, identity, std::move(on_failure), limits);
  if (!settings.independent_ranks) ops->join(*ranks);
}

void RunSession::choose_batch(const Dataset& data) {
  if (!search_batch_) return;
  int64_t sequences = RungSettings::kMaxBatch;
  for (const Shard& shard : data.train->shards())
    sequences = std::min(sequences, (static_cast<int64_t>(shard.size) - 1) / config.T);
  config.B = largest_batch(*this, std::min(sequences, *settings.max_batch));
  if (ranks) config.B = std::stoll(ranks->share(std::to_string(config.B)));  // one batch for all
  settings.batch = config.B;
}

int64_t RunSession::plan_memory() {
  if (rung.math == MathMode::fp8 && device.backend == "cuda") expect_fp8_extents(config);
  bytes_ = fitting_bytes(*this);
  return bytes_;
}

std::string RunSession::architecture() const {
  Arena plan;
  return build.make(*ops, plan, config, settings.hyper)->architecture();
}

std::optional<TrainState> RunSession::build_trainer() {
  arena.emplace(*ops, bytes_);
  Model model = make_model(*this, *arena, config);
  trainer = std::move(model.trainer);
  decoder = std::move(model.decoder);
  trainer->reset();
  std::optional<TrainState> state;
  if (!settings.resume.empty())
    state = load_checkpoint(settings.resume, *ops, *trainer, config);
  else if (!settings.init.empty())
    load_weights(settings.init, *ops, trainer->tensors().params, config, trainer->architecture());
  else
    trainer->init(settings.seed);
  trainer->prepare();
  // --dtype fp32 means full fp32 in GEMMs too.
  if (rung.in_16_bits() && config.half == DType::f32) ops->set_matmul_precision(Precision::fp32);
  return state;
}

Json RunSession::config_json() const {
  Json json = {
      {"model", config.model},
      {"B", config.B},
      {"T", config.T},
      {"max_T", config.max_T},
      {"V", config.V},
      {"L", config.L},
      {"NH", config.NH},
      {"C", config.C},
      {"world_size", world.size},
      {"dtype", name_of(rung.in_16_bits() ? config.half : DType::f32)},
      {"math", name_of(*rung.math)},
  };
  if (settings.independent_ranks) json["independent_ranks"] = true;
  json.update(options_json(options, {RungSettings::kData, RungSettings::kTraining, RungSettings::kOps}));
  return json;
}

}  // namespace stepladder
