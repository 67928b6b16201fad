// FP8 on CUDA against the CPU: quantised values and products of small integers agree to the bit.
#include <algorithm>
#include <bit>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "tests/files.h"
#include "tests/gpu_options.h"
#include "tests/op_agreement.h"

namespace stepladder {
namespace {

constexpr DType kTypes[] = {DType::f8e4m3, DType::f8e5m2};

class Fp8GpuTest : public OpAgreement {
 protected:
  void SetUp() override {
    OpAgreement::SetUp();
    if (!cuda_) return;
    if (cuda_->device().info().compute_capability < 80)
      GTEST_SKIP() << "FP8 is rounded from bf16, which needs sm_80";
    bind(4, 256, 768);
  }
  bool multiplies() const { return cuda_->device().info().compute_capability >= 89; }

  Array scalar(float x) const { return {DType::f32, {1}, {x}}; }
  /// Shapes smaller than a tile, of whole tiles, and of several tiles in both directions, where a block takes
  /// more than one.
  static constexpr int64_t kShapes[][2] = {{16, 16},    {144, 48},  {128, 64},
                                           {1040, 784}, {16, 3072}, {40000, 64}};

  /// An output that the op writes only in part; the rest stays 0.
  static Array zeros(Shape shape) {
    return {DType::f32, shape, std::vector<float>(static_cast<size_t>(shape.numel())), true};
  }

  /// q (N,C), qt (C,N), scale and amax, and `others` behind them.
  static std::vector<Array> quantized(DType type, int64_t N, int64_t C, float scale,
                                      const std::vector<Array>& others) {
    std::vector<Array> arrays = {
        out({N, C}, type), out({C, N}, type), {DType::f32, {1}, {scale}}, zeros({1})};
    arrays.insert(arrays.end(), others.begin(), others.end());
    return arrays;
  }

  static Tensor fp8(const Tensor& q, const Tensor& scale, const Tensor& amax) {
    return q.scaled(scale, amax);
  }

  /// Expects q (N,C) and qt (C,N) to be each other's transposes.
  static void expect_transposes(const std::vector<float>& q, const std::vector<float>& qt, int64_t N,
                                int64_t C) {
    for (int64_t n = 0; n < N; ++n)
      for (int64_t c = 0; c < C; ++c)
        ASSERT_EQ(q[static_cast<size_t>(n * C + c)], qt[static_cast<size_t>(c * N + n)])
            << "row " << n << ", column " << c;
  }

