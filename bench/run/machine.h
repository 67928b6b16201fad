// What this program runs on, for a results file's context and for the doctor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bench/results/results.h"
#include "bench/run/child.h"
#include "model/ops.h"

namespace stepladder {

/// The version of this tool: "0.3.0".
std::string version();

/// The commit that this program was built from, with "-dirty" where tracked files differed; "" for a build
/// outside a checkout.
const char* build_commit();

/// The text between version and commit in --version's output, "0.3.0 (commit 1a2b3c)". `gate` parses that
/// output of other builds.
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

/// Time limit of a child that only looks at a device.
inline constexpr double kProbeTimeout = 60.0;  // seconds; drivers start slowly where there are many devices

/// The identity of a run's device: its uuid, or the host's name for a CPU.
std::string identity_of(const DeviceInfo& device);

/// Asks a child process for the device, so that this process holds no device memory while rungs are measured
/// and survives a broken driver.
DeviceProbe probe_device(const std::string& backend, int64_t index);
/// Why probe_device()'s child told of no device.
std::string why_no_device(const ChildEnd& end);
/// probe_device(), which is asked once a process for each device. Throws Error where there is no device.
DeviceProbe require_device(const std::string& backend, int64_t index);
/// Prints what probe_device() reads; runs in its child.
void print_device(const std::string& backend, int index);

/// The folder of the rungs' executables: that of the running executable, or libexec/stepladder where it is
/// installed; STEPLADDER_BIN_DIR names another folder.
std::string bin_dir();

/// The Python for the charts and the page: STEPLADDER_PYTHON, else the source folder's .venv, else python3.
std::string python();

/// Tool version, commit of the build, command line, host and how busy it is, device, time, and the variables
/// that change what libraries compute: the context of a results file.
Json machine_context(const DeviceProbe& probe);

}  // namespace stepladder
