// Scaling over devices: rows computed from measured runs, and the model's predictions.
#include "bench/report/scaling.h"

#include <gtest/gtest.h>

#include "bench/report/report.h"
#include "bench/report/scaling_model.h"
#include "bench/report/speedups.h"
#include "bench/results/json.h"
#include "tests/comparable.h"
#include "tests/results.h"

namespace stepladder {
namespace {

// ---- the model -------------------------------------------------------------------------------------------

constexpr double kLink = 100e9, kHop = 4 * 2 * 10e-6;  // bytes/s; seconds of latency of four buckets

TEST(ScalingModel, OneDeviceCommunicatesNothing) {
  EXPECT_EQ(predicted_step_s(0.1, 1e9, 1, kLink), 0.1);
}

TEST(ScalingModel, OnlyTheLastOfFourBucketsShowsWhileBackwardIsLonger) {
  // A ring takes 2 (n-1)/n S / bandwidth.
  EXPECT_DOUBLE_EQ(predicted_step_s(0.1, 1e9, 2, kLink), 0.1 + (0.01 + kHop) / 4);
  EXPECT_DOUBLE_EQ(predicted_step_s(0.1, 1e9, 4, kLink), 0.1 + (0.015 + 3 * kHop) / 4);
}

TEST(ScalingModel, BetweenMachinesGoesOneDevicesShare) {
  // Two machines of eight devices take 2 * 7/8 S / inside + 2 * 1/2 (S/8) / between, which has 50e9 bytes/s.
  EXPECT_DOUBLE_EQ(predicted_step_s(0.1, 1e9, 16, kLink), 0.1 + (0.0175 + 0.125e9 / 50e9 + 8 * kHop) / 4);
}

TEST(ScalingModel, WhatBackwardCannotHideShows) {
  // 1.5 of backward's 2 ms can hide communication.
  EXPECT_DOUBLE_EQ(predicted_step_s(0.003, 1e9, 2, kLink), 0.003 + 0.01 + kHop - 0.0015);
}

TEST(ScalingModel, KnowsOnlyLinksThatItHasASourceForByTheDevicesWholeName) {
  EXPECT_EQ(nominal_link("NVIDIA H200"), 450e9);
  EXPECT_EQ(nominal_link("NVIDIA H100 80GB HBM3"), 450e9);
  EXPECT_EQ(nominal_link("NVIDIA A100-SXM4-40GB"), 300e9);
  EXPECT_EQ(nominal_link("NVIDIA A100-SXM4-80GB"), 300e9);
  for (const char* other : {"Tesla T4", "NVIDIA A100-PCIE-40GB", "NVIDIA A100 80GB PCIe", "NVIDIA H100 PCIe",
                            "NVIDIA H100 NVL", "NVIDIA H200 NVL", "NVIDIA GH200 480GB",
                            "NVIDIA GH200 144G HBM3e", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", ""})
    EXPECT_FALSE(nominal_link(other)) << other;
}

// ---- measured --------------------------------------------------------------------------------------------

/// Adds two runs of `variant` on `devices`, B = `batch` on each: steps of `ms` in the first round, 1 ms more
/// in the second.
void add(Results& results, const std::string& variant, int64_t devices, int64_t batch, double ms,
         bool independent = false) {
  for (int64_t round = 0; round < 2; ++round) {
    Run run = run_of(variant, round, {ms + static_cast<double>(round)});
    run.config["B"] = batch;
    run.config["world_size"] = devices;
    if (independent) run.config["independent_ranks"] = true;
    run.summary->tokens_per_second =
        static_cast<double>(batch * devices) * 1024 / (run.summary->median_step_ms * 1e-3);
    run.summary->memory.by_name = {{"grads/wte", 100'000'000}, {"params/wte", 1}};
    results.runs.push_back(std::move(run));
  }
}

TEST(Scaling, EfficiencyIsThroughputByDevicesWithinARound) {
  Results results = results_of("a", "t");
  add(results, "13_cuda_graphs", 1, 16, 20.0);
  add(results, "14_large_batch", 4, 16, 25.0);
  const auto rows = scaling(results);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].against, "13_cuda_graphs") << "the nearest below on one device";
  EXPECT_EQ(rows[0].devices, 4);
  const double first = 20.0 / 25, second = 21.0 / 26;
  EXPECT_DOUBLE_EQ(rows[0].efficiency.value, (first + second) / 2);
  EXPECT_DOUBLE_EQ(rows[0].speedup.value, 4 * (first + second) / 2);
  EXPECT_DOUBLE_EQ(rows[0].efficiency.interval->lo, first);
  EXPECT_DOUBLE_EQ(rows[0].exposed_ms->value, 5.0);
}

TEST(Scaling, DevicesApartTellWhatIsNotCommunication) {
  Results results = results_of("a", "t");
  add(results, "13_cuda_graphs", 1, 16, 20.0);
  add(results, "14_large_batch", 4, 16, 25.0);
  EXPECT_FALSE(scaling(results).at(0).independent_efficiency || scaling(results).at(0).communication_ms);
  EXPECT_EQ(section_of(results).terminal(true).find("independent"), std::string::npos);
  add(results, "14_large_batch", 4, 16, 22.0, /*independent=*/true);
  const auto rows = scaling(results);
  ASSERT_EQ(rows.size(), 1U) << "independent ranks are no row";
  EXPECT_DOUBLE_EQ(rows[0].efficiency.value, (20.0 / 25 + 21.0 / 26) / 2) << "stays";
  EXPECT_DOUBLE_EQ(rows[0].independent_efficiency->value, (20.0 / 22 + 21.0 / 23) / 2);
  EXPECT_DOUBLE_EQ(rows[0].exposed_ms->value, 5.0);
  EXPECT_DOUBLE_EQ(rows[0].communication_ms->value, 3.0);
  EXPECT_EQ(aggregate(results).size(), 2U) << "nor one of the ladder";
  const Json json = results_file_json(results);
  EXPECT_DOUBLE_EQ(json["scaling"][0]["communication_ms"]["value"].get<double>(), 3.0);
  EXPECT_EQ(results_file_json(results_from(json)), json);
  const std::string terminal = section_of(results).terminal(true);
  for (const char* word : {"independent %", "91.1 (90.9 to 91.3)", "communication ms", "3.00 (3.00 to 3.00)"})
    EXPECT_NE(terminal.find(word), std::string::npos) << word << "\n" << terminal;
}

TEST(Scaling, ARungOnOneDeviceIsItsOwnMeasure) {
  Results results = results_of("a", "t");
  add(results, "13_cuda_graphs", 1, 16, 20.0);
  add(results, "14_large_batch", 1, 16, 22.0);
  add(results, "14_large_batch", 4, 16, 25.0);
  EXPECT_EQ(scaling(results).at(0).against, "14_large_batch");
}

TEST(Scaling, Fp8IsMeasuredAgainstFp8) {
  Results results = results_of("a", "t");
  add(results, "13_cuda_graphs", 1, 16, 28.0);
  EXPECT_TRUE((add(results, "fp8_zero1", 2, 16, 21.0), scaling(results)).empty());
  add(results, "fp8", 1, 16, 20.0);
  EXPECT_EQ(scaling(results).at(0).against, "fp8");
}

TEST(Scaling, StrongScalingSharesTheBatch) {
  Results results = results_of("a", "t");
  results.plan["scaling"] = "strong";
  add(results, "13_cuda_graphs", 1, 16, 20.0);
  add(results, "13_cuda_graphs", 1, 4, 2.0);
  add(results, "14_large_batch", 4, 4, 6.0);
  const auto rows = scaling(results);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].one_batch, 16);
  EXPECT_DOUBLE_EQ(rows[0].speedup.value, (20.0 / 6 + 21.0 / 7) / 2);
  EXPECT_FALSE(rows[0].exposed_ms) << "a smaller batch each has another step to begin with";
}

