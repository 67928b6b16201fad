// Matmul algorithms on disk: one JSON file per device, library version and kernels around them, as an
// algorithm means something to that library only and is the fastest on that device and among those kernels
// only.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

namespace stepladder {

/// What the algorithms are for.
struct AlgorithmSource {
  std::string device;  // "NVIDIA H200"
  int compute_capability = 0;
  std::string library;  // "cuBLASLt 130100"
  /// What else decides which is the fastest: sources and flags of the kernels, options of the backend.
  std::string kernels = {};
};

/// How a product is done fastest.
struct FoundAlgorithm {
  std::string strategy;                 // which of the ways to do it
  std::array<uint64_t, 8> algorithm{};  // cublasLtMatmulAlgo_t, opaque; zeros where the strategy needs none
  double us = 0.0;                      // as measured

  bool operator==(const FoundAlgorithm&) const = default;
};

/// By a text that tells apart all products that may want another algorithm.
using FoundAlgorithms = std::map<std::string, FoundAlgorithm>;

/// 16 hex digits that tell one choice of algorithms from another, however they were timed; "" for none.
std::string fingerprint(const FoundAlgorithms& found);

/// The file of `source` in `folder`.
std::string algorithm_cache_path(const std::string& folder, const AlgorithmSource& source);

/// The algorithms in the file. None where it is missing, damaged in any way, or of another source: they can
/// be found again.
FoundAlgorithms read_algorithm_cache(const std::string& path, const AlgorithmSource& source);

/// Writes the file, and its folder where that is missing, so that a reader sees the old or the new one.
/// Throws InputError.
void write_algorithm_cache(const std::string& path, const AlgorithmSource& source,
                           const FoundAlgorithms& found);

}  // namespace stepladder