  /// Expects equal FP8 values of `type`, except at most `most` elements that a rounding in f32 moved to the
  /// neighbouring number.
  static void expect_neighbours(DType type, const std::vector<float>& got, const std::vector<float>& expected,
                                size_t operand, int64_t most) {
    const bool e4m3 = type == DType::f8e4m3;
    expect_near(got, expected, e4m3 ? Tolerance{0x1p-9F, 0x1p-3F} : Tolerance{0x1p-16F, 0x1p-2F}, operand);
    int64_t other = 0;
    for (size_t i = 0; i < got.size(); ++i) other += got[i] != expected[i] ? 1 : 0;
    EXPECT_LE(other, most) << "of operand " << operand;
  }
};

TEST_F(Fp8GpuTest, QuantizeAgreesToTheBit) {
  for (const DType type : kTypes) {
    const float scale = type == DType::f8e4m3 ? 0x1p-9F : 0x1p-20F;  // values above 0.875 saturate
    for (const auto& [N, C] : kShapes) {
      const Array x = reals({N, C}).as(DType::bf16);
      const std::vector<Array> arrays = {out({N, C}, type), out({C, N}, type), x, scalar(scale),
                                         inout(scalar(0.5F))};
      expect_agreement(cat("quantize ", name_of(type), N, 'x', C), arrays, kExact,
                       CALL(Quantize{fp8(t[0], t[3], t[4]), fp8(t[1], t[3], t[4]), t[2]}));
      for (const size_t only : {0, 1}) {
        const std::vector<Array> alone = {arrays[only], x, arrays[3], arrays[4]};
        expect_agreement(cat("one layout ", only), alone, kExact, [only](Ops& o, auto& t) {
          const Tensor q = fp8(t[0], t[2], t[3]);
          only == 0 ? o(Quantize{q, {}, t[1]}) : o(Quantize{{}, q, t[1]});
        });
      }
    }
  }
}

TEST_F(Fp8GpuTest, QuantizeSumsRowsIntoTheBiasGradient) {
  for (const auto& [N, C] : kShapes) {
    if (N * 2 >= 1 << 15) continue;  // more than f32 holds exactly as bf16 sums
    const std::vector<Array> arrays = {out({N, C}, DType::f8e5m2), scalar(1.0F), inout(scalar(0.0F)),
                                       integers({N, C}, 1).as(DType::bf16),
                                       inout(integers({C}).as(DType::bf16))};
    expect_agreement(cat("dbias ", N, 'x', C), arrays, kExact,
                     CALL(Quantize{fp8(t[0], t[1], t[2]), {}, t[3], t[4]}));
    std::vector<Array> wide = arrays;
    wide[4] = inout(integers({C}, 1 << 20));
    expect_agreement(cat("dbias in f32 ", N, 'x', C), wide, kExact,
                     CALL(Quantize{fp8(t[0], t[1], t[2]), {}, t[3], t[4]}));
  }
}

TEST_F(Fp8GpuTest, QuantizeToFitAgreesToTheBit) {
  for (const DType type : kTypes) {
    for (const auto& [N, C] : kShapes) {
      Array x = reals({3, N, C}, -0.06F, 0.06F);
      for (int64_t i = 0; i < N * C; ++i) x.values[static_cast<size_t>(N * C + i)] *= 1e5F;
      std::fill_n(x.values.begin() + 2 * N * C, N * C, 0.0F);
      const std::vector<Array> arrays = {out({3, N, C}, type), out({3, C, N}, type), x.as(DType::bf16),
                                         zeros({3, kScaleStride}), out({3})};
      expect_agreement(cat("quantize_to_fit ", name_of(type), N, 'x', C), arrays, kExact,
                       CALL(QuantizeToFit{fp8(t[0], t[3], t[4]), fp8(t[1], t[3], t[4]), t[2]}));
    }
  }
}

TEST_F(Fp8GpuTest, GeluAgreesButForNeighbours) {
  const int64_t N = 1040, C = 784;
  for (const DType type : kTypes) {
    const float scale = type == DType::f8e4m3 ? 0x1p-7F : 0x1p-14F;
    const Array x = reals({N, C}, -4.0F, 4.0F).as(DType::bf16), dout = reals({N, C}).as(DType::bf16);
    const std::vector<Array> arrays = {out({N, C}, type),
                                       out({C, N}, type),
                                       x,
                                       dout,
                                       scalar(scale),
                                       inout(scalar(0.0F)),
                                       inout(reals({C}).as(DType::bf16)),
                                       inout(reals({N, C}).as(DType::f8e4m3))};
    enum { kForward, kForwardWithSlopes, kBackward, kBackwardOfSlopes };
    for (const int what : {kForward, kForwardWithSlopes, kBackward, kBackwardOfSlopes}) {
      SCOPED_TRACE(what);
      const Call call = [what](Ops& o, auto& t) {
        const Tensor q = fp8(t[0], t[4], t[5]), qt = fp8(t[1], t[4], t[5]), &slopes = t[7];
        if (what < kBackward) {
          o(QuantizeGelu{q, qt, t[2], what == kForwardWithSlopes ? slopes : Tensor{}});
        } else {
          o(QuantizeGeluBackward{q, qt, t[6], t[3], what == kBackwardOfSlopes ? slopes : t[2]});
        }
      };
      const auto expected = run(*cpu_, arrays, call), got = run_twice(arrays, call);
      for (const size_t layout : {0, 1})
        expect_neighbours(type, got[layout], expected[layout], layout, N * C / 1000 - 1);
      expect_near(got[5], expected[5], {0.0F, 8.0F * kEps}, 5);
      expect_near(got[6], expected[6], {roundings(N) * kEps, 2.0F * epsilon_of(DType::bf16)}, 6);
      expect_neighbours(DType::f8e4m3, got[7], expected[7], 7, N * C / 1000 - 1);
    }
  }
}

/// Shapes (N,C) of LayerNorm: parts of a tile of rows and several tiles; rows for one warp and for many. The
/// longest rows get a smaller tile; only very many rows get the largest tile.
constexpr int64_t kNormShapes[][2] = {{16, 16},    {48, 80},     {80, 768},   {144, 1024}, {8208, 1600},
                                      {112, 2400}, {1040, 1280}, {4112, 768}, {64, 3840},  {16400, 768}};

TEST_F(Fp8GpuTest, LayernormAgreesButForNeighbours) {
  const Call call =
      CALL(QuantizeLayerNorm{fp8(t[0], t[2], t[3]), fp8(t[1], t[2], t[3]), t[4], t[5], t[6], t[7], t[8]});
  for (const DType type : kTypes) {
    const float scale = type == DType::f8e4m3 ? 0x1p-6F : 0x1p-5F;  // subnormals are above f32's roundings
    for (const auto& [N, C] : kNormShapes) {
      if (C == 3840 && cuda_->device().info().compute_capability < 90) continue;  // needs a tile of 123 KB
      SCOPED_TRACE(cat(name_of(type), ' ', N, 'x', C));
      const std::vector<Array> arrays =
          quantized(type, N, C, scale,
                    {out({N}), out({N}), reals({N, C}, -2.0F, 3.0F).as(DType::bf16),
                     reals({C}).as(DType::bf16), reals({C}).as(DType::bf16)});
      const auto expected = run(*cpu_, arrays, call), got = run_twice(arrays, call);
      for (const size_t layout : {0, 1})
        expect_neighbours(type, got[layout], expected[layout], layout, 2 + N * C / 1000);
      expect_transposes(got[0], got[1], N, C);
      expect_near(got[3], expected[3], {0.0F, roundings(C) * kEps}, 3);
      expect_near(got[4], expected[4], {roundings(C) * kEps, roundings(C) * kEps}, 4);
      expect_near(got[5], expected[5], {0.0F, roundings(C) * kEps}, 5);
      for (size_t i = 6; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], arrays[i].values)) << i;
    }
  }
}

