// The CPU reference backend: the oracle of every other one.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "model/cpu/comm_mpi.h"
#include "model/cpu/floats.h"
#include "model/cpu/parallel.h"
#include "model/ops.h"

namespace stepladder {

/// Runs every op before it returns, on `threads` threads. Work is cut into pieces by
/// shape alone and no sum crosses a piece that another thread may own, so the bits do not depend on
/// `threads`. Statistics are summed in double.
class CpuOps final : public Ops {
 public:
  static constexpr int64_t kScratch = 1 << 18;  // elements of each thread's scratch

  explicit CpuOps(int threads = max_threads());

  DeviceInfo device() const override;
  MemoryInfo memory() override;
  std::shared_ptr<void> allocate(size_t bytes) override;
  void bind_workspace(Arena& arena, const Config& config) override;
  void synchronize() override {}
  void phase(const char*, int64_t) override {}
  void start_timer() override { start_ = std::chrono::steady_clock::now(); }
  void stop_timer() override { stop_ = std::chrono::steady_clock::now(); }
  double device_ms() override { return std::chrono::duration<double, std::milli>(stop_ - start_).count(); }
  std::unique_ptr<Tracer> make_tracer() override;

  void upload(Tensor dst, const void* host) override;
  void download(void* host, Tensor src) override;
  void zero(Tensor x) override;

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

  void row_mean(Tensor mean, Tensor x) override;
  void row_rstd(Tensor rstd, Tensor x, Tensor mean, float eps) override;
  void normalize(Tensor out, Tensor x, Tensor mean, Tensor rstd) override;
  void normalize_backward(Tensor dx, Tensor dxhat, Tensor xhat, Tensor mean_dxhat, Tensor mean_dxhat_xhat,
                          Tensor rstd) override;
  void mul_columns(Tensor out, Tensor x, Tensor w) override;
  void add_columns(Tensor out, Tensor x, Tensor b) override;
  void sum_rows(Tensor out, Tensor x) override;

  void embedding_forward(Tensor out, Tensor tokens, Tensor wte) override;
  void embedding_backward(Tensor dwte, Tensor tokens, Tensor dout) override;
  void add_position(Tensor x, Tensor wpe) override;
  void position_backward(Tensor dwpe, Tensor dout) override;

  void set_matmul_precision(Precision precision) override { precision_ = precision; }
  void matmul(Tensor out, Tensor a, Tensor b, MatOp op, Write write) override;

  void split_qkv(Tensor q, Tensor k, Tensor v, Tensor qkv) override;
  void merge_qkv(Tensor qkv, Tensor q, Tensor k, Tensor v) override;
  void split_heads(Tensor out, Tensor x) override;
  void merge_heads(Tensor out, Tensor x) override;
  void causal_mask(Tensor mask) override;
  void add_mask(Tensor att, Tensor mask) override;
  void softmax_forward(Tensor p, Tensor x) override;
  void softmax_backward(Tensor dx, Tensor dp, Tensor p) override;
  void causal_softmax_forward(Tensor p, Tensor x) override;
  void causal_softmax_backward(Tensor dx, Tensor dp, Tensor p) override;

  void log_softmax_forward(Tensor logp, Tensor logits) override;
  void log_softmax_backward(Tensor dlogits, Tensor dlogp, Tensor logp) override;
  void nll_loss_forward(Tensor losses, Tensor logp, Tensor targets) override;
  void nll_loss_backward(Tensor dlogp, Tensor targets, float scale, Tensor loss_scaler) override;
  void add_mean(Tensor out, Tensor x) override;

  void sum_of_squares(Tensor out, Tensor x) override;
  void clip_factor(Tensor factor, Tensor norm, Tensor parts, float max_norm) override;

  // copies and staging
  void copy(Tensor dst, Tensor src) override;
  void write(Tensor dst, std::initializer_list<float> values) override;
  std::shared_ptr<void> allocate_host(size_t bytes) override;
  void stage(Tensor staged, const void* pinned) override;
  void receive(Tensor dst, Tensor staged) override;

  // compiling
  void search(const std::function<void()>&) override {}
  std::function<void()> record(const std::function<void()>& work) override { return work; }
  CompileInfo compile_info() const override { return {}; }

  // several ranks, which talk through MPI
  void join(Rendezvous& ranks) override;
  int rank() const override { return comm_ ? comm_->rank() : 0; }
  int world() const override { return comm_ ? comm_->world() : 1; }
  void collective(Collective what, std::span<const Tensor> bucket) override;
  void wait_for_collectives(int64_t but) override;

  // linear layers
  void linear_forward(Tensor out, Tensor x, Tensor w, Tensor b, Tensor residual) override;
  void linear_gelu_forward(Tensor out, Tensor pre, Tensor x, Tensor w, Tensor b) override;
  void linear_gelu_backward(Tensor dpre, Tensor db, Tensor dout, Tensor w, Tensor pre, Write write) override;
  void linear_weight_backward(Tensor dw, Tensor db, Tensor dout, Tensor x, Write write) override;

