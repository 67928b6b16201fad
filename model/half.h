// bfloat16, IEEE half precision and FP8 on the host, rounded to nearest even.
#pragma once

#include <bit>
#include <cstdint>

#include "model/tensor.h"

namespace stepladder {

inline float to_float(float x) {
  return x;
}
inline float to_float(BFloat16 x) {
  return std::bit_cast<float>(uint32_t{x.bits} << 16);
}
inline float to_float(Float16 x) {
  // Selects instead of branches, so that loops over this function are vectorised. No operand is subnormal:
  // subnormal operands would be slow.
  const uint32_t sign = uint32_t{x.bits & 0x8000U} << 16, magnitude = x.bits & 0x7FFFU;
  const uint32_t rebased = (magnitude << 13) + (magnitude >= 0x7C00U ? 0x70000000U : 0x38000000U);
  const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24F;
  const uint32_t bits = magnitude < 0x400U ? std::bit_cast<uint32_t>(subnormal) : rebased;
  return std::bit_cast<float>(bits | sign);
}

inline float to_float(Float8E4M3 x) {
  const uint32_t sign = uint32_t{x.bits & 0x80U} << 24, magnitude = x.bits & 0x7FU;
  const uint32_t normal = (magnitude << 20) + 0x3C000000U;
  const auto subnormal = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-9F);
  const uint32_t bits = magnitude == 0x7FU ? 0x7FC00000U : magnitude < 8U ? subnormal : normal;
  return std::bit_cast<float>(bits | sign);
}
inline float to_float(Float8E5M2 x) {
  return to_float(Float16{static_cast<uint16_t>(x.bits << 8)});  // half precision without its last 8 bits
}

/// Rounds x to the nearest T. Overflow gives infinity, in FP8 the largest number. NaN stays NaN; in FP8
/// infinity becomes NaN.
template <class T>
T from_float(float x);

template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline BFloat16 from_float<BFloat16>(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  const uint32_t rounded = nan ? bits | 0x400000U : bits + 0x7FFFU + (bits >> 16 & 1U);
  return {static_cast<uint16_t>(rounded >> 16)};
}
template <>
inline Float16 from_float<Float16>(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 16 & 0x8000U, magnitude = bits & 0x7FFFFFFFU;
  const uint32_t normal = (magnitude - 0x38000000U + 0xFFFU + (magnitude >> 13 & 1U)) >> 13;
  // For a subnormal the addition rounds the mantissa at its lowest bit, 2^-24.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000U;
  uint32_t half = magnitude < 0x38800000U ? subnormal : normal;
  half = magnitude >= 0x477FF000U ? 0x7C00U : half;  // 65520 and more round to infinity
  half = magnitude > 0x7F800000U ? 0x7E00U : half;   // NaN
  return {static_cast<uint16_t>(half | sign)};
}

/// Code of the FP8 number nearest to x.
template <class T>
T nearest_fp8(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 24 & 0x80U, magnitude = bits & 0x7FFFFFFFU;
  constexpr uint32_t kLargest = T::kMantissa == 3 ? 0x7EU : 0x7BU, kNan = 0x7FU;
  // |x| in units in the last place of its FP8 exponent (at least that of subnormals). Adding 2^23 rounds them
  // to an integer, ties to even, in the last bits of the sum; successive units are successive codes.
  constexpr uint32_t kLeast = 128 - T::kBias;
  const uint32_t exponent = magnitude >> 23 < kLeast ? kLeast : magnitude >> 23;
  const float per_unit = std::bit_cast<float>((254U + T::kMantissa - exponent) << 23);
  const float units = std::bit_cast<float>(magnitude) * per_unit + 0x1p23F;
  uint32_t code = ((exponent - kLeast) << T::kMantissa) +
                  (std::bit_cast<uint32_t>(units) - std::bit_cast<uint32_t>(0x1p23F));
  code = code > kLargest ? kLargest : code;
  code = magnitude >= 0x7F800000U ? kNan : code;
  return {static_cast<uint8_t>(code | sign)};
}
template <>
inline Float8E4M3 from_float<Float8E4M3>(float x) {
  return nearest_fp8<Float8E4M3>(x);
}
template <>
inline Float8E5M2 from_float<Float8E5M2>(float x) {
  return nearest_fp8<Float8E5M2>(x);
}

}  // namespace stepladder