TEST_F(Fp8GpuTest, LayernormsGradientIsQuantizedAsStored) {
  for (const DType type : kTypes) {
    for (const auto& [N, C] : kNormShapes) {
      SCOPED_TRACE(cat(name_of(type), ' ', N, 'x', C));
      bind(1, N, C);
      const float scale = type == DType::f8e4m3 ? 0x1p-5F : 0x1p-12F;  // no value saturates
      const Array column = reals({C}).as(DType::bf16), x = reals({N, C}).as(DType::bf16),
                  dout = reals({N, C}).as(DType::bf16);
      const std::vector<Array> arrays =
          quantized(type, N, C, scale,
                    {inout(reals({N, C}).as(DType::bf16)), inout(column), inout(column), inout(column), dout,
                     x, reals({N}, -0.1F, 0.1F), reals({N}, 0.5F, 2.0F), column});
      const auto call = [](bool biased) {
        return [biased](Ops& o, auto& t) {
          o(QuantizeLayerNormBackward{Fp8Pair{fp8(t[0], t[2], t[3]), fp8(t[1], t[2], t[3])}, t[4],
                                      NormParams{t[5], t[6]}, biased ? t[7] : Tensor{}, t[8],
                                      NormInput{t[9], t[10], t[11]}, t[12]});
        };
      };
      const auto expected = run(*cpu_, arrays, call(true)), got = run_twice(arrays, call(true)),
                 unbiased = run(*cuda_, arrays, call(false));
      // q is the FP8 rounding of the dx written, to the bit.
      std::vector<float> quantized = got[4];
      float amax = 0.0F;
      for (float& v : quantized) amax = std::max(amax, std::fabs(v)), v /= scale;
      quantized = rounded_to(type, quantized);
      EXPECT_TRUE(same_bits(got[0], quantized));
      expect_transposes(quantized, got[1], N, C);
      EXPECT_EQ(got[3][0], amax);
      // The sums take dx as stored: a few of its elements may be rounded to the other neighbour.
      const auto rows = static_cast<float>(N);
      const float half = epsilon_of(DType::bf16), few = (4.0F + rows / 100.0F) * 8.0F * half;
      const float sums = kEps * (roundings(N) + roundings(C)) * 8.0F * (rows + 1.0F) + few;
      expect_near(got[4], expected[4], {16.0F * kEps * (8.0F + roundings(C)), half}, 4);
      for (const size_t sum : {5, 6, 7}) expect_near(got[sum], expected[sum], {sums, half}, sum);
      for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(i == 7 || same_bits(got[i], unbiased[i])) << i;
      EXPECT_TRUE(same_bits(unbiased[7], arrays[7].values)) << "a bias gradient that nobody asked for";
    }
  }
}

TEST_F(Fp8GpuTest, LayernormWritesEitherLayoutAlone) {
  const int64_t N = 80, C = 768;
  const Array x = reals({N, C}).as(DType::bf16), column = reals({C}).as(DType::bf16);
  const auto results = [&](bool rows, bool columns) {
    return run(
        *cuda_, quantized(DType::f8e4m3, N, C, 0x1p-6F, {x, out({N}), out({N}), column}),
        CALL(QuantizeLayerNorm{rows ? fp8(t[0], t[2], t[3]) : Tensor{},
                               columns ? fp8(t[1], t[2], t[3]) : Tensor{}, t[5], t[6], t[4], t[7], t[7]}));
  };
  const auto both = results(true, true), rows = results(true, false), columns = results(false, true);
  EXPECT_TRUE(same_bits(both[0], rows[0]));
  EXPECT_TRUE(same_bits(both[1], columns[1]));
  for (const auto& each : {rows, columns}) EXPECT_TRUE(same_bits(both[3], each[3]));
}

