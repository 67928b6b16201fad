// One kernel over many tensors: their pointers and sizes are kernel parameters. Each tensor is cut into
// tiles, of which the last may be shorter, and the tiles of all tensors are numbered consecutively.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include "model/cuda/kernels.cuh"
#include "model/cuda/wide.cuh"

namespace stepladder {

/// Tensors of one launch. Before CUDA 12.1 kernel parameters are limited to 4 KiB.
constexpr int kMaxTensors = 32;

/// `Entry` describes one tensor; entry.n is its number of elements.
template <class Entry>
struct TensorBatch {
  Entry at[kMaxTensors];
  int first_tile[kMaxTensors];  // INT_MAX past the last tensor
};

/// The index of the tensor that `tile` belongs to, without branches: each operand is read from constant
/// memory.
template <class Entry>
__device__ int tensor_of(const TensorBatch<Entry>& batch, int tile) {
  int i = 0;
#pragma unroll
  for (int k = 1; k < kMaxTensors; ++k) i += tile >= batch.first_tile[k] ? 1 : 0;
  return i;
}

/// launch(batch, tiles) for `count` tensors, kMaxTensors at a time; entry(i) describes the i-th.
template <class EntryOf, class Launch>
void for_each_batch(size_t count, int tile, EntryOf entry, Launch launch) {
  for (size_t first = 0; first < count; first += kMaxTensors) {
    TensorBatch<decltype(entry(first))> batch{};
    int64_t tiles = 0;
    for (size_t k = 0; k < kMaxTensors; ++k) {
      const bool exists = first + k < count;
      batch.first_tile[k] = exists ? static_cast<int>(grid_size(tiles)) : INT_MAX;
      if (!exists) continue;
      batch.at[k] = entry(first + k);
      tiles += ceil_div(batch.at[k].n, tile);
    }
    launch(batch, static_cast<int>(grid_size(tiles)));
  }
}

}  // namespace stepladder
