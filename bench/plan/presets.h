// Named workloads: what `stepladder run` measures unless options say otherwise.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/ops.h"

namespace stepladder {

struct Preset {
  const char* name;
  const char* model;
  std::vector<int64_t> batch;
  int64_t seq, steps, warmup, rounds;  // the first `warmup` of `steps` are left out of the summary
  int64_t max_batch = 16384;           // of a rung that takes the largest that fits
  const char* ladder = "";             // measured instead of ours: its file, in scripts/peers
};

const std::vector<Preset>& presets();

/// Throws InputError with the nearest name for an unknown one.
const Preset& find_preset(const std::string& name);

/// The path of the ladder that the preset of that name measures; "" for ours, and for the preset "". Throws
/// InputError as find_preset() does.
std::string ladder_file(const std::string& preset);

/// The one of that name; of "" cpu-quick on the CPU, gunton-t4 on a "Tesla T4", gpu-quick on any other CUDA
/// device. Throws InputError as find_preset() does.
const Preset& preset_for(const std::string& name, const DeviceInfo& device);

}  // namespace stepladder
