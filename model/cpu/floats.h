// Elements of any floating type, read and written as f32.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "model/half.h"
#include "model/tensor.h"

namespace stepladder {

/// A tensor's elements of type T: x[i] is a float, set() rounds once.
template <class T>
struct Floats {
  T* data;

  float operator[](int64_t i) const { return to_float(data[i]); }
  void set(int64_t i, float x) const { data[i] = from_float<T>(x); }
  void add(int64_t i, float x) const { set(i, (*this)[i] + x); }
  Floats operator+(int64_t n) const { return {data + n}; }
};

/// The elements of `t`, null where there are none. Throws as Tensor::ptr() does.
template <class T>
Floats<T> floats(const Tensor& t) {
  return {t.ptr<T>()};
}
template <class T, size_t kCount>
std::array<Floats<T>, kCount> floats(const Tensor (&tensors)[kCount]) {
  std::array<Floats<T>, kCount> all;
  std::ranges::transform(tensors, all.begin(), [](const Tensor& t) { return floats<T>(t); });
  return all;
}

}  // namespace stepladder
