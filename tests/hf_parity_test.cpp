// Every rung on the CPU against PyTorch.
#include "tests/hf_parity.h"

#include "tests/trainers.h"

namespace stepladder {
namespace {

class HuggingFaceParity : public ::testing::TestWithParam<Rung> {};

TEST_P(HuggingFaceParity, TenStepsGiveTheSameLossesAndNorms) {
  expect_parity(GetParam(), *make_cpu_ops());
}

INSTANTIATE_TEST_SUITE_P(Ladder, HuggingFaceParity, ::testing::ValuesIn(trainers()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace stepladder
