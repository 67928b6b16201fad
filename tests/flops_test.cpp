#include "model/flops.h"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "bench/base/peak.h"

namespace stepladder {
namespace {

TEST(Flops, AreNanoGptsAndLlmcsForGpt2) {
  Config config;  // gpt2
  EXPECT_EQ(config.num_params() - config.max_T * config.C, 123'653'376);
  EXPECT_NEAR(flops_per_token_nanogpt(config), 855.2e6, 0.05e6);
  EXPECT_EQ(flops_per_token_llmc(config), 6.0 * 124'475'904 + 6.0 * 12 * 768 * 1024)
      << "V is padded to 50304";
  config.V = 50304;
  EXPECT_EQ(config.num_params(), 124'475'904);
  EXPECT_NEAR(flops_per_token_llmc(config), 803.5e6, 0.05e6);
}

TEST(Flops, CountAttentionAtTheSequenceLengthOfTheBatch) {
  Config config;
  config.T = 512;
  const double attention = 12.0 * 12 * 768 * 512;
  EXPECT_EQ(flops_per_token_nanogpt(config), 6.0 * 123'653'376 + attention);
  EXPECT_EQ(flops_per_token_llmc(config), 6.0 * 124'475'904 + attention / 2);
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
