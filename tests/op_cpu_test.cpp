#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "model/cpu/cpu_ops.h"
#include "model/cpu/exp.h"
#include "model/random.h"
#include "tests/op_cases.h"

namespace stepladder {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Config workspace_config(int64_t rows) {
  Config config;
  config.B = 1;
  config.T = config.max_T = rows;
  return config;
}

/// A backend with tensors to call it on.
class Bench {
 public:
  explicit Bench(int threads = 2) : cpu_(threads), arena_(cpu_, int64_t{256} << 20), ops(cpu_) {
    ops.bind_workspace(arena_, workspace_config(1 << 16));
  }
  Tensor f32(Shape shape, const std::function<float(int64_t)>& value) {
    const Tensor t = arena_.alloc("test/f32", DType::f32, shape);
    for (int64_t i = 0; i < t.numel(); ++i) t.ptr<float>()[i] = value(i);
    return t;
  }
  Tensor f32(Shape shape, float value = 0.0F) {
    return f32(shape, [=](int64_t) { return value; });
  }
  /// Uniform in [-1,1), the same for the same shape and seed.
  Tensor random(Shape shape, uint64_t seed) {
    return f32(shape, [=](int64_t i) { return static_cast<float>(2 * random_uniform(seed, i) - 1); });
  }
  Tensor i32(Shape shape, const std::function<int64_t(int64_t)>& value) {
    const Tensor t = arena_.alloc("test/i32", DType::i32, shape);
    for (int64_t i = 0; i < t.numel(); ++i) t.ptr<int32_t>()[i] = static_cast<int32_t>(value(i));
    return t;
  }

 private:
  CpuOps cpu_;
  Arena arena_;

