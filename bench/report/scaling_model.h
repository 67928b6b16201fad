// A prediction, not a measurement: how data-parallel training should scale beyond the devices at hand.
//
// A ring all-reduce of S bytes over n devices passes 2 (n-1)/n S bytes through each device's link (Patarasuk
// and Yuan 2009); so does ZeRO-1's reduce-scatter of gradients with its all-gather of weights of the same
// size. On machines of g devices it goes in three stages: reduce-scatter inside each machine, all-reduce of
// each device's S/g between m machines, all-gather inside:
//
//   t = 2 (g-1)/g S / inside  +  2 (m-1)/m (S/g) / between  +  latency (2 (g-1) + 2 (m-1)) k
//
// Gradients are sent in k = 4 equal buckets, the fewest of 15_multi_gpu, while backward, 2/3 of a step, still
// makes the next ones: the first is ready after 1/k of backward, the last when backward ends. The
// communication that is not hidden behind backward is
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

inline constexpr int64_t kDevicesPerMachine = 8;

/// NVLink's nominal bandwidth in one direction, bytes/s, of a device by its driver's name; nothing for a
/// device that is not in the table.
std::optional<double> nominal_link(const std::string& device_name);

/// Seconds of a step in weak scaling: `compute_s` is one device's step, `bytes` the size of what is reduced
/// in a step, `inside` the bandwidth between devices of a machine, bytes/s.
double predicted_step_s(double compute_s, double bytes, int64_t devices, double inside);

}  // namespace stepladder
