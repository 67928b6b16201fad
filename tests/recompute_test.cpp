// Rungs that compute logits for a few sequences at a time and recompute activations: they learn what their
// parent rungs learn.
#include <gtest/gtest.h>

#include "tests/training.h"

namespace stepladder {
namespace {

struct Case {
  const char *rung, *parent;
  int64_t B;  // more sequences than a part of the logits has, and no multiple of a part
};

class LessMemory : public testing::TestWithParam<Case> {
 protected:
  Training training_of(const char* rung) const {
    Config config = small_config();
    config.B = GetParam().B;
    return Training(rung, DType::bf16, 1, config);
  }
  Training rung_ = training_of(GetParam().rung), parent_ = training_of(GetParam().parent);
};

TEST_P(LessMemory, EvaluatesToTheSameBits) {
  EXPECT_EQ(rung_.trainer->evaluate(rung_.data, 2), parent_.trainer->evaluate(parent_.data, 2));
}

// Losses differ only because the head's weight gradient is rounded after each part.
TEST_P(LessMemory, LearnsTheSame) {
  const auto losses = rung_.losses(30), expected = parent_.losses(30);
  EXPECT_LT(expected.back(), 0.9F * expected.front());
  for (size_t step = 0; step < losses.size(); ++step)
    EXPECT_NEAR(losses[step], expected[step], 1e-3F * expected[step]) << "step " << step;
}

TEST_P(LessMemory, EvaluatingLeavesTrainingAlone) {
  Training watched = training_of(GetParam().rung);
  Loader other{learnable_tokens(watched.config), watched.config.B, watched.config.T};
  std::vector<float> losses;
  for (int step = 0; step < 4; ++step) {
    losses.push_back(watched.losses(1)[0]);
    watched.trainer->evaluate(other, 1);
  }
  EXPECT_EQ(rung_.losses(4), losses);
}

TEST_P(LessMemory, TakesLessMemory) {
  EXPECT_LT(rung_.arena->bytes(), parent_.arena->bytes());
}

INSTANTIATE_TEST_SUITE_P(Rungs, LessMemory,
                         testing::Values(Case{"recompute", "13_cuda_graphs", 11},
                                         Case{"fp8_recompute", "fp8", 6}),
                         [](const auto& of) { return std::string("rung_") + of.param.rung; });

}  // namespace
}  // namespace stepladder
