// The NVTX ranges of a rung, as a profiler sees them.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "bench/run/child.h"
#include "model/ops.h"
#include "tests/files.h"

namespace stepladder {
namespace {

/// The path of every range in order, such as "step/forward block/layer 0/layernorm_forward".
std::vector<std::string> ranges_of(const std::string& rung) {
  const TempFolder folder;
  const std::string record = folder / "ranges";
  const auto text = output_of({"env", "NVTX_INJECTION64_PATH=" STEPLADDER_NVTX_RECORDER,
                               "NVTX_RECORD=" + record, STEPLADDER_BIN "/" + rung, "--backend", "cuda",
                               "--model", "gpt2-tiny", "--batch", "2", "--seq", "32", "--steps", "3"},
                              120);
  EXPECT_TRUE(text) << rung;
  std::istringstream lines(read_file(record));
  std::vector<std::string> open, paths;
  for (std::string line; std::getline(lines, line);) {
    const size_t depth = line.find_first_not_of(' ');
    EXPECT_LE(depth, open.size()) << line;
    open.resize(std::min(depth, open.size()));
    open.push_back(line.substr(depth));
    std::string path;
    for (const std::string& name : open) path += (path.empty() ? "" : "/") + name;
    paths.push_back(path);
  }
  return paths;
}

TEST(Nvtx, RangesNestAsStepPhaseLayerOp) {
  try {
    make_cuda_ops();
  } catch (const UnsupportedError& e) {
    GTEST_SKIP() << e.what();
  }
  const std::vector<std::string> ranges = ranges_of("08_fused_elementwise");
  const auto count = [&](const std::string& path) { return std::count(ranges.begin(), ranges.end(), path); };
  EXPECT_EQ(count("step"), 3) << "one a step, never within another";
  EXPECT_EQ(count("step/classifier"), 3);
  EXPECT_EQ(count("step/forward block"), 3) << "its layers are within it";
  EXPECT_EQ(count("step/forward block/layer 0"), 3);
  EXPECT_GT(count("step/forward block/layer 0/matmul"), 0);
  for (const std::string& path : ranges) {
    const bool in_block = path.find("block/") != std::string::npos;
    EXPECT_TRUE(!in_block || path.find("block/layer ") != std::string::npos)
        << path << " is outside of its layer";
  }
}

}  // namespace
}  // namespace stepladder