 public:
  Ops& ops;
};

TEST(OpCpu, MatchesPyTorchOnEveryOp) {
  expect_ops_match_pytorch(*make_cpu_ops());
}

TEST(OpCpu, EveryOpOfTheContractIsComparedWithPyTorch) {
  std::ifstream in(STEPLADDER_SOURCE_DIR "/model/ops.h");
  const std::string header{std::istreambuf_iterator<char>(in), {}};
  std::set<std::string> declared;
  const std::string prefix = "virtual void ";
  for (size_t at = header.find(prefix); at != std::string::npos; at = header.find(prefix, at + 1)) {
    const size_t name = at + prefix.size(), open = header.find('(', name);
    const std::string parameters = header.substr(open + 1, header.find(')', open) - open - 1);
    const bool moves_host_memory = parameters.find("void*") != std::string::npos;
    const bool takes_tensors = parameters.starts_with("Tensor ") || parameters.starts_with("std::span<");
    if (takes_tensors && !moves_host_memory) declared.insert(header.substr(name, open - name));
  }
  EXPECT_GE(declared.size(), 40U);
  for (const auto& op : declared) EXPECT_TRUE(op_calls().contains(op)) << op;
  for (const auto& [op, unused] : op_calls()) EXPECT_TRUE(declared.contains(op)) << op;
}

// Sums of small integers are exact in any order, and small integers are TF32 numbers: so every tile of every
// form must be right to the bit.
TEST(OpCpu, MatmulIsExactOnSmallIntegers) {
  Bench bench;
  const auto digit = [](uint64_t seed) {
    return [=](int64_t i) { return static_cast<float>(random_bits(seed, i) % 7) - 3.0F; };
  };
  struct Case {
    int64_t batch, M, N, K;
  };
  for (const Case& c : {Case{1, 1, 1, 1}, Case{1, 131, 517, 259}, Case{1, 260, 33, 17}, Case{1, 3, 1030, 2},
                        Case{5, 7, 1, 9}, Case{6, 130, 17, 40}, Case{12, 64, 64, 64}}) {
    for (MatOp op : {MatOp::NN, MatOp::NT, MatOp::TN}) {
      for (Precision precision : {Precision::fp32, Precision::tf32}) {
        for (Write write : {Write::set, Write::add}) {
          const auto [batch, M, N, K] = c;
          SCOPED_TRACE(cat("batch ", batch, " M ", M, " N ", N, " K ", K, " op ", static_cast<int>(op),
                           " tf32 ", precision == Precision::tf32, " add ", write == Write::add));
          const auto shape = [&](int64_t rows, int64_t cols) {
            return batch == 1 ? Shape{rows, cols} : Shape{batch, rows, cols};
          };
          const bool at = op == MatOp::TN, bt = op == MatOp::NT;
          const Tensor a = bench.f32(at ? shape(K, M) : shape(M, K), digit(1));
          const Tensor b = bench.f32(bt ? shape(N, K) : shape(K, N), digit(2));
          const Tensor out = bench.f32(shape(M, N), write == Write::add ? 5.0F : kNaN);
          bench.ops.set_matmul_precision(precision);
          bench.ops.matmul(out, a, b, op, write);

          int64_t wrong = 0;
          for (int64_t i = 0; i < batch; ++i) {
            const float *pa = a.ptr<float>() + i * M * K, *pb = b.ptr<float>() + i * K * N;
            for (int64_t m = 0; m < M; ++m) {
              for (int64_t n = 0; n < N; ++n) {
                float expected = write == Write::add ? 5.0F : 0.0F;
                for (int64_t k = 0; k < K; ++k)
                  expected += pa[at ? k * M + m : m * K + k] * pb[bt ? n * K + k : k * N + n];
                wrong += !(out.ptr<float>()[(i * M + m) * N + n] == expected);
              }
            }
          }
          EXPECT_EQ(wrong, 0);
        }
      }
    }
  }
}

TEST(OpCpu, Tf32RoundsToTenBitsOfMantissa) {
  Bench bench;
  const auto through = [&](Precision precision, float x, bool second) {
    const Tensor value = bench.f32({1, 1}, x), one = bench.f32({1, 1}, 1.0F), out = bench.f32({1, 1}, kNaN);
    bench.ops.set_matmul_precision(precision);
    bench.ops.matmul(out, second ? one : value, second ? value : one, MatOp::NN);
    return *out.ptr<float>();
  };
  struct Case {
    float x, rounded;
  };
  constexpr float ulp = 0x1p-10F;
  for (bool second : {false, true}) {
    for (const Case& c : {Case{1.0F, 1.0F}, Case{1 + ulp, 1 + ulp}, Case{-3.0F, -3.0F},
                          Case{2047.0F, 2047.0F}, Case{1 + ulp / 2, 1.0F},  // a tie, to even
                          Case{1 + 3 * ulp / 2, 1 + 2 * ulp},               // a tie, to even
                          Case{1 + ulp / 2 + 0x1p-23F, 1 + ulp},            // above a tie
                          Case{-(1 + ulp / 2 - 0x1p-23F), -1.0F},           // below a tie
                          Case{2 - 0x1p-23F, 2.0F},                         // carries into the exponent
                          Case{2049.0F, 2048.0F}, Case{kInf, kInf}, Case{-kInf, -kInf}, Case{0.0F, 0.0F}}) {
      EXPECT_EQ(through(Precision::tf32, c.x, second), c.rounded) << c.x;
      EXPECT_EQ(through(Precision::fp32, c.x, second), c.x) << c.x;
    }
    EXPECT_TRUE(std::isnan(through(Precision::tf32, kNaN, second)));
  }
}

// The outputs of ops large enough to be shared out, from `threads` threads.
std::vector<float> outputs_of_large_ops(int threads) {
  Bench bench(threads);
  Ops& ops = bench.ops;
  const int64_t B = 3, T = 131, C = 250, NH = 5, V = 1009;
  std::vector<float> all;
  const auto keep = [&](Tensor t) {
    EXPECT_EQ(
        std::count_if(t.ptr<float>(), t.ptr<float>() + t.numel(), [](float x) { return std::isnan(x); }), 0)
        << t;
    all.insert(all.end(), t.ptr<float>(), t.ptr<float>() + t.numel());
  };
  const auto poisoned = [&](Shape shape) { return bench.f32(shape, kNaN); };
  const Tensor x = bench.random({B, T, C}, 1), w = bench.random({V, C}, 2), logits = poisoned({B, T, V});
  const Tensor tokens = bench.i32({B, T}, [](int64_t i) { return i * i % 101; });

  for (Precision precision : {Precision::fp32, Precision::tf32}) {
    const Tensor dx = poisoned({B, T, C}), dw = bench.random({V, C}, 3);
    ops.set_matmul_precision(precision);
    ops.matmul(logits, x, w, MatOp::NT);
    ops.matmul(dx, logits, w, MatOp::NN);
    ops.matmul(dw, logits, x, MatOp::TN, Write::add);
    keep(logits), keep(dx), keep(dw);
  }
  const Tensor q = poisoned({B, NH, T, C / NH}), k = poisoned(q.shape), v = poisoned(q.shape);
  const Tensor att = poisoned({B, NH, T, T}), merged = poisoned({B, T, C});
  ops.split_qkv(q, k, v, bench.random({B, T, 3 * C}, 4));
  ops.matmul(att, q, k, MatOp::NT);
  keep(att);
  ops.causal_softmax_forward(att, att);
  keep(att);
  ops.softmax_backward(att, bench.random(att.shape, 5), att);
  ops.matmul(q, att, v, MatOp::NN);
  ops.merge_heads(merged, q);
  keep(att), keep(merged);

  const Tensor mean = poisoned({B, T}), rstd = poisoned({B, T}), hat = poisoned({B, T, C});
  const Tensor dx = bench.random({B, T, C}, 6), column = bench.random({C}, 7);
  ops.row_mean(mean, x);
  ops.row_rstd(rstd, x, mean, 1e-5F);
  ops.normalize(hat, x, mean, rstd);
  ops.normalize_backward(dx, x, hat, mean, rstd, rstd);
  ops.mul_columns(hat, hat, column);
  ops.add_columns(hat, hat, column);
  ops.sum_rows(column, hat);
  keep(mean), keep(rstd), keep(hat), keep(dx), keep(column);

  const Tensor table = bench.random({V, C}, 8), positions = bench.random({T + 3, C}, 9);
  ops.embedding_forward(hat, tokens, table);
  ops.add_position(hat, positions);
  ops.embedding_backward(table, tokens, hat);
  ops.position_backward(positions, hat);
  keep(hat), keep(table), keep(positions);

  const Tensor logp = poisoned(logits.shape), losses = poisoned({B, T}), total = bench.f32({1}, 0.5F);
  ops.log_softmax_forward(logp, logits);
  ops.nll_loss_forward(losses, logp, tokens);
  ops.add_mean(total, losses);
  ops.nll_loss_backward(logits, tokens, 0.01F);
  ops.log_softmax_backward(logits, logits, logp);
  keep(logp), keep(losses), keep(total), keep(logits);

  const Tensor square = poisoned({1}), out = poisoned(w.shape);
  ops.sum_of_squares(square, w);
  ops.add(out, w, table);
  keep(square), keep(out);
  ops.tanh(out, w);
  keep(out);
  return all;
}

TEST(OpCpu, GivesTheSameBitsOnAnyNumberOfThreads) {
  const std::vector<float> one = outputs_of_large_ops(1);
  for (int threads : {2, 5}) {
    const std::vector<float> many = outputs_of_large_ops(threads);
    ASSERT_EQ(many.size(), one.size());
    EXPECT_EQ(std::memcmp(many.data(), one.data(), one.size() * sizeof(float)), 0) << threads << " threads";
  }
}

TEST(OpCpu, MisfitShapesAndTypesThrowNamingTheOp) {
  Bench bench;
  const Tensor m = bench.f32({4, 6}), t = bench.f32({6, 4}), v = bench.f32({4}), w = bench.f32({6});
  const Tensor cube = bench.f32({2, 4, 6}), heads = bench.f32({2, 3, 4, 2}), scalar = bench.f32({1});
  const Tensor square = bench.f32({4, 4}), ids = bench.i32({4}, [](int64_t) { return 0; });
  const Tensor ids6 = bench.i32({6}, [](int64_t) { return 0; });
  const std::vector<std::pair<std::string, std::function<void(Ops&)>>> calls = {
      {"add", [&](Ops& o) { o.add(m, m, t); }},
      {"add", [&](Ops& o) { o.add(v, v, ids); }},
      {"mul", [&](Ops& o) { o.mul(m, t, m); }},
      {"affine", [&](Ops& o) { o.affine(m, t, 1, 0); }},
      {"pow", [&](Ops& o) { o.pow(m, t, 2); }},
      {"pow", [&](Ops& o) { o.pow(m, m, 4); }},
      {"tanh", [&](Ops& o) { o.tanh(m, t); }},
      {"sqrt", [&](Ops& o) { o.sqrt(m, t); }},
      {"lerp", [&](Ops& o) { o.lerp(m, t, 1); }},
      {"addcmul", [&](Ops& o) { o.addcmul(m, m, t, 1); }},
      {"addcdiv", [&](Ops& o) { o.addcdiv(m, t, m, 1); }},
      {"scale_by", [&](Ops& o) { o.scale_by(m, v); }},
      {"row_mean", [&](Ops& o) { o.row_mean(w, m); }},
      {"row_rstd", [&](Ops& o) { o.row_rstd(v, m, w, 1); }},
      {"normalize", [&](Ops& o) { o.normalize(m, m, v, w); }},
      {"normalize_backward", [&](Ops& o) { o.normalize_backward(m, m, m, v, w, v); }},
      {"mul_columns", [&](Ops& o) { o.mul_columns(m, m, v); }},
      {"add_columns", [&](Ops& o) { o.add_columns(m, m, v); }},
      {"sum_rows", [&](Ops& o) { o.sum_rows(v, m); }},
      {"embedding_forward", [&](Ops& o) { o.embedding_forward(m, ids6, m); }},
      {"embedding_forward", [&](Ops& o) { o.embedding_forward(m, v, m); }},
      {"embedding_backward", [&](Ops& o) { o.embedding_backward(t, ids, m); }},
      {"add_position",
       [&](Ops& o) {
         o.add_position(cube, bench.f32({3, 6}));
       }},
      {"position_backward", [&](Ops& o) { o.position_backward(t, cube); }},
      {"matmul NN", [&](Ops& o) { o.matmul(square, m, m, MatOp::NN); }},
      {"matmul NT", [&](Ops& o) { o.matmul(square, m, t, MatOp::NT); }},
      {"matmul TN", [&](Ops& o) { o.matmul(square, m, m, MatOp::TN); }},
      {"matmul NT",
       [&](Ops& o) {
         o.matmul(bench.f32({2, 4, 4}), cube, bench.f32({3, 4, 6}), MatOp::NT);
       }},
      {"matmul NN", [&](Ops& o) { o.matmul(v, m, w, MatOp::NN); }},
      {"split_qkv", [&](Ops& o) { o.split_qkv(heads, heads, heads, cube); }},
      {"merge_qkv", [&](Ops& o) { o.merge_qkv(cube, heads, heads, heads); }},
      {"split_heads", [&](Ops& o) { o.split_heads(heads, m); }},
      {"merge_heads",
       [&](Ops& o) {
         o.merge_heads(bench.f32({2, 6, 4}), heads);
       }},
      {"causal_mask", [&](Ops& o) { o.causal_mask(m); }},
      {"add_mask", [&](Ops& o) { o.add_mask(m, square); }},
      {"softmax_forward", [&](Ops& o) { o.softmax_forward(m, t); }},
      {"softmax_backward", [&](Ops& o) { o.softmax_backward(m, m, t); }},
      {"causal_softmax_forward", [&](Ops& o) { o.causal_softmax_forward(m, m); }},
      {"causal_softmax_backward", [&](Ops& o) { o.causal_softmax_backward(m, m, m); }},
      {"log_softmax_forward", [&](Ops& o) { o.log_softmax_forward(m, t); }},
      {"log_softmax_backward", [&](Ops& o) { o.log_softmax_backward(m, t, m); }},
      {"nll_loss_forward", [&](Ops& o) { o.nll_loss_forward(w, m, ids); }},
      {"nll_loss_backward", [&](Ops& o) { o.nll_loss_backward(m, ids6, 1); }},
      {"add_mean", [&](Ops& o) { o.add_mean(v, m); }},
      {"sum_of_squares", [&](Ops& o) { o.sum_of_squares(v, m); }},
      {"clip_factor", [&](Ops& o) { o.clip_factor(scalar, v, w, 1); }},
  };
  for (const auto& [op, call] : calls) {
    try {
      call(bench.ops);
      ADD_FAILURE() << op << " did not throw";
    } catch (const std::invalid_argument& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with(op + ":")) << error.what();
    }
  }
}

