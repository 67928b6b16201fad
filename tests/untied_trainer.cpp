// A test trainer whose parameters are not GPT-2's: no positions, a LayerNorm after the embeddings, an untied
// head. Each rank owns whole layers of the blocks' matrices, and flat parts of the rest.
#include <cmath>
#include <utility>

#include "model/data.h"
#include "model/gpt2.h"

namespace stepladder {
namespace {

/// Parameters whose stacks of matrices are padded, so that each of `ranks` owns equally many layers.
struct UntiedParams : ParameterGroup {
  Tensor wte, lnew, lneb;                 // (Vp,C), (C)
  Tensor ln1w, ln1b, ln2w, ln2b;          // (L,C)
  Tensor qkvw, qkvb, attprojw, attprojb;  // (Lp,3C,C), (L,3C), (Lp,C,C), (L,C)
  Tensor fcw, fcb, fcprojw, fcprojb;      // (Lp,4C,C), (L,4C), (Lp,C,4C), (L,C)
  Tensor lnfw, lnfb, head;                // (C), (Vp,C)

  UntiedParams(Arena& arena, const std::string& group, const Config& config, int ranks, DType dtype,
               int64_t Vp)
      : ParameterGroup(arena, group, dtype) {
    const int64_t L = config.L, C = config.C, Lp = (L + ranks - 1) / ranks * ranks;
    const Init normal = Init::normal(0.02F);
    const auto bias = [](const char* name) { return Parameter{.name = name}; };
    const auto gain = [](const char* name) { return Parameter{.name = name, .init = Init::ones()}; };
    const auto matrix = [&](const char* name) {
      return Parameter{.name = name,
                       .init = normal,
                       .decay = true,
                       .gemm = true,
                       .conv1d = true,
                       .whole = true,
                       .rows = L};
    };
    wte = declare("wte", {Vp, C}, {.name = "wte.weight", .init = normal, .decay = true, .rows = config.V});
    lnew = declare("lnew", {C}, gain("ln_e.weight"));
    lneb = declare("lneb", {C}, bias("ln_e.bias"));
    ln1w = declare("ln1w", {L, C}, gain("h.*.ln_1.weight"));
    ln1b = declare("ln1b", {L, C}, bias("h.*.ln_1.bias"));
    qkvw = declare("qkvw", {Lp, 3 * C, C}, matrix("h.*.attn.c_attn.weight"));
    qkvb = declare("qkvb", {L, 3 * C}, bias("h.*.attn.c_attn.bias"));
    attprojw = declare("attprojw", {Lp, C, C}, matrix("h.*.attn.c_proj.weight"));
    attprojb = declare("attprojb", {L, C}, bias("h.*.attn.c_proj.bias"));
    ln2w = declare("ln2w", {L, C}, gain("h.*.ln_2.weight"));
    ln2b = declare("ln2b", {L, C}, bias("h.*.ln_2.bias"));
    fcw = declare("fcw", {Lp, 4 * C, C}, matrix("h.*.mlp.c_fc.weight"));
    fcb = declare("fcb", {L, 4 * C}, bias("h.*.mlp.c_fc.bias"));
    fcprojw = declare("fcprojw", {Lp, C, 4 * C}, matrix("h.*.mlp.c_proj.weight"));
    fcprojb = declare("fcprojb", {L, C}, bias("h.*.mlp.c_proj.bias"));
    lnfw = declare("lnfw", {C}, gain("ln_f.weight"));
    lnfb = declare("lnfb", {C}, bias("ln_f.bias"));
    head = declare("head", {Vp, C},
                   {.name = "lm_head.weight", .init = normal, .decay = true, .gemm = true, .rows = config.V});
  }
};

struct UntiedTrainer final : Trainer {
  using Trainer::Trainer;

  const int64_t B = config.B, T = config.T, L = config.L, C = config.C, NH = config.NH, V = config.V;
  const int64_t Vp = (V + 127) / 128 * 128;
  const int ranks = ops.world();
  const DType act = config.half;
  const NotGpt2 untied{*this, "untied"};

  // Parameters in pieces that ranks share: buckets of as many layers as there are ranks.
  ParameterGroup pieces(const UntiedParams& of) const {
    return of.pieces([this](int64_t l) { return l + ranks; });
  }
  ParameterGroup parts(const UntiedParams& of) const { return pieces(of).parts(ops.rank(), ranks); }
  std::vector<std::pair<const UntiedParams*, const ParameterGroup*>> spread() const {
    return {{&whole.params, &params}, {&whole.m, &adam_m}, {&whole.v, &adam_v}};
  }
  void copy(const std::vector<Tensor>& to, const std::vector<Tensor>& from) {
    for (size_t i = 0; i < to.size(); ++i) ops(Copy{to[i], from[i]});
  }

