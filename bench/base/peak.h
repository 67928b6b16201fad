// The peak that MFU is measured against.
#pragma once

#include <optional>

#include "model/device.h"
#include "model/flops.h"

namespace stepladder {

/// FLOP/s that GEMMs in this mode reach at most on a device, TF32 where it has none being full precision;
/// nothing for an unknown device.
inline std::optional<double> gemm_peak(const DeviceInfo& device, MathMode math) {
  return peak_flops(device.name, math == MathMode::tf32 && !device.has_tf32() ? MathMode::fp32 : math);
}

}  // namespace stepladder
