// What fits into the device's memory.
#pragma once

#include <cstdint>

#include "model/gpt2.h"
#include "model/ops.h"

namespace stepladder {

/// Bytes that a trainer of this configuration takes, known to fit: its constructor run against a planning
/// arena. Throws OutOfMemoryError with what was wanted, what there is, and the largest batch that would fit.
int64_t fitting_bytes(const TrainerFactory& make, Ops& ops, const Config& config, const Hyper& hyper);

/// The largest power of two whose trainer fits into what is free, and for which there are `max_batch`
/// sequences of data; 1 where not even that fits.
int64_t largest_batch(const TrainerFactory& make, Ops& ops, Config config, const Hyper& hyper,
                      int64_t max_batch);

}  // namespace stepladder
