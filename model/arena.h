// Arena: the one owner of a trainer's device memory, accounted by name.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "model/tensor.h"

namespace stepladder {

class Ops;

/// A default-constructed Arena plans: it counts bytes and hands out views without memory, so the same
/// constructor that builds a trainer also tells how much memory it needs. An Arena on a backend owns one
/// block of the planned size.
class Arena {
 public:
  Arena() = default;
  /// One block of `bytes` from the backend. Throws OutOfMemoryError.
  Arena(Ops& ops, int64_t bytes);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// The next `shape` elements, 256-byte aligned and uninitialised. `name` is "group/tensor": params/wte.
  /// Throws std::logic_error when a non-planning arena is exhausted.
  Tensor alloc(const std::string& name, DType dtype, Shape shape);

  /// Tensors that `allocations` allocates and returns share their memory with what is allocated next: never
  /// use both at the same time. by_name() leaves them out.
  template <class F>
  auto overlay(const F& allocations) {
    const int64_t begin = used_;
    overlaid_ = true;
    auto overlaid = allocations();
    overlaid_ = false;
    most_ = std::max(most_, used_);
    used_ = begin;
    return overlaid;
  }

  bool planning() const { return block_ == nullptr; }
  /// Address of the block; null while planning.
  void* data() const { return block_.get(); }
  /// Bytes handed out so far, alignment included.
  int64_t bytes() const { return std::max(most_, used_); }
  /// Bytes handed out so far, by full name; a name allocated twice is summed.
  const std::map<std::string, int64_t>& by_name() const { return by_name_; }

 private:
  std::shared_ptr<void> block_;
  int64_t capacity_ = 0;
  int64_t used_ = 0, most_ = 0;  // most_: the largest used_ of any overlay
  bool overlaid_ = false;
  std::list<std::string> names_;  // stable storage for Tensor::name
  std::map<std::string, int64_t> by_name_;
};

}  // namespace stepladder
