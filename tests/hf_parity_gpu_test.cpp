// Every rung on CUDA against PyTorch.
#include "tests/gpu_options.h"
#include "tests/hf_parity.h"
#include "tests/trainers.h"

namespace stepladder {
namespace {

class HuggingFaceParityGpu : public ::testing::TestWithParam<Rung> {};

TEST_P(HuggingFaceParityGpu, TenStepsGiveTheSameLossesAndNorms) {
  std::unique_ptr<Ops> ops;
  try {
    ops = make_cuda_ops(0, gpu_test_options());
  } catch (const UnsupportedError& error) {
    GTEST_SKIP() << error.what();
  }
  const std::string reason = unsupported_reason(GetParam().compute_capability, ops->device().info());
  if (!reason.empty()) GTEST_SKIP() << reason;
  expect_parity(GetParam(), *ops);
}

INSTANTIATE_TEST_SUITE_P(Ladder, HuggingFaceParityGpu, ::testing::ValuesIn(trainers()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace stepladder
