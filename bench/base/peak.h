// The peak that MFU is measured against.
#pragma once

#include <optional>

#include "model/device.h"
#include "model/flops.h"

namespace stepladder {

/// Peak FLOP/s of GEMMs in this mode on a device; TF32 counts as fp32 where the device lacks it. Nothing for
/// an unknown device.
inline std::optional<double> gemm_peak(const DeviceInfo& device, MathMode math) {
  return peak_flops(device.name, math == MathMode::tf32 && !device.has_tf32() ? MathMode::fp32 : math);
}

}  // namespace stepladder
