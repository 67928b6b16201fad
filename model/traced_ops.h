// CountedOps: a backend that says what every op that goes through it moves and computes. TracedOps: and when.
#pragma once

#include <functional>
#include <span>
#include <type_traits>
#include <utility>

#include "model/ops.h"
#include "model/trace.h"

namespace stepladder {

/// Hands every op on to `ops`, and tells enter() what it is, how many bytes it has to move and how many FLOPs
/// it does.
class CountedOps : public Ops {
 public:
  // ---- not ops
  DeviceInfo device() const override { return ops_->device(); }
  MemoryInfo memory() override { return ops_->memory(); }
  std::shared_ptr<void> allocate(size_t bytes) override { return ops_->allocate(bytes); }
  std::shared_ptr<void> allocate_host(size_t bytes) override { return ops_->allocate_host(bytes); }
  void bind_workspace(Arena& arena, const Config& config) override { ops_->bind_workspace(arena, config); }
  void synchronize() override { ops_->synchronize(); }
  void phase(const char* name, int64_t layer) override { ops_->phase(name, layer); }
  void start_timer() override { ops_->start_timer(); }
  void stop_timer() override { ops_->stop_timer(); }
  double device_ms() override { return ops_->device_ms(); }
  void search(const std::function<void()>& work) override { ops_->search(work); }
  std::function<void()> record(const std::function<void()>& work) override { return ops_->record(work); }
  CompileInfo compile_info() const override { return ops_->compile_info(); }
  std::unique_ptr<Tracer> make_tracer() override { return ops_->make_tracer(); }
  void set_matmul_precision(Precision precision) override;
  void join(Rendezvous& ranks) override { ops_->join(ranks); }
  int rank() const override { return ops_->rank(); }
  int world() const override { return ops_->world(); }
  void wait_for_collectives(int64_t but) override { ops_->wait_for_collectives(but); }
  void collective(Collective what, std::span<const Tensor> bucket) override;

  // ---- copies
  void upload(Tensor dst, const void* host) override {
    call({"upload", OpKind::copy, moved({}, {dst})}, &Ops::upload, dst, host);
  }
  void download(void* host, Tensor src) override {
    call({"download", OpKind::copy, moved({src}, {})}, &Ops::download, host, src);
  }
  void zero(Tensor x) override { call({"zero", OpKind::memset, moved({}, {x})}, &Ops::zero, x); }
  void copy(Tensor dst, Tensor src) override {
    call({"copy", OpKind::copy, moved({src}, {dst})}, &Ops::copy, dst, src);
  }
  void write(Tensor dst, std::initializer_list<float> values) override {
    call({"write", OpKind::copy, moved({}, {dst})}, &Ops::write, dst, values);
  }
  void stage(Tensor staged, const void* pinned) override {
    call({"stage", OpKind::copy, moved({}, {staged})}, &Ops::stage, staged, pinned);
  }
  void receive(Tensor dst, Tensor staged) override {
    call({"receive", OpKind::copy, moved({staged}, {dst})}, &Ops::receive, dst, staged);
  }

  // ---- elementwise
  void add(Tensor out, Tensor a, Tensor b) override {
    call({"add", OpKind::elementwise, moved({a, b}, {out})}, &Ops::add, out, a, b);
  }
  void mul(Tensor out, Tensor a, Tensor b) override {
    call({"mul", OpKind::elementwise, moved({a, b}, {out})}, &Ops::mul, out, a, b);
  }
  void affine(Tensor out, Tensor x, float scale, float shift) override {
    call({"affine", OpKind::elementwise, moved({x}, {out})}, &Ops::affine, out, x, scale, shift);
  }
  void pow(Tensor out, Tensor x, int exponent) override {
    call({"pow", OpKind::elementwise, moved({x}, {out})}, &Ops::pow, out, x, exponent);
  }
  void tanh(Tensor out, Tensor x) override {
    call({"tanh", OpKind::elementwise, moved({x}, {out})}, &Ops::tanh, out, x);
  }
  void sqrt(Tensor out, Tensor x) override {
    call({"sqrt", OpKind::elementwise, moved({x}, {out})}, &Ops::sqrt, out, x);
  }
  void lerp(Tensor x, Tensor y, float weight) override {
    call({"lerp", OpKind::elementwise, moved({x, y}, {x})}, &Ops::lerp, x, y, weight);
  }
  void addcmul(Tensor x, Tensor a, Tensor b, float value) override {
    call({"addcmul", OpKind::elementwise, moved({x, a, b}, {x})}, &Ops::addcmul, x, a, b, value);
  }
  void addcdiv(Tensor x, Tensor a, Tensor b, float value) override {
    call({"addcdiv", OpKind::elementwise, moved({x, a, b}, {x})}, &Ops::addcdiv, x, a, b, value);
  }
  void scale_by(Tensor x, Tensor factor) override {
    call({"scale_by", OpKind::elementwise, moved({x, factor}, {x})}, &Ops::scale_by, x, factor);
  }

