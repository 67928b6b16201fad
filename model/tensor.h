// Tensor: a non-owning, contiguous, row-major view of typed memory on some device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <string>

#include "model/error.h"

namespace stepladder {

enum class DType : uint8_t { f32, bf16, f16, i32, f8e4m3, f8e5m2 };

constexpr bool is_fp8(DType t) {
  return t == DType::f8e4m3 || t == DType::f8e5m2;
}
/// Whether `t` is f32, bf16 or f16, the types of "float" operands.
constexpr bool is_float(DType t) {
  return t != DType::i32 && !is_fp8(t);
}
/// Bytes per element.
constexpr size_t size_of(DType t) {
  return is_fp8(t) ? 1 : t == DType::bf16 || t == DType::f16 ? 2 : 4;
}
constexpr const char* name_of(DType t) {
  constexpr const char* kNames[] = {"f32", "bf16", "f16", "i32", "f8e4m3", "f8e5m2"};
  return kNames[static_cast<size_t>(t)];
}

/// A 16-bit float as it lies in memory; model/half.h converts.
struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};
/// An 8-bit float (Micikevicius et al. 2022): E4M3 reaches 448 and has no infinity, E5M2 reaches 57344.
struct Float8E4M3 {
  static constexpr int kMantissa = 3, kBias = 7;
  static constexpr float kMax = 448.0F;
  uint8_t bits;
};
struct Float8E5M2 {
  static constexpr int kMantissa = 2, kBias = 15;
  static constexpr float kMax = 57344.0F;
  uint8_t bits;
};

template <class T>
constexpr DType dtype_of = DType::f32;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<Float16> = DType::f16;
template <>
inline constexpr DType dtype_of<int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<Float8E4M3> = DType::f8e4m3;
template <>
inline constexpr DType dtype_of<Float8E5M2> = DType::f8e5m2;

/// f(T{}) for the C++ type T of a floating dtype: one switch outside of the loop. Throws
/// std::invalid_argument for i32 and FP8.
template <class F>
decltype(auto) with_float_type(DType t, F&& f) {
  check(is_float(t), name_of(t), ", wanted f32, bf16 or f16");
  if (t == DType::bf16) return f(BFloat16{});
  if (t == DType::f16) return f(Float16{});
  return f(float{});
}

/// f(T{}) for the C++ type T of an FP8 dtype. Throws std::invalid_argument for others.
template <class F>
decltype(auto) with_fp8_type(DType t, F&& f) {
  check(is_fp8(t), name_of(t), ", wanted f8e4m3 or f8e5m2");
  if (t == DType::f8e4m3) return f(Float8E4M3{});
  return f(Float8E5M2{});
}

/// f(T{}) for the C++ type T of a floating or FP8 dtype. Throws std::invalid_argument for i32.
template <class F>
decltype(auto) with_number_type(DType t, F&& f) {
  if (is_fp8(t)) return with_fp8_type(t, f);
  return with_float_type(t, f);
}

/// The largest number of an FP8 type.
inline float largest_of(DType t) {
  return with_fp8_type(t, []<class T>(T) { return T::kMax; });
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
  /// This shape with another leading extent.
  Shape with_first(int64_t extent) const {
    check(rank_ > 0 && extent >= 0, "first extent ", extent, " of a shape of rank ", rank_);
    Shape s = *this;
    s.dims_[0] = extent;
    return s;
  }
  bool operator==(const Shape&) const = default;

 private:
  std::array<int64_t, kMaxRank> dims_{};  // 0 beyond the rank
  int rank_ = 0;
};

inline std::ostream& operator<<(std::ostream& out, const Shape& s) {
  out << '(';
  for (int i = 0; i < s.rank(); ++i) out << (i ? "," : "") << s[i];
  return out << ')';
}

/// Distance, in floats, between the scales of an array: cuBLASLt wants each aligned to 16 bytes.
inline constexpr int64_t kScaleStride = 4;

/// A view: copying it copies no data. `name` is for messages and lives as long as the arena.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
  const char* name = "";
  // For FP8 only, in the same memory space as the data. The values of the tensor are element * *scale; an op
  // that writes them raises *amax to their largest magnitude before rounding.
  float *scale = nullptr, *amax = nullptr;

  int64_t numel() const { return shape.numel(); }
  size_t bytes() const { return static_cast<size_t>(numel()) * size_of(dtype); }
  /// Extent of the last dimension, and of all others together: a matrix (rows, cols).
  int64_t cols() const { return shape[-1]; }
  int64_t rows() const { return cols() == 0 ? 0 : numel() / cols(); }

  /// Typed pointer; throws when T does not match the dtype.
  template <class T>
  T* ptr() const {
    check(dtype == dtype_of<T>, name, " is ", name_of(dtype), ", wanted ", name_of(dtype_of<T>));
    return static_cast<T*>(data);
  }

  /// The i-th slice of the leading dimension, e.g. layer l of (L,B,T,C).
  Tensor operator[](int64_t i) const {
    check(shape.rank() > 0 && i >= 0 && i < shape[0], "slice ", i, " of ", name, shape);
    const Shape inner = shape.tail();
    return at(i * inner.numel(), inner);
  }
  /// Slices [begin, end) of the leading dimension.
  Tensor slices(int64_t begin, int64_t end) const {
    check(shape.rank() > 0 && 0 <= begin && begin <= end && end <= shape[0], "slices ", begin, " to ", end,
          " of ", name, shape);
    return at(begin * shape.tail().numel(), shape.with_first(end - begin));
  }
  /// The same elements under another shape.
  Tensor view(Shape to) const {
    check(to.numel() == numel(), "view of ", name, shape, " as ", to);
    return first(to);
  }
  /// The leading elements under another, smaller shape.
  Tensor first(Shape to) const {
    check(to.numel() <= numel(), "first ", to, " of ", name, shape);
    Tensor t = *this;
    t.shape = to;
    return t;
  }
  /// The same FP8 elements with a scale and a largest magnitude, the first f32 of `by` and of `magnitude`.
  Tensor scaled(const Tensor& by, const Tensor& magnitude) const {
    Tensor t = *this;
    t.scale = by.ptr<float>();
    t.amax = magnitude.ptr<float>();
    return t;
  }

 private:
  Tensor at(int64_t skip, Shape to) const {
    Tensor t = *this;
    if (data) t.data = static_cast<std::byte*>(data) + static_cast<size_t>(skip) * size_of(dtype);
    t.shape = to;
    return t;
  }
};

/// f(T{}, Sum{}) for the C++ types of a float tensor x and of `sum`, which adds up x's values: T, or f32.
template <class F>
void with_sum_type(const Tensor& x, const Tensor& sum, F&& f) {
  with_float_type(x.dtype, [&]<class T>(T type) {
    if (sum.dtype == x.dtype) return f(type, type);
    return f(type, float{});
  });
}

inline std::ostream& operator<<(std::ostream& out, const Tensor& t) {
  return out << t.name << ' ' << name_of(t.dtype) << t.shape;
}

}  // namespace stepladder
