// A prediction, not a measurement: how data-parallel training should scale beyond the devices at hand.
//
// A ring all-reduce of S bytes over n devices passes 2 (n-1)/n S bytes through each device's link (Patarasuk
// and Yuan 2009); so does ZeRO-1's reduce-scatter of gradients with its all-gather of weights of the same
// size. On machines of g devices it goes in three stages: reduce-scatter inside each machine, all-reduce of
// each device's S/g between m machines, all-gather inside:
//
//   t = 2 (g-1)/g S / inside  +  2 (m-1)/m (S/g) / between  +  latency (2 (g-1) + 2 (m-1)) buckets
//
// Gradients are sent in k equal buckets while backward, 2/3 of a step, still makes the next ones: the first
// is ready after 1/k of backward, the last when backward ends. The communication that is not hidden behind
// backward is
//
//   exposed = max(t / k,  t - backward (k-1)/k)
//
// and a step takes compute + exposed. Left out: the slowest device's lag, contention between communication
// and kernels for SMs and memory, clocks under the shared power limit. The predicted throughput is an upper
// bound to hold measurements against.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace stepladder {

/// Links as one device sees them: bytes/s in one direction, seconds for each message.
struct Interconnect {
  double inside = 0.0;   // between devices of a machine
  double between = 0.0;  // between machines, for each device
  double latency = 0.0;
  int64_t devices_per_machine = 8;
};

/// Nominal links of a device by its driver's name, each with one 400 Gb/s network port; nothing for a device
/// that is not in the table.
std::optional<Interconnect> nominal_interconnect(const std::string& device_name);

struct ScalingPrediction {
  double communication_s = 0.0, exposed_s = 0.0, step_s = 0.0;
  double efficiency = 1.0;  // of ideal throughput: compute / step
};

/// Weak scaling: `compute_s` is one device's step, `bytes` the size of what is reduced in a step. Throws
/// std::invalid_argument on a time, size or bandwidth that is not positive.
ScalingPrediction predict_scaling(double compute_s, double bytes, int64_t buckets, int64_t devices,
                                  const Interconnect& links);

}  // namespace stepladder