TEST_F(Fp8GpuTest, WhatIsNotFiniteInARowShowsInAllOfItsNorm) {
  for (const float bad : {kNan, HUGE_VALF}) {
    const int64_t N = 32, C = 768;
    Array x = reals({N, C}).as(DType::bf16);
    x.values[static_cast<size_t>(5 * C + 77)] = bad;
    const Array column = reals({C}).as(DType::bf16);
    const auto got = run(
        *cuda_, quantized(DType::f8e4m3, N, C, 0x1p-6F, {x, out({N}), out({N}), column}),
        CALL(QuantizeLayerNorm{fp8(t[0], t[2], t[3]), fp8(t[1], t[2], t[3]), t[5], t[6], t[4], t[7], t[7]}));
    for (int64_t n = 0; n < N; ++n)
      for (int64_t c = 0; c < C; ++c) {
        ASSERT_EQ(std::isnan(got[0][static_cast<size_t>(n * C + c)]), n == 5);
        ASSERT_EQ(std::isnan(got[1][static_cast<size_t>(c * N + n)]), n == 5);
      }
    EXPECT_TRUE(std::isnan(got[3][0]));
  }
}

TEST_F(Fp8GpuTest, TransposeAgreesToTheBit) {
  for (const DType type : kTypes)
    for (const auto& [N, C] : kShapes)
      expect_agreement(cat("transpose ", N, 'x', C), {out({C, N}, type), reals({N, C}).as(type)}, kExact,
                       CALL(Transpose{t[0], t[1]}));
}

TEST_F(Fp8GpuTest, TheClassifiersGradientAgreesButForNeighbours) {
  constexpr float kScale = 1e-3F;
  for (const auto& [V, Vp, sure] : {std::tuple{int64_t{3}, int64_t{128}, false},
                                    {307, 384, false},
                                    {307, 384, true},
                                    {kV, 50304, false}}) {
    const int64_t N = 48;
    const Array targets = tokens({N}, V);
    Array logits = reals({N, Vp}, -4.0F, 4.0F);
    for (int64_t n = 0; sure && n < N; ++n) {  // makes the target sure, so that its gradient is small
      const int32_t target = std::bit_cast<int32_t>(targets.values[static_cast<size_t>(n)]);
      logits.values[static_cast<size_t>(n * Vp + target)] = 16.0F;
    }
    logits = logits.as(DType::bf16);
    const std::vector<Array> arrays = {
        out({N, Vp}, DType::f8e5m2), out({N}), logits, targets, scalar(0x1p-26F), inout(scalar(0.0F))};
    const Call call = [V = V](Ops& o, auto& t) {
      o(QuantizeCrossEntropy{fp8(t[0], t[4], t[5]), t[1], t[2], t[3], V, kScale});
    };
    const auto expected = run(*cpu_, arrays, call), got = run_twice(arrays, call);
    expect_neighbours(DType::f8e5m2, got[0], expected[0], 0, 2 + N * V / 1000);
    expect_near(got[1], expected[1], {16.0F * kEps, 16.0F * kEps}, 1);
    // The gradient of a sure target is a difference of two numbers near the scale, so its rounding is
    // relative to the scale.
    const float rounding = sure ? 16.0F * kEps * kScale : 0.0F;
    expect_near(got[5], expected[5], {rounding, 16.0F * kEps}, 5);
    EXPECT_TRUE(same_bits(got[2], logits.values)) << "logits were written";
  }
}

TEST_F(Fp8GpuTest, ScalesAgreeToTheBit) {
  Array history = reals({300, 16}, 0.0F, 1.0F), amax = reals({300}, 0.0F, 2.0F);
  for (size_t i = 0; i < 300; ++i) {
    for (size_t w = 0; w < 16; ++w)
      history.values[16 * i + w] *= std::ldexp(1.0F, static_cast<int>(i % 60) - 40);
    if (i % 3 == 0) amax.values[i] = 0.0F;
    if (i % 7 == 0) std::fill_n(&history.values[16 * i], 16, 0.0F);
  }
  for (const DType type : kTypes)
    expect_agreement("update_scales", {zeros({300, kScaleStride}), inout(history), amax}, kExact,
                     [type](Ops& o, auto& t) {
                       o(UpdateScales{t[0], t[1], t[2], type});
                     });
}

TEST_F(Fp8GpuTest, WhatIsNotFiniteShowsInItsPlaceAndInTheNextScale) {
  for (const DType type : kTypes) {
    for (const float bad : {kNan, -HUGE_VALF, HUGE_VALF}) {
      Array x = reals({32, 64}).as(DType::bf16);
      x.values[77] = bad;
      Array scale = zeros({1, kScaleStride});
      scale.values[0] = 1.0F;
      const auto got = run(*cuda_,
                           {out({32, 64}, type), out({64, 32}, type), x, scale, inout(scalar(0.0F)),
                            inout(Array{DType::f32, {1, 2}, {1.0F, 1.0F}})},
                           [type](Ops& o, auto& t) {
                             o(Quantize{fp8(t[0], t[3], t[4]), fp8(t[1], t[3], t[4]), t[2]});
                             o(UpdateScales{t[3], t[5], t[4], type});
                           });
      EXPECT_TRUE(std::isnan(got[0][77]));
      EXPECT_TRUE(std::isnan(got[1][77 % 64 * 32 + 77 / 64]));
      EXPECT_EQ(std::count_if(got[0].begin(), got[0].end(), [](float v) { return std::isnan(v); }), 1);
      EXPECT_TRUE(std::isnan(got[3][0]));
    }
  }
}

