// Elapsed cycles of a device's SM clocks, which run faster or slower as the power limit allows. At that limit
// slower code draws less power and gets a higher clock, so that milliseconds show about half of a slowdown.
// Cycles, time x clock, hardly depend on the limit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "model/cuda/handles.h"
#include "model/device.h"

namespace stepladder {

/// Reads clock64() on each SM before and after the work that is timed, by a kernel of one block an SM, which
/// takes 4 us on an H200. The kernel writes its results to host memory.
class SmClocks {
 public:
  SmClocks(Device& device, int multiprocessors);

  /// Work that was queued after an earlier start() must be done.
  void start(Queue& queue);
  void stop(Queue& queue);
  /// The cycles between start() and stop(), once both are done: the mean over the SMs whose clocks start()
  /// and stop() have both read; empty where there is no such SM.
  std::optional<double> cycles() const;

 private:
  static constexpr int kSlots = 1024;  // SM numbers may have gaps

  int64_t* counts() const { return static_cast<int64_t*>(memory_.get()); }
  void read(Queue& queue, int offset);

  int multiprocessors_;
  std::shared_ptr<void> memory_;  // (2, kSlots)
};

}  // namespace stepladder