  // ---- rows and columns
  void row_mean(Tensor mean, Tensor x) override {
    call({"row_mean", OpKind::layernorm, moved({x}, {mean})}, &Ops::row_mean, mean, x);
  }
  void row_rstd(Tensor rstd, Tensor x, Tensor mean, float eps) override {
    call({"row_rstd", OpKind::layernorm, moved({x, mean}, {rstd})}, &Ops::row_rstd, rstd, x, mean, eps);
  }
  void normalize(Tensor out, Tensor x, Tensor mean, Tensor rstd) override {
    call({"normalize", OpKind::layernorm, moved({x, mean, rstd}, {out})}, &Ops::normalize, out, x, mean,
         rstd);
  }
  void normalize_backward(Tensor dx, Tensor dxhat, Tensor xhat, Tensor mean_dxhat, Tensor mean_dxhat_xhat,
                          Tensor rstd) override {
    call({"normalize_backward", OpKind::layernorm,
          moved({dx, dxhat, xhat, mean_dxhat, mean_dxhat_xhat, rstd}, {dx})},
         &Ops::normalize_backward, dx, dxhat, xhat, mean_dxhat, mean_dxhat_xhat, rstd);
  }
  void mul_columns(Tensor out, Tensor x, Tensor w) override {
    call({"mul_columns", OpKind::elementwise, moved({x, w}, {out})}, &Ops::mul_columns, out, x, w);
  }
  void add_columns(Tensor out, Tensor x, Tensor b) override {
    call({"add_columns", OpKind::elementwise, moved({x, b}, {out})}, &Ops::add_columns, out, x, b);
  }
  void sum_rows(Tensor out, Tensor x) override {
    call({"sum_rows", OpKind::reduction, moved({out, x}, {out})}, &Ops::sum_rows, out, x);
  }

  // ---- embedding: of wte, the rows that are looked up
  void embedding_forward(Tensor out, Tensor tokens, Tensor wte) override {
    call({"embedding_forward", OpKind::embedding, moved({tokens}, {out}) + looked_up(tokens, wte)},
         &Ops::embedding_forward, out, tokens, wte);
  }
  void embedding_backward(Tensor dwte, Tensor tokens, Tensor dout) override {
    call({"embedding_backward", OpKind::embedding, moved({tokens, dout}, {}) + 2.0 * looked_up(tokens, dwte)},
         &Ops::embedding_backward, dwte, tokens, dout);
  }
  void add_position(Tensor x, Tensor wpe) override {
    call({"add_position", OpKind::embedding, moved({x, positions(wpe, x)}, {x})}, &Ops::add_position, x, wpe);
  }
  void position_backward(Tensor dwpe, Tensor dout) override {
    const Tensor used = positions(dwpe, dout);
    call({"position_backward", OpKind::embedding, moved({used, dout}, {used})}, &Ops::position_backward, dwpe,
         dout);
  }
  void encoder_forward(Tensor out, Tensor tokens, Tensor wte, Tensor wpe) override {
    call({"encoder_forward", OpKind::embedding,
          moved({tokens, positions(wpe, out)}, {out}) + looked_up(tokens, wte)},
         &Ops::encoder_forward, out, tokens, wte, wpe);
  }

