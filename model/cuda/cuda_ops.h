// CudaOps: the CUDA backend. One .cu per op family holds its kernels and launchers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "model/cuda/comm_nccl.h"
#include "model/cuda/fused_attention.h"
#include "model/cuda/handles.h"
#include "model/ops.h"

namespace stepladder {

class MatmulPlans;
struct LtMatmul;
struct MatmulKey;
struct MatmulShape;

/// How sums in two stages are cut: rows that a block of sum_rows takes at least and
/// how many blocks share a column at most, sorted tokens that a block of
/// embedding_backward takes, the most blocks of sum_of_squares and clip_grad_norm (about what an H200 holds
/// at once), and the most blocks of layernorm_backward.
constexpr int64_t kRowChunk = 64;
constexpr int64_t kMaxRowChunks = 256;
constexpr int64_t kTokenChunk = 32;
constexpr int64_t kSquareBlocks = 1024;
constexpr int64_t kNormBlocks = 320;

/// All ops run on one stream of one device, only stage() and collective() beside it, from one thread at a
/// time. Our own kernels give the same bits for the same operands: no floating-point atomics, and orders of
/// summation that depend on shapes and the device alone. Only with OpsOptions::deterministic that holds of
/// all ops: else cuDNN's attention_backward adds in any order, and search() may choose another GEMM algorithm
/// the next time.
class CudaOps final : public Ops {
 public:
  /// Makes device `index` current. Throws UnsupportedError naming why it can't be used.
  CudaOps(int index, const OpsOptions& options);
  ~CudaOps() override;

  DeviceInfo device() const override;
  /// process_peak is the most that the whole device had in use at any call of this, context and loaded code
  /// included; the runtime does not tell processes apart, so others on the device count too.
  MemoryInfo memory() override;
  std::shared_ptr<void> allocate(size_t bytes) override;
  void bind_workspace(Arena& arena, const Config& config) override;
  void synchronize() override;
  void phase(const char* name, int64_t layer) override;
  void start_timer() override;
  void stop_timer() override;
  double device_ms() override;
  std::unique_ptr<Tracer> make_tracer() override;  // tracer.cpp

  void upload(Tensor dst, const void* host) override;
  void download(void* host, Tensor src) override;
  void zero(Tensor x) override;

  // elementwise.cu
  void add(Tensor out, Tensor a, Tensor b) override;
  void mul(Tensor out, Tensor a, Tensor b) override;
  void affine(Tensor out, Tensor x, float scale, float shift) override;
  void pow(Tensor out, Tensor x, int exponent) override;
  void tanh(Tensor out, Tensor x) override;
  void sqrt(Tensor out, Tensor x) override;
  void lerp(Tensor x, Tensor y, float weight) override;
  void addcmul(Tensor x, Tensor a, Tensor b, float value) override;
  void addcdiv(Tensor x, Tensor a, Tensor b, float value) override;
  void scale_by(Tensor x, Tensor factor) override;

  // rows.cu
  void row_mean(Tensor mean, Tensor x) override;
  void row_rstd(Tensor rstd, Tensor x, Tensor mean, float eps) override;
  void normalize(Tensor out, Tensor x, Tensor mean, Tensor rstd) override;
  void normalize_backward(Tensor dx, Tensor dxhat, Tensor xhat, Tensor mean_dxhat, Tensor mean_dxhat_xhat,
                          Tensor rstd) override;
  void mul_columns(Tensor out, Tensor x, Tensor w) override;
  void add_columns(Tensor out, Tensor x, Tensor b) override;
  void sum_rows(Tensor out, Tensor x) override;

  // embedding.cu
  void embedding_forward(Tensor out, Tensor tokens, Tensor wte) override;
  void embedding_backward(Tensor dwte, Tensor tokens, Tensor dout) override;
  void add_position(Tensor x, Tensor wpe) override;
  void position_backward(Tensor dwpe, Tensor dout) override;

  // matmul_cublas.cpp
  void set_matmul_precision(Precision precision) override;
  void matmul(Tensor out, Tensor a, Tensor b, MatOp op, Write write) override;

  // attention.cu
  void split_qkv(Tensor q, Tensor k, Tensor v, Tensor qkv) override;
  void merge_qkv(Tensor qkv, Tensor q, Tensor k, Tensor v) override;
  void split_heads(Tensor out, Tensor x) override;
  void merge_heads(Tensor out, Tensor x) override;
  void causal_mask(Tensor mask) override;
  void add_mask(Tensor att, Tensor mask) override;

