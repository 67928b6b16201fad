// MatmulPlans: how each matrix product is done, and by which algorithm of cuBLASLt.
#pragma once

#include <cuda_runtime.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/algorithm_cache.h"
#include "model/cuda/handles.h"
#include "model/ops.h"

namespace stepladder {

/// Throws std::invalid_argument for i32.
inline cudaDataType_t cuda_type(DType t) {
  check(t != DType::i32, "i32, wanted a floating type");
  if (is_fp8(t)) return t == DType::f8e4m3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
  return t == DType::bf16 ? CUDA_R_16BF : t == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

/// What the fastest way to do a product depends on. In cuBLAS' column-major terms: D (m,n) = op(A) op(B),
/// added to D itself or to another matrix C where `write` is add; then an epilogue.
struct MatmulKey {
  cublasOperation_t op_a, op_b;
  int64_t m, n, k, batch;
  DType dtype;  // of D
  cublasComputeType_t compute;
  Write write;  // of D, and in a request of the bias gradient too
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  uint32_t alignment = 0;  // of all operands, in bytes
  DType a_type = dtype, b_type = dtype;
  bool separate_c = false;  // what is added to is C, not D

  auto operator<=>(const MatmulKey&) const = default;
};

/// A product with its operands, which set key.alignment.
struct LtMatmul {
  LtMatmul(const MatmulKey& key, const void* a, const void* b, void* d);
  /// The same added to C (m,n), stored as D is and which may be D.
  LtMatmul plus(const void* addend) const;
  /// The same followed by `epilogue`; bias (m), or (n) for BGRADB; aux (m,n).
  LtMatmul with(cublasLtEpilogue_t epilogue, void* bias, void* aux = nullptr) const;

  MatmulKey key;
  const void *a, *b;
  void *d, *bias = nullptr, *aux = nullptr;
  const void* c = d;
  const float *a_scale = nullptr, *b_scale = nullptr;  // on the device, of FP8 operands
  float alpha = 1.0F, beta = 1.0F;                     // of the product, and of what it is added to
};

/// One way to compute a product and what surrounds it: in cuBLASLt's epilogue, in ops after it, or both.
struct MatmulStrategy {
  const char* name;                    // in the cache; unique among the strategies for one thing
  std::optional<LtMatmul> product;     // by cuBLASLt
  std::function<void()> epilogue_ops;  // run after the product
};

/// Chooses a strategy for each product and remembers it. Before search() has seen the product, that is the
/// first strategy that is supported, with the algorithm that cuBLASLt expects to be fastest; afterwards it is
/// the fastest one measured. A strategy without cuBLASLt is always supported, another one if the library has
/// an algorithm. Throws UnsupportedError if none is supported: only cuBLASLt multiplies FP8.
///
/// Split-k products are summed in f32 and in a fixed order: results are rounded once, and have the same bits
/// every time.
class MatmulPlans {
 public:
  MatmulPlans(cublasLtHandle_t handle, cudaStream_t stream);

  /// Scratch for cuBLASLt. Forgets all plans.
  void set_workspace(const Tensor& workspace);

  /// Computes `request` by one of `strategies`.
  void perform(const LtMatmul& request, std::span<const MatmulStrategy> strategies);

  /// Runs `work`; each product that perform() meets in it for the first time is measured, unless it is in the
  /// file, to which it is added. `path` "": no file.
  void search(const std::function<void()>& work, const std::string& path, const AlgorithmSource& source);

  int searched() const { return searched_; }
  int from_cache() const { return from_cache_; }
  /// fingerprint() of what search() has chosen for the products of its work.
  std::string chosen() const { return fingerprint(chosen_); }

 private:
  struct Plan {
    size_t strategy = 0;
    cublasLtMatmulAlgo_t algorithm{};  // unless the strategy has no product
    double us = 0.0;                   // if it was measured
    bool final = false;                // by search()
  };

  size_t workspace_bytes() const { return workspace_.data ? workspace_.bytes() : 0; }
  /// Scratch that an algorithm may use. FP8 products get none: they are short, and of what cuBLASLt is given
  /// it clears some, in a graph node of its own, even for algorithms that need none. That costs more than
  /// those that need it gain.
  size_t scratch_for(const MatmulKey& key) const { return is_fp8(key.a_type) ? 0 : workspace_bytes(); }
  /// At most `count` algorithms, the fastest expected first; none if cuBLASLt doesn't support the product.
  std::vector<cublasLtMatmulAlgo_t> algorithms(const LtMatmul& product, int count) const;
  cublasStatus_t multiply(const LtMatmul& product, const cublasLtMatmulAlgo_t& algorithm) const;
  /// False if cuBLASLt turns out not to support the product: then nothing has run.
  bool run(const Plan& plan, std::span<const MatmulStrategy> strategies) const;

  /// What search() takes: from the cache, or measured.
  Plan found(const LtMatmul& request, std::span<const MatmulStrategy> strategies);
  Plan without_cublaslt(const LtMatmul& request, std::span<const MatmulStrategy> strategies) const;
  Plan first_supported(const LtMatmul& request, std::span<const MatmulStrategy> strategies) const;
  std::optional<Plan> cached(const std::string& key, std::span<const MatmulStrategy> strategies) const;
  Plan fastest(const LtMatmul& request, std::span<const MatmulStrategy> strategies) const;
  /// Mean time in us of `repeats` runs.
  double time(const Plan& plan, std::span<const MatmulStrategy> strategies, int repeats) const;

  const cublasLtHandle_t handle_;
  const cudaStream_t stream_;
  const Event start_ = make_event(), stop_ = make_event();
  Tensor workspace_;
  std::map<MatmulKey, Plan> plans_;
  bool searching_ = false;
  bool measuring_ = false;  // strategies, whose ops may perform() products that are not used in the end
  FoundAlgorithms cache_;   // what searches read and found
  FoundAlgorithms chosen_;  // of it, what this process uses
  int searched_ = 0, from_cache_ = 0;
  mutable cublasStatus_t answer_ = CUBLAS_STATUS_SUCCESS;  // the library's last
};

}  // namespace stepladder
