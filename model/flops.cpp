#include "model/flops.h"

#include <stdexcept>
#include <string_view>

#include "model/error.h"
#include "model/gpt2.h"

namespace stepladder {
namespace {

// Dense TFLOP/s with fp32 accumulation; 0 where the device has no such units.
struct Peak {
  std::string_view device;  // as the driver names it
  double fp32, tf32, half, fp8;
};

// NVIDIA's data sheets; their tensor-core figures marked "with sparsity" are halved. The two SXM Hoppers are
// given to four digits as 132 SMs x 4096 (bf16), 8192 (fp8), 2048 (tf32) FLOP per clock x 1.83 GHz.
constexpr Peak kPeaks[] = {
    // NVIDIA H200 Tensor Core GPU data sheet
    {"NVIDIA H200", 67, 494.7, 989.4, 1978.9},
    {"NVIDIA H200 NVL", 60, 417.5, 835.5, 1670.5},
    // NVIDIA H100 Tensor Core GPU data sheet
    {"NVIDIA H100 80GB HBM3", 67, 494.7, 989.4, 1978.9},
    {"NVIDIA H100 NVL", 60, 417.5, 835.5, 1670.5},
    {"NVIDIA H100 PCIe", 51, 378, 756.5, 1513},
    // NVIDIA A100 Tensor Core GPU data sheet
    {"NVIDIA A100-SXM4-40GB", 19.5, 156, 312, 0},
    {"NVIDIA A100-SXM4-80GB", 19.5, 156, 312, 0},
    {"NVIDIA A100-PCIE-40GB", 19.5, 156, 312, 0},
    {"NVIDIA A100 80GB PCIe", 19.5, 156, 312, 0},
    // NVIDIA A10, A40, L4, L40 and L40S data sheets
    {"NVIDIA A10", 31.2, 62.5, 125, 0},
    {"NVIDIA A40", 37.4, 74.8, 149.7, 0},
    {"NVIDIA L4", 30.3, 60, 121, 242.5},
    {"NVIDIA L40", 90.5, 90.5, 181, 362},
    {"NVIDIA L40S", 91.6, 183, 362, 733},
    // NVIDIA Ampere GA102 and Ada GPU architecture white papers: GeForce accumulates in fp32 at half the rate
    {"NVIDIA GeForce RTX 3090", 35.6, 35.6, 71, 0},
    {"NVIDIA GeForce RTX 4090", 82.6, 82.6, 165.2, 330.3},
    // NVIDIA Tesla V100 and T4 data sheets: fp16 only
    {"Tesla V100-SXM2-16GB", 15.7, 0, 125, 0},
    {"Tesla V100-SXM2-32GB", 15.7, 0, 125, 0},
    {"Tesla V100-PCIE-16GB", 14, 0, 112, 0},
    {"Tesla V100-PCIE-32GB", 14, 0, 112, 0},
    {"Tesla T4", 8.1, 0, 65, 0},
};

}  // namespace

FlopsPerToken flops_per_token(const Config& config) {
  Arena plan;
  return flops_per_token(Params(plan, "params", config), config);
}

std::optional<double> peak_flops(const std::string& device_name, MathMode mode) {
  for (const Peak& peak : kPeaks) {
    if (peak.device != device_name) continue;
    const double tflops = mode == MathMode::fp32   ? peak.fp32
                          : mode == MathMode::tf32 ? peak.tf32
                          : mode == MathMode::half ? peak.half
                                                   : peak.fp8;
    if (tflops == 0) return std::nullopt;
    return tflops * 1e12;
  }
  return std::nullopt;
}

std::optional<double> mfu(double flops_per_token, double tokens_per_second, std::optional<double> peak) {
  if (!peak) return std::nullopt;
  const double fraction = flops_per_token * tokens_per_second / *peak;
  if (!(fraction >= 0.0 && fraction <= 1.0))
    throw std::logic_error(cat("MFU of ", 100.0 * fraction, " % from ", tokens_per_second,
                               " tokens/s against a peak of ", *peak, " FLOP/s: one of them is wrong"));
  return fraction;
}

}  // namespace stepladder
