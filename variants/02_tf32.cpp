#include <algorithm>
#include <cmath>

#include "model/data.h"
#include "model/gpt2.h"

namespace stepladder {
namespace {

class Variant final : public Trainer {
 public:
  Variant(Ops& ops, Arena& arena, const Config& config, const Hyper& hyper)
      : Trainer(ops, arena, config, hyper) {
    const auto f32 = [&](const char* name, Shape shape) { return arena.alloc(name, DType::f32, shape); };
    const auto act = f32;

    const int64_t C = config.C, NH = config.NH, Vp = config.V;  // Vp: rows of wte, columns of the logits

    // Parameters, gradients and AdamW moments.
    params = Params(arena, "params", config, DType::f32, Vp);
    weights = params;
    grads = Params(arena, "grads", config, DType::f32, Vp);
    adam_m = Params(arena, "adam_m", config, DType::f32, Vp);
    adam_v = Params(arena, "adam_v", config, DType::f32, Vp);

    // The batch.
    tokens = arena.alloc("batch/tokens", DType::i32, {B, T});
    targets = arena.alloc("batch/targets", DType::i32, {B, T});

    // Activations that the backward pass reads.
    ln1 = act("activations/ln1", {L, B, T, C});
    ln1hat = act("activations/ln1hat", {L, B, T, C});
    ln1rstd = f32("activations/ln1rstd", {L, B, T});
    q = act("activations/q", {L, B, NH, T, HS});
    k = act("activations/k", {L, B, NH, T, HS});
    v = act("activations/v", {L, B, NH, T, HS});
    att = act("activations/att", {L, B, NH, T, T});
    atty = act("activations/atty", {L, B, T, C});
    ln2 = act("activations/ln2", {L, B, T, C});
    ln2hat = act("activations/ln2hat", {L, B, T, C});
    ln2rstd = f32("activations/ln2rstd", {L, B, T});
    fch = act("activations/fch", {L, B, T, 4 * C});
    fcgelu = act("activations/fcgelu", {L, B, T, 4 * C});
    lnf = act("activations/lnf", {B, T, C});
    lnfhat = act("activations/lnfhat", {B, T, C});
    lnfrstd = f32("activations/lnfrstd", {B, T});
    logits = act("activations/logits", {B, T, Vp});
    logprobs = f32("activations/logprobs", {B, T, config.V});
    losses = f32("activations/losses", {B, T});

    // Memory that every layer uses again.
    res = act("scratch/res", {B, T, C});
    mean = f32("scratch/mean", {B, T});
    qkv = act("scratch/qkv", {B, T, 3 * C});
    heads = act("scratch/heads", {B, NH, T, HS});
    fctanh = act("scratch/fctanh", {B, T, 4 * C});
    proj = act("scratch/proj", {B, T, C});
    dres = act("scratch/dres", {B, T, C});
    dln = act("scratch/dln", {B, T, C});
    dlnhat = act("scratch/dlnhat", {B, T, C});
    dmean = f32("scratch/dmean", {B, T});
    dq = act("scratch/dq", {B, NH, T, HS});
    dk = act("scratch/dk", {B, NH, T, HS});
    dv = act("scratch/dv", {B, NH, T, HS});
    datt = act("scratch/datt", {B, NH, T, T});
    dfch = act("scratch/dfch", {B, T, 4 * C});
    dfcgelu = act("scratch/dfcgelu", {B, T, 4 * C});
    dgelu = act("scratch/dgelu", {B, T, 4 * C});

    // Clipping and AdamW.
    ws = params.each(), gs = grads.each(), ms = adam_m.each(), vs = adam_v.each();
    squares = f32("scratch/squares", {static_cast<int64_t>(gs.size())});
    clip = f32("scratch/clip", {1});
    denominator = f32("scratch/denominator", {std::max(params.wte.numel(), params.fcw[0].numel())});
  }

