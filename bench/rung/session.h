// What a run needs before its first step: device, ranks, batch, and the trainer with its weights.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "bench/plan/ladder.h"
#include "bench/plan/settings.h"
#include "bench/rung/profile.h"
#include "model/arena.h"
#include "model/checkpoint.h"
#include "model/data.h"
#include "model/gpt2.h"
#include "model/rendezvous.h"

namespace stepladder {

/// Set up step by step, in the order of its functions; each step needs those before it.
class RunSession {
 public:
  /// `rendezvous` is where the ranks meet, for as long as the program runs.
  RunSession(const RungBuild& rung_build, RungSettings& run_settings, const World& run_world,
             std::optional<Rendezvous>& rendezvous);

  /// The device of this rank, and the model on it. Throws InputError and UnsupportedError.
  void open_device();
  void choose_model();
  /// The other ranks, which must be about the same. `on_failure` ends the process.
  void meet(const Dataset& data, Rendezvous::OnFailure on_failure);
  /// Where no batch was asked for, the largest that fits; as many sequences as there are data for at most.
  void choose_batch(const Dataset& data);
  /// Bytes of the trainer. Throws OutOfMemoryError where they don't fit.
  int64_t plan_memory();
  /// What the trainer's parameters are of, "gpt2"; known before it is built.
  std::string architecture() const;
  /// From here on every op is noted; which costs host time.
  void trace();
  /// The trainer, its weights initialised, read, or those of a checkpoint: then with where that stood.
  std::optional<TrainState> build_trainer();

  const RungBuild& build;
  const Rung rung;
  RungSettings& settings;             // what was left open is filled in on the way
  const std::vector<Option> options;  // the table of the settings
  const World& world;
  std::optional<Rendezvous>& ranks;  // in a world of more than 1

  DeviceInfo device;
  Config config;
  std::unique_ptr<Ops> ops;
  std::optional<StepTracer> tracer;
  std::optional<Arena> arena;
  std::unique_ptr<Trainer> trainer;

  bool is_first() const { return world.rank == 0; }
  /// The ranks that train one model.
  World team() const { return settings.independent_ranks ? World{} : world; }
  /// What `start` says of the configuration.
  nlohmann::ordered_json config_json() const;

 private:
  bool search_batch_ = false;
  int64_t bytes_ = 0;
};

}  // namespace stepladder
