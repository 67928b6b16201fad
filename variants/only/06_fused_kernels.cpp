// The fused softmax decides the causal mask itself: 01 comes with it.
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

    // Activations that the backward pass reads. res1[l] and norm1(l) come before block l, and after the last.
    res1 = act("activations/res1", {L + 1, B, T, C});
    ln1 = act("activations/ln1", {L + 1, B, T, C});
    ln1mean = f32("activations/ln1mean", {L + 1, B, T});
    ln1rstd = f32("activations/ln1rstd", {L + 1, B, T});
    q = act("activations/q", {L, B, NH, T, HS});
    k = act("activations/k", {L, B, NH, T, HS});
    v = act("activations/v", {L, B, NH, T, HS});
    att = act("activations/att", {L, B, NH, T, T});
    atty = act("activations/atty", {L, B, T, C});
    res2 = act("activations/res2", {L, B, T, C});
    ln2 = act("activations/ln2", {L, B, T, C});
    ln2mean = f32("activations/ln2mean", {L, B, T});
    ln2rstd = f32("activations/ln2rstd", {L, B, T});
    fch = act("activations/fch", {L, B, T, 4 * C});
    fcgelu = act("activations/fcgelu", {L, B, T, 4 * C});
    logits = act("activations/logits", {B, T, (Vp + 7) / 8 * 8});  // rows of whole 16-byte words
    losses = f32("activations/losses", {B, T});

    // Memory that every layer uses again.
    qkv = act("scratch/qkv", {B, T, 3 * C});
    heads = act("scratch/heads", {B, NH, T, HS});
    proj = act("scratch/proj", {B, T, C});
    dres = act("scratch/dres", {B, T, C});
    dln = act("scratch/dln", {B, T, C});
    dq = act("scratch/dq", {B, NH, T, HS});
    dk = act("scratch/dk", {B, NH, T, HS});
    dv = act("scratch/dv", {B, NH, T, HS});
    datt = act("scratch/datt", {B, NH, T, T});
    dfch = act("scratch/dfch", {B, T, 4 * C});

    // Clipping and AdamW.
    ws = params.each(), gs = grads.each(), ms = adam_m.each(), vs = adam_v.each();
    squares = f32("scratch/squares", {static_cast<int64_t>(gs.size())});
    clip = f32("scratch/clip", {1});
    denominator = f32("scratch/denominator", {std::max(params.wte.numel(), params.fcw[0].numel())});
  }

  void prepare() override {
    // GEMMs of f32 tensors: in full precision, or with inputs rounded to TF32.
    ops.set_matmul_precision(Precision::fp32);
  }

  void step(Loader& data, int64_t step, float lr) override {
    for (const auto& g : gs) ops(Zero{g.tensor});
    ops(Zero{loss});
    for (int micro = 0; micro < hyper.accumulate; ++micro) {
      const Batch batch = data.next();

      load(batch);
      forward_to_logits();
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
    forward_to_logits();
    ops(CrossEntropyForward{losses, logits, targets, config.V});
    ops(AddMean{loss, losses});
  }

  void forward_to_logits() {
    ops.phase("encoder");
    ops(EncoderForward{res1[0], tokens, weights.wte, weights.wpe});  // (B,T,C)
    const Norm first = norm1(0);
    ops(LayerNormForward{first.out, first.mean, first.rstd, res1[0], first.w, first.b});

    for (int64_t l = 0; l < L; ++l) {
      ops.phase("forward block", l);

      // q, k, v = heads of ln1 W^T + b  (B,NH,T,HS)
      ops(Matmul{qkv, ln1[l], weights.qkvw[l], MatOp::NT});
      ops(BiasSplitQkv{q[l], k[l], v[l], qkv, weights.qkvb[l]});

      // att = softmax(q k^T / sqrt(HS)) over the past  (B,NH,T,T)
      ops(Matmul{att[l], q[l], k[l], MatOp::NT});
      ops(ScaledCausalSoftmaxForward{att[l], att[l], config.attention_scale()});

      // atty = att v  (B,T,C)
      ops(Matmul{heads, att[l], v[l], MatOp::NN});
      ops(MergeHeads{atty[l], heads});

      // res2 = res1 + atty W^T + b, ln2 = layernorm(res2)
      ops(Matmul{proj, atty[l], weights.attprojw[l], MatOp::NT});
      ops(ResidualLayerNormForward{res2[l], Normalized{ln2[l], ln2mean[l], ln2rstd[l]}, res1[l], proj,
                                   weights.attprojb[l], NormParams{weights.ln2w[l], weights.ln2b[l]}});

      // fcgelu = gelu(ln2 W^T + b)  (B,T,4C)
      ops(Matmul{fch[l], ln2[l], weights.fcw[l], MatOp::NT});
      ops(BiasGeluForward{fcgelu[l], fch[l], weights.fcb[l]});

      // res1 of the next block = res2 + fcgelu W^T + b, and its layernorm
      const Norm next = norm1(l + 1);
      ops(Matmul{proj, fcgelu[l], weights.fcprojw[l], MatOp::NT});
      ops(ResidualLayerNormForward{res1[l + 1], Normalized{next.out, next.mean, next.rstd}, res2[l], proj,
                                   weights.fcprojb[l], NormParams{next.w, next.b}});
    }

    ops.phase("classifier");
    ops(Matmul{logits, ln1[L], weights.wte, MatOp::NT});  // (B,T,Vp)
  }

  void backward() {
    // loss and dlogits, which take the memory of logits, in one pass.
    ops.phase("classifier backward");
    const Tensor dlogits = logits;
    ops(CrossEntropyForwardBackward{losses, dlogits, targets, config.V,
                                    1.0F / static_cast<float>(B * T * hyper.accumulate)});
    ops(AddMean{loss, losses});
    ops(Matmul{dln, dlogits, weights.wte, MatOp::NN});
    ops(Matmul{grads.wte, dlogits, ln1[L], MatOp::TN, Write::add});
    ops(Zero{dres});
    layernorm1_backward(L);

    for (int64_t l = L - 1; l >= 0; --l) {
      ops.phase("backward block", l);

      // MLP projection  (B,T,4C) <- (B,T,C); its bias gradient came with dres
      ops(Matmul{dfch, dres, weights.fcprojw[l], MatOp::NN});
      ops(Matmul{grads.fcprojw[l], dres, fcgelu[l], MatOp::TN, Write::add});

      // GELU and the layer before it  (B,T,C) <- (B,T,4C)
      ops(GeluBackward{dfch, dfch, fch[l]});
      ops(Matmul{dln, dfch, weights.fcw[l], MatOp::NN});
      ops(Matmul{grads.fcw[l], dfch, ln2[l], MatOp::TN, Write::add});
      ops(SumRows{grads.fcb[l], dfch});

      ops(LayerNormBackward{dres, NormParams{grads.ln2w[l], grads.ln2b[l]}, grads.attprojb[l], dln,
                            NormInput{res2[l], ln2mean[l], ln2rstd[l]}, weights.ln2w[l]});

      // Attention projection  (B,NH,T,HS) <- (B,T,C)
      ops(Matmul{proj, dres, weights.attprojw[l], MatOp::NN});
      ops(Matmul{grads.attprojw[l], dres, atty[l], MatOp::TN, Write::add});
      ops(SplitHeads{heads, proj});

      // y = att v  (B,NH,T,T) <- (B,NH,T,HS)
      ops(Matmul{datt, heads, v[l], MatOp::NT});
      ops(Matmul{dv, att[l], heads, MatOp::TN});

      // att = softmax(q k^T / sqrt(HS)) over the past
      ops(ScaledCausalSoftmaxBackward{datt, datt, att[l], config.attention_scale()});
      ops(Matmul{dq, datt, k[l], MatOp::NN});
      ops(Matmul{dk, datt, q[l], MatOp::TN});

      // q, k, v = heads of ln1 W^T + b  (B,T,C) <- (B,T,3C)
      ops(MergeQkv{qkv, dq, dk, dv});
      ops(Matmul{dln, qkv, weights.qkvw[l], MatOp::NN});
      ops(Matmul{grads.qkvw[l], qkv, ln1[l], MatOp::TN, Write::add});
      ops(SumRows{grads.qkvb[l], qkv});

      layernorm1_backward(l);
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
  // The LayerNorm of res1[l]: the first of block l, the last one of all for l = L.
  struct Norm {
    Tensor out, mean, rstd, w, b, dw, db;
  };
  Norm norm1(int64_t l) const {
    return l < L ? Norm{ln1[l],          ln1mean[l],    ln1rstd[l],   weights.ln1w[l],
                        weights.ln1b[l], grads.ln1w[l], grads.ln1b[l]}
                 : Norm{ln1[L], ln1mean[L], ln1rstd[L], weights.lnfw, weights.lnfb, grads.lnfw, grads.lnfb};
  }
  // dres is then also the gradient of the output of the MLP before, whose bias gradient comes with it.
  void layernorm1_backward(int64_t l) {
    const Norm n = norm1(l);
    const Tensor dbias = l > 0 ? grads.fcprojb[l - 1] : Tensor{};
    ops(LayerNormBackward{dres, NormParams{n.dw, n.db}, dbias, dln, NormInput{res1[l], n.mean, n.rstd}, n.w});
  }

  const int64_t B = config.B, T = config.T, L = config.L, HS = config.HS();
  Tensor tokens, targets;

  Tensor res1, ln1, ln1mean, ln1rstd, q, k, v, att, atty, res2, ln2, ln2mean, ln2rstd, fch, fcgelu, losses;
  Tensor qkv, heads, proj;
  Tensor dres, dln, dq, dk, dv, datt, dfch;
  std::vector<NamedTensor> ws, gs, ms, vs;
  Tensor squares, clip, denominator;
};

STEPLADDER_RUNG(Variant);

}  // namespace
}  // namespace stepladder