  void prepare() override {
    // GEMMs of f32 tensors: in full precision, or with inputs rounded to TF32.
    ops.set_matmul_precision(Precision::tf32);
  }

  void step(Loader& data, int64_t step, float lr) override {
    for (const auto& g : gs) ops(Zero{g.tensor});
    ops(Zero{loss});
    for (int micro = 0; micro < hyper.accumulate; ++micro) {
      const Batch batch = data.next();

      forward(batch);
      backward();
      // All of it is queued: the host does not wait for the device.
    }
    update(step, lr);
    ops.phase(nullptr);
  }

  void load(const Batch& batch) {
    ops.phase("data");
    ops(Upload{tokens, batch.tokens});
    ops(Upload{targets, batch.targets});
  }

  void forward(const Batch& batch) override {
    load(batch);

    ops.phase("encoder");
    ops(EmbeddingForward{res, tokens, weights.wte});  // (B,T,C)
    ops(AddPosition{res, weights.wpe});

    for (int64_t l = 0; l < L; ++l) {
      ops.phase("forward block", l);
      layernorm_forward(ln1[l], ln1hat[l], ln1rstd[l], res, weights.ln1w[l], weights.ln1b[l]);

      // q, k, v = heads of ln1 W^T + b, q / sqrt(HS)  (B,NH,T,HS)
      ops(Matmul{qkv, ln1[l], weights.qkvw[l], MatOp::NT});
      ops(AddColumns{qkv, qkv, weights.qkvb[l]});
      ops(SplitQkv{q[l], k[l], v[l], qkv});
      ops(Affine{q[l], q[l], config.attention_scale(), 0.0F});

      // att = softmax(q k^T) over the past  (B,NH,T,T)
      ops(Matmul{att[l], q[l], k[l], MatOp::NT});
      ops(CausalSoftmaxForward{att[l], att[l]});

      // atty = att v  (B,T,C)
      ops(Matmul{heads, att[l], v[l], MatOp::NN});
      ops(MergeHeads{atty[l], heads});

      // res += atty W^T + b
      ops(Matmul{proj, atty[l], weights.attprojw[l], MatOp::NT});
      ops(AddColumns{proj, proj, weights.attprojb[l]});
      ops(Add{res, res, proj});

      layernorm_forward(ln2[l], ln2hat[l], ln2rstd[l], res, weights.ln2w[l], weights.ln2b[l]);

      // fcgelu = gelu(ln2 W^T + b)  (B,T,4C)
      ops(Matmul{fch[l], ln2[l], weights.fcw[l], MatOp::NT});
      ops(AddColumns{fch[l], fch[l], weights.fcb[l]});
      gelu_forward(fcgelu[l], fch[l]);

      // res += fcgelu W^T + b
      ops(Matmul{proj, fcgelu[l], weights.fcprojw[l], MatOp::NT});
      ops(AddColumns{proj, proj, weights.fcprojb[l]});
      ops(Add{res, res, proj});
    }

    ops.phase("classifier");
    layernorm_forward(lnf, lnfhat, lnfrstd, res, weights.lnfw, weights.lnfb);
    ops(Matmul{logits, lnf, weights.wte, MatOp::NT});  // (B,T,Vp)
    ops(LogSoftmaxForward{logprobs, logits});
    ops(NllLossForward{losses, logprobs, targets});
    ops(AddMean{loss, losses});
  }

