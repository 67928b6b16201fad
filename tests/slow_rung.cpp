// The first rung with steps five times as long, for the test that a gate finds a slower rung.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "model/data.h"
#include "model/gpt2.h"

#pragma push_macro("STEPLADDER_RUNG")
#undef STEPLADDER_RUNG
#define STEPLADDER_RUNG(TrainerClass) using FirstRung = TrainerClass
#define final  // so that SlowRung can derive from the trainer
#include "variants/00_fp32_baseline.cpp"
#undef final
#pragma pop_macro("STEPLADDER_RUNG")

namespace stepladder {
namespace {

struct SlowRung : FirstRung {
  using FirstRung::FirstRung;

  void step(Loader& data, int64_t step, float lr) override {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    FirstRung::step(data, step, lr);
    ops.synchronize();
    std::this_thread::sleep_until(start + 5 * (Clock::now() - start));  // leaves the core to others
  }
};

STEPLADDER_RUNG(SlowRung);

}  // namespace
}  // namespace stepladder
