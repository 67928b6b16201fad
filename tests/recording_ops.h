// CPU ops that note what is called. Their memory starts as NaN, so that reading what was not written shows.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/ops.h"
#include "model/trace.h"

namespace stepladder {

/// One call that queues work: "add f32(2,3) f32(2,3) f32(2,3)". Matmuls of f32 also tell their precision:
/// "matmul/tf32 ...".
using Calls = std::vector<std::string>;

/// Goes on to the CPU backend.
class RecordingOps final : public Ops {
 public:
  explicit RecordingOps(std::unique_ptr<Ops> inner) : inner_(std::move(inner)) {}

  Calls calls;  // so far

  DeviceInfo device() const override { return inner_->device(); }
  MemoryInfo memory() override { return inner_->memory(); }
  std::shared_ptr<void> allocate(size_t bytes) override {
    auto block = inner_->allocate(bytes);
    std::memset(block.get(), 0xFF, bytes);
    return block;
  }
  void bind_workspace(Arena& arena, const Config& config) override { inner_->bind_workspace(arena, config); }
  void synchronize() override { inner_->synchronize(); }
  void phase(const char* name, int64_t layer) override { inner_->phase(name, layer); }
  void start_timer() override { inner_->start_timer(); }
  void stop_timer() override { inner_->stop_timer(); }
  double device_ms() override { return inner_->device_ms(); }
  std::unique_ptr<Tracer> make_tracer() override { return inner_->make_tracer(); }
  CompileInfo compile_info() const override { return inner_->compile_info(); }
  std::shared_ptr<void> allocate_host(size_t bytes) override { return inner_->allocate_host(bytes); }
  void download(void* host, Tensor src) override { inner_->download(host, src); }

  void search(const std::function<void()>& work) override {
    calls.emplace_back("search");
    inner_->search(work);
  }
  std::function<void()> record(const std::function<void()>& work) override {
    calls.emplace_back("record");
    return inner_->record(work);
  }
  void set_matmul_precision(Precision precision) override {
    precision_ = precision;
    inner_->set_matmul_precision(precision);
  }

