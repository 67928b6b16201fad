// Checks every kernel's source: a kernel first waits for the previous one, since it may start before the
// previous one has ended.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "tests/files.h"

namespace stepladder {
namespace {

/// Each kernel of `source` with its first statement: "name_kernel: await_predecessor();".
std::vector<std::string> first_statements(const std::string& source) {
  static const std::regex kernel(R"(__global__[^;{]*?(\w+_kernel)\(([^{;]*)\)\s*\{\s*([^;]*;))");
  std::vector<std::string> found;
  for (std::sregex_iterator at(source.begin(), source.end(), kernel), end; at != end; ++at)
    found.push_back((*at)[1].str() + ": " + (*at)[3].str());
  return found;
}

size_t count(const std::string& text, const std::string& word) {
  size_t times = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++times;
  return times;
}

TEST(Kernels, EachWaitsForTheOneBeforeItFirst) {
  size_t kernels = 0;
  for (const auto& entry : std::filesystem::directory_iterator(STEPLADDER_SOURCE_DIR "/model/cuda")) {
    if (entry.path().extension() != ".cu" && entry.path().extension() != ".cuh") continue;
    const std::string source = read_file(entry.path().string());
    const std::vector<std::string> first = first_statements(source);
    EXPECT_EQ(first.size(), count(source, "__global__"))
        << entry.path() << " has a kernel that was not understood";
    for (const std::string& statement : first)
      EXPECT_TRUE(statement.ends_with(": await_predecessor();")) << entry.path() << ", " << statement;
    // A kernel started in any other way would lack the guarantees of launch().
    EXPECT_EQ(count(source, "<<<"), count(source, "`kernel<<<")) << entry.path();
    // No memory may be read as constant, since the previous kernel may still be writing it.
    static const std::regex constant(R"(const \w+\* ?__restrict__|__ldg\()");
    EXPECT_FALSE(std::regex_search(source, constant)) << entry.path();
    kernels += first.size();
  }
  EXPECT_GT(kernels, 30U);
}

TEST(Kernels, OneThatDoesNotWaitIsFound) {
  EXPECT_EQ(
      first_statements("template <class T>\n__global__ void __launch_bounds__(f(1), 2)\n    a_kernel(T* x, "
                       "int n) {\n  int i = 0;\n  await_predecessor();\n}\n"
                       "__global__ void b_kernel(int* x) {\n  await_predecessor();\n  *x = 1;\n}"),
      (std::vector<std::string>{"a_kernel: int i = 0;", "b_kernel: await_predecessor();"}));
}

}  // namespace
}  // namespace stepladder
