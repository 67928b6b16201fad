// Every rung on CUDA against the same rung on the CPU, from equal data and initialisation, for a few steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/plan/ladder.h"
#include "model/arena.h"
#include "model/config.h"
#include "model/data.h"
#include "model/decoder.h"
#include "model/device.h"
#include "model/error.h"
#include "model/gpt2.h"
#include "model/ops.h"
#include "model/random.h"
#include "tests/command.h"
#include "tests/files.h"
#include "tests/gpu_options.h"
#include "tests/losses.h"
#include "tests/trainers.h"

namespace stepladder {

namespace {

struct Case {
  RungBuild rung;
  DType half = DType::bf16;
};

std::string name_of(const Case& c) {
  return c.rung.name + (c.half == DType::f16 ? "_fp16" : "");
}

void PrintTo(const Case& c, std::ostream* out) {
  *out << name_of(c);
}

constexpr int64_t kPoisonBytes = 256;  // space that poisoning takes of an arena

/// Fills an arena of `bytes` bytes with -1 as integers, which are NaN in every float type, so that reads of
/// unwritten memory show. The arena must be unused.
void poison(Ops& ops, Arena& arena, int64_t bytes) {
  Tensor block = arena.alloc("poison", DType::i32, {kPoisonBytes / 4});
  block.shape = {bytes / 4};
  const std::vector<int32_t> ones(static_cast<size_t>(bytes / 4), -1);
  ops(Upload{block, ones.data()});
}

constexpr int kSteps = 5;

/// A model that trains fast. No extent but C is a multiple of a warp; B*T is a multiple of 16, which FP8
/// needs.
Config small_config() {
  Config config;
  config.B = 3, config.T = 48, config.max_T = 60, config.V = 307, config.L = 2, config.NH = 4, config.C = 64;
  return config;
}

/// A model large enough for cuDNN's attention and tensor cores' GEMM algorithms; HS is GPT-2's 64.
Config larger_config() {
  Config config;
  config.B = 2, config.T = 128, config.max_T = 128, config.V = 512, config.L = 2, config.NH = 2,
  config.C = 128;
  return config;
}

/// The loss and gradient norm of each step, and the first batch's loss after the last step.
struct Trajectory {
  std::vector<float> losses, norms;
  float first_again = 0.0F;
};

class TrainerGpuTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    open_device(cuda_, {.deterministic = true});
    if (!cuda_) return;
    const Rung& rung = find_rung(GetParam().rung.name);
    const std::string reason = unsupported_reason(rung.compute_capability, cuda_->device().info());
    if (!reason.empty()) GTEST_SKIP() << reason;
    if (rung.math == MathMode::half && GetParam().half == DType::bf16 && !cuda_->device().info().bf16)
      GTEST_SKIP() << "no bf16 on this device";

    std::vector<uint16_t> tokens;
    for (uint64_t i = 0; i < 4000; ++i)
      tokens.push_back(
          static_cast<uint16_t>(random_bits(7, i / 2) % static_cast<uint64_t>(small_config().V)));
    file_ = std::make_shared<const Tokens>("random tokens", std::move(tokens), small_config().V);
  }

  Trajectory train(Ops& ops, bool poisoned = false, Config config = small_config(),
                   int accumulate = 2) const {
    config.half = GetParam().half;
    Hyper hyper;
    hyper.accumulate = accumulate;
    Arena plan;
    GetParam().rung.make(ops, plan, config, hyper);
    const int64_t bytes = plan.bytes() + (poisoned ? kPoisonBytes : 0);
    Arena arena(ops, bytes);
    if (poisoned) poison(ops, arena, bytes);
    const auto trainer = GetParam().rung.make(ops, arena, config, hyper);
    trainer->reset();
    trainer->init(1337);
    trainer->prepare();
    Loader data(file_, config.B, config.T);
    Trajectory trajectory;
    for (int step = 0; step < kSteps; ++step) {
      trainer->step(data, step, 1e-3F);
      trajectory.losses.push_back(trainer->train_loss());
      trajectory.norms.push_back(trainer->grad_norm());
    }
    data.seek(0);
    trajectory.first_again = trainer->evaluate(data, accumulate);
    return trajectory;
  }

