#include "bench/run/machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <map>
#include <numeric>
#include <sstream>
#include <thread>
#include <utility>

#include "bench/base/place.h"
#include "bench/base/text.h"
#include "bench/results/writer.h"
#include "bench/run/child.h"
#include "bench/run/events.h"
#include "bench/run/telemetry.h"
#include "model/cuda_libraries.h"
#include "model/device.h"
#include "model/error.h"
#include "model/rendezvous.h"
#include "model/tokenizer.h"

namespace stepladder {
namespace {

constexpr const char* kSelf = "/proc/self/exe";

/// Variables that decide how many threads a trainer has, and where they run.
constexpr const char* kThreadVariables[] = {
    "OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "OMP_PROC_BIND",   "OMP_PLACES",           "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",    "KMP_HW_SUBSET",    "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS"};

/// The value after the first "<key>:" or "<key>=" of a file; "" where there is none.
std::string field(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t end = line.find_first_of("=:");
    if (end == std::string::npos || line.substr(0, line.find_last_not_of(" \t", end - 1) + 1) != key)
      continue;
    const size_t begin = line.find_first_not_of(" \t\"", end + 1);
    const size_t last = line.find_last_not_of(" \t\"");
    return begin == std::string::npos ? "" : line.substr(begin, last + 1 - begin);
  }
  return "";
}

int64_t meminfo(const char* key) {
  return std::atoll(field("/proc/meminfo", key).c_str()) * 1024;
}

/// The command line of this process, with "stepladder" for the program.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string words, word;
  for (std::getline(file, word, '\0'); std::getline(file, word, '\0');) words += " " + shell_quoted(word);
  return "stepladder" + words;
}

/// {busy, all} clock ticks of the cores that this process may use, since the system started.
std::pair<int64_t, int64_t> core_ticks() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return {};
  int64_t busy = 0, all = 0;
  std::ifstream stat("/proc/stat");
  for (std::string line; std::getline(stat, line);) {
    std::istringstream words(line);
    int64_t ticks[8] = {};  // user, nice, system, idle, iowait, irq, softirq, steal
    if (std::string cpu; !(words >> cpu) || !cpu.starts_with("cpu") || cpu == "cpu" ||
                         !CPU_ISSET(static_cast<size_t>(std::atoi(cpu.c_str() + 3)), &cores))
      continue;
    for (int64_t& t : ticks) words >> t;
    const int64_t total = std::accumulate(std::begin(ticks), std::end(ticks), int64_t{0});
    all += total;
    busy += total - ticks[3] - ticks[4];
  }
  return {busy, all};
}

/// This process's environment variables that change what libraries compute, or how; without those that only
/// set what libraries log. Null if none is set.
Json library_environment() {
  constexpr std::string_view kNames[] = {"NVIDIA_TF32_OVERRIDE",
                                         "CUBLAS_WORKSPACE_CONFIG",
                                         "CUDA_LAUNCH_BLOCKING",
                                         "CUDA_DEVICE_MAX_CONNECTIONS",
                                         "CUDA_FORCE_PTX_JIT",
                                         "OPENBLAS_CORETYPE",
                                         "MKL_CBWR",
                                         "MKL_ENABLE_INSTRUCTIONS",
                                         "ONEDNN_MAX_CPU_ISA",
                                         "ONEDNN_DEFAULT_FPMATH_MODE",
                                         "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
                                         "XLA_FLAGS"};
  constexpr std::string_view kFamilies[] = {"CUBLAS_EMULAT", "CUBLAS_FIXEDPOINT_EMULATION_", "CUBLASLT_"};
  std::map<std::string, std::string> found;
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text = *variable, name = text.substr(0, text.find('='));
    const bool known = std::ranges::find(kNames, name) != std::end(kNames) ||
                       std::ranges::any_of(kFamilies, [&](auto family) { return name.starts_with(family); });
    if (known && name.find("LOG") == name.npos && name.size() + 1 < text.size())
      found[std::string(name)] = text.substr(name.size() + 1);
  }
  return found.empty() ? Json() : Json(found);
}

Json libraries_json(const CudaLibraries& libraries) {
  Json found = Json::object(), missing = Json::array();
  for (const auto& [part, path] : libraries.paths) found[name_of(part)] = path;
  for (const CudaPart part : kCudaParts)
    if (libraries.usable() && !libraries.paths.contains(part)) missing.push_back(libraries.missing(part));
  return {{"major", libraries.major}, {"reason", libraries.reason}, {"found", found}, {"missing", missing}};
}

/// The present time, as "2025-01-31T12:34:56.789Z".
std::string now_utc() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const std::time_t seconds = ms / 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return cat(std::put_time(&utc, "%FT%T"), ".", std::setw(3), std::setfill('0'), ms % 1000, "Z");
}

