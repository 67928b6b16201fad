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

/// How a parameter's values begin: all `value`, or N(0, deviation^2) where `deviation` is over 0.
struct Init {
  float value = 0.0F, deviation = 0.0F;

  static constexpr Init ones() { return {1.0F, 0.0F}; }
  static constexpr Init normal(float deviation) { return {0.0F, deviation}; }
};

/// A parameter: how it is named, initialised, updated and stored.
struct Parameter {
  std::string name;     // Hugging Face's name; with * for the layer's number where all layers are stacked
  Init init = {};       // default: 0, as for biases
  bool decay = false;   // weight decay applies: matrices yes, biases and LayerNorm no
  bool gemm = false;    // a GEMM multiplies by it, and writes its gradient
  bool conv1d = false;  // a linear weight, ours (out,in), stored (in,out) in Hugging Face checkpoints
  bool whole = false;   // a rank that owns a part of it owns whole layers, as optimizers of matrices need
  int64_t rows = 0;     // leading rows or layers that are not padding (zeros, not in files); 0: all
  Tensor tensor = {};   // (L,...) where all layers are stacked

  bool stacked() const { return name.find('*') != std::string::npos; }
  Tensor unpadded() const { return rows > 0 ? tensor.slices(0, rows) : tensor; }
};

/// One parameter as an optimizer or a checkpoint sees it: one layer's tensor, without padding.
struct NamedTensor {
  std::string name;  // "h.0.attn.c_attn.weight"
  Tensor tensor;
  bool decay = false;  // these three as in Parameter
  bool conv1d = false;
  Init init = {};
};

/// Parameters, or anything shaped like them: gradients, an optimizer's state. A trainer's own kind derives
/// from this, with a member for each tensor that it declares.
class ParameterGroup {
 public:
  ParameterGroup() = default;
  /// Allocates tensors of the shapes of another group's, under the same names but for the group: "group/wte".
  ParameterGroup(Arena& arena, const std::string& group, DType dtype, const ParameterGroup& like);

  /// The parameters as declared, layers stacked, with padding.
  const std::vector<Parameter>& list() const { return list_; }
  std::vector<Tensor> all() const;
  /// Tensors whose gradient no GEMM writes: positions, LayerNorms, biases, and layers that are padding.
  std::vector<Tensor> outside_gemms() const;
  /// Tensors that are not stacked by layer.
  std::vector<Tensor> outside_layers() const;
  /// Layers [begin, end) of each stack, one tensor for each stack that has any of these layers.
  std::vector<Tensor> layers(int64_t begin, int64_t end) const;
  /// The pieces that ranks share, as views: all parameters outside the layers, then each bucket's layers of
  /// each stack. The bucket that begins with layer l ends before layer bucket_end(l).
  ParameterGroup pieces(const std::function<int64_t(int64_t)>& bucket_end) const;
  /// A rank's part of each parameter, as views: flat, as part_of() cuts it, or layers for `whole` parameters.
  /// Throws std::invalid_argument where there are no `world` equal parts.
  ParameterGroup parts(int rank, int world) const;
  /// The parameters for which `takes` is true, as views.
  ParameterGroup where(const std::function<bool(const Parameter&)>& takes) const;
  /// Declares a matrix like wte as the output head, "lm_head.weight"; no GEMM multiplies by wte then. Returns
  /// its tensor.
  Tensor untie_head();
  /// Every tensor of every layer, without padding. Stacks that are declared one after another come by layer,
  /// as in Hugging Face's order.
  std::vector<NamedTensor> each() const;
  /// Number of elements of all parameters, without padding.
  int64_t num_params() const;
  /// The tensor that is declared as `name`. Throws std::invalid_argument for an unknown name.
  const Tensor& find(std::string_view name) const;
  /// The type that all tensors have.
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

/// FLOPs per token of a model with these parameters.
FlopsPerToken flops_per_token(const ParameterGroup& params, const Config& config);

/// Initialises `params` as declared. Values depend on (names, shapes, seed) alone: they have the same bits on
/// every backend and thread count, and a parameter's values don't depend on the other parameters.
void init_params(Ops& ops, const ParameterGroup& params, uint64_t seed);

/// The tensors that AdamWStep takes, for parameters that have moments; with `param_copy` unless that group is
/// empty.
std::vector<AdamWTensor> adamw_tensors(const ParameterGroup& params, const ParameterGroup& grads,
                                       const ParameterGroup& m, const ParameterGroup& v,
                                       const ParameterGroup& param_copy = kNoParameters);

}  // namespace stepladder
