// exp that vectorises. A call of the C library's exp for each element would take as long as the matmuls of
// the classifier.
#pragma once

#include <bit>
#include <cstdint>

namespace stepladder {

/// e^x within 1.1 ulp; 0 below the least normal float, inf above the largest, NaN for NaN.
inline float exp_float(float x) {
  constexpr float kLeast = -0x1.5d589ep+6F, kBeyond = 89.0F;  // ln(2^-126), and a little more than ln(2^128)
  constexpr float kLog2E = 0x1.715476p+0F, kLn2Hi = 0x1.62e4p-1F, kLn2Lo = 0x1.7f7d1cp-20F;
  constexpr float kShift = 0x1.8p+23F;  // adding kShift rounds to an integer, which the low bits then hold
  const uint32_t keep = x < kLeast ? 0 : ~0U;
  x = x < kLeast ? kLeast : x;
  x = x > kBeyond ? kBeyond : x;
  const float shifted = x * kLog2E + kShift;
  const float n = shifted - kShift;
  const float r = (x - n * kLn2Hi) - n * kLn2Lo;  // |r| <= ln(2)/2
  // e^r - 1 by Taylor's series; the remainder is below r^8/8! = 6e-9.
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 1.0F / 2;
  p = p * r * r + r;
  // 2^n in two factors, since n may be 128.
  const auto power = [](uint32_t e) { return std::bit_cast<float>((e + 127) << 23); };
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kShift);
  const auto half = static_cast<uint32_t>(static_cast<int32_t>(exponent) >> 1);
  const float y = (1.0F + p) * power(half) * power(exponent - half);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(y) & keep);
}

}  // namespace stepladder
