// GPT-2's parameters, and the interface that every rung implements.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "model/arena.h"
#include "model/config.h"
#include "model/data.h"
#include "model/ops.h"
#include "model/parameters.h"
#include "model/tensor.h"

namespace stepladder {

/// The parameters of GPT-2, or anything shaped like them (gradients, AdamW moments). Layers are stacked:
/// qkvw[l].
struct Params : ParameterGroup {
  Tensor wte, wpe;                        // (V,C), (max_T,C); wte is also the output head
  Tensor ln1w, ln1b;                      // (L,C)
  Tensor qkvw, qkvb, attprojw, attprojb;  // (L,3C,C), (L,3C), (L,C,C), (L,C)
  Tensor ln2w, ln2b;                      // (L,C)
  Tensor fcw, fcb, fcprojw, fcprojb;      // (L,4C,C), (L,4C), (L,C,4C), (L,C)
  Tensor lnfw, lnfb;                      // (C)

  Params() = default;
  /// Declares all parameters as "group/wte", ... in Hugging Face's order: wte gets `rows` rows, of which the
  /// first V are GPT-2's; 0: V. Parameters begin as GPT-2's: normal with mean 0 and deviation 0.02, residual
  /// projections 0.02 / sqrt(2L); biases 0, LayerNorm 1.
  Params(Arena& arena, const std::string& group, const Config& config, DType dtype = DType::f32,
         int64_t rows = 0)
      : Params(arena, group, config, dtype, rows, /*layers=*/0, /*positions=*/true) {}

 protected:
  Params(Arena& arena, const std::string& group, const Config& config, DType dtype, int64_t rows,
         int64_t layers, bool positions);
};

/// GPT-2's parameters without position embeddings: wpe is empty. Stacks of matrices get `layers` layers, of
/// which the first L are GPT-2's, and ranks share out whole layers of them; 0: L, and ranks cut anywhere.
struct ParamsWithoutPositions : Params {
  ParamsWithoutPositions(Arena& arena, const std::string& group, const Config& config,
                         DType dtype = DType::f32, int64_t rows = 0, int64_t layers = 0)
      : Params(arena, group, config, dtype, rows, layers, /*positions=*/false) {}
};

/// Hyperparameters of AdamW, clipping and accumulation. Defaults are build-nanogpt's.
struct Hyper {
  float beta1 = 0.9F, beta2 = 0.95F, eps = 1e-8F;
  float weight_decay = 0.1F;
  float grad_clip = 1.0F;       // global norm
  int accumulate = 1;           // micro-batches in one step
  float loss_scale = 65536.0F;  // initial loss scale with fp16; torch.amp.GradScaler's

  AdamW adamw() const { return {beta1, beta2, eps, weight_decay}; }
};

/// One kind of tensor that an optimizer keeps for each parameter, and the kind's name in checkpoints.
struct OptimizerState {
  const char* name;
  const ParameterGroup& group;
};
/// AdamW's states, the moments m and v.
inline std::vector<OptimizerState> moments(const ParameterGroup& m, const ParameterGroup& v) {
  return {{"m", m}, {"v", v}};
}

/// GPT-2's name among architectures.
inline constexpr const char* kGpt2 = "gpt2";

/// A trainer's own tensors, as checkpoints, evaluation and tests reach them. Groups are the trainer's: they
/// live as long as it does.
struct TrainerTensors {
  /// What a run is resumed from, in f32: the parameters and the optimizer's states, such as AdamW's moments m
  /// and v. With fp16 loss_scaler belongs to it too, with FP8 fp8_history.
  const ParameterGroup& params;
  std::vector<OptimizerState> states = {};
  /// The weights that forward and backward read, `params` themselves or a 16-bit copy, and the gradients.
  const ParameterGroup &weights = kNoParameters, &grads = kNoParameters;
  Tensor logits = {};  // (B,T,Vp), Vp >= V: columns beyond V are padding
  Tensor loss = {};    // (1) sum over micro-batches of the mean loss
  Tensor norm = {};    // (1) global gradient norm, before clipping
  /// More resumable state: ClipGradNorm's loss scaler (4) with fp16; UpdateScales' history with FP8, 0 where
  /// nothing is known yet; else empty.
  Tensor loss_scaler = {}, fp8_history = {};
};

/// A rung's trainer. Its members and constructor only allocate from the arena, so that a planning arena tells
/// a rung's memory. Calls return before the ops that they queue are done, except train_loss(), grad_norm(),
/// skipped_steps(), evaluate() and next_logits(); the first step(), which times GEMM algorithms and sets
/// FP8's scales; and every step() of rungs before 04, which waits for each batch to be uploaded.
class Trainer {
 public:
  Trainer(Ops& ops, Arena& arena, const Config& config, const Hyper& hyper);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  virtual ~Trainer() = default;

