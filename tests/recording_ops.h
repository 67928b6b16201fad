// Records the ops that a trainer calls.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "model/ops.h"

namespace stepladder {

/// Recorded calls, such as "add f32(2,3) f32(2,3) f32(2,3)". f32 matmuls also tell their precision:
/// "matmul/tf32 ...".
using Calls = std::vector<std::string>;

class Recording final : public OpObserver {
 public:
  Calls calls;  // calls so far

 private:
  void enter(const OpCall& what, std::span<const Tensor> operands) override {
    if (what.kind == OpKind::communication) return calls.push_back(what.op);
    std::string call = what.op.substr(0, what.op.find(' '));  // names of products continue with their extents
    if (call == Download::kName) return;
    if (what.kind == OpKind::gemm && (what.math == MathMode::tf32 || what.math == MathMode::fp32))
      call += what.math == MathMode::tf32 ? "/tf32" : "/fp32";
    for (const Tensor& x : operands)
      if (x.shape.rank() > 0) call += cat(' ', name_of(x.dtype), x.shape);
    calls.push_back(std::move(call));
  }
  void begin_search() override { calls.emplace_back("search"); }
  void begin_recording() override { calls.emplace_back("record"); }
};

}  // namespace stepladder
