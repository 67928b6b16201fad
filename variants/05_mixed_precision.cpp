// A complete trainer of GPT-2, top to bottom: what it allocates, one step, forward, backward, update.
// The loop over steps, with evaluation and checkpoints, is bench/rung/training.cpp.
#include "model/data.h"
#include "model/feed.h"
#include "model/gpt2.h"

namespace stepladder {
namespace {

struct Gpt2Trainer final : Trainer {
  // The base class has ops, arena, config and hyper. ops(X{out, in}) runs op X of model/ops/.
  // Matmul{c, a, b, op}: NN is c = a b, NT c = a b^T, TN c = a^T b; with Write::add the product adds to c.
  using Trainer::Trainer;

  // B sequences of T tokens; L blocks of C channels in NH heads of HS.
  const int64_t B = config.B, T = config.T, L = config.L, C = config.C, NH = config.NH, HS = config.HS();
  // V tokens in the vocabulary, Vp with padding: wte has Vp rows, the logits have Vp columns.
  const int64_t V = config.V, Vp = V;
  // Type of activations and gradients.
  const DType act = config.half;  // bf16, or what --dtype says
  // Precision of f32 GEMMs: full, or inputs rounded to TF32. From 05 on used only with --dtype fp32.
  const Precision precision = Precision::tf32;

  // Parameters that AdamW updates, in f32, and their copy that the passes read. wte is the output head too.
  Params params{arena, "params", config, f32, Vp};
  Params weights{arena, "weights", config, act, Vp};
  // Gradients of several micro-batches add up in f32: in bf16 a sum stops growing at 256 times a term.
  Params grads{arena, "grads", config, hyper.accumulate > 1 ? f32 : act, Vp};
  Params adam_m{arena, "adam_m", config, f32, Vp};
  Params adam_v{arena, "adam_v", config, f32, Vp};

  // The batch, its loss, and the global norm of its gradients.
  Tensor tokens = arena.alloc("batch/tokens", i32, {B, T});
  Tensor targets = arena.alloc("batch/targets", i32, {B, T});
  Feed feed{ops, arena, config};  // copies the next batch to the device during a step
  Tensor loss = arena.alloc("batch/loss", f32, {1});
  Tensor norm = arena.alloc("batch/norm", f32, {1});
  Tensor loss_scaler = act == f16 ? arena.alloc("batch/loss_scaler", f32, {4}) : Tensor{};

  // Activations that the backward pass reads; index l, 0 to L - 1, is block l's.
  Tensor res1 = arena.alloc("activations/res1", act, {L + 1, B, T, C});  // input of block l
  Tensor ln1 = arena.alloc("activations/ln1", act, {L, B, T, C});
  Tensor ln1mean = arena.alloc("activations/ln1mean", f32, {L, B, T});
  Tensor ln1rstd = arena.alloc("activations/ln1rstd", f32, {L, B, T});
  Tensor q = arena.alloc("activations/q", act, {L, B, NH, T, HS});
  Tensor k = arena.alloc("activations/k", act, {L, B, NH, T, HS});
  Tensor v = arena.alloc("activations/v", act, {L, B, NH, T, HS});
  Tensor att = arena.alloc("activations/att", act, {L, B, NH, T, T});
  Tensor atty = arena.alloc("activations/atty", act, {L, B, T, C});
  Tensor res2 = arena.alloc("activations/res2", act, {L, B, T, C});  // res1 + attention
  Tensor ln2 = arena.alloc("activations/ln2", act, {L, B, T, C});
  Tensor ln2mean = arena.alloc("activations/ln2mean", f32, {L, B, T});
  Tensor ln2rstd = arena.alloc("activations/ln2rstd", f32, {L, B, T});
  Tensor fch = arena.alloc("activations/fch", act, {L, B, T, 4 * C});
  Tensor fcgelu = arena.alloc("activations/fcgelu", act, {L, B, T, 4 * C});
  Tensor lnf = arena.alloc("activations/lnf", act, {B, T, C});
  Tensor lnfmean = arena.alloc("activations/lnfmean", f32, {B, T});
  Tensor lnfrstd = arena.alloc("activations/lnfrstd", f32, {B, T});
  Tensor logits = arena.alloc("activations/logits", act, {B, T, Vp});
  Tensor logprobs = arena.alloc("activations/logprobs", f32, {B, T, V});
  Tensor dlogprobs = arena.alloc("activations/dlogprobs", f32, {B, T, V});
  Tensor losses = arena.alloc("activations/losses", f32, {B, T});

