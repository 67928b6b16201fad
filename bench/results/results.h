// What was measured: runs, their steps and what they come to, each struct with the list of its fields that
// reading and writing share (fields.h). NaN and Infinity are never written: a loss that is not finite is
// null.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/base/statistics.h"
#include "bench/results/fields.h"
#include "bench/results/json.h"

namespace stepladder {

/// The schema of files, written and read.
inline constexpr int kSchema = 3;

enum class Status { ok, oom, unsupported, diverged, crash, timeout };
inline constexpr Status kStatuses[] = {Status::ok,       Status::oom,   Status::unsupported,
                                       Status::diverged, Status::crash, Status::timeout};
const char* name_of(Status status);
/// Whether a run with this status counts as a failure: anything but ok and unsupported.
constexpr bool failed(Status status) {
  return status != Status::ok && status != Status::unsupported;
}

/// The state of a device at one moment; unknown fields are empty.
struct DeviceState {
  std::optional<int64_t> sm_mhz, memory_mhz;
  std::optional<double> power_w;
  std::optional<int64_t> temperature_c;
  /// Why the clocks are not higher, by NVML's names: "sw_power_cap", "hw_thermal_slowdown", ..
  std::optional<std::vector<std::string>> throttle;

  /// Whether the clocks were cut by heat or by the hardware's protection: hw_slowdown, hw_thermal_slowdown,
  /// sw_thermal_slowdown, hw_power_brake. The power cap is not among them: a device that works hard enough
  /// always runs at it, and it belongs to what is measured. Clocks that were asked for and idling don't count
  /// either. Nothing where the reasons are unknown.
  std::optional<bool> throttled() const;
};
template <class Archive>
void fields(Archive& a, Any<DeviceState> auto& x) {
  STEPLADDER_EACH(STEPLADDER_ADDED, sm_mhz, memory_mhz, power_w, temperature_c, throttle)
}

/// One optimizer step as the rung reported it.
struct Step {
  int64_t step = 0;
  bool warmup = false;              // left out of the summary
  double step_ms = 0.0;             // host clock, device synchronised
  std::optional<double> device_ms;  // device events around the same region
  std::optional<double> loss;       // nothing where not finite
  std::optional<double> grad_norm, lr;
  std::optional<double> cycles = {};  // cycles of an SM's clock in the step, the mean over SMs
  /// Joules used since the first reading, without those of evaluations; told after some steps only.
  std::optional<double> energy_j = {};
  DeviceState device = {};  // read after the step's timer has stopped
};
template <class Archive>
void fields(Archive& a, Any<Step> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, step_ms, loss)
  STEPLADDER_EACH(STEPLADDER_ADDED, device_ms, grad_norm, lr, cycles, energy_j)
  fields(a, x.device);
}

/// A validation loss, after so many steps.
struct Evaluation {
  int64_t step = 0;
  std::optional<double> val_loss;      // nothing where not finite
  std::optional<double> seconds = {};  // training time so far, where the file leaves out steps
};
template <class Archive>
void fields(Archive& a, Any<Evaluation> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, step, val_loss)
  a.if_any("seconds", x.seconds);
}

/// What training until a validation loss took or, where the loss was not reached, what was spent.
struct ToLoss {
  double loss = 0.0;  // asked for
  bool reached = false;
  int64_t steps = 0;
  double seconds = 0.0;          // of steps, the first and warm-up among them; evaluations left out
  double tokens = 0.0;           // of all devices
  std::optional<double> joules;  // of all devices
};
template <class Archive>
void fields(Archive& a, Any<ToLoss> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, loss, reached, steps, seconds, tokens, joules)
}

/// Peak bytes of memory, taken three ways.
struct Memory {
  int64_t live_peak = 0;      // arena
  int64_t reserved_peak = 0;  // taken from the driver or the OS
  int64_t process_peak = 0;   // as the device (for the CPU, the OS) sees the process
  std::map<std::string, int64_t> by_name;
  std::optional<bool> exact = {};  // a trainer's word that live_peak is the same in each of its runs
};
template <class Archive>
void fields(Archive& a, Any<Memory> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, live_peak, reserved_peak, process_peak, by_name)
  a.if_any("exact", x.exact);
}

