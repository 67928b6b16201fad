// The highest rates that the device reaches, from which floors of times are computed.
#pragma once

#include <map>

#include "bench/results/json.h"
#include "model/config.h"
#include "model/flops.h"
#include "model/ops.h"

namespace stepladder {

struct Ceilings {
  double bytes_per_s = 0.0;                // of a large copy, read and written bytes together
  std::map<MathMode, double> flops_per_s;  // of a large square matmul, by math mode

  /// How long an op takes at least, in ms, when it moves `bytes` and does `flops` in `math`.
  double floor_ms(double bytes, double flops, MathMode math) const;
  /// As JSON: {"copy_gb_per_s": .., "gemm_tflops": {"fp32": .., ..}}
  Json json() const;
};

/// Runs a copy and, for each math mode that the device has, a matmul, on random numbers: first to warm up,
/// then until the best of several times is known. Takes device memory of its own and gives it back. Called
/// before a trainer is built, since it binds the workspace of `ops`; leaves matmul precision at fp32.
Ceilings measure_ceilings(Ops& ops, const Config& config);

}  // namespace stepladder