  // ---- matrix products
  void matmul(Tensor out, Tensor a, Tensor b, MatOp op, Write write) override {
    call(product("matmul", out, a, b, op, write), &Ops::matmul, out, a, b, op, write);
  }
  void linear_forward(Tensor out, Tensor x, Tensor w, Tensor b, Tensor residual) override {
    call(product("linear_forward", out, x, w, MatOp::NT, Write::set, moved({b, residual}, {})),
         &Ops::linear_forward, out, x, w, b, residual);
  }
  void linear_gelu_forward(Tensor out, Tensor pre, Tensor x, Tensor w, Tensor b) override {
    call(product("linear_gelu_forward", pre, x, w, MatOp::NT, Write::set, moved({b}, {out})),
         &Ops::linear_gelu_forward, out, pre, x, w, b);
  }
  void linear_gelu_backward(Tensor dpre, Tensor db, Tensor dout, Tensor w, Tensor pre, Write write) override {
    call(product("linear_gelu_backward", dpre, dout, w, MatOp::NN, Write::set,
                 moved({pre}, {}) + written(db, write)),
         &Ops::linear_gelu_backward, dpre, db, dout, w, pre, write);
  }
  void linear_weight_backward(Tensor dw, Tensor db, Tensor dout, Tensor x, Write write) override {
    call(product("linear_weight_backward", dw, dout, x, MatOp::TN, write, written(db, write)),
         &Ops::linear_weight_backward, dw, db, dout, x, write);
  }

  // ---- FP8; quantize_to_fit reads x twice
  void quantize(Tensor q, Tensor qt, Tensor x, Tensor dbias) override {
    call({"quantize", OpKind::elementwise, moved({x, dbias}, {q, qt, dbias})}, &Ops::quantize, q, qt, x,
         dbias);
  }
  void quantize_to_fit(Tensor q, Tensor qt, Tensor x) override {
    call({"quantize_to_fit", OpKind::elementwise, moved({x}, {}) + moved({x}, {q, qt})},
         &Ops::quantize_to_fit, q, qt, x);
  }
  void quantize_gelu(Tensor q, Tensor qt, Tensor x) override {
    call({"quantize_gelu", OpKind::elementwise, moved({x}, {q, qt})}, &Ops::quantize_gelu, q, qt, x);
  }
  void quantize_gelu_backward(Tensor q, Tensor qt, Tensor dbias, Tensor dout, Tensor x) override {
    call({"quantize_gelu_backward", OpKind::elementwise, moved({dout, x, dbias}, {q, qt, dbias})},
         &Ops::quantize_gelu_backward, q, qt, dbias, dout, x);
  }
  void quantize_cross_entropy(Tensor q, Tensor losses, Tensor logits, Tensor targets, int64_t V,
                              float scale) override {
    call({"quantize_cross_entropy", OpKind::cross_entropy,
          moved({targets}, {q, losses}) + first_columns(logits, V)},
         &Ops::quantize_cross_entropy, q, losses, logits, targets, V, scale);
  }
  void quantize_layernorm(Tensor q, Tensor qt, Tensor mean, Tensor rstd, Tensor x, Tensor w,
                          Tensor b) override {
    call({"quantize_layernorm", OpKind::layernorm, moved({x, w, b}, {q, qt, mean, rstd})},
         &Ops::quantize_layernorm, q, qt, mean, rstd, x, w, b);
  }
  void quantize_layernorm_backward(Tensor q, Tensor qt, Tensor dx, Tensor dw, Tensor db, Tensor dbias,
                                   Tensor dout, Tensor x, Tensor mean, Tensor rstd, Tensor w) override {
    call({"quantize_layernorm_backward", OpKind::layernorm,
          moved({dx, dw, db, dbias, dout, x, mean, rstd, w}, {q, qt, dx, dw, db, dbias})},
         &Ops::quantize_layernorm_backward, q, qt, dx, dw, db, dbias, dout, x, mean, rstd, w);
  }
  void transpose(Tensor qt, Tensor q) override {
    call({"transpose", OpKind::elementwise, moved({q}, {qt})}, &Ops::transpose, qt, q);
  }
  void update_scales(Tensor scale, Tensor history, Tensor amax, DType type) override {
    call({"update_scales", OpKind::reduction, moved({history, amax}, {scale, history})}, &Ops::update_scales,
         scale, history, amax, type);
  }

