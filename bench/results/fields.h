// The fields of each struct of a results file, listed once for reading and writing.
//
// An archive is called with each field's name and value. `added` are fields that files from before lack,
// `if_any` those that are written only where there is something to tell.
#pragma once

#include <concepts>
#include <type_traits>

#include "bench/results/results.h"

namespace stepladder {

template <class T, class Struct>
concept Any = std::same_as<std::remove_const_t<T>, Struct>;

// Of fields that are named in a file as in their struct `x`.
#define STEPLADDER_FIELD(name) a(#name, x.name);
#define STEPLADDER_ADDED(name) a.added(#name, x.name);
#define STEPLADDER_EACH(what, ...) NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(what, __VA_ARGS__))

template <class Archive>
void fields(Archive& a, Any<DeviceState> auto& x) {
  STEPLADDER_EACH(STEPLADDER_ADDED, sm_mhz, memory_mhz, power_w, temperature_c, throttle)
}

template <class Archive>
void fields(Archive& a, Any<Step> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, step_ms, loss)
  STEPLADDER_EACH(STEPLADDER_ADDED, device_ms, grad_norm, lr, cycles, energy_j)
  fields(a, x.device);
}

template <class Archive>
void fields(Archive& a, Any<Memory> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, live_peak, reserved_peak, process_peak, by_name)
  a.if_any("exact", x.exact);
}

template <class Archive>
void fields(Archive& a, Any<Compile> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, search_ms, capture_ms, searched, from_cache)
  a.if_any("algorithms", x.algorithms);
}

template <class Archive>
void fields(Archive& a, Any<Evaluation> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, step, val_loss)
  a.if_any("seconds", x.seconds);
}

template <class Archive>
void fields(Archive& a, Any<ToLoss> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, loss, reached, steps, seconds, tokens, joules)
}

template <class Archive>
void fields(Archive& a, Any<Summary> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, median_step_ms, p10_step_ms, p90_step_ms, first_step_ms, startup_ms,
                  warmup_steps, tokens_per_second, mfu_nanogpt, mfu_llmc, val_loss)
  STEPLADDER_EACH(STEPLADDER_ADDED, cycles, joules)
  a.if_any("joules_unknown", x.joules_unknown);
  a("memory_bytes", x.memory);
  a.if_any("compile", x.compile);
  a.if_any("skipped_steps", x.skipped_steps);
  a.if_any("to_loss", x.to_loss);
  STEPLADDER_EACH(STEPLADDER_ADDED, throttled_steps, throttled, shared, covered)
}

template <class Archive>
void fields(Archive& a, Any<Rank> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, rank, host, device, step_ms)
  a("memory_bytes", x.memory);
  a.if_any("sm_mhz", x.sm_mhz);
  a.if_any("power_w", x.power_w);
  a.if_any("joules", x.joules);
}

template <class Archive>
void fields(Archive& a, Any<Run> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, variant, source_hash, backend)
  a.if_any("peer", x.peer);
  a.if_any("device", x.device);
  STEPLADDER_EACH(STEPLADDER_FIELD, round, status, reason, config, steps)
  a.if_any("ranks", x.ranks);
  a.if_any("evaluations", x.evaluations);
  STEPLADDER_EACH(STEPLADDER_FIELD, summary)
  a.added("wall_ms", x.wall_ms);
}

}  // namespace stepladder
