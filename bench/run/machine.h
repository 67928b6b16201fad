// What this program runs on, for a results file's context and for the doctor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bench/results/results.h"
#include "bench/run/child.h"
#include "model/ops.h"

namespace stepladder {

/// Of this tool: "0.2.0".
std::string version();

/// The commit that this program was built from, with "-dirty" where tracked files differed; "" where it was
/// no checkout.
const char* build_commit();

/// Between the two in what --version prints: "0.2.0 (commit 1a2b3c)". A gate reads it of another build.
inline constexpr std::string_view kOfCommit = " (commit ";

struct Host {
  std::string name, os, cpu;
  int64_t cores = 0;             // that this process may use
  int64_t memory = 0, free = 0;  // bytes
};
Host host();

/// A device, or why there is none.
struct DeviceProbe {
  DeviceInfo device;
  int64_t devices = 1;  // of its backend
  Json telemetry;       // Telemetry::describe()
  Json libraries;  // of a CUDA backend, device or not: {"major", "reason", "found": {name: path}, "missing":
                   // [why]}
  std::string error;
};

/// What a child that only looks at a device may take.
inline constexpr double kProbeTimeout = 60.0;  // seconds; many devices take a driver long

/// What a run that was given it keeps of which one it is: its uuid, or the host of a CPU.
std::string identity_of(const DeviceInfo& device);

/// Asks a child process for the device, so that this one holds no device memory while rungs are measured and
/// survives a broken driver.
DeviceProbe probe_device(const std::string& backend, int64_t index);
/// Why that child told of no device.
std::string why_no_device(const ChildEnd& end);
/// The same, once a process. Throws Error where there is none.
DeviceProbe require_device(const std::string& backend, int64_t index);
/// The child's side: prints what probe_device() reads.
void print_device(const std::string& backend, int index);

/// Where the rungs' executables are: beside the running one, or in libexec/stepladder where it is installed;
/// STEPLADDER_BIN_DIR names another folder.
std::string bin_dir();

/// The Python for the charts and the page: STEPLADDER_PYTHON, else the source folder's .venv, else python3.
std::string python();

/// How many of the cores that this process may use others keep busy; looks for a fifth of a second.
double busy_cores();

/// Tool version, commit of the build, command line, host and how busy it is, device, time, and the variables
/// that change what libraries compute: the context of a results file.
Json machine_context(const DeviceProbe& probe);

}  // namespace stepladder
