// Counter-based random numbers: element i of a stream is a function of (seed, i), in any order, on any
// thread. And a hash.
#pragma once

#include <cstdint>
#include <string_view>

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

/// The FNV-1a hash of `text`: detects damage and differences, not tampering.
constexpr uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace stepladder
