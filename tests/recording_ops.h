// CPU ops that note what is called. Their memory starts as NaN, so that reading what was not written shows.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/traced_ops.h"

namespace stepladder {

/// One call that queues work: "add f32(2,3) f32(2,3) f32(2,3)". Matmuls of f32 also tell their precision:
/// "matmul/tf32 ...".
using Calls = std::vector<std::string>;

/// Goes on to the CPU backend.
class RecordingOps final : public CountedOps {
 public:
  explicit RecordingOps(std::shared_ptr<Ops> inner) : CountedOps(std::move(inner)) {}

  Calls calls;  // so far

  std::shared_ptr<void> allocate(size_t bytes) override {
    auto block = CountedOps::allocate(bytes);
    std::memset(block.get(), 0xFF, bytes);
    return block;
  }
  void search(const std::function<void()>& work) override {
    calls.emplace_back("search");
    CountedOps::search(work);
  }
  std::function<void()> record(const std::function<void()>& work) override {
    calls.emplace_back("record");
    return CountedOps::record(work);
  }
  void collective(Collective what, std::span<const Tensor> bucket) override {
    calls.emplace_back(name_of(what));
    ops_->collective(what, bucket);
  }

 private:
  void enter(OpCall what, std::span<const Tensor> operands) override {
    std::string call = what.op.substr(0, what.op.find(' '));  // products go on with their extents
    if (call == "download") return;
    if (what.kind == OpKind::gemm && (what.math == MathMode::tf32 || what.math == MathMode::fp32))
      call += what.math == MathMode::tf32 ? "/tf32" : "/fp32";
    for (const Tensor& x : operands)
      if (x.shape.rank() > 0) call += cat(' ', name_of(x.dtype), x.shape);
    calls.push_back(std::move(call));
  }
};

}  // namespace stepladder