TEST(OpCpu, TokensOutsideTheTableThrow) {
  Bench bench;
  const Tensor table = bench.f32({3, 2}), out = bench.f32({2, 2}), losses = bench.f32({2});
  for (int64_t bad : {-1, 3}) {
    const Tensor tokens = bench.i32({2}, [=](int64_t i) { return i * bad; });
    EXPECT_THROW(bench.ops.embedding_forward(out, tokens, table), std::invalid_argument);
    EXPECT_THROW(bench.ops.embedding_backward(table, tokens, out), std::invalid_argument);
    EXPECT_THROW(bench.ops.nll_loss_forward(losses, out, tokens), std::invalid_argument);
    EXPECT_THROW(bench.ops.nll_loss_backward(out, tokens, 1), std::invalid_argument);
  }
}

TEST(OpCpu, EmptyTensorsAreFine) {
  Bench bench;
  Ops& ops = bench.ops;
  const Tensor none = bench.f32({0, 4}), column = bench.f32({4}, 2.0F), zero = bench.f32({0});
  ops.add(none, none, none);
  ops.softmax_forward(none, none);
  ops.log_softmax_forward(none, none);
  ops.row_mean(zero, none);
  ops.sum_rows(column, none);
  EXPECT_EQ(column.ptr<float>()[3], 2.0F);
  ops.causal_mask(bench.f32({0, 0}));
  ops.embedding_backward(bench.f32({3, 4}), bench.i32({0}, nullptr), none);
  const Tensor square = bench.f32({1}, kNaN);
  ops.sum_of_squares(square, none);
  EXPECT_EQ(*square.ptr<float>(), 0.0F);

  const Tensor out = bench.f32({2, 3}, kNaN);
  ops.matmul(out, bench.f32({2, 0}), bench.f32({0, 3}), MatOp::NN);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(out.ptr<float>()[i], 0.0F);
  ops.matmul(none, bench.f32({0, 5}), bench.f32({4, 5}), MatOp::NT);
}

