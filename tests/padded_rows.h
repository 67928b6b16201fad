// Matrices whose rows are longer than what is computed: the padding is neither read nor written.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "model/arena.h"
#include "model/ops.h"
#include "model/random.h"

namespace stepladder {

/// matmul with padded logits (5,V+3) against the same without, f32, for the three products of a classifier.
inline void expect_padding_is_left_alone(Ops& ops) {
  constexpr int64_t N = 5, V = 37, C = 24, kPadded = V + 3;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  Config config;
  config.B = 1, config.T = config.max_T = N, config.V = V, config.L = 1, config.NH = 2, config.C = C;
  Arena plan;
  ops.device().bind_workspace(plan, config);
  Arena arena(ops, plan.bytes() + (1 << 20));
  ops.device().bind_workspace(arena, config);

  uint64_t counter = 0;
  const auto tensor = [&](Shape shape, bool random) {
    const Tensor t = arena.alloc("tensor", DType::f32, shape);
    std::vector<float> host(static_cast<size_t>(t.numel()), kNan);
    if (random)  // whole numbers: every order of summation gives the same
      for (float& x : host) x = std::floor(static_cast<float>(random_uniform(3, counter++)) * 9.0F) - 4.0F;
    ops(Upload{t, host.data()});
    return t;
  };
  const auto values = [&](Tensor t) {
    std::vector<float> host(static_cast<size_t>(t.numel()));
    ops(Download{host.data(), t});
    return host;
  };
  const Tensor x = tensor({N, C}, true), wte = tensor({V, C}, true), dlogits = tensor({N, V}, true);
  const Tensor logits = tensor({N, V}, false), padded = tensor({N, kPadded}, false);

  ops(Matmul{logits, x, wte, MatOp::NT});
  ops(Matmul{padded, x, wte, MatOp::NT});
  const auto expected = values(logits), got = values(padded);
  for (int64_t n = 0; n < N; ++n)
    for (int64_t v = 0; v < kPadded; ++v) {
      const float at = got[static_cast<size_t>(n * kPadded + v)];
      if (v < V)
        EXPECT_EQ(at, expected[static_cast<size_t>(n * V + v)]) << n << ' ' << v;
      else
        EXPECT_TRUE(std::isnan(at)) << "padding was written";
    }

  // NaN stays in the padding: a product that reads it shows.
  auto host = got;
  const auto gradient = values(dlogits);
  for (int64_t n = 0; n < N; ++n)
    for (int64_t v = 0; v < V; ++v)
      host[static_cast<size_t>(n * kPadded + v)] = gradient[static_cast<size_t>(n * V + v)];
  ops(Upload{padded, host.data()});
  const Tensor dx = tensor({N, C}, false), dx_padded = tensor({N, C}, false);
  ops(Matmul{dx, dlogits, wte, MatOp::NN});
  ops(Matmul{dx_padded, padded, wte, MatOp::NN});
  EXPECT_EQ(values(dx_padded), values(dx));
  const Tensor dwte = tensor({V, C}, false), dwte_padded = tensor({V, C}, false);
  ops(Matmul{dwte, dlogits, x, MatOp::TN});
  ops(Matmul{dwte_padded, padded, x, MatOp::TN});
  EXPECT_EQ(values(dwte_padded), values(dwte));

  const Tensor batch = tensor({2, N, kPadded}, false), a = tensor({2, N, C}, true),
               b = tensor({2, V, C}, true);
  EXPECT_THROW(ops(Matmul{batch, a, b, MatOp::NT}), std::invalid_argument) << "a batch has no padding";
}

/// log_softmax of padded logits against the same without: short rows and long, in place as well.
inline void expect_log_softmax_leaves_padding_alone(Ops& ops) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t V : {37, 1100}) {
    const int64_t N = 3, Vp = V + 5;
    Arena arena(ops, 1 << 19);
    // Values of a function of row and column, and NaN beyond column V.
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
    // The first V columns; the others have to be NaN still.
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
