#include "model/arena.h"

#include <stdexcept>

#include "model/ops.h"

namespace stepladder {

namespace {
constexpr int64_t kAlignment = 256;  // cudaMalloc's alignment, enough for every vector load and for cuBLAS
}  // namespace

Arena::Arena(Ops& ops, int64_t bytes)
    : block_(ops.device().allocate(static_cast<size_t>(bytes))), capacity_(bytes) {}

Tensor Arena::alloc(const std::string& name, DType dtype, Shape shape) {
  Tensor tensor{nullptr, dtype, shape, names_.emplace_back(name).c_str()};
  const auto bytes = (static_cast<int64_t>(tensor.bytes()) + kAlignment - 1) / kAlignment * kAlignment;
  if (!planning()) {
    if (used_ + bytes > capacity_)
      throw std::logic_error(
          cat("arena of ", capacity_, " bytes has no room for ", tensor, ": planned another size"));
    tensor.data = static_cast<std::byte*>(block_.get()) + used_;
  }
  used_ += bytes;
  if (!overlaid_) by_name_[name] += bytes;
  return tensor;
}

}  // namespace stepladder