TEST(OpCpu, NaNReachesTheLossAndTheGradientNorm) {
  Bench bench;
  Ops& ops = bench.ops;
  const Tensor x = bench.f32({2, 40}, [](int64_t i) { return i == 17 ? kNaN : 1.0F; }),
               p = bench.f32({2, 40});
  ops.softmax_forward(p, x);
  EXPECT_TRUE(std::isnan(p.ptr<float>()[0]));
  EXPECT_EQ(p.ptr<float>()[40], 1.0F / 40);
  ops.log_softmax_forward(p, x);
  EXPECT_TRUE(std::isnan(p.ptr<float>()[39]));
  const Tensor factor = bench.f32({1}), norm = bench.f32({1});
  ops.clip_factor(factor, norm, x.view({80}), 1.0F);
  EXPECT_TRUE(std::isnan(*norm.ptr<float>()));
  EXPECT_TRUE(std::isnan(*factor.ptr<float>()));
}

TEST(OpCpu, ExpIsWithinItsUlps) {
  double worst = 0.0;
  for (uint32_t bits = 0; bits < 0xFFFFE000U; bits += 0x1FFF) {
    const auto x = std::bit_cast<float>(bits);
    if (!(x >= -87.0F && x <= 88.7F)) continue;
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::fabs(exp_float(x) - exact) / std::ldexp(1.0, std::ilogb(exact) - 23));
  }
  EXPECT_TRUE(worst <= 1.1) << worst;
  EXPECT_EQ(exp_float(0.0F), 1.0F);
  EXPECT_EQ(exp_float(-kInf), 0.0F);
  EXPECT_EQ(exp_float(-88.0F), 0.0F);
  EXPECT_EQ(exp_float(-3e38F), 0.0F);
  EXPECT_EQ(exp_float(88.8F), kInf);
  EXPECT_EQ(exp_float(kInf), kInf);
  EXPECT_TRUE(std::isnan(exp_float(kNaN)));
  EXPECT_TRUE(std::isnan(exp_float(-kNaN)));
}

