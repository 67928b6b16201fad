// The first steps from a Hugging Face checkpoint against PyTorch's on the same batches, for GPT-2 and for the
// trainers of the ladder of learning.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "bench/plan/ladder.h"
#include "model/checkpoint.h"
#include "model/safetensors.h"
#include "tests/built.h"
#include "tests/files.h"
#include "tests/losses.h"
#include "tests/trainers.h"

namespace stepladder {

/// The folder of a reference made by tests/reference/make_checkpoint_cases.py: STEPLADDER_HF_PARITY, or the
/// tiny one that is committed.
inline std::string parity_folder() {
  const char* folder = std::getenv("STEPLADDER_HF_PARITY");
  return folder ? folder : STEPLADDER_TEST_DATA "/hf_parity";
}

/// A linked trainer of the reference's size with the reference's batches; its parameters are not yet filled.
struct ParityTraining {
  ParityTraining(const std::string& name, Ops& backend, DType half) : ops(backend) {
    const auto told = nlohmann::json::parse(read_file(folder + "/losses.json"));
    config = config_of_checkpoint(folder + "/model.safetensors");
    config.B = told["B"];
    config.T = told["T"];
    config.half = half;
    lr = told["lr"];
    const Hyper hyper{.beta1 = told["beta1"],
                      .beta2 = told["beta2"],
                      .eps = told["eps"],
                      .weight_decay = told["weight_decay"],
                      .grad_clip = told["grad_clip"],
                      .loss_scale = 256.0F};  // low enough to skip no step
    std::tie(arena, trainer) = built(ops, name, config, hyper);
  }

  const std::string folder = parity_folder();
  Ops& ops;
  Config config;
  float lr = 0.0F;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<Trainer> trainer;
};

/// Expects PyTorch's loss at every step, and in fp32 its gradient norm, within 1e-4 plus the rung's own
/// tolerance.
inline void expect_parity(const Rung& rung, Ops& ops) {
  const std::string folder = parity_folder();
  const auto reference = nlohmann::json::parse(read_file(folder + "/losses.json"));
  const ParityTraining training(rung.name, ops, DType::bf16);
  const Config& config = training.config;
  Trainer* const trainer = training.trainer.get();
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

/// Fills a trainer's parameters as make_learning_cases.py does: from the file, except that matrices
/// initialised to 0 stay 0, and an untied head is wte with its rows in reverse.
inline void load_learning_weights(const ParityTraining& training) {
  const Safetensors file(training.folder + "/model.safetensors");
  training.trainer->init(1337);
  for (const NamedTensor& p : training.trainer->tensors().params.each()) {
    const bool head = p.name == "lm_head.weight";
    const auto& entry = file.tensors().at("transformer." + (head ? "wte.weight" : p.name));
    std::vector<float> stored(static_cast<size_t>(p.tensor.numel())), values = stored;
    training.ops(Download{values.data(), p.tensor});
    if (p.conv1d && std::ranges::count(values, 0.0F) == p.tensor.numel()) continue;
    ASSERT_EQ(entry.bytes.size(), p.tensor.bytes()) << p.name;
    std::memcpy(stored.data(), entry.bytes.data(), entry.bytes.size());
    const auto rows = static_cast<size_t>(p.tensor.rows()), cols = static_cast<size_t>(p.tensor.cols());
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = 0; c < cols; ++c)
        values[r * cols + c] = stored[p.conv1d ? c * rows + r : (head ? rows - 1 - r : r) * cols + c];
    training.ops(Upload{p.tensor, values.data()});
  }
}

/// Expects PyTorch's loss at each step, and in f32 its gradient norm, within `tolerance`, for a trainer of
/// the ladder of learning or one of its ablations. `algorithm` names the trainer that learns the same and has
/// losses of PyTorch's.
inline void expect_learning_parity(const std::string& name, const std::string& algorithm, Ops& ops,
                                   DType half, double tolerance) {
  const auto reference =
      nlohmann::json::parse(read_file(parity_folder() + "/learning.json"))["trainers"][algorithm];
  const ParityTraining training(name, ops, half);
  load_learning_weights(training);
  training.trainer->prepare();
  if (half == DType::f32) ops.set_matmul_precision(Precision::fp32);
  Loader data(std::make_shared<const Tokens>(training.folder + "/tokens.bin", training.config.V),
              training.config.B, training.config.T);
  std::vector<double> losses, norms;
  const auto expected = reference["losses"].get<std::vector<double>>();
  ASSERT_GE(expected.size(), 10U) << name;
  while (losses.size() < expected.size()) {
    training.trainer->step(data, static_cast<int64_t>(losses.size()), training.lr);
    losses.push_back(training.trainer->train_loss());
    norms.push_back(training.trainer->grad_norm());
  }
  expect_close(losses, expected, tolerance, name + ", loss");
  if (half == DType::f32)
    expect_close(norms, reference["norms"].get<std::vector<double>>(), tolerance, name + ", norm");
}

/// Expects parity of a rung.
inline void expect_learning_parity(const Rung& rung, Ops& ops, DType half, double tolerance) {
  expect_learning_parity(rung.name, algorithm_of(rung), ops, half, tolerance);
}

}  // namespace stepladder
