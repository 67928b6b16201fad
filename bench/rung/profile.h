// Where a step's time goes: by phase, by kind of kernel, and by op against what the device could do.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/results/json.h"
#include "bench/rung/ceilings.h"
#include "model/tracing.h"

namespace stepladder {

/// The phases of a profile must add up to the step as the device's own timer has it, within this share.
inline constexpr double kPhasesApart = 0.02;

/// The host's clock, the device's timer and the tracer's records must agree on the step within this share.
inline constexpr double kClocksApart = 0.01;

/// Adds up the traced steps of a run.
class Profile {
 public:
  explicit Profile(Ceilings ceilings) : ceilings_(std::move(ceilings)) {}

  /// Adds a step, which took `step_ms` by the host's clock and `device_ms` by the device's timer; `calls` are
  /// Tracing::calls(). Where spans overlap, a phase gets the time that no earlier span has.
  void add(const Tracing::Step& step, const std::vector<OpCall>& calls, double step_ms, double device_ms);

  /// The object that docs/results-schema.md calls `profile`, with means over the steps. `source` tells where
  /// the times come from, `untraced_ms` is the step time without tracing where it is known.
  Json json(const std::string& source, std::optional<double> untraced_ms) const;

 private:
  struct PhaseTime {
    std::string name;
    double ms = 0.0;
    int64_t calls = 0;
  };
  struct KernelTime {
    std::string kind;
    double ms = 0.0;
    int64_t count = 0;
  };
  struct OpTime {
    OpKind kind = OpKind::elementwise;
    MathMode math = MathMode::fp32;
    double ms = 0.0, bytes = 0.0, flops = 0.0, floor_ms = 0.0;
    int64_t count = 0;
    std::set<std::string> types;  // of the op's calls
  };
  PhaseTime& phase(const std::string& name);
  double per_step(double total) const { return total / static_cast<double>(steps_); }

  const Ceilings ceilings_;
  int64_t steps_ = 0;
  double step_ms_ = 0.0, device_ms_ = 0.0, busy_ms_ = 0.0, idle_ms_ = 0.0, span_ms_ = 0.0;
  std::vector<PhaseTime> phases_;  // in the order of the step
  std::map<std::string, KernelTime> kinds_, kernels_;
  std::map<std::string, OpTime> ops_;
};

/// Traces the steps of a run from a given step on.
class StepTracer {
 public:
  /// Starts tracing the ops of `ops`, which must outlive the tracer; costs host time. The step before `first`
  /// is traced too but left out, since it sets tracing up.
  StepTracer(Ops& ops, const Config& config, int64_t first);

  void begin_step(int64_t step);
  void end_step(int64_t step, double step_ms);
  /// Profile::json() of the traced steps.
  Json json(std::optional<double> untraced_ms) const;
  const Tracing::Step& last_step() const { return last_; }
  const std::vector<OpCall>& calls() const { return tracing_.calls(); }

 private:
  Ops& ops_;
  const int64_t first_;
  Profile profile_;
  Tracing tracing_;
  Tracing::Step last_;
};

/// A step in the Trace Event Format that Perfetto and chrome://tracing open: a slice for each phase, each op
/// and each kernel of `step`, on tracks of their own, in microseconds since the step began. Kernels that run
/// at the same time get a track each. An op's slice tells its phase, bytes, FLOPs and types. `calls` are
/// Tracing::calls(), `title` names the process.
std::string timeline(const Tracing::Step& step, const std::vector<OpCall>& calls, const std::string& title);

/// The field `timeline` of a profile (docs/results-schema.md): stretches of `step` that are of one phase and
/// one type of kernel, in their order. Gaps of at most 5 us are closed; of overlapping spans, the later
/// begins where the earlier ends.
Json stretches(const Tracing::Step& step, const std::vector<OpCall>& calls);

/// A kernel's name, demangled, without namespaces, return type and parameters.
/// "_ZN10stepladder11gelu_kernelIfEEvPfPKf" is "gelu_kernel<float>".
std::string short_kernel_name(const std::string& name);

}  // namespace stepladder
