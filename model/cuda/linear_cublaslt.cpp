// Linear layers with bias, GELU and bias gradient in one matmul, as cuBLASLt's epilogues; the project's own
// kernels do what cuBLASLt has no algorithm for, or does slower.
//
// cuBLASLt is column-major, so it sees every matrix transposed: x (N,Cin) is its (Cin,N).
#include <vector>

#include "model/cuda/cuda.h"
#include "model/cuda/matmul_plans.h"

namespace stepladder {
namespace {

/// The tensor into which an epilogue writes a bias gradient. An epilogue only overwrites, in the type of its
/// product `out`: where db is added to or has another type, the tensor is scratch (1,C), which is then added
/// to db. Without data where scratch is too small.
Tensor epilogue_gradient(const Cuda& cuda, const Tensor& db, Write write, const Tensor& out) {
  if (write == Write::set && db.dtype == out.dtype) return db;
  Tensor scratch{nullptr, out.dtype, {1, db.numel()}, db.name};
  if (cuda.partials.data && scratch.bytes() <= cuda.partials.bytes()) scratch.data = cuda.partials.data;
  return scratch;
}

}  // namespace

LtMatmul Cuda::product(const char* op, const Tensor& out, const Tensor& a, const Tensor& b, MatOp how,
                       Write write) const {
  if (!blas) throw UnsupportedError(cat(op, " needs cuBLAS, which this trainer leaves closed: use sgemm"));
  const MatmulShape s = matmul_shape(out, a, b, how);
  const MatmulKey key{.op_a = how == MatOp::NT ? CUBLAS_OP_T : CUBLAS_OP_N,
                      .op_b = how == MatOp::TN ? CUBLAS_OP_T : CUBLAS_OP_N,
                      .m = s.N,
                      .n = s.M,
                      .k = s.K,
                      .batch = s.batch,
                      .dtype = out.dtype,
                      .compute = a.dtype == DType::f32 ? compute_type_ : CUBLAS_COMPUTE_32F,
                      .write = write,
                      .a_type = b.dtype,
                      .b_type = a.dtype};
  if (is_fp8(a.dtype)) {
    constexpr int64_t kMultiple = 16;  // extents are multiples of it; operands must be contiguous along K
    constexpr uintptr_t kWideBytes = 16;
    check(s.M % kMultiple == 0 && s.N % kMultiple == 0 && s.K % kMultiple == 0, op, ": ", a, " and ", b,
          ": FP8 needs extents that are multiples of ", kMultiple);
    for (const Tensor& x : {a, b})
      check(reinterpret_cast<uintptr_t>(x.scale) % kWideBytes == 0, op, ": the scale of ", x, " is not on ",
            kWideBytes, " bytes, as cuBLASLt wants it");
    if (compute_capability < 89)
      throw UnsupportedError(cat("FP8 needs sm_89, this device is sm_", compute_capability));
  } else if (a.dtype == DType::bf16 && compute_capability < 80) {
    throw UnsupportedError(
        cat("bf16 needs sm_80, this device is sm_", compute_capability, ": use --dtype fp16"));
  }
  LtMatmul product(key, b.data, a.data, out.data);
  product.a_scale = b.scale, product.b_scale = a.scale;
  return product;
}

void LinearForward::run(Cuda& cuda) const {
  const LtMatmul product = cuda.product(kName, out, x, w, MatOp::NT, Write::set);
  const LtMatmul fused =
      (residual.data ? product.plus(residual.data) : product).with(CUBLASLT_EPILOGUE_BIAS, b.data);
  const MatmulStrategy strategies[] = {
      {"bias", fused, {}}, {"separate", {}, [&] {
                              if (residual.data && residual.data != out.data) Copy{out, residual}.run(cuda);
                              Matmul{out, x, w, MatOp::NT, residual.data ? Write::add : Write::set}.run(cuda);
                              AddColumns{out, out, b}.run(cuda);
                            }}};
  cuda.matmul_plans->perform(fused, strategies);
}

void LinearGeluForward::run(Cuda& cuda) const {
  const LtMatmul product = cuda.product(kName, out, x, w, MatOp::NT, Write::set);
  const LtMatmul biased = product.with(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, b.data, pre.data);
  const MatmulStrategy strategies[] = {{"gelu_aux_bias", biased, {}},
                                       {"separate", {}, [&] {
                                          Matmul{pre, x, w, MatOp::NT, Write::set}.run(cuda);
                                          BiasGeluForward{out, pre, b}.run(cuda);
                                        }}};
  cuda.matmul_plans->perform(biased, strategies);
}

void LinearGeluBackward::run(Cuda& cuda) const {
  const LtMatmul product = cuda.product(kName, dpre, dout, w, MatOp::NN, Write::set);
  LtMatmul request = product.with(CUBLASLT_EPILOGUE_DGELU_BGRAD, db.data, pre.data);
  request.key.write = write;

  std::vector<MatmulStrategy> strategies;
  const Tensor gradient = epilogue_gradient(cuda, db, write, dpre);
  if (gradient.data)
    strategies.push_back(
        {"dgelu_bgrad", product.with(CUBLASLT_EPILOGUE_DGELU_BGRAD, gradient.data, pre.data), [&] {
           if (gradient.data != db.data) sum_rows_into(cuda, db, gradient, write);
         }});
  strategies.push_back({"dgelu", product.with(CUBLASLT_EPILOGUE_DGELU, nullptr, pre.data),
                        [&] { sum_rows_into(cuda, db, dpre, write); }});
  strategies.push_back({"separate", {}, [&] {
                          Matmul{dpre, dout, w, MatOp::NN, Write::set}.run(cuda);
                          GeluBackward{dpre, dpre, pre}.run(cuda);
                          sum_rows_into(cuda, db, dpre, write);
                        }});
  cuda.matmul_plans->perform(request, strategies);
}

void LinearWeightBackward::run(Cuda& cuda) const {
  // dw^T (Cin,Cout) = x^T dout: dout, whose rows give the bias gradient, is cuBLASLt's B. Hence BGRADB.
  const LtMatmul product = cuda.product(kName, dw, dout, x, MatOp::TN, write);

  std::vector<MatmulStrategy> strategies;
  const Tensor gradient = epilogue_gradient(cuda, db, write, dw);
  if (gradient.data)
    strategies.push_back({"bgradb", product.with(CUBLASLT_EPILOGUE_BGRADB, gradient.data), [&] {
                            if (gradient.data != db.data) sum_rows_into(cuda, db, gradient, write);
                          }});
  strategies.push_back({"separate", {}, [&] {
                          Matmul{dw, dout, x, MatOp::TN, write}.run(cuda);
                          sum_rows_into(cuda, db, dout, write);
                        }});
  cuda.matmul_plans->perform(product.with(CUBLASLT_EPILOGUE_BGRADB, db.data), strategies);
}

}  // namespace stepladder