  // Scratch that all blocks share.
  Tensor proj = arena.alloc("scratch/proj", act, {B, T, C});
  Tensor fctanh = arena.alloc("scratch/fctanh", act, {B, T, 4 * C});
  Tensor dres = arena.alloc("scratch/dres", act, {B, T, C});  // gradient of res2 or res1
  Tensor dln = arena.alloc("scratch/dln", act, {B, T, C});
  Tensor lnhat = arena.alloc("scratch/lnhat", act, {B, T, C});
  Tensor dlnhat = arena.alloc("scratch/dlnhat", act, {B, T, C});
  Tensor mean1 = arena.alloc("scratch/mean1", f32, {B, T});
  Tensor mean2 = arena.alloc("scratch/mean2", f32, {B, T});
  Tensor dqkv = arena.alloc("scratch/dqkv", act, {B, T, 3 * C});
  Tensor dfch = arena.alloc("scratch/dfch", act, {B, T, 4 * C});
  Tensor dfcgelu = arena.alloc("scratch/dfcgelu", act, {B, T, 4 * C});
  Tensor dgelu = arena.alloc("scratch/dgelu", act, {B, T, 4 * C});

  // Scratch of attention: qkv unsplit; heads' outputs, backward their gradient; gradients of q, k, v and att.
  Tensor qkv = arena.alloc("scratch/qkv", act, {B, T, 3 * C});
  Tensor heads = arena.alloc("scratch/heads", act, {B, NH, T, HS});
  Tensor dq = arena.alloc("scratch/dq", act, {B, NH, T, HS});
  Tensor dk = arena.alloc("scratch/dk", act, {B, NH, T, HS});
  Tensor dv = arena.alloc("scratch/dv", act, {B, NH, T, HS});
  Tensor datt = arena.alloc("scratch/datt", act, {B, NH, T, T});

  // Operands of clipping and AdamW, all tensors at once.
  Tensor clip = arena.alloc("scratch/clip", f32, {1});
  std::vector<AdamWTensor> adamw = adamw_tensors(params, grads, adam_m, adam_v, weights);
  Tensor schedule = arena.alloc("scratch/schedule", f32, {2});  // learning rate, number of the step from 1

  TrainerTensors tensors() const override {
    return {params, moments(adam_m, adam_v), weights, grads, logits, loss, norm, loss_scaler};
  }

  void prepare() override {
    // Called once the parameters are loaded.
    ops.set_matmul_precision(precision);
    for (const AdamWTensor& t : adamw) ops(Copy{t.param_copy, t.w});
  }

  // ---- one step ------------------------------------------------------------------------------------------

  void step(Loader& data, int64_t step, float lr) override {
    for (int micro = 0; micro < hyper.accumulate; ++micro) {
      const Batch batch = feed.next(data);

      load(batch);
      if (micro == 0) zero_grad();
      forward();
      backward();
      // Ops are only queued: the host gets here while the device still computes.
      feed.send_ahead();  // sends the next batch meanwhile
    }
    update(step, lr);
    ops.phase(nullptr);  // ends the last phase
  }

  void zero_grad() {
    ops.phase("zero gradients");
    for (const Tensor& g : grads.all()) ops(Zero{g});
    ops(Zero{loss});
  }

  void load(const Batch& batch) {
    ops.phase("data");
    feed.deliver(tokens, targets, batch);
  }

  // ---- forward -------------------------------------------------------------------------------------------

  // For evaluation: logits and loss of a batch.
  void forward(const Batch& batch) override {
    load(batch);
    forward();
    cross_entropy();
  }

