// Clocks, power and temperature of a device, through NVML, which is opened at run time where there is one.
#pragma once

#include <memory>
#include <string>

#include "bench/results/results.h"

namespace stepladder {

/// NVML, open for one device.
class Telemetry {
 public:
  /// `uuid` is the device's, as NVML and CUDA name it; with "", the CPU's, there is nothing to open.
  /// STEPLADDER_NVML names another library than the driver's, which then stands for any device.
  explicit Telemetry(const std::string& uuid);
  ~Telemetry();
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  DeviceState sample() const;
  /// {"library": "NVML 580.65", "power_limit_w": 700, "max_sm_mhz": 1980, "max_memory_mhz": 2619}, of which
  /// any but the first may be null; {"missing": why} where NVML or the device cannot be opened; null for the
  /// CPU.
  Json describe() const;

 private:
  struct Nvml;
  std::unique_ptr<Nvml> nvml_;
  std::string missing_;
};

}  // namespace stepladder