// Sums of products of -1, 0 and 1 are exact, whatever precision the tensor cores sum in.
TEST_F(Fp8GpuTest, ProductsAgreeToTheBitAlsoSearchedAndRecorded) {
  if (!multiplies()) GTEST_SKIP() << "needs sm_89";
  struct Case {
    int64_t M, N, K;
    DType a, b, out;
    Write write;
  };
  std::vector<Case> cases;
  for (const auto& [M, N, K] : {std::tuple{16, 16, 16}, {144, 64, 384}, {1024, 2304, 768}, {768, 3072, 1024}})
    for (const auto& [a, b] : {std::pair{DType::f8e4m3, DType::f8e4m3}, {DType::f8e5m2, DType::f8e4m3}})
      for (const DType type : {DType::bf16, DType::f32})
        for (const Write write : {Write::set, Write::add}) cases.push_back({M, N, K, a, b, type, write});
  Array scales = zeros({3, kScaleStride});  // scale 0 is unused, since plans are made with other scales
  scales.values[kScaleStride] = 0.5F, scales.values[2 * kScaleStride] = 4.0F;
  scales.output = false;
  for (const bool searched : {false, true}) {
    for (const Case& c : cases) {
      const Shape shape{c.M, c.N};
      const int limit = c.out == DType::f32 ? 1 << 20 : 8;  // f32 sums have more digits than 16 bits hold
      const Array before =
          c.write == Write::add ? inout(integers(shape, limit).as(c.out)) : out(shape, c.out);
      const std::vector<Array> arrays = {before, integers({c.M, c.K}, 1).as(c.a),
                                         integers({c.N, c.K}, 1).as(c.b), scales};
      const auto product = [c](Ops& o, const std::vector<Tensor>& t) {
        o(Matmul{t[0], fp8(t[1], t[3][1], t[3]), fp8(t[2], t[3][2], t[3]), MatOp::NT, c.write});
      };
      if (searched) run(*cuda_, arrays, [&](Ops& o, auto& t) { o.search([&] { product(o, t); }); });
      const std::string what = cat(name_of(c.out), ' ', c.M, 'x', c.N, 'x', c.K, searched ? " searched" : "");
      expect_agreement(what, arrays, kExact, product);
      expect_agreement(what + " recorded", arrays, kExact, [&](Ops& o, auto& t) {
        const auto graph = o.record([&] { product(o, t); });
        graph();
        o.synchronize();
      });
    }
  }
  EXPECT_GT(cuda_->graph().info().searched, 0);
}

// Forward, dgrad and wgrad of every linear layer of GPT-2 124M at B=16: with operands of ones, a product is
// K.
TEST_F(Fp8GpuTest, CublasltHasAlgorithmsForTheShapesOf124M) {
  if (!multiplies()) GTEST_SKIP() << "needs sm_89";
  const int64_t N = 16384, C = 768, Vp = 50304;
  const std::vector<uint8_t> e4m3(static_cast<size_t>(N * Vp), from_float<Float8E4M3>(1.0F).bits),
      e5m2(e4m3.size(), from_float<Float8E5M2>(1.0F).bits);
  const auto bytes = static_cast<int64_t>(e4m3.size());
  const auto memory = cuda_->device().allocate(3 * e4m3.size()),
             result = cuda_->device().allocate(2 * e4m3.size()), others = cuda_->device().allocate(4096);
  const auto block = [&](int i, DType type) {
    return Tensor{static_cast<std::byte*>(memory.get()) + i * bytes, type, {bytes}, "operand"};
  };
  const Tensor x = block(0, DType::f8e4m3), w = block(1, DType::f8e4m3), dy = block(2, DType::f8e5m2);
  (*cuda_)(Upload{x, e4m3.data()}), (*cuda_)(Upload{w, e4m3.data()}), (*cuda_)(Upload{dy, e5m2.data()});
  const Tensor scales{others.get(), DType::f32, {3, kScaleStride}, "scales"};
  (*cuda_)(Upload{scales, std::vector<float>(12, 1.0F).data()});
  const auto expect_product = [&](const Tensor& a, const Tensor& b, int64_t M, int64_t cols, int64_t K,
                                  DType type = DType::bf16) {
    const Tensor out{result.get(), type, {M, cols}, "out"};
    (*cuda_)(Matmul{out, fp8(a.first({M, K}), scales[1], scales[0]),
                    fp8(b.first({cols, K}), scales[2], scales[0]), MatOp::NT});
    std::vector<std::byte> last(out[M - 1].bytes());
    (*cuda_)(Download{last.data(), out[M - 1]});
    EXPECT_NEAR(unpacked(type, last).back(), static_cast<float>(K), 0.005F * static_cast<float>(K))
        << M << 'x' << cols << 'x' << K;
  };
  for (const auto& [Cin, Cout] : {std::pair{C, 3 * C}, {C, C}, {C, 4 * C}, {4 * C, C}, {C, Vp}}) {
    expect_product(x, w, N, Cout, Cin);
    expect_product(dy, w, N, Cin, Cout);
    expect_product(dy, x, Cout, Cin, N);
    expect_product(dy, x, Cout, Cin, N, DType::f32);
  }
}