  UntiedParams weights{arena, "weights", config, ranks, act, Vp};
  UntiedParams grads{arena, "grads", config, ranks, hyper.accumulate > 1 ? f32 : act, Vp};
  ParameterGroup grad_parts = parts(grads);
  ParameterGroup params{arena, "params", f32, grad_parts};
  ParameterGroup adam_m{arena, "adam_m", f32, grad_parts};
  ParameterGroup adam_v{arena, "adam_v", f32, grad_parts};

  Tensor tokens = arena.alloc("batch/tokens", i32, {B, T});
  Tensor targets = arena.alloc("batch/targets", i32, {B, T});
  Tensor loss = arena.alloc("batch/loss", f32, {1});
  Tensor norm = arena.alloc("batch/norm", f32, {1});

  // Whole parameters and moments, for loading and saving only; activations use this memory during training.
  struct Whole {
    UntiedParams params, m, v;
  } whole = arena.overlay([&] {
    return Whole{UntiedParams(arena, "params", config, ranks, f32, Vp),
                 UntiedParams(arena, "adam_m", config, ranks, f32, Vp),
                 UntiedParams(arena, "adam_v", config, ranks, f32, Vp)};
  });

  Tensor embedded = arena.alloc("activations/embedded", act, {B, T, C});
  Tensor lnemean = arena.alloc("activations/lnemean", f32, {B, T});
  Tensor lnerstd = arena.alloc("activations/lnerstd", f32, {B, T});
  Tensor res1 = arena.alloc("activations/res1", act, {L + 1, B, T, C});
  Tensor ln1 = arena.alloc("activations/ln1", act, {L, B, T, C});
  Tensor ln1mean = arena.alloc("activations/ln1mean", f32, {L, B, T});
  Tensor ln1rstd = arena.alloc("activations/ln1rstd", f32, {L, B, T});
  Tensor qkvs = arena.alloc("activations/qkvs", act, {L, B, T, 3 * C});
  Tensor lse = arena.alloc("activations/lse", f32, {L, B, NH, T});
  Tensor atty = arena.alloc("activations/atty", act, {L, B, T, C});
  Tensor res2 = arena.alloc("activations/res2", act, {L, B, T, C});
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

  Tensor proj = arena.alloc("scratch/proj", act, {B, T, C});
  Tensor dres = arena.alloc("scratch/dres", act, {B, T, C});
  Tensor dln = arena.alloc("scratch/dln", act, {B, T, C});
  Tensor dqkv = arena.alloc("scratch/dqkv", act, {B, T, 3 * C});
  Tensor dfch = arena.alloc("scratch/dfch", act, {B, T, 4 * C});

  Tensor clip = arena.alloc("scratch/clip", f32, {1});
  std::vector<AdamWTensor> adamw = adamw_tensors(params, grad_parts, adam_m, adam_v, parts(weights));
  Tensor norms = arena.alloc("scratch/norms", f32, {ranks});
  Tensor schedule = arena.alloc("scratch/schedule", f32, {2});

  TrainerTensors tensors() const override {
    return {.params = whole.params,
            .states = moments(whole.m, whole.v),
            .weights = weights,
            .grads = grads,
            .logits = logits,
            .loss = loss,
            .norm = norm};
  }

  void prepare() override {
    for (const auto& [all, mine] : spread()) ops.collective(Collective::broadcast, all->all());
    ops.wait_for_collectives();
    copy(weights.all(), whole.params.all());
    for (const auto& [all, mine] : spread()) copy(mine->all(), parts(*all).all());
  }

  void gather_state() override {
    for (const auto& [all, mine] : spread()) {
      copy(parts(*all).all(), mine->all());
      ops.collective(Collective::all_gather, pieces(*all).all());
    }
    ops.wait_for_collectives();
  }

  void step(Loader& data, int64_t step, float lr) override {
    for (int micro = 0; micro < hyper.accumulate; ++micro) {
      load(data.next());
      if (micro == 0) {
        for (const Tensor& g : write == Write::add ? grads.all() : grads.outside_gemms()) ops(Zero{g});
        ops(Zero{loss});
      }
      forward();
      backward();
    }
    update(step, lr);
    ops.phase(nullptr);
  }

  void load(const Batch& batch) {
    ops(Upload{tokens, batch.tokens});
    ops(Upload{targets, batch.targets});
  }

  void forward(const Batch& batch) override {
    load(batch);
    forward();
    ops(CrossEntropyForward{losses, logits, targets, V});
    ops(AddMean{loss, losses});
  }

