// The config.json beside a checkpoint.
#include <vector>

#include "model/checkpoint.h"
#include "model/safetensors.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace stepladder;

/// The path of the smallest possible model.
std::string model() {
  const std::string path = fuzz::folder() + "/model.safetensors";
  constexpr int64_t C = 4, V = 3, kMaxT = 2;
  const std::vector<SafetensorsWriter::Item> items = {
      {"wte.weight", {V, C}},
      {"wpe.weight", {kMaxT, C}},
      {"h.0.ln_1.weight", {C}},
      {"h.0.ln_1.bias", {C}},
      {"h.0.attn.c_attn.weight", {C, 3 * C}},
      {"h.0.attn.c_attn.bias", {3 * C}},
      {"h.0.attn.c_proj.weight", {C, C}},
      {"h.0.attn.c_proj.bias", {C}},
      {"h.0.ln_2.weight", {C}},
      {"h.0.ln_2.bias", {C}},
      {"h.0.mlp.c_fc.weight", {C, 4 * C}},
      {"h.0.mlp.c_fc.bias", {4 * C}},
      {"h.0.mlp.c_proj.weight", {4 * C, C}},
      {"h.0.mlp.c_proj.bias", {C}},
      {"ln_f.weight", {C}},
      {"ln_f.bias", {C}},
  };
  SafetensorsWriter file(path, items, {});
  for (const auto& item : items) {
    int64_t count = 1;
    for (int64_t extent : item.shape) count *= extent;
    file.append(std::vector<float>(static_cast<size_t>(count)));
  }
  file.commit();
  return path;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string path = model();
  fuzz::write_file(fuzz::folder() + "/config.json", fuzz::text_of(data, size));
  fuzz::accepts([&] {
    const Config config = config_of_checkpoint(path);
    fuzz::require(config.NH > 0 && config.C % config.NH == 0, "heads that do not divide the channels");
  });
  return 0;
}