/// What a rung that compiles its step spent on compiling, within the first step.
struct Compile {
  double search_ms = 0.0, capture_ms = 0.0;
  int64_t searched = 0, from_cache = 0;  // numbers of GEMMs
  std::string algorithms = {};           // a fingerprint of those chosen; "" where unknown
};
template <class Archive>
void fields(Archive& a, Any<Compile> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, search_ms, capture_ms, searched, from_cache)
  a.if_any("algorithms", x.algorithms);
}

/// Lists an estimate's value as `name`, and its bounds as "lo" and "hi", null without an interval.
template <class Archive>
void estimate_fields(Archive& a, const char* name, const Estimate& estimate) {
  const auto& interval = estimate.interval;
  a(name, estimate.value);
  a("lo", interval ? std::optional(interval->lo) : std::nullopt);
  a("hi", interval ? std::optional(interval->hi) : std::nullopt);
}
template <class Archive>
void fields(Archive& a, Any<Estimate> auto& x) {
  estimate_fields(a, "value", x);
}

/// Why joules are unknown where the counter's difference is not positive.
inline constexpr const char* kStill = "the energy counter stood still, or went back";

/// The numbers of a run over its timed steps, or of a row over its rounds: `Number` is double for a run, and
/// Estimate for a row, whose numbers are medians over its rounds. A field here is in the results file, in
/// rows and in every export.
template <class Number>
struct Measured {
  Number median_step_ms = {};
  double p10_step_ms = 0.0, p90_step_ms = 0.0;
  double first_step_ms = 0.0, startup_ms = 0.0;
  Number tokens_per_second = {};
  std::optional<double> mfu_nanogpt, mfu_llmc;  // nothing where the device's peak is unknown
  std::optional<double> val_loss;               // after the last step, where validation data was given
  std::optional<Number> cycles;          // median of the timed steps; for a row only if all rounds have it
  std::optional<Number> joules;          // joules per step, all devices together; mean over the timed steps
  Memory memory;                         // for a row: the largest peaks of its rounds
  std::optional<Compile> compile;        // for a row: the first round's
  std::optional<int64_t> skipped_steps;  // steps skipped as fp16 gradients overflowed; for a row: the most
};
template <class Archive>
void measured_fields(Archive& a, auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, median_step_ms, p10_step_ms, p90_step_ms, first_step_ms, startup_ms,
                  tokens_per_second, mfu_nanogpt, mfu_llmc, val_loss)
  STEPLADDER_EACH(STEPLADDER_ADDED, cycles, joules)
  a("memory_bytes", x.memory);
  a.if_any("compile", x.compile);
  a.if_any("skipped_steps", x.skipped_steps);
}

/// The summary of a run.
struct Summary : Measured<double> {
  int64_t warmup_steps = 0;    // as marked: more than asked for where the steps had not settled
  std::string joules_unknown;  // why there are no joules
  /// The number of timed steps in which the device was throttled; more than half make the run throttled.
  std::optional<int64_t> throttled_steps;
  std::optional<bool> throttled;
  std::optional<ToLoss> to_loss;  // of a run until a loss
  std::optional<bool> shared;     // whether another process used the device meanwhile
  /// For a ladder file's trainer: the share of the time between the reports of its steps that its steps fill,
  /// without the times that evaluations lie in. Where it is small, step_ms doesn't cover a step's work, or
  /// isn't in milliseconds.
  std::optional<double> covered;
};
template <class Archive>
void fields(Archive& a, Any<Summary> auto& x) {
  measured_fields(a, x);
  STEPLADDER_EACH(STEPLADDER_FIELD, warmup_steps)
  a.if_any("joules_unknown", x.joules_unknown);
  a.if_any("to_loss", x.to_loss);
  STEPLADDER_EACH(STEPLADDER_ADDED, throttled_steps, throttled, shared, covered)
}

