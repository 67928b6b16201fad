// Tracing: notes every op of an Ops, in which phase of the step it comes, and when the device ran it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/ops.h"
#include "model/trace.h"

namespace stepladder {

class Tracing final : public OpObserver {
 public:
  /// Observes `ops`, which outlives it.
  explicit Tracing(Ops& ops);
  ~Tracing() override { ops_.observe(nullptr); }

  /// begin_step() and end_step() bracket a step; the device must be idle at both.
  void begin_step();
  struct Step {
    Tracer::Step times;
    std::vector<int64_t> calls;  // in the order they were queued, recorded ones at each launch
  };
  Step end_step();
  /// All calls so far, which Span::call and Step::calls index.
  const std::vector<OpCall>& calls() const { return calls_; }
  std::string source() const { return tracer_->source(); }

 private:
  void enter(const OpCall& call, std::span<const Tensor> operands) override;
  void leave() override { tracer_->leave(); }
  void phase(const char* name) override { phase_ = name ? name : ""; }
  void begin_recording() override;
  int64_t end_recording() override;
  void replay(int64_t recording) override;

  Ops& ops_;
  const std::unique_ptr<Tracer> tracer_;
  std::vector<OpCall> calls_;
  std::vector<int64_t> queued_;                          // calls since begin_step()
  std::vector<std::pair<int64_t, int64_t>> recordings_;  // first and last call of each
  bool recording_ = false;
  std::string phase_;
};

}  // namespace stepladder
