// The first steps from a Hugging Face checkpoint against PyTorch's, on the same batches.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/plan/ladder.h"
#include "model/checkpoint.h"
#include "tests/files.h"

namespace stepladder {

/// The folder of a reference by tests/reference/make_checkpoint_cases.py: the tiny one that is committed, or
/// what STEPLADDER_HF_PARITY names.
inline std::string parity_folder() {
  const char* folder = std::getenv("STEPLADDER_HF_PARITY");
  return folder ? folder : STEPLADDER_TEST_DATA "/hf_parity";
}

/// Every step's loss, and in fp32 every gradient norm, is PyTorch's within 1e-4 and the rung's own tolerance.
inline void expect_parity(const Rung& rung, Ops& ops) {
  const std::string folder = parity_folder();
  const auto reference = nlohmann::json::parse(read_file(folder + "/losses.json"));
  Config config = config_of_checkpoint(folder + "/model.safetensors");
  config.B = reference["B"];
  config.T = reference["T"];
  const Hyper hyper{.beta1 = reference["beta1"],
                    .beta2 = reference["beta2"],
                    .eps = reference["eps"],
                    .weight_decay = reference["weight_decay"],
                    .grad_clip = reference["grad_clip"]};

  const auto& builds = linked_rungs();
  const auto build = std::ranges::find(builds, rung.name, &RungBuild::name);
  ASSERT_NE(build, builds.end()) << rung.name << " is not linked";
  Arena plan;
  build->make(ops, plan, config, hyper);
  Arena arena(ops, plan.bytes());
  const auto trainer = build->make(ops, arena, config, hyper);
  trainer->reset();
  load_weights(folder + "/model.safetensors", ops, trainer->tensors().params, config, kGpt2);
  trainer->prepare();

  const bool fp32 = rung.math == MathMode::fp32;
  const double tolerance = 1e-4 + (fp32 ? 0.0 : rung.tolerance);
  Loader data(std::make_shared<const Tokens>(folder + "/tokens.bin", config.V), config.B, config.T);
  const auto losses = reference["losses"].get<std::vector<double>>();
  const auto norms = reference["norms"].get<std::vector<double>>();
  ASSERT_GE(losses.size(), 10U);
  for (size_t step = 0; step < losses.size(); ++step) {
    trainer->step(data, static_cast<int64_t>(step), reference["lr"]);
    EXPECT_TRUE(std::abs(trainer->train_loss() - losses[step]) <= tolerance * losses[step])
        << "step " << step << ": loss " << trainer->train_loss() << ", PyTorch's " << losses[step];
    if (!fp32) continue;
    EXPECT_TRUE(std::abs(trainer->grad_norm() - norms[step]) <= tolerance * norms[step])
        << "step " << step << ": norm " << trainer->grad_norm() << ", PyTorch's " << norms[step];
  }
}

}  // namespace stepladder
