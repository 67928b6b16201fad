// AdamW as one kernel per operation takes the step and its learning rate from the host, so that 08 cannot
// record the update; it is all f32, so that 05's gradients are widened and its weights narrowed around it.
#include <algorithm>
#include <cmath>

#include "model/data.h"
#include "model/feed.h"
#include "model/gpt2.h"

namespace stepladder {
namespace {

class Variant final : public Trainer {
 public:
  Variant(Ops& ops, Arena& arena, const Config& config, const Hyper& hyper)
      : Trainer(ops, arena, config, hyper), feed(ops, arena, config) {
    if (config.half == DType::f16)
      throw UnsupportedError(
          "fp16 needs a loss scaler, which is in the fused clipping and AdamW: use --dtype bf16");
    const auto f32 = [&](const char* name, Shape shape) { return arena.alloc(name, DType::f32, shape); };
    const auto act = [&](const char* name, Shape shape) { return arena.alloc(name, config.half, shape); };

    // The padding's weights are 0 and stay so: its logits count neither in the loss nor in its gradient.
    const int64_t C = config.C, NH = config.NH, Vp = (config.V + 127) / 128 * 128;

    // Parameters in f32, their 16-bit copy, gradients and AdamW moments.
    params = Params(arena, "params", config, DType::f32, Vp);
    weights = Params(arena, "weights", config, config.half, Vp);
    grads = Params(arena, "grads", config, config.half, Vp);
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
    qkv = act("activations/qkv", {L, B, T, 3 * C});
    lse = f32("activations/lse", {L, B, NH, T});
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
    proj = act("scratch/proj", {B, T, C});
    dres = act("scratch/dres", {B, T, C});
    dln = act("scratch/dln", {B, T, C});
    dqkv = act("scratch/dqkv", {B, T, 3 * C});
    dfch = act("scratch/dfch", {B, T, 4 * C});

    // Clipping and AdamW.
    ws = params.each(), lows = weights.each(), gs = grads.each(), ms = adam_m.each(), vs = adam_v.each();
    squares = f32("scratch/squares", {static_cast<int64_t>(gs.size())});
    clip = f32("scratch/clip", {1});
    gradient = f32("scratch/gradient", {std::max(params.wte.numel(), params.fcw[0].numel())});
    denominator = f32("scratch/denominator", {gradient.numel()});
  }

  void prepare() override {
    // GEMMs of f32 tensors: in full precision, or with inputs rounded to TF32.
    ops.set_matmul_precision(Precision::tf32);

    ops(Zero{weights.wte});  // the padding, which is in none of these
    for (size_t i = 0; i < ws.size(); ++i) ops(Copy{lows[i].tensor, ws[i].tensor});
  }

  void step(Loader& data, int64_t step, float lr) override {
    for (int micro = 0; micro < hyper.accumulate; ++micro) {
      const Batch batch = feed.next(data);

      load(batch);
      if (!learn) compile();
      if (micro == 0) clear();
      learn();
      // All of it is queued: the host does not wait for the device.
      feed.send_ahead();
    }
    update(step, lr);
    ops.phase(nullptr);
  }

  // Searches the GEMMs' algorithms on the first batch, then records all but the update as graphs.
  void compile() {
    const auto forward_backward = [this] {
      forward_to_logits();
      backward();
    };
    ops.search(forward_backward);
    clear = ops.record([this] {
      for (const Tensor& g : write == Write::add ? grads.all() : grads.outside_gemms()) ops(Zero{g});
      ops(Zero{loss});
    });
    learn = ops.record(forward_backward);
  }

