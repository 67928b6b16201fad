// Tracing on a device: every kernel has its op, in recorded steps too, and the phases add up to the step.
#include <gtest/gtest.h>

#include <map>

#include "bench/plan/ladder.h"
#include "tests/gpu_options.h"
#include "tests/traced_step.h"

namespace stepladder {
namespace {

/// A configuration with steps so long that the host's microseconds at either end are far below the 2 %
/// allowed.
Config config_on(const DeviceInfo& device) {
  Config config;
  config.L = 4, config.B = 8;
  config.half = device.bf16 ? DType::bf16 : DType::f16;
  return config;
}

class ProfileGpuTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    open_device(cuda_);
    if (!cuda_) return;
    const std::string reason =
        unsupported_reason(find_rung(GetParam()).compute_capability, cuda_->device().info());
    if (!reason.empty()) GTEST_SKIP() << reason;
  }

  std::unique_ptr<Ops> cuda_;
};

void expect_phases_of_a_step(const nlohmann::ordered_json& profile) {
  std::map<std::string, double> phases;
  for (const auto& row : profile["phases"]) phases[row["name"]] = row["ms"];
  EXPECT_TRUE(profile["phases_add_up"]) << profile["phases_ms"] << " ms of " << profile["device_ms"];
  for (const char* name : {"zero gradients", "data", "encoder", "forward block", "classifier",
                           "classifier backward", "backward block", "encoder backward", "clip", "optimizer"})
    EXPECT_GT(phases[name], 0.0) << name;
  EXPECT_FALSE(phases.contains("other"));
}

TEST_P(ProfileGpuTest, CuptiSeesEveryKernelAndItsOp) {
  const Config config = config_on(cuda_->device().info());
  const TracedStep traced = traced_step(GetParam(), std::move(cuda_), config);
  const std::string source = traced.profile["times"];
  if (!source.starts_with("CUPTI")) GTEST_SKIP() << source;
  expect_phases_of_a_step(traced.profile);
  std::map<int64_t, int> kernels;  // by id of the call
  for (const Span& span : traced.step.times.spans) {
    EXPECT_GE(span.call, 0) << span.kernel << " is of no op";
    EXPECT_LE(span.start_ns, span.end_ns);
    ++kernels[span.call];
  }
  for (const int64_t id : traced.step.calls)
    EXPECT_GT(kernels[id], 0) << traced.calls[static_cast<size_t>(id)].op << " ran nothing";
}

// CUPTI's records are an independent clock. The host learns of a step's end slightly after the last record;
// the step is long, so that this delay is negligible.
TEST_P(ProfileGpuTest, HostDeviceAndCuptiAgreeOnAStepWithinAPercent) {
  const Config config = config_on(cuda_->device().info());
  const TracedStep traced = traced_step(GetParam(), std::move(cuda_), config, /*accumulate=*/32);
  const std::string source = traced.profile["times"];
  if (!source.starts_with("CUPTI")) GTEST_SKIP() << source;
  const double host = traced.profile["step_ms"], device = traced.profile["device_ms"],
               records = traced.profile["span_ms"];
  EXPECT_GT(records, 1.0);
  EXPECT_NEAR(host / records, 1.0, kClocksApart) << host << " ms, " << records << " ms";
  EXPECT_NEAR(device / records, 1.0, kClocksApart) << device << " ms, " << records << " ms";
  EXPECT_TRUE(traced.profile["clocks_agree"]);
}

TEST_P(ProfileGpuTest, DeviceEventsTimeEveryOpWhereThereIsNoCupti) {
  const Config config = config_on(cuda_->device().info());
  const auto first = cuda_->device().make_tracer();  // takes the process's only CUPTI
  const TracedStep traced = traced_step(GetParam(), std::move(cuda_), config, 2);
  const std::string source = traced.profile["times"];
  EXPECT_TRUE(source.starts_with("device events")) << source;
  expect_phases_of_a_step(traced.profile);
  EXPECT_EQ(traced.step.times.spans.size(), traced.step.calls.size());
}

TEST_P(ProfileGpuTest, CountsAreThoseOfTheCpu) {
  Config config;
  config.model = "test";
  config.B = 2, config.T = 32, config.max_T = 32, config.V = 200, config.L = 2, config.NH = 2, config.C = 64;
  config.half = cuda_->device().info().bf16 ? DType::bf16 : DType::f16;
  const auto totals = [](const TracedStep& traced) {
    return std::tuple(traced.step.calls.size(), traced.profile["bytes"].get<double>(),
                      traced.profile["flops"].get<double>());
  };
  EXPECT_EQ(totals(traced_step(GetParam(), std::move(cuda_), config, 2)),
            totals(traced_step(GetParam(), make_cpu_ops(), config, 2)));
}

INSTANTIATE_TEST_SUITE_P(Rungs, ProfileGpuTest,
                         testing::Values("00_fp32_baseline", "04_pinned_loader", "08_fused_elementwise",
                                         "11_searched_gemms", "13_cuda_graphs"),
                         [](const auto& test) { return "rung_" + test.param; });

}  // namespace
}  // namespace stepladder
