// The model of any rung, read one text at a time: each new token takes one position's forward pass.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/gpt2.h"

namespace stepladder {

/// Computes what a trainer's forward() does, from its weights in their type; in FP8's rungs from those in 16
/// bits. Keys and values of the last text are kept, so that a text which begins like it only takes the
/// positions that differ.
class Decoder {
 public:
  /// Whether a decoder computes all of this trainer's changes to GPT-2.
  static bool knows(const Trainer& trainer);
  /// Only allocates, as a trainer's constructor does, for a trainer that it knows and that outlives it.
  Decoder(Ops& ops, Arena& arena, const Trainer& trainer);

  /// Forgets the last text: called before the first one, and after the weights have changed.
  void restart();
  /// Logits (V) of the token after `text`, of which only the last T tokens count: a text that is longer than
  /// that takes a pass over T positions each time. Waits for the device. Throws InputError for an empty text
  /// and tokens outside the vocabulary.
  std::vector<float> next_logits(std::span<const int32_t> text);
  /// Mean of -log p over the last `count` tokens of `text`, which has more than these and at most T + 1.
  /// Waits for the device. Throws InputError for tokens outside the vocabulary.
  double mean_loss(std::span<const int32_t> text, size_t count);

 private:
  /// The final hidden states (count,C) of the last `count` positions of `text`, at most T.
  Tensor advance(std::span<const int32_t> text, size_t count);
  void forward(int64_t first, int64_t n);

  Ops& ops_;
  const Config config_;
  const int64_t T_, C_, NH_;
  const bool qk_norm_, rotary_, relu_squared_;
  const float soft_cap_;
  // Weights as the trainer declares them; wpe is empty where positions are rotations. The head may be wte.
  Tensor wte_, wpe_, ln1w_, ln1b_, qkvw_, qkvb_, attprojw_, attprojb_, ln2w_, ln2b_, fcw_, fcb_, fcprojw_,
      fcprojb_, lnfw_, lnfb_, head_;
  Tensor angles_, cache_;                                              // (T,HS/2,2), (L,2,T,C)
  Tensor tokens_, x_, ln_, mean_, rstd_, qkv_, qkrstd_, fch_, fcact_;  // of T positions
  Tensor logits_, targets_, losses_;                                   // of kLogits positions
  std::vector<int32_t> kept_;  // text whose keys and values are in the cache
};

}  // namespace stepladder
