#include "bench/plan/presets.h"

#include <algorithm>

#include "bench/base/place.h"
#include "bench/base/text.h"
#include "model/error.h"
#include "model/nearest.h"

namespace stepladder {

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {"cpu-quick", "gpt2-tiny", {2}, 64, 10, 3, 2, 4},  // a small model, 40 seconds on two cores
      {"gpu-quick", "gpt2", {16}, 1024, 15, 5, 2},       // GPT-2, minutes on a large GPU
      {"gunton-a100", "gpt2", {16}, 1024, 40, 10, 3},    // as measured on an A100 by Gunton
      {"gunton-t4", "gpt2", {4}, 1024, 25, 5, 3},        // as measured on a T4 by Gunton
      {"raschka", "gpt2", {8}, 1024, 40, 10, 3},         // as measured by Raschka
      {"raschka-pytorch", "gpt2", {8}, 1024, 40, 10, 3, 16384, "raschka.json"},  // Raschka's model, steps
      {"pytorch-options", "gpt2", {16}, 1024, 80, 10, 3, 16384, "pytorch_options.json"},  // PyTorch's choices
      {"llmc", "gpt2", {32}, 1024, 40, 10, 3},     // as measured by llm.c
      {"h200", "gpt2", {16, 64}, 1024, 25, 5, 3},  // a small and a large batch on an H200
  };
  return all;
}

const Preset& find_preset(const std::string& name) {
  const auto found = std::ranges::find(presets(), name, &Preset::name);
  if (found != presets().end()) return *found;
  const auto names = texts_of(presets(), &Preset::name);
  throw InputError(
      cat("unknown preset '", name, "'", suggestion(name, names, cat("there are ", join(names, ", ")))));
}

std::string ladder_file(const std::string& preset) {
  const std::string file = preset.empty() ? "" : find_preset(preset).ladder;
  return file.empty() ? "" : cat(shared_dir(), "/scripts/peers/", file);
}

const Preset& preset_for(const std::string& name, const DeviceInfo& device) {
  if (!name.empty()) return find_preset(name);
  return find_preset(device.backend != "cuda"    ? "cpu-quick"
                     : device.name == "Tesla T4" ? "gunton-t4"
                                                 : "gpu-quick");
}

}  // namespace stepladder