TEST(CpuDevice, TellsWhatItRunsOn) {
  const auto ops = make_cpu_ops();
  const DeviceInfo info = ops->device();
  EXPECT_EQ(info.backend, "cpu");
  EXPECT_EQ(info.compute_capability, 0);
  EXPECT_TRUE(info.blas.starts_with("OpenBLAS ")) << info.blas;
  EXPECT_GT(info.total_memory, int64_t{1} << 28);
  const MemoryInfo memory = ops->memory();
  EXPECT_GT(memory.free, 0);
  EXPECT_LE(memory.free, info.total_memory);
  EXPECT_GT(memory.process_peak, int64_t{1} << 20);
  EXPECT_LT(memory.process_peak, info.total_memory);
}

TEST(CpuDevice, CountsWhatItHandsOut) {
  std::shared_ptr<void> survivor;
  {
    const auto ops = make_cpu_ops();
    auto first = ops->allocate(1000);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first.get()) % 256, 0U);
    std::memset(first.get(), 1, 1000);
    survivor = ops->allocate(500);
    first.reset();
    EXPECT_NE(ops->allocate(700), nullptr);  // fits into what `first` left
    EXPECT_NE(ops->allocate(0), nullptr);
    EXPECT_EQ(ops->memory().reserved_peak, 1500);
  }
  std::memset(survivor.get(), 1, 500);  // a block outlives its backend
}

