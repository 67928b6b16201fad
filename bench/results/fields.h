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

template <class Archive>
void fields(Archive& a, Any<Step> auto& x) {
  a("step_ms", x.step_ms);
  a("loss", x.loss);
  a.added("device_ms", x.device_ms);
  a.added("grad_norm", x.grad_norm);
  a.added("lr", x.lr);
  a.added("sm_mhz", x.device.sm_mhz);
  a.added("memory_mhz", x.device.memory_mhz);
  a.added("power_w", x.device.power_w);
  a.added("temperature_c", x.device.temperature_c);
  a.added("throttle", x.device.throttle);
}

template <class Archive>
void fields(Archive& a, Any<Memory> auto& x) {
  a("live_peak", x.live_peak);
  a("reserved_peak", x.reserved_peak);
  a("process_peak", x.process_peak);
  a("by_name", x.by_name);
}

template <class Archive>
void fields(Archive& a, Any<Compile> auto& x) {
  a("search_ms", x.search_ms);
  a("capture_ms", x.capture_ms);
  a("searched", x.searched);
  a("from_cache", x.from_cache);
}

template <class Archive>
void fields(Archive& a, Any<Summary> auto& x) {
  a("median_step_ms", x.median_step_ms);
  a("p10_step_ms", x.p10_step_ms);
  a("p90_step_ms", x.p90_step_ms);
  a("first_step_ms", x.first_step_ms);
  a("startup_ms", x.startup_ms);
  a("warmup_steps", x.warmup_steps);
  a("tokens_per_second", x.tokens_per_second);
  a("mfu_nanogpt", x.mfu_nanogpt);
  a("mfu_llmc", x.mfu_llmc);
  a("val_loss", x.val_loss);
  a("memory_bytes", x.memory);
  a.if_any("compile", x.compile);
  a.if_any("skipped_steps", x.skipped_steps);
  a.added("throttled_steps", x.throttled_steps);
  a.added("throttled", x.throttled);
}

template <class Archive>
void fields(Archive& a, Any<Rank> auto& x) {
  a("rank", x.rank);
  a("host", x.host);
  a("device", x.device);
  a("step_ms", x.step_ms);
  a("memory_bytes", x.memory);
  a.if_any("sm_mhz", x.sm_mhz);
  a.if_any("power_w", x.power_w);
}

template <class Archive>
void fields(Archive& a, Any<Run> auto& x) {
  a("variant", x.variant);
  a("source_hash", x.source_hash);
  a("backend", x.backend);
  a.if_any("peer", x.peer);
  a("round", x.round);
  a("status", x.status);
  a("reason", x.reason);
  a("config", x.config);
  a("steps", x.steps);
  a.if_any("ranks", x.ranks);
  a("summary", x.summary);
  a.added("wall_ms", x.wall_ms);
}

}  // namespace stepladder
