// A complete trainer of GPT-2, top to bottom: what it allocates, one step, forward, backward, update.
// The loop over steps, with evaluation and checkpoints, is bench/rung/training.cpp.
#include <algorithm>
#include <utility>

#include "model/data.h"
#include "model/feed.h"
#include "model/fp8_linears.h"
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

  // Ranks sum gradients in buckets of layers. The first layer, ready last, is a bucket by itself.
  const int64_t bucket_layers = (L + 3) / 4;
  bool begins_bucket(int64_t l) const { return l == 0 || (l - 1) % bucket_layers == 0; }
  int64_t bucket_end(int64_t l) const { return l == 0 ? 1 : std::min(l + bucket_layers, L); }

  // Tensors that each rank has a part of: all outside of the layers, then each bucket's layers of each stack.
  ParameterGroup pieces(const Params& of) const {
    return of.pieces([this](int64_t l) { return bucket_end(l); });
  }
  ParameterGroup parts(const Params& of) const { return pieces(of).parts(ops.rank(), ops.world()); }
  // Tensors that are whole only to load and save, and where this rank's parts of them are.
  std::vector<std::pair<const Params*, const ParameterGroup*>> spread() const {
    return {{&whole.params, &params}, {&whole.m, &adam_m}, {&whole.v, &adam_v}};
  }
  void copy(const std::vector<Tensor>& to, const std::vector<Tensor>& from) {
    for (size_t i = 0; i < to.size(); ++i) ops(Copy{to[i], from[i]});
  }

  // Parameters that the passes read, and gradients; wte is the output head too.
  Params weights{arena, "weights", config, act, Vp};
  // Gradients of several micro-batches add up in f32: in bf16 a sum stops growing at 256 times a term.
  Params grads{arena, "grads", config, hyper.accumulate > 1 ? f32 : act, Vp};

  // This rank's parts of the gradients, and of the parameters in f32 and AdamW's moments.
  ParameterGroup grad_parts = parts(grads);
  ParameterGroup params{arena, "params", f32, grad_parts};
  ParameterGroup adam_m{arena, "adam_m", f32, grad_parts};
  ParameterGroup adam_v{arena, "adam_v", f32, grad_parts};

  // The batch, its loss, and the global norm of its gradients.
  Tensor tokens = arena.alloc("batch/tokens", i32, {B, T});
  Tensor targets = arena.alloc("batch/targets", i32, {B, T});
  Feed feed{ops, arena, config};  // copies the next batch to the device during a step
  Tensor loss = arena.alloc("batch/loss", f32, {1});
  Tensor norm = arena.alloc("batch/norm", f32, {1});

  // The linear layers' operands: e4m3 weights and inputs, e5m2 gradients. They lie before the activations, so
  // that loading and saving leave them alone.
  Tensor logits = arena.alloc("activations/logits", act, {B, T, Vp});
  Fp8Linears fp8{arena, config, logits};
  Fp8Linear head = fp8.head(B);

  // All ranks' parameters and moments, to load and save: in memory that training uses for activations.
  struct Whole {
    Params params, m, v;
  } whole = arena.overlay([&] {
    return Whole{Params(arena, "params", config, f32, Vp), Params(arena, "adam_m", config, f32, Vp),
                 Params(arena, "adam_v", config, f32, Vp)};
  });

  // Activations that the backward pass reads; index l, 0 to L - 1, is block l's.
  Tensor res1 = arena.alloc("activations/res1", act, {L + 1, B, T, C});  // input of block l
  Tensor ln1mean = arena.alloc("activations/ln1mean", f32, {L, B, T});
  Tensor ln1rstd = arena.alloc("activations/ln1rstd", f32, {L, B, T});
  Tensor qkvs = arena.alloc("activations/qkvs", act, {L, B, T, 3 * C});
  Tensor lse = arena.alloc("activations/lse", f32, {L, B, NH, T});  // log sum exp(scores), for backward
  Tensor atty = arena.alloc("activations/atty", act, {L, B, T, C});
  Tensor res2 = arena.alloc("activations/res2", act, {L, B, T, C});  // res1 + attention
  Tensor ln2mean = arena.alloc("activations/ln2mean", f32, {L, B, T});
  Tensor ln2rstd = arena.alloc("activations/ln2rstd", f32, {L, B, T});
  Tensor slopes = arena.alloc("activations/slopes", DType::f8e4m3, {L, B, T, 4 * C});  // gelu'(fch)
  Tensor lnfmean = arena.alloc("activations/lnfmean", f32, {B, T});
  Tensor lnfrstd = arena.alloc("activations/lnfrstd", f32, {B, T});
  Tensor losses = arena.alloc("activations/losses", f32, {B, T});

  // Scratch that all blocks share.
  Tensor proj = arena.alloc("scratch/proj", act, {B, T, C});
  Tensor dres = arena.alloc("scratch/dres", act, {B, T, C});  // gradient of res2 or res1
  Tensor dln = arena.alloc("scratch/dln", act, {B, T, C});
  Tensor dqkv = arena.alloc("scratch/dqkv", act, {B, T, 3 * C});
  Tensor dfch = arena.alloc("scratch/dfch", act, {B, T, 4 * C});

  // Operands of clipping and AdamW, all tensors at once.
  Tensor clip = arena.alloc("scratch/clip", f32, {1});
  std::vector<AdamWTensor> adamw = adamw_tensors(params, grad_parts, adam_m, adam_v, parts(weights));
  Tensor norms = arena.alloc("scratch/norms", f32, {ops.world()});  // of all ranks
  Tensor schedule = arena.alloc("scratch/schedule", f32, {2});  // learning rate, number of the step from 1

  TrainerTensors tensors() const override {
    TrainerTensors all = {whole.params, moments(whole.m, whole.v), weights, grads, logits, loss, norm};
    all.fp8_history = fp8.history;
    return all;
  }

  void prepare() override {
    // Gradients and weights move by the copy engines: NCCL's kernels would take multiprocessors from the
    // GEMMs beside them, which then need a second wave. Gradients of other ranks are received in the memory
    // of logits, which the backward pass is done with by then.
    ops.use_copy_engines(arena, logits);

    // Called once the parameters are loaded.
    // Every rank continues from rank 0's state.
    for (const Params* group : {&whole.params, &whole.m, &whole.v})
      ops.collective(Collective::broadcast, group->all());
    ops.collective(Collective::broadcast, {&fp8.history, 1});
    ops.wait_for_collectives();

    ops.set_matmul_precision(precision);
    copy(weights.all(), whole.params.all());
    for (const auto& [all, mine] : spread()) copy(mine->all(), parts(*all).all());
    ops(Zero{fp8.amax});
    fp8.update_scales(ops);
    fp8.quantize_weights(ops, weights);
  }

  void gather_state() override {
    for (const auto& [all, mine] : spread()) {
      copy(parts(*all).all(), mine->all());
      ops.collective(Collective::all_gather, pieces(*all).all());
    }
    ops.collective(Collective::all_gather, pieces(weights).all());
    ops.wait_for_collectives();
    fp8.quantize_weights(ops, weights);
  }

  // ---- one step ------------------------------------------------------------------------------------------

  void step(Loader& data, int64_t step, float lr) override {
    for (int micro = 0; micro < hyper.accumulate; ++micro) {
      const Batch batch = feed.next(data);

      load(batch);
      if (!searched) search();
      if (micro == 0) zero_grad();
      if (!forward_backward[0][0]) record();
      forward_backward[micro == 0][micro + 1 == hyper.accumulate]();
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
      forward(false);
      backward(true);
    });
    searched = true;
  }

  void zero_grad() {
    ops.phase("zero gradients");
    // Where GEMMs overwrite the gradients of matrices, only the other gradients start from 0.
    for (const Tensor& g : write == Write::add ? grads.all() : grads.outside_gemms()) ops(Zero{g});
    ops(Zero{loss});
    ops(Zero{fp8.amax});
  }

  // Records both passes as CUDA graphs with programmatic dependent launch: a kernel may start while the
  // previous one still runs. Both passes run once first, as libraries' initialisation can't be recorded.
  std::function<void()> forward_backward[2][2];  // by whether the micro-batch is the first, and the last
  void record() {
    const auto both = [this](bool gather, bool reduce) {
      forward(gather);
      backward(reduce);
    };
    both(false, true);
    zero_grad();  // drops what this run has added
    for (const bool first : {false, true})
      for (const bool last : {false, true})
        forward_backward[first][last] = ops.record([=] { both(first, last); }, Launch::early);

    // Without a checkpoint's history, two passes over the first batch set the scales. The gradients' scales
    // start from dloss, the largest gradient that a logit can have.
    fp8.calibrate(ops, dloss, [this] {
      zero_grad();
      forward_backward[false][true]();
    });
    zero_grad();
  }

  void load(const Batch& batch) {
    ops.phase("data");
    feed.deliver(tokens, targets, batch);
  }

  // ---- forward -------------------------------------------------------------------------------------------

  // For evaluation: logits and loss of a batch.
  void forward(const Batch& batch) override {
    load(batch);
    forward(false);
    cross_entropy();
  }

  // logits = GPT-2(tokens)
  void forward(bool gather) {
    // The other ranks' parts of a layer's weights arrive while earlier layers are computed.
    int64_t coming = 0;  // buckets on their way
    if (gather)
      for (int64_t l = 0; l < L; l = bucket_end(l), ++coming)
        ops.collective(Collective::all_gather, weights.layers(l, bucket_end(l)));
    const auto need = [&](int64_t l) {
      if (coming == 0 || !begins_bucket(l)) return;
      ops.wait_for_collectives(--coming);
      fp8.quantize_layers(ops, weights, l, bucket_end(l));
    };

    ops.phase("encoder");
    ops(EncoderForward{res1[0], tokens, weights.wte, weights.wpe});  // (B,T,C)

    for (int64_t l = 0; l < L; ++l) {
      ops.phase("forward block", l);
      need(l);
      const Fp8Linear to_qkv = fp8.at(Fp8Linears::kQkv, l), attproj = fp8.at(Fp8Linears::kAttproj, l);
      const Fp8Linear fc = fp8.at(Fp8Linears::kFc, l), fcproj = fp8.at(Fp8Linears::kFcproj, l);

      const Tensor qkv = qkvs[l];  // kept for the backward pass
      // qkv = layernorm(res1) W^T + b  (B,T,3C)
      ops(QuantizeLayerNorm{to_qkv.x, to_qkv.xt, ln1mean[l], ln1rstd[l], res1[l], weights.ln1w[l],
                            weights.ln1b[l]});
      ops(LinearForward{qkv, to_qkv.x, to_qkv.w, weights.qkvb[l]});

      // atty = softmax(q k^T / sqrt(HS)) v, causal  (B,T,C)
      // FlashAttention-2 (Dao 2023), cuDNN's or model/cuda/flash_attention.cu: no (T,T) scores in memory.
      ops(AttentionForward{atty[l], lse[l], qkv});

      // res2 = res1 + atty W^T + b
      ops(Quantize{attproj.x, attproj.xt, atty[l]});
      ops(LinearForward{res2[l], attproj.x, attproj.w, weights.attprojb[l], res1[l]});

      // fch = layernorm(res2) W^T + b, and gelu(fch)  (B,T,4C)
      ops(QuantizeLayerNorm{fc.x, fc.xt, ln2mean[l], ln2rstd[l], res2[l], weights.ln2w[l], weights.ln2b[l]});
      ops(LinearQuantizeGelu{fcproj.x, fcproj.xt, dfch, fc.x, fc.w, weights.fcb[l], slopes[l]});

      // res1 of the next block = res2 + gelu(fch) W^T + b
      ops(LinearForward{res1[l + 1], fcproj.x, fcproj.w, weights.fcprojb[l], res2[l]});
    }

    ops.phase("classifier");
    ops(QuantizeLayerNorm{head.x, head.xt, lnfmean, lnfrstd, res1[L], weights.lnfw, weights.lnfb});
    ops(Matmul{logits, head.x, head.w, MatOp::NT});  // (B,T,Vp)
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

  // The gradient of a token's loss; no logit's gradient is larger.
  const float dloss = 1.0F / static_cast<float>(B * T * hyper.accumulate * ops.world());

  void backward(bool reduce) {
    ops.phase("classifier backward");
    ops(QuantizeCrossEntropy{head.dy, losses, logits, targets, V, dloss});
    ops(AddMean{loss, losses});

    ops(Transpose{head.dyt, head.dy});  // in the memory of logits
    ops(Matmul{dln, head.dy, head.wt, MatOp::NT});
    ops(Matmul{grads.wte, head.dyt, head.xt, MatOp::NT, write});
    ops(Zero{dres});
    // This also sums dres over its rows, into the bias gradient of the last block's projection.
    const Fp8Linear top = fp8.at(Fp8Linears::kFcproj, L - 1);
    ops(QuantizeLayerNormBackward{Fp8Pair{top.dy, top.dyt}, dres, NormParams{grads.lnfw, grads.lnfb},
                                  grads.fcprojb[L - 1], dln, NormInput{res1[L], lnfmean, lnfrstd},
                                  weights.lnfw});

    for (int64_t l = L - 1; l >= 0; --l) {
      ops.phase("backward block", l);
      const Fp8Linear to_qkv = fp8.at(Fp8Linears::kQkv, l), attproj = fp8.at(Fp8Linears::kAttproj, l);
      const Fp8Linear fc = fp8.at(Fp8Linears::kFc, l), fcproj = fp8.at(Fp8Linears::kFcproj, l);

      // res1 of the next block = res2 + gelu(fch) W^T + b, back through gelu to fch  (B,T,4C) <- (B,T,C)
      ops(Matmul{grads.fcprojw[l], fcproj.dyt, fcproj.xt, MatOp::NT, write});
      ops(LinearQuantizeGeluBackward{fc.dy, fc.dyt, grads.fcb[l], dfch, fcproj.dy, fcproj.wt, slopes[l]});

      // fch = ln2 W^T + b  (B,T,C) <- (B,T,4C)
      ops(Matmul{dln, fc.dy, fc.wt, MatOp::NT});
      ops(Matmul{grads.fcw[l], fc.dyt, fc.xt, MatOp::NT, write});

      // LayerNorm, and the bias gradient of the projection before it: dres summed over its rows
      ops(QuantizeLayerNormBackward{Fp8Pair{attproj.dy, attproj.dyt}, dres,
                                    NormParams{grads.ln2w[l], grads.ln2b[l]}, grads.attprojb[l], dln,
                                    NormInput{res2[l], ln2mean[l], ln2rstd[l]}, weights.ln2w[l]});

      // res2 = res1 + atty W^T + b  (B,T,C) <- (B,T,C)
      const Tensor datty = proj;  // in the same memory
      ops(Matmul{datty, attproj.dy, attproj.wt, MatOp::NT});
      ops(Matmul{grads.attprojw[l], attproj.dyt, attproj.xt, MatOp::NT, write});

      // atty = softmax(q k^T / sqrt(HS)) v, causal  (B,T,3C) <- (B,T,C)
      ops(AttentionBackward{dqkv, datty, atty[l], lse[l], qkvs[l]});

      // qkv = ln1 W^T + b  (B,T,C) <- (B,T,3C)
      ops(Quantize{to_qkv.dy, to_qkv.dyt, dqkv, grads.qkvb[l]});
      ops(Matmul{dln, to_qkv.dy, to_qkv.wt, MatOp::NT});
      if (l > 0) ops(Matmul{grads.qkvw[l], to_qkv.dyt, to_qkv.xt, MatOp::NT, write});

      const NormParams dparams{grads.ln1w[l], grads.ln1b[l]};
      const NormInput input{res1[l], ln1mean[l], ln1rstd[l]};
      if (l == 0) {
        ops(LayerNormBackward{dres, dparams, {}, dln, input, weights.ln1w[0]});
      } else {
        const Fp8Linear below = fp8.at(Fp8Linears::kFcproj, l - 1);
        ops(QuantizeLayerNormBackward{Fp8Pair{below.dy, below.dyt}, dres, dparams, grads.fcprojb[l - 1], dln,
                                      input, weights.ln1w[l]});
      }

      // Each rank gets the sum of its part of a finished bucket during the rest of the backward pass.
      if (reduce && l > 0 && begins_bucket(l))
        ops.collective(Collective::reduce_scatter, grads.layers(l, bucket_end(l)));
    }

    ops.phase("encoder backward");
    ops(EmbeddingBackward{grads.wte, tokens, dres});
    ops(PositionBackward{grads.wpe, dres});
    if (reduce) {
      ops.collective(Collective::reduce_scatter, grads.outside_layers());
      ops.collective(Collective::all_reduce, {&loss, 1});
      ops.collective(Collective::all_max, {&fp8.amax, 1});
    }

    // These weight gradients could wait until wte's gradient, the largest, is being reduced.
    ops.phase("backward block", 0);
    const Fp8Linear to_qkv = fp8.at(Fp8Linears::kQkv, 0);
    ops(Matmul{grads.qkvw[0], to_qkv.dyt, to_qkv.xt, MatOp::NT, write});
    if (reduce) {
      ops.phase("gradient reduction");
      ops.collective(Collective::reduce_scatter, grads.layers(0, bucket_end(0)));
      ops.wait_for_collectives();
      ops(Affine{loss, loss, 1.0F / static_cast<float>(ops.world()), 0.0F});  // each rank's loss is a mean
    }
  }

  // ---- update --------------------------------------------------------------------------------------------

  void update(int64_t step, float lr) {
    // Clip the global norm: g *= min(1, grad_clip / norm), as AdamW reads g.
    ops.phase("clip");
    // The norm of all ranks' norms is the norm of all gradients.
    ops(ClipGradNorm{clip, norm, grad_parts.all(), hyper.grad_clip});
    ops(Copy{part_of(norms, ops.rank(), ops.world()), norm});
    ops.collective(Collective::all_gather, {&norms, 1});
    ops.wait_for_collectives();
    ops(ClipGradNorm{clip, norm, {&norms, 1}, hyper.grad_clip});

    // AdamW (Loshchilov and Hutter 2019): each rank updates its parts, first those outside of the layers: the
    // next forward pass begins with them, so they are gathered during the layers' update.
    ops.phase("optimizer");
    ops(WriteValues{schedule, {lr, static_cast<float>(step + 1)}});
    const std::span<const AdamWTensor> mine = adamw;
    const size_t outer = weights.outside_layers().size();
    ops(AdamWStep{mine.first(outer), schedule, clip, hyper.adamw()});
    ops.collective(Collective::all_gather, weights.outside_layers());
    ops(AdamWStep{mine.subspan(outer), schedule, clip, hyper.adamw()});
    ops.wait_for_collectives();

    // Scales and the head's FP8 weights for the next step; the layers' weights become FP8 as they arrive.
    ops.phase("scales");
    fp8.update_scales(ops);
    fp8.quantize_head(ops, weights);
  }
};

STEPLADDER_RUNG(Gpt2Trainer);

}  // namespace
}  // namespace stepladder