  void backward() {
    // dlogits takes the memory of logits.
    ops.phase("classifier backward");
    const Tensor dlogits = logits;
    ops(NllLossBackward{dlogits, targets, 1.0F / static_cast<float>(B * T * hyper.accumulate)});
    ops(LogSoftmaxBackward{dlogits, dlogits, logprobs});
    ops(Matmul{dln, dlogits, weights.wte, MatOp::NN});
    ops(Matmul{grads.wte, dlogits, lnf, MatOp::TN, Write::add});
    ops(Zero{dres});
    layernorm_backward(dres, dln, lnfhat, lnfrstd, weights.lnfw, grads.lnfw, grads.lnfb);

    for (int64_t l = L - 1; l >= 0; --l) {
      ops.phase("backward block", l);

      // MLP projection  (B,T,4C) <- (B,T,C)
      ops(Matmul{dfcgelu, dres, weights.fcprojw[l], MatOp::NN});
      ops(Matmul{grads.fcprojw[l], dres, fcgelu[l], MatOp::TN, Write::add});
      ops(SumRows{grads.fcprojb[l], dres});

      // GELU and the layer before it  (B,T,C) <- (B,T,4C)
      gelu_backward(dfch, dfcgelu, fch[l]);
      ops(Matmul{dln, dfch, weights.fcw[l], MatOp::NN});
      ops(Matmul{grads.fcw[l], dfch, ln2[l], MatOp::TN, Write::add});
      ops(SumRows{grads.fcb[l], dfch});

      layernorm_backward(dres, dln, ln2hat[l], ln2rstd[l], weights.ln2w[l], grads.ln2w[l], grads.ln2b[l]);

      // Attention projection  (B,NH,T,HS) <- (B,T,C)
      ops(Matmul{proj, dres, weights.attprojw[l], MatOp::NN});
      ops(Matmul{grads.attprojw[l], dres, atty[l], MatOp::TN, Write::add});
      ops(SumRows{grads.attprojb[l], dres});
      ops(SplitHeads{heads, proj});

      // y = att v  (B,NH,T,T) <- (B,NH,T,HS)
      ops(Matmul{datt, heads, v[l], MatOp::NT});
      ops(Matmul{dv, att[l], heads, MatOp::TN});

      // att = softmax(q k^T) over the past
      ops(CausalSoftmaxBackward{datt, datt, att[l]});
      ops(Matmul{dq, datt, k[l], MatOp::NN});
      ops(Matmul{dk, datt, q[l], MatOp::TN});

      // q, k, v = heads of ln1 W^T + b, q / sqrt(HS)  (B,T,C) <- (B,T,3C)
      ops(Affine{dq, dq, config.attention_scale(), 0.0F});
      ops(MergeQkv{qkv, dq, dk, dv});
      ops(Matmul{dln, qkv, weights.qkvw[l], MatOp::NN});
      ops(Matmul{grads.qkvw[l], qkv, ln1[l], MatOp::TN, Write::add});
      ops(SumRows{grads.qkvb[l], qkv});

      layernorm_backward(dres, dln, ln1hat[l], ln1rstd[l], weights.ln1w[l], grads.ln1w[l], grads.ln1b[l]);
    }

    ops.phase("encoder backward");
    ops(EmbeddingBackward{grads.wte, tokens, dres});
    ops(PositionBackward{grads.wpe, dres});
  }

  void update(int64_t step, float lr) {
    // Clip the global norm: g *= min(1, grad_clip / norm).
    ops.phase("clip");
    for (size_t i = 0; i < gs.size(); ++i) ops(SumOfSquares{squares[i], gs[i].tensor});
    ops(ClipFactor{clip, norm, squares, hyper.grad_clip});
    for (const auto& g : gs) ops(ScaleBy{g.tensor, clip});

    // AdamW (Loshchilov and Hutter 2019), one kernel per operation per tensor.
    ops.phase("optimizer");
    const auto rate = static_cast<float>(lr / (1.0 - std::pow(hyper.beta1, step + 1)));
    const auto unbias = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(hyper.beta2, step + 1)));
    for (size_t i = 0; i < ws.size(); ++i) {
      const Tensor w = ws[i].tensor, g = gs[i].tensor, m = ms[i].tensor, s = vs[i].tensor;
      const Tensor d = denominator.first(w.shape);
      if (ws[i].decay) ops(Affine{w, w, 1.0F - lr * hyper.weight_decay, 0.0F});
      ops(Lerp{m, g, 1.0F - hyper.beta1});
      ops(Affine{s, s, hyper.beta2, 0.0F});
      ops(AddCMul{s, g, g, 1.0F - hyper.beta2});
      ops(Sqrt{d, s});
      ops(Affine{d, d, unbias, hyper.eps});
      ops(AddCDiv{w, m, d, -rate});
    }
  }