TEST(Scaling, APeerIsMeasuredAgainstItsOwnRungsOrWhatGoesByItsName) {
  for (const auto& [one, several] : {std::pair("pytorch/13_cuda_graphs", "pytorch/14_large_batch"),
                                     std::pair("llmc", "llmc/14_large_batch")}) {
    Results results = results_of("a", "t");
    add(results, "13_cuda_graphs", 1, 16, 20.0);
    add(results, one, 1, 16, 30.0);
    add(results, several, 2, 16, 30.0);
    const auto rows = scaling(results);
    ASSERT_EQ(rows.size(), 1U) << several;
    EXPECT_EQ(rows[0].against, one);
    EXPECT_DOUBLE_EQ(rows[0].efficiency.value, 1.0) << several;
  }
}

TEST(Scaling, NothingIsClaimedWithoutOneDeviceOrOnAFailure) {
  Results results = results_of("a", "t");
  add(results, "14_large_batch", 4, 16, 25.0);
  EXPECT_TRUE(scaling(results).empty()) << "no single device";
  add(results, "13_cuda_graphs", 1, 16, 20.0);
  EXPECT_EQ(scaling(results).size(), 1U);
  results.runs[1].status = Status::crash;
  EXPECT_TRUE(scaling(results).empty()) << "a round failed";
}

