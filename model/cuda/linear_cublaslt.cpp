// Linear layers with what surrounds them in one matmul, as cuBLASLt's epilogues; the project's own kernels do
// what cuBLASLt has no algorithm for, or does slower.
//
// cuBLASLt stores columns first, so it sees every matrix transposed: x (N,Cin) is its (Cin,N).
#include <vector>

#include "model/cuda/cuda_ops.h"
#include "model/cuda/matmul_plans.h"
#include "model/cuda/range.h"

namespace stepladder {
namespace {

/// out (N,Cout) and x (N,Cin) fit w (Cout,Cin).
void check_linear(const char* op, const Tensor& out, const Tensor& x, const Tensor& w) {
  check(w.shape.rank() == 2 && w.numel() > 0 && x.rows() > 0 && x.cols() == w.shape[1] &&
            out.cols() == w.shape[0] && out.rows() == x.rows() &&
            (is_fp8(x.dtype) || (out.dtype == w.dtype && x.dtype == w.dtype)),
        op, ": ", out, " and ", x, " beside ", w);
}

void check_bias(const char* op, const Tensor& bias, const Tensor& x) {
  check(bias.numel() == x.cols() && bias.dtype == x.dtype, op, ": ", bias, " for the columns of ", x);
}

void check_like(const char* op, const Tensor& x, const Tensor& like) {
  check(x.shape == like.shape && x.dtype == like.dtype, op, ": ", x, " beside ", like);
}

}  // namespace

MatmulKey CudaOps::matmul_key(cublasOperation_t op_a, cublasOperation_t op_b, int64_t m, int64_t n, int64_t k,
                              int64_t batch, DType dtype, Write write) const {
  if (dtype == DType::bf16 && compute_capability_ < 80)
    throw UnsupportedError(
        cat("bf16 needs sm_80, this device is sm_", compute_capability_, ": use --dtype fp16"));
  return {.op_a = op_a,
          .op_b = op_b,
          .m = m,
          .n = n,
          .k = k,
          .batch = batch,
          .dtype = dtype,
          .compute = dtype == DType::f32 ? compute_type_ : CUBLAS_COMPUTE_32F,
          .write = write};
}

LtMatmul CudaOps::fp8_product(const char* op, const Tensor& out, const Tensor& a, const Tensor& b,
                              Write write) const {
  constexpr int64_t kMultiple = 16;  // of each extent; cuBLASLt wants both operands along K
  constexpr uintptr_t kWideBytes = 16;
  const int64_t M = a.rows(), N = b.rows(), K = a.cols();
  check(is_fp8(a.dtype) && is_fp8(b.dtype) && (a.dtype == DType::f8e4m3 || b.dtype == DType::f8e4m3) &&
            a.scale && b.scale && size_of(out.dtype) == 2 && b.cols() == K && out.rows() == M &&
            out.cols() == N,
        op, ": ", out, " of ", a, " and ", b);
  check(M % kMultiple == 0 && N % kMultiple == 0 && K % kMultiple == 0, op, ": ", a, " and ", b,
        ": FP8 needs extents that are multiples of ", kMultiple, ": choose another --batch or --seq");
  for (const Tensor& x : {a, b})
    check(reinterpret_cast<uintptr_t>(x.scale) % kWideBytes == 0, op, ": the scale of ", x, " is not on ",
          kWideBytes, " bytes, as cuBLASLt wants it");
  if (compute_capability_ < 89)
    throw UnsupportedError(cat("FP8 needs sm_89, this device is sm_", compute_capability_));
  MatmulKey key = matmul_key(CUBLAS_OP_T, CUBLAS_OP_N, N, M, K, 1, out.dtype, write);
  key.a_type = b.dtype, key.b_type = a.dtype;
  LtMatmul product(key, b.data, a.data, out.data);
  product.a_scale = b.scale, product.b_scale = a.scale;
  return product;
}

Tensor CudaOps::epilogue_gradient(Tensor db, Write write) const {
  if (write == Write::set) return db;
  const bool fits = partials_.data && db.bytes() <= partials_.bytes();
  return {fits ? partials_.data : nullptr, db.dtype, db.shape, db.name};
}

void CudaOps::linear_forward(Tensor out, Tensor x, Tensor w, Tensor b, Tensor residual) {
  const Range range("linear_forward");
  check_linear("linear_forward", out, x, w);
  check_bias("linear_forward", b, out);
  if (residual.data) check_like("linear_forward", residual, out);
  const LtMatmul product = is_fp8(x.dtype)
                               ? fp8_product("linear_forward", out, x, w, Write::set)
                               : LtMatmul(matmul_key(CUBLAS_OP_T, CUBLAS_OP_N, out.cols(), out.rows(),
                                                     x.cols(), 1, out.dtype, Write::set),
                                          w.data, x.data, out.data);
  const LtMatmul fused =
      (residual.data ? product.plus(residual.data) : product).with(CUBLASLT_EPILOGUE_BIAS, b.data);
  const Way ways[] = {{"bias", fused, {}}, {"separate", {}, [&] {
                                              if (residual.data && residual.data != out.data)
                                                copy(out, residual);
                                              matmul(out, x, w, MatOp::NT,
                                                     residual.data ? Write::add : Write::set);
                                              add_columns(out, out, b);
                                            }}};
  matmul_plans_->perform(fused, ways);
}

void CudaOps::linear_gelu_forward(Tensor out, Tensor pre, Tensor x, Tensor w, Tensor b) {
  const Range range("linear_gelu_forward");
  check_linear("linear_gelu_forward", out, x, w);
  check_like("linear_gelu_forward", pre, out);
  check_bias("linear_gelu_forward", b, out);
  const LtMatmul product(
      matmul_key(CUBLAS_OP_T, CUBLAS_OP_N, out.cols(), out.rows(), x.cols(), 1, out.dtype, Write::set),
      w.data, x.data, out.data);
  const LtMatmul biased = product.with(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, b.data, pre.data);
  const Way ways[] = {{"gelu_aux_bias", biased, {}}, {"separate", {}, [&] {
                                                        matmul(pre, x, w, MatOp::NT, Write::set);
                                                        bias_gelu_forward(out, pre, b);
                                                      }}};
  matmul_plans_->perform(biased, ways);
}

void CudaOps::linear_gelu_backward(Tensor dpre, Tensor db, Tensor dout, Tensor w, Tensor pre, Write write) {
  const Range range("linear_gelu_backward");
  check_linear("linear_gelu_backward", dout, dpre, w);
  check_like("linear_gelu_backward", pre, dpre);
  check_bias("linear_gelu_backward", db, dpre);
  const LtMatmul product(
      matmul_key(CUBLAS_OP_N, CUBLAS_OP_N, dpre.cols(), dpre.rows(), dout.cols(), 1, dpre.dtype, Write::set),
      w.data, dout.data, dpre.data);
  LtMatmul request = product.with(CUBLASLT_EPILOGUE_DGELU_BGRAD, db.data, pre.data);
  request.key.write = write;

  std::vector<Way> ways;
  const Tensor gradient = epilogue_gradient(db, write);
  if (gradient.data)
    ways.push_back({"dgelu_bgrad", product.with(CUBLASLT_EPILOGUE_DGELU_BGRAD, gradient.data, pre.data), [&] {
                      if (write == Write::add) add(db, db, gradient);
                    }});
  ways.push_back({"dgelu", product.with(CUBLASLT_EPILOGUE_DGELU, nullptr, pre.data),
                  [&] { sum_rows_into(db, dpre, write); }});
  ways.push_back({"separate", {}, [&] {
                    matmul(dpre, dout, w, MatOp::NN, Write::set);
                    gelu_backward(dpre, dpre, pre);
                    sum_rows_into(db, dpre, write);
                  }});
  matmul_plans_->perform(request, ways);
}

void CudaOps::linear_weight_backward(Tensor dw, Tensor db, Tensor dout, Tensor x, Write write) {
  const Range range("linear_weight_backward");
  check_linear("linear_weight_backward", dout, x, dw);
  check_bias("linear_weight_backward", db, dout);
  // dw^T (Cin,Cout) = x^T dout: what is summed over the rows of dout is cuBLASLt's B.
  const LtMatmul product(
      matmul_key(CUBLAS_OP_N, CUBLAS_OP_T, x.cols(), dout.cols(), x.rows(), 1, dw.dtype, write), x.data,
      dout.data, dw.data);

  std::vector<Way> ways;
  const Tensor gradient = epilogue_gradient(db, write);
  if (gradient.data)
    ways.push_back({"bgradb", product.with(CUBLASLT_EPILOGUE_BGRADB, gradient.data), [&] {
                      if (write == Write::add) add(db, db, gradient);
                    }});
  ways.push_back({"separate", {}, [&] {
                    matmul(dw, dout, x, MatOp::TN, write);
                    sum_rows_into(db, dout, write);
                  }});
  matmul_plans_->perform(product.with(CUBLASLT_EPILOGUE_BGRADB, db.data), ways);
}

}  // namespace stepladder
