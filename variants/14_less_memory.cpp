#include <algorithm>

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

    // Memory that every layer uses again: also what LayerNorm and GELU give, which the backward pass computes
    // again.
    ln = act("scratch/ln", {B, T, C});
    proj = act("scratch/proj", {B, T, C});
    dres = act("scratch/dres", {B, T, C});
    dln = act("scratch/dln", {B, T, C});
    losses = f32("activations/losses", {B, T});

    // All logits, to evaluate: where the activations are while it trains, which needs those of a few
    // sequences.
    arena.overlay([&] { logits = act("activations/logits", {B, T, Vp}); });
    some_logits = act("activations/some_logits", {std::min(B, kSequences), T, Vp});

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
    fcgelu = act("scratch/fcgelu", {B, T, 4 * C});
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
      forward_to_classifier();
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
    forward_to_classifier();
    ops.phase("classifier");
    ops(Matmul{logits, ln, weights.wte, MatOp::NT});  // (B,T,Vp)
    ops(CrossEntropyForward{losses, logits, targets, config.V});
    ops(AddMean{loss, losses});
  }

  void forward_to_classifier() {
    ops.phase("encoder");
    ops(EncoderForward{res1[0], tokens, weights.wte, weights.wpe});  // (B,T,C)
    layernorm1_forward(0);

    for (int64_t l = 0; l < L; ++l) {
      ops.phase("forward block", l);

      // qkv = ln1 W^T + b  (B,T,3C)
      ops(LinearForward{qkv[l], ln, weights.qkvw[l], weights.qkvb[l]});

      // atty = softmax(q k^T / sqrt(HS)) v over the past  (B,T,C)
      ops(AttentionForward{atty[l], lse[l], qkv[l]});

      // res2 = res1 + atty W^T + b, ln = layernorm(res2)
      ops(LinearForward{res2[l], atty[l], weights.attprojw[l], weights.attprojb[l], res1[l]});
      layernorm2_forward(l);

      // fcgelu = gelu(ln W^T + b)  (B,T,4C)
      ops(LinearGeluForward{fcgelu, fch[l], ln, weights.fcw[l], weights.fcb[l]});

      // res1 of the next block = res2 + fcgelu W^T + b, and its layernorm
      ops(LinearForward{res1[l + 1], fcgelu, weights.fcprojw[l], weights.fcprojb[l], res2[l]});
      layernorm1_forward(l + 1);
    }
  }

  void backward() {
    // A few sequences at a time: logits, then loss and dlogits, which take their memory, in one pass.
    for (int64_t begin = 0; begin < B; begin += kSequences) {
      const int64_t end = std::min(B, begin + kSequences);
      const Tensor some = ln.slices(begin, end), some_dlogits = some_logits.slices(0, end - begin);
      ops.phase("classifier");
      ops(Matmul{some_dlogits, some, weights.wte, MatOp::NT});  // (.,T,Vp)
      ops.phase("classifier backward");
      ops(CrossEntropyForwardBackward{losses.slices(begin, end), some_dlogits, targets.slices(begin, end),
                                      config.V, 1.0F / static_cast<float>(B * T * hyper.accumulate),
                                      loss_scaler});
      ops(Matmul{dln.slices(begin, end), some_dlogits, weights.wte, MatOp::NN});
      ops(Matmul{grads.wte, some_dlogits, some, MatOp::TN, begin == 0 ? write : Write::add});
    }
    ops(AddMean{loss, losses});
    ops(Zero{dres});
    layernorm1_backward(L);

    for (int64_t l = L - 1; l >= 0; --l) {
      ops.phase("backward block", l);

      // MLP projection and GELU  (B,T,4C) <- (B,T,C); the projection's bias gradient came with dres
      ops(LinearGeluBackward{dfch, grads.fcb[l], dres, weights.fcprojw[l], fch[l], write});
      ops(GeluForward{fcgelu, fch[l]});
      ops(Matmul{grads.fcprojw[l], dres, fcgelu, MatOp::TN, write});

      // The layer before it  (B,T,C) <- (B,T,4C)
      ops(Matmul{dln, dfch, weights.fcw[l], MatOp::NN});
      layernorm2_forward(l);
      ops(Matmul{grads.fcw[l], dfch, ln, MatOp::TN, write});

      ops(LayerNormBackward{dres, NormParams{grads.ln2w[l], grads.ln2b[l]}, grads.attprojb[l], dln,
                            NormInput{res2[l], ln2mean[l], ln2rstd[l]}, weights.ln2w[l]});

      // Attention projection
      ops(Matmul{proj, dres, weights.attprojw[l], MatOp::NN});
      ops(Matmul{grads.attprojw[l], dres, atty[l], MatOp::TN, write});

      // Attention  (B,T,3C) <- (B,T,C)
      ops(AttentionBackward{dqkv, proj, atty[l], lse[l], qkv[l]});

      // qkv = ln1 W^T + b  (B,T,C) <- (B,T,3C)
      ops(Matmul{dln, dqkv, weights.qkvw[l], MatOp::NN});
      layernorm1_forward(l);
      ops(LinearWeightBackward{grads.qkvw[l], grads.qkvb[l], dqkv, ln, write});

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
  }

 private:
  // The LayerNorm of res1[l]: the first of block l, the last one of all for l = L.
  struct Norm {
    Tensor mean, rstd, w, b, dw, db;
  };
  Norm norm1(int64_t l) const {
    return l < L
               ? Norm{ln1mean[l], ln1rstd[l], weights.ln1w[l], weights.ln1b[l], grads.ln1w[l], grads.ln1b[l]}
               : Norm{ln1mean[L], ln1rstd[L], weights.lnfw, weights.lnfb, grads.lnfw, grads.lnfb};
  }
  void layernorm1_forward(int64_t l) {
    const Norm n = norm1(l);
    ops(LayerNormForward{ln, n.mean, n.rstd, res1[l], n.w, n.b});
  }
  void layernorm2_forward(int64_t l) {
    ops(LayerNormForward{ln, ln2mean[l], ln2rstd[l], res2[l], weights.ln2w[l], weights.ln2b[l]});
  }
  // dres is then also the gradient of the output of the MLP before, whose bias gradient comes with it.
  void layernorm1_backward(int64_t l) {
    const Norm n = norm1(l);
    const Tensor dbias = l > 0 ? grads.fcprojb[l - 1] : Tensor{};
    ops(LayerNormBackward{dres, NormParams{n.dw, n.db}, dbias, dln, NormInput{res1[l], n.mean, n.rstd}, n.w});
  }

  static constexpr int64_t kSequences = 8;  // whose logits there are at a time

  const int64_t B = config.B, T = config.T, L = config.L;
  Tensor tokens, targets;
  Feed feed;

  Tensor res1, ln1mean, ln1rstd, qkv, lse, atty, res2, ln2mean, ln2rstd, fch, some_logits, losses;
  Tensor ln, fcgelu, proj, dres, dln, dqkv, dfch;
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
