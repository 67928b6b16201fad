// A stand-in for libnvidia-ml.so.1 with one device, in the C interface of nvml.h. Its variables:
// FAKE_NVML_REASONS: clocks event reasons, sample by sample, "0x4,0x40"; the last one repeats.
// FAKE_NVML_ERROR: the status with which nvmlInit fails.
// FAKE_NVML_POWERLESS makes power unknown; FAKE_NVML_MILLIWATTS sets it.
// FAKE_NVML_JOULES: the energy counter's readings, one by one, "90,x,100", where x fails; without it the
// counter runs at 700 W. FAKE_NVML_PROCESSES: the number of processes that keep the device busy.
#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace {

char device;
constexpr int kNotSupported = 3;

}  // namespace

extern "C" {

int nvmlInit_v2() {
  const char* error = std::getenv("FAKE_NVML_ERROR");
  return error ? std::atoi(error) : 0;
}
int nvmlShutdown() {
  return 0;
}
const char* nvmlErrorString(int status) {
  return status == 9 ? "Driver Not Loaded" : "Not Found";
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::snprintf(text, size, "1.2.3");
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char*, void** handle) {
  *handle = &device;
  return 0;
}
int nvmlDeviceGetClockInfo(void*, int clock, unsigned* mhz) {
  *mhz = clock == 1 ? 1755 : 2619;
  return 0;
}
int nvmlDeviceGetMaxClockInfo(void*, int clock, unsigned* mhz) {
  *mhz = clock == 1 ? 1980 : 2619;
  return 0;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  const char* drawn = std::getenv("FAKE_NVML_MILLIWATTS");
  *milliwatts = drawn ? static_cast<unsigned>(std::atoi(drawn)) : 698500;
  return std::getenv("FAKE_NVML_POWERLESS") ? kNotSupported : 0;
}
int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* milliwatts) {
  *milliwatts = 700000;
  return 0;
}
int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) {
  *celsius = 61;
  return 0;
}
// The name of nvmlDeviceGetCurrentClocksEventReasons in drivers before 535.
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* bits) {
  static const char* rest = std::getenv("FAKE_NVML_REASONS");
  *bits = 0;
  if (!rest) return 0;
  char* end = nullptr;
  *bits = std::strtoull(rest, &end, 16);
  if (*end == ',') rest = end + 1;
  return 0;
}

int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* millijoules) {
  static const char* rest = std::getenv("FAKE_NVML_JOULES");
  using Milliseconds = std::chrono::duration<double, std::milli>;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  *millijoules = static_cast<unsigned long long>(700 * std::chrono::duration_cast<Milliseconds>(now).count());
  if (!rest) return std::getenv("FAKE_NVML_POWERLESS") ? kNotSupported : 0;
  if (*rest == 'x') {
    rest += rest[1] == ',' ? 2 : 0;
    return kNotSupported;
  }
  char* end = nullptr;
  *millijoules = 1000 * std::strtoull(rest, &end, 10);
  if (*end == ',') rest = end + 1;
  return 0;
}
struct Utilization {
  unsigned pid;
  unsigned long long time;
  unsigned sm, memory, encoder, decoder;
};
int nvmlDeviceGetProcessUtilization(void*, Utilization* samples, unsigned* count, unsigned long long since) {
  const char* processes = std::getenv("FAKE_NVML_PROCESSES");
  if (!processes) return kNotSupported;
  *count = static_cast<unsigned>(std::atoi(processes));
  for (unsigned i = 0; i < *count; ++i) samples[i] = {100 + i, since + 1, 50, 10, 0, 0};
  samples[*count] = {99, since + 1, 0, 0, 0, 0};  // a process that only holds memory
  ++*count;
  return 0;
}

}  // extern "C"
