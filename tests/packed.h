// Converts between values as floats and the bytes of a tensor of any type.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "model/half.h"
#include "model/tensor.h"

namespace stepladder {

/// The bytes of `values`, each rounded to `type`. i32 values are in the floats' bits; FP8 has no scale.
inline std::vector<std::byte> packed(DType type, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * size_of(type));
  if (size_of(type) == sizeof(float)) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
  } else {
    with_number_type(type, [&]<class T>(T) {
      for (size_t i = 0; i < values.size(); ++i) {
        const T value = from_float<T>(values[i]);
        std::memcpy(&bytes[i * sizeof(T)], &value, sizeof(T));
      }
    });
  }
  return bytes;
}

inline std::vector<float> unpacked(DType type, const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / size_of(type));
  if (size_of(type) == sizeof(float)) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
  } else {
    with_number_type(type, [&]<class T>(T) {
      for (size_t i = 0; i < values.size(); ++i) {
        T value;
        std::memcpy(&value, &bytes[i * sizeof(T)], sizeof(T));
        values[i] = to_float(value);
      }
    });
  }
  return values;
}

/// The values after rounding to `type`.
inline std::vector<float> rounded_to(DType type, const std::vector<float>& values) {
  return unpacked(type, packed(type, values));
}

}  // namespace stepladder
