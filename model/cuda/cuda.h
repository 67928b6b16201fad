// The CUDA backend. One file per op family holds its kernels and launchers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "model/cuda/fused_attention.h"
#include "model/cuda/handles.h"
#include "model/cuda/sm_clocks.h"
#include "model/ops.h"

namespace stepladder {

class MatmulPlans;
struct LtMatmul;

/// The partition of two-stage sums.
constexpr int64_t kRowChunk = 64;        // SumRows: rows of a block, at least
constexpr int64_t kMaxRowChunks = 256;   // SumRows: blocks that share a column, at most
constexpr int64_t kTokenChunk = 32;      // EmbeddingBackward: sorted tokens of a block
constexpr int64_t kSquareBlocks = 1024;  // SumOfSquares, ClipGradNorm: blocks, about what an H200 holds
constexpr int64_t kNormBlocks = 320;     // LayerNormBackward: blocks, at most

/// A device, with the streams, libraries and scratch of its ops. All ops run on one stream, except Stage and
/// collectives, and from one thread at a time. Orders of summation depend on shapes and the device alone, and
/// the project's own kernels use no floating-point atomics, so that they give the same bits for the same
/// operands. cuDNN's attention gives the same bits only with OpsOptions::deterministic, and a search may
/// choose another GEMM algorithm the next time.
class Cuda final : public Device {
 public:
  /// Makes device `index` current. Throws UnsupportedError naming why it can't be used.
  Cuda(int index, const OpsOptions& options);
  ~Cuda() override;

  void run(const AnyOp& op) override;
  DeviceInfo info() const override;
  /// process_peak is the most that the whole device had in use at any call of memory(), context and loaded
  /// code included; the runtime does not tell processes apart, so other processes on the device count too.
  MemoryInfo memory() override;
  std::shared_ptr<void> allocate(size_t bytes) override;
  std::shared_ptr<void> allocate_host(size_t bytes) override;
  void bind_workspace(Arena& arena, const Config& config) override;
  void set_matmul_precision(Precision precision) override;
  void synchronize() override;
  void phase(const char* name, int64_t layer) override;
  void start_timer() override;
  void stop_timer() override;
  Elapsed elapsed() override;
  std::unique_ptr<Tracer> make_tracer() override;  // tracer.cpp

  /// sorted_tokens = tokens in ascending order, sorted_positions = the position each came from; ties keep
  /// their order.
  void sort_tokens(const int32_t* tokens, int64_t n, int64_t V);  // token_sort.cu
  /// Matmul's product of operands that fit, in cuBLAS' terms at the current precision. cuBLAS is
  /// column-major, so it sees every matrix transposed: out^T (N,M) = op(b)^T op(a)^T. Its first operand is b,
  /// its second a, its m, n, k are N, M, K. Throws UnsupportedError for bf16 below sm_80, FP8 below sm_89,
  /// and without OpsOptions::libraries.
  LtMatmul product(const char* op, const Tensor& out, const Tensor& a, const Tensor& b, MatOp how,
                   Write write) const;  // linear_cublaslt.cpp
  /// Whether cuDNN computes this pass; else our own kernels do, and DeviceInfo::attention tells why. Throws
  /// UnsupportedError where options.attention demands cuDNN and cuDNN refuses the pass.
  bool use_cudnn(const AttentionShape& shape, AttentionPass pass);

  const OpsOptions options;
  const int index;
  const int device_capability;   // 90 for sm_90
  const int compute_capability;  // capability of the features in use, at most the device's
  const int multiprocessors;
  const int shared_limit;  // bytes of shared memory that a block may ask for
  Stream stream;
  Queue queue;               // queue of the kernels on `stream`
  Stream copy_stream;        // stream of Stage
  Event staged, received;    // the last Stage and Receive are done
  Stream collective_stream;  // stream of collectives; empty in a world of 1
  Blas blas;                 // empty without OpsOptions::libraries
  std::unique_ptr<MatmulPlans> matmul_plans;
  std::unique_ptr<CudnnAttention> cudnn;  // empty: not used

  // Scratch, from the arena.
  Tensor partials;                                    // first-stage sums
  Tensor positions, sorted_tokens, sorted_positions;  // (B*T)
  Tensor sort_scratch;
  Tensor attention_scratch;
  Tensor gemm_scratch;  // the libraries' workspace too: products on one stream take turns

 private:
  /// The least compute capability of this build's code for the current device: 90 for sm_90. Throws where the
  /// build has no such code.
  static int kernel_image();  // elementwise.cu
  /// Bytes of scratch that sort_tokens needs for n tokens.
  static size_t sort_bytes(int64_t n, int64_t V);
  /// Decides between cuDNN and our own kernels for attention. Throws UnsupportedError where cuDNN is asked
  /// for and can't be used.
  void choose_attention();
  int64_t attention_scratch_bytes(const Config& config) const;

  Event start_, stop_;
  std::optional<SmClocks> sm_clocks_;  // set where cycles are counted
  cublasComputeType_t compute_type_ = CUBLAS_COMPUTE_32F;
  std::string attention_;  // DeviceInfo::attention
  HeldBytes reserved_;
  int64_t process_peak_ = 0;
  std::string phase_;  // the phase whose range is open; "": none
  bool in_layer_ = false;
  bool in_step_ = false;
};

std::unique_ptr<Graph> make_cuda_graphs(Cuda& cuda);             // compile.cpp
std::unique_ptr<Collectives> make_nccl_collectives(Cuda& cuda);  // comm_nccl.cpp

/// out (C) = or += sum_n x.
void sum_rows_into(Cuda& cuda, const Tensor& out, const Tensor& x, Write write);  // rows.cu

}  // namespace stepladder