  /// The rounding error of operands of the rung's GEMMs.
  float epsilon() const {
    switch (find_rung(GetParam().rung.name).math.value()) {
      case MathMode::fp32:
        return 0x1p-24F;
      case MathMode::tf32:
        return 0x1p-11F;
      case MathMode::half:
        return GetParam().half == DType::f16 ? 0x1p-11F : 0x1p-8F;
      case MathMode::fp8:
        return 0x1p-4F;
    }
    throw std::logic_error("unknown math");
  }

  /// Expects the loss and gradient norm of each step to agree as far as the rung's tolerance allows.
  static void expect_agreement(const Trajectory& got, const Trajectory& expected) {
    const double rung = rounding_of(find_rung(GetParam().rung.name));
    expect_close(got.losses, expected.losses, std::max(1e-4, rung), "loss");
    expect_close(got.norms, expected.norms, std::max(1e-3, 10.0 * rung), "gradient norm");
    EXPECT_LT(got.first_again, got.losses.front());
  }

  std::unique_ptr<Ops> cuda_;
  std::shared_ptr<const Tokens> file_;
};

TEST_P(TrainerGpuTest, LearnsAsOnTheCpu) {
  const std::unique_ptr<Ops> cpu = make_cpu_ops();
  const Trajectory expected = train(*cpu), got = train(*cuda_);
  // Differences start at rounding and grow from step to step, as AdamW divides small gradients by their own
  // size.
  expect_agreement(got, expected);
}

// This configuration is the one that is measured, with searched GEMM algorithms and cuDNN's order of sums;
// the other tests fix the order of every sum, which excludes both.
TEST_P(TrainerGpuTest, LearnsAsOnTheCpuInTheConfigurationThatIsMeasured) {
  const std::unique_ptr<Ops> cpu = make_cpu_ops(), cuda = make_cuda_ops(0, gpu_test_options());
  for (const int accumulate : {1, 2}) {  // 1: gradients have the activations' type
    SCOPED_TRACE(accumulate);
    const Trajectory expected = train(*cpu, false, larger_config(), accumulate);
    const Trajectory got = train(*cuda, false, larger_config(), accumulate);
    expect_agreement(got, expected);
    // Before the first update only rounding differs: a random walk of an epsilon for each GEMM on the longest
    // path, 9 a layer in forward and backward and 3 of the classifier; in fp32 also of sums of up to V terms.
    const Config config = larger_config();
    const float gemms = std::sqrt(static_cast<float>(9 * config.L + 3));
    const float length = epsilon() < 0x1p-20F ? std::sqrt(static_cast<float>(config.V)) : 1.0F;
    const float first = gemms * length * epsilon();
    EXPECT_TRUE(std::fabs(got.losses[0] - expected.losses[0]) <= first * expected.losses[0])
        << got.losses[0] << ", expected " << expected.losses[0];
    EXPECT_TRUE(std::fabs(got.norms[0] - expected.norms[0]) <= first * expected.norms[0])
        << got.norms[0] << ", expected " << expected.norms[0];
  }
}

