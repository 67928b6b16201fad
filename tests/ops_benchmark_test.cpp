// The ops_benchmark program: it has every op, and its numbers make sense.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/run/child.h"
#include "tests/declared_ops.h"

namespace stepladder {
namespace {

constexpr const char* kProgram = STEPLADDER_BIN "/ops_benchmark";

TEST(OpsBenchmark, HasEveryOpOfTheContract) {
  const auto listed = output_of({kProgram, "--benchmark_list_tests"}, 60);
  ASSERT_TRUE(listed);
  int count = 0;
  for (const std::string& op : declared_ops()) {
    if (op == "stage" || op == "receive") continue;  // benchmarked as one transfer
    ++count;
    EXPECT_NE(listed->find("cpu/" + op + "/"), std::string::npos)
        << op << " is not in bench/ops_benchmark_main.cpp";
  }
  EXPECT_GT(count, 50) << "the contract was not found";
}

// FP8 linear layers with operands of three types can be measured.
TEST(OpsBenchmark, MeasuresLinearLayersInFp8) {
  const auto text = output_of({kProgram, "--benchmark_filter=^cpu/linear_quantize_gelu",
                               "--benchmark_min_time=0.001", "--benchmark_format=json"},
                              120);
  ASSERT_TRUE(text);
  EXPECT_EQ(nlohmann::json::parse(*text)["benchmarks"].size(), 2U);
}

TEST(OpsBenchmark, MeasuresAgainstTheCeiling) {
  const auto text = output_of({kProgram, "--benchmark_filter=^cpu/(add|matmul/attproj)/f32",
                               "--benchmark_min_time=0.01", "--benchmark_format=json"},
                              120);
  ASSERT_TRUE(text);
  const auto json = nlohmann::json::parse(*text);
  ASSERT_EQ(json["benchmarks"].size(), 2U);
  for (const auto& row : json["benchmarks"]) {
    EXPECT_GT(row["real_time"], 0.0);
    EXPECT_GT(row["%ceiling"], 0.0);
  }
  // At B=1 T=64 C=768, in f32: the add moves three (B,T,C), the matmul multiplies (B,T,C) by (C,C).
  const auto times_time = [](const nlohmann::json& row, const char* rate) {
    return row[rate].get<double>() * row["real_time"].get<double>() * 1e-6;
  };
  const auto& add = json["benchmarks"][0];
  const auto& matmul = json["benchmarks"][1];
  EXPECT_NEAR(times_time(add, "bytes/s"), 4.0 * 3 * 64 * 768, 1.0);
  EXPECT_NEAR(times_time(matmul, "bytes/s"), 4.0 * (2 * 64 + 768) * 768, 1.0);
  EXPECT_NEAR(times_time(matmul, "FLOP/s"), 2.0 * 64 * 768 * 768, 1.0);
}

}  // namespace
}  // namespace stepladder
