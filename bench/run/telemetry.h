// Clocks, power, temperature and energy of a device through NVML, which is opened at run time where it is
// installed; for the CPU energy alone, through RAPL.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "bench/results/results.h"

namespace stepladder {

/// The telemetry of one device, through NVML, or of the CPU, through RAPL.
class Telemetry {
 public:
  /// `uuid` is the device's, as NVML and CUDA name it; "" stands for the CPU, which NVML does not know.
  /// STEPLADDER_NVML names another library than the driver's, for any device, STEPLADDER_RAPL another folder
  /// than /sys/class/powercap.
  explicit Telemetry(const std::string& uuid);
  ~Telemetry();
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  DeviceState sample() const;
  /// Joules that the device has used since some fixed moment, by its own counter: NVML's, which moves ten
  /// times a second and takes milliseconds to read; for the CPU, RAPL's over all packages. Nothing where
  /// there is no counter, or it may not be read: energy_unknown() says why then.
  std::optional<double> joules();
  const std::string& energy_unknown() const { return energy_unknown_; }
  /// How many processes have kept the device busy since the last call; nothing where the device doesn't tell.
  std::optional<int64_t> processes();
  /// {"library": "NVML 580.65", "power_limit_w": 700, "max_sm_mhz": 1980, "max_memory_mhz": 2619}, of which
  /// any but the first may be null; {"missing": why} where NVML or the device cannot be opened; null for the
  /// CPU.
  Json describe() const;

 private:
  struct Nvml;
  std::optional<double> package_joules();

  std::unique_ptr<Nvml> nvml_;
  std::string missing_, energy_unknown_;
  std::map<std::string, uint64_t> packages_;  // each one's microjoules at the last reading
  double package_joules_ = 0.0;
  uint64_t seen_ = 0;  // when processes() was last called, microseconds since 1970
};

/// The telemetry of devices by their UUIDs, each opened when it is first asked for.
using TelemetryOfDevices = std::map<std::string, Telemetry>;

}  // namespace stepladder
