// Matrix multiplication through cuBLAS.
#include "model/cuda/cuda_ops.h"
#include "model/cuda/matmul_plans.h"
#include "model/cuda/matmul_shape.h"
#include "model/cuda/range.h"

namespace stepladder {

void CudaOps::set_matmul_precision(Precision precision) {
  const bool tf32 = precision == Precision::tf32 && compute_capability_ >= 80;
  compute_type_ = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

void CudaOps::matmul(Tensor out, Tensor a, Tensor b, MatOp op, Write write) {
  const Range range("matmul");
  check(a.dtype == b.dtype && (out.dtype == a.dtype || out.dtype == DType::f32), "matmul: ", out, " of ", a,
        " and ", b);
  const cudaDataType_t type = cuda_type(a.dtype), out_type = cuda_type(out.dtype);
  if (out.numel() == 0) return;

  const MatmulShape s = matmul_shape(out, a, b, op);
  MatmulKey key = matmul_key(s.op_b, s.op_a, s.N, s.M, s.K, s.batch, a.dtype, write);
  key.b_padding = s.a_cols - (op == MatOp::TN ? s.M : s.K);
  key.d_padding = s.out_cols - s.N;
  const float alpha = 1.0F, beta = write == Write::add ? 1.0F : 0.0F;
  const auto gemm = [&] {
    if (s.batch == 1) {
      CUBLAS_CHECK(cublasGemmEx_64(blas_.get(), s.op_b, s.op_a, s.N, s.M, s.K, &alpha, b.data, type, s.b_cols,
                                   a.data, type, s.a_cols, &beta, out.data, out_type, s.out_cols, key.compute,
                                   CUBLAS_GEMM_DEFAULT));
    } else {
      CUBLAS_CHECK(cublasGemmStridedBatchedEx_64(blas_.get(), s.op_b, s.op_a, s.N, s.M, s.K, &alpha, b.data,
                                                 type, s.b_cols, s.b_rows * s.b_cols, a.data, type, s.a_cols,
                                                 s.a_rows * s.a_cols, &beta, out.data, out_type, s.N,
                                                 s.M * s.N, s.batch, key.compute, CUBLAS_GEMM_DEFAULT));
    }
  };
  if (out.dtype != a.dtype) return gemm();

  // cuBLAS chooses well; a search may find better in cuBLASLt.
  const LtMatmul product(key, b.data, a.data, out.data);
  const Way ways[] = {{"gemm", {}, gemm}, {"lt", product, {}}};
  matmul_plans_->perform(product, ways);
}

}  // namespace stepladder
