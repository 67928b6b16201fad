#include "model/data.h"
#include "model/feed.h"
#include "model/fp8_linears.h"
#include "model/gpt2.h"

namespace stepladder {
namespace {

class Variant final : public Trainer {
 public:
  Variant(Ops& ops, Arena& arena, const Config& config, const Hyper& hyper)
      : Trainer(ops, arena, config, hyper), feed(ops, arena, config) {
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
    ln1mean = f32("activations/ln1mean", {L + 1, B, T});
    ln1rstd = f32("activations/ln1rstd", {L + 1, B, T});
    qkv = act("activations/qkv", {L, B, T, 3 * C});
    lse = f32("activations/lse", {L, B, NH, T});
    atty = act("activations/atty", {L, B, T, C});
    res2 = act("activations/res2", {L, B, T, C});
    ln2mean = f32("activations/ln2mean", {L, B, T});
    ln2rstd = f32("activations/ln2rstd", {L, B, T});
    fch = act("activations/fch", {L, B, T, 4 * C});
    logits = act("activations/logits", {B, T, (Vp + 7) / 8 * 8});  // rows of whole 16-byte words
    losses = f32("activations/losses", {B, T});

    // What the linear layers multiply: e4m3 weights and inputs, e5m2 gradients.
    fp8 = Fp8Linears(arena, config, logits);
    fp8_history = fp8.history;

    // Memory that every layer uses again.
    proj = act("scratch/proj", {B, T, C});
    dres = act("scratch/dres", {B, T, C});
    dln = act("scratch/dln", {B, T, C});
    dqkv = act("scratch/dqkv", {B, T, 3 * C});
    dfch = act("scratch/dfch", {B, T, 4 * C});

    // Clipping and AdamW.
    gs = grads.all();
    state = adamw_tensors(params, grads, adam_m, adam_v, weights);
    clip = f32("scratch/clip", {1});
    schedule = f32("scratch/schedule", {2});
  }

  void prepare() override {
    // GEMMs of f32 tensors: in full precision, or with inputs rounded to TF32.
    ops.set_matmul_precision(Precision::tf32);

    for (const AdamWTensor& t : state) ops(Copy{t.low, t.w});
    ops(Zero{fp8.amax});
    fp8.update_scales(ops);
    fp8.quantize_weights(ops, weights);
  }

  void step(Loader& data, int64_t step, float lr) override {
    ops(WriteValues{schedule, {lr, static_cast<float>(step + 1)}});
    for (int micro = 0; micro < hyper.accumulate; ++micro) {
      const Batch batch = feed.next(data);

      load(batch);
      if (!learn) compile();
      if (micro == 0) clear();
      learn();
      // All of it is queued: the host does not wait for the device.
      feed.send_ahead();
    }
    finish();
    ops.phase(nullptr);
  }

  // Searches the GEMMs' algorithms on the first batch, then records the step as graphs.
  void compile() {
    const auto forward_backward = [this] {
      forward_to_logits();
      backward();
    };
    ops.search(forward_backward);
    clear = ops.record([this] {
      for (const Tensor& g : write == Write::add ? grads.all() : grads.outside_gemms()) ops(Zero{g});
      ops(Zero{loss});
      ops(Zero{fp8.amax});
    });
    learn = ops.record(forward_backward);
    finish = ops.record([this] { update(); });

    float known = 0.0F;  // by a checkpoint
    ops(Download{&known, fp8_history[0][0][0]});
    if (known == 0.0F) calibrate();
  }

