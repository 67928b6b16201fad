// A machine's noise, how far runs of one build differ: the file that `stepladder calibrate` writes.
//
//   {"schema": 3, "kind": "noise", "context": {..}, "plan": {"steps": 40, "warmup": 10, "ladder": ""},
//    "variants": [{"variant": "02_tf32", "workload": "gpt2 B=16 T=1024", "log_ratios": [0.0012, ..],
//                 "cycles_log_ratios": [..], "joules_log_ratios": [..]}]}
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/results/json.h"
#include "bench/results/results.h"

namespace stepladder {

/// log(second / first) of each A/A pair; cycles and energy only where both runs know them.
struct LogRatios {
  std::vector<double> time, cycles, energy;
};
using NoiseByRow = std::map<RowKey, LogRatios>;

struct Noise {
  Json context = Json::object();  // as in a results file
  int64_t steps = 0, warmup = 0;  // of a run
  /// The name of the ladder, "" for ours of time; nothing in older files.
  std::optional<std::string> ladder;
  NoiseByRow log_ratios;
};

Json to_json(const Noise& noise);

/// Reads a noise file. Throws InputError naming the file and what is wrong with it.
Noise load_noise(const std::string& path);

/// Checks that the noise was taken with the device, driver, host processor, threads, environment, build,
/// ladder and numbers of steps that `context` and `plan` tell. Throws Error with kExitNotComparable, naming
/// what changed, where it wasn't.
void require_valid(const Noise& noise, const std::string& path, const Json& context, const Json& plan);

}  // namespace stepladder
