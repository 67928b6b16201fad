// ops_benchmark from outside: it knows every op, and its numbers make sense.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "bench/child.h"
#include "tests/files.h"

namespace stepladder {
namespace {

constexpr const char* kProgram = STEPLADDER_BIN "/ops_benchmark";

TEST(OpsBenchmark, HasEveryOpOfTheContract) {
  const auto listed = output_of({kProgram, "--benchmark_list_tests"}, 60);
  ASSERT_TRUE(listed);
  const std::string header = read_file(STEPLADDER_SOURCE_DIR "/model/ops.h");
  const std::string ops = header.substr(header.find("// ---- copies"));
  // Two of them together are one transfer, one sets a mode, one only allocates.
  const std::set<std::string> others = {"stage", "receive", "allocate_host", "set_matmul_precision"};
  const std::regex declaration(R"(virtual [\w:<>]+ (\w+)\()");
  int count = 0;
  for (std::sregex_iterator at(ops.begin(), ops.end(), declaration), end; at != end; ++at) {
    const std::string op = (*at)[1];
    if (others.contains(op)) continue;
    ++count;
    EXPECT_NE(listed->find("cpu/" + op + "/"), std::string::npos)
        << op << " is not in bench/ops_benchmark_main.cpp";
  }
  EXPECT_GT(count, 50) << "the contract was not found";
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
    EXPECT_GT(row["bytes/s"], 1e6);
    EXPECT_GT(row["%ceiling"], 0.0);
  }
  EXPECT_GT(json["benchmarks"][1]["FLOP/s"], 1e6);
}

}  // namespace
}  // namespace stepladder
