#include "model/cpu/matmul.h"

#include <cblas.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>

namespace stepladder {
namespace {

/// An element converted for sgemm: f32 rounded to the nearest TF32 (10 bits of mantissa), ties to even, inf
/// and NaN as they are; 16-bit types exactly.
float operand(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFFU;
  return std::bit_cast<float>((bits & 0x7F800000) == 0x7F800000 ? bits : rounded);
}
template <class T>
float operand(T x) {
  return to_float(x);
}

/// A rectangle of a row-major matrix.
template <class T>
struct Block {
  const T* data;
  int64_t rows, cols, stride;

  /// This block converted and multiplied by `scale`, packed at `to`.
  Block<float> converted(float* to, float scale) const {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) to[r * cols + c] = operand(data[r * stride + c]) * scale;
    return {to, rows, cols, cols};
  }
  /// This block as it lies in memory. Throws std::logic_error unless it is f32.
  Block<float> plain() const {
    if constexpr (std::is_same_v<T, float>) return *this;
    throw std::logic_error("a matrix of 16 or 8 bits, not converted");
  }
};

float scale_of(const Tensor& x) {
  return is_fp8(x.dtype) ? *x.scale : 1.0F;
}

}  // namespace

Product::Product(const Tensor& out, const Tensor& a, const Tensor& b, MatOp op, bool tf32)
    : MatmulShape(matmul_shape(out, a, b, op)),
      a_(a),
      b_(b),
      a_transposed_(op == MatOp::TN),
      b_transposed_(op == MatOp::NT),
      tf32_(tf32) {
  check(std::max({M, N, K}) <= std::numeric_limits<blasint>::max(), "matmul: ", out,
        " has an extent beyond the BLAS's integer");
}

void Product::tile(const Tile& t, float beta, float* to, int64_t stride, float* scratch) const {
  if (K == 0 && beta == 0.0F)
    for (int64_t r = 0; r < t.rows; ++r) std::fill_n(to + r * stride, t.cols, 0.0F);
  const int64_t a_stride = a_cols, b_stride = b_transposed_ ? K : N;
  const int64_t depth = converts() ? kTileK : K;
  with_number_type(a_.dtype, [&]<class A>(A) {
    with_number_type(b_.dtype, [&]<class B>(B) {
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

namespace {

/// out = or += the product, in f32; `scratch` has kScratch elements for each thread where the product
/// converts its operands.
void multiply_into(const Cpu& cpu, const Tensor& out, const Product& product, Write write, float* scratch) {
  float* to = out.ptr<float>();
  product.each_tile(cpu.threads, [&](const Tile& t) {
    float* mine = scratch ? scratch + thread_index() * Cpu::kScratch : nullptr;
    product.tile(t, write == Write::add ? 1.0F : 0.0F, to + (t.i * product.M + t.m) * product.N + t.n,
                 product.N, mine);
  });
}

}  // namespace

void Matmul::run(Cpu& cpu) const {
  const Product product(out, a, b, op, cpu.tf32());
  float* all_scratch = product.converts() ? cpu.scratch(kName) : nullptr;
  if (out.dtype == DType::f32) return multiply_into(cpu, out, product, write, all_scratch);
  const bool add = write == Write::add;
  with_float_type(out.dtype, [&]<class T>(T) {
    const auto fout = floats<T>(out);
    product.each_row(cpu.threads, all_scratch, [&](int64_t first, int64_t cols, const float* row) {
      const auto to = fout + first;
      STEPLADDER_SIMD
      for (int64_t c = 0; c < cols; ++c) to.set(c, add ? to[c] + row[c] : row[c]);
    });
  });
}

void Sgemm::run(Cpu& cpu) const {
  multiply_into(cpu, out, Product(out, a, b, op, /*tf32=*/false), write, nullptr);
}

void MatmulAdd::run(Cpu& cpu) const {
  const Product product(out, a, b, op, cpu.tf32());
  float* scratch = cpu.scratch(kName);
  with_float_type(out.dtype, [&]<class T>(T) {
    const auto fout = floats<T>(out), faddend = floats<T>(addend);
    product.each_row(cpu.threads, scratch, [&](int64_t first, int64_t cols, const float* row) {
      STEPLADDER_SIMD
      for (int64_t c = 0; c < cols; ++c) fout.set(first + c, alpha * row[c] + beta * faddend[first + c]);
    });
  });
}

void SymmetricMatmul::run(Cpu& cpu) const {
  run_whole(cpu);
}

}  // namespace stepladder
