// Matmul algorithms on disk: one JSON file per device, library version and surrounding kernels. An algorithm
// is valid for its library version only, and may not be the fastest on another device or among other kernels.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

namespace stepladder {

/// The device, library and kernels for which algorithms were found.
struct AlgorithmSource {
  std::string device;  // "NVIDIA H200"
  int compute_capability = 0;
  std::string library;  // "cuBLASLt 130100"
  /// Whatever else decides which algorithm is fastest: the kernels' sources and flags, the backend's options.
  std::string kernels = {};
};

/// The fastest way to compute one matrix product.
struct FoundAlgorithm {
  std::string strategy;                 // name of the MatmulStrategy
  std::array<uint64_t, 8> algorithm{};  // cublasLtMatmulAlgo_t, opaque; zeros where the strategy needs none
  double us = 0.0;                      // measured time

  bool operator==(const FoundAlgorithm&) const = default;
};

/// Algorithms by a key that tells apart all products that may want different algorithms.
using FoundAlgorithms = std::map<std::string, FoundAlgorithm>;

/// 16 hex digits that identify a choice of algorithms, whatever their times; "" for an empty choice.
std::string fingerprint(const FoundAlgorithms& found);

/// Path of the file for `source` in `folder`.
std::string algorithm_cache_path(const std::string& folder, const AlgorithmSource& source);

/// The algorithms in the file; empty where the file is missing, damaged or for another source: a search then
/// finds them again.
FoundAlgorithms read_algorithm_cache(const std::string& path, const AlgorithmSource& source);

/// Writes the file atomically, and creates its folder if missing. Throws InputError.
void write_algorithm_cache(const std::string& path, const AlgorithmSource& source,
                           const FoundAlgorithms& found);

}  // namespace stepladder