  // FP8
  void quantize(Tensor q, Tensor qt, Tensor x, Tensor dbias) override;
  void quantize_to_fit(Tensor q, Tensor qt, Tensor x) override;
  void quantize_gelu(Tensor q, Tensor qt, Tensor x) override;
  void quantize_gelu_backward(Tensor q, Tensor qt, Tensor dbias, Tensor dout, Tensor x) override;
  void quantize_cross_entropy(Tensor q, Tensor losses, Tensor logits, Tensor targets, int64_t V,
                              float scale) override;
  void quantize_layernorm(Tensor q, Tensor qt, Tensor mean, Tensor rstd, Tensor x, Tensor w,
                          Tensor b) override;
  void quantize_layernorm_backward(Tensor q, Tensor qt, Tensor dx, Tensor dw, Tensor db, Tensor dbias,
                                   Tensor dout, Tensor x, Tensor mean, Tensor rstd, Tensor w) override;
  void transpose(Tensor qt, Tensor q) override;
  void update_scales(Tensor scale, Tensor history, Tensor amax, DType type) override;

  // fused
  void encoder_forward(Tensor out, Tensor tokens, Tensor wte, Tensor wpe) override;
  void layernorm_forward(Tensor out, Tensor mean, Tensor rstd, Tensor x, Tensor w, Tensor b) override;
  void residual_layernorm_forward(Tensor res, Tensor out, Tensor mean, Tensor rstd, Tensor x, Tensor y,
                                  Tensor bias, Tensor w, Tensor b) override;
  void layernorm_backward(Tensor dx, Tensor dw, Tensor db, Tensor dbias, Tensor dout, Tensor x, Tensor mean,
                          Tensor rstd, Tensor w) override;
  void bias_gelu_forward(Tensor out, Tensor x, Tensor bias) override;
  void gelu_forward(Tensor out, Tensor x) override;
  void gelu_backward(Tensor dx, Tensor dout, Tensor x) override;
  void bias_split_qkv(Tensor q, Tensor k, Tensor v, Tensor qkv, Tensor bias) override;
  void scaled_causal_softmax_forward(Tensor p, Tensor x, float scale) override;
  void scaled_causal_softmax_backward(Tensor dx, Tensor dp, Tensor p, float scale) override;

  // flash attention
  void attention_forward(Tensor out, Tensor lse, Tensor qkv) override;
  void attention_backward(Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv) override;

  // cross entropy
  void cross_entropy_forward(Tensor losses, Tensor logits, Tensor targets, int64_t V) override;
  void cross_entropy_forward_backward(Tensor losses, Tensor logits, Tensor targets, int64_t V, float scale,
                                      Tensor loss_scaler) override;

  // clipping and AdamW
  void clip_grad_norm(Tensor factor, Tensor norm, std::span<const Tensor> grads, float max_norm,
                      Tensor loss_scaler) override;
  void adamw(std::span<const AdamWTensor> tensors, Tensor schedule, Tensor clip, const AdamW& hyper,
             Tensor loss_scaler) override;

 private:
  /// body(first, last) over [0,n) in pieces of `piece`, each item with `work` elements to go through.
  template <class Body>
  void pieces(int64_t n, int64_t piece, int64_t work, const Body& body) const {
    parallel_for(n * work > kSerial ? threads_ : 1, (n + piece - 1) / piece,
                 [&](int64_t i) { body(i * piece, std::min(n, (i + 1) * piece)); });
  }
  /// body(row) over [0,rows), each of about `cols` elements.
  template <class Body>
  void each_row(int64_t rows, int64_t cols, const Body& body) const {
    const int64_t work = std::max<int64_t>(1, cols);
    pieces(rows, std::max<int64_t>(1, kPiece / work), work, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) body(row);
    });
  }
  /// out[i] = f(i) over [0,n).
  template <class T, class F>
  void each_element(Floats<T> out, int64_t n, const F& f) const {
    pieces(n, kPiece, 1, [=](int64_t first, int64_t last) {
      STEPLADDER_SIMD
      for (int64_t i = first; i < last; ++i) out.set(i, f(i));
    });
  }
  /// out (C) += sum of f(n, c) over [0,N), in double.
  template <class T, class F>
  void add_sums(Floats<T> out, int64_t N, int64_t C, const F& f) const {
    pieces(C, kColumns, N, [=](int64_t first, int64_t last) {
      double sums[kColumns] = {};
      for (int64_t n = 0; n < N; ++n)
        for (int64_t c = first; c < last; ++c) sums[c - first] += f(n, c);
      for (int64_t c = first; c < last; ++c) out.set(c, static_cast<float>(out[c] + sums[c - first]));
    });
  }
  /// Sum of x^2, in double.
  double squares(Tensor x) const;
  /// kScratch elements for each thread, of which the op wants `n`. Throws std::logic_error before
  /// bind_workspace().
  float* scratch(const char* op, int64_t n = 0) const;
  bool tf32() const { return precision_ == Precision::tf32; }

  static constexpr int64_t kSerial = 1 << 16;  // elements not worth waking a second thread for
  static constexpr int64_t kPiece = 1 << 14;   // elements handed to a thread at a time
  static constexpr int64_t kColumns = 64;      // columns that a thread sums on its stack

  /// Bytes handed out by allocate(); blocks may outlive the backend.
  struct Allocated {
    int64_t now = 0, peak = 0;
  };

  const int threads_;
  const std::shared_ptr<Allocated> allocated_ = std::make_shared<Allocated>();
  Precision precision_ = Precision::fp32;
  std::unique_ptr<MpiComm> comm_;  // empty: a world of 1
  Tensor scratch_;                 // (threads, kScratch)
  Tensor order_;                   // (B*T) rows sorted by token
  std::chrono::steady_clock::time_point start_, stop_;
};

}  // namespace stepladder
