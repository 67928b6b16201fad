#include "model/cpu/matmul.h"

#include <cblas.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>

#include "model/cpu/check.h"

namespace stepladder {
namespace {

bool same_batch(const Tensor& out, const Tensor& a, const Tensor& b) {
  const int rank = out.shape.rank();
  if (rank < 3 || a.shape.rank() != rank || b.shape.rank() != rank) return false;
  for (int i = 0; i + 2 < rank; ++i)
    if (out.shape[i] != a.shape[i] || out.shape[i] != b.shape[i]) return false;
  return true;
}

/// An operand as sgemm is to see it: f32 to the nearest TF32 (10 bits of mantissa), ties to even, inf and NaN
/// as they are; 16-bit types exactly.
float operand(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFFU;
  return std::bit_cast<float>((bits & 0x7F800000) == 0x7F800000 ? bits : rounded);
}
float operand(BFloat16 x) {
  return to_float(x);
}
float operand(Float16 x) {
  return to_float(x);
}
float operand(Float8E4M3 x) {
  return to_float(x);
}
float operand(Float8E5M2 x) {
  return to_float(x);
}

/// f(T{}) for the type of an operand.
template <class F>
void with_operand_type(DType t, const F& f) {
  if (is_fp8(t)) {
    with_fp8_type(t, f);
  } else {
    with_float_type(t, f);
  }
}

/// A rectangle of a row-major matrix.
template <class T>
struct Block {
  const T* data;
  int64_t rows, cols, stride;

  /// The same converted, packed at `to`.
  Block<float> converted(float* to, float scale) const {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) to[r * cols + c] = operand(data[r * stride + c]) * scale;
    return {to, rows, cols, cols};
  }
  /// The same as it lies in memory, of f32.
  Block<float> plain() const {
    if constexpr (std::is_same_v<T, float>) return *this;
    throw std::logic_error("a matrix of 16 or 8 bits, not converted");
  }
};

float scale_of(const Tensor& x) {
  return is_fp8(x.dtype) ? *x.scale : 1.0F;
}

/// Two of one float type, or two of FP8 that tensor cores multiply, each with a scale.
bool multiply(const Tensor& a, const Tensor& b) {
  if (!is_fp8(a.dtype)) return one_float_type(a, b);
  return is_fp8(b.dtype) && (a.dtype == DType::f8e4m3 || b.dtype == DType::f8e4m3) && a.scale && b.scale;
}

}  // namespace

Product::Product(const char* name, const Tensor& out, const Tensor& a, const Tensor& b, MatOp op, bool tf32,
                 bool padded)
    : a_(a), b_(b), a_transposed_(op == MatOp::TN), b_transposed_(op == MatOp::NT), tf32_(tf32) {
  const bool flat = (a_transposed_ ? out : b).shape.rank() == 2, fp8 = is_fp8(a.dtype);
  const auto rows = [=](const Tensor& t) { return flat ? rows_of(t) : dim(t, -2); };
  padded = padded && flat;
  batch = 1, M = rows(out), N = padded && b_transposed_ ? rows(b) : dim(out, -1);
  K = a_transposed_ ? rows(a) : padded && !b_transposed_ ? rows(b) : padded && fp8 ? dim(b, -1) : dim(a, -1);
  out_stride = dim(out, -1), a_stride_ = dim(a, -1);
  const int64_t a_rows = a_transposed_ ? K : M, a_cols = a_transposed_ ? M : K;
  const int64_t b_rows = b_transposed_ ? N : K, b_cols = b_transposed_ ? K : N;
  expect(
      multiply(a, b) &&
          (fp8 ? flat && op == MatOp::NT && size_of(out.dtype) == 2 : out.dtype == a.dtype || all_f32(out)) &&
          out.shape.rank() >= 2 && a.shape.rank() >= 2 && b.shape.rank() >= 2 &&
          (flat || same_batch(out, a, b)) && rows(a) == a_rows &&
          (padded ? a_stride_ >= a_cols : a_stride_ == a_cols) && out_stride >= N && rows(b) == b_rows &&
          dim(b, -1) == b_cols,
      name, out, a, b);
  check(std::max({M, N, K}) <= std::numeric_limits<blasint>::max(), name, ": ", out,
        " has an extent beyond the BLAS's integer");
  if (!flat)
    for (int i = 0; i + 2 < out.shape.rank(); ++i) batch *= out.shape[i];
}

