// Counter-based random numbers: element i of a stream is a function of (seed, i), in any order, on any
// thread.
#pragma once

#include <cstdint>

namespace stepladder {

/// SplitMix64's finaliser over seed and counter (Steele, Lea, Flood 2014).
constexpr uint64_t random_bits(uint64_t seed, uint64_t counter) {
  uint64_t z = seed * 0xD1342543DE82EF95ULL + (counter + 1) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

/// Uniform in [0,1) with 53 bits.
constexpr double random_uniform(uint64_t seed, uint64_t counter) {
  return static_cast<double>(random_bits(seed, counter) >> 11) * 0x1.0p-53;
}

}  // namespace stepladder