  // softmax.cu
  void softmax_forward(Tensor p, Tensor x) override;
  void softmax_backward(Tensor dx, Tensor dp, Tensor p) override;
  void causal_softmax_forward(Tensor p, Tensor x) override;
  void causal_softmax_backward(Tensor dx, Tensor dp, Tensor p) override;
  void log_softmax_forward(Tensor logp, Tensor logits) override;
  void log_softmax_backward(Tensor dlogits, Tensor dlogp, Tensor logp) override;

  // classifier.cu
  void nll_loss_forward(Tensor losses, Tensor logp, Tensor targets) override;
  void nll_loss_backward(Tensor dlogp, Tensor targets, float scale, Tensor loss_scaler) override;
  void add_mean(Tensor out, Tensor x) override;

  // clip.cu
  void sum_of_squares(Tensor out, Tensor x) override;
  void clip_factor(Tensor factor, Tensor norm, Tensor parts, float max_norm) override;
  void clip_grad_norm(Tensor factor, Tensor norm, std::span<const Tensor> grads, float max_norm,
                      Tensor loss_scaler) override;

  // convert.cu
  void copy(Tensor dst, Tensor src) override;
  void write(Tensor dst, std::initializer_list<float> values) override;

  // staging.cpp
  std::shared_ptr<void> allocate_host(size_t bytes) override;
  void stage(Tensor staged, const void* pinned) override;
  void receive(Tensor dst, Tensor staged) override;

  // compile.cpp
  void search(const std::function<void()>& work) override;
  std::function<void()> record(const std::function<void()>& work) override;
  CompileInfo compile_info() const override;

  // comm_nccl.cpp
  void join(Rendezvous& ranks) override;
  int rank() const override;
  int world() const override;
  void collective(Collective what, std::span<const Tensor> bucket) override;
  void wait_for_collectives(int64_t but) override;

  // linear_cublaslt.cpp
  void linear_forward(Tensor out, Tensor x, Tensor w, Tensor b, Tensor residual) override;
  void linear_gelu_forward(Tensor out, Tensor pre, Tensor x, Tensor w, Tensor b) override;
  void linear_gelu_backward(Tensor dpre, Tensor db, Tensor dout, Tensor w, Tensor pre, Write write) override;
  void linear_weight_backward(Tensor dw, Tensor db, Tensor dout, Tensor x, Write write) override;

  // fp8.cu
  void quantize(Tensor q, Tensor qt, Tensor x, Tensor dbias) override;
  void quantize_to_fit(Tensor q, Tensor qt, Tensor x) override;
  void transpose(Tensor qt, Tensor q) override;
  void quantize_gelu(Tensor q, Tensor qt, Tensor x) override;
  void quantize_gelu_backward(Tensor q, Tensor qt, Tensor dbias, Tensor dout, Tensor x) override;
  void update_scales(Tensor scale, Tensor history, Tensor amax, DType type) override;

  // fused_maps.cu
  void encoder_forward(Tensor out, Tensor tokens, Tensor wte, Tensor wpe) override;
  void bias_gelu_forward(Tensor out, Tensor x, Tensor bias) override;
  void gelu_forward(Tensor out, Tensor x) override;
  void gelu_backward(Tensor dx, Tensor dout, Tensor x) override;
  void bias_split_qkv(Tensor q, Tensor k, Tensor v, Tensor qkv, Tensor bias) override;

  // layernorm.cu
  void layernorm_forward(Tensor out, Tensor mean, Tensor rstd, Tensor x, Tensor w, Tensor b) override;
  void residual_layernorm_forward(Tensor res, Tensor out, Tensor mean, Tensor rstd, Tensor x, Tensor y,
                                  Tensor bias, Tensor w, Tensor b) override;
  void layernorm_backward(Tensor dx, Tensor dw, Tensor db, Tensor dbias, Tensor dout, Tensor x, Tensor mean,
                          Tensor rstd, Tensor w) override;
  void quantize_layernorm(Tensor q, Tensor qt, Tensor mean, Tensor rstd, Tensor x, Tensor w,
                          Tensor b) override;
  void quantize_layernorm_backward(Tensor q, Tensor qt, Tensor dx, Tensor dw, Tensor db, Tensor dbias,
                                   Tensor dout, Tensor x, Tensor mean, Tensor rstd, Tensor w) override;

  // scaled_softmax.cu
  void scaled_causal_softmax_forward(Tensor p, Tensor x, float scale) override;
  void scaled_causal_softmax_backward(Tensor dx, Tensor dp, Tensor p, float scale) override;

  // fused_attention.cpp
  void attention_forward(Tensor out, Tensor lse, Tensor qkv) override;
  void attention_backward(Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv) override;

  // cross_entropy.cu
  void cross_entropy_forward(Tensor losses, Tensor logits, Tensor targets, int64_t V) override;
  void cross_entropy_forward_backward(Tensor losses, Tensor logits, Tensor targets, int64_t V, float scale,
                                      Tensor loss_scaler) override;

