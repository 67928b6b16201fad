#include "bench/verdict/paired.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "tests/comparable.h"

namespace stepladder {
namespace {

using Samples = std::vector<double>;

TEST(Paired, StudentsDistributionHasItsTabulatedQuantiles) {
  const struct {
    double p;
    int df;
    double t;
  } table[] = {{0.9, 1, 3.0776835},  {0.95, 2, 2.9199856},   {0.975, 4, 2.7764451}, {0.9, 9, 1.3830287},
               {0.99, 9, 2.8214379}, {0.999, 19, 3.5794001}, {0.95, 120, 1.6576509}};
  for (const auto& row : table) {
    EXPECT_NEAR(student_t_quantile(row.p, row.df), row.t, 1e-6) << row.p << " " << row.df;
    EXPECT_NEAR(student_t_quantile(1 - row.p, row.df), -row.t, 1e-6);
    EXPECT_NEAR(student_t_cdf(row.t, row.df), row.p, 1e-8);
  }
  EXPECT_DOUBLE_EQ(student_t_cdf(0.0, 7), 0.5);
  EXPECT_THROW(student_t_cdf(1.0, 0), std::invalid_argument);
  EXPECT_THROW(student_t_quantile(1.0, 3), std::invalid_argument);
}

TEST(Mean, ASampleHasTheVarianceOfItsMean) {
  const Mean mean = mean_of(Samples{1, 2, 3, 6});
  EXPECT_DOUBLE_EQ(mean.value, 3.0);
  EXPECT_DOUBLE_EQ(mean.variance, 14.0 / 3 / 4);
  EXPECT_DOUBLE_EQ(mean.df, 3.0);
  EXPECT_THROW(mean_of(Samples{1}), std::invalid_argument);
  EXPECT_THROW(mean_of(Samples{1, NAN}), std::invalid_argument);
}

TEST(Mean, SumsAddVariancesWithWelchsDegreesOfFreedom) {
  const Mean sum = Mean{.value = 1, .variance = 0.25, .df = 5} + Mean{.value = 2, .variance = 0.5, .df = 8};
  EXPECT_DOUBLE_EQ(sum.value, 3.0);
  EXPECT_DOUBLE_EQ(sum.variance, 0.75);
  EXPECT_NEAR(sum.df, 0.5625 / (0.0125 + 0.03125), 1e-12);
  const Mean exact = Mean{.value = 1, .variance = 0, .df = 5} + Mean{.value = 2, .variance = 0.5, .df = 8};
  EXPECT_DOUBLE_EQ(exact.df, 8.0) << "what has no spread takes no certainty";
  EXPECT_DOUBLE_EQ((Mean{.df = 5} + Mean{.df = 8}).df, 13.0);
}

TEST(Mean, TwoSamplesPoolTheirSpread) {
  const Mean difference = difference_of_means(Samples{1, 2, 3}, Samples{4, 6});
  EXPECT_DOUBLE_EQ(difference.value, 3.0);
  EXPECT_NEAR(difference.variance, 4.0 / 3 * (1.0 / 3 + 1.0 / 2), 1e-12);
  EXPECT_DOUBLE_EQ(difference.df, 3.0);
  EXPECT_NEAR(difference_of_means(Samples{1, 2, 3}, Samples{5}).variance, 1.0 * (1 + 1.0 / 3), 1e-12);
  EXPECT_THROW(difference_of_means(Samples{1}, Samples{2}), std::invalid_argument);
  EXPECT_THROW(difference_of_means(Samples{1, 2}, Samples{}), std::invalid_argument);
}

TEST(Mean, BoundsAndPValuesAreStudents) {
  const Mean mean{.value = 1.0, .variance = 0.25, .df = 9};
  EXPECT_NEAR(bound(mean, 0.9), 1 + 1.3830287 * 0.5, 1e-6);
  EXPECT_NEAR(interval_of(mean, 0.8).lo, 1 - 1.3830287 * 0.5, 1e-6);
  EXPECT_NEAR(p_above(mean, 1 - 0.5 * 2.8214379), 0.01, 1e-8);
  EXPECT_NEAR(p_below(mean, 1 + 0.5 * 2.8214379), 0.01, 1e-8);
  EXPECT_NEAR(p_above(mean, 0.7) + p_below(mean, 0.7), 1.0, 1e-12);
  EXPECT_EQ(p_above({.value = 1e-15, .variance = 0.0, .df = 9}), 1.0) << "rounding";
  EXPECT_EQ(p_above({.value = 1e-9, .variance = 1e-34, .df = 9}), 0.0);
}

TEST(Mean, SignsCountHeads) {
  EXPECT_DOUBLE_EQ(sign_test(8, 0), 1.0 / 256);
  EXPECT_DOUBLE_EQ(sign_test(7, 1), 9.0 / 256);
  EXPECT_DOUBLE_EQ(sign_test(0, 3), 1.0);
  EXPECT_DOUBLE_EQ(sign_test(0, 0), 1.0);
}

TEST(Paired, AChangeIsTheMeanWithItsBounds) {
  const PairedChange change = paired_change(Samples{0.01, 0.02, 0.03});
  EXPECT_NEAR(change.log_ratio, 0.02, 1e-15);
  const double margin = 1.8856181 * 0.01 / std::sqrt(3.0);  // 1.8856181 is t(0.9; 2)
  EXPECT_NEAR(change.lo, 0.02 - margin, 1e-8);
  EXPECT_NEAR(change.hi, 0.02 + margin, 1e-8);
  EXPECT_NEAR(change.p_slower, 0.0371, 1e-4);  // p at t = 3.4641
  EXPECT_NEAR(paired_change(Samples{-0.01, -0.02, -0.03}).p_slower, 1 - 0.0371, 1e-4);
}

TEST(Paired, PairsThatAreEqualLeaveNoDoubt) {
  EXPECT_EQ(paired_change(Samples(5, 0.0)).p_slower, 1.0);
  EXPECT_EQ(paired_change(Samples(4, 0.25)).p_slower, 0.0);
  EXPECT_EQ(paired_change(Samples(4, 0.25)).lo, 0.25);
  EXPECT_EQ(paired_change(Samples(4, -0.25)).p_slower, 1.0);
}

TEST(Paired, TooFewPairsAndWhatIsNoNumberAreRefused) {
  EXPECT_THROW(paired_change(Samples{0.01, 0.02}), std::invalid_argument);
  EXPECT_THROW(paired_change(Samples{0.01, NAN, 0.02}), std::invalid_argument);
  EXPECT_THROW(paired_change(Samples{0.01, INFINITY, 0.02}), std::invalid_argument);
}

TEST(Paired, HolmStepsDownAndStopsAtTheFirstThatHolds) {
  const Samples p = {0.03, 0.001, 0.04, 0.012};
  EXPECT_EQ(holm(p, 0.05), (std::vector<bool>{false, true, false, true}));  // thresholds .0125, .0167, .025
  EXPECT_EQ(holm(Samples{0.04, 0.04}, 0.05), (std::vector<bool>{false, false}));
  EXPECT_EQ(holm(Samples{0.04, 0.02}, 0.05), (std::vector<bool>{true, true}));
  EXPECT_EQ(holm(Samples{NAN}, 0.05), std::vector<bool>{false});
  EXPECT_TRUE(holm(Samples{}, 0.05).empty());
}

TEST(Paired, OnlyWhatIsLargeAmongAllAndOfEnoughPairsIsCertain) {
  const PairedChange slower = paired_change(Samples{0.03, 0.031, 0.029, 0.03, 0.0305, 0.0295});
  const PairedChange faster = paired_change(Samples{-0.03, -0.031, -0.029, -0.03, -0.0305, -0.0295});
  const PairedChange few = paired_change(Samples(5, 0.03));
  const std::vector<PairedChange> all = {slower, faster, few, paired_change(Samples(6, 0.0))};
  EXPECT_EQ(certain_by(all, 0.01, &PairedChange::p_slower), (std::vector<bool>{true, false, false, false}));
  EXPECT_EQ(certain_by(all, 0.01, &PairedChange::p_faster), (std::vector<bool>{false, true, false, false}));
  EXPECT_EQ(certain_by(all, 0.01, &PairedChange::p_changed), (std::vector<bool>{true, true, false, false}));
}

TEST(Paired, WhatIsUnchangedHardlyEverHasCertainlyChanged) {
  int changed = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    NoisyMachine machine(seed, 40);
    machine.process = 0.03;
    Samples ratios(20);
    for (double& x : ratios) x = std::log(median(machine.next(0.0)) / median(machine.next(0.0)));
    const PairedChange change = paired_change(ratios);
    if (certain_by({{change}}, 0.01, &PairedChange::p_changed)[0]) ++changed;
  }
  EXPECT_LE(changed, 10);  // 1 % plus three standard errors
}

TEST(Paired, AFewLooksSharesWhatAPassMaySpend) {
  std::vector<size_t> looks;
  for (size_t pairs = 6; pairs <= 20; ++pairs)
    if (may_pass_at(pairs, 6, 20)) looks.push_back(pairs);
  EXPECT_EQ(looks, (std::vector<size_t>{6, 12, 20}));
  EXPECT_NEAR(upper_confidence(6, 20, 0.9), 1 - 0.1 / 3, 1e-15);
  EXPECT_NEAR(upper_confidence(6, 6, 0.9), 0.9, 1e-15);
  EXPECT_NEAR(upper_confidence(5, 10, 0.9), 0.95, 1e-15);
  const Samples x = {0.01, 0.02, 0.03};
  EXPECT_GT(paired_change(x, 0.99).hi, paired_change(x).hi);
  EXPECT_EQ(paired_change(x, 0.99).lo, paired_change(x).lo);
}

TEST(Paired, LooksTogetherSpendWhatThereIs) {
  double spent = 0.0;
  for (size_t pairs = 5; pairs <= 20; ++pairs) spent += alpha_at(pairs, 5, 20, 0.01);
  EXPECT_NEAR(spent, 0.01, 1e-15);
  EXPECT_DOUBLE_EQ(alpha_at(5, 5, 5, 0.01), 0.01);
  EXPECT_THROW(alpha_at(4, 5, 20, 0.01), std::invalid_argument);
  EXPECT_THROW(alpha_at(21, 5, 20, 0.01), std::invalid_argument);
}

TEST(Paired, TheNoiseFloorShrinksWithPairs) {
  Samples ratios;
  for (int i = 0; i < 20; ++i) ratios.push_back(i % 2 ? 0.01 : -0.01);
  EXPECT_DOUBLE_EQ(noise_floor(ratios, 1), 0.01);
  // The mean of 16 signs is nearly normal, so the floor is about 2.58 * 0.01 / 4.
  EXPECT_NEAR(noise_floor(ratios, 16), 0.0064, 0.0012);
  EXPECT_EQ(noise_floor(ratios, 16), noise_floor(ratios, 16));
  EXPECT_THROW(noise_floor(Samples{}, 5), std::invalid_argument);
}

}  // namespace
}  // namespace stepladder
