// Tests matrices with padded rows: ops neither read nor write the padding.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "model/arena.h"
#include "model/ops.h"
#include "model/random.h"

namespace stepladder {

/// Expects log_softmax of padded logits to equal that of unpadded ones, for short and long rows, and in
/// place.
inline void expect_log_softmax_leaves_padding_alone(Ops& ops) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t V : {37, 1100}) {
    const int64_t N = 3, Vp = V + 5;
    Arena arena(ops, 1 << 19);
    // A tensor of values that depend on row and column, with NaN from column V on.
    const auto tensor = [&](int64_t cols, uint64_t seed) {
      const Tensor t = arena.alloc("tensor", DType::f32, {N, cols});
      std::vector<float> host;
      for (int64_t n = 0; n < N; ++n)
        for (int64_t v = 0; v < cols; ++v)
          host.push_back(v < V ? static_cast<float>(random_uniform(seed, static_cast<uint64_t>(n * V + v)))
                               : kNan);
      ops(Upload{t, host.data()});
      return t;
    };
    // The first V columns; expects the other columns to be NaN still.
    const auto values = [&](Tensor t) {
      std::vector<float> host(static_cast<size_t>(t.numel())), kept;
      ops(Download{host.data(), t});
      for (int64_t i = 0; i < t.numel(); ++i) {
        const float x = host[static_cast<size_t>(i)];
        if (i % t.cols() < V)
          kept.push_back(x);
        else
          EXPECT_TRUE(std::isnan(x)) << "padding was written";
      }
      return kept;
    };
    const Tensor logp = tensor(V, 1), logp_padded = tensor(V, 1);
    ops(LogSoftmaxForward{logp, tensor(V, 2)});
    ops(LogSoftmaxForward{logp_padded, tensor(Vp, 2)});
    EXPECT_EQ(values(logp_padded), values(logp)) << V;

    const Tensor dlogits = tensor(V, 1), dlogits_padded = tensor(Vp, 1), in_place = tensor(Vp, 3);
    ops(LogSoftmaxBackward{dlogits, tensor(V, 3), logp});
    ops(LogSoftmaxBackward{dlogits_padded, tensor(V, 3), logp});
    ops(LogSoftmaxBackward{in_place, in_place, logp});
    EXPECT_EQ(values(dlogits_padded), values(dlogits)) << V;
    EXPECT_EQ(values(in_place), values(dlogits)) << V;

    EXPECT_THROW(ops(LogSoftmaxForward{tensor(Vp, 1), logp}), std::invalid_argument) << "rows are too short";
    EXPECT_THROW(ops(LogSoftmaxBackward{dlogits, dlogits, tensor(Vp, 1)}), std::invalid_argument);
  }
}

}  // namespace stepladder
