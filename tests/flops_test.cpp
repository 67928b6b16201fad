#include "model/flops.h"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "bench/base/peak.h"
#include "model/gpt2.h"

namespace stepladder {
namespace {

TEST(Flops, AreNanoGptsAndLlmcsForGpt2) {
  Config config;  // GPT-2 124M
  Arena plan;
  EXPECT_EQ(Params(plan, "params", config).num_params(), config.num_params());
  EXPECT_EQ(config.num_params() - config.max_T * config.C, 123'653'376);
  EXPECT_NEAR(flops_per_token(config).nanogpt, 855.2e6, 0.05e6);
  EXPECT_EQ(flops_per_token(config).llmc, 6.0 * 124'475'904 + 6.0 * 12 * 768 * 1024)
      << "V is padded to 50304";
  config.V = 50304;
  EXPECT_EQ(config.num_params(), 124'475'904);
  EXPECT_NEAR(flops_per_token(config).llmc, 803.5e6, 0.05e6);
}

TEST(Flops, CountAttentionAtTheSequenceLengthOfTheBatch) {
  Config config;
  config.T = 512;
  const double attention = 12.0 * 12 * 768 * 512;
  EXPECT_EQ(flops_per_token(config).nanogpt, 6.0 * 123'653'376 + attention);
  EXPECT_EQ(flops_per_token(config).llmc, 6.0 * 124'475'904 + attention / 2);
}

/// Padded parameters without positions, with an untied head.
struct Untied : ParameterGroup {
  Untied(Arena& arena, const Config& c) : ParameterGroup(arena, "params", DType::f32) {
    declare("wte", {c.V + 1, c.C}, {.name = "wte.weight", .decay = true, .rows = c.V});
    declare("fcw", {c.L + 1, 4 * c.C, c.C},
            {.name = "h.*.mlp.c_fc.weight", .decay = true, .gemm = true, .rows = c.L});
    declare("lnfw", {c.C}, {.name = "ln_f.weight"});
    declare("head", {c.V + 1, c.C}, {.name = "lm_head.weight", .decay = true, .gemm = true, .rows = c.V});
  }
};

TEST(Flops, FollowFromWhatATrainerDeclares) {
  Config config = Config::named("gpt2-tiny");
  config.V = 500;
  Arena plan;
  const Untied params(plan, config);
  const int64_t layers = config.L * 4 * config.C * config.C, head = config.V * config.C;
  const auto attention = static_cast<double>(config.L * config.C * config.T);
  EXPECT_EQ(params.num_params(), layers + 2 * head + config.C) << "without padding";
  EXPECT_EQ(flops_per_token(params, config).nanogpt,
            6.0 * static_cast<double>(layers + head + config.C) + 12.0 * attention)
      << "no GEMM multiplies by wte";
  EXPECT_EQ(flops_per_token(params, config).llmc,
            6.0 * static_cast<double>(layers + 2 * 512 * config.C + config.C) + 6.0 * attention);
}

TEST(Peak, IsTheDenseFigure) {
  EXPECT_EQ(peak_flops("NVIDIA H200", MathMode::half), 989.4e12);
  EXPECT_EQ(peak_flops("NVIDIA H200", MathMode::fp8), 1978.9e12);
  EXPECT_EQ(peak_flops("NVIDIA H200", MathMode::tf32), 494.7e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 80GB HBM3", MathMode::fp32), 67e12);
  EXPECT_EQ(peak_flops("NVIDIA A100-SXM4-80GB", MathMode::half), 312e12);
  EXPECT_EQ(peak_flops("NVIDIA A100-SXM4-80GB", MathMode::tf32), 156e12);
  EXPECT_EQ(peak_flops("NVIDIA A100-SXM4-80GB", MathMode::fp32), 19.5e12);
  EXPECT_EQ(peak_flops("Tesla T4", MathMode::half), 65e12);
  EXPECT_EQ(peak_flops("Tesla T4", MathMode::fp32), 8.1e12);
}

TEST(Peak, IsUnknownRatherThanGuessed) {
  EXPECT_EQ(peak_flops("NVIDIA H300", MathMode::half), std::nullopt);
  EXPECT_EQ(peak_flops("NVIDIA H200 ", MathMode::half), std::nullopt);
  EXPECT_EQ(peak_flops("", MathMode::half), std::nullopt);
  EXPECT_EQ(peak_flops("Tesla T4", MathMode::tf32), std::nullopt);
  EXPECT_EQ(peak_flops("NVIDIA A100-SXM4-80GB", MathMode::fp8), std::nullopt);
}

TEST(Peak, OfADeviceWithoutTf32IsThatOfFullPrecision) {
  DeviceInfo device;
  device.backend = "cuda", device.name = "NVIDIA H200", device.compute_capability = 75;
  EXPECT_EQ(gemm_peak(device, MathMode::tf32), 67e12);
  EXPECT_EQ(gemm_peak(device, MathMode::half), 989.4e12);
  device.compute_capability = 90;
  EXPECT_EQ(gemm_peak(device, MathMode::tf32), 494.7e12);
}

TEST(Mfu, IsTheAchievedFractionOfThePeak) {
  EXPECT_DOUBLE_EQ(mfu(800e6, 500e3, 800e12).value(), 0.5);
  EXPECT_EQ(mfu(800e6, 500e3, std::nullopt), std::nullopt);
  EXPECT_DOUBLE_EQ(mfu(800e6, 1e6, 800e12).value(), 1.0);
}

TEST(Mfu, AboveThePeakIsAnError) {
  EXPECT_THROW(mfu(800e6, 1.01e6, 800e12), std::logic_error);
  EXPECT_THROW(mfu(800e6, -1.0, 800e12), std::logic_error);
  EXPECT_THROW(mfu(800e6, std::numeric_limits<double>::quiet_NaN(), 800e12), std::logic_error);
}

}  // namespace
}  // namespace stepladder
