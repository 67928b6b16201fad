// Every rung on CUDA against PyTorch.
#include "tests/gpu_options.h"
#include "tests/hf_parity.h"
#include "tests/trainers.h"

namespace stepladder {
namespace {

class ParityGpu : public ::testing::TestWithParam<Rung> {
 protected:
  void SetUp() override {
    open_device(ops);
    if (!ops) return;
    const std::string reason = unsupported_reason(GetParam().compute_capability, ops->device().info());
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
  std::unique_ptr<Ops> ops;
};
class HuggingFaceParityGpu : public ParityGpu {};
class LearningParityGpu : public ParityGpu {};

TEST_P(HuggingFaceParityGpu, TenStepsGiveTheSameLossesAndNorms) {
  expect_parity(GetParam(), *ops);
}

TEST_P(LearningParityGpu, TenStepsGiveTheSameLossesButForRounding) {
  const bool bf16 = ops->device().info().bf16;
  expect_learning_parity(GetParam(), *ops, bf16 ? DType::bf16 : DType::f16, rounding_of(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Ladder, HuggingFaceParityGpu, ::testing::ValuesIn(trainers_of(ladder())),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Ladder, LearningParityGpu, ::testing::ValuesIn(trainers_of(*our_ladder("learning"))),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace stepladder
