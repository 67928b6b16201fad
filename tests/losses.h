// Compares losses with expected ones.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace stepladder {

/// Expects each step's value within `tolerance` of the expected one, relative to it; NaN fails.
template <class T>
void expect_close(const std::vector<T>& got, const std::vector<T>& expected, double tolerance,
                  const std::string& what = "loss") {
  ASSERT_EQ(got.size(), expected.size()) << what;
  ASSERT_FALSE(expected.empty()) << what;
  for (size_t step = 0; step < got.size(); ++step)
    EXPECT_TRUE(std::abs(got[step] - expected[step]) <= tolerance * expected[step])
        << what << " at step " << step << ": " << got[step] << ", expected " << expected[step];
}

}  // namespace stepladder
