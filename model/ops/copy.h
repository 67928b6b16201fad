// Copies, also to and from the host, and values written from the host.
#pragma once

#include "model/ops/op.h"

namespace stepladder {

/// dst = pageable host memory of dst.bytes(); returns once the host memory may be reused.
struct Upload {
  static constexpr const char* kName = "upload";
  Tensor dst;
  const void* host;
  void check() const {}
  Work work() const { return {OpKind::copy, {}, {dst}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// Host memory = src; waits for queued work first.
struct Download {
  static constexpr const char* kName = "download";
  void* host;
  Tensor src;
  void check() const {}
  Work work() const { return {OpKind::copy, {src}, {}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// staged = page-locked memory of Device::allocate_host(), on a queue of its own beside the ops, once the
/// last Receive is done. Waits until the previous Stage no longer reads its host memory.
struct Stage {
  static constexpr const char* kName = "stage";
  Tensor staged;
  const void* pinned;
  void check() const {}
  Work work() const { return {OpKind::copy, {}, {staged}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// dst = staged, in order with the ops, once the last Stage is done.
struct Receive {
  static constexpr const char* kName = "receive";
  Tensor dst, staged;
  void check() const { expect(*this, dst.dtype == staged.dtype && same_shape(dst, staged)); }
  Work work() const { return {OpKind::copy, {staged}, {dst}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// x = 0, any type.
struct Zero {
  static constexpr const char* kName = "zero";
  Tensor x;
  void check() const {}
  Work work() const { return {OpKind::memset, {}, {x}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// dst = src, each any float type: converts.
struct Copy {
  static constexpr const char* kName = "copy";
  Tensor dst, src;
  void check() const { expect(*this, one_float_type(dst) && one_float_type(src) && same_shape(dst, src)); }
  Work work() const { return {OpKind::copy, {src}, {dst}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// dst (n f32, n <= 8) = values, which travel with the launch: the host does not wait.
struct WriteValues {
  static constexpr const char* kName = "write";
  static constexpr size_t kMost = 8;
  Tensor dst;
  std::initializer_list<float> values;
  void check() const {
    expect(*this,
           all_f32(dst) && values.size() <= kMost && dst.numel() == static_cast<int64_t>(values.size()));
  }
  Work work() const { return {OpKind::copy, {}, {dst}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

}  // namespace stepladder
