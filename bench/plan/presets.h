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
  int64_t max_batch = 16384;           // most for a rung that takes the largest batch that fits
  const char* ladder = "";             // file in scripts/peers of the ladder measured instead of ours
};

const std::vector<Preset>& presets();

/// The preset of that name. Throws InputError with the nearest name for an unknown preset.
const Preset& find_preset(const std::string& name);

/// The path of the ladder that the preset of that name measures; "" for our ladder, and where `preset` is "".
/// Throws InputError as find_preset() does.
std::string ladder_file(const std::string& preset);

/// The preset of that name; for "" cpu-quick on the CPU, gunton-t4 on a "Tesla T4", gpu-quick on any other
/// CUDA device. Throws InputError as find_preset() does.
const Preset& preset_for(const std::string& name, const DeviceInfo& device);

}  // namespace stepladder
