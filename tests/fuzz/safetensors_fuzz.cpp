// Weights and checkpoints: safetensors and llm.c's .bin, into a model of the shape they claim.
#include <memory>

#include "model/checkpoint.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stepladder;
  constexpr int64_t kMaxParams = 1 << 16;  // the largest input that is still quick
  static const std::unique_ptr<Ops> ops = make_cpu_ops();
  static const TrainerFactory& make = linked_rungs().front().make;
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  Config config;
  if (!fuzz::accepts([&] { config = config_of_checkpoint(file.path()); })) return 0;
  config.B = config.T = 1;
  fuzz::require(fuzz::accepts([&] { config.validate(); }), "a checkpoint's shape that is none");
  for (int64_t extent : {config.V, config.L, config.C, config.max_T})
    if (extent > kMaxParams) return 0;
  if (config.L * config.C > kMaxParams || config.num_params() > kMaxParams) return 0;

  Arena planned;
  make(*ops, planned, config, {});
  Arena arena(*ops, planned.bytes());
  const std::unique_ptr<Trainer> trainer = make(*ops, arena, config, {});
  fuzz::accepts([&] { load_weights(file.path(), *ops, trainer->tensors().params, config, kGpt2); });
  fuzz::accepts([&] { load_checkpoint(file.path(), *ops, *trainer, config); });
  return 0;
}