/// How many of the cores that this process may use are busy with other processes, sampled for 0.2 s.
double busy_cores() {
  // Only tests set this variable, to 0, since they start hundreds of runs.
  const char* const asked = std::getenv("STEPLADDER_BUSY_SAMPLE_MS");
  const int sample_ms = asked ? std::atoi(asked) : 200;
  if (sample_ms == 0) return 0.0;  // two readings at once could differ by a tick, and look busy
  const auto [busy, all] = core_ticks();
  std::this_thread::sleep_for(std::chrono::milliseconds(sample_ms));
  const auto [later_busy, later_all] = core_ticks();
  if (later_all <= all) return 0.0;
  return static_cast<double>(host().cores * (later_busy - busy)) / static_cast<double>(later_all - all);
}

}  // namespace

std::string version() {
  return STEPLADDER_VERSION;
}

Host host() {
  Host host;
  utsname system{};
  uname(&system);
  host.name = system.nodename;
  const std::string distribution = field("/etc/os-release", "PRETTY_NAME");
  host.os = cat(distribution.empty() ? "" : distribution + ", ", system.sysname, " ", system.release);
  host.cpu = field("/proc/cpuinfo", "model name");
  if (host.cpu.empty()) host.cpu = system.machine;
  cpu_set_t cpus;
  host.cores =
      sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : sysconf(_SC_NPROCESSORS_ONLN);
  host.memory = meminfo("MemTotal");
  host.free = meminfo("MemAvailable");
  return host;
}

std::string identity_of(const DeviceInfo& device) {
  return device.uuid.empty() ? host_name() : device.uuid;
}

std::string why_no_device(const ChildEnd& end) {
  if (const std::string killed = end.killed_from_outside(); !killed.empty())
    return "the process that asks for the device " + killed;
  if (end.how == ChildEnd::How::timed_out)
    return cat("the device does not answer in ", kProbeTimeout, " s: its driver hangs");
  const bool by_signal = end.how == ChildEnd::How::signalled;
  return cat("the device does not answer: the process that asks for it ended ",
             by_signal ? cat("by ", signal_name(end.code)) : cat("with exit status ", end.code),
             end.last_words());
}

DeviceProbe probe_device(const std::string& backend, int64_t index) {
  DeviceProbe probe;
  std::string text;
  ChildEnd end;
  try {
    end = run_for_output({kSelf, "probe-device", "--backend", backend, "--device", std::to_string(index)},
                         text, kProbeTimeout);
  } catch (const Error& e) {  // the child could not be run
    probe.error = e.what();
    return probe;
  }
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    probe.error = why_no_device(end);
    return probe;
  }
  if (json.contains("libraries")) probe.libraries = json.at("libraries");
  if (json.contains("error")) {
    json.at("error").get_to(probe.error);
  } else {
    const auto from = [&](const char* key, auto& value) { json.at(key).get_to(value); };
    fields(from, probe.device);
    probe.telemetry = json.at("telemetry");
    json.at("devices").get_to(probe.devices);
  }
  return probe;
}

DeviceProbe require_device(const std::string& backend, int64_t index) {
  // Cached, since a campaign asks again for each of its parts.
  static std::map<std::pair<std::string, int64_t>, DeviceProbe> known;
  const std::pair key(backend, index);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  const DeviceProbe probe = probe_device(backend, index);
  if (!probe.error.empty()) throw Error(probe.error);
  return known[key] = probe;
}

void print_device(const std::string& backend, int index) {
  Json answer;
  try {
    answer = Writer::write(make_ops(backend, index)->device().info());
    answer["devices"] = device_count(backend);
    answer["telemetry"] = Telemetry(answer["uuid"]).describe();
  } catch (const Error& e) {
    answer["error"] = e.what();
  }
  if (const CudaLibraries& libraries = cuda_libraries(); backend == "cuda" && !libraries.reason.empty())
    answer["libraries"] = libraries_json(libraries);
  std::cout << answer << std::endl;
}

std::string bin_dir() {
  if (const char* dir = std::getenv("STEPLADDER_BIN_DIR")) return dir;
  const std::filesystem::path here = std::filesystem::read_symlink(kSelf).parent_path();
  const std::filesystem::path installed = here / "../libexec/stepladder";
  return (std::filesystem::exists(installed) ? std::filesystem::canonical(installed) : here).string();
}

std::string python() {
  if (const char* named = std::getenv("STEPLADDER_PYTHON")) return named;
  const std::string venv = shared_dir() + "/.venv/bin/python";
  return std::filesystem::exists(venv) ? venv : "python3";
}

Json machine_context(const DeviceProbe& probe) {
  const Host h = host();
  Json threads = Json::object();
  for (const char* name : kThreadVariables)
    if (const char* value = std::getenv(name)) threads[name] = printable(value, 200);
  Json context = {{"version", version()},
                  {"commit", build_commit()},
                  {"build", STEPLADDER_BUILD},
                  {"command_line", command_line()},
                  {"time", now_utc()},
                  {"host", h.name},
                  {"os", h.os},
                  {"cpu", h.cpu},
                  {"cores", h.cores},
                  {"thread_environment", threads},
                  {"memory", h.memory},
                  {"tokenizer", tokenizer_unicode()},
                  {"device", Writer::write(probe.device)},
                  {"busy_cores", busy_cores()},
                  {"telemetry", probe.telemetry}};
  if (Json environment = library_environment(); !environment.is_null())
    context["environment"] = std::move(environment);
  return context;
}

}  // namespace stepladder
