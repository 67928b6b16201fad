// Values as floats, and as they lie in the memory of a tensor of any type.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "model/half.h"
#include "model/tensor.h"

namespace stepladder {

/// Each value rounded to `type`; i32 is in the bits of the floats, FP8 has no scale.
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

/// The values that `type` has for these.
inline std::vector<float> rounded_to(DType type, const std::vector<float>& values) {
  return unpacked(type, packed(type, values));
}

}  // namespace stepladder
