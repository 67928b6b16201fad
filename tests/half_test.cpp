// bf16 and f16 on the host: every bit pattern, and every point where rounding changes direction.
#include "model/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace stepladder {
namespace {

/// A 16-bit type's values by its definition: 1 sign bit, then the exponent, then the mantissa.
template <class T>
struct Format;
template <>
struct Format<BFloat16> {
  static constexpr int kMantissa = 7, kBias = 127;
};
template <>
struct Format<Float16> {
  static constexpr int kMantissa = 10, kBias = 15;
};

template <class T>
struct Half : testing::Test {
  static constexpr int kMantissa = Format<T>::kMantissa, kBias = Format<T>::kBias;
  static constexpr int kInfinity = 0x7FFF >> kMantissa << kMantissa;

  /// The value of a magnitude's bits, below infinity.
  static double value(int magnitude) {
    const int exponent = magnitude >> kMantissa, mantissa = magnitude & ((1 << kMantissa) - 1);
    return exponent == 0 ? std::ldexp(mantissa, 1 - kBias - kMantissa)
                         : std::ldexp((1 << kMantissa) + mantissa, exponent - kBias - kMantissa);
  }
  static T pattern(int bits) { return {static_cast<uint16_t>(bits)}; }
  static int round(float x) { return from_float<T>(x).bits; }
};

using Types = testing::Types<BFloat16, Float16>;
TYPED_TEST_SUITE(Half, Types);

TYPED_TEST(Half, EveryPatternHasItsValueAndComesBack) {
  for (int sign : {0, 0x8000}) {
    for (int magnitude = 0; magnitude < 0x8000; ++magnitude) {
      const float x = to_float(this->pattern(sign | magnitude));
      ASSERT_EQ(std::signbit(x), sign != 0) << magnitude;
      if (magnitude > this->kInfinity) {
        ASSERT_TRUE(std::isnan(x)) << magnitude;
        const float back = to_float(from_float<TypeParam>(x));
        ASSERT_TRUE(std::isnan(back)) << magnitude;
        ASSERT_EQ(std::signbit(back), sign != 0) << magnitude;
        continue;
      }
      if (magnitude == this->kInfinity)
        ASSERT_TRUE(std::isinf(x));
      else
        ASSERT_EQ(std::fabs(x), this->value(magnitude)) << magnitude;
      ASSERT_EQ(this->round(x), sign | magnitude);
    }
  }
}

// Rounding is monotonic, so it is right everywhere if it is right beside the middle of every two neighbours.
// Infinity begins where the number after the largest would be.
TYPED_TEST(Half, RoundsToTheNearestTiesToEven) {
  for (int below = 0; below < this->kInfinity; ++below) {
    const double above = below + 1 == this->kInfinity ? 2 * this->value(below) - this->value(below - 1)
                                                      : this->value(below + 1);
    const auto middle = static_cast<float>((this->value(below) + above) / 2);
    ASSERT_EQ(middle, (this->value(below) + above) / 2) << "not a float: " << below;
    const int even = below % 2 == 0 ? below : below + 1;
    ASSERT_EQ(this->round(middle), even) << below;
    ASSERT_EQ(this->round(-middle), 0x8000 | even) << below;
    ASSERT_EQ(this->round(std::nextafter(middle, 0.0F)), below) << below;
    ASSERT_EQ(this->round(std::nextafter(middle, 2 * middle)), below + 1) << below;
  }
}

TYPED_TEST(Half, OverflowsToInfinityAndUnderflowsToZero) {
  constexpr float kMax = std::numeric_limits<float>::max(), kLeast = std::numeric_limits<float>::denorm_min();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(this->round(kInf), this->kInfinity);
  EXPECT_EQ(this->round(-kInf), 0x8000 | this->kInfinity);
  EXPECT_EQ(this->round(kMax), this->kInfinity);
  EXPECT_EQ(this->round(-kMax), 0x8000 | this->kInfinity);
  EXPECT_EQ(this->round(0.0F), 0);
  EXPECT_EQ(this->round(-0.0F), 0x8000);
  EXPECT_EQ(this->round(kLeast), 0);
  EXPECT_EQ(this->round(-kLeast), 0x8000);
}

// A NaN's payload may lie in bits that the type lacks; the NaN must not turn into infinity.
TYPED_TEST(Half, EveryNaNStaysNaN) {
  for (int bit = 0; bit < 23; ++bit) {
    for (uint32_t mantissa : {1U << bit, (1U << bit) - 1U + 0x400000U, 0x800000U - (1U << bit)}) {
      const auto nan = std::bit_cast<float>(0x7F800000U | mantissa);
      ASSERT_TRUE(std::isnan(nan));
      EXPECT_TRUE(std::isnan(to_float(from_float<TypeParam>(nan)))) << mantissa;
      EXPECT_TRUE(std::isnan(to_float(from_float<TypeParam>(-nan)))) << mantissa;
    }
  }
}

}  // namespace
}  // namespace stepladder
