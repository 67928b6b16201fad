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

/// NVML's library with one device. Its C interface is stable, and not every toolkit has nvml.h.
struct Telemetry::Nvml {
  static constexpr int kSm = 1, kMemory = 2;  // nvmlClockType_t
  static constexpr int kGpu = 0;              // nvmlTemperatureSensors_t
  static constexpr int kNotFound = 6, kNoFunction = 13;
  struct Utilization {
    unsigned pid;
    unsigned long long time;                // microseconds since 1970
    unsigned sm, memory, encoder, decoder;  // percent
  };

  ~Nvml() {
    if (ready) call("nvmlShutdown");
    if (library) ::dlclose(library);
  }
  /// Loads the library and opens the device. Throws Error naming what is missing.
  void open(const char* path, const std::string& uuid);
  /// Calls a function of the library. Returns its status: 0 for success, kNoFunction where a driver lacks it.
  template <class... Args>
  int call(const char* name, Args... args) const {
    const auto function = reinterpret_cast<int (*)(Args...)>(::dlsym(library, name));
    return function ? function(args...) : kNoFunction;
  }
  /// The value that name(device, args.., &value) stores; nothing where it fails.
  template <class T = unsigned, class... Args>
  std::optional<T> get(const char* name, Args... args) const {
    T value = 0;
    return call(name, device, args..., &value) == 0 ? std::optional(value) : std::nullopt;
  }

  void* library = nullptr;
  void* device = nullptr;
  bool ready = false;
};

void Telemetry::Nvml::open(const char* path, const std::string& uuid) {
  library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) throw Error(::dlerror());
  const auto error_string = reinterpret_cast<const char* (*)(int)>(::dlsym(library, "nvmlErrorString"));
  if (!error_string) throw Error(cat(path, " is no NVML"));
  const auto require = [&](int status, const std::string& what) {
    if (status != 0) throw Error(cat(what, ": ", error_string(status)));
  };
  require(call("nvmlInit_v2"), "NVML does not start");
  ready = true;
  require(call("nvmlDeviceGetHandleByUUID", uuid.c_str(), &device), uuid);
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
  state.sm_mhz = nvml.get("nvmlDeviceGetClockInfo", Nvml::kSm);
  state.memory_mhz = nvml.get("nvmlDeviceGetClockInfo", Nvml::kMemory);
  if (const auto milliwatts = nvml.get("nvmlDeviceGetPowerUsage").value_or(0); milliwatts > 0)
    state.power_w = milliwatts / 1e3;
  state.temperature_c = nvml.get("nvmlDeviceGetTemperature", Nvml::kGpu);
  auto bits = nvml.get<unsigned long long>("nvmlDeviceGetCurrentClocksEventReasons");
  if (!bits)  // its name before driver 535
    bits = nvml.get<unsigned long long>("nvmlDeviceGetCurrentClocksThrottleReasons");
  if (bits) state.throttle = names_of(*bits);
  return state;
}

std::optional<double> Telemetry::joules() {
  if (!nvml_) return missing_.empty() ? package_joules() : std::nullopt;
  if (const auto millijoules = nvml_->get<unsigned long long>("nvmlDeviceGetTotalEnergyConsumption"))
    return static_cast<double>(*millijoules) * 1e-3;
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
  if (!nvml_) return std::nullopt;
  std::vector<Nvml::Utilization> samples(kMost);
  unsigned count = kMost;
  const unsigned long long since = std::exchange(seen_, now_us());
  const int status =
      nvml_->call("nvmlDeviceGetProcessUtilization", nvml_->device, samples.data(), &count, since);
  if (status == Nvml::kNotFound) return 0;  // NVML_ERROR_NOT_FOUND: no sample since then
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
  nvml.call("nvmlSystemGetDriverVersion", driver.data(), static_cast<unsigned>(driver.size()));
  return {{"library", cat("NVML ", driver.data())},
          {"power_limit_w", json(nvml.get("nvmlDeviceGetEnforcedPowerLimit"), 1e-3)},
          {"max_sm_mhz", json(nvml.get("nvmlDeviceGetMaxClockInfo", Nvml::kSm))},
          {"max_memory_mhz", json(nvml.get("nvmlDeviceGetMaxClockInfo", Nvml::kMemory))}};
}

}  // namespace stepladder
