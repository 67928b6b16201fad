#include "model/sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "model/error.h"
#include "model/gpt2.h"
#include "model/tokenizer.h"
#include "tests/built.h"
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
  // These logits have the weights 1 : 2 : 5.
  const std::vector<float> logits = {0.0F, std::log(2.0F), std::log(5.0F)};
  std::map<int32_t, int> drawn;
  for (int i = 0; i < 8000; ++i) ++drawn[sample_token(logits, {1.0F, 0}, (i + 0.5) / 8000)];
  EXPECT_NEAR(drawn[0], 1000, 2);
  EXPECT_NEAR(drawn[1], 2000, 2);
  EXPECT_NEAR(drawn[2], 5000, 2);
}

TEST(Sample, TemperatureDividesTheLogits) {
  // At temperature 1/2 the weights 1 : 2 are squared: 1 : 4.
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
  const std::vector<float> logits = {800.0F, 801.0F};  // exp(800) is beyond double
  EXPECT_EQ(sample_token(logits, {1.0F, 0}, 0.26), 0);
  EXPECT_EQ(sample_token(logits, {1.0F, 0}, 0.28), 1);
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

// ---- generate: a rung on the CPU, 00 by default, weights as initialised ----------------------------------

struct Speaker {
  explicit Speaker(int64_t V = 50257, const std::string& rung = "00_fp32_baseline") {
    config.B = 1;
    config.T = config.max_T = 8;
    config.V = V;
    config.L = config.NH = 1;
    config.C = 16;
    std::tie(arena, trainer) = built(*ops, rung, config);
    trainer->init(1337);
    trainer->prepare();
  }
  Config config;
  std::unique_ptr<Ops> ops = make_cpu_ops();
  std::unique_ptr<Arena> arena;
  std::unique_ptr<Trainer> trainer;

  std::vector<int32_t> draw(std::span<const int32_t> prompt, int count, const SampleOptions& options) {
    return generate([this](auto text) { return trainer->next_logits(text); }, prompt, count, options).tokens;
  }
};

TEST(Generate, TakesPositionsThatFp8CanMultiply) {
  EXPECT_EQ(positions_to_sample(1, 64, 1024), 80);
  EXPECT_EQ(positions_to_sample(0, 16, 1024), 32);  // an end-of-text token comes first
  EXPECT_EQ(positions_to_sample(16, 16, 1024), 32);
  EXPECT_EQ(positions_to_sample(1000, 64, 1024), 1024);
  EXPECT_EQ(positions_to_sample(1, 64, 40), 40);
}

TEST(Generate, RepeatsItselfForASeedAndNotForAnother) {
  Speaker speaker(500);
  const std::vector<int32_t> prompt = {1, 2, 3};
  const SampleOptions options{1.0F, 0, 7}, other{1.0F, 0, 8};
  const auto tokens = speaker.draw(prompt, 12, options);  // more than the 8 positions
  EXPECT_EQ(tokens.size(), 12U);
  EXPECT_EQ(speaker.draw(prompt, 12, options), tokens);
  EXPECT_NE(speaker.draw(prompt, 12, other), tokens);
}

TEST(Generate, FeedsWhatItDrewBack) {
  Speaker speaker(500);
  std::vector<int32_t> text = {1, 2, 3};
  const auto tokens = speaker.draw(text, 3, {0.0F, 0});
  for (const int32_t token : tokens) {
    EXPECT_EQ(token, sample_token(speaker.trainer->next_logits(text), {0.0F, 0}, 0.5));
    text.push_back(token);
  }
}

TEST(Generate, CountsLogitsAsATrainerCapsThem) {
  Speaker capped(500, "soft_cap"), plain(500, "03_rotary");
  const std::vector<int32_t> prompt = {1, 2, 3};
  for (Speaker* speaker : {&capped, &plain})  // scales logits so that they are capped
    for (const NamedTensor& p : speaker->trainer->tensors().params.each())
      if (p.name == "ln_f.weight") (*speaker->ops)(Affine{p.tensor, p.tensor, 500.0F, 0.0F});
  for (Speaker* speaker : {&capped, &plain}) speaker->trainer->prepare();
  const auto expected = plain.trainer->next_logits(prompt), logits = capped.trainer->next_logits(prompt);
  EXPECT_GT(*std::ranges::max_element(expected), 30.0F);
  for (size_t i = 0; i < logits.size(); ++i)
    EXPECT_FLOAT_EQ(logits[i], 30.0F * std::tanh(expected[i] / 30.0F));
}

TEST(Generate, WithoutAPromptStartsAfterEndOfText) {
  Speaker speaker;
  const std::vector<int32_t> end_of_text = {Tokenizer::kEndOfText};
  EXPECT_EQ(speaker.draw({}, 3, {}), speaker.draw(end_of_text, 3, {}));
}

TEST(Generate, RefusesAPromptOutsideTheVocabulary) {
  Speaker speaker(500);
  const std::vector<int32_t> prompt = {1, 500};
  EXPECT_TRUE(says(input_error([&] { speaker.draw(prompt, 1, {}); }), {"500"}));
  EXPECT_TRUE(says(input_error([&] { speaker.draw({}, 1, {}); }), {"50256", "500"}));
}

}  // namespace
}  // namespace stepladder