/// The workload of a config: "gpt2 B=16 T=1024"; on several devices, where B is each device's, "gpt2 B=16
/// T=1024 on 4 devices", or "on 4 independent devices" where each trains alone. Runs of one workload are
/// comparable.
std::string workload_of(const Json& config);
bool has_independent_ranks(const Json& config);
/// How deep lists and objects lie in a config: 1 where all its values are plain.
int config_depth(const Json& config);
inline constexpr int kMaxConfigDepth = 3;
/// How many devices a run is on: config's world_size, 1 where there is none.
int64_t world_size(const Json& config);
/// B times the number of devices: the sequences of a step without micro-batches. 0 where an int64_t does not
/// hold it.
int64_t global_batch(const Json& config);
/// Set in a config by the harness: B holds all micro-batches, so that `accumulate` is merely recorded.
inline constexpr const char* kWholeBatch = "whole_batch";
/// Tokens in a step of all devices, micro-batches that accumulate included.
double tokens_of(const Json& config);
/// Whether two configurations train the same model on the same batches, so that their losses may be compared.
bool same_task(const Json& one, const Json& other);

/// One process of a run on several devices.
struct Rank {
  int64_t rank = 0;
  std::string host, device;  // its uuid
  std::vector<double> step_ms;
  Memory memory;
  std::optional<double> sm_mhz, power_w;  // medians over the timed steps
  std::optional<double> joules;           // a step
};
template <class Archive>
void fields(Archive& a, Any<Rank> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, rank, host, device, step_ms)
  a("memory_bytes", x.memory);
  a.if_any("sm_mhz", x.sm_mhz);
  a.if_any("power_w", x.power_w);
  a.if_any("joules", x.joules);
}

/// What identifies a row of a report: variant and workload.
using RowKey = std::pair<std::string, std::string>;

/// A run of a variant, in a configuration and a round: one process, or one for each device.
struct Run {
  std::string variant, source_hash, backend;
  std::string peer;    // "pytorch", "llmc", ...; "" for a rung of ours
  std::string device;  // the uuid of its device, or the host of a CPU; "" in older files
  int64_t round = 0;
  Status status = Status::ok;
  std::string reason;  // why not ok
  Json config = Json::object();
  std::vector<Step> steps;  // on several devices rank 0's, with the slowest rank's step_ms
  std::vector<Rank> ranks;  // on several devices
  std::vector<Evaluation> evaluations;
  std::optional<Summary> summary;  // nothing where the run ended early
  double wall_ms = 0.0;            // from starting its process to its end
  Json profile;                    // of a traced run; not in a results file
  std::string stderr_tail;         // the end of its stderr; not in a results file
  bool lingered = false;           // its process reported its end, but didn't exit; not in a results file

  std::string workload() const { return workload_of(config); }
  RowKey row() const { return {variant, workload()}; }
  /// Whether `row` is the run's row(), without making row(), which is costly.
  bool is_of(const RowKey& row) const { return variant == row.first && workload() == row.second; }
  bool throttled() const { return summary && summary->throttled.value_or(false); }
  bool shared() const { return summary && summary->shared.value_or(false); }
  /// Whether the device was throttled or shared: then the run's times are not due to the variant alone.
  bool disturbed() const { return throttled() || shared(); }
  /// The disturbance in a word: "throttled", "shared", or "".
  const char* disturbance() const { return throttled() ? "throttled" : shared() ? "shared" : ""; }
  /// The status, with its reason: "crash: exit status 7".
  std::string outcome() const { return std::string(name_of(status)) + (reason.empty() ? "" : ": " + reason); }
};
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

struct Results {
  Json context = Json::object();
  Json plan = Json::object();
  bool complete = false;
  Json stopped;  // why the plan ended; null before
  std::vector<Run> runs;

  /// The environment variables in the context that change what libraries compute.
  Json environment() const;
  /// The device, as the context tells.
  Json device() const;
  /// The name of the device's model, "NVIDIA H200"; of a CPU with how many cores were used, "AMD EPYC, 2
  /// cores".
  std::string device_model() const;
  /// The uuid of the device that a run of these results was on; for the CPU the host.
  std::string device_of(const Run& run) const;
  /// device_of() of all runs.
  std::set<std::string> cards() const;
  /// Whether each round is a seed that trains for the same steps (--seeds).
  bool by_seeds() const { return plan.value("seeds", Json()) == true; }
  /// The number of rounds that have a run.
  int64_t rounds_begun() const;
  /// The run of a row in a round; null where there is none.
  const Run* find(const RowKey& row, int64_t round) const;
};

}  // namespace stepladder
