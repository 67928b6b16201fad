#pragma once

namespace stepladder {

inline float relu(float x) {
  return x < 0.0F ? 0.0F : x;  // NaN stays NaN
}
/// The derivative of max(x, 0)^2.
inline float relu_squared_slope(float x) {
  return 2.0F * relu(x);
}
inline float relu_squared(float x) {
  return relu(x) * relu(x);
}

}  // namespace stepladder