  // ---- fused normalisation and activation
  void layernorm_forward(Tensor out, Tensor mean, Tensor rstd, Tensor x, Tensor w, Tensor b) override {
    call({"layernorm_forward", OpKind::layernorm, moved({x, w, b}, {out, mean, rstd})},
         &Ops::layernorm_forward, out, mean, rstd, x, w, b);
  }
  void residual_layernorm_forward(Tensor res, Tensor out, Tensor mean, Tensor rstd, Tensor x, Tensor y,
                                  Tensor bias, Tensor w, Tensor b) override {
    call({"residual_layernorm_forward", OpKind::layernorm, moved({x, y, bias, w, b}, {res, out, mean, rstd})},
         &Ops::residual_layernorm_forward, res, out, mean, rstd, x, y, bias, w, b);
  }
  void layernorm_backward(Tensor dx, Tensor dw, Tensor db, Tensor dbias, Tensor dout, Tensor x, Tensor mean,
                          Tensor rstd, Tensor w) override {
    call({"layernorm_backward", OpKind::layernorm,
          moved({dx, dw, db, dbias, dout, x, mean, rstd, w}, {dx, dw, db, dbias})},
         &Ops::layernorm_backward, dx, dw, db, dbias, dout, x, mean, rstd, w);
  }
  void bias_gelu_forward(Tensor out, Tensor x, Tensor bias) override {
    call({"bias_gelu_forward", OpKind::elementwise, moved({x, bias}, {x, out})}, &Ops::bias_gelu_forward, out,
         x, bias);
  }
  void gelu_forward(Tensor out, Tensor x) override {
    call({"gelu_forward", OpKind::elementwise, moved({x}, {out})}, &Ops::gelu_forward, out, x);
  }
  void gelu_backward(Tensor dx, Tensor dout, Tensor x) override {
    call({"gelu_backward", OpKind::elementwise, moved({dout, x}, {dx})}, &Ops::gelu_backward, dx, dout, x);
  }