  // Lets the first batch tell the scales, twice: the second time, nothing is too small for its scale any
  // more. All gradients start with the scale of the largest there can be of a logit.
  void calibrate() {
    fp8.guess_gradients(ops, dlogits_scale());
    for (int pass = 0; pass < 2; ++pass) {
      clear();
      learn();
      ops(Zero{fp8_history});
      fp8.update_scales(ops);
    }
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
    const Fp8Linear to_first = behind_norm1(0);
    ops(QuantizeLayerNorm{to_first.x, to_first.xt, first.mean, first.rstd, res1[0], first.w, first.b});

    for (int64_t l = 0; l < L; ++l) {
      ops.phase("forward block", l);

      // qkv = ln1 W^T + b  (B,T,3C)
      const Fp8Linear to_qkv = fp8.at(Fp8Linears::kQkv, l), attproj = fp8.at(Fp8Linears::kAttproj, l);
      ops(LinearForward{qkv[l], to_qkv.x, to_qkv.w, weights.qkvb[l]});

      // atty = softmax(q k^T / sqrt(HS)) v over the past  (B,T,C)
      ops(AttentionForward{atty[l], lse[l], qkv[l]});

      // res2 = res1 + atty W^T + b, ln2 = layernorm(res2)
      const Fp8Linear fc = fp8.at(Fp8Linears::kFc, l), fcproj = fp8.at(Fp8Linears::kFcproj, l);
      ops(Quantize{attproj.x, attproj.xt, atty[l]});
      ops(LinearForward{res2[l], attproj.x, attproj.w, weights.attprojb[l], res1[l]});
      ops(QuantizeLayerNorm{fc.x, fc.xt, ln2mean[l], ln2rstd[l], res2[l], weights.ln2w[l], weights.ln2b[l]});

      // fch = ln2 W^T + b  (B,T,4C)
      ops(LinearForward{fch[l], fc.x, fc.w, weights.fcb[l]});

      // res1 of the next block = res2 + gelu(fch) W^T + b, and its layernorm
      const Norm next = norm1(l + 1);
      const Fp8Linear to_next = behind_norm1(l + 1);
      ops(QuantizeGelu{fcproj.x, fcproj.xt, fch[l]});
      ops(LinearForward{res1[l + 1], fcproj.x, fcproj.w, weights.fcprojb[l], res2[l]});
      ops(QuantizeLayerNorm{to_next.x, to_next.xt, next.mean, next.rstd, res1[l + 1], next.w, next.b});
    }

    ops.phase("classifier");
    const Fp8Linear head = fp8.at(Fp8Linears::kHead, 0);
    ops(Matmul{logits, head.x, head.w, MatOp::NT});  // (B,T,Vp)
  }

  void backward() {
    // loss and dlogits in one pass; the transpose of dlogits takes the memory of logits.
    ops.phase("classifier backward");
    const Fp8Linear head = fp8.at(Fp8Linears::kHead, 0);
    ops(QuantizeCrossEntropy{head.dy, losses, logits, targets, config.V, dlogits_scale()});
    ops(AddMean{loss, losses});
    ops(Transpose{head.dyt, head.dy});
    ops(Matmul{dln, head.dy, head.wt, MatOp::NT});
    ops(Matmul{grads.wte, head.dyt, head.xt, MatOp::NT, write});
    ops(Zero{dres});
    layernorm1_backward(L);

    for (int64_t l = L - 1; l >= 0; --l) {
      ops.phase("backward block", l);

      // MLP projection and GELU  (B,T,4C) <- (B,T,C); the projection's bias gradient came with dres
      const Fp8Linear fcproj = fp8.at(Fp8Linears::kFcproj, l), fc = fp8.at(Fp8Linears::kFc, l);
      ops(Matmul{dfch, fcproj.dy, fcproj.wt, MatOp::NT});
      ops(Matmul{grads.fcprojw[l], fcproj.dyt, fcproj.xt, MatOp::NT, write});

      // The layer before it  (B,T,C) <- (B,T,4C)
      ops(QuantizeGeluBackward{fc.dy, fc.dyt, grads.fcb[l], dfch, fch[l]});
      ops(Matmul{dln, fc.dy, fc.wt, MatOp::NT});
      ops(Matmul{grads.fcw[l], fc.dyt, fc.xt, MatOp::NT, write});

      const Fp8Linear attproj = fp8.at(Fp8Linears::kAttproj, l), to_qkv = fp8.at(Fp8Linears::kQkv, l);
      ops(QuantizeLayerNormBackward{Fp8Pair{attproj.dy, attproj.dyt}, dres,
                                    NormParams{grads.ln2w[l], grads.ln2b[l]}, grads.attprojb[l], dln,
                                    NormInput{res2[l], ln2mean[l], ln2rstd[l]}, weights.ln2w[l]});

      // Attention projection
      ops(Matmul{proj, attproj.dy, attproj.wt, MatOp::NT});
      ops(Matmul{grads.attprojw[l], attproj.dyt, attproj.xt, MatOp::NT, write});

      // Attention  (B,T,3C) <- (B,T,C)
      ops(AttentionBackward{dqkv, proj, atty[l], lse[l], qkv[l]});

      // qkv = ln1 W^T + b  (B,T,C) <- (B,T,3C)
      ops(Quantize{to_qkv.dy, to_qkv.dyt, dqkv, grads.qkvb[l]});
      ops(Matmul{dln, to_qkv.dy, to_qkv.wt, MatOp::NT});
      ops(Matmul{grads.qkvw[l], to_qkv.dyt, to_qkv.xt, MatOp::NT, write});

      layernorm1_backward(l);
    }

    ops.phase("encoder backward");
    ops(EmbeddingBackward{grads.wte, tokens, dres});
    ops(PositionBackward{grads.wpe, dres});
  }

