// The compiled step: matmul algorithms are searched, and the launches recorded as CUDA graphs.
#include <chrono>

#include "model/algorithm_cache.h"
#include "model/cuda/cuda_ops.h"
#include "model/cuda/matmul_plans.h"
#include "model/cuda/range.h"

namespace stepladder {
namespace {

/// Adds the time until it is destroyed to `total`, in ms.
class Stopwatch {
 public:
  explicit Stopwatch(double& total) : total_(total) {}
  ~Stopwatch() {
    total_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& total_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

bool follows_kernel(cudaStream_t stream) {
#if CUDART_VERSION >= 13000
  constexpr auto capture_info = cudaStreamGetCaptureInfo;
#elif CUDART_VERSION >= 12030
  constexpr auto capture_info = cudaStreamGetCaptureInfo_v3;
#else
  return false;  // a graph has no such edges
#endif
#if CUDART_VERSION >= 12030
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* before = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 0;
  CUDA_CHECK(capture_info(stream, &status, nullptr, nullptr, &before, &edges, &count));
  if (status != cudaStreamCaptureStatusActive || count != 1) return false;
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  CUDA_CHECK(cudaGraphNodeGetType(before[0], &type));
  return type == cudaGraphNodeTypeKernel;
#endif
}

void CudaOps::search(const std::function<void()>& work) {
  const Range range("search");
  const Stopwatch stopwatch(compile_info_.search_ms);
  // Another run may measure another algorithm as fastest, which rounds differently. Run the work without a
  // search: libraries set themselves up at first use, which cannot be recorded.
  if (options_.deterministic) {
    work();
    return synchronize();
  }
  AlgorithmSource source;
  std::string path;
  if (!options_.cache_dir.empty()) {
    source = {.device = device().name,
              .compute_capability = device_capability_,
              .library = cat("cuBLASLt ", cublasLtGetVersion())};
    path = algorithm_cache_path(options_.cache_dir, source);
  }
  matmul_plans_->search(work, path, source);
}

std::function<void()> CudaOps::record(const std::function<void()>& work) {
  const Range range("record");
  const Stopwatch stopwatch(compile_info_.capture_ms);
  cudaGraph_t captured = nullptr;
  CUDA_CHECK(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal));
  try {
    work();
  } catch (...) {
    // The capture must end even if the work has made it invalid.
    if (cudaStreamEndCapture(stream_.get(), &captured) != cudaSuccess) cudaGetLastError();
    const Graph abandoned(captured);
    throw;
  }
  CUDA_CHECK(cudaStreamEndCapture(stream_.get(), &captured));
  const Graph graph(captured);
  cudaGraphExec_t instantiated = nullptr;
  // Collectives keep the priority of their stream.
  CUDA_CHECK(cudaGraphInstantiate(&instantiated, graph.get(), cudaGraphInstantiateFlagUseNodePriority));
  const std::shared_ptr<GraphExec::element_type> executable = GraphExec(instantiated);
  CUDA_CHECK(cudaGraphUpload(executable.get(), stream_.get()));
  return [executable, stream = stream_.get()] {
    const Range launch("graph");
    CUDA_CHECK(cudaGraphLaunch(executable.get(), stream));
  };
}

CompileInfo CudaOps::compile_info() const {
  CompileInfo info = compile_info_;
  info.searched = matmul_plans_->searched();
  info.from_cache = matmul_plans_->from_cache();
  info.launched_early = queue_.launched_early;
  return info;
}

}  // namespace stepladder