  // ---- attention; what is causal reads no more than the past
  void split_qkv(Tensor q, Tensor k, Tensor v, Tensor qkv) override {
    call({"split_qkv", OpKind::copy, moved({qkv}, {q, k, v})}, &Ops::split_qkv, q, k, v, qkv);
  }
  void merge_qkv(Tensor qkv, Tensor q, Tensor k, Tensor v) override {
    call({"merge_qkv", OpKind::copy, moved({q, k, v}, {qkv})}, &Ops::merge_qkv, qkv, q, k, v);
  }
  void bias_split_qkv(Tensor q, Tensor k, Tensor v, Tensor qkv, Tensor bias) override {
    call({"bias_split_qkv", OpKind::copy, moved({qkv, bias}, {q, k, v})}, &Ops::bias_split_qkv, q, k, v, qkv,
         bias);
  }
  void split_heads(Tensor out, Tensor x) override {
    call({"split_heads", OpKind::copy, moved({x}, {out})}, &Ops::split_heads, out, x);
  }
  void merge_heads(Tensor out, Tensor x) override {
    call({"merge_heads", OpKind::copy, moved({x}, {out})}, &Ops::merge_heads, out, x);
  }
  void causal_mask(Tensor mask) override {
    call({"causal_mask", OpKind::softmax, moved({}, {mask})}, &Ops::causal_mask, mask);
  }
  void add_mask(Tensor att, Tensor mask) override {
    call({"add_mask", OpKind::softmax, moved({att, mask}, {att})}, &Ops::add_mask, att, mask);
  }
  void softmax_forward(Tensor p, Tensor x) override {
    call({"softmax_forward", OpKind::softmax, moved({x}, {p})}, &Ops::softmax_forward, p, x);
  }
  void softmax_backward(Tensor dx, Tensor dp, Tensor p) override {
    call({"softmax_backward", OpKind::softmax, moved({dp, p}, {dx})}, &Ops::softmax_backward, dx, dp, p);
  }
  void causal_softmax_forward(Tensor p, Tensor x) override {
    call({"causal_softmax_forward", OpKind::softmax, past(x) * moved({x}, {}) + moved({}, {p})},
         &Ops::causal_softmax_forward, p, x);
  }
  void causal_softmax_backward(Tensor dx, Tensor dp, Tensor p) override {
    call({"causal_softmax_backward", OpKind::softmax, past(p) * moved({dp, p}, {}) + moved({}, {dx})},
         &Ops::causal_softmax_backward, dx, dp, p);
  }
  void scaled_causal_softmax_forward(Tensor p, Tensor x, float scale) override {
    call({"scaled_causal_softmax_forward", OpKind::softmax, past(x) * moved({x}, {}) + moved({}, {p})},
         &Ops::scaled_causal_softmax_forward, p, x, scale);
  }
  void scaled_causal_softmax_backward(Tensor dx, Tensor dp, Tensor p, float scale) override {
    call({"scaled_causal_softmax_backward", OpKind::softmax, past(p) * moved({dp, p}, {}) + moved({}, {dx})},
         &Ops::scaled_causal_softmax_backward, dx, dp, p, scale);
  }
  void attention_forward(Tensor out, Tensor lse, Tensor qkv) override {
    call(attention("attention_forward", 2, moved({qkv}, {out, lse}), lse, qkv), &Ops::attention_forward, out,
         lse, qkv);
  }
  void attention_backward(Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv) override {
    call(attention("attention_backward", 5, moved({dout, out, lse, qkv}, {dqkv}), lse, qkv),
         &Ops::attention_backward, dqkv, dout, out, lse, qkv);
  }

  // ---- classifier
  void log_softmax_forward(Tensor logp, Tensor logits) override {
    call({"log_softmax_forward", OpKind::cross_entropy, moved({logits}, {logp})}, &Ops::log_softmax_forward,
         logp, logits);
  }
  void log_softmax_backward(Tensor dlogits, Tensor dlogp, Tensor logp) override {
    call({"log_softmax_backward", OpKind::cross_entropy, moved({dlogp, logp}, {dlogits})},
         &Ops::log_softmax_backward, dlogits, dlogp, logp);
  }
  void nll_loss_forward(Tensor losses, Tensor logp, Tensor targets) override {
    call({"nll_loss_forward", OpKind::cross_entropy, moved({targets, losses}, {losses})},  // a logp a loss
         &Ops::nll_loss_forward, losses, logp, targets);
  }
  void nll_loss_backward(Tensor dlogp, Tensor targets, float scale, Tensor loss_scaler) override {
    call({"nll_loss_backward", OpKind::cross_entropy, moved({targets, loss_scaler}, {dlogp})},
         &Ops::nll_loss_backward, dlogp, targets, scale, loss_scaler);
  }
  void add_mean(Tensor out, Tensor x) override {
    call({"add_mean", OpKind::reduction, moved({out, x}, {out})}, &Ops::add_mean, out, x);
  }
  void cross_entropy_forward(Tensor losses, Tensor logits, Tensor targets, int64_t V) override {
    call({"cross_entropy_forward", OpKind::cross_entropy,
          moved({targets}, {losses}) + first_columns(logits, V)},
         &Ops::cross_entropy_forward, losses, logits, targets, V);
  }
  void cross_entropy_forward_backward(Tensor losses, Tensor logits, Tensor targets, int64_t V, float scale,
                                      Tensor loss_scaler) override {
    call({"cross_entropy_forward_backward", OpKind::cross_entropy,
          moved({targets, loss_scaler}, {losses, logits}) + first_columns(logits, V)},
         &Ops::cross_entropy_forward_backward, losses, logits, targets, V, scale, loss_scaler);
  }

