#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/cpu/exp.h"
#include "model/muon.h"
#include "model/ops.h"
#include "model/random.h"
#include "tests/declared_ops.h"
#include "tests/op_cases.h"
#include "tests/padded_rows.h"

namespace stepladder {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr DType kFloatTypes[] = {DType::f32, DType::bf16, DType::f16};

Config workspace_config(int64_t rows) {
  Config config;
  config.B = 1;
  config.T = config.max_T = rows;
  return config;
}

/// A CPU backend with an arena for tensors.
class Bench {
 public:
  explicit Bench(int threads = 2)
      : backend_(make_cpu_ops(threads)), arena_(*backend_, int64_t{256} << 20), ops(*backend_) {
    ops.device().bind_workspace(arena_, workspace_config(1 << 16));
  }
  Tensor f32(Shape shape, const std::function<float(int64_t)>& value) {
    const Tensor t = arena_.alloc("test/f32", DType::f32, shape);
    for (int64_t i = 0; i < t.numel(); ++i) t.ptr<float>()[i] = value(i);
    return t;
  }
  Tensor f32(Shape shape, float value = 0.0F) {
    return f32(shape, [=](int64_t) { return value; });
  }
  /// Random numbers, uniform in [-1,1), fixed by shape and seed.
  Tensor random(Shape shape, uint64_t seed) {
    return f32(shape, [=](int64_t i) { return static_cast<float>(2 * random_uniform(seed, i) - 1); });
  }
  /// A copy of `x` in `type`.
  Tensor as(DType type, Tensor x) {
    const Tensor t = arena_.alloc("test/copy", type, x.shape);
    ops(Copy{t, x});
    return t;
  }
  Tensor i32(Shape shape, const std::function<int64_t(int64_t)>& value) {
    const Tensor t = arena_.alloc("test/i32", DType::i32, shape);
    for (int64_t i = 0; i < t.numel(); ++i) t.ptr<int32_t>()[i] = static_cast<int32_t>(value(i));
    return t;
  }

 private:
  std::unique_ptr<Ops> backend_;
  Arena arena_;

