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

/// CUDA's name for `t`. Throws std::invalid_argument for i32.
inline cudaDataType_t cuda_type(DType t) {
  check(t != DType::i32, "i32, wanted a floating type");
  if (is_fp8(t)) return t == DType::f8e4m3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
  return t == DType::bf16 ? CUDA_R_16BF : t == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

/// The properties of a product that decide how it is done fastest, in cuBLAS' column-major terms:
/// D (m,n) = op(A) op(B), added to D itself or to another matrix C where `write` is add; then an epilogue.
struct MatmulKey {
  cublasOperation_t op_a, op_b;
  int64_t m, n, k, batch;
  DType dtype;  // type of D
  cublasComputeType_t compute;
  Write write;  // how D, and in a request the bias gradient too, is written
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  uint32_t alignment = 0;  // alignment of all operands, in bytes
  DType a_type = dtype, b_type = dtype;
  bool separate_c = false;  // whether the product is added to C, not to D
  bool symmetric = false;   // whether D is known to be symmetric

  auto operator<=>(const MatmulKey&) const = default;
};

/// A product with its operands, which set key.alignment.
struct LtMatmul {
  LtMatmul(const MatmulKey& key, const void* a, const void* b, void* d);
  /// This product added to C (m,n), which is stored as D is, and may be D.
  LtMatmul plus(const void* addend) const;
  /// This product followed by `epilogue`; bias (m), or (n) for BGRADB; aux (m,n).
  LtMatmul with(cublasLtEpilogue_t epilogue, void* bias, void* aux = nullptr) const;

  MatmulKey key;
  const void *a, *b;
  void *d, *bias = nullptr, *aux = nullptr;
  const void* c = d;
  const float *a_scale = nullptr, *b_scale = nullptr;  // scales of FP8 operands, on the device
  float alpha = 1.0F, beta = 1.0F;                     // factors of the product, and of C
};

/// One way to compute a product and the steps that follow it, such as GELU: in cuBLASLt's epilogue, in ops
/// after the product, or both.
struct MatmulStrategy {
  const char* name;                    // name in the cache; unique among the strategies for a request
  std::optional<LtMatmul> product;     // computed by cuBLASLt
  std::function<void()> epilogue_ops;  // run after the product
};

/// Chooses a strategy for each product and remembers it. Before search() has seen the product, the choice is
/// the first supported strategy, with the algorithm that cuBLASLt expects to be fastest; afterwards it is the
/// fastest one measured. A strategy without cuBLASLt is always supported, one with cuBLASLt if the library
/// has an algorithm. Throws UnsupportedError if no strategy is supported: only cuBLASLt multiplies FP8.
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

  /// Runs `work`; each product that perform() meets for the first time is measured, and added to the file
  /// `path` ("": no file), unless the file has it.
  void search(const std::function<void()>& work, const std::string& path, const AlgorithmSource& source);

  int searched() const { return searched_; }
  int from_cache() const { return from_cache_; }
  /// fingerprint() of the algorithms that search() has chosen for the products of its work.
  std::string chosen() const { return fingerprint(chosen_); }

 private:
  struct Plan {
    size_t strategy = 0;
    cublasLtMatmulAlgo_t algorithm{};  // unset if the strategy has no product
    double us = 0.0;                   // if it was measured
    bool final = false;                // chosen by search()
  };

  size_t workspace_bytes() const { return workspace_.data ? workspace_.bytes() : 0; }
  /// Bytes of scratch that an algorithm may use. FP8 products get 0 while cuBLASLt can do without: they are
  /// short, and it clears part of its scratch, in a graph node of its own, even for algorithms that need
  /// none. Clearing costs more than the algorithms that need scratch gain.
  size_t scratch_for(const MatmulKey& key) const;
  /// Gives all FP8 products scratch from now on. Call it where cuBLASLt has no algorithm for one without, as
  /// in CUDA 12.4. Returns false if nothing changed: they already had it, or the product isn't of FP8.
  bool allow_fp8_scratch(const MatmulKey& key);
  /// At most `count` algorithms, the fastest expected first; none if cuBLASLt doesn't support the product.
  std::vector<cublasLtMatmulAlgo_t> algorithms(const LtMatmul& product, int count) const;
  cublasStatus_t multiply(const LtMatmul& product, const cublasLtMatmulAlgo_t& algorithm) const;
  /// False if cuBLASLt turns out not to support the product: then nothing has run.
  bool run(const Plan& plan, std::span<const MatmulStrategy> strategies) const;

  /// The plan that search() chooses, from the cache or measured.
  Plan found(const LtMatmul& request, std::span<const MatmulStrategy> strategies);
  Plan without_cublaslt(const LtMatmul& request, std::span<const MatmulStrategy> strategies) const;
  Plan first_supported(const LtMatmul& request, std::span<const MatmulStrategy> strategies);
  std::optional<Plan> cached(const std::string& key, std::span<const MatmulStrategy> strategies) const;
  Plan fastest(const LtMatmul& request, std::span<const MatmulStrategy> strategies);
  /// Mean time in us of `repeats` runs.
  double time(const Plan& plan, std::span<const MatmulStrategy> strategies, int repeats) const;

  const cublasLtHandle_t handle_;
  const cudaStream_t stream_;
  const Event start_ = make_event(), stop_ = make_event();
  Tensor workspace_;
  bool fp8_scratch_ = false;  // whether FP8 products get scratch
  std::map<MatmulKey, Plan> plans_;
  bool searching_ = false;
  bool measuring_ = false;  // while strategies are measured: their ops may perform() products that end unused
  FoundAlgorithms cache_;   // the algorithms that searches read and found
  FoundAlgorithms chosen_;  // those of cache_ that this process uses
  int searched_ = 0, from_cache_ = 0;
  mutable cublasStatus_t last_status_ = CUBLAS_STATUS_SUCCESS;  // cuBLASLt's
};

}  // namespace stepladder
