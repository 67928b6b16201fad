// Text that a trained model goes on with.
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
  /// For a model of V tokens, with GPT-2's tokenizer, or its byte tokens where there is no vocabulary. An
  /// empty prompt is the end of a text, or a new line where the model has no token for that. Throws
  /// InputError for a prompt with tokens that it doesn't have.
  Sampler(const RungSettings& settings, bool bytes, int64_t V);

  /// The prompt's tokens.
  const std::vector<int32_t>& prompt() const { return prompt_; }
  /// The prompt and what follows it.
  std::string text(Trainer& trainer) const;

 private:
  const RungSettings& settings_;
  std::optional<Tokenizer> bpe_;
  std::vector<int32_t> prompt_;
};

/// Prints the prompt and what follows it, nothing else; and on standard error how fast that came.
void sample(RunSession& session);

}  // namespace stepladder
