// Every rung on CUDA against the same rung on the CPU: the same data, the same initialisation, a few steps.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/arena.h"
#include "model/config.h"
#include "model/data.h"
#include "model/error.h"
#include "model/gpt2.h"
#include "model/ops.h"
#include "model/random.h"

namespace stepladder {

void PrintTo(const RungBuild& rung, std::ostream* out) {
  *out << rung.name;
}

namespace {

constexpr int kSteps = 5;

/// A model that trains in no time, with no extent a multiple of a warp but C.
Config small_config() {
  Config config;
  config.B = 3, config.T = 50, config.max_T = 60, config.V = 307, config.L = 2, config.NH = 4, config.C = 64;
  return config;
}

/// Loss and gradient norm of each step.
struct Trajectory {
  std::vector<float> losses, norms;
};

class TrainerGpuTest : public testing::TestWithParam<RungBuild> {
 protected:
  void SetUp() override {
    try {
      cuda_ = make_cuda_ops();
    } catch (const UnsupportedError& error) {
      GTEST_SKIP() << error.what();
    }
    std::ifstream in(STEPLADDER_SOURCE_DIR "/variants/ladder.json");
    const auto ladder = nlohmann::json::parse(in);
    for (const auto& rung : ladder.at("rungs"))
      if (rung.at("name") == GetParam().name) ladder_ = rung;
    ASSERT_FALSE(ladder_.is_null()) << GetParam().name << " is not in the ladder table";
    const int needs = ladder_.at("requires").at("compute_capability");
    if (cuda_->device().compute_capability < needs) GTEST_SKIP() << "needs sm_" << needs;

    const std::string path = testing::TempDir() + "trainer_gpu_test_" + GetParam().name + ".bin";
    std::vector<uint16_t> tokens;
    for (uint64_t i = 0; i < 4000; ++i)
      tokens.push_back(
          static_cast<uint16_t>(random_bits(7, i / 2) % static_cast<uint64_t>(small_config().V)));
    write_token_file(path, tokens);
    file_ = std::make_shared<TokenFile>(path, small_config().V);
    std::filesystem::remove(path);
  }

  Trajectory train(Ops& ops) const {
    const Config config = small_config();
    Hyper hyper;
    hyper.accumulate = 2;
    Arena plan;
    GetParam().make(ops, plan, config, hyper);
    Arena arena(ops, plan.bytes());
    const auto trainer = GetParam().make(ops, arena, config, hyper);
    trainer->reset();
    init_params(ops, trainer->params, config, 1337);
    trainer->prepare();
    Loader data(file_, config.B, config.T);
    Trajectory trajectory;
    for (int step = 0; step < kSteps; ++step) {
      trainer->step(data, step, 1e-3F);
      trajectory.losses.push_back(trainer->train_loss());
      trajectory.norms.push_back(trainer->grad_norm());
    }
    return trajectory;
  }

  static void expect_near(const std::vector<float>& got, const std::vector<float>& expected, float tolerance,
                          const char* what) {
    for (int step = 0; step < kSteps; ++step) {
      const float a = got[static_cast<size_t>(step)], b = expected[static_cast<size_t>(step)];
      EXPECT_FALSE(!(std::fabs(a - b) <= tolerance * std::fabs(b)))
          << what << " of step " << step << " is " << a << ", expected " << b;
    }
  }

  std::unique_ptr<Ops> cuda_;
  nlohmann::json ladder_;
  std::shared_ptr<const TokenFile> file_;
};

TEST_P(TrainerGpuTest, LearnsAsOnTheCpu) {
  const std::unique_ptr<Ops> cpu = make_cpu_ops();
  const Trajectory expected = train(*cpu), got = train(*cuda_);
  // Differences start at rounding and grow from step to step, as AdamW divides small gradients by their own
  // size.
  const float rung = ladder_.at("tolerance");
  expect_near(got.losses, expected.losses, std::max(1e-4F, rung), "loss");
  expect_near(got.norms, expected.norms, std::max(1e-3F, 10.0F * rung), "gradient norm");
  EXPECT_LT(got.losses.back(), got.losses.front());
}

TEST_P(TrainerGpuTest, GivesTheSameBitsTwice) {
  const Trajectory first = train(*cuda_), second = train(*cuda_);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.norms, second.norms);
}

INSTANTIATE_TEST_SUITE_P(Rungs, TrainerGpuTest, testing::ValuesIn(linked_rungs()),
                         [](const auto& rung) { return "rung_" + rung.param.name; });

}  // namespace
}  // namespace stepladder