  void load(const Batch& batch) {
    ops.phase("data");
    feed.deliver(tokens, targets, batch);
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

      // qkv = ln1 W^T + b  (B,T,3C)
      ops(LinearForward{qkv[l], ln1[l], weights.qkvw[l], weights.qkvb[l]});

      // atty = softmax(q k^T / sqrt(HS)) v over the past  (B,T,C)
      ops(AttentionForward{atty[l], lse[l], qkv[l]});

      // res2 = res1 + atty W^T + b, ln2 = layernorm(res2)
      ops(LinearForward{res2[l], atty[l], weights.attprojw[l], weights.attprojb[l], res1[l]});
      ops(LayerNormForward{ln2[l], ln2mean[l], ln2rstd[l], res2[l], weights.ln2w[l], weights.ln2b[l]});

      // fcgelu = gelu(ln2 W^T + b)  (B,T,4C)
      ops(LinearGeluForward{fcgelu[l], fch[l], ln2[l], weights.fcw[l], weights.fcb[l]});

      // res1 of the next block = res2 + fcgelu W^T + b, and its layernorm
      const Norm next = norm1(l + 1);
      ops(LinearForward{res1[l + 1], fcgelu[l], weights.fcprojw[l], weights.fcprojb[l], res2[l]});
      ops(LayerNormForward{next.out, next.mean, next.rstd, res1[l + 1], next.w, next.b});
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
    ops(Matmul{grads.wte, dlogits, ln1[L], MatOp::TN, write});
    ops(Zero{dres});
    layernorm1_backward(L);

    for (int64_t l = L - 1; l >= 0; --l) {
      ops.phase("backward block", l);

      // MLP projection and GELU  (B,T,4C) <- (B,T,C); the projection's bias gradient came with dres
      ops(LinearGeluBackward{dfch, grads.fcb[l], dres, weights.fcprojw[l], fch[l], write});
      ops(Matmul{grads.fcprojw[l], dres, fcgelu[l], MatOp::TN, write});

      // The layer before it  (B,T,C) <- (B,T,4C)
      ops(Matmul{dln, dfch, weights.fcw[l], MatOp::NN});
      ops(Matmul{grads.fcw[l], dfch, ln2[l], MatOp::TN, write});

      ops(LayerNormBackward{dres, NormParams{grads.ln2w[l], grads.ln2b[l]}, grads.attprojb[l], dln,
                            NormInput{res2[l], ln2mean[l], ln2rstd[l]}, weights.ln2w[l]});

      // Attention projection
      ops(Matmul{proj, dres, weights.attprojw[l], MatOp::NN});
      ops(Matmul{grads.attprojw[l], dres, atty[l], MatOp::TN, write});

      // Attention  (B,T,3C) <- (B,T,C)
      ops(AttentionBackward{dqkv, proj, atty[l], lse[l], qkv[l]});

      // qkv = ln1 W^T + b  (B,T,C) <- (B,T,3C)
      ops(Matmul{dln, dqkv, weights.qkvw[l], MatOp::NN});
      ops(LinearWeightBackward{grads.qkvw[l], grads.qkvb[l], dqkv, ln1[l], write});

      layernorm1_backward(l);
    }

    ops.phase("encoder backward");
    ops(EmbeddingBackward{grads.wte, tokens, dres});
    ops(PositionBackward{grads.wpe, dres});
  }

  void update(int64_t step, float lr) {
    // Clip the global norm: g *= min(1, grad_clip / norm), in f32 below.
    ops.phase("clip");
    for (size_t i = 0; i < gs.size(); ++i) ops(SumOfSquares{squares[i], gs[i].tensor});
    ops(ClipFactor{clip, norm, squares, hyper.grad_clip});

    // AdamW (Loshchilov and Hutter 2019), one kernel per operation per tensor.
    ops.phase("optimizer");
    const auto rate = static_cast<float>(lr / (1.0 - std::pow(hyper.beta1, step + 1)));
    const auto unbias = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(hyper.beta2, step + 1)));
    for (size_t i = 0; i < ws.size(); ++i) {
      const Tensor w = ws[i].tensor, m = ms[i].tensor, s = vs[i].tensor;
      const Tensor g = gradient.first(w.shape), d = denominator.first(w.shape);
      ops(Copy{g, gs[i].tensor});
      ops(ScaleBy{g, clip});
      if (ws[i].decay) ops(Affine{w, w, 1.0F - lr * hyper.weight_decay, 0.0F});
      ops(Lerp{m, g, 1.0F - hyper.beta1});
      ops(Affine{s, s, hyper.beta2, 0.0F});
      ops(AddCMul{s, g, g, 1.0F - hyper.beta2});
      ops(Sqrt{d, s});
      ops(Affine{d, d, unbias, hyper.eps});
      ops(AddCDiv{w, m, d, -rate});
      ops(Copy{lows[i].tensor, w});
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

  const int64_t B = config.B, T = config.T, L = config.L;
  Tensor tokens, targets;
  Feed feed;

  Tensor res1, ln1, ln1mean, ln1rstd, qkv, lse, atty, res2, ln2, ln2mean, ln2rstd, fch, fcgelu, losses;
  Tensor proj, dres, dln, dqkv, dfch;
  std::vector<NamedTensor> ws, lows, gs, ms, vs;
  Tensor squares, clip, gradient, denominator;
  // GEMMs write the gradients of a step's only micro-batch; those of several are added up.
  const Write write = hyper.accumulate == 1 ? Write::set : Write::add;
  std::function<void()> clear, learn;  // the recorded parts of a step
};

STEPLADDER_RUNG(Variant);

}  // namespace
}  // namespace stepladder
