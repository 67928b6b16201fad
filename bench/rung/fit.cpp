#include "bench/rung/fit.h"

#include "bench/base/text.h"

namespace stepladder {
namespace {

int64_t planned_bytes(const TrainerFactory& make, Ops& ops, const Config& config, const Hyper& hyper) {
  Arena arena;
  make(ops, arena, config, hyper);
  return arena.bytes();
}

}  // namespace

int64_t fitting_bytes(const TrainerFactory& make, Ops& ops, const Config& config, const Hyper& hyper) {
  const int64_t wanted = planned_bytes(make, ops, config, hyper), free = ops.memory().free;
  if (wanted <= free) return wanted;
  Config trial = config;
  int64_t fits = 0, too_large = config.B;  // bytes grow with the batch
  while (too_large - fits > 1) {
    trial.B = fits + (too_large - fits) / 2;
    (planned_bytes(make, ops, trial, hyper) <= free ? fits : too_large) = trial.B;
  }
  throw OutOfMemoryError(cat("out of memory: B=", config.B, " T=", config.T, " wants ", bytes_text(wanted),
                             ", ", bytes_text(free), " are free; ",
                             fits > 0 ? cat("the largest batch that fits is --batch ", fits)
                                      : "not even --batch 1 fits: use a smaller --seq or --model"));
}

int64_t largest_batch(const TrainerFactory& make, Ops& ops, Config config, const Hyper& hyper,
                      int64_t max_batch) {
  const int64_t free = ops.memory().free;
  for (config.B = 1; 2 * config.B <= max_batch; config.B *= 2) {
    Config twice = config;
    twice.B = 2 * config.B;
    if (planned_bytes(make, ops, twice, hyper) > free) break;
  }
  return config.B;
}

}  // namespace stepladder
