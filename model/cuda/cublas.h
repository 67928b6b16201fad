// cuBLAS and cuBLASLt, opened when a device is first used: loading takes 90 ms, which runs without a device
// are spared.
#pragma once

#include <cublasLt.h>
#include <cublas_v2.h>

#include "model/cuda/libraries.h"

namespace stepladder {

/// The functions of cuBLAS and cuBLASLt that the backend calls.
struct Cublas {
  DynamicLibrary lt = open_library(CudaPart::cublas_lt), blas = open_library(CudaPart::cublas);

  decltype(&cublasCreate) create = blas.function("cublasCreate_v2");
  decltype(&cublasDestroy) destroy = blas.function("cublasDestroy_v2");
  decltype(&cublasSetStream) set_stream = blas.function("cublasSetStream_v2");
  decltype(&cublasSetWorkspace) set_workspace = blas.function("cublasSetWorkspace_v2");
  decltype(&cublasSetMathMode) set_math_mode = blas.function("cublasSetMathMode");
  decltype(&cublasGetProperty) get_property = blas.function("cublasGetProperty");
  decltype(&cublasGetStatusString) get_status_string = blas.function("cublasGetStatusString");
  decltype(&cublasGemmEx_64) gemm = blas.function("cublasGemmEx_64");
  decltype(&cublasGemmStridedBatchedEx_64) gemm_batched = blas.function("cublasGemmStridedBatchedEx_64");

  decltype(&cublasLtGetVersion) lt_version = lt.function("cublasLtGetVersion");
  decltype(&cublasLtMatmul) lt_matmul = lt.function("cublasLtMatmul");
  decltype(&cublasLtMatmulAlgoGetHeuristic) lt_algo_heuristic = lt.function("cublasLtMatmulAlgoGetHeuristic");
  // cublasLt...Init() are inline functions of the header. They call these functions with the size of the
  // struct to fill in.
  decltype(&cublasLtMatmulDescInit_internal) lt_desc_init = lt.function("cublasLtMatmulDescInit_internal");
  decltype(&cublasLtMatmulDescSetAttribute) lt_desc_set = lt.function("cublasLtMatmulDescSetAttribute");
  decltype(&cublasLtMatmulPreferenceInit_internal) lt_preference_init =
      lt.function("cublasLtMatmulPreferenceInit_internal");
  decltype(&cublasLtMatmulPreferenceSetAttribute) lt_preference_set =
      lt.function("cublasLtMatmulPreferenceSetAttribute");
  decltype(&cublasLtMatrixLayoutInit_internal) lt_layout_init =
      lt.function("cublasLtMatrixLayoutInit_internal");
  decltype(&cublasLtMatrixLayoutSetAttribute) lt_layout_set = lt.function("cublasLtMatrixLayoutSetAttribute");
};

/// The functions of cuBLAS and cuBLASLt. Throws UnsupportedError where a library is missing, Error where it
/// can't be loaded.
inline const Cublas& cublas() {
  static const Cublas functions;
  return functions;
}

}  // namespace stepladder
