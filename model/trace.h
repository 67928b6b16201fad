// Traces: which ops a step asked for, and when the device ran what they queued.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/flops.h"
#include "model/ops/op.h"

namespace stepladder {

/// One call of an op, with its Work.
struct OpCall {
  std::string op;  // "layernorm_forward"; products with their extents: "matmul NT 16384x2304x768"
  OpKind kind = OpKind::elementwise;
  double bytes = 0.0, flops = 0.0;
  MathMode math = MathMode::fp32;  // the mode that the FLOPs run in
  std::string phase = {};          // part of the step: "forward block"
  std::string types = {};          // types of the numbers that the op reads and writes: "bf16, f32"
};

/// A stretch of device time, from `start_ns` to `end_ns` after the step's begin.
struct Span {
  int64_t start_ns = 0, end_ns = 0;
  int64_t call = -1;   // the call that queued the work; -1: unknown
  std::string kernel;  // the kernel's name, or "copy", "memset"; "" where only whole ops are seen
};

/// The clock of a backend for its own work. Calls are numbered by whoever traces.
class Tracer {
 public:
  Tracer() = default;
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;
  virtual ~Tracer() = default;

  /// The source of the times: "CUPTI activity records", "device events (why nothing better)".
  virtual std::string source() const = 0;
  /// Attributes work that is queued or recorded from enter() to leave() to call `call`.
  virtual void enter(int64_t call) = 0;
  virtual void leave() = 0;
  /// Calls [first, last), recorded with Ops::record(), are about to be queued again.
  virtual void replay(int64_t first, int64_t last) = 0;
  /// begin() and end() bracket a step; the device must be idle at both. end() returns the step's time by the
  /// clock of the spans, and the spans, ordered by start.
  virtual void begin() = 0;
  struct Step {
    int64_t ns = 0;
    std::vector<Span> spans;
  };
  virtual Step end() = 0;
};

}  // namespace stepladder
