// Tensor: a non-owning, contiguous, row-major view of typed memory on some device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>
#include <string>

#include "model/error.h"

namespace stepladder {

enum class DType : uint8_t { f32, i32 };

/// Bytes per element.
constexpr size_t size_of(DType) {
  return 4;
}
constexpr const char* name_of(DType t) {
  return t == DType::f32 ? "f32" : "i32";
}

/// Up to five extents, outermost first.
class Shape {
 public:
  static constexpr int kMaxRank = 5;
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    check(dims.size() <= kMaxRank, "shape of rank ", dims.size(), ", at most ", kMaxRank);
    for (int64_t d : dims) {
      check(d >= 0, "negative extent ", d);
      dims_[rank_++] = d;
    }
  }
  int rank() const { return rank_; }
  /// Extent of dimension i; negative i counts from the end.
  int64_t operator[](int i) const {
    const int at = i < 0 ? rank_ + i : i;
    check(at >= 0 && at < rank_, "dimension ", i, " of a shape of rank ", rank_);
    return dims_[at];
  }
  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[i];
    return n;
  }
  /// This shape without its leading dimension.
  Shape tail() const {
    Shape s;
    for (int i = 1; i < rank_; ++i) s.dims_[s.rank_++] = dims_[i];
    return s;
  }
  bool operator==(const Shape& o) const {
    if (rank_ != o.rank_) return false;
    for (int i = 0; i < rank_; ++i)
      if (dims_[i] != o.dims_[i]) return false;
    return true;
  }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

inline std::ostream& operator<<(std::ostream& out, const Shape& s) {
  out << '(';
  for (int i = 0; i < s.rank(); ++i) out << (i ? "," : "") << s[i];
  return out << ')';
}

/// A view: copying it copies no data. `name` is for messages and lives as long as the arena.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
  const char* name = "";

  int64_t numel() const { return shape.numel(); }
  size_t bytes() const { return static_cast<size_t>(numel()) * size_of(dtype); }
  /// Extent of the last dimension, and of all others together: a matrix (rows, cols).
  int64_t cols() const { return shape[-1]; }
  int64_t rows() const { return cols() == 0 ? 0 : numel() / cols(); }

  /// Typed pointer; throws when T does not match the dtype.
  template <class T>
  T* ptr() const;

  /// The i-th slice of the leading dimension, e.g. layer l of (L,B,T,C).
  Tensor operator[](int64_t i) const {
    check(shape.rank() > 0 && i >= 0 && i < shape[0], "slice ", i, " of ", name, shape);
    const Shape inner = shape.tail();
    const size_t offset = static_cast<size_t>(i * inner.numel()) * size_of(dtype);
    return {data ? static_cast<std::byte*>(data) + offset : nullptr, dtype, inner, name};
  }
  /// The same elements under another shape.
  Tensor view(Shape to) const {
    check(to.numel() == numel(), "view of ", name, shape, " as ", to);
    return {data, dtype, to, name};
  }
  /// The leading elements under another, smaller shape.
  Tensor first(Shape to) const {
    check(to.numel() <= numel(), "first ", to, " of ", name, shape);
    return {data, dtype, to, name};
  }
};

template <>
inline float* Tensor::ptr<float>() const {
  check(dtype == DType::f32, name, " is ", name_of(dtype), ", wanted f32");
  return static_cast<float*>(data);
}
template <>
inline int32_t* Tensor::ptr<int32_t>() const {
  check(dtype == DType::i32, name, " is ", name_of(dtype), ", wanted i32");
  return static_cast<int32_t*>(data);
}

inline std::ostream& operator<<(std::ostream& out, const Tensor& t) {
  return out << t.name << ' ' << name_of(t.dtype) << t.shape;
}

}  // namespace stepladder
