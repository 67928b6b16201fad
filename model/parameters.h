// The parameters that a trainer declares: names, shapes, initialisation, and how they are updated.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model/arena.h"
#include "model/config.h"
#include "model/flops.h"
#include "model/ops.h"
#include "model/tensor.h"

namespace stepladder {

/// How a parameter's values begin: all `value`, or N(0, deviation^2) where that is over 0.
struct Init {
  float value = 0.0F, deviation = 0.0F;

  static constexpr Init ones() { return {1.0F, 0.0F}; }
  static constexpr Init normal(float deviation) { return {0.0F, deviation}; }
};

/// What a parameter is besides its shape.
struct Parameter {
  std::string name;     // Hugging Face's; with * for the layer's number where all layers are stacked
  Init init = {};       // of biases, 0
  bool decay = false;   // weight decay applies: matrices yes, biases and LayerNorm no
  bool gemm = false;    // a GEMM multiplies by it, and writes its gradient
  bool conv1d = false;  // a linear weight, ours (out,in), stored (in,out) in Hugging Face checkpoints
  bool whole = false;   // a rank that owns a part of it owns whole layers, as optimizers of matrices need
  int64_t rows = 0;     // its first rows or layers, where the others are padding: 0, not in files; 0: all
  Tensor tensor = {};   // (L,...) where all layers are stacked

  bool stacked() const { return name.find('*') != std::string::npos; }
  Tensor unpadded() const { return rows > 0 ? tensor.slices(0, rows) : tensor; }
};

/// One parameter as an optimizer or a checkpoint sees it: one layer's tensor, without padding.
struct NamedTensor {
  std::string name;  // "h.0.attn.c_attn.weight"
  Tensor tensor;
  bool decay = false;  // as a Parameter has them
  bool conv1d = false;
  Init init = {};
};

/// Parameters, or anything shaped like them: gradients, an optimizer's state. A trainer's own kind derives
/// from this, with a member for each tensor that it declares.
class ParameterGroup {
 public:
  ParameterGroup() = default;
  /// Allocates tensors like another group's, under names like theirs: "group/wte".
  ParameterGroup(Arena& arena, const std::string& group, DType dtype, const ParameterGroup& like);

  /// As declared, layers stacked, with padding.
  const std::vector<Parameter>& list() const { return list_; }
  std::vector<Tensor> all() const;
  /// What no GEMM writes the gradient of: positions, LayerNorms, biases, and layers that are padding.
  std::vector<Tensor> outside_gemms() const;
  /// Those that are not stacked.
  std::vector<Tensor> outside_layers() const;
  /// Those of layers [begin, end), of each stack that has any of them one.
  std::vector<Tensor> layers(int64_t begin, int64_t end) const;
  /// What ranks share, as views: all that is outside of the layers, then each bucket's layers of each stack.
  /// The bucket that begins with layer l ends before layer bucket_end(l).
  ParameterGroup pieces(const std::function<int64_t(int64_t)>& bucket_end) const;
  /// A rank's part of each, as views: flat, as part_of() has it, but layers where they are to be `whole`.
  /// Throws std::invalid_argument where there are no `world` equal parts.
  ParameterGroup parts(int rank, int world) const;
  /// Those that `takes` says, as views.
  ParameterGroup where(const std::function<bool(const Parameter&)>& takes) const;
  /// Declares a matrix like wte as the output head, "lm_head.weight"; no GEMM multiplies by wte then. Returns
  /// its tensor.
  Tensor untie_head();
  /// Every tensor of every layer, without padding. Stacks that are declared one after another come by layer,
  /// as in Hugging Face's order.
  std::vector<NamedTensor> each() const;
  /// How many numbers that is, without padding.
  int64_t num_params() const;
  /// By the name that it is declared with. Throws std::invalid_argument where there is none.
  const Tensor& find(std::string_view name) const;
  /// The type of its tensors, one for all.
  DType dtype() const { return list_.at(0).tensor.dtype; }

 protected:
  ParameterGroup(Arena& arena, std::string group, DType dtype)
      : arena_(&arena), group_(std::move(group)), dtype_(dtype) {}
  /// Allocates "group/name" and declares it.
  Tensor declare(const char* name, Shape shape, Parameter parameter);

 private:
  Arena* arena_ = nullptr;
  std::string group_;
  DType dtype_ = DType::f32;
  std::vector<Parameter> list_;
};
inline const ParameterGroup kNoParameters;

/// Those of a model with these parameters.
FlopsPerToken flops_per_token(const ParameterGroup& params, const Config& config);

/// Fills `params` as they are declared. A function of (names, shapes, seed) alone: the same bits on every
/// backend and thread count, and of a parameter whatever others there are.
void init_params(Ops& ops, const ParameterGroup& params, uint64_t seed);

/// What AdamWStep takes: the parameters that there are moments of, `param_copy` where the group is not empty.
std::vector<AdamWTensor> adamw_tensors(const ParameterGroup& params, const ParameterGroup& grads,
                                       const ParameterGroup& m, const ParameterGroup& v,
                                       const ParameterGroup& param_copy = kNoParameters);

}  // namespace stepladder