  // ---- clipping and optimizer
  void sum_of_squares(Tensor out, Tensor x) override {
    call({"sum_of_squares", OpKind::clip, moved({x}, {out})}, &Ops::sum_of_squares, out, x);
  }
  void clip_factor(Tensor factor, Tensor norm, Tensor parts, float max_norm) override {
    call({"clip_factor", OpKind::clip, moved({parts}, {factor, norm})}, &Ops::clip_factor, factor, norm,
         parts, max_norm);
  }
  void clip_grad_norm(Tensor factor, Tensor norm, std::span<const Tensor> grads, float max_norm,
                      Tensor loss_scaler) override;
  void adamw(std::span<const AdamWTensor> tensors, Tensor schedule, Tensor clip, const AdamW& hyper,
             Tensor loss_scaler) override;

 protected:
  explicit CountedOps(std::shared_ptr<Ops> ops) : ops_(std::move(ops)) {}
  /// Before and after each op; `operands` are its single tensors, in the order of its parameters.
  virtual void enter(OpCall what, std::span<const Tensor> operands) = 0;
  virtual void leave() {}

  const std::shared_ptr<Ops> ops_;

 private:
  template <class... Wanted, class... Given>
  void call(OpCall what, void (Ops::*op)(Wanted...), Given&&... given) {
    std::vector<Tensor> operands;
    const auto note = [&operands](const auto& operand) {
      if constexpr (std::is_same_v<decltype(operand), const Tensor&>) operands.push_back(operand);
    };
    (note(given), ...);
    enter(std::move(what), operands);
    (ops_.get()->*op)(std::forward<Given>(given)...);
    leave();
  }

  /// Bytes of the distinct tensors read and of those written; empty ones have none.
  static double moved(std::initializer_list<Tensor> read, std::initializer_list<Tensor> written);
  static double written(const Tensor& x, Write write);
  /// Of a row of wte for each token.
  static double looked_up(const Tensor& tokens, const Tensor& wte);
  /// The rows of wpe that x (B,T,C) has positions for.
  static Tensor positions(const Tensor& wpe, const Tensor& x);
  /// Share of x (...,T,T) on and below the diagonal.
  static double past(const Tensor& x);
  static double first_columns(const Tensor& logits, int64_t V);
  /// A product of `out`, `a` and `b` as Ops::matmul takes them, which moves `more` bytes besides.
  OpCall product(const char* name, const Tensor& out, const Tensor& a, const Tensor& b, MatOp op, Write write,
                 double more = 0.0) const;
  /// Causal attention of lse (B,NH,T) and qkv (B,T,3C), of `products` products for each pair of tokens.
  OpCall attention(const char* name, int products, double bytes, const Tensor& lse, const Tensor& qkv) const;
  MathMode math_of(DType dtype) const;

  Precision precision_ = Precision::fp32;
};

/// Notes every op, and in which phase of the step it comes. The backend's tracer says when the device ran it.
class TracedOps final : public CountedOps {
 public:
  explicit TracedOps(std::shared_ptr<Ops> ops);

  /// Brackets a step; the device has nothing to do at either end.
  void begin_step();
  struct Step {
    Tracer::Step times;
    std::vector<int64_t> calls;  // in the order they were queued, recorded ones at each launch
  };
  Step end_step();
  /// That Span::call and Step::calls index.
  const std::vector<OpCall>& calls() const { return calls_; }
  std::string source() const { return tracer_->source(); }

  void phase(const char* name, int64_t layer) override;
  std::function<void()> record(const std::function<void()>& work) override;

 private:
  void enter(OpCall what, std::span<const Tensor> operands) override;
  void leave() override { tracer_->leave(); }

  const std::unique_ptr<Tracer> tracer_;
  std::vector<OpCall> calls_;
  std::vector<int64_t> queued_;  // since begin_step()
  bool recording_ = false;
  std::string phase_;
};

}  // namespace stepladder
