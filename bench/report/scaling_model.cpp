#include "bench/report/scaling_model.h"

#include <algorithm>

namespace stepladder {
namespace {

constexpr double kBackward = 2.0 / 3.0;  // share of a step: two of its three matmuls
constexpr double kBuckets = 4;
constexpr double kPort = 50e9;      // bytes/s: 400 Gb/s, one for each device as in a DGX H100
constexpr double kLatency = 10e-6;  // seconds for a step of NCCL's ring, kernel launches included

/// Bytes through each of n links for each byte that a ring all-reduces.
double ring(int64_t n) {
  return 2.0 * static_cast<double>(n - 1) / static_cast<double>(n);
}

}  // namespace

std::optional<double> nominal_link(const std::string& device_name) {
  struct Row {
    const char* name;
    double link;
  };
  // NVLink in one direction: NVIDIA H100 Tensor Core GPU Architecture (v1.04), H200 datasheet (900 GB/s both
  // ways); NVIDIA A100 Tensor Core GPU Architecture (600 GB/s both ways). A machine has eight of these
  // devices; PCIe cards, NVL's bridges and Grace Hopper are linked otherwise.
  constexpr Row kRows[] = {{"NVIDIA H200", 450e9},
                           {"NVIDIA H100 80GB HBM3", 450e9},
                           {"NVIDIA A100-SXM4-40GB", 300e9},
                           {"NVIDIA A100-SXM4-80GB", 300e9}};
  for (const Row& row : kRows)
    if (device_name == row.name) return row.link;
  return std::nullopt;
}

double predicted_step_s(double compute_s, double bytes, int64_t devices, double inside) {
  if (devices == 1) return compute_s;
  const int64_t group = std::min(devices, kDevicesPerMachine), machines = (devices + group - 1) / group;
  const double communication_s = ring(group) * bytes / inside +
                                 ring(machines) * bytes / static_cast<double>(group) / kPort +
                                 kLatency * kBuckets * 2.0 * static_cast<double>(group - 1 + machines - 1);
  const double hidden_s = kBackward * compute_s * (kBuckets - 1.0) / kBuckets;
  return compute_s + std::max(communication_s / kBuckets, communication_s - hidden_s);
}

}  // namespace stepladder
