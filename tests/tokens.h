// Reads and writes tokens for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/data.h"
#include "model/random.h"

namespace stepladder {

/// The tokens of all shards.
inline std::vector<uint16_t> all_of(const Tokens& tokens) {
  std::vector<uint16_t> all;
  for (const Shard& shard : tokens.shards()) {
    all.resize(all.size() + shard.size);
    shard.open()->read(shard.begin, std::span(all).last(shard.size));
  }
  return all;
}

/// Random tokens from a vocabulary of `V`.
inline std::vector<uint16_t> random_tokens(int64_t count, int64_t V, uint64_t seed = 7) {
  std::vector<uint16_t> tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(random_bits(seed, i) % V);
  return tokens;
}

/// Writes a file of random tokens from GPT-2's vocabulary.
inline void write_random_tokens(const std::string& path, int64_t count = 4000) {
  write_token_file(path, random_tokens(count, 50257));
}

/// Writes a file of tokens below 512, each of which mostly follows from the previous one.
inline void write_learnable_tokens(const std::string& path, size_t count) {
  std::vector<uint16_t> tokens(count);
  for (size_t i = 1; i < count; ++i)
    tokens[i] = static_cast<uint16_t>((i % 11 == 0 ? i : tokens[i - 1] * 5U + 3U) % 512);
  write_token_file(path, tokens);
}

}  // namespace stepladder
