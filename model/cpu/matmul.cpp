#include <cblas.h>

#include <bit>
#include <limits>

#include "model/cpu/check.h"
#include "model/cpu/cpu_ops.h"

namespace stepladder {
namespace {

// A tile of the output is one task, and one call of the single-threaded sgemm. Rounded operands are made
// kTileK deep at a time, so that they stay in cache.
constexpr int64_t kTileM = 128, kTileN = 512, kTileK = 256;
constexpr int64_t kSerialProducts = 1 << 21;  // not worth waking a second thread for

/// batch x (M,K)(K,N), whichever way a and b are stored.
struct MatmulShape {
  int64_t batch, M, N, K;
};

bool same_batch(const Tensor& out, const Tensor& a, const Tensor& b) {
  const int rank = out.shape.rank();
  if (rank < 3 || a.shape.rank() != rank || b.shape.rank() != rank) return false;
  for (int i = 0; i + 2 < rank; ++i)
    if (out.shape[i] != a.shape[i] || out.shape[i] != b.shape[i]) return false;
  return true;
}

MatmulShape matmul_shape(const Tensor& out, const Tensor& a, const Tensor& b, MatOp op) {
  const bool flat = (op == MatOp::TN ? out : b).shape.rank() == 2;
  const auto rows = [=](const Tensor& t) { return flat ? rows_of(t) : dim(t, -2); };
  MatmulShape s{1, rows(out), dim(out, -1), op == MatOp::TN ? rows(a) : dim(a, -1)};
  const int64_t a_rows = op == MatOp::TN ? s.K : s.M, a_cols = op == MatOp::TN ? s.M : s.K;
  const int64_t b_rows = op == MatOp::NT ? s.N : s.K, b_cols = op == MatOp::NT ? s.K : s.N;
  expect(all_f32(out, a, b) && out.shape.rank() >= 2 && a.shape.rank() >= 2 && b.shape.rank() >= 2 &&
             (flat || same_batch(out, a, b)) && rows(a) == a_rows && dim(a, -1) == a_cols &&
             rows(b) == b_rows && dim(b, -1) == b_cols,
         op == MatOp::NN   ? "matmul NN"
         : op == MatOp::NT ? "matmul NT"
                           : "matmul TN",
         out, a, b);
  check(std::max({s.M, s.N, s.K}) <= std::numeric_limits<blasint>::max(), "matmul: ", out,
        " has an extent beyond the BLAS's integer");
  if (!flat)
    for (int i = 0; i + 2 < out.shape.rank(); ++i) s.batch *= out.shape[i];
  return s;
}

/// The nearest TF32 (10 bits of mantissa), ties to even; inf and NaN as they are.
float round_to_tf32(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFFU;
  return std::bit_cast<float>((bits & 0x7F800000) == 0x7F800000 ? bits : rounded);
}

/// A rectangle of a row-major matrix.
struct Block {
  const float* data;
  int64_t rows, cols, stride;
};

/// The same rounded, packed at `to`.
Block rounded(const Block& from, float* to) {
  for (int64_t r = 0; r < from.rows; ++r)
    for (int64_t c = 0; c < from.cols; ++c)
      to[r * from.cols + c] = round_to_tf32(from.data[r * from.stride + c]);
  return {to, from.rows, from.cols, from.cols};
}

int64_t pieces_of(int64_t n, int64_t piece) {
  return (n + piece - 1) / piece;
}

}  // namespace

CpuOps::CpuOps(int threads) : threads_(threads) {
  openblas_set_num_threads(1);  // matmul shares its tiles out itself
}

void CpuOps::bind_workspace(Arena& arena, const Config& config) {
  const Tensor tiles = arena.alloc("workspace/matmul", DType::f32, {threads_, (kTileM + kTileN) * kTileK});
  const Tensor order = arena.alloc("workspace/embedding", DType::i32, {config.B * config.T});
  if (arena.planning()) return;
  tiles_ = tiles;
  order_ = order;
}

void CpuOps::matmul(Tensor out, Tensor a, Tensor b, MatOp op, Write write) {
  const MatmulShape shape = matmul_shape(out, a, b, op);
  const int64_t batch = shape.batch, M = shape.M, N = shape.N, K = shape.K;
  const bool tf32 = precision_ == Precision::tf32;
  if (tf32) expect_workspace("matmul in tf32", tiles_, threads_ * (kTileM + kTileN) * kTileK);
  if (K == 0 && write == Write::set) zero(out);

  const bool a_transposed = op == MatOp::TN, b_transposed = op == MatOp::NT;
  const int64_t a_stride = a_transposed ? M : K, b_stride = b_transposed ? K : N;
  const int64_t depth = tf32 ? kTileK : K;
  const int64_t tiles_m = pieces_of(M, kTileM), tiles_n = pieces_of(N, kTileN);
  const float *pa = a.ptr<float>(), *pb = b.ptr<float>();
  float* pout = out.ptr<float>();
  float* scratch = tf32 ? tiles_.ptr<float>() : nullptr;

  const int threads = batch * M * N * K > kSerialProducts ? threads_ : 1;
  parallel_for(threads, batch * tiles_m * tiles_n, [=](int64_t tile) {
    const int64_t i = tile / (tiles_m * tiles_n);
    const int64_t m = tile / tiles_n % tiles_m * kTileM, rows = std::min(kTileM, M - m);
    const int64_t n = tile % tiles_n * kTileN, cols = std::min(kTileN, N - n);
    for (int64_t k = 0; k < K; k += depth) {
      const int64_t inner = std::min(depth, K - k);
      const float *ta = pa + i * M * K, *tb = pb + i * K * N;
      Block x = a_transposed ? Block{ta + k * M + m, inner, rows, a_stride}
                             : Block{ta + m * K + k, rows, inner, a_stride};
      Block y = b_transposed ? Block{tb + n * K + k, cols, inner, b_stride}
                             : Block{tb + k * N + n, inner, cols, b_stride};
      if (tf32) {
        float* mine = scratch + thread_index() * (kTileM + kTileN) * kTileK;
        x = rounded(x, mine);
        y = rounded(y, mine + kTileM * kTileK);
      }
      cblas_sgemm(
          CblasRowMajor, a_transposed ? CblasTrans : CblasNoTrans, b_transposed ? CblasTrans : CblasNoTrans,
          static_cast<blasint>(rows), static_cast<blasint>(cols), static_cast<blasint>(inner), 1.0F, x.data,
          static_cast<blasint>(x.stride), y.data, static_cast<blasint>(y.stride),
          write == Write::set && k == 0 ? 0.0F : 1.0F, pout + (i * M + m) * N + n, static_cast<blasint>(N));
    }
  });
}

}  // namespace stepladder
