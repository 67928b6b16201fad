// Matrix multiplication through cuBLAS.
#include "model/cuda/cuda_ops.h"
#include "model/cuda/matmul_plans.h"
#include "model/cuda/matmul_shape.h"
#include "model/cuda/range.h"

namespace stepladder {
namespace {

/// Elements by which the rows of logits are longer than the vocabulary.
int64_t padding_of(const MatmulShape& s, MatOp op) {
  return op == MatOp::NT ? s.out_cols - s.N : s.a_cols - (op == MatOp::NN ? s.K : s.M);
}

}  // namespace

struct CudaOps::MatmulOperands {
  const void *a, *b;
  void* out;
  DType dtype, out_dtype;
};

void CudaOps::set_matmul_precision(Precision precision) {
  const bool tf32 = precision == Precision::tf32 && compute_capability_ >= 80;
  compute_type_ = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

void CudaOps::matmul(Tensor out, Tensor a, Tensor b, MatOp op, Write write) {
  const Range range("matmul");
  if (is_fp8(a.dtype)) {
    check(op == MatOp::NT && b.shape.rank() == 2, "matmul: ", out, " of ", a, " and ", b,
          ": FP8 is NT of a matrix");
    const LtMatmul product = fp8_product("matmul", out, a, b, write);
    const Way ways[] = {{"lt", product, {}}};
    return matmul_plans_->perform(product, ways);
  }
  check(a.dtype == b.dtype && (out.dtype == a.dtype || out.dtype == DType::f32), "matmul: ", out, " of ", a,
        " and ", b);
  if (out.numel() == 0) return;
  const MatmulShape s = matmul_shape(out, a, b, op);
  const MatmulOperands operands{a.data, b.data, out.data, a.dtype, out.dtype};

  // Tensor cores want extents of whole 16-byte words: GPT-2's vocabulary is one too long for that. Where rows
  // are padded, so that its words are aligned, the odd end is a small product of its own.
  const int64_t V = op == MatOp::NT ? s.N : op == MatOp::NN ? s.K : s.M;
  const int64_t odd = padding_of(s, op) > 0 && size_of(a.dtype) == 2 && out.dtype == a.dtype ? V % 8 : 0,
                even = V - odd;
  if (odd == 0 || even == 0) return multiply(s, operands, op, write);

  const auto at = [](void* data, int64_t elements) { return static_cast<std::byte*>(data) + 2 * elements; };
  MatmulShape bulk = s, rest = s;
  MatmulOperands tail = operands;
  if (op == MatOp::NT) {  // columns of out, rows of b
    bulk.N = even, rest.N = odd;
    tail.b = at(b.data, even * s.b_cols), tail.out = at(out.data, even);
  } else if (op == MatOp::NN) {  // terms of the sum
    bulk.K = even, rest.K = odd;
    tail.a = at(a.data, even), tail.b = at(b.data, even * s.b_cols);
  } else {  // rows of out, columns of a
    bulk.M = even, rest.M = odd;
    tail.a = at(a.data, even), tail.out = at(out.data, even * s.out_cols);
  }
  multiply(bulk, operands, op, write);
  multiply(rest, tail, op, op == MatOp::NN ? Write::add : write);
}

void CudaOps::multiply(const MatmulShape& s, const MatmulOperands& x, MatOp op, Write write) {
  MatmulKey key = matmul_key(s.op_b, s.op_a, s.N, s.M, s.K, s.batch, x.dtype, write);
  key.b_padding = s.a_cols - (op == MatOp::TN ? s.M : s.K);
  key.d_padding = s.out_cols - s.N;
  const cudaDataType_t type = cuda_type(x.dtype), out_type = cuda_type(x.out_dtype);
  const float alpha = 1.0F, beta = write == Write::add ? 1.0F : 0.0F;
  const auto gemm = [&] {
    if (s.batch == 1) {
      CUBLAS_CHECK(cublasGemmEx_64(blas_.get(), s.op_b, s.op_a, s.N, s.M, s.K, &alpha, x.b, type, s.b_cols,
                                   x.a, type, s.a_cols, &beta, x.out, out_type, s.out_cols, key.compute,
                                   CUBLAS_GEMM_DEFAULT));
    } else {
      CUBLAS_CHECK(cublasGemmStridedBatchedEx_64(blas_.get(), s.op_b, s.op_a, s.N, s.M, s.K, &alpha, x.b,
                                                 type, s.b_cols, s.b_rows * s.b_cols, x.a, type, s.a_cols,
                                                 s.a_rows * s.a_cols, &beta, x.out, out_type, s.N, s.M * s.N,
                                                 s.batch, key.compute, CUBLAS_GEMM_DEFAULT));
    }
  };
  if (x.out_dtype != x.dtype) return gemm();

  // cuBLAS chooses well; a search may find better in cuBLASLt.
  const LtMatmul product(key, x.b, x.a, x.out);
  const Way ways[] = {{"gemm", {}, gemm}, {"lt", product, {}}};
  matmul_plans_->perform(product, ways);
}

}  // namespace stepladder
