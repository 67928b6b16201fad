#include "model/sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "model/error.h"
#include "tests/files.h"

namespace stepladder {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Sample, TemperatureZeroTakesTheMostLikelyWhateverTheDraw) {
  const std::vector<float> logits = {1, 5, 3, 5};
  for (const double uniform : {0.0, 0.5, 0.999999}) EXPECT_EQ(sample_token(logits, {0.0F, 1}, uniform), 1);
}

TEST(Sample, DrawsInProportionToTheSoftmax) {
  // Weights 1 : 2 : 5.
  const std::vector<float> logits = {0.0F, std::log(2.0F), std::log(5.0F)};
  std::map<int32_t, int> drawn;
  for (int i = 0; i < 8000; ++i) ++drawn[sample_token(logits, {1.0F, 0}, (i + 0.5) / 8000)];
  EXPECT_NEAR(drawn[0], 1000, 2);
  EXPECT_NEAR(drawn[1], 2000, 2);
  EXPECT_NEAR(drawn[2], 5000, 2);
}

TEST(Sample, TemperatureDividesTheLogits) {
  // At temperature 1/2 the weights are squared: 1 : 4.
  const std::vector<float> logits = {0.0F, std::log(2.0F)};
  EXPECT_EQ(sample_token(logits, {0.5F, 0}, 0.19), 0);
  EXPECT_EQ(sample_token(logits, {0.5F, 0}, 0.21), 1);
}

TEST(Sample, TopKLeavesTheRestOut) {
  const std::vector<float> logits = {3, 1, 2, 3, 2};
  std::map<int32_t, int> drawn;
  for (int i = 0; i < 1000; ++i) ++drawn[sample_token(logits, {10.0F, 3}, (i + 0.5) / 1000)];
  EXPECT_EQ(drawn.size(), 3U);
  EXPECT_TRUE(drawn.contains(0) && drawn.contains(3) && drawn.contains(2)) << "of two equals the earlier";
}

TEST(Sample, TopKBeyondTheVocabularyKeepsAll) {
  const std::vector<float> logits = {0, 0};
  EXPECT_EQ(sample_token(logits, {1.0F, 50}, 0.25), 0);
  EXPECT_EQ(sample_token(logits, {1.0F, 50}, 0.75), 1);
}

TEST(Sample, NeverDrawsWhatHasNoWeight) {
  const std::vector<float> logits = {-kInf, 0, -kInf, 0, -kInf};
  const double last = std::nextafter(1.0, 0.0);
  EXPECT_EQ(sample_token(logits, {1.0F, 0}, 0.0), 1);
  EXPECT_EQ(sample_token(logits, {1.0F, 0}, 0.5), 3);
  EXPECT_EQ(sample_token(logits, {1.0F, 0}, last), 3);
}

TEST(Sample, LargeLogitsDoNotOverflow) {
  const std::vector<float> logits = {3e38F, -3e38F};
  EXPECT_EQ(sample_token(logits, {0.1F, 0}, 0.999), 0);
}

TEST(Sample, ADivergedModelIsAnErrorAtAnyTemperature) {
  for (const float temperature : {0.0F, 1.0F}) {
    for (const float bad : {kNan, kInf}) {
      const std::vector<float> logits = {0, bad, 1};
      EXPECT_THROW(sample_token(logits, {temperature, 0}, 0.5), Error);
    }
    const std::vector<float> nothing = {-kInf, -kInf};
    EXPECT_THROW(sample_token(nothing, {temperature, 0}, 0.5), Error);
  }
}

TEST(Sample, RefusesOptionsThatMeanNothing) {
  const std::vector<float> logits = {0, 1};
  EXPECT_TRUE(says(input_error([&] { sample_token(logits, {-1.0F, 0}, 0.5); }), {"temperature -1"}));
  EXPECT_TRUE(says(input_error([&] { sample_token(logits, {kNan, 0}, 0.5); }), {"temperature nan"}));
  EXPECT_TRUE(says(input_error([&] { sample_token(logits, {1.0F, -1}, 0.5); }), {"top-k -1"}));
}

}  // namespace
}  // namespace stepladder
