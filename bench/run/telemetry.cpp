#include "bench/run/telemetry.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ios>
#include <set>
#include <span>
#include <utility>

#include "model/error.h"

namespace stepladder {
namespace {

namespace fs = std::filesystem;

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

uint64_t now_us() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

/// The whole number or the word that a file begins with.
template <class T>
std::optional<T> first_in(const fs::path& file) {
  T value{};
  std::error_code none;
  if (!fs::is_regular_file(file, none)) return std::nullopt;  // a pipe would wait for its writer
  return std::ifstream(file) >> value ? std::optional(value) : std::nullopt;
}

}  // namespace

// The part of nvml.h that is used, since not every toolkit has that file: the C interface is stable.
struct Telemetry::Nvml {
  using Device = void*;
  using Status = int;  // 0: success
  enum Clock { kSm = 1, kMemory = 2 };
  enum Sensor { kGpu = 0 };

  ~Nvml() {
    if (shutdown && ready) shutdown();
    if (library) ::dlclose(library);
  }
  /// Loads the library and opens the device. Throws Error naming what is missing.
  void open(const char* path, const std::string& uuid);
  template <class F>
  void find(F*& function, const char* name) {
    function = reinterpret_cast<F*>(::dlsym(library, name));
  }
  void require(Status status, const char* what) const {
    if (status != 0) throw Error(cat(what, ": ", error_string(status)));
  }
  /// The value that get(device, args.., &value) stores; nothing where it fails.
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
  Status (*energy)(Device, unsigned long long*) = nullptr;  // mJ since the driver was loaded
  struct Utilization {
    unsigned pid;
    unsigned long long time;                // microseconds since 1970
    unsigned sm, memory, encoder, decoder;  // percent
  };
  Status (*utilization)(Device, Utilization*, unsigned* count, unsigned long long since) = nullptr;
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
  find(energy, "nvmlDeviceGetTotalEnergyConsumption");
  find(utilization, "nvmlDeviceGetProcessUtilization");
  if (!init || !shutdown || !error_string || !device_by_uuid) throw Error(cat(path, " is no NVML"));
  require(init(), "NVML does not start");
  ready = true;
  require(device_by_uuid(uuid.c_str(), &device), uuid.c_str());
}

Telemetry::Telemetry(const std::string& uuid) : seen_(now_us()) {
  const char* named = std::getenv("STEPLADDER_NVML");
  if (uuid.empty() && !named) return;
  auto nvml = std::make_unique<Nvml>();
  try {
    nvml->open(named ? named : "libnvidia-ml.so.1", uuid);
    nvml_ = std::move(nvml);
  } catch (const Error& e) {
    missing_ = e.what();
    energy_unknown_ = missing_;
  }
}

Telemetry::~Telemetry() = default;

DeviceState Telemetry::sample() const {
  DeviceState state;
  if (!nvml_) return state;
  const Nvml& nvml = *nvml_;
  state.sm_mhz = nvml.number(nvml.clock, Nvml::kSm);
  state.memory_mhz = nvml.number(nvml.clock, Nvml::kMemory);
  if (const auto milliwatts = nvml.number(nvml.power).value_or(0); milliwatts > 0)
    state.power_w = milliwatts / 1e3;
  state.temperature_c = nvml.number(nvml.temperature, Nvml::kGpu);
  unsigned long long bits = 0;
  if (nvml.reasons && nvml.reasons(nvml.device, &bits) == 0) state.throttle = names_of(bits);
  return state;
}

std::optional<double> Telemetry::joules() {
  if (!nvml_) return missing_.empty() ? package_joules() : std::nullopt;
  unsigned long long millijoules = 0;
  if (nvml_->energy && nvml_->energy(nvml_->device, &millijoules) == 0)
    return static_cast<double>(millijoules) * 1e-3;
  energy_unknown_ = "the device has no energy counter";
  return std::nullopt;
}

std::optional<double> Telemetry::package_joules() {
  const char* named = std::getenv("STEPLADDER_RAPL");
  const fs::path folder = named ? named : "/sys/class/powercap";
  std::error_code error;
  for (const fs::directory_entry& zone : fs::directory_iterator(folder, error)) {
    const std::string name = zone.path().filename();  // intel-rapl:0, also AMD's
    if (!name.starts_with("intel-rapl:")) continue;
    // Other zones are a part of a package (core, dram), or include all packages (psys).
    if (!first_in<std::string>(zone.path() / "name").value_or("").starts_with("package-")) continue;
    const auto now = first_in<uint64_t>(zone.path() / "energy_uj"),
               most = first_in<uint64_t>(zone.path() / "max_energy_range_uj");
    if (!now) {
      energy_unknown_ = cat((zone.path() / "energy_uj").string(), " may not be read: chmod a+r allows it");
      return std::nullopt;
    }
    const auto [package, first] = packages_.try_emplace(name, *now);
    const uint64_t before = std::exchange(package->second, *now);
    const uint64_t range = *now >= before ? 0 : most.value_or(0);
    if (*now < before && range < before) {
      energy_unknown_ = cat((zone.path() / "energy_uj").string(),
                            " began again, and max_energy_range_uj does not tell where");
      return std::nullopt;
    }
    package_joules_ += static_cast<double>(*now - before + range) * 1e-6;
  }
  if (!packages_.empty()) return package_joules_;
  energy_unknown_ = cat("there is no energy counter of the CPU in ", folder.string());
  return std::nullopt;
}

std::optional<int64_t> Telemetry::processes() {
  constexpr unsigned kMost = 1024;
  if (!nvml_ || !nvml_->utilization) return std::nullopt;
  std::vector<Nvml::Utilization> samples(kMost);
  unsigned count = kMost;
  const auto since = std::exchange(seen_, now_us());
  constexpr int kNotFound = 6;  // no sample since then
  const Nvml::Status status = nvml_->utilization(nvml_->device, samples.data(), &count, since);
  if (status == kNotFound) return 0;
  if (status != 0) return std::nullopt;
  std::set<unsigned> busy;
  for (const auto& sample : std::span(samples).first(std::min(count, kMost)))
    if (sample.sm > 0 && sample.time > since) busy.insert(sample.pid);
  return std::ssize(busy);
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
