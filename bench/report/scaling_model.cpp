#include "bench/report/scaling_model.h"

#include <algorithm>
#include <stdexcept>

namespace stepladder {
namespace {

constexpr double kBackward = 2.0 / 3.0;  // share of a step: two of its three matmuls

/// Bytes through each of n links for each byte that a ring all-reduces.
double ring(int64_t n) {
  return 2.0 * static_cast<double>(n - 1) / static_cast<double>(n);
}

}  // namespace

std::optional<Interconnect> nominal_interconnect(const std::string& device_name) {
  struct Row {
    const char* name;
    double inside;
  };
  // NVLink in one direction: NVIDIA H100 Tensor Core GPU Architecture (v1.04), H200 datasheet (900 GB/s both
  // ways); NVIDIA A100 Tensor Core GPU Architecture (600 GB/s both ways). A machine has eight of these
  // devices; PCIe cards, NVL's bridges and Grace Hopper are linked otherwise.
  constexpr Row kRows[] = {{"NVIDIA H200", 450e9},
                           {"NVIDIA H100 80GB HBM3", 450e9},
                           {"NVIDIA A100-SXM4-40GB", 300e9},
                           {"NVIDIA A100-SXM4-80GB", 300e9}};
  constexpr double kPort = 50e9;      // 400 Gb/s, one for each device as in a DGX H100
  constexpr double kLatency = 10e-6;  // seconds for a step of NCCL's ring, kernel launches included
  for (const Row& row : kRows)
    if (device_name == row.name) return Interconnect{row.inside, kPort, kLatency, 8};
  return std::nullopt;
}

ScalingPrediction predict_scaling(double compute_s, double bytes, int64_t buckets, int64_t devices,
                                  const Interconnect& links) {
  if (!(compute_s > 0.0 && bytes > 0.0 && buckets > 0 && devices > 0 && links.inside > 0.0 &&
        links.between > 0.0 && links.latency >= 0.0 && links.devices_per_machine > 0))
    throw std::invalid_argument("a time, size or bandwidth that is not positive");
  const int64_t inside = std::min(devices, links.devices_per_machine);
  const int64_t machines = (devices + inside - 1) / inside;
  const auto k = static_cast<double>(buckets);

  ScalingPrediction prediction;
  prediction.communication_s = ring(inside) * bytes / links.inside +
                               ring(machines) * bytes / static_cast<double>(inside) / links.between +
                               links.latency * k * 2.0 * static_cast<double>(inside - 1 + machines - 1);
  const double hidden_behind = kBackward * compute_s * (k - 1.0) / k;
  if (devices > 1)
    prediction.exposed_s =
        std::max(prediction.communication_s / k, prediction.communication_s - hidden_behind);
  prediction.step_s = compute_s + prediction.exposed_s;
  prediction.efficiency = compute_s / prediction.step_s;
  return prediction;
}

}  // namespace stepladder