void Product::tile(const Tile& t, float beta, float* to, int64_t stride, float* scratch) const {
  if (K == 0 && beta == 0.0F)
    for (int64_t r = 0; r < t.rows; ++r) std::fill_n(to + r * stride, t.cols, 0.0F);
  const int64_t a_stride = a_stride_, b_stride = b_transposed_ ? K : N;
  const int64_t depth = converts() ? kTileK : K;
  with_operand_type(a_.dtype, [&]<class A>(A) {
    with_operand_type(b_.dtype, [&]<class B>(B) {
      const A* a = a_.ptr<A>() + t.i * M * K;
      const B* b = b_.ptr<B>() + t.i * K * N;
      for (int64_t k = 0; k < K; k += depth) {
        const int64_t inner = std::min(depth, K - k);
        const Block<A> from_a = a_transposed_ ? Block<A>{a + k * a_stride + t.m, inner, t.rows, a_stride}
                                              : Block<A>{a + t.m * a_stride + k, t.rows, inner, a_stride};
        const Block<B> from_b = b_transposed_ ? Block<B>{b + t.n * K + k, t.cols, inner, b_stride}
                                              : Block<B>{b + k * N + t.n, inner, t.cols, b_stride};
        const Block<float> x = converts() ? from_a.converted(scratch, scale_of(a_)) : from_a.plain();
        const Block<float> y =
            converts() ? from_b.converted(scratch + kTileM * kTileK, scale_of(b_)) : from_b.plain();
        cblas_sgemm(CblasRowMajor, a_transposed_ ? CblasTrans : CblasNoTrans,
                    b_transposed_ ? CblasTrans : CblasNoTrans, static_cast<blasint>(t.rows),
                    static_cast<blasint>(t.cols), static_cast<blasint>(inner), 1.0F, x.data,
                    static_cast<blasint>(x.stride), y.data, static_cast<blasint>(y.stride),
                    k == 0 ? beta : 1.0F, to, static_cast<blasint>(stride));
      }
    });
  });
}

CpuOps::CpuOps(int threads) : threads_(threads) {
  openblas_set_num_threads(1);  // matmul shares its tiles out itself
}

void CpuOps::bind_workspace(Arena& arena, const Config& config) {
  const Tensor each_thread = arena.alloc("workspace/scratch", DType::f32, {threads_, kScratch});
  const Tensor order = arena.alloc("workspace/embedding", DType::i32, {config.B * config.T});
  if (arena.planning()) return;
  scratch_ = each_thread;
  order_ = order;
}

float* CpuOps::scratch(const char* op, int64_t n) const {
  check(n <= kScratch, op, ": rows of ", n, " elements, at most ", kScratch);
  expect_workspace(op, scratch_, threads_ * kScratch);
  return scratch_.ptr<float>();
}

void CpuOps::matmul(Tensor out, Tensor a, Tensor b, MatOp op, Write write) {
  const char* name = op == MatOp::NN ? "matmul NN" : op == MatOp::NT ? "matmul NT" : "matmul TN";
  const Product product(name, out, a, b, op, tf32(), true);
  float* all_scratch = product.converts() ? scratch(name) : nullptr;
  const int64_t M = product.M, stride = product.out_stride;
  const bool add = write == Write::add;
  if (out.dtype == DType::f32) {
    float* pout = out.ptr<float>();
    product.each_tile(threads_, [&](const Tile& t) {
      float* mine = all_scratch ? all_scratch + thread_index() * kScratch : nullptr;
      product.tile(t, add ? 1.0F : 0.0F, pout + (t.i * M + t.m) * stride + t.n, stride, mine);
    });
    return;
  }
  with_float_type(out.dtype, [&]<class T>(T) {
    const auto fout = floats<T>(out);
    product.each_tile(threads_, all_scratch, [&](const Tile& t, const float* elements) {
      for (int64_t r = 0; r < t.rows; ++r) {
        const auto to = fout + (t.i * M + t.m + r) * stride + t.n;
        const float* from = elements + r * t.cols;
        STEPLADDER_SIMD
        for (int64_t c = 0; c < t.cols; ++c) to.set(c, add ? to[c] + from[c] : from[c]);
      }
    });
  });
}

}  // namespace stepladder