  // logits = GPT-2(tokens)
  void forward() {
    ops.phase("encoder");
    ops(EncoderForward{res1[0], tokens, weights.wte, weights.wpe});  // (B,T,C)

    for (int64_t l = 0; l < L; ++l) {
      ops.phase("forward block", l);
      layernorm_forward({ln1[l], ln1mean[l], ln1rstd[l]}, res1[l], {weights.ln1w[l], weights.ln1b[l]});

      // qkv = ln1 W^T + b  (B,T,3C)
      ops(Matmul{qkv, ln1[l], weights.qkvw[l], MatOp::NT});
      ops(AddColumns{qkv, qkv, weights.qkvb[l]});

      // att = softmax(q k^T / sqrt(HS)), causal  (B,NH,T,T)
      ops(SplitQkv{q[l], k[l], v[l], qkv});
      ops(Affine{q[l], q[l], config.attention_scale(), 0.0F});
      ops(Matmul{att[l], q[l], k[l], MatOp::NT});
      ops(CausalSoftmaxForward{att[l], att[l]});

      // atty = att v  (B,T,C)
      ops(Matmul{heads, att[l], v[l], MatOp::NN});
      ops(MergeHeads{atty[l], heads});

      // res2 = res1 + atty W^T + b
      ops(Matmul{proj, atty[l], weights.attprojw[l], MatOp::NT});
      ops(AddColumns{proj, proj, weights.attprojb[l]});
      ops(Add{res2[l], res1[l], proj});

      layernorm_forward({ln2[l], ln2mean[l], ln2rstd[l]}, res2[l], {weights.ln2w[l], weights.ln2b[l]});

      // fcgelu = gelu(ln2 W^T + b)  (B,T,4C)
      ops(Matmul{fch[l], ln2[l], weights.fcw[l], MatOp::NT});
      ops(AddColumns{fch[l], fch[l], weights.fcb[l]});
      gelu_forward(fcgelu[l], fch[l]);

      // res1 of the next block = res2 + fcgelu W^T + b
      ops(Matmul{proj, fcgelu[l], weights.fcprojw[l], MatOp::NT});
      ops(AddColumns{proj, proj, weights.fcprojb[l]});
      ops(Add{res1[l + 1], res2[l], proj});
    }

    ops.phase("classifier");
    layernorm_forward({lnf, lnfmean, lnfrstd}, res1[L], {weights.lnfw, weights.lnfb});
    ops(Matmul{logits, lnf, weights.wte, MatOp::NT});  // (B,T,Vp)
  }

  // out = xhat * w + b, xhat = (x - mean) rstd, rstd = 1 / sqrt(variance + 1e-5)  (Ba et al. 2016)
  void layernorm_forward(Normalized to, Tensor x, NormParams p) {
    ops(RowMean{to.mean, x});
    ops(RowRstd{to.rstd, x, to.mean, 1e-5F});
    ops(Normalize{to.out, x, to.mean, to.rstd});
    ops(MulColumns{to.out, to.out, p.w});
    ops(AddColumns{to.out, to.out, p.b});
  }

  // loss += mean of -log softmax(logits)[target]
  void cross_entropy() {
    ops(LogSoftmaxForward{logprobs, logits});
    ops(NllLossForward{losses, logprobs, targets});
    ops(AddMean{loss, losses});
  }

  // out = x (1 + t) / 2, t = tanh(a (x + b x^3))  (Hendrycks and Gimpel 2016)
  void gelu_forward(Tensor out, Tensor x) {
    gelu_tanh(fctanh, x);
    ops(Affine{out, fctanh, 0.5F, 0.5F});
    ops(Mul{out, out, x});
  }

  void gelu_tanh(Tensor t, Tensor x) {
    ops(Pow{t, x, 3});
    ops(Affine{t, t, kGeluB, 0.0F});
    ops(Add{t, t, x});
    ops(Affine{t, t, kGeluA, 0.0F});
    ops(Tanh{t, t});
  }

  // dx = dout ((1 + t) / 2 + x (1 - t^2) a (1 + 3 b x^2) / 2), t computed again
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

  // ---- backward: the loss, and gradients; those of weights are added to grads ----------------------------
  // A comment repeats the forward line, with the shapes of its gradients: computed <- given. The gradient of
  // "res + ..." is the gradient of both terms: dres stays as it is, and LayerNorms add to it.