TEST_F(Fp8GpuTest, AlgorithmsOfGradientsComeFromTheFileTheNextTime) {
  if (!multiplies()) GTEST_SKIP() << "needs sm_89";
  const TempFolder folder;
  OpsOptions options;
  options.cache_dir = folder / "cache";
  const std::vector<Array> arrays = {out({768, 768}, DType::bf16),
                                     integers({768, 16384}, 1).as(DType::f8e5m2),
                                     integers({768, 16384}, 1).as(DType::f8e4m3), scalar(1.0F)};
  for (const bool again : {false, true}) {
    cuda_ = make_cuda_ops(0, gpu_test_options(options));
    bind(4, 256, 768);
    run(*cuda_, arrays, [](Ops& o, auto& t) {
      o.search([&] { o(Matmul{t[0], fp8(t[1], t[3], t[3]), fp8(t[2], t[3], t[3]), MatOp::NT}); });
    });
    EXPECT_EQ(cuda_->graph().info().searched, again ? 0 : 1);
    EXPECT_EQ(cuda_->graph().info().from_cache, again ? 1 : 0);
  }
}

TEST_F(Fp8GpuTest, LinearForwardAddsBiasAndResidual) {
  if (!multiplies()) GTEST_SKIP() << "needs sm_89";
  for (const auto& [N, Cin, Cout] : {std::tuple{144, 64, 192}, {1024, 768, 2304}})
    expect_agreement(
        cat("linear_forward ", Cout),
        {out({N, Cout}, DType::bf16), integers({N, Cin}, 1).as(DType::f8e4m3),
         integers({Cout, Cin}, 1).as(DType::f8e4m3), integers({Cout}).as(DType::bf16), scalar(2.0F)},
        kExact, CALL(LinearForward{t[0], fp8(t[1], t[4], t[4]), fp8(t[2], t[4], t[4]), t[3]}));
  for (const auto& [N, Cin, Cout] : {std::tuple{144, 64, 192}, {1024, 768, 768}, {1024, 3072, 768}})
    expect_agreement(cat("linear_forward with a residual ", Cin),
                     {out({N, Cout}, DType::bf16), integers({N, Cin}, 1).as(DType::f8e4m3),
                      integers({Cout, Cin}, 1).as(DType::f8e4m3), integers({Cout}).as(DType::bf16),
                      scalar(2.0F), integers({N, Cout}).as(DType::bf16)},
                     kExact,
                     CALL(LinearForward{t[0], fp8(t[1], t[4], t[4]), fp8(t[2], t[4], t[4]), t[3], t[5]}));
}

/// Shapes (N,C,K) of the fused GELU: parts of tiles in either direction, several tiles to a block, an odd
/// number of chunks, sums that end within a step. Operands are small integers, so sums and stored values are
/// exact. The last shape has no kernel of our own.
constexpr int64_t kGeluShapes[][3] = {{16, 32, 16},     {80, 288, 144},    {1040, 96, 768}, {2000, 3072, 64},
                                      {2000, 3168, 64}, {4096, 3072, 768}, {64, 128, 784}};

