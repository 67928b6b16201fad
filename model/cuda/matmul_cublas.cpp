// Matrix multiplication through cuBLAS.
#include "model/cuda/cuda_ops.h"
#include "model/cuda/matmul_plans.h"
#include "model/cuda/range.h"

namespace stepladder {

void CudaOps::set_matmul_precision(Precision precision) {
  const bool tf32 = precision == Precision::tf32 && compute_capability_ >= 80;
  compute_type_ = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

void CudaOps::matmul(Tensor out, Tensor a, Tensor b, MatOp op, Write write) {
  const Range range("matmul");
  const auto fits = [&](bool ok) {
    check(ok, "matmul ",
          op == MatOp::NN   ? "NN"
          : op == MatOp::NT ? "NT"
                            : "TN",
          ": ", out, " of ", a, " and ", b);
  };
  fits(a.dtype == out.dtype && b.dtype == out.dtype);
  fits(out.shape.rank() >= 2 && a.shape.rank() >= 2 && b.shape.rank() >= 2);

  // Matrices as stored, and how many of them.
  int64_t batch = 1;
  if ((op == MatOp::TN ? out : b).shape.rank() > 2) {
    fits(a.shape.rank() == out.shape.rank() && b.shape.rank() == out.shape.rank());
    for (int i = 0; i < out.shape.rank() - 2; ++i) {
      fits(a.shape[i] == out.shape[i] && b.shape[i] == out.shape[i]);
      batch *= out.shape[i];
    }
  }
  if (out.numel() == 0) return;
  const int64_t M = out.rows() / batch, N = out.cols();
  const int64_t a_rows = a.rows() / batch, b_rows = b.rows() / batch;
  const int64_t K = op == MatOp::TN ? a_rows : a.cols();
  fits(K > 0 && (op == MatOp::TN ? a.cols() : a_rows) == M);
  fits(op == MatOp::NT ? b_rows == N && b.cols() == K : b_rows == K && b.cols() == N);

  // cuBLAS stores columns first, so it sees every matrix transposed: out^T = op(b)^T op(a)^T.
  const cublasOperation_t op_b = op == MatOp::NT ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t op_a = op == MatOp::TN ? CUBLAS_OP_T : CUBLAS_OP_N;
  const float alpha = 1.0F, beta = write == Write::add ? 1.0F : 0.0F;
  const auto gemm = [&] {
    if (batch == 1) {
      CUBLAS_CHECK(cublasGemmEx_64(blas_.get(), op_b, op_a, N, M, K, &alpha, b.ptr<float>(), CUDA_R_32F,
                                   b.cols(), a.ptr<float>(), CUDA_R_32F, a.cols(), &beta, out.ptr<float>(),
                                   CUDA_R_32F, N, compute_type_, CUBLAS_GEMM_DEFAULT));
    } else {
      CUBLAS_CHECK(cublasGemmStridedBatchedEx_64(
          blas_.get(), op_b, op_a, N, M, K, &alpha, b.ptr<float>(), CUDA_R_32F, b.cols(), b_rows * b.cols(),
          a.ptr<float>(), CUDA_R_32F, a.cols(), a_rows * a.cols(), &beta, out.ptr<float>(), CUDA_R_32F, N,
          M * N, batch, compute_type_, CUBLAS_GEMM_DEFAULT));
    }
  };

  // cuBLAS chooses well; a search may find better in cuBLASLt.
  const LtMatmul product(matmul_key(op_b, op_a, N, M, K, batch, out.dtype, write), b.data, a.data, out.data);
  const Way ways[] = {{"gemm", {}, gemm}, {"lt", product, {}}};
  matmul_plans_->perform(product, ways);
}

}  // namespace stepladder
