// One matmul, computed a tile at a time: matmul stores the tiles as they are; linear layers first add bias or
// residual, or apply GELU or its gradient.
#pragma once

#include <cstdint>

#include "model/cpu/cpu.h"

namespace stepladder {

// A tile of the output is one task, and one call of the single-threaded sgemm. Operands that are rounded or
// converted are made kTileK deep at a time, so that they stay in cache. A thread's scratch has the tiles of
// both operands, then one of the output.
inline constexpr int64_t kTileM = 128, kTileN = 512, kTileK = 256;
inline constexpr int64_t kOperandTiles = (kTileM + kTileN) * kTileK;
static_assert(kOperandTiles + kTileM * kTileN <= Cpu::kScratch);

/// Rows [m, m + rows) and columns [n, n + cols) of product i of the batch; at most (kTileM,kTileN).
struct Tile {
  int64_t i, m, n, rows, cols;
};

/// op(a) op(b) in f32: a batch of (M,K)(K,N), whichever way a and b are stored.
class Product : public MatmulShape {
 public:
  /// The operands must fit together.
  Product(const Tensor& out, const Tensor& a, const Tensor& b, MatOp op, bool tf32);

  /// Whether tile() needs scratch.
  bool converts() const { return a_.dtype != DType::f32 || tf32_; }
  /// to (rows,cols), rows `stride` apart, = beta * to + the tile; `scratch` has kOperandTiles elements.
  void tile(const Tile& tile, float beta, float* to, int64_t stride, float* scratch) const;

  /// Calls body(tile) for all tiles.
  template <class Body>
  void each_tile(int threads, const Body& body) const {
    const int64_t tiles_m = (M + kTileM - 1) / kTileM, tiles_n = (N + kTileN - 1) / kTileN;
    parallel_for(worth(threads), batch * tiles_m * tiles_n, [&](int64_t at) {
      const int64_t m = at / tiles_n % tiles_m * kTileM, n = at % tiles_n * kTileN;
      body(Tile{at / (tiles_m * tiles_n), m, n, std::min(kTileM, M - m), std::min(kTileN, N - n)});
    });
  }
  /// Calls body(first, cols, row) for each row of each tile: the elements first, first + 1, ... of the
  /// product. `scratch` has kScratch elements for each thread.
  template <class Body>
  void each_row(int threads, float* scratch, const Body& body) const {
    each_tile(threads, [&](const Tile& t) {
      float* mine = scratch + thread_index() * Cpu::kScratch;
      float* elements = mine + kOperandTiles;
      tile(t, 0.0F, elements, t.cols, mine);
      for (int64_t r = 0; r < t.rows; ++r) body((t.i * M + t.m + r) * N + t.n, t.cols, elements + r * t.cols);
    });
  }
  /// How many of `threads` are worth waking.
  int worth(int threads) const { return batch * M * N * K > (1 << 21) ? threads : 1; }

 private:
  Tensor a_, b_;
  bool a_transposed_, b_transposed_, tf32_;
};

}  // namespace stepladder
