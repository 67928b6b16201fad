// The event protocol between a trainer and the harness: one JSON object a line on a file descriptor, which
// our rungs are told by --events. This is what our rungs send; docs/trainer-reference.md says which fields
// others may leave out.
//
//   {"event":"start","protocol":1,"variant":..,"source_hash":..,"backend":"cpu"|"cuda","rank":0,"host":..,"config":{..},
//    "device":{..},"flops_per_token":{"nanogpt":..,"llmc":..},"startup_ms":..,"memory_by_name":{name: bytes}}
//   {"event":"step","step":0,"step_ms":..,"device_ms":..,"cycles":..,"loss":..,"grad_norm":..,"lr":..,
//    "sm_mhz":..,"memory_mhz":..,"power_w":..,"temperature_c":..,"throttle":["sw_power_cap",..]}
//   {"event":"eval","step":..,"val_loss":..}
//   {"event":"profile","profile":{..}}
//   {"event":"end","memory_bytes":{"live_peak":..,"reserved_peak":..,"process_peak":..,"by_name":{..}},
//    "skipped_steps":..,"compile":{"search_ms":..,"capture_ms":..,"searched":..,"from_cache":..,"algorithms":..}}
//   {"event":"error","status":"oom"|"unsupported"|"diverged"|"interrupted"|"error","reason":".."}
//
// A run sends `start` just before its first step, then its steps in order, and last either `end` or `error`;
// an error may come before `start`. A stream that ends without either is a crash. `step` counts from 0 and
// goes on after a resume. eval's `step` is the number of steps done. A diverged run's last step has
// "loss":null; every number that is not finite is null. Fields from sm_mhz on are the device's right after
// the step; each may be null or left out.
//
// Each of several ranks sends its own events; the loss is that of all ranks together.
//
// config: model, B, T, max_T, V, L, NH, C, world_size, dtype, math, threads on the CPU, independent_ranks
// where each rank trains a model of its own, then the rung's options of the groups Data, Training and Ops
// (seed, accumulate, attention, ...). device: backend, name, uuid, compute_capability, total_memory, driver,
// runtime, blas, attention. flops_per_token, of the model by both formulas, is sent by our rungs alone.
// memory_by_name has every allocation ("params/wte"), memory_bytes.by_name the sums of each group ("params").
// cycles: SM clock cycles of the step, null where they aren't counted. skipped_steps: steps that loss scaling
// skipped, only where there is loss scaling. compile: time for searching GEMM algorithms and capturing graphs
// before the first step, only where there was any.
//
// profile comes before end, only from a traced run (--profile): docs/results-schema.md has its fields.
//
// startup_ms runs from process start (as the OS records it) to the first step's clock. The harness owns
// warm-up: it marks the first steps itself.
#pragma once

#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>

#include "bench/results/fields.h"
#include "model/ops.h"

namespace stepladder {

/// The version of the protocol above. Fields of version 1 stay readable.
inline constexpr int64_t kProtocol = 1;

/// The "device" of a start event.
template <class Archive>
void fields(Archive& a, Any<DeviceInfo> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, backend, name, uuid, compute_capability)
  STEPLADDER_EACH(STEPLADDER_FIELD, total_memory, driver, runtime, blas, attention)
}

/// Writes events, each with a single write() so that a kill tears at most the last line. Thread-safe.
class EventWriter {
 public:
  /// Writes to `fd`, which stays the caller's; a negative `fd` drops all events. With an `fd`, SIGPIPE is
  /// ignored, so that a reader that is gone shows as connected() == false. Throws InputError when `fd` is not
  /// open.
  explicit EventWriter(int fd);

  void write(const nlohmann::ordered_json& event);
  bool connected() const { return connected_; }
  /// Whether anybody asked for events.
  bool wanted() const { return fd_ >= 0; }

 private:
  const int fd_;
  std::mutex writing_;
  std::atomic<bool> connected_ = true;
};

/// The event on a line, with '?' for bytes that aren't UTF-8; null for a line that is torn, empty, not an
/// event or nested too deep for a results file.
nlohmann::json parse_event(std::string_view line);

}  // namespace stepladder
