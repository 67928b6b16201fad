// Rungs with a trainer of their own, as test parameters.
#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "bench/plan/ladder.h"

namespace stepladder {

/// A ladder's rungs that have their own trainer. Other rungs run another rung's trainer, with the largest
/// batch that fits.
inline std::vector<Rung> trainers_of(const Ladder& ladder) {
  std::vector<Rung> own;
  std::ranges::copy_if(ladder.rungs, std::back_inserter(own),
                       [](const Rung& rung) { return rung.trainer == rung.name; });
  return own;
}
inline std::vector<Rung> trainers() {
  std::vector<Rung> all;
  for (const Ladder& ladder : our_ladders()) std::ranges::move(trainers_of(ladder), std::back_inserter(all));
  return all;
}

/// How far, relatively, rounding may move a rung's losses from the losses of the same steps in f32. A rung
/// without a finite tolerance, which doesn't learn what its ladder's first rung learns, gets rung 13's.
inline double rounding_of(const Rung& rung) {
  return std::isfinite(rung.tolerance) ? rung.tolerance : ladder().find("13_cuda_graphs").tolerance;
}

/// The trainer whose losses a rung gives but for rounding: its parent where it computes the same in FP8 or on
/// several devices, else itself.
inline const std::string& algorithm_of(const Rung& rung) {
  return rung.math == MathMode::fp8 || rung.sharded ? rung.parent : rung.name;
}

}  // namespace stepladder
