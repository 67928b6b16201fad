// Memory that shows when something is read before it is written.
#pragma once

#include <cstdint>
#include <vector>

#include "model/arena.h"
#include "model/ops.h"

namespace stepladder {

inline constexpr int64_t kPoisonBytes = 256;  // what poisoning takes of an arena itself

/// Makes every value of an arena of `bytes` bytes NaN, whatever its type (-1 as an integer). Nothing may have
/// been taken from it.
inline void poison(Ops& ops, Arena& arena, int64_t bytes) {
  Tensor block = arena.alloc("poison", DType::i32, {kPoisonBytes / 4});
  block.shape = {bytes / 4};
  const std::vector<int32_t> ones(static_cast<size_t>(bytes / 4), -1);
  ops.upload(block, ones.data());
}

}  // namespace stepladder
