// The fields of each struct of a results file, listed once for reading and writing.
//
// An archive is called with each field's name and value; its functions say which fields may be missing.
#pragma once

#include <concepts>
#include <type_traits>

#include "bench/results/results.h"

namespace stepladder {

template <class T, class Struct>
concept Any = std::same_as<std::remove_const_t<T>, Struct>;

template <class Archive>
void fields(Archive& a, Any<Step> auto& x) {
  a("step", x.step);
  a("warmup", x.warmup);
  a("step_ms", x.step_ms);
  a("device_ms", x.device_ms);
  a("loss", x.loss);
  a("grad_norm", x.grad_norm);
  a("lr", x.lr);
  a.or_null("sm_mhz", x.device.sm_mhz);
  a.or_null("memory_mhz", x.device.memory_mhz);
  a.or_null("power_w", x.device.power_w);
  a.or_null("temperature_c", x.device.temperature_c);
  a.or_null("throttle", x.device.throttle);
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
  a.if_there("compile", x.compile);
  a.if_there("skipped_steps", x.skipped_steps);
  a.or_null("throttled_steps", x.throttled_steps);
  a.or_null("throttled", x.throttled);
}

template <class Archive>
void fields(Archive& a, Any<Rank> auto& x) {
  a("rank", x.rank);
  a("host", x.host);
  a("device", x.device);
  a("step_ms", x.step_ms);
  a("memory_bytes", x.memory);
  a.if_there("sm_mhz", x.sm_mhz);
  a.if_there("power_w", x.power_w);
}

template <class Archive>
void fields(Archive& a, Any<Run> auto& x) {
  a("variant", x.variant);
  a("source_hash", x.source_hash);
  a("backend", x.backend);
  a.unless_empty("peer", x.peer);
  a("round", x.round);
  a("status", x.status);
  a("reason", x.reason);
  a("config", x.config);
  a("steps", x.steps);
  a.unless_empty("ranks", x.ranks);
  a("summary", x.summary);
  a.unless_missing("wall_ms", x.wall_ms);
}

}  // namespace stepladder
