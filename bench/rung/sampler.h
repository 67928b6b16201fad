// Sampling: the text with which a trained model continues a prompt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/rung/session.h"
#include "model/tokenizer.h"

namespace stepladder {

class Sampler {
 public:
  /// Samples from a model of V tokens, with GPT-2's tokenizer, or its byte tokens where there is no
  /// vocabulary. An empty prompt stands for the end of a text, or for a new line where the model has no token
  /// for that. Throws InputError for a prompt with tokens that the model doesn't have.
  Sampler(const RungSettings& settings, bool bytes, int64_t V);

  /// The prompt's tokens.
  const std::vector<int32_t>& prompt() const { return prompt_; }
  /// The prompt and the model's continuation.
  std::string text(Trainer& trainer) const;

 private:
  const RungSettings& settings_;
  std::optional<Tokenizer> bpe_;
  std::vector<int32_t> prompt_;
};

/// Prints the prompt and the model's continuation, and the speed in tokens/s on standard error.
void sample(RunSession& session);

}  // namespace stepladder
