// The first ten steps from a Hugging Face checkpoint against PyTorch's: every rung, the same batches.
// tests/reference/make_checkpoint_cases.py made the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "bench/ladder.h"
#include "model/checkpoint.h"
#include "tests/files.h"

namespace stepladder {
namespace {

constexpr double kFp32Tolerance = 1e-4;

class HuggingFaceParity : public ::testing::TestWithParam<Rung> {};

TEST_P(HuggingFaceParity, TenStepsGiveTheSameLossesAndNorms) {
  const std::string folder = STEPLADDER_TEST_DATA "/hf_parity";
  const auto reference = nlohmann::json::parse(read_file(folder + "/losses.json"));
  Config config = config_of_checkpoint(folder + "/model.safetensors");
  config.B = reference["B"];
  config.T = reference["T"];
  const Hyper hyper{.beta1 = reference["beta1"],
                    .beta2 = reference["beta2"],
                    .eps = reference["eps"],
                    .weight_decay = reference["weight_decay"],
                    .grad_clip = reference["grad_clip"]};

  const auto& rungs = linked_rungs();
  const auto rung = std::ranges::find(rungs, GetParam().name, &RungBuild::name);
  ASSERT_NE(rung, rungs.end());
  const auto ops = make_cpu_ops();
  Arena plan;
  rung->make(*ops, plan, config, hyper);
  Arena arena(*ops, plan.bytes());
  const auto trainer = rung->make(*ops, arena, config, hyper);
  trainer->prepare();
  for (const Params& moments : {trainer->adam_m, trainer->adam_v})
    for (const NamedTensor& t : moments.each()) ops->zero(t.tensor);
  load_weights(folder + "/model.safetensors", *ops, trainer->params, config);

  // A rung of lower precision has its own tolerance against fp32.
  const bool fp32 = GetParam().math == MathMode::fp32;
  const double tolerance = fp32 ? kFp32Tolerance : GetParam().tolerance + kFp32Tolerance;
  Loader data(std::make_shared<const Tokens>(folder + "/tokens.bin", config.V), config.B, config.T);
  const auto losses = reference["losses"].get<std::vector<double>>();
  const auto norms = reference["norms"].get<std::vector<double>>();
  ASSERT_EQ(losses.size(), 10U);
  for (size_t step = 0; step < losses.size(); ++step) {
    trainer->step(data, static_cast<int64_t>(step), reference["lr"]);
    EXPECT_TRUE(std::abs(trainer->train_loss() - losses[step]) <= tolerance * losses[step])
        << "step " << step << ": loss " << trainer->train_loss() << ", PyTorch's " << losses[step];
    if (!fp32) continue;
    EXPECT_TRUE(std::abs(trainer->grad_norm() - norms[step]) <= tolerance * norms[step])
        << "step " << step << ": norm " << trainer->grad_norm() << ", PyTorch's " << norms[step];
  }
}

INSTANTIATE_TEST_SUITE_P(Ladder, HuggingFaceParity, ::testing::ValuesIn(ladder()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace stepladder
