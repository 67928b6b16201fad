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
  /// With GPT-2's tokenizer, or its byte tokens where there is no vocabulary.
  Sampler(const RungSettings& settings, bool bytes);

  /// The prompt's tokens.
  std::vector<int32_t> prompt() const;
  /// The prompt and what follows it.
  std::string text(Trainer& trainer) const;

 private:
  const RungSettings& settings_;
  std::optional<Tokenizer> bpe_;
};

/// Prints the prompt and what follows it, nothing else.
void sample(RunSession& session);

}  // namespace stepladder
