// Clocks, power and temperature of a device, through NVML, which is opened at run time where there is one.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace stepladder {

/// A device at one moment; what is unknown is nothing.
struct DeviceState {
  std::optional<int64_t> sm_mhz, memory_mhz;
  std::optional<double> power_w;
  std::optional<int64_t> temperature_c;
  /// Why the clocks are not higher, by NVML's names: "sw_power_cap", "hw_thermal_slowdown", ..
  std::optional<std::vector<std::string>> throttle;

  /// Whether the clocks were cut by heat or by the hardware's protection: hw_slowdown, hw_thermal_slowdown,
  /// sw_thermal_slowdown, hw_power_brake. The power cap is not among them: a device that works hard enough
  /// always runs at it, and it belongs to what is measured. Nor are clocks that were asked for, nor idling.
  /// Nothing where the reasons are unknown.
  std::optional<bool> throttled() const;
};

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
  nlohmann::ordered_json describe() const;

 private:
  struct Nvml;
  std::unique_ptr<Nvml> nvml_;
  std::string missing_;
};

}  // namespace stepladder