 private:
  // out = xhat * w + b, xhat = (x - mean) / sqrt(variance + eps)  (Ba et al. 2016)
  void layernorm_forward(Tensor out, Tensor xhat, Tensor rstd, Tensor x, Tensor w, Tensor b) {
    ops(RowMean{mean, x});
    ops(RowRstd{rstd, x, mean, 1e-5F});
    ops(Normalize{xhat, x, mean, rstd});
    ops(MulColumns{out, xhat, w});
    ops(AddColumns{out, out, b});
  }

  // dx += rstd (dxhat - mean(dxhat) - xhat mean(dxhat xhat)), dxhat = dout * w; dout is used up
  void layernorm_backward(Tensor dx, Tensor dout, Tensor xhat, Tensor rstd, Tensor w, Tensor dw, Tensor db) {
    ops(SumRows{db, dout});
    ops(MulColumns{dlnhat, dout, w});
    ops(Mul{dout, dout, xhat});
    ops(SumRows{dw, dout});
    ops(MulColumns{dout, dout, w});
    ops(RowMean{mean, dlnhat});
    ops(RowMean{dmean, dout});
    ops(NormalizeBackward{dx, dlnhat, xhat, mean, dmean, rstd});
  }

  // out = x (1 + t) / 2, t = tanh(a (x + b x^3))  (Hendrycks and Gimpel 2016)
  void gelu_forward(Tensor out, Tensor x) {
    gelu_tanh(fctanh, x);
    ops(Affine{out, fctanh, 0.5F, 0.5F});
    ops(Mul{out, out, x});
  }

  // dx = dout ((1 + t) / 2 + x (1 - t^2) a (1 + 3 b x^2) / 2), t of the forward pass taken again
  void gelu_backward(Tensor dx, Tensor dout, Tensor x) {
    gelu_tanh(fctanh, x);
    ops(Pow{dx, fctanh, 2});
    ops(Affine{dx, dx, -1.0F, 1.0F});
    ops(Mul{dx, dx, x});
    ops(Pow{dgelu, x, 2});
    ops(Affine{dgelu, dgelu, 1.5F * kGeluA * kGeluB, 0.5F * kGeluA});
    ops(Mul{dx, dx, dgelu});
    ops(Affine{dgelu, fctanh, 0.5F, 0.5F});
    ops(Add{dx, dx, dgelu});
    ops(Mul{dx, dx, dout});
  }

  void gelu_tanh(Tensor t, Tensor x) {
    ops(Pow{t, x, 3});
    ops(Affine{t, t, kGeluB, 0.0F});
    ops(Add{t, t, x});
    ops(Affine{t, t, kGeluA, 0.0F});
    ops(Tanh{t, t});
  }

  const int64_t B = config.B, T = config.T, L = config.L, HS = config.HS();
  Tensor tokens, targets;

  Tensor ln1, ln1hat, ln1rstd, q, k, v, att, atty, ln2, ln2hat, ln2rstd, fch, fcgelu;
  Tensor lnf, lnfhat, lnfrstd, logprobs, losses;
  Tensor res, mean, qkv, heads, fctanh, proj;
  Tensor dres, dln, dlnhat, dmean, dq, dk, dv, datt, dfch, dfcgelu, dgelu;
  std::vector<NamedTensor> ws, gs, ms, vs;
  Tensor squares, clip, denominator;
};

STEPLADDER_RUNG(Variant);

}  // namespace
}  // namespace stepladder