  void quantize_cross_entropy(Tensor q, Tensor losses, Tensor logits, Tensor targets, int64_t V,
                              float scale) override;

  // adamw.cu
  void adamw(std::span<const AdamWTensor> tensors, Tensor schedule, Tensor clip, const AdamW& hyper,
             Tensor loss_scaler) override;

 private:
  /// Bytes held through allocate(); outlives this object in the deleters of its blocks.
  struct Reserved {
    int64_t now = 0, peak = 0;
  };

  /// The least compute capability that this build's code for the current device is for: 90 for sm_90. Fails
  /// unless there is any.
  static int kernel_image();
  /// Bytes of scratch that sort_tokens needs for n tokens.
  static size_t sort_bytes(int64_t n, int64_t V);
  /// sorted_tokens_ = tokens in ascending order, sorted_positions_ = where each came from; ties keep their
  /// order.
  void sort_tokens(const int32_t* tokens, int64_t n, int64_t V);

  /// One product by cuBLAS or, where a search found it faster, cuBLASLt.
  struct MatmulOperands;
  void multiply(const MatmulShape& shape, const MatmulOperands& operands, MatOp op, Write write);
  /// Of a product in cuBLAS' terms at the current precision. Throws UnsupportedError for bf16 below sm_80.
  MatmulKey matmul_key(cublasOperation_t op_a, cublasOperation_t op_b, int64_t m, int64_t n, int64_t k,
                       int64_t batch, DType dtype, Write write) const;
  /// out = or += a b^T of FP8 matrices. Throws UnsupportedError below sm_89.
  LtMatmul fp8_product(const char* op, const Tensor& out, const Tensor& a, const Tensor& b,
                       Write write) const;
  /// q and qt of F's values, dbias (or empty) += their sums over rows.
  template <class F>
  void quantize_values(const char* op, Tensor q, Tensor qt, Tensor dbias, const F& f, Tensor x,
                       int64_t layers);
  /// Where an epilogue, which can only overwrite, puts a bias gradient: db, or scratch that is then added to
  /// it. Without data where scratch is too small.
  Tensor epilogue_gradient(Tensor db, Write write) const;
  /// out (C) = or += sum_n x.
  void sum_rows_into(Tensor out, Tensor x, Write write);
  /// Checks the operands of layernorm_backward, lets sum_blocks(operands, partials, cols, most blocks) leave
  /// column sums of so many blocks, and adds them up.
  template <class T, class Launch>
  void layernorm_gradients(const char* op, Tensor dx, Tensor dw, Tensor db, Tensor dbias, Tensor dout,
                           Tensor x, Tensor mean, Tensor rstd, Tensor w, const Launch& sum_blocks);
  /// Decides who computes attention. Throws UnsupportedError where cuDNN is asked for and can't be had.
  void choose_attention();
  /// Whether this call is cuDNN's; otherwise it is our own kernels'. attention_ tells which, and why.
  bool use_cudnn(const AttentionShape& shape, AttentionPass pass);
  int64_t attention_scratch_bytes(const Config& config) const;

  const OpsOptions options_;
  const int index_;
  const int device_capability_;   // 90 for sm_90
  const int compute_capability_;  // of the features that are used, at most the device's
  const int multiprocessors_;
  const int shared_limit_;  // bytes of shared memory that a block may ask for
  Stream stream_;
  Queue queue_;  // of kernels on stream_
  Event start_, stop_;
  Stream copy_stream_;              // of stage()
  Event staged_, received_;         // the last stage() and receive() are done
  std::unique_ptr<NcclComm> comm_;  // empty: a world of 1
  Stream comm_stream_;              // of collective()
  Event comm_begin_;                // what the last collective() waits for is done
  std::array<Event, 16> comm_end_;  // the last collectives are done: the i-th at i modulo their number
  int64_t collectives_ = 0;         // so far
  Blas blas_;
  std::unique_ptr<MatmulPlans> matmul_plans_;
  CompileInfo compile_info_;
  cublasComputeType_t compute_type_ = CUBLAS_COMPUTE_32F;
  std::unique_ptr<CudnnAttention> cudnn_;  // empty: not used
  std::string attention_;                  // DeviceInfo::attention
  std::shared_ptr<Reserved> reserved_ = std::make_shared<Reserved>();
  int64_t process_peak_ = 0;
  std::string phase_;  // its range is open; "": none
  bool in_layer_ = false;
  bool in_step_ = false;

  // Scratch, from the arena.
  Tensor partials_;                                      // first-stage sums
  Tensor positions_, sorted_tokens_, sorted_positions_;  // (B*T)
  Tensor sort_scratch_;
  Tensor attention_scratch_;
};

}  // namespace stepladder