 public:
  Ops& ops;
};

TEST(OpCpu, MatchesPyTorchOnEveryOp) {
  expect_ops_match_pytorch(*make_cpu_ops());
}

/// The distance of x from its neighbours in `type`.
float unit_in_the_last_place(DType type, float x) {
  const int mantissa = type == DType::bf16 ? 7 : type == DType::f16 ? 10 : 23;
  const int least = type == DType::f16 ? -14 : -126;  // the exponent of subnormals too
  const int exponent = x == 0.0F || !std::isfinite(x) ? least : std::max(std::ilogb(x), least);
  return std::ldexp(1.0F, exponent - mantissa);
}

// Ops with 16-bit operands round once: each result is within half a unit in the last place of what f32
// operands of the same values give. A hundredth is allowed for double sums in another order.
TEST(OpCpu, RoundsOnceWith16BitOperands) {
  const auto backend = make_cpu_ops();
  Ops& ops = *backend;
  // Outputs computed from an intermediate result as stored, so rounded twice.
  const std::set<std::string> read_back = {"layernorm_backward/dbias", "bias_gelu_forward/out"};
  for_each_op_case(
      ops, [&](const OpCaseFile& file, Arena& arena, const std::string& name, const std::string& op) {
        for (DType type : {DType::bf16, DType::f16}) {
          for (int alias = 0, aliases = 0; alias <= aliases; ++alias) {
            SCOPED_TRACE(cat(name_of(type), alias > 0 ? ", in place" : ""));
            OpCase wide(ops, arena, file, name, alias, DType::f32, type);
            OpCase narrow(ops, arena, file, name, alias, type, type);
            op_calls().at(op)(ops, wide);
            if (op == "sgemm") {
              EXPECT_THROW(op_calls().at(op)(ops, narrow), std::invalid_argument) << "f32 alone";
              continue;
            }
            op_calls().at(op)(ops, narrow);
            const auto expected = wide.results();
            for (const auto& [output, result] : narrow.results()) {
              if (read_back.contains(op + "/" + output)) continue;
              EXPECT_EQ(result.type, always_f32(op, output) ? DType::f32 : type) << output;
              const std::vector<float>& exact = expected.at(output).values;
              const std::vector<float> once = rounded_to(result.type, exact);
              for (size_t i = 0; i < once.size(); ++i) {
                const float got = result.values[i];
                if (got == once[i] || (std::isnan(got) && std::isnan(once[i]))) continue;
                const float ulp = unit_in_the_last_place(result.type, exact[i]);
                if (std::fabs(got - exact[i]) <= (result.type == DType::f32 ? 1.0F : 0.51F) * ulp) continue;
                ADD_FAILURE() << output << "[" << i << "] is " << got << ", not the nearest to " << exact[i];
                break;
              }
            }
            narrow.expect_operands_are_left_alone();
            aliases = narrow.aliases();
          }
        }
      });
}

TEST(OpCpu, EveryOpOfTheContractIsComparedWithPyTorch) {
  std::set<std::string> declared = declared_ops(false);
  EXPECT_GE(declared.size(), 40U);
  // PyTorch's conversions to FP8 do not saturate; tests/fp8_test.cpp compares these ops with all FP8 codes.
  for (const char* op :
       {"quantize", "quantize_to_fit", "quantize_gelu", "quantize_gelu_backward", "quantize_layernorm",
        "quantize_layernorm_backward", "linear_quantize_gelu", "linear_quantize_gelu_backward",
        "quantize_cross_entropy", "transpose", "update_scales"})
    EXPECT_EQ(declared.erase(op), 1U) << op;
  for (const auto& op : declared) EXPECT_TRUE(op_calls().contains(op)) << op;
  for (const auto& [op, unused] : op_calls()) EXPECT_TRUE(declared.contains(op)) << op;
}

/// The values of a float tensor.
std::vector<float> values_of(Tensor t) {
  const auto* bytes = static_cast<const std::byte*>(t.data);
  return unpacked(t.dtype, {bytes, bytes + t.bytes()});
}

std::function<float(int64_t)> digit(uint64_t seed) {
  return [=](int64_t i) { return static_cast<float>(random_bits(seed, i) % 7) - 3.0F; };
}

// Small integers are exact in TF32 and in both 16-bit types, and so are their sums in any order: every tile
// of every form must be right to the bit.
TEST(OpCpu, MatmulIsExactOnSmallIntegers) {
  Bench bench;
  struct Case {
    int64_t batch, M, N, K;
  };
  struct Types {
    DType in, out;
    Precision precision;
  };
  for (const Case& c : {Case{1, 1, 1, 1}, Case{1, 131, 517, 259}, Case{1, 260, 33, 17}, Case{1, 3, 1030, 2},
                        Case{5, 7, 1, 9}, Case{6, 130, 17, 40}, Case{12, 64, 64, 64}}) {
    for (MatOp op : {MatOp::NN, MatOp::NT, MatOp::TN}) {
      const auto [batch, M, N, K] = c;
      const auto shape = [batch = batch](int64_t rows, int64_t cols) {
        return batch == 1 ? Shape{rows, cols} : Shape{batch, rows, cols};
      };
      const bool at = op == MatOp::TN, bt = op == MatOp::NT;
      const Tensor a = bench.f32(at ? shape(K, M) : shape(M, K), digit(1));
      const Tensor b = bench.f32(bt ? shape(N, K) : shape(K, N), digit(2));
      std::vector<float> products;
      for (int64_t i = 0; i < batch; ++i) {
        const float *pa = a.ptr<float>() + i * M * K, *pb = b.ptr<float>() + i * K * N;
        for (int64_t m = 0; m < M; ++m) {
          for (int64_t n = 0; n < N; ++n) {
            float sum = 0.0F;
            for (int64_t k = 0; k < K; ++k)
              sum += pa[at ? k * M + m : m * K + k] * pb[bt ? n * K + k : k * N + n];
            products.push_back(sum);
          }
        }
      }
      for (const Types& types :
           {Types{DType::f32, DType::f32, Precision::fp32}, Types{DType::f32, DType::f32, Precision::tf32},
            Types{DType::bf16, DType::bf16, Precision::fp32}, Types{DType::bf16, DType::f32, Precision::tf32},
            Types{DType::f16, DType::f16, Precision::fp32}, Types{DType::f16, DType::f32, Precision::fp32}}) {
        for (Write write : {Write::set, Write::add}) {
          SCOPED_TRACE(cat("batch ", batch, " M ", M, " N ", N, " K ", K, " op ", static_cast<int>(op), " ",
                           name_of(types.in), " to ", name_of(types.out), " tf32 ",
                           types.precision == Precision::tf32, " add ", write == Write::add));
          const float before = write == Write::add ? 5.0F : 0.0F;
          const Tensor out = bench.as(types.out, bench.f32(shape(M, N), write == Write::add ? before : kNaN));
          bench.ops.set_matmul_precision(types.precision);
          bench.ops(Matmul{out, bench.as(types.in, a), bench.as(types.in, b), op, write});
          std::vector<float> expected = products;
          for (float& x : expected) x += before;
          EXPECT_EQ(values_of(out), rounded_to(types.out, expected));
        }
      }
    }
  }
}

TEST(OpCpu, SgemmNeverRoundsToTf32) {
  Bench bench;
  const Tensor x = bench.f32({1, 1}, 1.0F + 0x1p-20F), one = bench.f32({1, 1}, 1.0F),
               out = bench.f32({1, 1}, kNaN);
  bench.ops.set_matmul_precision(Precision::tf32);
  bench.ops(Sgemm{out, x, one, MatOp::NN});
  EXPECT_EQ(values_of(out), values_of(x));
}

// A 16-bit output holds the f32 sum over all of K, rounded once, not between two tiles.
TEST(OpCpu, MatmulRoundsTheWholeSumOnce) {
  Bench bench;
  const int64_t K = 1000;  // 998 ones, then two halves: a sum of 999
  const Tensor a = bench.f32({1, K}, [](int64_t k) { return k < 998 ? 1.0F : 0.5F; });
  for (DType type : {DType::bf16, DType::f16}) {
    const Tensor out = bench.as(type, bench.f32({1, 1}, 1.0F));
    bench.ops(Matmul{out, bench.as(type, a), bench.as(type, bench.f32({K, 1}, 1.0F)), MatOp::NN, Write::add});
    EXPECT_EQ(values_of(out), rounded_to(type, {1000.0F}));
  }
}

// Linear layers of several tiles give, to the bit, what single ops give in f32.
TEST(OpCpu, LinearLayersAreMatmulsWithAnEpilogue) {
  Bench bench;
  Ops& ops = bench.ops;
  const int64_t B = 3, T = 101, Cin = 515, Cout = 530;
  const Tensor x = bench.f32({B, T, Cin}, digit(1)), w = bench.f32({Cout, Cin}, digit(2));
  const Tensor b = bench.f32({Cout}, digit(3)), dout = bench.f32({B, T, Cout}, digit(4));
  const Tensor pre = bench.random({B, T, Cin}, 5);
  const Tensor product = bench.f32({B, T, Cout}, kNaN), dproduct = bench.f32({B, T, Cin}, kNaN);
  ops(Matmul{product, x, w, MatOp::NT});
  ops(AddColumns{product, product, b});
  ops(Matmul{dproduct, dout, w, MatOp::NN});
  const Tensor residual = bench.f32({B, T, Cout}, digit(6)), added = bench.f32({B, T, Cout}, kNaN);
  ops(Add{added, product, residual});

  for (DType type : {DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(name_of(type));
    const auto as = [&](Tensor t) { return bench.as(type, t); };
    const auto poisoned = [&](Shape shape) { return bench.as(type, bench.f32(shape, kNaN)); };
    const Tensor out = poisoned(product.shape), before_gelu = poisoned(product.shape);
    ops(LinearForward{out, as(x), as(w), as(b)});
    EXPECT_EQ(values_of(out), rounded_to(type, values_of(product)));
    ops(LinearForward{out, as(x), as(w), as(b), as(residual)});
    EXPECT_EQ(values_of(out), rounded_to(type, values_of(added)));
    ops(LinearGeluForward{out, before_gelu, as(x), as(w), as(b)});
    EXPECT_EQ(values_of(before_gelu), rounded_to(type, values_of(product)));
    const Tensor gelu = bench.f32(product.shape, kNaN), copy = bench.as(DType::f32, product);
    ops(BiasGeluForward{gelu, copy, bench.f32({Cout})});
    EXPECT_EQ(values_of(out), rounded_to(type, values_of(gelu)));

    const Tensor exact = bench.f32(pre.shape, kNaN), dpre = poisoned(pre.shape);
    ops(GeluBackward{exact, dproduct, bench.as(DType::f32, as(pre))});
    for (Write write : {Write::set, Write::add}) {
      const Tensor db = bench.as(type, bench.f32({Cin}, write == Write::add ? 2.0F : kNaN));
      const Tensor sums = bench.f32({Cin}, write == Write::add ? 2.0F : 0.0F);
      ops(SumRows{sums, exact});
      ops(LinearGeluBackward{dpre, db, as(dout), as(w), as(pre), write});
      EXPECT_EQ(values_of(dpre), rounded_to(type, values_of(exact)));
      EXPECT_EQ(values_of(db), rounded_to(type, values_of(sums)));
    }
  }
}

// A fused op that needs an intermediate result again takes it as stored, already rounded.
TEST(OpCpu, FusedOpsGoOnWithResultsAsStored) {
  Bench bench;
  Ops& ops = bench.ops;
  const int64_t N = 37, C = 70;
  for (DType type : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(name_of(type));
    const auto random = [&](Shape shape, uint64_t seed) { return bench.as(type, bench.random(shape, seed)); };
    const auto poisoned = [&](Shape shape) { return bench.as(type, bench.f32(shape, kNaN)); };
    const Tensor x = random({N, C}, 1), y = random({N, C}, 2), w = random({C}, 3), b = random({C}, 4);
    const Tensor mean = bench.f32({N}, kNaN), rstd = bench.f32({N}, kNaN);
    const Tensor out = poisoned({N, C}), again = poisoned({N, C});
    ops(LayerNormForward{out, mean, rstd, x, w, b});
    const Tensor dx = random({N, C}, 5), dw = random({C}, 6), db = random({C}, 7);
    const Tensor dbias = random({C}, 8), sums = random({C}, 8);
    ops(LayerNormBackward{dx, NormParams{dw, db}, dbias, y, NormInput{x, mean, rstd}, w});
    ops(SumRows{sums, dx});
    EXPECT_EQ(values_of(dbias), values_of(sums));

    ops(BiasGeluForward{out, x, b});
    const Tensor same = bench.as(type, x);
    ops(BiasGeluForward{again, same, bench.as(type, bench.f32({C}))});
    EXPECT_EQ(values_of(out), values_of(again));
  }
}

TEST(OpCpu, CopyConvertsEveryPattern) {
  Bench bench;
  const Tensor wide = bench.f32({1 << 16}, kNaN);
  for (DType type : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(name_of(type));
    const Tensor all = bench.as(type, wide), back = bench.as(type, wide);
    for (int64_t i = 0; i < all.numel(); ++i) static_cast<uint16_t*>(all.data)[i] = static_cast<uint16_t>(i);
    bench.ops(Copy{wide, all});
    const std::vector<float> expected = values_of(all);
    EXPECT_EQ(std::memcmp(wide.data, expected.data(), wide.bytes()), 0);
    bench.ops(Copy{back, wide});
    for (int64_t i = 0; i < all.numel(); ++i) {
      if (std::isnan(expected[static_cast<size_t>(i)])) continue;
      ASSERT_EQ(static_cast<uint16_t*>(back.data)[i], i);
    }
  }
}

/// ClipGradNorm and AdamW with a loss scaler on three tensors, whose gradients are in f16.
class ScaledTraining {
 public:
  ScaledTraining() {
    for (const int64_t C : {3, 4, 5}) {
      const Shape shape{5, C};
      const Tensor w = bench_.random(shape, 1);
      tensors_.push_back({w, bench_.as(DType::f16, w), bench_.f32(shape), bench_.f32(shape),
                          bench_.as(DType::f16, w), tensors_.empty()});
      grads_.push_back(tensors_.back().g);
    }
    bench_.ops(WriteValues{scaler_, {1024.0F, 0.0F, 0.0F, 0.0F}});
  }
  /// A step where each gradient is `value` before it is scaled.
  void step(float value) {
    for (Tensor g : grads_) bench_.ops(Copy{g, bench_.f32(g.shape, value * scaler_.ptr<float>()[0])});
    ++steps_;
    bench_.ops(WriteValues{schedule_, {1e-2F, static_cast<float>(steps_)}});
    bench_.ops(ClipGradNorm{clip_, norm_, grads_, 1e9F, scaler_});
    bench_.ops(AdamWStep{tensors_, schedule_, clip_, {0.9F, 0.95F, 1e-8F, 0.1F}, scaler_});
  }
  void steps(int count, float value) {
    for (int i = 0; i < count; ++i) step(value);
  }
  /// The loss scaler's state: {scale, good steps, skipped steps, overflow}.
  std::vector<float> scaler() const { return values_of(scaler_); }
  void set_scale(float scale) { scaler_.ptr<float>()[0] = scale; }
  float norm() const { return *norm_.ptr<float>(); }
  float clip() const { return *clip_.ptr<float>(); }
  /// All tensors that AdamW writes.
  std::vector<std::vector<float>> state() const {
    std::vector<std::vector<float>> all;
    for (const AdamWTensor& x : tensors_) {
      for (Tensor t : {x.w, x.m, x.v}) all.push_back(values_of(t));
      if (x.param_copy.data) all.push_back(values_of(x.param_copy));
    }
    return all;
  }

 private:
  Bench bench_;
  std::vector<AdamWTensor> tensors_;
  std::vector<Tensor> grads_;
  const Tensor scaler_ = bench_.f32({4}), schedule_ = bench_.f32({2});
  const Tensor clip_ = bench_.f32({1}), norm_ = bench_.f32({1});
  int steps_ = 0;
};

using Floats4 = std::vector<float>;

TEST(LossScaler, OverflowHalvesTheScaleAndSkipsTheStep) {
  ScaledTraining training;
  training.step(1.0F);
  EXPECT_EQ(training.scaler(), (Floats4{1024, 1, 0, 0}));
  EXPECT_EQ(training.clip(), 1.0F / 1024);
  EXPECT_EQ(training.norm(), std::sqrt(5.0F * (3 + 4 + 5)));

  const auto before = training.state();
  training.step(100.0F);  // overflows: 100 * 1024 is beyond f16
  EXPECT_EQ(training.scaler(), (Floats4{512, 0, 1, 1}));
  EXPECT_FALSE(std::isfinite(training.norm()));
  training.step(kNaN);
  EXPECT_EQ(training.scaler(), (Floats4{256, 0, 2, 1}));
  EXPECT_EQ(training.state(), before);

  training.step(100.0F);  // fits at a scale of 256
  EXPECT_EQ(training.scaler(), (Floats4{256, 1, 2, 0}));
  EXPECT_EQ(training.norm(), 100.0F * std::sqrt(5.0F * (3 + 4 + 5)));
  EXPECT_NE(training.state(), before);
}

TEST(LossScaler, SkippedStepsDoNotCountForBiasCorrection) {
  ScaledTraining skipping, without;
  for (float value : {1.0F, kNaN, 2.0F, kInf, -0.5F}) skipping.step(value);
  for (float value : {1.0F, 2.0F, -0.5F}) without.step(value);
  EXPECT_EQ(skipping.state(), without.state());
}

TEST(LossScaler, ScaleDoublesAfterTwoThousandGoodStepsInARow) {
  ScaledTraining training;
  training.steps(1000, 1e-3F);
  training.step(kNaN);
  EXPECT_EQ(training.scaler(), (Floats4{512, 0, 1, 1}));
  training.steps(1999, 1e-3F);
  EXPECT_EQ(training.scaler(), (Floats4{512, 1999, 1, 0}));
  training.step(1e-3F);
  EXPECT_EQ(training.scaler(), (Floats4{1024, 0, 1, 0}));
  training.steps(2000, 1e-3F);
  EXPECT_EQ(training.scaler(), (Floats4{2048, 0, 1, 0}));

  training.set_scale(0x1p24F);
  training.steps(2000, 1e-4F);
  EXPECT_EQ(training.scaler(), (Floats4{0x1p24F, 0, 1, 0}));
}

TEST(OpCpu, Tf32RoundsToTenBitsOfMantissa) {
  Bench bench;
  const auto through = [&](Precision precision, float x, bool second) {
    const Tensor value = bench.f32({1, 1}, x), one = bench.f32({1, 1}, 1.0F), out = bench.f32({1, 1}, kNaN);
    bench.ops.set_matmul_precision(precision);
    bench.ops(Matmul{out, second ? one : value, second ? value : one, MatOp::NN});
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

// Outputs of ops that are large enough to be split among `threads` threads.
std::vector<float> outputs_of_large_ops(int threads) {
  Bench bench(threads);
  Ops& ops = bench.ops;
  const int64_t B = 3, T = 131, C = 250, NH = 5, V = 1009;
  std::vector<float> all;
  const auto keep = [&](Tensor t) {
    const std::vector<float> values = values_of(t);
    EXPECT_EQ(std::count_if(values.begin(), values.end(), [](float x) { return std::isnan(x); }), 0) << t;
    all.insert(all.end(), values.begin(), values.end());
  };
  const auto poisoned = [&](Shape shape) { return bench.f32(shape, kNaN); };
  const Tensor x = bench.random({B, T, C}, 1), w = bench.random({V, C}, 2), logits = poisoned({B, T, V});
  const Tensor tokens = bench.i32({B, T}, [](int64_t i) { return i * i % 101; });

  for (Precision precision : {Precision::fp32, Precision::tf32}) {
    const Tensor dx = poisoned({B, T, C}), dw = bench.random({V, C}, 3);
    ops.set_matmul_precision(precision);
    ops(Matmul{logits, x, w, MatOp::NT});
    ops(Matmul{dx, logits, w, MatOp::NN});
    ops(Matmul{dw, logits, x, MatOp::TN, Write::add});
    keep(logits), keep(dx), keep(dw);
  }
  const Tensor q = poisoned({B, NH, T, C / NH}), k = poisoned(q.shape), v = poisoned(q.shape);
  const Tensor att = poisoned({B, NH, T, T}), merged = poisoned({B, T, C});
  ops(SplitQkv{q, k, v, bench.random({B, T, 3 * C}, 4)});
  ops(Matmul{att, q, k, MatOp::NT});
  keep(att);
  ops(CausalSoftmaxForward{att, att});
  keep(att);
  ops(SoftmaxBackward{att, bench.random(att.shape, 5), att});
  ops(Matmul{q, att, v, MatOp::NN});
  ops(MergeHeads{merged, q});
  keep(att), keep(merged);

  const Tensor mean = poisoned({B, T}), rstd = poisoned({B, T}), hat = poisoned({B, T, C});
  const Tensor dx = bench.random({B, T, C}, 6), column = bench.random({C}, 7);
  ops(RowMean{mean, x});
  ops(RowRstd{rstd, x, mean, 1e-5F});
  ops(Normalize{hat, x, mean, rstd});
  ops(NormalizeBackward{dx, x, hat, mean, rstd, rstd});
  ops(MulColumns{hat, hat, column});
  ops(AddColumns{hat, hat, column});
  ops(SumRows{column, hat});
  keep(mean), keep(rstd), keep(hat), keep(dx), keep(column);

  const Tensor table = bench.random({V, C}, 8), positions = bench.random({T + 3, C}, 9);
  ops(EncoderForward{hat, tokens, table, positions});
  ops(EmbeddingBackward{table, tokens, hat});
  ops(PositionBackward{positions, hat});
  keep(hat), keep(table), keep(positions);

  const Tensor logp = poisoned(logits.shape), losses = poisoned({B, T}), total = bench.f32({1}, 0.5F);
  ops(LogSoftmaxForward{logp, logits});
  ops(NllLossForward{losses, logp, tokens});
  ops(AddMean{total, losses});
  ops(NllLossBackward{logits, tokens, 0.01F});
  ops(LogSoftmaxBackward{logits, logits, logp});
  keep(logp), keep(losses), keep(total), keep(logits);

  const Tensor square = poisoned({1}), out = poisoned(w.shape);
  ops(SumOfSquares{square, w});
  ops(Add{out, w, table});
  keep(square), keep(out);
  ops(Tanh{out, w});
  keep(out);

  for (DType type : {DType::f32, DType::bf16, DType::f16}) {
    const auto as = [&](Tensor t) { return bench.as(type, t); };
    const auto in = [&](Shape shape, uint64_t seed) { return as(bench.random(shape, seed)); };
    const auto empty = [&](Shape shape) { return as(poisoned(shape)); };
    const Tensor y = in({B, T, C}, 11), shift = in({C}, 12), fcw = in({4 * C, C}, 13), fcb = in({4 * C}, 14);
    const Tensor res = empty(y.shape), ln = empty(y.shape), pre = empty({B, T, 4 * C}),
                 act = empty(pre.shape);
    ops(EncoderForward{res, tokens, as(w), in({T, C}, 15)});
    ops(AddBiasResidual{res, res, y, shift});
    ops(LayerNormForward{ln, mean, rstd, res, shift, shift});
    ops(LinearGeluForward{act, pre, ln, fcw, fcb});
    keep(res), keep(ln), keep(mean), keep(rstd), keep(act), keep(pre);
    const Tensor dact = empty(pre.shape), dfcb = in({4 * C}, 16), dfcw = in(fcw.shape, 17);
    ops(LinearGeluBackward{dact, dfcb, y, in({C, 4 * C}, 18), pre, Write::add});
    ops(LinearWeightBackward{dfcw, dfcb, dact, ln, Write::add});
    ops(LayerNormBackward{y, NormParams{shift, in({C}, 19)}, in({C}, 20), ln, NormInput{res, mean, rstd},
                          in({C}, 21)});
    keep(dact), keep(dfcb), keep(dfcw), keep(y), keep(shift);
    ops(LinearForward{pre, ln, fcw, fcb, in(pre.shape, 23)});
    keep(pre);
    ops(LinearForward{pre, ln, fcw, fcb});
    ops(BiasGeluForward{act, pre, fcb});
    ops(GeluBackward{dact, dact, pre});
    keep(pre), keep(act), keep(dact);
    ops(ReluSquaredBackward{dact, act, pre});
    keep(dact);
    ops(ReluSquaredForward{act, dact});
    keep(act);

    const Tensor qkv = in({B, T, 3 * C}, 22), dqkv = empty(qkv.shape), y2 = empty(y.shape);
    const Tensor lse = poisoned({B, NH, T}), scores = in({B, NH, T, T}, 23), heads = empty(q.shape);
    const Tensor angles = poisoned({T, C / NH / 2, 2}), norms = poisoned({B, T, 2 * NH});
    ops(RotaryTable{angles});
    ops(QkNormRotaryForward{qkv, norms, angles});
    keep(qkv), keep(norms);
    ops(QkNormRotaryBackward{qkv, in(qkv.shape, 29), norms, angles});
    keep(qkv);
    ops(AttentionForward{y2, lse, qkv});
    ops(AttentionBackward{dqkv, y, y2, lse, qkv});
    ops(SplitQkv{heads, empty(q.shape), empty(q.shape), qkv});
    ops(ScaledCausalSoftmaxForward{scores, scores, 0.3F});
    keep(y2), keep(lse), keep(dqkv), keep(heads), keep(scores);
    ops(ScaledCausalSoftmaxBackward{scores, in(scores.shape, 25), scores, 0.3F});
    keep(scores);

    const Tensor scored = in({B, T, V + 3}, 26);
    ops(CrossEntropyForward{losses, scored, tokens, V});
    keep(losses);
    ops(CrossEntropyForwardBackward{losses, scored, tokens, V, LossScale{0.01F}});
    keep(losses), keep(scored);
    ops(CrossEntropyForwardBackward{losses, scored, tokens, V, LossScale{0.01F}, 15.0F});
    keep(losses), keep(scored);
    const std::vector<Tensor> grads{scored, dfcw};
    const Tensor norm = poisoned({1}), factor = poisoned({1}), m = bench.random(fcw.shape, 27);
    const Tensor squares = bench.f32(fcw.shape, 0.25F), master = bench.random(fcw.shape, 28);
    ops(ClipGradNorm{factor, norm, grads, 1.0F});
    const std::vector<AdamWTensor> state{{master, dfcw, m, squares, fcw, true}};
    ops(AdamWStep{state, bench.f32({2}, 0.5F), factor, {0.9F, 0.95F, 1e-8F, 0.1F}});
    keep(factor), keep(norm), keep(master), keep(m), keep(squares), keep(fcw);

    const Shape small{7, 130, 70};
    const Tensor momentum = bench.random(small, 30), moved = bench.random(small, 31), update = empty(small);
    const Tensor gram = empty({7, 70, 70});
    ops(MuonMomentum{update, momentum, in(small, 32), factor, 0.95F});
    const Tensor orthogonal = newton_schulz(ops, {update, empty(small), gram, empty(gram.shape)});
    keep(momentum), keep(orthogonal);
    ops(MuonUpdate{moved, update, orthogonal, bench.f32({1}, 0.02F), 0.1F});
    keep(moved), keep(update);
  }
  return all;
}

// Terms added to a sum of 4096 are at most half a step of bf16 there, so a 16-bit sum would lose them.
TEST(OpCpu, GradientsOf16BitTensorsAddUpInF32) {
  constexpr float kBefore = 4096.0F;
  const int64_t B = 2, T = 3, C = 8, V = 5;
  const auto added = [&](DType rounded, DType type) {
    Bench bench;
    Ops& ops = bench.ops;
    std::vector<Tensor> sums;
    const auto sum = [&](Shape shape) { return sums.emplace_back(bench.f32(shape, kBefore)); };
    uint64_t seed = 0;
    const auto in = [&](Shape shape) {
      return bench.as(type, bench.as(rounded, bench.random(shape, ++seed)));
    };
    const Tensor tokens = bench.i32({B, T}, [](int64_t i) { return i % V; });
    const Tensor mean = bench.random({B, T}, 40), rstd = bench.f32({B, T}, 1.5F);
    const Tensor x = in({B, T, C}), dout = in({B, T, C}), wide = in({B, T, 4 * C});
    ops(SumRows{sum({C}), x});
    ops(EmbeddingBackward{sum({V, C}), tokens, dout});
    ops(PositionBackward{sum({T + 1, C}), dout});
    const Tensor dw = sum({C}), db = sum({C}), dbias = sum({C});
    ops(LayerNormBackward{in({B, T, C}), NormParams{dw, db}, dbias, dout, NormInput{x, mean, rstd}, in({C})});
    ops(Matmul{sum({C, 4 * C}), dout, wide, MatOp::TN, Write::add});
    ops(LinearGeluBackward{in({B, T, 4 * C}), sum({4 * C}), dout, in({C, 4 * C}), wide, Write::add});
    const Tensor weight = sum({C, 4 * C}), bias = sum({C});
    ops(LinearWeightBackward{weight, bias, dout, wide, Write::add});
    std::vector<float> all;
    for (const Tensor& t : sums)
      for (int64_t i = 0; i < t.numel(); ++i) all.push_back(t.ptr<float>()[i] - kBefore);
    return all;
  };
  for (const DType type : {DType::bf16, DType::f16}) {
    const auto expected = added(type, DType::f32), got = added(type, type);
    ASSERT_EQ(got.size(), expected.size());
    // LayerNorm rounds its new dx before it sums the rows, so its bias gradient may differ.
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 0.03F) << name_of(type) << i;
  }
}

TEST(OpCpu, GradientsInF32UpdateWeightsAndTheir16BitCopy) {
  Bench bench;
  const Tensor g = bench.random({37}, 1);
  const auto step = [&](DType copied) {
    const Tensor w = bench.random({37}, 2), m = bench.random({37}, 3), v = bench.f32({37}, 0.5F);
    const Tensor copy = bench.as(copied, w);
    const std::vector<AdamWTensor> all{{w, g, m, v, copy, true}};
    bench.ops(AdamWStep{all, bench.f32({2}, 0.5F), bench.f32({1}, 1.0F), {0.9F, 0.95F, 1e-8F, 0.1F}});
    return std::pair{bench.as(copied, w), copy};
  };
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    const auto [expected, got] = step(type);
    EXPECT_EQ(std::memcmp(got.data, expected.data, got.bytes()), 0) << name_of(type);
  }
}

/// A loss of x, and an op's gradient of that loss at x.
struct Differentiated {
  const char* name;
  std::function<double(Tensor)> loss;
  std::function<Tensor(Tensor)> gradient;
};

// Each gradient is held against central differences of the loss, element by element, with steps large enough
// for f32's rounding and losses smooth enough for such steps.
TEST(OpCpu, GradientsOfTheNewArchitectureAreSlopes) {
  Bench bench;
  Ops& ops = bench.ops;
  const int64_t B = 2, T = 3, NH = 2, HS = 6, C = NH * HS, V = 11;
  const Shape qkv{B, T, 3 * C};
  const Tensor dout = bench.random(qkv, 1), table = bench.f32({T, HS / 2, 2});
  const Tensor targets = bench.i32({B, T}, [](int64_t i) { return i * 5 % V; });
  ops(RotaryTable{table});
  const auto dot = [&](Tensor a, Tensor b) {
    double sum = 0.0;
    for (int64_t i = 0; i < a.numel(); ++i) sum += static_cast<double>(a.ptr<float>()[i]) * b.ptr<float>()[i];
    return sum;
  };
  const auto copy_of = [&](Tensor x) { return bench.as(DType::f32, x); };
  std::vector<Differentiated> all;
  all.push_back({"relu_squared",
                 [&](Tensor x) {
                   const Tensor out = copy_of(x);
                   ops(ReluSquaredForward{out, x});
                   return dot(out, dout);
                 },
                 [&](Tensor x) {
                   const Tensor dx = copy_of(x);
                   ops(ReluSquaredBackward{dx, dout, x});
                   return dx;
                 }});
  struct Kind {
    const char* name;
    bool normed, rotated;
  };
  for (const Kind& kind :
       {Kind{"qk norm and rotary", true, true}, Kind{"qk norm", true, false}, Kind{"rotary", false, true}}) {
    const Tensor rstd = kind.normed ? bench.f32({B, T, 2 * NH}) : Tensor{};
    const Tensor angles = kind.rotated ? table : Tensor{};
    const auto forward = [=, &ops](Tensor x) {
      const Tensor y = copy_of(x);
      ops(QkNormRotaryForward{y, rstd, angles});
      return y;
    };
    all.push_back({kind.name, [=](Tensor x) { return dot(forward(x), dout); },
                   [=, &ops](Tensor x) {
                     const Tensor y = forward(x), dx = copy_of(dout);
                     ops(QkNormRotaryBackward{dx, y, rstd, angles});
                     return dx;
                   }});
  }
  all.push_back({"capped cross-entropy",
                 [&](Tensor x) {
                   const Tensor losses = bench.f32({B, T});
                   ops(CrossEntropyForward{losses, x.first({B, T, V + 1}), targets, V, 2.0F});
                   return std::accumulate(losses.ptr<float>(), losses.ptr<float>() + B * T, 0.0);
                 },
                 [&](Tensor x) {
                   const Tensor dx = bench.f32(x.shape), losses = bench.f32({B, T});
                   const Tensor logits = dx.first({B, T, V + 1});
                   ops(Copy{logits, x.first(logits.shape)});
                   ops(CrossEntropyForwardBackward{losses, logits, targets, V, LossScale{1.0F}, 2.0F});
                   return dx;
                 }});
  for (const Differentiated& of : all) {
    SCOPED_TRACE(of.name);
    // Elements keep away from 0, where ReLU^2's slope has a bend.
    const Tensor x = bench.f32(qkv, [](int64_t i) {
      const auto u = static_cast<float>(2 * random_uniform(7, static_cast<uint64_t>(i)) - 1);
      return u + std::copysign(0.2F, u);
    });
    const Tensor gradient = of.gradient(x);
    constexpr float kStep = 0.01F;
    for (int64_t i = 0; i < x.numel(); ++i) {
      const float at = x.ptr<float>()[i];
      x.ptr<float>()[i] = at + kStep;
      const double above = of.loss(x);
      x.ptr<float>()[i] = at - kStep;
      const double below = of.loss(x);
      x.ptr<float>()[i] = at;
      EXPECT_NEAR(gradient.ptr<float>()[i], (above - below) / (2 * double{kStep}), 2e-3) << i;
    }
  }
}

// The rotation keeps values unchanged, and the rotation back restores q and k where no norm was applied.
TEST(OpCpu, RotaryTurnsBackAndLeavesValuesAlone) {
  Bench bench;
  const int64_t B = 2, T = 5, NH = 3, HS = 8, C = NH * HS;
  const Tensor table = bench.f32({T + 4, HS / 2, 2}), before = bench.random({B, T, 3 * C}, 1);
  const Tensor qkv = bench.as(DType::f32, before);
  bench.ops(RotaryTable{table});
  bench.ops(QkNormRotaryForward{qkv, {}, table});
  for (int64_t i = 0; i < qkv.numel(); ++i) {
    const bool value = i % (3 * C) >= 2 * C, first = i / (3 * C) % T == 0;
    EXPECT_EQ(qkv.ptr<float>()[i] == before.ptr<float>()[i], value || first) << i;
  }
  // The product of q and k at two positions depends only on the positions' distance.
  const Tensor same =
      bench.f32({1, T, 3 * C}, [](int64_t i) { return static_cast<float>(i % (3 * C) % 7) - 3; });
  bench.ops(QkNormRotaryForward{same, {}, table});
  const auto score = [&](int64_t t, int64_t s) {
    double sum = 0.0;
    for (int64_t i = 0; i < HS; ++i)
      sum += double{same.ptr<float>()[t * 3 * C + i]} * same.ptr<float>()[s * 3 * C + C + i];
    return sum;
  };
  EXPECT_NEAR(score(4, 2), score(2, 0), 1e-4);
  EXPECT_NEAR(score(3, 2), score(1, 0), 1e-4);
  EXPECT_GT(std::fabs(score(3, 2) - score(2, 0)), 1e-2);

  bench.ops(QkNormRotaryBackward{qkv, {}, {}, table});
  for (int64_t i = 0; i < qkv.numel(); ++i) EXPECT_NEAR(qkv.ptr<float>()[i], before.ptr<float>()[i], 1e-6F);
}

/// Matrices that Muon updates, with scratch of `type`.
class MuonTraining {
 public:
  MuonTraining(const OpCaseFile& file, const std::string& name, DType type, const Tensor& loss_scaler = {})
      : file_(file), prefix_("muon/" + name + '/'), type_(type), scaler_(loss_scaler) {
    const Shape shape = entry("before").shape;
    const int64_t n = shape[0], S = std::min(shape[1], shape[2]);
    w = filled("before");
    m = bench_.f32(shape);
    copy = bench_.as(type, m);
    scratch_ = {bench_.as(type, m), bench_.as(type, m), bench_.as(type, bench_.f32({n, S, S})),
                bench_.as(type, bench_.f32({n, S, S}))};
  }
  void step(int64_t i) {
    const Tensor g = bench_.as(type_, filled(cat('g', i)));
    bench_.ops(MuonMomentum{scratch_.x, m, g, bench_.f32({1}, 1.0F), 0.95F, scaler_});
    orthogonal = newton_schulz(bench_.ops, scratch_);
    bench_.ops(MuonUpdate{w, copy, orthogonal, bench_.f32({1}, kRate), 0.1F, scaler_});
  }
  const OpCaseFile::Entry& entry(const std::string& tensor) const {
    return file_.entries().at(prefix_ + tensor);
  }

  static constexpr float kRate = 0.02F;
  Tensor w, m, copy, orthogonal;

 private:
  Tensor filled(const std::string& tensor) {
    const OpCaseFile::Entry& from = entry(tensor);
    return bench_.f32(from.shape, [&](int64_t i) { return from.data[static_cast<size_t>(i)]; });
  }

  Bench bench_;
  const OpCaseFile& file_;
  const std::string prefix_;
  const DType type_;
  const Tensor scaler_;
  NewtonSchulz scratch_;
};

const OpCaseFile& op_case_file() {
  static const OpCaseFile file(STEPLADDER_TEST_DATA "/op_cases.safetensors");
  return file;
}

// Three steps against torch.optim.Muon in f64. Where a singular value is small, the iterations multiply a
// rounding by up to 3.4445^5: about 500 roundings of a learning rate's step.
TEST(Muon, StepsAreThoseOfPyTorch) {
  for (const char* name : {"wide", "tall", "square"}) {
    for (const DType type : kFloatTypes) {
      SCOPED_TRACE(cat(name, ' ', name_of(type)));
      MuonTraining training(op_case_file(), name, type);
      for (int i = 0; i < 3; ++i) training.step(i);
      const std::vector<float>& expected = training.entry("after").data;
      const float rounding = type == DType::f32 ? 0x1p-24F : type == DType::f16 ? 0x1p-11F : 0x1p-8F;
      const float step = 3.0F * MuonTraining::kRate;
      double moved = 0.0, off = 0.0;
      for (size_t i = 0; i < expected.size(); ++i) {
        const double to = training.w.ptr<float>()[i], from = training.entry("before").data[i];
        if (type == DType::f32) {
          EXPECT_NEAR(to, expected[i], 500 * rounding * step + 1e-6F) << i;
        }
        moved += (expected[i] - from) * (expected[i] - from);
        off += (to - expected[i]) * (to - expected[i]);
      }
      EXPECT_LE(std::sqrt(off / moved), 16 * rounding + 1e-5) << "of all that moved";
      EXPECT_EQ(values_of(training.copy), rounded_to(type, values_of(training.w)));
    }
  }
}

// A wide update's x x^T and a tall one's x^T x are near the identity: the singular values sigma end between
// 0.68 and 1.14 unless they began too small.
TEST(Muon, UpdatesAreNearlyOrthogonal) {
  Bench bench;
  struct Case {
    int64_t R, C;
  };
  for (const Case& c : {Case{20, 50}, Case{50, 20}, Case{30, 30}}) {
    const auto [R, C] = c;
    SCOPED_TRACE(cat(R, " x ", C));
    const int64_t n = 3, S = std::min(R, C);
    const auto scratch = [&](int64_t rows, int64_t cols) { return bench.f32({n, rows, cols}); };
    const Tensor x = scratch(R, C), norms = bench.f32({1}, 1.0F);
    bench.ops(MuonMomentum{x, scratch(R, C), bench.random({n, R, C}, 5), norms, 0.95F});
    const Tensor product = scratch(S, S);
    const Tensor y = newton_schulz(bench.ops, {x, scratch(R, C), scratch(S, S), scratch(S, S)});
    bench.ops(Matmul{product, y, y, R > C ? MatOp::TN : MatOp::NT});
    for (int64_t i = 0; i < n; ++i) {
      double trace = 0.0, squares = 0.0;
      for (int64_t r = 0; r < S; ++r) {
        trace += product[i].ptr<float>()[r * S + r];
        for (int64_t k = 0; k < S; ++k) squares += std::pow(product[i].ptr<float>()[r * S + k], 2);
      }
      // The bound is on the sum of (sigma^2 - 1)^2.
      EXPECT_LE(squares - 2 * trace + static_cast<double>(S), 0.29 * static_cast<double>(S));
    }
  }
}

TEST(Muon, AnOverflowedStepChangesNothing) {
  Bench bench;
  const Tensor scaler = bench.f32({4}, [](int64_t i) { return i == 3 ? 1.0F : 8.0F; });
  MuonTraining training(op_case_file(), "wide", DType::f16, scaler);
  const auto before = std::vector{values_of(training.w), values_of(training.m), values_of(training.copy)};
  training.step(0);
  EXPECT_EQ((std::vector{values_of(training.w), values_of(training.m), values_of(training.copy)}), before);
  scaler.ptr<float>()[3] = 0.0F;
  training.step(0);
  EXPECT_NE(values_of(training.w), before[0]);
  EXPECT_NE(values_of(training.m), before[1]);
}

// MatmulAdd is exact on small integers, as alpha and beta are powers of 2.
TEST(OpCpu, MatmulAddIsExactOnSmallIntegers) {
  Bench bench;
  for (const MatOp op : {MatOp::NN, MatOp::NT, MatOp::TN}) {
    for (const DType type : kFloatTypes) {
      SCOPED_TRACE(cat(name_of(op), ' ', name_of(type)));
      const int64_t n = 3, M = 131, N = 517, K = 30;
      const Tensor a = bench.as(type, bench.f32(op == MatOp::TN ? Shape{n, K, M} : Shape{n, M, K}, digit(1)));
      const Tensor b = bench.as(type, bench.f32(op == MatOp::NT ? Shape{n, N, K} : Shape{n, K, N}, digit(2)));
      const Tensor addend = bench.as(type, bench.f32({n, M, N}, digit(3)));
      const Tensor product = bench.f32({n, M, N}, kNaN), out = bench.as(type, product);
      bench.ops(Matmul{product, a, b, op});
      bench.ops(MatmulAdd{out, a, b, op, addend, 0.5F, -4.0F});
      std::vector<float> expected = values_of(product);
      const std::vector<float> added = values_of(addend);
      for (size_t i = 0; i < expected.size(); ++i) expected[i] = 0.5F * expected[i] - 4.0F * added[i];
      EXPECT_EQ(values_of(out), rounded_to(type, expected));
    }
  }
}

TEST(OpCpu, SymmetricMatmulIsExactOnSmallIntegers) {
  Bench bench;
  for (const MatOp op : {MatOp::NT, MatOp::TN}) {
    for (const DType type : kFloatTypes) {
      SCOPED_TRACE(cat(name_of(op), ' ', name_of(type)));
      const int64_t n = 3, S = 131, K = 30;
      const Shape shape{n, S, S};
      const Tensor a = bench.as(type, bench.f32(op == MatOp::TN ? Shape{n, K, S} : Shape{n, S, K}, digit(1)));
      const Tensor addend = bench.as(type, bench.f32(shape, [=](int64_t i) {
        const int64_t r = i / S % S, c = i % S;
        return digit(2)(i / (S * S) * S * S + std::min(r, c) * S + std::max(r, c));
      }));
      const Tensor product = bench.f32(shape, kNaN), out = bench.as(type, product);
      bench.ops(Matmul{product, a, a, op});
      std::vector<float> expected = values_of(product);
      bench.ops(SymmetricMatmul{out, a, op});
      EXPECT_EQ(values_of(out), rounded_to(type, expected));
      bench.ops(SymmetricMatmul{out, a, op, addend, 0.5F, -4.0F});
      const std::vector<float> added = values_of(addend);
      for (size_t i = 0; i < expected.size(); ++i) expected[i] = 0.5F * expected[i] - 4.0F * added[i];
      EXPECT_EQ(values_of(out), rounded_to(type, expected));
    }
  }
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
  const Tensor low = bench.as(DType::bf16, m);
  const Tensor ids6 = bench.i32({6}, [](int64_t) { return 0; });
  const Tensor ids24 = bench.i32({2, 4}, [](int64_t) { return 0; });
  const Tensor grads[] = {m, ids};
  const AdamWTensor state[] = {{m, t, m, m, {}, true}};
  const auto expect_refused = [&](const std::string& name, const auto& op) {
    try {
      bench.ops(op);
      ADD_FAILURE() << name << " did not throw";
    } catch (const std::invalid_argument& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with(name + ":")) << error.what();
    }
  };
  expect_refused("add", Add{m, m, t});
  expect_refused("add", Add{v, v, ids});
  expect_refused("mul", Mul{m, t, m});
  expect_refused("affine", Affine{m, t, 1, 0});
  expect_refused("pow", Pow{m, t, 2});
  expect_refused("pow", Pow{m, m, 4});
  expect_refused("tanh", Tanh{m, t});
  expect_refused("sqrt", Sqrt{m, t});
  expect_refused("lerp", Lerp{m, t, 1});
  expect_refused("addcmul", AddCMul{m, m, t, 1});
  expect_refused("addcdiv", AddCDiv{m, t, m, 1});
  expect_refused("scale_by", ScaleBy{m, v});
  expect_refused("row_mean", RowMean{w, m});
  expect_refused("row_rstd", RowRstd{v, m, w, 1});
  expect_refused("normalize", Normalize{m, m, v, w});
  expect_refused("normalize_backward", NormalizeBackward{m, m, m, v, w, v});
  expect_refused("mul_columns", MulColumns{m, m, v});
  expect_refused("add_columns", AddColumns{m, m, v});
  expect_refused("sum_rows", SumRows{v, m});
  expect_refused("embedding_backward", EmbeddingBackward{t, ids, m});
  expect_refused("position_backward", PositionBackward{t, cube});
  expect_refused("matmul NN", Matmul{square, m, m, MatOp::NN});
  expect_refused("matmul NT", Matmul{square, m, t, MatOp::NT});
  expect_refused("matmul TN", Matmul{square, m, m, MatOp::TN});
  expect_refused("matmul NT", Matmul{bench.f32({2, 4, 4}), cube, bench.f32({3, 4, 6}), MatOp::NT});
  expect_refused("matmul NN", Matmul{v, m, w, MatOp::NN});
  expect_refused("sgemm NN", Sgemm{square, m, m, MatOp::NN});
  expect_refused("split_qkv", SplitQkv{heads, heads, heads, cube});
  expect_refused("merge_qkv", MergeQkv{cube, heads, heads, heads});
  expect_refused("split_heads", SplitHeads{heads, m});
  expect_refused("merge_heads", MergeHeads{bench.f32({2, 6, 4}), heads});
  expect_refused("causal_mask", CausalMask{m});
  expect_refused("add_mask", AddMask{m, square});
  expect_refused("softmax_forward", SoftmaxForward{m, t});
  expect_refused("softmax_backward", SoftmaxBackward{m, m, t});
  expect_refused("causal_softmax_forward", CausalSoftmaxForward{m, m});
  expect_refused("causal_softmax_backward", CausalSoftmaxBackward{m, m, m});
  expect_refused("log_softmax_forward", LogSoftmaxForward{m, t});
  expect_refused("log_softmax_backward", LogSoftmaxBackward{m, t, m});
  expect_refused("nll_loss_forward", NllLossForward{w, m, ids});
  expect_refused("nll_loss_backward", NllLossBackward{m, ids6, 1});
  expect_refused("add_mean", AddMean{v, m});
  expect_refused("add_mean", AddMean{scalar, bench.f32({0})});
  expect_refused("sum_of_squares", SumOfSquares{v, m});
  expect_refused("clip_factor", ClipFactor{scalar, v, w, 1});
  expect_refused("clip_factor", ClipFactor{scalar, scalar, bench.f32({0}), 1});
  const std::vector<Tensor> mixed = {m, bench.as(DType::bf16, m)};
  expect_refused("clip_grad_norm", ClipGradNorm{scalar, scalar, mixed, 1});
  expect_refused("clip_grad_norm", ClipGradNorm{scalar, scalar, {}, 1});
  expect_refused("copy", Copy{m, t});
  expect_refused("copy", Copy{v, ids});
  expect_refused("write", WriteValues{v, {1, 2, 3}});
  expect_refused("receive", Receive{v, ids});
  expect_refused("linear_forward", LinearForward{square, m, m, w});
  expect_refused("linear_forward", LinearForward{square, m, t, v});
  expect_refused("linear_forward", LinearForward{square, m, m, v, m});
  expect_refused("linear_gelu_forward", LinearGeluForward{square, m, m, m, v});
  expect_refused("linear_gelu_backward", LinearGeluBackward{m, v, square, m, m, Write::set});
  expect_refused("linear_weight_backward", LinearWeightBackward{t, v, m, square, Write::set});
  expect_refused("encoder_forward", EncoderForward{cube, ids24, m, bench.f32({3, 6})});
  expect_refused("layernorm_forward", LayerNormForward{m, v, v, m, w, v});
  expect_refused("layernorm_forward", LayerNormForward{m, w, v, m, w, w});
  expect_refused("add_bias_residual", AddBiasResidual{m, m, m, v});
  expect_refused("add_bias_residual", AddBiasResidual{m, m, t, w});
  expect_refused("layernorm_backward", LayerNormBackward{m, NormParams{w, w}, v, m, NormInput{m, v, v}, w});
  expect_refused("bias_gelu_forward", BiasGeluForward{m, m, v});
  expect_refused("gelu_backward", GeluBackward{m, m, t});
  expect_refused("relu_squared_forward", ReluSquaredForward{m, t});
  expect_refused("relu_squared_forward", ReluSquaredForward{low, m});
  expect_refused("relu_squared_backward", ReluSquaredBackward{m, m, t});
  expect_refused("matmul_add NN", MatmulAdd{square, m, m, MatOp::NN, square, 1, 1});
  expect_refused("matmul_add NT", MatmulAdd{square, m, m, MatOp::NT, m, 1, 1});
  expect_refused("matmul_add NT", MatmulAdd{square, m, m, MatOp::NT, square, 1, 1});
  expect_refused("matmul_add NT",
                 MatmulAdd{square, low, low, MatOp::NT, bench.as(DType::bf16, square), 1, 1});
  const Tensor other = bench.f32({4, 4});
  expect_refused("symmetric_matmul NN", SymmetricMatmul{square, other, MatOp::NN});
  expect_refused("symmetric_matmul NT", SymmetricMatmul{square, t, MatOp::NT});
  expect_refused("symmetric_matmul TN", SymmetricMatmul{square, m, MatOp::TN});
  expect_refused("symmetric_matmul NT", SymmetricMatmul{square, m, MatOp::NT, m, 1, 1});
  expect_refused("symmetric_matmul NT", SymmetricMatmul{square, m, MatOp::NT, {}, 2});
  expect_refused("symmetric_matmul NT", SymmetricMatmul{square, square, MatOp::NT});
  expect_refused("symmetric_matmul NT", SymmetricMatmul{square, m, MatOp::NT, square, 1, 1});
  const Tensor qkv = bench.f32({2, 4, 24}), rstd = bench.f32({2, 4, 4}), table = bench.f32({4, 2, 2});
  expect_refused("rotary_table", RotaryTable{m});
  expect_refused("rotary_table", RotaryTable{table, 0.0F});
  expect_refused("qk_norm_rotary_forward", QkNormRotaryForward{qkv, {}, {}});
  expect_refused("qk_norm_rotary_forward", QkNormRotaryForward{cube, rstd, table});
  expect_refused("qk_norm_rotary_forward", QkNormRotaryForward{qkv, bench.f32({2, 4, 3}), {}});
  expect_refused("qk_norm_rotary_forward", QkNormRotaryForward{qkv, bench.f32({4, 2, 4}), {}});
  expect_refused("qk_norm_rotary_forward", QkNormRotaryForward{qkv, rstd, bench.f32({4, 4, 2})});
  expect_refused("qk_norm_rotary_forward", QkNormRotaryForward{qkv, {}, bench.f32({3, 2, 2})});
  expect_refused("qk_norm_rotary_forward", QkNormRotaryForward{qkv, {}, bench.f32({4, 3, 2})});
  expect_refused("qk_norm_rotary_forward", QkNormRotaryForward{qkv, bench.f32({2, 4, 16}), {}});
  expect_refused("qk_norm_rotary_forward", QkNormRotaryForward{qkv, bench.as(DType::bf16, rstd), {}});
  expect_refused("qk_norm_rotary_backward", QkNormRotaryBackward{qkv, {}, rstd, table});
  expect_refused("qk_norm_rotary_backward", QkNormRotaryBackward{qkv, cube, rstd, table});
  expect_refused("muon_momentum", MuonMomentum{m, m, t, scalar, 0.9F});
  expect_refused("muon_momentum", MuonMomentum{m, low, low, scalar, 0.9F});
  expect_refused("muon_momentum", MuonMomentum{m, m, low, scalar, 0.9F});
  expect_refused("muon_momentum", MuonMomentum{v, v, v, scalar, 0.9F});
  expect_refused("muon_momentum", MuonMomentum{m, m, m, v, 0.9F});
  expect_refused("muon_update", MuonUpdate{m, {}, t, scalar, 0});
  expect_refused("muon_update", MuonUpdate{low, {}, low, scalar, 0});
  expect_refused("muon_update", MuonUpdate{m, m, low, scalar, 0});
  expect_refused("muon_update", MuonUpdate{m, m, m, v, 0});
  expect_refused("cross_entropy_forward", CrossEntropyForward{v, m, ids, 6, -1});
  expect_refused("cross_entropy_forward_backward",
                 CrossEntropyForwardBackward{v, m, ids, 6, LossScale{1}, -1});
  expect_refused("scaled_causal_softmax_forward", ScaledCausalSoftmaxForward{m, m, 1});
  expect_refused("scaled_causal_softmax_backward", ScaledCausalSoftmaxBackward{m, m, m, 1});
  expect_refused("attention_forward", AttentionForward{cube, bench.f32({2, 4, 4}), bench.f32({2, 4, 18})});
  const Tensor grown = bench.f32({2, 6}), kept = bench.f32({2, 4, 6}), new_qkv = bench.f32({2, 18});
  expect_refused("cached_attention", CachedAttention{grown, kept, bench.f32({3, 18}), 0, 2});
  expect_refused("cached_attention", CachedAttention{grown, bench.f32({4, 6}), new_qkv, 0, 2});
  expect_refused("cached_attention", CachedAttention{grown, kept, new_qkv, 3, 2});
  expect_refused("cached_attention", CachedAttention{grown, kept, new_qkv, 0, 4});
  expect_refused("attention_backward",
                 AttentionBackward{cube, cube, cube, bench.f32({2, 3, 4}), bench.f32({2, 4, 18})});
  expect_refused("cross_entropy_forward", CrossEntropyForward{v, m, ids, 7});
  expect_refused("cross_entropy_forward_backward", CrossEntropyForwardBackward{v, m, ids, 6, 1, scalar});
  expect_refused("nll_loss_backward", NllLossBackward{m, ids, 1, scalar});
  expect_refused("clip_grad_norm", ClipGradNorm{scalar, scalar, grads, 1});
  expect_refused("adamw", AdamWStep{state, bench.f32({2}), scalar, {}});
  expect_refused("adamw", AdamWStep{{}, scalar, scalar, {}});
  // Operands of different types are refused.
  expect_refused("add", Add{low, m, m});
  expect_refused("layernorm_forward", LayerNormForward{low, v, v, low, w, w});
  expect_refused("row_mean", RowMean{bench.as(DType::bf16, v), low});
  expect_refused("matmul NT", Matmul{square, low, m, MatOp::NT});
  expect_refused("sgemm NT", Sgemm{bench.as(DType::bf16, square), low, low, MatOp::NT});
  expect_refused("matmul NT", Matmul{bench.as(DType::bf16, square), m, m, MatOp::NT});
  expect_refused("cross_entropy_forward", CrossEntropyForward{bench.as(DType::bf16, v), low, ids, 6});
  expect_refused("add", Add{m, m, low});
  expect_refused("add", Add{ids, v, v});
  expect_refused("mul_columns", MulColumns{low, low, w});
  expect_refused("normalize", Normalize{low, low, bench.as(DType::bf16, v), v});
  expect_refused("log_softmax_forward", LogSoftmaxForward{low, low});
  expect_refused("matmul NT", Matmul{bench.as(DType::f16, square), low, low, MatOp::NT});
  expect_refused("matmul NT", Matmul{square, m, low, MatOp::NT});
  expect_refused("nll_loss_backward", NllLossBackward{m, v, 1});
  expect_refused("layernorm_forward", LayerNormForward{low, v, v, m, w, w});
  expect_refused("gelu_forward", GeluForward{low, m});
  expect_refused("gelu_backward", GeluBackward{m, low, m});
  expect_refused("cross_entropy_forward_backward", CrossEntropyForwardBackward{v, m, v, 6, 1});
  expect_refused("linear_forward", LinearForward{square, m, m, bench.as(DType::f16, v)});
  expect_refused("linear_forward", LinearForward{square, low, m, v});
  expect_refused("linear_forward", LinearForward{square, m, m, v, bench.as(DType::f16, square)});
  expect_refused("write", WriteValues{bench.as(DType::bf16, scalar), {1}});
  // Allowed are f32 gradients of 16-bit operands. Refused are 16-bit gradients of f32 operands, and f32 for
  // only one gradient of a pair.
  expect_refused("sum_rows", SumRows{bench.as(DType::bf16, w), m});
  expect_refused("position_backward", PositionBackward{bench.as(DType::bf16, m), cube});
  expect_refused("layernorm_backward", LayerNormBackward{low,
                                                         NormParams{w, bench.as(DType::bf16, w)},
                                                         {},
                                                         low,
                                                         NormInput{low, v, v},
                                                         bench.as(DType::bf16, w)});
  expect_refused("linear_weight_backward",
                 LinearWeightBackward{square, bench.as(DType::bf16, v), bench.as(DType::bf16, square),
                                      bench.as(DType::bf16, square), Write::set});
  const AdamWTensor narrowed[] = {{m, low, m, m, m, true}};
  expect_refused("adamw", AdamWStep{narrowed, bench.f32({2}), scalar, {}});
  // Misfit shapes of the other ops.
  expect_refused("normalize", Normalize{m, t, v, v});
  expect_refused("split_heads", SplitHeads{bench.f32({2, 3, 4, 3}), cube});
  expect_refused("layernorm_forward", LayerNormForward{m, v, v, t, w, w});
  expect_refused("layernorm_forward", LayerNormForward{m, v, w, m, w, w});
  expect_refused("layernorm_backward", LayerNormBackward{m, NormParams{w, w}, {}, m, NormInput{t, v, v}, w});
  expect_refused("layernorm_backward", LayerNormBackward{m, NormParams{w, v}, {}, m, NormInput{m, v, v}, w});
  expect_refused("encoder_forward", EncoderForward{cube, ids24, m, t});
  expect_refused("cross_entropy_forward", CrossEntropyForward{w, m, ids, 6});
  expect_refused("linear_forward", LinearForward{square, m, m, m});
  expect_refused("linear_forward", LinearForward{m, m, m, v});
  expect_refused("linear_forward", LinearForward{square, square, m, v});
  expect_refused("linear_forward", LinearForward{square, m, v, v});
  expect_refused("linear_gelu_backward", LinearGeluBackward{m, w, square, m, square, Write::set});
  expect_refused("linear_weight_backward", LinearWeightBackward{m, w, square, m, Write::set});
  expect_refused("linear_weight_backward", LinearWeightBackward{m, v, m, square, Write::set});
  expect_refused("write", WriteValues{bench.f32({9}), {1, 2, 3, 4, 5, 6, 7, 8, 9}});
  expect_refused("receive", Receive{v, w});
  // Misfits of the optimizer's ops.
  const Tensor two = bench.f32({2}), of_low[] = {low};
  expect_refused("clip_grad_norm", ClipGradNorm{two, scalar, of_low, 1});
  const auto adamw_refuses = [&](const AdamWTensor& tensor, const Tensor& schedule, const Tensor& clip) {
    expect_refused("adamw", AdamWStep{{&tensor, 1}, schedule, clip, {0.9F, 0.95F, 1e-8F, 0.0F}});
  };
  adamw_refuses({low, low, m, m, {}, false}, two, scalar);
  adamw_refuses({m, low, low, m, {}, false}, two, scalar);
  adamw_refuses({m, low, m, m, bench.as(DType::f16, m), false}, two, scalar);
  adamw_refuses({m, m, m, m, {}, false}, scalar, scalar);
  adamw_refuses({m, m, m, m, {}, false}, two, two);
}

TEST(OpCpu, TokensOutsideTheTableThrow) {
  Bench bench;
  const Tensor table = bench.f32({3, 2}), out = bench.f32({2, 2}), losses = bench.f32({2});
  for (int64_t bad : {-1, 3}) {
    const Tensor tokens = bench.i32({2}, [=](int64_t i) { return i * bad; });
    EXPECT_THROW(bench.ops(EncoderForward{bench.f32({1, 2, 2}), tokens, table, table}),
                 std::invalid_argument);
    EXPECT_THROW(bench.ops(EmbeddingBackward{table, tokens, out}), std::invalid_argument);
    EXPECT_THROW(bench.ops(NllLossForward{losses, out, tokens}), std::invalid_argument);
    EXPECT_THROW(bench.ops(NllLossBackward{out, tokens, 1}), std::invalid_argument);
    EXPECT_THROW(bench.ops(CrossEntropyForward{losses, out, tokens, 2}), std::invalid_argument);
    EXPECT_THROW(bench.ops(CrossEntropyForwardBackward{losses, out, tokens, 2, 1}), std::invalid_argument);
  }
}

TEST(OpCpu, PaddedColumnsAreNoTargets) {
  Bench bench;
  const Tensor logits = bench.f32({1, 3}), losses = bench.f32({1});
  const Tensor padding = bench.i32({1}, [](int64_t) { return 2; });
  EXPECT_NO_THROW(bench.ops(CrossEntropyForward{losses, logits, padding, 3}));
  EXPECT_THROW(bench.ops(CrossEntropyForward{losses, logits, padding, 2}), std::invalid_argument);
}

TEST(OpCpu, LogSoftmaxLeavesThePaddingOfRowsAlone) {
  expect_log_softmax_leaves_padding_alone(*make_cpu_ops());
}

TEST(OpCpu, EmptyTensorsAreFine) {
  Bench bench;
  Ops& ops = bench.ops;
  const Tensor none = bench.f32({0, 4}), column = bench.f32({4}, 2.0F), zero = bench.f32({0});
  const Tensor square = bench.f32({1}, kNaN);
  ops(Add{none, none, none});
  ops(SoftmaxForward{none, none});
  ops(LogSoftmaxForward{none, none});
  ops(RowMean{zero, none});
  ops(SumRows{column, none});
  EXPECT_EQ(column.ptr<float>()[3], 2.0F);
  ops(CausalMask{bench.f32({0, 0})});
  ops(ReluSquaredForward{none, none});
  ops(QkNormRotaryForward{bench.f32({0, 3, 12}), {}, bench.f32({3, 2, 2})});
  ops(MuonMomentum{none, none, none, square, 0.9F});
  ops(MuonUpdate{none, none, none, square, 0.0F});
  ops(EmbeddingBackward{bench.f32({3, 4}), bench.i32({0}, nullptr), none});
  ops(SumOfSquares{square, none});
  EXPECT_EQ(*square.ptr<float>(), 0.0F);

  const Tensor out = bench.f32({2, 3}, kNaN);
  ops(Matmul{out, bench.f32({2, 0}), bench.f32({0, 3}), MatOp::NN});
  for (int i = 0; i < 6; ++i) EXPECT_EQ(out.ptr<float>()[i], 0.0F);
  ops(Matmul{none, bench.f32({0, 5}), bench.f32({4, 5}), MatOp::NT});
}

TEST(OpCpu, NaNReachesTheLossAndTheGradientNorm) {
  Bench bench;
  Ops& ops = bench.ops;
  const Tensor x = bench.f32({2, 40}, [](int64_t i) { return i == 17 ? kNaN : 1.0F; }),
               p = bench.f32({2, 40});
  ops(SoftmaxForward{p, x});
  EXPECT_TRUE(std::isnan(p.ptr<float>()[0]));
  EXPECT_EQ(p.ptr<float>()[40], 1.0F / 40);
  ops(LogSoftmaxForward{p, x});
  EXPECT_TRUE(std::isnan(p.ptr<float>()[39]));
  ops(ReluSquaredForward{p, x});
  EXPECT_TRUE(std::isnan(p.ptr<float>()[17]));
  const Tensor factor = bench.f32({1}), norm = bench.f32({1});
  ops(ClipFactor{factor, norm, x.view({80}), 1.0F});
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
  const DeviceInfo info = ops->device().info();
  EXPECT_EQ(info.backend, "cpu");
  EXPECT_EQ(info.compute_capability, 0);
  EXPECT_TRUE(info.blas.starts_with("OpenBLAS ")) << info.blas;
  EXPECT_GT(info.total_memory, int64_t{1} << 28);
  const MemoryInfo memory = ops->device().memory();
  EXPECT_GT(memory.free, 0);
  EXPECT_LE(memory.free, info.total_memory);
  EXPECT_GT(memory.process_peak, int64_t{1} << 20);
  EXPECT_LT(memory.process_peak, info.total_memory);
}

TEST(CpuDevice, CountsWhatItHandsOut) {
  std::shared_ptr<void> survivor;
  {
    const auto ops = make_cpu_ops();
    auto first = ops->device().allocate(1000);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first.get()) % 256, 0U);
    std::memset(first.get(), 1, 1000);
    survivor = ops->device().allocate(500);
    first.reset();
    EXPECT_NE(ops->device().allocate(700), nullptr);  // reuses the memory that `first` freed
    EXPECT_NE(ops->device().allocate(0), nullptr);
    EXPECT_EQ(ops->device().memory().reserved_peak, 1500);
  }
  std::memset(survivor.get(), 1, 500);  // a block outlives its backend
}