  void join(Rendezvous& ranks) override { inner_->join(ranks); }
  int rank() const override { return inner_->rank(); }
  int world() const override { return inner_->world(); }
  void wait_for_collectives() override { inner_->wait_for_collectives(); }
  void collective(Collective what, std::span<const Tensor> bucket) override {
    calls.emplace_back(name_of(what));
    inner_->collective(what, bucket);
  }

#define RECORDED(op, parameters, ...) \
  void op parameters override {       \
    note(#op, __VA_ARGS__);           \
    inner_->op(__VA_ARGS__);          \
  }
  // clang-format off
  RECORDED(upload, (Tensor dst, const void* host), dst, host)
  RECORDED(zero, (Tensor x), x)
  RECORDED(copy, (Tensor dst, Tensor src), dst, src)
  RECORDED(write, (Tensor dst, std::initializer_list<float> values), dst, values)
  RECORDED(stage, (Tensor staged, const void* pinned), staged, pinned)
  RECORDED(receive, (Tensor dst, Tensor staged), dst, staged)
  RECORDED(add, (Tensor out, Tensor a, Tensor b), out, a, b)
  RECORDED(mul, (Tensor out, Tensor a, Tensor b), out, a, b)
  RECORDED(affine, (Tensor out, Tensor x, float scale, float shift), out, x, scale, shift)
  RECORDED(pow, (Tensor out, Tensor x, int exponent), out, x, exponent)
  RECORDED(tanh, (Tensor out, Tensor x), out, x)
  RECORDED(sqrt, (Tensor out, Tensor x), out, x)
  RECORDED(lerp, (Tensor x, Tensor y, float weight), x, y, weight)
  RECORDED(addcmul, (Tensor x, Tensor a, Tensor b, float value), x, a, b, value)
  RECORDED(addcdiv, (Tensor x, Tensor a, Tensor b, float value), x, a, b, value)
  RECORDED(scale_by, (Tensor x, Tensor factor), x, factor)
  RECORDED(row_mean, (Tensor mean, Tensor x), mean, x)
  RECORDED(row_rstd, (Tensor rstd, Tensor x, Tensor mean, float eps), rstd, x, mean, eps)
  RECORDED(normalize, (Tensor out, Tensor x, Tensor mean, Tensor rstd), out, x, mean, rstd)
  RECORDED(normalize_backward, (Tensor dx, Tensor dxhat, Tensor xhat, Tensor mean_dxhat, Tensor mean_dxhat_xhat, Tensor rstd), dx, dxhat, xhat, mean_dxhat, mean_dxhat_xhat, rstd)
  RECORDED(mul_columns, (Tensor out, Tensor x, Tensor w), out, x, w)
  RECORDED(add_columns, (Tensor out, Tensor x, Tensor b), out, x, b)
  RECORDED(sum_rows, (Tensor out, Tensor x), out, x)
  RECORDED(embedding_forward, (Tensor out, Tensor tokens, Tensor wte), out, tokens, wte)
  RECORDED(embedding_backward, (Tensor dwte, Tensor tokens, Tensor dout), dwte, tokens, dout)
  RECORDED(add_position, (Tensor x, Tensor wpe), x, wpe)
  RECORDED(position_backward, (Tensor dwpe, Tensor dout), dwpe, dout)
  RECORDED(matmul, (Tensor out, Tensor a, Tensor b, MatOp op, Write write), out, a, b, op, write)
  RECORDED(linear_forward, (Tensor out, Tensor x, Tensor w, Tensor b), out, x, w, b)
  RECORDED(linear_gelu_forward, (Tensor out, Tensor pre, Tensor x, Tensor w, Tensor b), out, pre, x, w, b)
  RECORDED(linear_gelu_backward, (Tensor dpre, Tensor db, Tensor dout, Tensor w, Tensor pre, Write write), dpre, db, dout, w, pre, write)
  RECORDED(linear_weight_backward, (Tensor dw, Tensor db, Tensor dout, Tensor x, Write write), dw, db, dout, x, write)
  RECORDED(encoder_forward, (Tensor out, Tensor tokens, Tensor wte, Tensor wpe), out, tokens, wte, wpe)
  RECORDED(layernorm_forward, (Tensor out, Tensor mean, Tensor rstd, Tensor x, Tensor w, Tensor b), out, mean, rstd, x, w, b)
  RECORDED(residual_layernorm_forward, (Tensor res, Tensor out, Tensor mean, Tensor rstd, Tensor x, Tensor y, Tensor bias, Tensor w, Tensor b), res, out, mean, rstd, x, y, bias, w, b)
  RECORDED(layernorm_backward, (Tensor dx, Tensor dw, Tensor db, Tensor dbias, Tensor dout, Tensor x, Tensor mean, Tensor rstd, Tensor w), dx, dw, db, dbias, dout, x, mean, rstd, w)
  RECORDED(bias_gelu_forward, (Tensor out, Tensor x, Tensor bias), out, x, bias)
  RECORDED(gelu_backward, (Tensor dx, Tensor dout, Tensor x), dx, dout, x)
  RECORDED(split_qkv, (Tensor q, Tensor k, Tensor v, Tensor qkv), q, k, v, qkv)
  RECORDED(merge_qkv, (Tensor qkv, Tensor q, Tensor k, Tensor v), qkv, q, k, v)
  RECORDED(bias_split_qkv, (Tensor q, Tensor k, Tensor v, Tensor qkv, Tensor bias), q, k, v, qkv, bias)
  RECORDED(split_heads, (Tensor out, Tensor x), out, x)
  RECORDED(merge_heads, (Tensor out, Tensor x), out, x)
  RECORDED(causal_mask, (Tensor mask), mask)
  RECORDED(add_mask, (Tensor att, Tensor mask), att, mask)
  RECORDED(softmax_forward, (Tensor p, Tensor x), p, x)
  RECORDED(softmax_backward, (Tensor dx, Tensor dp, Tensor p), dx, dp, p)
  RECORDED(causal_softmax_forward, (Tensor p, Tensor x), p, x)
  RECORDED(causal_softmax_backward, (Tensor dx, Tensor dp, Tensor p), dx, dp, p)
  RECORDED(scaled_causal_softmax_forward, (Tensor p, Tensor x, float scale), p, x, scale)
  RECORDED(scaled_causal_softmax_backward, (Tensor dx, Tensor dp, Tensor p, float scale), dx, dp, p, scale)
  RECORDED(attention_forward, (Tensor out, Tensor lse, Tensor qkv), out, lse, qkv)
  RECORDED(attention_backward, (Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv), dqkv, dout, out, lse, qkv)
  RECORDED(log_softmax_forward, (Tensor logp, Tensor logits), logp, logits)
  RECORDED(log_softmax_backward, (Tensor dlogits, Tensor dlogp, Tensor logp), dlogits, dlogp, logp)
  RECORDED(nll_loss_forward, (Tensor losses, Tensor logp, Tensor targets), losses, logp, targets)
  RECORDED(nll_loss_backward, (Tensor dlogp, Tensor targets, float scale, Tensor loss_scaler), dlogp, targets, scale, loss_scaler)
  RECORDED(add_mean, (Tensor out, Tensor x), out, x)
  RECORDED(cross_entropy_forward, (Tensor losses, Tensor logits, Tensor targets, int64_t V), losses, logits, targets, V)
  RECORDED(cross_entropy_forward_backward, (Tensor losses, Tensor logits, Tensor targets, int64_t V, float scale, Tensor loss_scaler), losses, logits, targets, V, scale, loss_scaler)
  RECORDED(sum_of_squares, (Tensor out, Tensor x), out, x)
  RECORDED(clip_factor, (Tensor factor, Tensor norm, Tensor parts, float max_norm), factor, norm, parts, max_norm)
  RECORDED(clip_grad_norm, (Tensor factor, Tensor norm, std::span<const Tensor> grads, float max_norm, Tensor loss_scaler), factor, norm, grads, max_norm, loss_scaler)
  RECORDED(adamw, (std::span<const AdamWTensor> tensors, Tensor schedule, Tensor clip, const AdamW& hyper, Tensor loss_scaler), tensors, schedule, clip, hyper, loss_scaler)
  // clang-format on
#undef RECORDED

 private:
  template <class... Args>
  void note(std::string op, const Tensor& first, const Args&... args) {
    if (first.dtype == DType::f32 && (op == "matmul" || op.starts_with("linear_")))
      op += precision_ == Precision::tf32 ? "/tf32" : "/fp32";
    append(op, first);
    (append(op, args), ...);
    calls.push_back(op);
  }
  void note(std::string op, std::span<const AdamWTensor>, const Tensor&, const Tensor&, const AdamW&,
            const Tensor&) {
    calls.push_back(std::move(op));
  }

  static void append(std::string& call, const Tensor& x) {
    if (x.shape.rank() > 0) call += cat(' ', name_of(x.dtype), x.shape);
  }
  template <class T>
  static void append(std::string&, const T&) {}

  std::unique_ptr<Ops> inner_;
  Precision precision_ = Precision::fp32;
};

}  // namespace stepladder
