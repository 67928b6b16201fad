#include "model/traced_ops.h"

#include <algorithm>
#include <array>

namespace stepladder {

const char* name_of(OpKind kind) {
  constexpr std::array kNames = {"GEMM",      "attention",   "LayerNorm",    "softmax", "cross-entropy",
                                 "embedding", "elementwise", "reduction",    "clip",    "AdamW",
                                 "copy",      "memset",      "communication"};
  return kNames.at(static_cast<size_t>(kind));
}

TracedOps::TracedOps(std::shared_ptr<Ops> ops) : CountedOps(std::move(ops)), tracer_(ops_->make_tracer()) {}

void TracedOps::begin_step() {
  queued_.clear();
  tracer_->begin();
}

TracedOps::Step TracedOps::end_step() {
  return {tracer_->end(), std::exchange(queued_, {})};
}

void TracedOps::phase(const char* name, int64_t layer) {
  phase_ = name ? name : "";
  ops_->phase(name, layer);
}

void TracedOps::enter(OpCall what, std::span<const Tensor>) {
  // Batches arrive, and gradients are cleared, where no phase is open; the next batch within some other.
  const bool batch = what.op == "upload" || what.op == "stage" || what.op == "receive";
  const bool reduction =
      what.op == name_of(Collective::all_reduce) || what.op == name_of(Collective::reduce_scatter);
  what.phase = batch ? "data" : reduction ? "gradient reduction" : phase_.empty() ? "clear" : phase_;
  const int64_t id = std::ssize(calls_);
  calls_.push_back(std::move(what));
  if (!recording_) queued_.push_back(id);
  tracer_->enter(id);
}

std::function<void()> TracedOps::record(const std::function<void()>& work) {
  const int64_t first = std::ssize(calls_);
  phase_.clear();  // a recorded part opens its own
  recording_ = true;
  const auto run = ops_->record(work);
  recording_ = false;
  return [this, run, first, last = std::ssize(calls_)] {
    for (int64_t id = first; id < last; ++id) queued_.push_back(id);
    tracer_->replay(first, last);
    run();
  };
}

void CountedOps::set_matmul_precision(Precision precision) {
  const DeviceInfo info = ops_->device();
  precision_ = info.backend == "cpu" || info.compute_capability >= 80 ? precision : Precision::fp32;
  ops_->set_matmul_precision(precision);
}

void CountedOps::collective(Collective what, std::span<const Tensor> bucket) {
  double bytes = 0.0;  // that this rank sends, by rings; it receives as many
  for (const Tensor& x : bucket) bytes += static_cast<double>(x.bytes());
  const double others = (world() - 1.0) / world();
  if (what != Collective::broadcast) bytes *= what == Collective::all_reduce ? 2.0 * others : others;
  if (world() > 1) call({name_of(what), OpKind::communication, bytes}, &Ops::collective, what, bucket);
}

void CountedOps::clip_grad_norm(Tensor factor, Tensor norm, std::span<const Tensor> grads, float max_norm,
                                Tensor loss_scaler) {
  double bytes = moved({loss_scaler}, {factor, norm, loss_scaler});
  for (const Tensor& g : grads) bytes += moved({g}, {});
  call({"clip_grad_norm", OpKind::clip, bytes}, &Ops::clip_grad_norm, factor, norm, grads, max_norm,
       loss_scaler);
}

void CountedOps::adamw(std::span<const AdamWTensor> tensors, Tensor schedule, Tensor clip, const AdamW& hyper,
                       Tensor loss_scaler) {
  double bytes = moved({schedule, clip, loss_scaler}, {});
  for (const AdamWTensor& t : tensors) bytes += moved({t.w, t.g, t.m, t.v}, {t.w, t.m, t.v, t.low});
  call({"adamw", OpKind::adamw, bytes}, &Ops::adamw, tensors, schedule, clip, hyper, loss_scaler);
}

double CountedOps::moved(std::initializer_list<Tensor> read, std::initializer_list<Tensor> written) {
  size_t bytes = 0;
  for (const auto& tensors : {read, written})
    for (const Tensor* t = tensors.begin(); t != tensors.end(); ++t) {
      const bool again =
          std::any_of(tensors.begin(), t, [&](const Tensor& before) { return before.data == t->data; });
      if (t->data && !again) bytes += t->bytes();
    }
  return static_cast<double>(bytes);
}

double CountedOps::written(const Tensor& x, Write write) {
  return write == Write::add ? moved({x}, {x}) : moved({}, {x});
}

double CountedOps::looked_up(const Tensor& tokens, const Tensor& wte) {
  return static_cast<double>(tokens.numel() * wte.cols()) * static_cast<double>(size_of(wte.dtype));
}

Tensor CountedOps::positions(const Tensor& wpe, const Tensor& x) {
  return wpe.first({x.shape[-2], wpe.cols()});
}

double CountedOps::past(const Tensor& x) {
  const auto T = static_cast<double>(x.cols());
  return (T + 1.0) / (2.0 * T);
}

double CountedOps::first_columns(const Tensor& logits, int64_t V) {
  return static_cast<double>(logits.rows() * V) * static_cast<double>(size_of(logits.dtype));
}

MathMode CountedOps::math_of(DType dtype) const {
  if (is_fp8(dtype)) return MathMode::fp8;
  if (size_of(dtype) == 2) return MathMode::half;
  return precision_ == Precision::tf32 ? MathMode::tf32 : MathMode::fp32;
}

OpCall CountedOps::product(const char* name, const Tensor& out, const Tensor& a, const Tensor& b, MatOp op,
                           Write write, double more) const {
  int64_t batch = 1;
  if ((op == MatOp::TN ? out : b).shape.rank() > 2)
    for (int i = 0; i < out.shape.rank() - 2; ++i) batch *= out.shape[i];
  // Rows may be padded: every extent is taken where it is not.
  const int64_t M = out.rows() / batch, N = op == MatOp::NT ? b.rows() / batch : b.cols();
  const int64_t K = op == MatOp::TN ? a.rows() / batch : op == MatOp::NT ? b.cols() : b.rows() / batch;
  const auto bytes = [batch](int64_t elements, const Tensor& x) {
    return static_cast<double>(batch * elements) * static_cast<double>(size_of(x.dtype));
  };
  const char* form = op == MatOp::NN ? " NN " : op == MatOp::NT ? " NT " : " TN ";
  return {cat(name, form, batch > 1 ? cat(batch, " of ") : "", M, 'x', N, 'x', K), OpKind::gemm,
          bytes(M * K, a) + bytes(K * N, b) + bytes(M * N, out) * (write == Write::add ? 2.0 : 1.0) + more,
          2.0 * static_cast<double>(batch) * static_cast<double>(M) * static_cast<double>(N) *
              static_cast<double>(K),
          math_of(a.dtype)};
}

OpCall CountedOps::attention(const char* name, int products, double bytes, const Tensor& lse,
                             const Tensor& qkv) const {
  const int64_t T = lse.cols(), HS = qkv.cols() / 3 / lse.shape[1], past = T * (T + 1) / 2;
  const double pairs = static_cast<double>(lse.rows()) * static_cast<double>(past);
  return {name, OpKind::attention, bytes, 2.0 * products * pairs * static_cast<double>(HS),
          math_of(qkv.dtype)};
}

}  // namespace stepladder
