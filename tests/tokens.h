// Tokens for tests to look at.
#pragma once

#include <cstdint>
#include <vector>

#include "model/data.h"

namespace stepladder {

/// Those of all shards.
inline std::vector<uint16_t> all_of(const Tokens& tokens) {
  std::vector<uint16_t> all;
  for (const Shard& shard : tokens.shards()) {
    const MappedTokens mapped = shard.map();
    all.insert(all.end(), mapped.tokens.begin(), mapped.tokens.end());
  }
  return all;
}

}  // namespace stepladder