TEST_F(Fp8GpuTest, LinearWithGeluAgreesButForNeighboursAlsoSearched) {
  if (!multiplies()) GTEST_SKIP() << "needs sm_89";
  for (const auto& [N, C, K] : kGeluShapes) {
    SCOPED_TRACE(cat(N, 'x', C, 'x', K));
    bind(1, N, C);
    const std::vector<Array> arrays = {out({N, C}, DType::f8e4m3),
                                       out({C, N}, DType::f8e4m3),
                                       out({N, C}, DType::bf16),
                                       integers({N, K}, 1).as(DType::f8e4m3),
                                       integers({C, K}, 1).as(DType::f8e4m3),
                                       integers({C}).as(DType::bf16),
                                       scalar(0.25F),
                                       scalar(0x1p-4F),
                                       inout(scalar(0.0F)),
                                       inout(zeros({N, C}).as(DType::f8e4m3))};
    const Call call = CALL(LinearQuantizeGelu{fp8(t[0], t[7], t[8]), fp8(t[1], t[7], t[8]), t[2],
                                              fp8(t[3], t[6], t[6]), fp8(t[4], t[6], t[6]), t[5]});
    const Call with_slopes =
        CALL(LinearQuantizeGelu{fp8(t[0], t[7], t[8]), fp8(t[1], t[7], t[8]), t[2], fp8(t[3], t[6], t[6]),
                                fp8(t[4], t[6], t[6]), t[5], t[9]});
    const auto expected = run(*cpu_, arrays, call), got = run_twice(arrays, call);
    EXPECT_TRUE(same_bits(got[2], expected[2]));
    const auto expected_slopes = run(*cpu_, arrays, with_slopes), slopes = run(*cuda_, arrays, with_slopes);
    expect_neighbours(DType::f8e4m3, slopes[9], expected_slopes[9], 9, 1 + N * C / 1000);
    for (const size_t i : {0, 1, 8}) EXPECT_TRUE(same_bits(slopes[i], got[i])) << i;
    for (const size_t layout : {0, 1})
      expect_neighbours(DType::f8e4m3, got[layout], expected[layout], layout, 1 + N * C / 1000);
    expect_transposes(got[0], got[1], N, C);
    expect_near(got[8], expected[8], {0.0F, 8.0F * kEps}, 8);
    for (const size_t layout : {0, 1}) {
      const auto one = run(*cuda_, arrays, [layout](Ops& o, auto& t) {
        const Tensor q = fp8(t[layout], t[7], t[8]);
        o(LinearQuantizeGelu{layout == 0 ? q : Tensor{}, layout == 1 ? q : Tensor{}, t[2],
                             fp8(t[3], t[6], t[6]), fp8(t[4], t[6], t[6]), t[5]});
      });
      EXPECT_TRUE(same_bits(one[layout], got[layout])) << "the one layout " << layout;
    }
    run(*cuda_, arrays, [&](Ops& o, auto& t) { o.search([&] { call(o, t); }); });
    const auto searched = run(*cuda_, arrays, call), searched_slopes = run(*cuda_, arrays, with_slopes);
    EXPECT_TRUE(same_bits(searched[2], expected[2]));
    expect_neighbours(DType::f8e4m3, searched[1], expected[1], 1, 1 + N * C / 1000);
    expect_neighbours(DType::f8e4m3, searched_slopes[9], expected_slopes[9], 9, 1 + N * C / 1000);
  }
}

TEST_F(Fp8GpuTest, GradientOfLinearWithGeluAgreesButForNeighboursAlsoSearched) {
  if (!multiplies()) GTEST_SKIP() << "needs sm_89";
  for (size_t one = 0; one < 2 * std::size(kGeluShapes); ++one) {
    const auto [N, C, K] = kGeluShapes[one / 2];
    const bool of_slopes = one % 2 == 1;
    SCOPED_TRACE(cat(N, 'x', C, 'x', K, of_slopes ? " of slopes" : ""));
    bind(1, N, C);
    const std::vector<Array> arrays = {out({N, C}, DType::f8e5m2),
                                       out({C, N}, DType::f8e5m2),
                                       inout(integers({C}).as(DType::bf16)),
                                       inout(zeros({N, C}).as(DType::bf16)),
                                       integers({N, K}, 1).as(DType::f8e5m2),
                                       integers({C, K}, 1).as(DType::f8e4m3),
                                       of_slopes ? reals({N, C}, -0.125F, 1.125F).as(DType::f8e4m3)
                                                 : reals({N, C}, -4.0F, 4.0F).as(DType::bf16),
                                       scalar(0.25F),
                                       scalar(0x1p-10F),
                                       inout(scalar(0.0F))};
    const Call call =
        CALL(LinearQuantizeGeluBackward{fp8(t[0], t[8], t[9]), fp8(t[1], t[8], t[9]), t[2], t[3],
                                        fp8(t[4], t[7], t[7]), fp8(t[5], t[7], t[7]), t[6]});
    const auto expected = run(*cpu_, arrays, call), got = run(*cuda_, arrays, call),
               again = run(*cuda_, arrays, call);
    for (const size_t layout : {0, 1})
      expect_neighbours(DType::f8e5m2, got[layout], expected[layout], layout, 1 + N * C / 1000);
    expect_transposes(got[0], got[1], N, C);
    // Bias gradients are sums of N products of up to K / 16 in magnitude.
    const auto largest = static_cast<float>(K) / 16.0F;
    expect_near(got[2], expected[2], {roundings(N) * kEps * largest * 4.0F, 2.0F * epsilon_of(DType::bf16)},
                2);
    expect_near(got[9], expected[9], {0.0F, 8.0F * kEps}, 9);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(i == 3 || same_bits(got[i], again[i])) << i;
    run(*cuda_, arrays, [&](Ops& o, auto& t) { o.search([&] { call(o, t); }); });
    const auto searched = run(*cuda_, arrays, call);
    expect_neighbours(DType::f8e5m2, searched[1], expected[1], 1, 1 + N * C / 1000);
  }
}