  /// Zeroes parameters, the optimizer's states and FP8's history, and puts the loss scaler at its start:
  /// called before the parameters are initialised or loaded.
  void reset();
  /// Computes copies of the parameters and constants, such as the causal mask: called once the parameters are
  /// in place, before the first step.
  virtual void prepare() {}
  virtual TrainerTensors tensors() const = 0;
  /// Initialises the parameters as declared, by init_params(); a trainer may initialise some of them
  /// otherwise.
  virtual void init(uint64_t seed);
  /// The architecture that files name beside the parameters: "gpt2" or, in alphabetical order, the trainer's
  /// changes to GPT-2: "stepladder_qk_norm_rotary".
  std::string architecture() const;
  const std::set<std::string>& changes() const { return changes_; }
  /// Cap c of the logits: a stored logit x stands for c tanh(x / c), or for itself where c is 0.
  virtual float soft_cap() const { return 0.0F; }
  /// Makes `params`, the optimizer's states and `weights` whole where they are spread over ranks: all ranks
  /// call it after a step, before reading these tensors or calling forward().
  virtual void gather_state() {}
  /// One optimizer step, number `step` from 0: `hyper.accumulate` batches from `data`, forward, backward,
  /// clipping, and the optimizer's update.
  virtual void step(Loader& data, int64_t step, float lr) = 0;
  /// logits = GPT-2(tokens); loss += mean cross-entropy against targets.
  virtual void forward(const Batch& batch) = 0;

  /// Mean loss of the last step. Waits for the device.
  float train_loss();
  /// Global gradient norm of the last step, before clipping. Waits for the device.
  float grad_norm();
  /// Steps so far that changed nothing because a gradient overflowed fp16. Waits for the device.
  int64_t skipped_steps();
  /// Mean loss over the next `batches` of `data`. Leaves parameters and optimizer alone.
  float evaluate(Loader& data, int batches);
  /// Logits (V) of the token after `tokens`, of which only the last T are used, by a pass over all positions:
  /// a Decoder passes over the new ones. Throws InputError when empty.
  std::vector<float> next_logits(std::span<const int32_t> tokens);

  const Config config;
  /// What OpsOptions::libraries is to be; a trainer that multiplies by Sgemm alone declares its own.
  static constexpr bool kLibraries = true;

 protected:
  using enum DType;
  /// A member that a trainer declares if it changes GPT-2's parameters or what is computed from them:
  /// `change` becomes part of the architecture() that files name, and files of another architecture are
  /// refused. model/decoder.cpp has the changes that samples are drawn with a cache for.
  struct NotGpt2 {
    NotGpt2(Trainer& trainer, const char* change);
  };

  Ops& ops;
  Arena& arena;  // only the constructor allocates from it; it outlives the trainer
  const Hyper hyper;

 private:
  std::set<std::string> changes_;
};

/// Builds a rung's trainer: `ops` to call, `arena` to allocate from.
using TrainerFactory =
    std::function<std::unique_ptr<Trainer>(Ops& ops, Arena& arena, const Config& config, const Hyper& hyper)>;

/// A rung linked into this executable.
struct RungBuild {
  std::string name;         // "00_fp32_baseline": the file's name
  std::string source_hash;  // hash of the file and the parts of model/ it depends on: cmake/source_hash.py
  TrainerFactory make;
  bool libraries = true;  // Trainer::kLibraries
};

/// All rungs linked in, by name: one in a rung's own executable, all of them in the tests.
std::vector<RungBuild>& linked_rungs();

/// Registers a trainer under its file's name. Last line of a variant; the build defines both macros.
struct RegisterRung {
  RegisterRung(const char* name, const char* source_hash, TrainerFactory make, bool libraries);
};
#define STEPLADDER_RUNG(TrainerClass)                                                               \
  static const ::stepladder::RegisterRung register_rung(                                            \
      STEPLADDER_RUNG_NAME, STEPLADDER_SOURCE_HASH,                                                 \
      [](Ops& ops, Arena& arena, const Config& config, const Hyper& hyper) {                        \
        return std::unique_ptr<Trainer>(std::make_unique<TrainerClass>(ops, arena, config, hyper)); \
      },                                                                                            \
      TrainerClass::kLibraries)

}  // namespace stepladder