TEST(Scaling, SpeedUpsAreByTimePerTokenOfAllDevices) {
  Results results = results_of("a", "t");
  add(results, "13_cuda_graphs", 1, 16, 20.0);
  add(results, "14_large_batch", 4, 16, 25.0);
  for (const ResultRow& row : aggregate(results))
    if (row.variant == "14_large_batch") {
      ASSERT_TRUE(row.numbers->previous);
      EXPECT_EQ(row.numbers->previous->against, "13_cuda_graphs");
      EXPECT_DOUBLE_EQ(row.numbers->previous->ratio.value, scaling(results)[0].speedup.value);
    }
}

TEST(Scaling, IsATableInTheReportsAndInTheFile) {
  Results results = results_of("a", "t");
  add(results, "13_cuda_graphs", 1, 16, 20.0);
  add(results, "14_large_batch", 4, 16, 20.0);
  const std::string terminal = section_of(results).terminal(true);
  EXPECT_NE(terminal.find("efficiency %"), std::string::npos);
  EXPECT_NE(terminal.find("100.0 (100.0 to 100.0)"), std::string::npos) << terminal;
  EXPECT_NE(section_of(results).markdown().find("## Scaling"), std::string::npos);
  EXPECT_NE(terminal.find("Predicted"), std::string::npos);
  const Json json = results_file_json(results);
  EXPECT_EQ(json["scaling"][0]["efficiency"]["value"], 1.0);
  EXPECT_EQ(results_file_json(results_from(json)), json);
}

TEST(Scaling, APredictionStartsFromOneDeviceAndItsGradients) {
  Results results = results_of("a", "t");
  add(results, "13_cuda_graphs", 1, 16, 20.0);
  add(results, "14_large_batch", 4, 16, 25.0);
  const auto predicted = predicted_scaling(results);
  ASSERT_EQ(predicted.size(), 6U);
  EXPECT_EQ(predicted.back().devices, 64);
  EXPECT_EQ(predicted.back().machines, 8);
  EXPECT_DOUBLE_EQ(predicted.back().efficiency,
                   20.5e-3 / predicted_step_s(20.5e-3, 1e8, 64, *nominal_link("NVIDIA H200")));
  results.context["device"]["name"] = "Tesla T4";
  EXPECT_TRUE(predicted_scaling(results).empty()) << "unknown links";
}

}  // namespace
}  // namespace stepladder
