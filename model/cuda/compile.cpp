// The compiled step: matmul algorithms are searched, and the launches recorded as CUDA graphs.
#include <chrono>
#include <cstdio>
#include <utility>

#include "model/algorithm_cache.h"
#include "model/cuda/cuda.h"
#include "model/cuda/matmul_plans.h"
#include "model/cuda/range.h"

namespace stepladder {
namespace {

/// Adds its lifetime, in ms, to `total`.
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

class CudaGraphs final : public Graph {
 public:
  explicit CudaGraphs(Cuda& cuda) : cuda_(cuda) {}

  void search(const std::function<void()>& work) override {
    const Range range("search");
    const Stopwatch stopwatch(info_.search_ms);
    // No search if deterministic: another run may measure another algorithm as fastest, which rounds
    // differently. Run the work all the same: libraries set themselves up at first use, which cannot be
    // recorded.
    if (cuda_.options.deterministic) {
      work();
      return cuda_.synchronize();
    }
    AlgorithmSource source;
    std::string path;
    if (!cuda_.options.cache_dir.empty()) {
      source = {.device = cuda_.info().name,
                .compute_capability = cuda_.device_capability,
                .library = cat("cuBLASLt ", cublas().lt_version()),
                .kernels = cat(STEPLADDER_GEMMS ", " STEPLADDER_BUILD, ", ", cuda_.options.wide_access, ", ",
                               cuda_.options.early_launch, ", ", cuda_.compute_capability)};
      path = algorithm_cache_path(cuda_.options.cache_dir, source);
      if (cuda_.options.search_again && !std::exchange(forgotten_, true)) std::remove(path.c_str());
    }
    cuda_.matmul_plans->search(work, path, source);
  }

  std::function<void()> record(const std::function<void()>& work, Launch launch) override {
    const Range range("record");
    const Stopwatch stopwatch(info_.capture_ms);
    cudaGraph_t captured = nullptr;
    CUDA_CHECK(cudaStreamBeginCapture(cuda_.stream.get(), cudaStreamCaptureModeThreadLocal));
    cuda_.queue.early = launch == Launch::early && cuda_.queue.can_be_early;
    try {
      work();
      cuda_.queue.early = false;
    } catch (...) {
      cuda_.queue.early = false;
      // The capture must end even if the work has made it invalid.
      if (cudaStreamEndCapture(cuda_.stream.get(), &captured) != cudaSuccess) cudaGetLastError();
      const CapturedGraph abandoned(captured);
      throw;
    }
    CUDA_CHECK(cudaStreamEndCapture(cuda_.stream.get(), &captured));
    const CapturedGraph graph(captured);
    cudaGraphExec_t instantiated = nullptr;
    // Collectives keep the priority of their stream.
    CUDA_CHECK(cudaGraphInstantiate(&instantiated, graph.get(), cudaGraphInstantiateFlagUseNodePriority));
    const std::shared_ptr<GraphExec::element_type> executable = GraphExec(instantiated);
    CUDA_CHECK(cudaGraphUpload(executable.get(), cuda_.stream.get()));
    return [executable, stream = cuda_.stream.get()] {
      const Range replay("graph");
      CUDA_CHECK(cudaGraphLaunch(executable.get(), stream));
    };
  }

  CompileInfo info() const override {
    CompileInfo info = info_;
    info.searched = cuda_.matmul_plans->searched();
    info.from_cache = cuda_.matmul_plans->from_cache();
    info.launched_early = cuda_.queue.launched_early;
    info.algorithms = cuda_.matmul_plans->chosen();
    return info;
  }

 private:
  Cuda& cuda_;
  CompileInfo info_;
  bool forgotten_ = false;  // whether the cache file has been removed, once, for options.search_again
};

}  // namespace

bool follows_kernel(cudaStream_t stream) {
#if CUDART_VERSION >= 13000
  constexpr auto capture_info = cudaStreamGetCaptureInfo;
#elif CUDART_VERSION >= 12030
  constexpr auto capture_info = cudaStreamGetCaptureInfo_v3;
#else
  return false;  // graphs have no edges for early launch before CUDA 12.3
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

std::unique_ptr<Graph> make_cuda_graphs(Cuda& cuda) {
  return std::make_unique<CudaGraphs>(cuda);
}

}  // namespace stepladder
