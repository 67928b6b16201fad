// What a step's kernels moved and executed, by the device's own counters, which Nsight Compute reads.
#pragma once

#include <string>
#include <vector>

#include "bench/results/json.h"

namespace stepladder {

/// A kernel's counters.
struct KernelCounters {
  std::string function;  // its name, without namespaces, template arguments and parameters
  double dram_read = 0.0, dram_written = 0.0, l2 = 0.0;  // bytes
  double instructions = 0.0;                             // executed by warps
};

/// Nsight Compute's command, ncu.
struct Ncu {
  std::string path, version;  // "2025.3.1.0"
};

/// The ncu on PATH, else of a toolkit, else of an installation of its own. Throws InputError where there is
/// none.
Ncu find_ncu();

/// Runs the rung that `command` starts under `ncu`, and counts the kernels of its step `number`, from 1, in
/// the order of their launches. Throws Error where the rung fails, or where the driver doesn't let this user
/// read the counters.
std::vector<KernelCounters> count_kernels(const Ncu& ncu, const std::vector<std::string>& command,
                                          int64_t number, double timeout_s);

/// The counters that ncu printed as CSV, in `lines` that may hold other text too. Throws Error where a
/// counter is missing or of another unit.
std::vector<KernelCounters> kernel_counters(const std::vector<std::string>& lines);

/// The object that docs/results-schema.md calls `counters`: the sums by type of kernel, beside the bytes that
/// `profile` has for the floor. A type is that of the op that launched the kernel, as in `timeline`, which
/// has the same step: of kernels with one name, the first is the first there. `other` are kernels that the
/// timeline lacks.
Json counters_by_type(const Ncu& ncu, const std::vector<KernelCounters>& kernels, const Json& timeline,
                      const Json& profile);

}  // namespace stepladder
