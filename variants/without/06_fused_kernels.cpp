// 08's epilogues are fusions too, of bias, residual and GELU, and stay: they take the place of 06's in the
// linear layers, and of its bias gradients, which came with LayerNorm's.
#include "model/data.h"
#include "model/feed.h"
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

    // Activations that the backward pass reads.
    ln1 = act("activations/ln1", {L, B, T, C});
    ln1hat = act("activations/ln1hat", {L, B, T, C});
    ln1rstd = f32("activations/ln1rstd", {L, B, T});
    qkv = act("activations/qkv", {L, B, T, 3 * C});
    lse = f32("activations/lse", {L, B, NH, T});
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
    dlogprobs = f32("activations/dlogprobs", {B, T, config.V});
    losses = f32("activations/losses", {B, T});

    // Memory that every layer uses again.
    res = act("scratch/res", {B, T, C});
    mean = f32("scratch/mean", {B, T});
    proj = act("scratch/proj", {B, T, C});
    dres = act("scratch/dres", {B, T, C});
    dln = act("scratch/dln", {B, T, C});
    dlnhat = act("scratch/dlnhat", {B, T, C});
    dmean = f32("scratch/dmean", {B, T});
    dqkv = act("scratch/dqkv", {B, T, 3 * C});
    dfch = act("scratch/dfch", {B, T, 4 * C});

    // Clipping and AdamW.
    gs = grads.all();
    state = adamw_tensors(params, grads, adam_m, adam_v, weights);
    clip = f32("scratch/clip", {1});
    schedule = f32("scratch/schedule", {2});
    if (config.half == DType::f16) loss_scaler = f32("scratch/loss_scaler", {4});
  }

  void prepare() override {
    // GEMMs of f32 tensors: in full precision, or with inputs rounded to TF32.
    ops.set_matmul_precision(Precision::tf32);

    for (const AdamWTensor& t : state) ops(Copy{t.low, t.w});
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
      forward_to_loss();
      backward();
    };
    ops.search(forward_backward);
    clear = ops.record([this] {
      for (const Tensor& g : write == Write::add ? grads.all() : grads.outside_gemms()) ops(Zero{g});
      ops(Zero{loss});
    });
    learn = ops.record(forward_backward);
    finish = ops.record([this] { update(); });
  }

  void load(const Batch& batch) {
    ops.phase("data");
    feed.deliver(tokens, targets, batch);
  }

  void forward(const Batch& batch) override {
    load(batch);
    forward_to_loss();
  }

  void forward_to_loss() {
    ops.phase("encoder");
    ops(EmbeddingForward{res, tokens, weights.wte});  // (B,T,C)
    ops(AddPosition{res, weights.wpe});

    for (int64_t l = 0; l < L; ++l) {
      ops.phase("forward block", l);
      layernorm_forward(ln1[l], ln1hat[l], ln1rstd[l], res, weights.ln1w[l], weights.ln1b[l]);

      // qkv = ln1 W^T + b  (B,T,3C)
      ops(LinearForward{qkv[l], ln1[l], weights.qkvw[l], weights.qkvb[l]});

      // atty = softmax(q k^T / sqrt(HS)) v over the past  (B,T,C)
      ops(AttentionForward{atty[l], lse[l], qkv[l]});

      // res += atty W^T + b
      ops(LinearForward{res, atty[l], weights.attprojw[l], weights.attprojb[l], res});

      layernorm_forward(ln2[l], ln2hat[l], ln2rstd[l], res, weights.ln2w[l], weights.ln2b[l]);

      // fcgelu = gelu(ln2 W^T + b)  (B,T,4C)
      ops(LinearGeluForward{fcgelu[l], fch[l], ln2[l], weights.fcw[l], weights.fcb[l]});

      // res += fcgelu W^T + b
      ops(LinearForward{res, fcgelu[l], weights.fcprojw[l], weights.fcprojb[l], res});
    }

    ops.phase("classifier");
    layernorm_forward(lnf, lnfhat, lnfrstd, res, weights.lnfw, weights.lnfb);
    ops(Matmul{logits, lnf, weights.wte, MatOp::NT});  // (B,T,Vp)
    ops(LogSoftmaxForward{logprobs, logits});
    ops(NllLossForward{losses, logprobs, targets});
    ops(AddMean{loss, losses});
  }

  void backward() {
    // dlogits takes the memory of logits, whose padding is 0 and stays so.
    ops.phase("classifier backward");
    const Tensor dlogits = logits;
    ops(NllLossBackward{dlogprobs, targets, 1.0F / static_cast<float>(B * T * hyper.accumulate),
                        loss_scaler});
    ops(LogSoftmaxBackward{dlogits, dlogprobs, logprobs});
    ops(Matmul{dln, dlogits, weights.wte, MatOp::NN});
    ops(Matmul{grads.wte, dlogits, lnf, MatOp::TN, write});
    ops(Zero{dres});
    layernorm_backward(dres, dln, lnfhat, lnfrstd, weights.lnfw, grads.lnfw, grads.lnfb);

    for (int64_t l = L - 1; l >= 0; --l) {
      ops.phase("backward block", l);

      // MLP projection and GELU  (B,T,4C) <- (B,T,C)
      ops(LinearGeluBackward{dfch, grads.fcb[l], dres, weights.fcprojw[l], fch[l], write});
      ops(LinearWeightBackward{grads.fcprojw[l], grads.fcprojb[l], dres, fcgelu[l], write});

      // The layer before it  (B,T,C) <- (B,T,4C)
      ops(Matmul{dln, dfch, weights.fcw[l], MatOp::NN});
      ops(Matmul{grads.fcw[l], dfch, ln2[l], MatOp::TN, write});

      layernorm_backward(dres, dln, ln2hat[l], ln2rstd[l], weights.ln2w[l], grads.ln2w[l], grads.ln2b[l]);

      // Attention projection
      ops(Matmul{proj, dres, weights.attprojw[l], MatOp::NN});
      ops(LinearWeightBackward{grads.attprojw[l], grads.attprojb[l], dres, atty[l], write});

      // Attention  (B,T,3C) <- (B,T,C)
      ops(AttentionBackward{dqkv, proj, atty[l], lse[l], qkv[l]});

      // qkv = ln1 W^T + b  (B,T,C) <- (B,T,3C)
      ops(Matmul{dln, dqkv, weights.qkvw[l], MatOp::NN});
      ops(LinearWeightBackward{grads.qkvw[l], grads.qkvb[l], dqkv, ln1[l], write});

      layernorm_backward(dres, dln, ln1hat[l], ln1rstd[l], weights.ln1w[l], grads.ln1w[l], grads.ln1b[l]);
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

  const int64_t B = config.B, T = config.T, L = config.L;
  Tensor tokens, targets;
  Feed feed;

  Tensor ln1, ln1hat, ln1rstd, qkv, lse, atty, ln2, ln2hat, ln2rstd, fch, fcgelu;
  Tensor lnf, lnfhat, lnfrstd, logprobs, dlogprobs, losses;
  Tensor res, mean, proj, dres, dln, dlnhat, dmean, dqkv, dfch;
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