// The decoder's logits of a text that grows beyond the positions, a token at a time, are the trainer's.
TEST_P(TrainerGpuTest, IsReadByTheDecoderOnePositionAtATime) {
  Config config = small_config();
  config.half = GetParam().half;
  Arena plan;
  Decoder(*cuda_, plan, *GetParam().rung.make(*cuda_, plan, config, {}));
  Arena arena(*cuda_, plan.bytes() + kPoisonBytes);
  poison(*cuda_, arena, plan.bytes() + kPoisonBytes);
  const auto trainer = GetParam().rung.make(*cuda_, arena, config, {});
  Decoder decoder(*cuda_, arena, *trainer);
  trainer->reset();
  trainer->init(1337);
  trainer->prepare();
  Loader data(file_, config.B, config.T);
  for (int step = 0; step < kSteps; ++step) trainer->step(data, step, 1e-2F);
  trainer->gather_state();

  decoder.restart();
  std::vector<int32_t> text = {5, 300, 17};
  // Both round 8 results a layer and 2 of the classifier; in fp32 sums of up to 4C terms too.
  const auto roundings = static_cast<float>(8 * config.L + 2);
  const float length = epsilon() < 0x1p-20F ? std::sqrt(4.0F * static_cast<float>(config.C)) : 1.0F;
  while (std::ssize(text) < config.T + 2) {
    const auto expected = trainer->next_logits(text), logits = decoder.next_logits(text);
    float largest = 0.0F;
    for (const float x : expected) largest = std::max(largest, std::fabs(x));
    for (size_t i = 0; i < logits.size(); ++i)
      ASSERT_TRUE(std::fabs(logits[i] - expected[i]) <= roundings * length * epsilon() * largest)
          << "after " << text.size() << " tokens " << logits[i] << ", expected " << expected[i];
    text.push_back(static_cast<int32_t>(std::ranges::max_element(expected) - expected.begin()));
  }
}

TEST_P(TrainerGpuTest, GivesTheSameBitsTwice) {
  const Trajectory first = train(*cuda_), second = train(*cuda_);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.norms, second.norms);
}

TEST_P(TrainerGpuTest, ReadsNothingBeforeItWasWritten) {
  const Trajectory clean = train(*cuda_), poisoned = train(*cuda_, true);
  EXPECT_EQ(clean.losses, poisoned.losses);
  EXPECT_EQ(clean.norms, poisoned.norms);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const RungBuild& rung : linked_rungs())
    for (const DType half : {DType::bf16, DType::f16})
      if (half == DType::bf16 || find_rung(rung.name).math == MathMode::half) all.push_back({rung, half});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Rungs, TrainerGpuTest, testing::ValuesIn(cases()),
                         [](const auto& test) { return "rung_" + name_of(test.param); });

TEST(RungGpu, SortsTokensOfAVocabularyThatPaddingGivesOneMoreBit) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "needs a CUDA device";
  const TempFolder folder;
  write_file(folder / "text.txt", std::string(100'000, 'a'));
  const Outcome outcome =
      run_in(folder, cat("'", STEPLADDER_BIN,
                         "/10_padded_vocab' --backend cuda --model gpt2-tiny --vocab none --vocabulary 200 ",
                         "--data text.txt --batch 8 --seq 1024 --max-seq 1024 --steps 2"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST(RungGpu, OwnKernelsNeedNoLibrary) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "needs a CUDA device";
  const TempFolder folder;
  std::filesystem::create_directory(folder / "empty");
  write_file(folder / "text.txt", std::string(10'000, 'a'));
  const auto train = [&](const char* rung) {
    return run_in(folder,
                  cat("STEPLADDER_CUDA_LIBRARIES=empty '", STEPLADDER_BIN, "/", rung,
                      "' --backend cuda --model gpt2-tiny --vocab none --data text.txt --batch 2 --steps 2"));
  };
  const Outcome own = train("own_kernels"), baseline = train("00_fp32_baseline");
  EXPECT_EQ(own.code, 0) << own.err;
  EXPECT_NE(baseline.code, 0);
  EXPECT_TRUE(says(baseline.err, {"cuBLAS"})) << baseline.err;
}

TEST(RungGpu, SamplesAsManyTokensAsItIsAsked) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "needs a CUDA device";
  const TempFolder folder;
  for (const char* name : {"09_flash_attention", "13_cuda_graphs", "fp8", "fp8_recompute"}) {
    const Outcome outcome =
        run_in(folder, cat("'", STEPLADDER_BIN, "/", name, "' --backend cuda --model gpt2-tiny --vocab none ",
                           "--steps 0 --prompt a --sample-tokens 64 --temperature 0 --cache ''"));
    EXPECT_EQ(outcome.code, 0) << name << ": " << outcome.err;
    EXPECT_GT(outcome.out.size(), 1U + 64U) << name;  // the prompt, and a byte or more a token
  }
}

}  // namespace
}  // namespace stepladder