TEST(CpuDevice, RefusesMoreThanIsAvailable) {
  const auto ops = make_cpu_ops();
  const auto much = static_cast<size_t>(ops->device().memory().free) + (size_t{4} << 30);
  EXPECT_THROW(ops->device().allocate(much), OutOfMemoryError);
  EXPECT_THROW(ops->device().allocate(std::numeric_limits<size_t>::max()), OutOfMemoryError);
  EXPECT_EQ(ops->device().memory().reserved_peak, 0);
}

TEST(CpuDevice, WorkspaceIsPlannedBeforeItIsNeeded) {
  const auto backend = make_cpu_ops(2);
  Ops& ops = *backend;
  Arena plan;
  ops.device().bind_workspace(plan, workspace_config(100));
  EXPECT_GT(plan.bytes(), 0);
  std::vector<float> memory(6);
  std::vector<int32_t> token(1);
  const Tensor m{memory.data(), DType::f32, {1, 1}, "m"}, ids{token.data(), DType::i32, {1}, "ids"};
  EXPECT_THROW(ops(EmbeddingBackward{m, ids, m}), std::logic_error);
  ops.set_matmul_precision(Precision::tf32);
  EXPECT_THROW(ops(Matmul{m, m, m, MatOp::NN, Write::set}), std::logic_error);
  const Tensor cube{memory.data(), DType::f32, {1, 1, 1}, "cube"};
  const Tensor qkv{memory.data(), DType::f32, {1, 1, 3}, "qkv"};
  EXPECT_THROW(ops(AttentionForward{cube, cube, qkv}), std::logic_error);
  Arena arena(ops, plan.bytes());
  ops.device().bind_workspace(arena, workspace_config(100));
  EXPECT_NO_THROW(ops(EmbeddingBackward{m, ids, m}));
  EXPECT_NO_THROW(ops(Matmul{m, m, m, MatOp::NN, Write::set}));
}

TEST(CpuDevice, RecordsWithoutRunningAndHasNothingToSearch) {
  Bench bench;
  const Tensor x = bench.f32({1});
  int runs = 0;
  const auto work = [&] {
    ++runs;
    bench.ops(Affine{x, x, 1.0F, 1.0F});
  };
  bench.ops.search(work);
  const std::function<void()> recorded = bench.ops.record(work);
  EXPECT_EQ(runs, 0);
  recorded();
  recorded();
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(*x.ptr<float>(), 2.0F);
  const CompileInfo info = bench.ops.graph().info();
  EXPECT_EQ(info.searched, 0);
  EXPECT_EQ(info.capture_ms, 0.0);
}

TEST(CpuDevice, TimesWhatIsBetweenStartAndStop) {
  const auto ops = make_cpu_ops();
  ops->device().start_timer();
  const auto from = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - from < std::chrono::milliseconds(2)) {
  }
  ops->device().stop_timer();
  EXPECT_GE(ops->device().elapsed().ms, 2.0);
  EXPECT_EQ(ops->device().elapsed().ms, ops->device().elapsed().ms);
}

}  // namespace
}  // namespace stepladder
