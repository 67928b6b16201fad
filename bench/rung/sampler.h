// Sampling: the text with which a trained model continues a prompt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/rung/session.h"
#include "model/sample.h"
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
  /// The model's continuation, by the decoder where there is one.
  Generated draw(const RunSession& session) const;
  /// The prompt and its continuation.
  std::string text(const Generated& drawn) const;

 private:
  const RungSettings& settings_;
  std::optional<Tokenizer> bpe_;
  std::vector<int32_t> prompt_;
};

/// "HellaSwag accuracy 0.2955 (2967 of 10042)"
std::string accuracy_text(size_t right, size_t questions);

/// Prints the prompt and the model's continuation, and the speed on standard error; with --hellaswag its
/// accuracy instead.
void sample(RunSession& session);

}  // namespace stepladder
