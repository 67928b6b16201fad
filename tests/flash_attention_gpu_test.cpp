// Attention without the (T,T) matrix, by cuDNN and by our kernels, against the CPU reference.
//
// The kernels round P and dS to 16 bits before they multiply by them, each element on its own, so the errors
// of a sum add up as its terms do: the error of a few rows is about epsilon / 3 of their norm. A single
// element can be far smaller than its terms, so no such bound holds for it.
#include <cmath>
#include <string>

#include "tests/files.h"
#include "tests/op_agreement.h"

namespace stepladder {
namespace {

struct Implementation {
  const char* name;
  Attention attention;
  bool deterministic;
  int compute_capability;

  bool is_cudnn() const { return attention == Attention::cudnn; }
};

/// A fixture with both passes of attention in f16, one after the other, and their operands.
class AttentionAgreement : public OpAgreement {
 protected:
  /// The operands dqkv, out, lse, qkv and dout of both passes; binds the workspace for them.
  std::vector<Array> of_both_passes(int64_t B, int64_t T, int64_t NH, int64_t HS) {
    const int64_t C = NH * HS;
    bind(B, T, C, NH);
    return {out({B, T, 3 * C}, DType::f16), out({B, T, C}, DType::f16), out({B, NH, T}),
            reals({B, T, 3 * C}).as(DType::f16), reals({B, T, C}).as(DType::f16)};
  }
  const Call both_passes = [](Ops& o, auto& t) {
    o(AttentionForward{t[1], t[2], t[3]});
    o(AttentionBackward{t[0], t[4], t[1], t[2], t[3]});
  };
};

class FlashAttentionGpuTest : public AttentionAgreement, public testing::WithParamInterface<Implementation> {
 protected:
  OpsOptions options() const override {
    OpsOptions options;
    options.attention = GetParam().attention;
    options.deterministic = GetParam().deterministic;
    options.compute_capability = GetParam().compute_capability;
    return options;
  }

  std::vector<DType> types() const {
    return cuda_->device().info().bf16 ? std::vector{DType::f16, DType::bf16} : std::vector{DType::f16};
  }

  /// Whether the implementation takes sequences of T tokens: cuDNN before 9.15.1 takes multiples of 128 only.
  bool computes(int64_t T) {
    if (!GetParam().is_cudnn() || T % 128 == 0) return true;
    return !says(refused(T), {"9.15.1"});
  }
  std::string refused(int64_t T) try {
    bind(1, T, 64, 1);
    run(*cuda_, {out({1, T, 64}, DType::f16), out({1, 1, T}), reals({1, T, 192}).as(DType::f16)},
        CALL(AttentionForward{t[0], t[1], t[2]}));
    return "";
  } catch (const UnsupportedError& error) {
    return error.what();
  }

  /// Expects a head's error over each 8 rows to be within `relative` of the expected values' norm there. got,
  /// expected: (rows, heads * HS).
  static void expect_heads_near(const char* what, const std::vector<float>& got,
                                const std::vector<float>& expected, int64_t heads, int64_t HS,
                                float relative) {
    constexpr int64_t kRows = 8;
    // A sum that cancels to nothing keeps the roundings of its terms.
    const double floor = 16.0 * kEps * std::sqrt(static_cast<double>(HS * kRows));
    const int64_t rows = static_cast<int64_t>(got.size()) / (heads * HS);
    for (int64_t first = 0; first < rows; first += kRows) {
      for (int64_t h = 0; h < heads; ++h) {
        double error = 0.0, norm = 0.0;
        for (int64_t row = first; row < std::min(first + kRows, rows); ++row) {
          for (int64_t s = 0; s < HS; ++s) {
            const auto i = static_cast<size_t>((row * heads + h) * HS + s);
            error += std::pow(static_cast<double>(got[i]) - expected[i], 2);
            norm += std::pow(static_cast<double>(expected[i]), 2);
          }
        }
        if (std::sqrt(error) <= relative * std::sqrt(norm) + floor) continue;
        ADD_FAILURE() << what << ": error " << std::sqrt(error) << " on a norm of " << std::sqrt(norm)
                      << " in rows from " << first << ", head " << h << " of " << heads;
        return;
      }
    }
  }

