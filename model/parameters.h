// The parameters that a trainer declares: names, shapes, initialisation, and how they are updated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/arena.h"
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
  int64_t rows = 0;     // its first rows, where the others are padding: 0, and left out of files; 0: all
  Tensor tensor = {};   // (L,...) where all layers are stacked

  bool stacked() const { return name.find('*') != std::string::npos; }
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

  /// As declared, layers stacked, with padding.
  const std::vector<Parameter>& list() const { return list_; }
  std::vector<Tensor> all() const;
  /// Those that no GEMM multiplies by: positions, LayerNorms and biases.
  std::vector<Tensor> outside_gemms() const;
  /// Those of layers [begin, end), of each stack of layers one.
  std::vector<Tensor> layers(int64_t begin, int64_t end) const;
  /// Every tensor of every layer, without padding. Stacks that are declared one after another come by layer,
  /// as in Hugging Face's order.
  std::vector<NamedTensor> each() const;
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

/// Fills `params` as they are declared. A function of (names, shapes, seed) alone: the same bits on every
/// backend and thread count, and of a parameter whatever others there are.
void init_params(Ops& ops, const ParameterGroup& params, uint64_t seed);

/// What AdamWStep takes: parameter i of each group together, `param_copy` where the group is not empty.
std::vector<AdamWTensor> adamw_tensors(const ParameterGroup& params, const ParameterGroup& grads,
                                       const ParameterGroup& m, const ParameterGroup& v,
                                       const ParameterGroup& param_copy = kNoParameters);

}  // namespace stepladder
