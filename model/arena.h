// Arena: the one owner of a trainer's device memory, accounted by name.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "model/tensor.h"

namespace stepladder {

class Ops;

/// A default-constructed Arena plans: it counts bytes and hands out views without memory, so the same
/// constructor that builds a trainer also tells what it would take. An Arena on a backend owns one block of
/// the planned size.
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

  bool planning() const { return block_ == nullptr; }
  /// Bytes handed out so far, alignment included.
  int64_t bytes() const { return used_; }
  /// The same by full name; a name allocated twice is summed.
  const std::map<std::string, int64_t>& by_name() const { return by_name_; }

 private:
  std::shared_ptr<void> block_;
  int64_t capacity_ = 0;
  int64_t used_ = 0;
  std::list<std::string> names_;  // stable storage for Tensor::name
  std::map<std::string, int64_t> by_name_;
};

}  // namespace stepladder
