// Matrix multiplication through cuBLAS.
#include "model/cuda/cuda.h"
#include "model/cuda/matmul_plans.h"

namespace stepladder {

void Cuda::set_matmul_precision(Precision precision) {
  const bool tf32 = precision == Precision::tf32 && compute_capability >= 80;
  compute_type_ = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

namespace {

/// out = alpha * op(a) op(b) + beta * out by cuBLAS. Every leading dimension is a row length here.
void gemm(Cuda& cuda, const LtMatmul& product, const Tensor& out, const Tensor& a, const Tensor& b, MatOp op,
          float alpha, float beta) {
  const MatmulKey& key = product.key;
  const MatmulShape s = matmul_shape(out, a, b, op);
  const cudaDataType_t type = cuda_type(a.dtype), out_type = cuda_type(out.dtype);
  if (s.batch == 1) {
    CUBLAS_CHECK(cublas().gemm(cuda.blas.get(), key.op_a, key.op_b, s.N, s.M, s.K, &alpha, b.data, type,
                               s.b_cols, a.data, type, s.a_cols, &beta, out.data, out_type, s.N, key.compute,
                               CUBLAS_GEMM_DEFAULT));
  } else {
    CUBLAS_CHECK(cublas().gemm_batched(cuda.blas.get(), key.op_a, key.op_b, s.N, s.M, s.K, &alpha, b.data,
                                       type, s.b_cols, s.b_rows * s.b_cols, a.data, type, s.a_cols,
                                       s.a_rows * s.a_cols, &beta, out.data, out_type, s.N, s.M * s.N,
                                       s.batch, key.compute, CUBLAS_GEMM_DEFAULT));
  }
}

}  // namespace

// Multiplies by cuBLAS or, where a search found it faster, by cuBLASLt.
void Matmul::run(Cuda& cuda) const {
  if (out.numel() == 0) return;
  const LtMatmul product = cuda.product(kName, out, a, b, op, write);
  if (is_fp8(a.dtype)) {
    const MatmulStrategy strategies[] = {{"lt", product, {}}};
    return cuda.matmul_plans->perform(product, strategies);
  }
  // cuBLAS chooses its algorithm well; a search may find a faster one in cuBLASLt.
  const MatmulStrategy strategies[] = {
      {"gemm", {}, [&] { gemm(cuda, product, out, a, b, op, 1.0F, write == Write::add ? 1.0F : 0.0F); }},
      {"lt", product, {}}};
  cuda.matmul_plans->perform(product, strategies);
}

// cuBLAS can add only to its own output; cuBLASLt can add to another matrix.
void MatmulAdd::run(Cuda& cuda) const {
  if (out.numel() == 0) return;
  LtMatmul product = cuda.product(kName, out, a, b, op, Write::add).plus(addend.data);
  product.alpha = alpha, product.beta = beta;
  const MatmulStrategy strategies[] = {{"lt", product, {}}, {"separate", {}, [&] {
                                                               Copy{out, addend}.run(cuda);
                                                               gemm(cuda, product, out, a, b, op, alpha,
                                                                    beta);
                                                             }}};
  cuda.matmul_plans->perform(product, strategies);
}

}  // namespace stepladder
