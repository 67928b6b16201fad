// The rungs of the tables that have a trainer of their own, as test parameters.
#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

#include "bench/plan/ladder.h"

namespace stepladder {

/// Not those that run another rung's with the largest batch that fits.
inline std::vector<Rung> trainers() {
  std::vector<Rung> own;
  for (const Ladder& ladder : our_ladders())
    std::ranges::copy_if(ladder.rungs, std::back_inserter(own),
                         [](const Rung& rung) { return rung.trainer == rung.name; });
  return own;
}

}  // namespace stepladder