  void backward() {
    const LossScale dloss{1.0F / static_cast<float>(B * T * hyper.accumulate), loss_scaler};
    const Tensor dlogits = logits;  // in the same memory
    cross_entropy();
    ops.phase("classifier backward");
    ops(NllLossBackward{dlogprobs, targets, dloss});
    ops(LogSoftmaxBackward{dlogits, dlogprobs, logprobs});

    ops(Matmul{dln, dlogits, weights.wte, MatOp::NN});
    ops(Matmul{grads.wte, dlogits, lnf, MatOp::TN, Write::add});
    ops(Zero{dres});
    layernorm_backward({grads.lnfw, grads.lnfb}, {res1[L], lnfmean, lnfrstd}, weights.lnfw);

    for (int64_t l = L - 1; l >= 0; --l) {
      ops.phase("backward block", l);
      ops(SumRows{grads.fcprojb[l], dres});

      // res1 of the next block = res2 + fcgelu W^T + b  (B,T,4C) <- (B,T,C)
      ops(Matmul{dfcgelu, dres, weights.fcprojw[l], MatOp::NN});
      ops(Matmul{grads.fcprojw[l], dres, fcgelu[l], MatOp::TN, Write::add});

      // fcgelu = gelu(ln2 W^T + b)  (B,T,C) <- (B,T,4C)
      gelu_backward(dfch, dfcgelu, fch[l]);
      ops(SumRows{grads.fcb[l], dfch});
      ops(Matmul{dln, dfch, weights.fcw[l], MatOp::NN});
      ops(Matmul{grads.fcw[l], dfch, ln2[l], MatOp::TN, Write::add});

      layernorm_backward({grads.ln2w[l], grads.ln2b[l]}, {res2[l], ln2mean[l], ln2rstd[l]}, weights.ln2w[l]);
      ops(SumRows{grads.attprojb[l], dres});

      // res2 = res1 + atty W^T + b  (B,T,C) <- (B,T,C)
      const Tensor datty = proj;  // in the same memory
      ops(Matmul{datty, dres, weights.attprojw[l], MatOp::NN});
      ops(Matmul{grads.attprojw[l], dres, atty[l], MatOp::TN, Write::add});

      // atty = att v  (B,NH,T,T) <- (B,T,C)
      ops(SplitHeads{heads, datty});
      ops(Matmul{datt, heads, v[l], MatOp::NT});
      ops(Matmul{dv, att[l], heads, MatOp::TN});

      // att = softmax(q k^T / sqrt(HS)), causal  (B,T,3C) <- (B,NH,T,T)
      ops(CausalSoftmaxBackward{datt, datt, att[l]});
      ops(Matmul{dq, datt, k[l], MatOp::NN});
      ops(Matmul{dk, datt, q[l], MatOp::TN});
      ops(Affine{dq, dq, config.attention_scale(), 0.0F});
      ops(MergeQkv{dqkv, dq, dk, dv});

      // qkv = ln1 W^T + b  (B,T,C) <- (B,T,3C)
      ops(Matmul{dln, dqkv, weights.qkvw[l], MatOp::NN});
      ops(Matmul{grads.qkvw[l], dqkv, ln1[l], MatOp::TN, Write::add});
      ops(SumRows{grads.qkvb[l], dqkv});

      layernorm_backward({grads.ln1w[l], grads.ln1b[l]}, {res1[l], ln1mean[l], ln1rstd[l]}, weights.ln1w[l]);
    }

    ops.phase("encoder backward");
    ops(EmbeddingBackward{grads.wte, tokens, dres});
    ops(PositionBackward{grads.wpe, dres});
  }

  // dres += rstd (dxhat - mean(dxhat) - xhat mean(dxhat xhat)), dxhat = dln * w; dln is used up
  void layernorm_backward(NormParams d, NormInput x, Tensor w) {
    ops(Normalize{lnhat, x.x, x.mean, x.rstd});
    ops(SumRows{d.b, dln});
    ops(MulColumns{dlnhat, dln, w});
    ops(Mul{dln, dln, lnhat});
    ops(SumRows{d.w, dln});
    ops(MulColumns{dln, dln, w});
    ops(RowMean{mean1, dlnhat});
    ops(RowMean{mean2, dln});
    ops(NormalizeBackward{dres, dlnhat, lnhat, mean1, mean2, x.rstd});
  }

  // ---- update --------------------------------------------------------------------------------------------

  void update(int64_t step, float lr) {
    // Clip the global norm: g *= min(1, grad_clip / norm), as AdamW reads g.
    ops.phase("clip");
    ops(ClipGradNorm{clip, norm, grads.all(), hyper.grad_clip, loss_scaler});

    // AdamW (Loshchilov and Hutter 2019), one kernel for all tensors.
    ops.phase("optimizer");
    ops(WriteValues{schedule, {lr, static_cast<float>(step + 1)}});
    ops(AdamWStep{adamw, schedule, clip, hyper.adamw(), loss_scaler});
  }
};

STEPLADDER_RUNG(Gpt2Trainer);

}  // namespace
}  // namespace stepladder
