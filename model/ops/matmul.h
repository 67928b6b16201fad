// Matrix products, alone and as linear layers with bias, GELU or residual; x (N,Cin), w (Cout,Cin), b (Cout).
#pragma once

#include "model/ops/op.h"

namespace stepladder {

/// How Matmul reads its operands: N as stored, T transposed.
enum class MatOp { NN, NT, TN };
const char* name_of(MatOp op);
/// Precision of f32 products: full fp32, or inputs rounded to TF32's 10-bit mantissa with f32 accumulation.
enum class Precision { fp32, tf32 };

/// `batch` products of (M,K) and (K,N), and the rows and columns of a and b as they are stored.
struct MatmulShape {
  int64_t batch = 1, M = 0, N = 0, K = 0;
  int64_t a_rows = 0, a_cols = 0, b_rows = 0, b_cols = 0;
  bool fits = false;  // whether shapes and types fit together
};
/// The MatmulShape of Matmul's operands.
MatmulShape matmul_shape(const Tensor& out, const Tensor& a, const Tensor& b, MatOp op);

/// Work of out = or += op(a) op(b), with `read` and `written` as further operands.
Work matmul_work(const Tensor& out, const Tensor& a, const Tensor& b, MatOp op, Write write,
                 std::vector<Operand> read = {}, std::vector<Operand> written = {});

/// out = or += op(a) op(b). NN: (M,K)(K,N); NT: (M,K)(N,K)^T; TN: (K,M)^T(K,N); out (M,N).
/// If b (TN: out) has rank 2, the leading dimensions of the others are flattened into rows; otherwise all
/// leading dimensions are a batch and must agree. 16-bit operands are multiplied exactly and accumulated in
/// f32; out has their type or is f32; += may round the product to out's type before it is added, as cuBLAS
/// does. FP8 operands, at least one of them f8e4m3, stand for element * *scale and give an out of 16 bits or
/// f32; NT of rank-2 b only. On CUDA they need sm_89, scales aligned to 16 bytes, and M, N and K that are
/// multiples of 16.
struct Matmul {
  static constexpr const char* kName = "matmul";
  Tensor out, a, b;
  MatOp op;
  Write write = Write::set;
  void check() const { expect(*this, matmul_shape(out, a, b, op).fits, name_of(op)); }
  Work work() const { return matmul_work(out, a, b, op, write); }
  void run(Cpu&) const, run(Cuda&) const;
};

/// Matmul of f32, in full precision, by a kernel of this project where Matmul calls a library: it needs none.
struct Sgemm {
  static constexpr const char* kName = "sgemm";
  Tensor out, a, b;
  MatOp op;
  Write write = Write::set;
  void check() const { expect(*this, all_f32(out, a, b) && matmul_shape(out, a, b, op).fits, name_of(op)); }
  Work work() const { return matmul_work(out, a, b, op, write); }
  void run(Cpu&) const, run(Cuda&) const;
};

/// out = alpha * op(a) op(b) + beta * addend, rounded once; shapes as Matmul's, addend's as out's; out must
/// not be an operand. Not for FP8.
struct MatmulAdd {
  static constexpr const char* kName = "matmul_add";
  Tensor out, a, b;
  MatOp op;
  Tensor addend;
  float alpha, beta;
  void check() const {
    expect(*this,
           one_float_type(a) && matmul_shape(out, a, b, op).fits && alike(out, addend) &&
               (out.data != addend.data || !present(out)),
           name_of(op));
  }
  Work work() const { return matmul_work(out, a, b, op, Write::set, {addend}); }
  void run(Cpu&) const, run(Cuda&) const;
};

/// out (S,S) = a a^T (NT) or a^T a (TN), or with an addend (S,S), alpha times that + beta * addend, rounded
/// once; types and leading dimensions as Matmul's. The addend must be symmetric: a backend may read only half
/// of it. out must not be an operand. Not for FP8.
struct SymmetricMatmul {
  static constexpr const char* kName = "symmetric_matmul";
  Tensor out, a;
  MatOp op;
  Tensor addend = {};
  float alpha = 1.0F, beta = 0.0F;
  void check() const {
    expect(*this,
           op != MatOp::NN && one_float_type(a) && matmul_shape(out, a, a, op).fits &&
               (present(addend) ? alike(out, addend) : alpha == 1.0F) &&
               ((out.data != a.data && out.data != addend.data) || !present(out)),
           name_of(op));
  }
  /// FLOPs are those of the half that determines the rest, the diagonal included.
  Work work() const {
    Work work = matmul_work(out, a, a, op, Write::set, {addend});
    work.flops = static_cast<double>(a.numel()) * static_cast<double>(out.cols() + 1);
    return work;
  }
  /// Computes both halves.
  template <class Backend>
  void run_whole(Backend& backend) const {
    present(addend) ? MatmulAdd{out, a, a, op, addend, alpha, beta}.run(backend)
                    : Matmul{out, a, a, op}.run(backend);
  }
  void run(Cpu&) const, run(Cuda&) const;
};

/// Whether out (N,Cout) and x (N,Cin) fit w (Cout,Cin) and b (Cout); with FP8 operands, out has 16 bits.
inline bool linear_fits(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& b) {
  return w.shape.rank() == 2 && one_per_column(out, b) && (size_of(out.dtype) == 2 || !is_fp8(x.dtype)) &&
         matmul_shape(out, x, w, MatOp::NT).fits;
}

/// out (N,Cout) = residual (N,Cout; empty: none) + x w^T + b; x and w may be FP8 as Matmul's are, residual
/// may be out.
struct LinearForward {
  static constexpr const char* kName = "linear_forward";
  Tensor out, x, w, b, residual = {};
  void check() const {
    expect(*this, linear_fits(out, x, w, b) && (out.dtype == x.dtype || is_fp8(x.dtype)) &&
                      (!present(residual) || alike(out, residual)));
  }
  Work work() const { return matmul_work(out, x, w, MatOp::NT, Write::set, {b, residual}); }
  void run(Cpu&) const, run(Cuda&) const;
};

/// pre (N,Cout) = x w^T + b, out = gelu(pre), tanh form.
struct LinearGeluForward {
  static constexpr const char* kName = "linear_gelu_forward";
  Tensor out, pre, x, w, b;
  void check() const {
    expect(*this, linear_fits(out, x, w, b) && alike(out, pre) && one_float_type(out, x));
  }
  Work work() const { return matmul_work(pre, x, w, MatOp::NT, Write::set, {b}, {out}); }
  void run(Cpu&) const, run(Cuda&) const;
};

/// dpre (N,Cin) = gelu'(pre) * (dout w), dout (N,Cout), and db (Cin) = or += sum_n dpre. db is of dpre's type
/// or f32; the sum may be rounded to dpre's type before it is added, as cuBLASLt does.
struct LinearGeluBackward {
  static constexpr const char* kName = "linear_gelu_backward";
  Tensor dpre, db, dout, w, pre;
  Write write;
  void check() const {
    expect(*this, alike(dpre, pre) && one_float_type(dpre, dout) && w.shape.rank() == 2 &&
                      sums_per_column(dpre, db) && matmul_shape(dpre, dout, w, MatOp::NN).fits);
  }
  Work work() const {
    Work work = matmul_work(dpre, dout, w, MatOp::NN, Write::set, {pre}, {db});
    if (write == Write::add) work.read.emplace_back(db);
    return work;
  }
  void run(Cpu&) const, run(Cuda&) const;
};

/// dw (Cout,Cin) = or += dout^T x, db (Cout) = or += sum_n dout; both of dout's type, or f32.
struct LinearWeightBackward {
  static constexpr const char* kName = "linear_weight_backward";
  Tensor dw, db, dout, x;
  Write write;
  void check() const {
    expect(*this, dw.shape.rank() == 2 && sums_per_column(dout, db) && db.dtype == dw.dtype &&
                      matmul_shape(dw, dout, x, MatOp::TN).fits);
  }
  Work work() const {
    Work work = matmul_work(dw, dout, x, MatOp::TN, write, {}, {db});
    if (write == Write::add) work.read.emplace_back(db);
    return work;
  }
  void run(Cpu&) const, run(Cuda&) const;
};

}  // namespace stepladder
