// A tracer of the CPU, where an op is done when its call returns: its time is that of the call.
#include <chrono>
#include <utility>

#include "model/cpu/cpu.h"
#include "model/trace.h"

namespace stepladder {
namespace {

class SteadyTracer final : public Tracer {
 public:
  std::string source() const override { return "host clock around each op"; }
  void enter(int64_t call) override { open_ = {.start_ns = now(), .call = call, .kernel = {}}; }
  void leave() override {
    open_.end_ns = now();
    spans_.push_back(open_);
  }
  void replay(int64_t, int64_t) override {}  // replaying a recording calls its ops again
  void begin() override {
    spans_.clear();
    begin_ = Clock::now();
  }
  Step end() override { return {now(), std::exchange(spans_, {})}; }

 private:
  using Clock = std::chrono::steady_clock;
  int64_t now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin_).count();
  }

  Clock::time_point begin_ = Clock::now();
  Span open_;
  std::vector<Span> spans_;
};

}  // namespace

std::unique_ptr<Tracer> Cpu::make_tracer() {
  return std::make_unique<SteadyTracer>();
}

}  // namespace stepladder