  /// Expects both passes to agree with the CPU, inputs to stay unchanged, and equal bits from two forward
  /// calls, and from two backward calls of a deterministic implementation.
  void expect_agreement_for(DType type, int64_t B, int64_t T, int64_t NH, int64_t HS, float limit) {
    if (!computes(T)) return;
    SCOPED_TRACE(cat(name_of(type), " B=", B, " T=", T, " NH=", NH, " HS=", HS, " |qkv|<", limit));
    const int64_t C = NH * HS;
    bind(B, T, C, NH);
    const Array qkv = reals({B, T, 3 * C}, -limit, limit).as(type);
    const float eps = epsilon_of(type);

    const std::vector<Array> forward{out({B, T, C}, type), out({B, NH, T}), qkv};
    const Call attend = CALL(AttentionForward{t[0], t[1], t[2]});
    const auto expected = run(*cpu_, forward, attend), got = run(*cuda_, forward, attend);
    expect_heads_near("out", got[0], expected[0], NH, HS, eps);
    // Scores are at most limit^2 * sqrt(HS); the sum has T exponentials.
    const float score = limit * limit * std::sqrt(static_cast<float>(HS));
    expect_near(got[1], expected[1], {2.0F * kEps * (roundings(T) + score * roundings(HS)), 4.0F * kEps}, 1);
    EXPECT_TRUE(same_bits(got[2], qkv.values)) << "qkv was written";
    const auto again = run(*cuda_, forward, attend);
    EXPECT_TRUE(same_bits(got[0], again[0]) && same_bits(got[1], again[1])) << "two calls differ";

    if (GetParam().is_cudnn() && T == 1) return;  // cuDNN has no backward pass for a single position
    if (limit > 1.0F) return;  // rows of P are close to one-hot: dP - D cancels and no digit of it is left
    Array y = forward[0], lse = forward[1];
    y.values = expected[0], lse.values = expected[1];
    y.output = lse.output = false;
    const std::vector<Array> backward{out({B, T, 3 * C}, type), reals({B, T, C}).as(type), y, lse, qkv};
    const Call differentiate = CALL(AttentionBackward{t[0], t[1], t[2], t[3], t[4]});
    const auto expected_d = run(*cpu_, backward, differentiate), got_d = run(*cuda_, backward, differentiate);
    expect_heads_near("dqkv", got_d[0], expected_d[0], 3 * NH, HS, 2.0F * eps);
    for (size_t i = 1; i < backward.size(); ++i)
      EXPECT_TRUE(same_bits(got_d[i], backward[i].values)) << "operand " << i << " was written";
    if (GetParam().deterministic) {
      EXPECT_TRUE(same_bits(got_d[0], run(*cuda_, backward, differentiate)[0]))
          << "dqkv differs between two calls";
    }
  }
};

TEST_P(FlashAttentionGpuTest, AgreesForAnyLengthAndHeadSize) {
  for (const DType type : types())
    for (const int64_t HS : {16, 32, 64})
      for (const int64_t T : {1, 7, 64, 100, 128, 1000, 1024})
        expect_agreement_for(type, T > 128 ? 1 : 13, T, 3, HS, 1.0F);
}

TEST_P(FlashAttentionGpuTest, AgreesForUnusualHeadSizes) {
  for (const DType type : types())
    for (const int64_t HS : {8, 24, 40, 80, 104, 128}) expect_agreement_for(type, 2, 77, 5, HS, 1.0F);
}

TEST_P(FlashAttentionGpuTest, AgreesForScoresFarApart) {
  for (const DType type : types()) expect_agreement_for(type, 2, 200, 2, 64, 12.0F);
}

TEST_P(FlashAttentionGpuTest, RunsInARecordedGraph) {
  const int64_t B = 2, T = computes(100) ? 100 : 128, NH = 3, HS = 64;
  const std::vector<Array> arrays = of_both_passes(B, T, NH, HS);
  // The graph is recorded first, so that plans are built during stream capture.
  const auto recorded = run(*cuda_, arrays, [&](Ops& o, auto& t) {
    const auto graph = o.record([&] { both_passes(o, t); });
    graph();
    graph();
    o.synchronize();
  });
  const auto direct = run(*cuda_, arrays, both_passes);
  EXPECT_TRUE(same_bits(recorded[1], direct[1]));
  EXPECT_TRUE(same_bits(recorded[2], direct[2]));
  expect_heads_near("dqkv", recorded[0], direct[0], 3 * NH, HS, epsilon_of(DType::f16));
}

TEST_P(FlashAttentionGpuTest, TellsWhoComputes) {
  bind(1, 128, 64, 1);
  run(*cuda_, {out({1, 128, 64}, DType::f16), out({1, 1, 128}), reals({1, 128, 192}).as(DType::f16)},
      CALL(AttentionForward{t[0], t[1], t[2]}));
  const std::string who = cuda_->device().info().attention;
  EXPECT_EQ(who.substr(0, who.find(' ')), GetParam().is_cudnn() ? "cuDNN" : "native") << who;
}

TEST_P(FlashAttentionGpuTest, RefusesWhatItCannotCompute) {
  if (!computes(8)) GTEST_SKIP() << refused(8);
  bind(2, 8, 64, 2);
  const auto attend = [&](DType type, Shape out_shape, Shape lse, Shape qkv) {
    run(*cuda_, {out(out_shape, type), out(lse), reals(qkv).as(type)},
        CALL(AttentionForward{t[0], t[1], t[2]}));
  };
  const Shape x{2, 8, 64}, stats{2, 2, 8}, qkv{2, 8, 192};
  EXPECT_NO_THROW(attend(DType::f16, x, stats, qkv));
  EXPECT_THROW(attend(DType::f32, x, stats, qkv), UnsupportedError);
  EXPECT_THROW(attend(DType::f16, x, stats, x), std::invalid_argument);
  EXPECT_THROW(attend(DType::f16, x, Shape{2, 3, 8}, qkv), std::invalid_argument);
  EXPECT_THROW(attend(DType::f16, Shape{2, 8, 24}, stats, Shape{2, 8, 72}), std::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(Each, FlashAttentionGpuTest,
                         testing::Values(Implementation{"Native", Attention::native, true, 0},
                                         Implementation{"NativeOnSm75", Attention::native, true, 75},
                                         Implementation{"Cudnn", Attention::cudnn, false, 0},
                                         Implementation{"CudnnDeterministic", Attention::cudnn, true, 0}),
                         [](const testing::TestParamInfo<Implementation>& of) {
                           return std::string(of.param.name);
                         });

TEST(FlashAttentionChoiceGpuTest, FallsBackToNativeAndTellsWhy) {
  OpsOptions options;
  options.compute_capability = 75;
  try {
    const std::string attention = make_cuda_ops(0, options)->device().info().attention;
    EXPECT_TRUE(says(attention, {"native (", "sm_80", "sm_75"})) << attention;
  } catch (const UnsupportedError& error) {
    GTEST_SKIP() << error.what();
  }
  options.attention = Attention::cudnn;
  EXPECT_THROW(make_cuda_ops(0, options), UnsupportedError);
}

// An implementation chosen by default: recorded and called passes give the same results.
class FlashAttentionInGraphsGpuTest : public AttentionAgreement {};

TEST_F(FlashAttentionInGraphsGpuTest, OfAnyLengthComputesWhatTheCallsDo) {
  for (const int64_t T : {100, 128}) {
    const int64_t B = 2, NH = 3, HS = 64;
    const std::vector<Array> arrays = of_both_passes(B, T, NH, HS);
    const auto recorded = run(*cuda_, arrays, [&](Ops& o, auto& t) {
      o.record([&] { both_passes(o, t); })();
      o.synchronize();
    });
    const std::string who = cuda_->device().info().attention;
    EXPECT_TRUE(who.starts_with("cuDNN ") || who.starts_with("native (")) << who;
    const auto direct = run(*cuda_, arrays, both_passes);
    EXPECT_TRUE(same_bits(recorded[1], direct[1])) << T << ", " << who;
    EXPECT_EQ(recorded[0].size(), direct[0].size());
    for (size_t i = 0; i < direct[0].size(); ++i)
      ASSERT_NEAR(recorded[0][i], direct[0][i], 0.01F) << T << ", " << who;
  }
}

}  // namespace
}  // namespace stepladder
