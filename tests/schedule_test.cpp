#include "model/schedule.h"

#include <gtest/gtest.h>

#include <limits>

namespace stepladder {
namespace {

constexpr Schedule kSchedule{1e-3F, 1e-4F, 10, 110};

TEST(Schedule, WarmsUpLinearlyFromTheFirstStep) {
  EXPECT_FLOAT_EQ(kSchedule.at(0), 1e-4F);
  EXPECT_FLOAT_EQ(kSchedule.at(4), 5e-4F);
  EXPECT_FLOAT_EQ(kSchedule.at(9), 1e-3F);
}

TEST(Schedule, DecaysAlongACosine) {
  EXPECT_FLOAT_EQ(kSchedule.at(10), 1e-3F);
  EXPECT_FLOAT_EQ(kSchedule.at(35), 8.681980515e-4F);  // 1e-4 + 9e-4 (1 + cos(pi / 4)) / 2
  EXPECT_FLOAT_EQ(kSchedule.at(60), 5.5e-4F);
  EXPECT_FLOAT_EQ(kSchedule.at(85), 2.318019485e-4F);
  EXPECT_LT(kSchedule.at(109), 1.01e-4F);
}

TEST(Schedule, StaysAtTheMinimumAfterTheDecay) {
  EXPECT_EQ(kSchedule.at(110), 1e-4F);
  EXPECT_EQ(kSchedule.at(std::numeric_limits<int64_t>::max()), 1e-4F);
}

TEST(Schedule, IsConstantWithoutADecay) {
  constexpr Schedule constant{1e-3F, 1e-4F, 2, 0};
  EXPECT_FLOAT_EQ(constant.at(0), 5e-4F);
  EXPECT_EQ(constant.at(2), 1e-3F);
  EXPECT_EQ(constant.at(1'000'000), 1e-3F);
}

TEST(Schedule, ADecayThatEndsWithinTheWarmUpGoesStraightToTheMinimum) {
  constexpr Schedule odd{1e-3F, 1e-4F, 10, 10};
  EXPECT_FLOAT_EQ(odd.at(9), 1e-3F);
  EXPECT_EQ(odd.at(10), 1e-4F);
}

}  // namespace
}  // namespace stepladder