TEST_F(Fp8GpuTest, WhatIsNotFiniteBeforeGeluShowsInItsPlace) {
  if (!multiplies()) GTEST_SKIP() << "needs sm_89";
  const int64_t N = 144, C = 320, K = 64, row = 77, col = 270;
  Array x = integers({N, K}, 1).as(DType::f8e4m3), bias = integers({C}).as(DType::bf16);
  x.values[static_cast<size_t>(row * K + 5)] = kNan;
  bias.values[static_cast<size_t>(col)] = HUGE_VALF;
  const std::vector<Array> arrays = {out({N, C}, DType::f8e4m3),
                                     out({C, N}, DType::f8e4m3),
                                     inout(zeros({N, C}).as(DType::bf16)),
                                     x,
                                     integers({C, K}, 1).as(DType::f8e4m3),
                                     bias,
                                     scalar(1.0F),
                                     inout(scalar(0.0F)),
                                     inout(zeros({N, C}).as(DType::f8e4m3))};
  for (const bool with_slopes : {false, true}) {
    const auto got = run(*cuda_, arrays, [with_slopes](Ops& o, auto& t) {
      o(LinearQuantizeGelu{fp8(t[0], t[6], t[7]), fp8(t[1], t[6], t[7]), t[2], fp8(t[3], t[6], t[6]),
                           fp8(t[4], t[6], t[6]), t[5], with_slopes ? t[8] : Tensor{}});
    });
    for (int64_t n = 0; n < N; ++n)
      for (int64_t c = 0; c < C; ++c) {
        const bool shows = n == row || c == col;
        const auto at = static_cast<size_t>(n * C + c);
        ASSERT_EQ(std::isnan(got[0][at]), shows) << n << ' ' << c;
        ASSERT_EQ(std::isnan(got[1][static_cast<size_t>(c * N + n)]), shows) << n << ' ' << c;
        ASSERT_EQ(std::isnan(got[8][at]), shows && with_slopes) << n << ' ' << c;
      }
    EXPECT_TRUE(std::isnan(got[7][0]));
  }
}

TEST_F(Fp8GpuTest, RefusesWhatCublasltCannotDo) {
  const auto block = cuda_->device().allocate(1 << 16);
  const auto tensor = [&](DType type, Shape shape) {
    Tensor t{block.get(), type, shape, "operand"};
    t.scale = t.amax = static_cast<float*>(block.get());
    return t;
  };
  Ops& o = *cuda_;
  const DType e4m3 = DType::f8e4m3, e5m2 = DType::f8e5m2, bf16 = DType::bf16;
  const Tensor a = tensor(e4m3, {32, 48}), y = tensor(bf16, {32, 32});
  EXPECT_THROW(o(Matmul{y, tensor(e5m2, {32, 48}), tensor(e5m2, {32, 48}), MatOp::NT}),
               std::invalid_argument);
  EXPECT_THROW(o(Matmul{y, a, tensor(bf16, {32, 48}), MatOp::NT}), std::invalid_argument);
  EXPECT_THROW(o(Matmul{tensor(DType::i32, {32, 32}), a, a, MatOp::NT}), std::invalid_argument);
  EXPECT_THROW(o(LinearForward{tensor(DType::f32, {32, 32}), a, a, tensor(DType::f32, {32})}),
               std::invalid_argument);
  EXPECT_THROW(o(Matmul{tensor(bf16, {48, 48}), a, a, MatOp::TN}), std::invalid_argument);
  EXPECT_THROW(o(Matmul{tensor(bf16, {32, 24}), a, tensor(e4m3, {24, 48}), MatOp::NT}),
               std::invalid_argument);
  EXPECT_THROW(o(Quantize{tensor(e4m3, {24, 48}), {}, tensor(bf16, {24, 48})}), std::invalid_argument);
  EXPECT_THROW(o(Quantize{a, a, tensor(bf16, {32, 48})}), std::invalid_argument);
  EXPECT_THROW(o(Quantize{{}, {}, tensor(bf16, {32, 48})}), std::invalid_argument);
  EXPECT_THROW(o(Quantize{a, {}, tensor(DType::f32, {32, 48})}), std::invalid_argument);
  o.synchronize();

  Tensor odd = a;
  odd.scale += 1;
  EXPECT_THROW(o(Matmul{y, a, odd, MatOp::NT}), std::invalid_argument) << "a scale that is not on 16 bytes";

  const auto ampere = make_cuda_ops(0, gpu_test_options({.compute_capability = 80}));
  EXPECT_THROW((*ampere)(Matmul{y, a, tensor(e4m3, {32, 48}), MatOp::NT}), UnsupportedError);
}

}  // namespace
}  // namespace stepladder
