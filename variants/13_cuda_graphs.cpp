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

  // B sequences of T tokens; L blocks of C channels in NH heads of HS = C / NH.
  const int64_t B = config.B, T = config.T, L = config.L, C = config.C, NH = config.NH;
  // V tokens in the vocabulary, Vp with padding: wte has Vp rows, the logits have Vp columns.
  const int64_t V = config.V, Vp = (V + 127) / 128 * 128;  // rows from V on are 0 and stay so
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
  Tensor qkvs = arena.alloc("activations/qkvs", act, {L, B, T, 3 * C});
  Tensor lse = arena.alloc("activations/lse", f32, {L, B, NH, T});  // log sum exp(scores), for backward
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
  Tensor losses = arena.alloc("activations/losses", f32, {B, T});

  // Scratch that all blocks share.
  Tensor proj = arena.alloc("scratch/proj", act, {B, T, C});
  Tensor dres = arena.alloc("scratch/dres", act, {B, T, C});  // gradient of res2 or res1
  Tensor dln = arena.alloc("scratch/dln", act, {B, T, C});
  Tensor dqkv = arena.alloc("scratch/dqkv", act, {B, T, 3 * C});
  Tensor dfch = arena.alloc("scratch/dfch", act, {B, T, 4 * C});

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
      if (!searched) search();
      if (micro == 0) zero_grad();
      if (!forward_backward) record();
      forward_backward();
      // Ops are only queued: the host gets here while the device still computes.
      feed.send_ahead();  // sends the next batch meanwhile
    }
    update(step, lr);
    ops.phase(nullptr);  // ends the last phase
  }

  // Times each GEMM's available algorithms on the first batch; the fastest are used from then on.
  bool searched = false;
  void search() {
    ops.search([this] {
      forward();
      backward();
    });
    searched = true;
  }

  void zero_grad() {
    ops.phase("zero gradients");
    // Where GEMMs overwrite the gradients of matrices, only the other gradients start from 0.
    for (const Tensor& g : write == Write::add ? grads.all() : grads.outside_gemms()) ops(Zero{g});
    ops(Zero{loss});
  }

  // Records both passes as CUDA graphs with programmatic dependent launch: a kernel may start while the
  // previous one still runs. Both passes run once first, as libraries' initialisation can't be recorded.
  std::function<void()> forward_backward;
  void record() {
    const auto both = [this] {
      forward();
      backward();
    };
    both();
    zero_grad();  // drops what this run has added
    forward_backward = ops.record(both, Launch::early);
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
      ops(LayerNormForward{ln1[l], ln1mean[l], ln1rstd[l], res1[l], weights.ln1w[l], weights.ln1b[l]});

      const Tensor qkv = qkvs[l];  // kept for the backward pass
      // qkv = ln1 W^T + b  (B,T,3C)
      ops(LinearForward{qkv, ln1[l], weights.qkvw[l], weights.qkvb[l]});

      // atty = softmax(q k^T / sqrt(HS)) v, causal  (B,T,C)
      // FlashAttention-2 (Dao 2023), cuDNN's or model/cuda/flash_attention.cu: no (T,T) scores in memory.
      ops(AttentionForward{atty[l], lse[l], qkv});

      // res2 = res1 + atty W^T + b
      ops(LinearForward{res2[l], atty[l], weights.attprojw[l], weights.attprojb[l], res1[l]});

      ops(LayerNormForward{ln2[l], ln2mean[l], ln2rstd[l], res2[l], weights.ln2w[l], weights.ln2b[l]});

      // fcgelu = gelu(ln2 W^T + b)  (B,T,4C)
      ops(LinearGeluForward{fcgelu[l], fch[l], ln2[l], weights.fcw[l], weights.fcb[l]});

      // res1 of the next block = res2 + fcgelu W^T + b
      ops(LinearForward{res1[l + 1], fcgelu[l], weights.fcprojw[l], weights.fcprojb[l], res2[l]});
    }

    ops.phase("classifier");
    ops(LayerNormForward{lnf, lnfmean, lnfrstd, res1[L], weights.lnfw, weights.lnfb});
    ops(Matmul{logits, lnf, weights.wte, MatOp::NT});  // (B,T,Vp)
  }

  // loss += mean of -log softmax(logits)[target]
  void cross_entropy() {
    ops(CrossEntropyForward{losses, logits, targets, V});
    ops(AddMean{loss, losses});
  }

  // ---- backward: the loss, and gradients; those of weights are added to grads ----------------------------
  // A comment repeats the forward line, with the shapes of its gradients: computed <- given. The gradient of
  // "res + ..." is the gradient of both terms: dres stays as it is, and LayerNorms add to it.

  // With one micro-batch a step GEMMs overwrite grads, and an epilogue may write a bias gradient there. With
  // more it writes to scratch, which is then added: cuBLASLt's epilogues overwrite their sum.
  const Write write = hyper.accumulate == 1 ? Write::set : Write::add;

  void backward() {
    const LossScale dloss{1.0F / static_cast<float>(B * T * hyper.accumulate), loss_scaler};
    const Tensor dlogits = logits;  // in the same memory
    ops.phase("classifier backward");
    ops(CrossEntropyForwardBackward{losses, dlogits, targets, V, dloss});
    ops(AddMean{loss, losses});

    ops(Matmul{dln, dlogits, weights.wte, MatOp::NN});
    ops(Matmul{grads.wte, dlogits, lnf, MatOp::TN, write});
    ops(Zero{dres});
    // This also sums dres over its rows, into the bias gradient of the last block's projection.
    ops(LayerNormBackward{dres, NormParams{grads.lnfw, grads.lnfb}, grads.fcprojb[L - 1], dln,
                          NormInput{res1[L], lnfmean, lnfrstd}, weights.lnfw});

    for (int64_t l = L - 1; l >= 0; --l) {
      ops.phase("backward block", l);

      // res1 of the next block = res2 + gelu(fch) W^T + b, back through gelu to fch  (B,T,4C) <- (B,T,C)
      ops(LinearGeluBackward{dfch, grads.fcb[l], dres, weights.fcprojw[l], fch[l], write});
      ops(Matmul{grads.fcprojw[l], dres, fcgelu[l], MatOp::TN, write});

      // fch = ln2 W^T + b  (B,T,C) <- (B,T,4C)
      ops(Matmul{dln, dfch, weights.fcw[l], MatOp::NN});
      ops(Matmul{grads.fcw[l], dfch, ln2[l], MatOp::TN, write});

      // LayerNorm, and the bias gradient of the projection before it: dres summed over its rows
      ops(LayerNormBackward{dres, NormParams{grads.ln2w[l], grads.ln2b[l]}, grads.attprojb[l], dln,
                            NormInput{res2[l], ln2mean[l], ln2rstd[l]}, weights.ln2w[l]});

      // res2 = res1 + atty W^T + b  (B,T,C) <- (B,T,C)
      const Tensor datty = proj;  // in the same memory
      ops(Matmul{datty, dres, weights.attprojw[l], MatOp::NN});
      ops(Matmul{grads.attprojw[l], dres, atty[l], MatOp::TN, write});

      // atty = softmax(q k^T / sqrt(HS)) v, causal  (B,T,3C) <- (B,T,C)
      ops(AttentionBackward{dqkv, datty, atty[l], lse[l], qkvs[l]});

      // qkv = ln1 W^T + b  (B,T,C) <- (B,T,3C)
      ops(Matmul{dln, dqkv, weights.qkvw[l], MatOp::NN});
      ops(LinearWeightBackward{grads.qkvw[l], grads.qkvb[l], dqkv, ln1[l], write});

      const Tensor dbias = l > 0 ? grads.fcprojb[l - 1] : Tensor{};
      ops(LayerNormBackward{dres, NormParams{grads.ln1w[l], grads.ln1b[l]}, dbias, dln,
                            NormInput{res1[l], ln1mean[l], ln1rstd[l]}, weights.ln1w[l]});
    }

    ops.phase("encoder backward");
    ops(EmbeddingBackward{grads.wte, tokens, dres});
    ops(PositionBackward{grads.wpe, dres});
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
