// What a matmul of the contract is to cuBLAS and cuBLASLt.
#pragma once

#include <cublas_v2.h>

#include <cstdint>

#include "model/ops.h"

namespace stepladder {

/// `batch` products of (M,K) and (K,N). Rows of a and out may be padded. cuBLAS stores columns first, so it
/// sees every matrix transposed: out^T (N,M) = op(b)^T op(a)^T. Its first operand is b, its second a, its m,
/// n, k are N, M, K, and every leading dimension is a row length here.
struct MatmulShape {
  int64_t batch = 1, M = 0, N = 0, K = 0;
  int64_t a_rows = 0, a_cols = 0, b_rows = 0, b_cols = 0, out_cols = 0;  // of one matrix as stored
  cublasOperation_t op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N;
};

/// Throws std::invalid_argument where shapes do not fit. `out` is not empty.
inline MatmulShape matmul_shape(const Tensor& out, const Tensor& a, const Tensor& b, MatOp op) {
  const auto fits = [&](bool ok) {
    check(ok, "matmul ",
          op == MatOp::NN   ? "NN"
          : op == MatOp::NT ? "NT"
                            : "TN",
          ": ", out, " of ", a, " and ", b);
  };
  fits(out.shape.rank() >= 2 && a.shape.rank() >= 2 && b.shape.rank() >= 2);

  MatmulShape s;
  if ((op == MatOp::TN ? out : b).shape.rank() > 2) {
    fits(a.shape.rank() == out.shape.rank() && b.shape.rank() == out.shape.rank());
    for (int i = 0; i < out.shape.rank() - 2; ++i) {
      fits(a.shape[i] == out.shape[i] && b.shape[i] == out.shape[i]);
      s.batch *= out.shape[i];
    }
  }
  s.a_rows = a.rows() / s.batch, s.a_cols = a.cols();
  s.b_rows = b.rows() / s.batch, s.b_cols = b.cols();
  s.out_cols = out.cols();
  s.M = out.rows() / s.batch, s.N = op == MatOp::NT ? s.b_rows : s.b_cols;
  s.K = op == MatOp::TN ? s.a_rows : op == MatOp::NT ? s.a_cols : s.b_rows;
  fits(s.K > 0 && s.out_cols >= s.N && (op == MatOp::NT || s.out_cols == s.N));
  fits(op == MatOp::TN ? s.a_cols >= s.M : s.a_rows == s.M && s.a_cols >= s.K);
  fits(op == MatOp::NT ? s.b_cols == s.K : s.b_rows == s.K);
  fits(s.batch == 1 || (s.out_cols == s.N && s.a_cols == (op == MatOp::TN ? s.M : s.K)));
  s.op_a = op == MatOp::TN ? CUBLAS_OP_T : CUBLAS_OP_N;
  s.op_b = op == MatOp::NT ? CUBLAS_OP_T : CUBLAS_OP_N;
  return s;
}

/// Throws std::invalid_argument for i32.
inline cudaDataType_t cuda_type(DType t) {
  check(t != DType::i32, "i32, wanted a floating type");
  if (is_fp8(t)) return t == DType::f8e4m3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
  return t == DType::bf16 ? CUDA_R_16BF : t == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

}  // namespace stepladder