  void forward() {
    ops(EncoderForward{embedded, tokens, weights.wte});
    ops(LayerNormForward{res1[0], lnemean, lnerstd, embedded, weights.lnew, weights.lneb});
    for (int64_t l = 0; l < L; ++l) {
      ops(LayerNormForward{ln1[l], ln1mean[l], ln1rstd[l], res1[l], weights.ln1w[l], weights.ln1b[l]});
      ops(LinearForward{qkvs[l], ln1[l], weights.qkvw[l], weights.qkvb[l]});
      ops(AttentionForward{atty[l], lse[l], qkvs[l]});
      ops(LinearForward{res2[l], atty[l], weights.attprojw[l], weights.attprojb[l], res1[l]});
      ops(LayerNormForward{ln2[l], ln2mean[l], ln2rstd[l], res2[l], weights.ln2w[l], weights.ln2b[l]});
      ops(LinearGeluForward{fcgelu[l], fch[l], ln2[l], weights.fcw[l], weights.fcb[l]});
      ops(LinearForward{res1[l + 1], fcgelu[l], weights.fcprojw[l], weights.fcprojb[l], res2[l]});
    }
    ops(LayerNormForward{lnf, lnfmean, lnfrstd, res1[L], weights.lnfw, weights.lnfb});
    ops(Matmul{logits, lnf, weights.head, MatOp::NT});
  }

  const Write write = hyper.accumulate == 1 ? Write::set : Write::add;

  void backward() {
    const LossScale dloss{1.0F / static_cast<float>(B * T * hyper.accumulate * ranks)};
    ops(CrossEntropyForwardBackward{losses, logits, targets, V, dloss});
    ops(AddMean{loss, losses});
    ops(Matmul{dln, logits, weights.head, MatOp::NN});
    ops(Matmul{grads.head, logits, lnf, MatOp::TN, write});
    ops(Zero{dres});
    ops(LayerNormBackward{dres, NormParams{grads.lnfw, grads.lnfb}, grads.fcprojb[L - 1], dln,
                          NormInput{res1[L], lnfmean, lnfrstd}, weights.lnfw});
    for (int64_t l = L - 1; l >= 0; --l) {
      ops(LinearGeluBackward{dfch, grads.fcb[l], dres, weights.fcprojw[l], fch[l], write});
      ops(Matmul{grads.fcprojw[l], dres, fcgelu[l], MatOp::TN, write});
      ops(Matmul{dln, dfch, weights.fcw[l], MatOp::NN});
      ops(Matmul{grads.fcw[l], dfch, ln2[l], MatOp::TN, write});
      ops(LayerNormBackward{dres, NormParams{grads.ln2w[l], grads.ln2b[l]}, grads.attprojb[l], dln,
                            NormInput{res2[l], ln2mean[l], ln2rstd[l]}, weights.ln2w[l]});
      ops(Matmul{proj, dres, weights.attprojw[l], MatOp::NN});
      ops(Matmul{grads.attprojw[l], dres, atty[l], MatOp::TN, write});
      ops(AttentionBackward{dqkv, proj, atty[l], lse[l], qkvs[l]});
      ops(Matmul{dln, dqkv, weights.qkvw[l], MatOp::NN});
      ops(LinearWeightBackward{grads.qkvw[l], grads.qkvb[l], dqkv, ln1[l], write});
      ops(LayerNormBackward{dres, NormParams{grads.ln1w[l], grads.ln1b[l]},
                            l > 0 ? grads.fcprojb[l - 1] : Tensor{}, dln,
                            NormInput{res1[l], ln1mean[l], ln1rstd[l]}, weights.ln1w[l]});
    }
    ops(Zero{dln});
    ops(LayerNormBackward{dln, NormParams{grads.lnew, grads.lneb}, Tensor{}, dres,
                          NormInput{embedded, lnemean, lnerstd}, weights.lnew});
    ops(EmbeddingBackward{grads.wte, tokens, dln});
  }

  void update(int64_t step, float lr) {
    ops.collective(Collective::reduce_scatter, pieces(grads).all());
    ops.collective(Collective::all_reduce, {&loss, 1});
    ops.wait_for_collectives();
    ops(Affine{loss, loss, 1.0F / static_cast<float>(ranks), 0.0F});

    ops(ClipGradNorm{clip, norm, grad_parts.all(), hyper.grad_clip});
    ops(Copy{part_of(norms, ops.rank(), ranks), norm});
    ops.collective(Collective::all_gather, {&norms, 1});
    ops.wait_for_collectives();
    ops(ClipGradNorm{clip, norm, {&norms, 1}, hyper.grad_clip});

    ops(WriteValues{schedule, {lr, static_cast<float>(step + 1)}});
    ops(AdamWStep{adamw, schedule, clip, hyper.adamw()});
    ops.collective(Collective::all_gather, pieces(weights).all());
    ops.wait_for_collectives();
  }
};

STEPLADDER_RUNG(UntiedTrainer);

}  // namespace
}  // namespace stepladder
