#include "bench/base/statistics.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <stdexcept>
#include <vector>

namespace stepladder {
namespace {

using Samples = std::vector<double>;

TEST(Statistics, QuantileInterpolatesAsType7) {
  // The values of numpy.quantile([3, 1, 4, 1, 5, 9, 2, 6], [0, .1, .25, .5, .9, 1]).
  const Samples x = {3, 1, 4, 1, 5, 9, 2, 6};
  EXPECT_DOUBLE_EQ(quantile(x, 0.0), 1.0);
  EXPECT_DOUBLE_EQ(quantile(x, 0.1), 1.0);
  EXPECT_DOUBLE_EQ(quantile(x, 0.25), 1.75);
  EXPECT_DOUBLE_EQ(quantile(x, 0.5), 3.5);
  EXPECT_NEAR(quantile(x, 0.9), 6.9, 1e-12);
  EXPECT_DOUBLE_EQ(quantile(x, 1.0), 9.0);
}

TEST(Statistics, MedianOfOddAndEvenCounts) {
  EXPECT_DOUBLE_EQ(median(Samples{7}), 7.0);
  EXPECT_DOUBLE_EQ(median(Samples{9, 1, 5}), 5.0);
  EXPECT_DOUBLE_EQ(median(Samples{9, 1, 5, 7}), 6.0);
}

TEST(Statistics, RefusesWhatHasNoAnswer) {
  EXPECT_THROW(median(Samples{}), std::invalid_argument);
  EXPECT_THROW(quantile(Samples{1}, 1.5), std::invalid_argument);
  EXPECT_THROW(quantile(Samples{1}, std::nan("")), std::invalid_argument);
  EXPECT_THROW(median(Samples{1, std::nan(""), 2}), std::invalid_argument);
  EXPECT_THROW(median_over_rounds(Samples{}), std::invalid_argument);
}

TEST(Statistics, OneRoundHasNoInterval) {
  const Estimate e = median_over_rounds(Samples{41.7});
  EXPECT_DOUBLE_EQ(e.value, 41.7);
  EXPECT_FALSE(e.interval);
}

TEST(Statistics, ARangeOfFewerThanSixRoundsIsNoIntervalOf95Percent) {
  EXPECT_EQ(interval_name(1), "interval");
  EXPECT_EQ(interval_name(2), "range (50 %)");
  EXPECT_EQ(interval_name(3), "range (75 %)");
  EXPECT_EQ(interval_name(5), "range (94 %)");
  EXPECT_EQ(interval_name(6), "95 % interval");
  EXPECT_EQ(interval_name(median_over_rounds(Samples{41.2, 41.9, 41.5}).rounds), "range (75 %)");
}

TEST(Statistics, AnIntervalHoldsTheMedianInAtLeast95Percent) {
  // k is the largest with P(Binomial(n, 1/2) < k) <= 2.5 %, computed by hand.
  for (const auto& [n, k] : {std::pair(5, 0), {6, 0}, {8, 0}, {9, 1}, {11, 1}, {12, 2}, {15, 3}, {20, 5}}) {
    Samples rounds;
    for (int i = 0; i < n; ++i) rounds.push_back(i * 7 % n);  // 0 to n - 1, in another order
    const Estimate e = median_over_rounds(rounds);
    EXPECT_EQ(e.interval->lo, k) << n;
    EXPECT_EQ(e.interval->hi, n - 1 - k) << n;
  }
}

TEST(Statistics, AnIntervalOfThousandsOfRoundsIsStillOne) {
  for (const int n : {1000, 1080, 10000}) {
    Samples rounds;
    for (int i = 0; i < n; ++i) rounds.push_back(i);
    const Estimate e = median_over_rounds(rounds);
    const double half = 0.98 * std::sqrt(n);  // 1.96 standard deviations of Binomial(n, 1/2)
    EXPECT_NEAR(e.interval->lo, 0.5 * n - half, 2) << n;
    EXPECT_NEAR(e.interval->hi, 0.5 * n + half, 2) << n;
  }
}

TEST(Statistics, WarmupIsExtendedUntilStepsSettle) {
  const Samples settled = {90, 10, 11, 12, 10, 11, 12, 11};
  EXPECT_EQ(warmup_steps(settled, 3), 3U);
  // Steps 1 and 2 are still slow; warm-up ends after the next two, which lie within the range of the rest.
  const Samples slow = {90, 40, 30, 12, 10, 11, 12, 11, 10, 12};
  EXPECT_EQ(warmup_steps(slow, 2), 5U);
}

TEST(Statistics, WarmupOfManyStepsTakesNoTime) {
  Samples falling(200'000);
  for (size_t i = 0; i < falling.size(); ++i) falling[i] = 1e6 - static_cast<double>(i);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(warmup_steps(falling, 2), 100'001U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(Statistics, WarmupExtensionHasALimit) {
  const Samples drifting = {10, 9, 8, 7, 6, 5, 4, 3, 2, 1};
  EXPECT_EQ(warmup_steps(drifting, 2), 6U);
  EXPECT_EQ(warmup_steps(drifting, 0), 0U);
  EXPECT_EQ(warmup_steps(drifting, 12), 10U);
}

}  // namespace
}  // namespace stepladder
