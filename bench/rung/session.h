// What a run needs before its first step: device, ranks, batch, and the trainer with its weights.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "bench/plan/ladder.h"
#include "bench/plan/settings.h"
#include "bench/results/json.h"
#include "bench/rung/profile.h"
#include "model/arena.h"
#include "model/checkpoint.h"
#include "model/data.h"
#include "model/decoder.h"
#include "model/gpt2.h"
#include "model/rendezvous.h"

namespace stepladder {

/// The set-up of a run, by functions that are called in their order: each needs those before it.
class RunSession {
 public:
  /// `rendezvous` is where the ranks meet, for as long as the program runs.
  RunSession(const RungBuild& rung_build, RungSettings& run_settings, const World& run_world,
             std::optional<Rendezvous>& rendezvous);

  /// Opens the device of this rank, and then chooses the model for it. Throws InputError and
  /// UnsupportedError.
  void open_device();
  void choose_model();
  /// Meets the other ranks, which must have equal sources, settings and data. `on_failure` ends the process.
  void meet(const Dataset& data, Rendezvous::OnFailure on_failure);
  /// Where no batch was asked for, chooses the largest that fits the memory and the data's shortest shard.
  void choose_batch(const Dataset& data);
  /// Bytes of the trainer, and of the decoder. Throws OutOfMemoryError where they don't fit.
  int64_t plan_memory();
  /// The architecture of the trainer's parameters, "gpt2"; known before the trainer is built.
  std::string architecture() const;
  /// Builds the trainer, its weights initialised, read, or from a checkpoint. Returns the state of the
  /// checkpoint.
  std::optional<TrainState> build_trainer();

  const RungBuild& build;
  const Rung rung;
  RungSettings& settings;             // options left open are filled in on the way
  const std::vector<Option> options;  // the table of the settings
  const World& world;
  std::optional<Rendezvous>& ranks;  // only in a world of more than 1

  DeviceInfo device;
  Config config;
  std::unique_ptr<Ops> ops;
  std::optional<StepTracer> tracer;  // costs host time
  std::optional<Arena> arena;
  std::unique_ptr<Trainer> trainer;
  std::unique_ptr<Decoder> decoder;  // reads the trainer's weights, where the settings ask for that

  bool is_first() const { return world.rank == 0; }
  /// The ranks that train one model.
  World team() const { return settings.independent_ranks ? World{} : world; }
  /// The "config" of the start event.
  Json config_json() const;

 private:
  bool search_batch_ = false;
  int64_t bytes_ = 0;
};

}  // namespace stepladder
