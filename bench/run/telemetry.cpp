#include "bench/run/telemetry.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ios>
#include <utility>

#include "model/error.h"

namespace stepladder {
namespace {

/// Bits of NVML's clocks event reasons (nvml.h, nvmlClocksEventReason*).
constexpr std::pair<uint64_t, const char*> kReasons[] = {
    {0x001, "gpu_idle"},
    {0x002, "applications_clocks"},
    {0x004, "sw_power_cap"},
    {0x008, "hw_slowdown"},
    {0x010, "sync_boost"},
    {0x020, "sw_thermal_slowdown"},
    {0x040, "hw_thermal_slowdown"},
    {0x080, "hw_power_brake"},
    {0x100, "display_clocks"},
};

std::vector<std::string> names_of(uint64_t bits) {
  std::vector<std::string> names;
  for (const auto& [bit, name] : kReasons) {
    if (bits & bit) names.emplace_back(name);
    bits &= ~bit;
  }
  if (bits) names.push_back(cat("unknown_0x", std::hex, bits));
  return names;
}

}  // namespace

// What is used of nvml.h, which not every toolkit has: the C interface is stable.
struct Telemetry::Nvml {
  using Device = void*;
  using Status = int;  // 0: success
  enum Clock { kSm = 1, kMemory = 2 };
  enum Sensor { kGpu = 0 };

  ~Nvml() {
    if (shutdown && ready) shutdown();
    if (library) ::dlclose(library);
  }
  /// Throws Error naming what is missing.
  void open(const char* path, const std::string& uuid);
  template <class F>
  void find(F*& function, const char* name) {
    function = reinterpret_cast<F*>(::dlsym(library, name));
  }
  void require(Status status, const char* what) const {
    if (status != 0) throw Error(cat(what, ": ", error_string(status)));
  }
  /// What get(device, args.., &value) finds.
  template <class Get, class... Args>
  std::optional<unsigned> number(Get* get, Args... args) const {
    unsigned value = 0;
    if (!get || get(device, args..., &value) != 0) return std::nullopt;
    return value;
  }

  void* library = nullptr;
  Device device = nullptr;
  bool ready = false;
  Status (*init)() = nullptr;
  Status (*shutdown)() = nullptr;
  const char* (*error_string)(Status) = nullptr;
  Status (*driver_version)(char*, unsigned) = nullptr;
  Status (*device_by_uuid)(const char*, Device*) = nullptr;
  Status (*clock)(Device, Clock, unsigned*) = nullptr;         // MHz
  Status (*max_clock)(Device, Clock, unsigned*) = nullptr;     // MHz
  Status (*power)(Device, unsigned*) = nullptr;                // mW
  Status (*power_limit)(Device, unsigned*) = nullptr;          // mW
  Status (*temperature)(Device, Sensor, unsigned*) = nullptr;  // degrees Celsius
  Status (*reasons)(Device, unsigned long long*) = nullptr;
};

void Telemetry::Nvml::open(const char* path, const std::string& uuid) {
  library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) throw Error(::dlerror());
  find(init, "nvmlInit_v2");
  find(shutdown, "nvmlShutdown");
  find(error_string, "nvmlErrorString");
  find(driver_version, "nvmlSystemGetDriverVersion");
  find(device_by_uuid, "nvmlDeviceGetHandleByUUID");
  find(clock, "nvmlDeviceGetClockInfo");
  find(max_clock, "nvmlDeviceGetMaxClockInfo");
  find(power, "nvmlDeviceGetPowerUsage");
  find(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  find(temperature, "nvmlDeviceGetTemperature");
  find(reasons, "nvmlDeviceGetCurrentClocksEventReasons");
  if (!reasons) find(reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");  // its name before driver 535
  if (!init || !shutdown || !error_string || !device_by_uuid) throw Error(cat(path, " is no NVML"));
  require(init(), "NVML does not start");
  ready = true;
  require(device_by_uuid(uuid.c_str(), &device), uuid.c_str());
}

Telemetry::Telemetry(const std::string& uuid) {
  const char* named = std::getenv("STEPLADDER_NVML");
  if (uuid.empty() && !named) return;
  auto nvml = std::make_unique<Nvml>();
  try {
    nvml->open(named ? named : "libnvidia-ml.so.1", uuid);
    nvml_ = std::move(nvml);
  } catch (const Error& e) {
    missing_ = e.what();
  }
}

Telemetry::~Telemetry() = default;

DeviceState Telemetry::sample() const {
  DeviceState state;
  if (!nvml_) return state;
  const Nvml& nvml = *nvml_;
  state.sm_mhz = nvml.number(nvml.clock, Nvml::kSm);
  state.memory_mhz = nvml.number(nvml.clock, Nvml::kMemory);
  if (const auto milliwatts = nvml.number(nvml.power)) state.power_w = *milliwatts * 1e-3;
  state.temperature_c = nvml.number(nvml.temperature, Nvml::kGpu);
  unsigned long long bits = 0;
  if (nvml.reasons && nvml.reasons(nvml.device, &bits) == 0) state.throttle = names_of(bits);
  return state;
}

Json Telemetry::describe() const {
  if (!missing_.empty()) return {{"missing", missing_}};
  if (!nvml_) return nullptr;
  const Nvml& nvml = *nvml_;
  const auto json = [](const std::optional<unsigned>& value, double unit = 1.0) {
    return value ? Json(*value * unit) : Json();
  };
  std::array<char, 96> driver{};
  if (nvml.driver_version) nvml.driver_version(driver.data(), driver.size());
  return {{"library", cat("NVML ", driver.data())},
          {"power_limit_w", json(nvml.number(nvml.power_limit), 1e-3)},
          {"max_sm_mhz", json(nvml.number(nvml.max_clock, Nvml::kSm))},
          {"max_memory_mhz", json(nvml.number(nvml.max_clock, Nvml::kMemory))}};
}

}  // namespace stepladder
