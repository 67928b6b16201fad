// Sampling text from a model.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace stepladder {

struct SampleOptions {
  float temperature = 1.0F;  // 0 takes the most likely token
  int top_k = 50;            // 0 keeps all
  uint64_t seed = 1337;
};

/// Draws a token from `logits` (V). A pure function: `uniform`, in [0,1), decides.
int32_t sample_token(std::span<const float> logits, const SampleOptions& options, double uniform);

/// The number of positions of a model that draws `tokens` tokens after a prompt of `prompt`, at most `most`.
/// The result is a multiple of 16 if `most` is, as FP8's GEMMs want it.
int64_t positions_to_sample(int64_t prompt, int64_t tokens, int64_t most);

/// The tokens that generate() drew, the seconds to the first, prompt included, and the seconds of the others.
struct Generated {
  std::vector<int32_t> tokens;
  double first_s = 0.0, rest_s = 0.0;
};

/// Computes the logits (V) of the token after a text: Decoder's or Trainer's function of this name.
using NextLogits = std::function<std::vector<float>(std::span<const int32_t> text)>;

/// `count` tokens after `prompt` (empty: end-of-text). The same tokens for the same weights and options.
Generated generate(const NextLogits& next_logits, std::span<const int32_t> prompt, int count,
                   const SampleOptions& options);

}  // namespace stepladder