TEST(CpuDevice, RefusesMoreThanIsAvailable) {
  const auto ops = make_cpu_ops();
  const auto much = static_cast<size_t>(ops->memory().free) + (size_t{4} << 30);
  EXPECT_THROW(ops->allocate(much), OutOfMemoryError);
  EXPECT_THROW(ops->allocate(std::numeric_limits<size_t>::max()), OutOfMemoryError);
  EXPECT_EQ(ops->memory().reserved_peak, 0);
}

TEST(CpuDevice, WorkspaceIsPlannedBeforeItIsNeeded) {
  CpuOps ops(2);
  Arena plan;
  ops.bind_workspace(plan, workspace_config(100));
  EXPECT_GT(plan.bytes(), 0);
  std::vector<float> memory(6);
  std::vector<int32_t> token(1);
  const Tensor m{memory.data(), DType::f32, {1, 1}, "m"}, ids{token.data(), DType::i32, {1}, "ids"};
  EXPECT_THROW(ops.embedding_backward(m, ids, m), std::logic_error);
  ops.set_matmul_precision(Precision::tf32);
  EXPECT_THROW(ops.matmul(m, m, m, MatOp::NN, Write::set), std::logic_error);
  Arena arena(ops, plan.bytes());
  ops.bind_workspace(arena, workspace_config(100));
  EXPECT_NO_THROW(ops.embedding_backward(m, ids, m));
  EXPECT_NO_THROW(ops.matmul(m, m, m, MatOp::NN, Write::set));
}

TEST(CpuDevice, TimesWhatIsBetweenStartAndStop) {
  const auto ops = make_cpu_ops();
  ops->start_timer();
  const auto from = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - from < std::chrono::milliseconds(2)) {
  }
  ops->stop_timer();
  EXPECT_GE(ops->device_ms(), 2.0);
  EXPECT_EQ(ops->device_ms(), ops->device_ms());
}

}  // namespace
}  // namespace stepladder
