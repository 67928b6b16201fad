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

/// Writes a file of random tokens from GPT-2's vocabulary.
inline void write_random_tokens(const std::string& path, size_t count = 4000) {
  std::vector<uint16_t> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<uint16_t>(random_bits(7, i) % 50257);
  write_token_file(path, tokens);
}

}  // namespace stepladder
