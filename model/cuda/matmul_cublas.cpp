// Matrix multiplication through cuBLAS.
#include "model/cuda/cuda.h"
#include "model/cuda/matmul_plans.h"

namespace stepladder {
namespace {

/// Elements by which the rows of logits are longer than the vocabulary.
int64_t padding_of(const MatmulShape& s, MatOp op) {
  return op == MatOp::NT ? s.out_cols - s.N : s.a_cols - (op == MatOp::NN ? s.K : s.M);
}

struct MatmulOperands {
  const void *a, *b;
  void* out;
  DType dtype, out_dtype;
};

/// One product by cuBLAS or, where a search found it faster, cuBLASLt. cuBLAS stores columns first, so it
/// sees every matrix transposed: out^T (N,M) = op(b)^T op(a)^T. Its first operand is b, its second a, its m,
/// n, k are N, M, K, and every leading dimension is a row length here.
void multiply(Cuda& cuda, const MatmulShape& s, const MatmulOperands& x, MatOp op, Write write) {
  const cublasOperation_t op_a = op == MatOp::TN ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t op_b = op == MatOp::NT ? CUBLAS_OP_T : CUBLAS_OP_N;
  MatmulKey key = cuda.matmul_key(op_b, op_a, s.N, s.M, s.K, s.batch, x.dtype, write);
  key.b_padding = s.a_cols - (op == MatOp::TN ? s.M : s.K);
  key.d_padding = s.out_cols - s.N;
  const cudaDataType_t type = cuda_type(x.dtype), out_type = cuda_type(x.out_dtype);
  const float alpha = 1.0F, beta = write == Write::add ? 1.0F : 0.0F;
  const auto gemm = [&] {
    if (s.batch == 1) {
      CUBLAS_CHECK(cublasGemmEx_64(cuda.blas.get(), op_b, op_a, s.N, s.M, s.K, &alpha, x.b, type, s.b_cols,
                                   x.a, type, s.a_cols, &beta, x.out, out_type, s.out_cols, key.compute,
                                   CUBLAS_GEMM_DEFAULT));
    } else {
      CUBLAS_CHECK(cublasGemmStridedBatchedEx_64(cuda.blas.get(), op_b, op_a, s.N, s.M, s.K, &alpha, x.b,
                                                 type, s.b_cols, s.b_rows * s.b_cols, x.a, type, s.a_cols,
                                                 s.a_rows * s.a_cols, &beta, x.out, out_type, s.N, s.M * s.N,
                                                 s.batch, key.compute, CUBLAS_GEMM_DEFAULT));
    }
  };
  if (x.out_dtype != x.dtype) return gemm();

  // cuBLAS chooses well; a search may find better in cuBLASLt.
  const LtMatmul product(key, x.b, x.a, x.out);
  const MatmulStrategy strategies[] = {{"gemm", {}, gemm}, {"lt", product, {}}};
  cuda.matmul_plans->perform(product, strategies);
}

}  // namespace

void Cuda::set_matmul_precision(Precision precision) {
  const bool tf32 = precision == Precision::tf32 && compute_capability >= 80;
  compute_type_ = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

void Matmul::run(Cuda& cuda) const {
  if (is_fp8(a.dtype)) {
    const LtMatmul product = cuda.fp8_product(kName, out, a, b, write);
    const MatmulStrategy strategies[] = {{"lt", product, {}}};
    return cuda.matmul_plans->perform(product, strategies);
  }
  if (out.numel() == 0) return;
  const MatmulShape s = matmul_shape(out, a, b, op);
  const MatmulOperands operands{a.data, b.data, out.data, a.dtype, out.dtype};

  // Tensor cores want extents of whole 16-byte words: GPT-2's vocabulary is one too long for that. Where rows
  // are padded, so that its words are aligned, the odd end is a small product of its own.
  const int64_t V = op == MatOp::NT ? s.N : op == MatOp::NN ? s.K : s.M;
  const int64_t odd = padding_of(s, op) > 0 && size_of(a.dtype) == 2 && out.dtype == a.dtype ? V % 8 : 0,
                even = V - odd;
  if (odd == 0 || even == 0) return multiply(cuda, s, operands, op, write);

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
  multiply(cuda, bulk, operands, op, write);
  multiply(cuda, rest, tail, op, op == MatOp::NN ? Write::add : write);
}

}  // namespace stepladder
