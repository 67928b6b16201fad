// Every rung on the CPU against PyTorch.
#include "tests/hf_parity.h"

#include "tests/trainers.h"

namespace stepladder {
namespace {

class HuggingFaceParity : public ::testing::TestWithParam<Rung> {};

TEST_P(HuggingFaceParity, TenStepsGiveTheSameLossesAndNorms) {
  expect_parity(GetParam(), *make_cpu_ops());
}

INSTANTIATE_TEST_SUITE_P(Ladder, HuggingFaceParity, ::testing::ValuesIn(trainers_of(ladder())),
                         [](const auto& test) { return test.param.name; });

class LearningParity : public ::testing::TestWithParam<Rung> {};

TEST_P(LearningParity, TenStepsGiveTheSameLossesAndNorms) {
  if (GetParam().math == MathMode::fp8) GTEST_SKIP() << "trains beside bf16 alone";
  expect_learning_parity(GetParam(), *make_cpu_ops(), DType::f32, 1e-5);
}

TEST_P(LearningParity, TenStepsIn16BitsGiveTheSameLossesButForRounding) {
  for (const DType half : {DType::bf16, DType::f16})
    if (half == DType::bf16 || GetParam().math == MathMode::half)
      expect_learning_parity(GetParam(), *make_cpu_ops(), half, rounding_of(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Ladder, LearningParity, ::testing::ValuesIn(trainers_of(*our_ladder("learning"))),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace stepladder
