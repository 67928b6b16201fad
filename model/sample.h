// Sampling text from a trainer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/gpt2.h"

namespace stepladder {

struct SampleOptions {
  float temperature = 1.0F;  // 0 takes the most likely token
  int top_k = 50;            // 0 keeps all
  uint64_t seed = 1337;
};

/// Draws a token from `logits` (V). Pure: `uniform` in [0,1) decides.
int32_t sample_token(std::span<const float> logits, const SampleOptions& options, double uniform);

/// `count` tokens after `prompt` (empty: end-of-text). The same tokens for the same weights and options.
std::vector<int32_t> generate(Trainer& trainer, std::span<const int32_t> prompt, int count,
                              const SampleOptions& options);

}  // namespace stepladder