  void update() {
    // Clip the global norm: g *= min(1, grad_clip / norm), as AdamW reads g.
    ops.phase("clip");
    ops(ClipGradNorm{clip, norm, gs, hyper.grad_clip, loss_scaler});

    // AdamW (Loshchilov and Hutter 2019), one kernel for all tensors.
    ops.phase("optimizer");
    ops(AdamWStep{state, schedule, clip, hyper.adamw(), loss_scaler});

    // FP8 for the next step.
    ops.phase("scales");
    fp8.update_scales(ops);
    fp8.quantize_weights(ops, weights);
  }

 private:
  // Of the sum of losses whose gradient is taken: no gradient of a logit is larger.
  float dlogits_scale() const { return 1.0F / static_cast<float>(B * T * hyper.accumulate); }

  // The LayerNorm of res1[l]: the first of block l, the last one of all for l = L.
  struct Norm {
    Tensor mean, rstd, w, b, dw, db;
  };
  Norm norm1(int64_t l) const {
    return l < L
               ? Norm{ln1mean[l], ln1rstd[l], weights.ln1w[l], weights.ln1b[l], grads.ln1w[l], grads.ln1b[l]}
               : Norm{ln1mean[L], ln1rstd[L], weights.lnfw, weights.lnfb, grads.lnfw, grads.lnfb};
  }
  // The layer that multiplies what it gives: the first of block l, or the head.
  Fp8Linear behind_norm1(int64_t l) const {
    return l < L ? fp8.at(Fp8Linears::kQkv, l) : fp8.at(Fp8Linears::kHead, 0);
  }
  // dres is then also the gradient of the output of the MLP before, whose bias gradient comes with it.
  void layernorm1_backward(int64_t l) {
    const Norm n = norm1(l);
    if (l == 0)
      return ops(
          LayerNormBackward{dres, NormParams{n.dw, n.db}, {}, dln, NormInput{res1[0], n.mean, n.rstd}, n.w});
    const Fp8Linear before = fp8.at(Fp8Linears::kFcproj, l - 1);
    ops(QuantizeLayerNormBackward{Fp8Pair{before.dy, before.dyt}, dres, NormParams{n.dw, n.db},
                                  grads.fcprojb[l - 1], dln, NormInput{res1[l], n.mean, n.rstd}, n.w});
  }

  const int64_t B = config.B, T = config.T, L = config.L;
  Tensor tokens, targets;
  Feed feed;

  Fp8Linears fp8;
  Tensor res1, ln1mean, ln1rstd, qkv, lse, atty, res2, ln2mean, ln2rstd, fch, losses;
  Tensor proj, dres, dln, dqkv, dfch;
  std::vector<Tensor> gs;
  std::vector<AdamWTensor> state;
  Tensor clip, schedule;
  // GEMMs write the gradients of a step's only micro-batch; those of several are added up.
  const Write write = hyper.accumulate == 1 ? Write::set : Write::add;
  std::function<void()> clear, learn, finish;  // the recorded parts of a step
};

STEPLADDER_RUNG(Variant);

}  // namespace
}  // namespace stepladder
