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

/// Draws a token from `logits` (V). A pure function: `uniform`, in [0,1), decides.
int32_t sample_token(std::span<const float> logits, const SampleOptions& options, double uniform);

/// The number of positions in a forward pass that draws `tokens` tokens after a prompt of `prompt`, at most
/// `most`; each token costs a pass over all positions. A multiple of 16 where `most` is one, as FP8's GEMMs
/// want it.
int64_t positions_to_sample(int64_t prompt, int64_t tokens, int64_t most);

/// `count` tokens after `prompt` (empty: end-of-text). The same tokens for the same weights and options.
std::vector<int32_t> generate(Trainer& trainer, std::span<const int32_t> prompt, int count,
                              const SampleOptions& options);

}  // namespace stepladder
