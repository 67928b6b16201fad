// FP8: the two formats, quantising on the CPU, delayed scaling, and the promises of the fp8 rung beyond the
// ladder's tests. PyTorch's FP8 differs where a number doesn't fit (its E5M2 has infinities), so the
// reference is the list of all 256 codes.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "bench/plan/ladder.h"
#include "model/checkpoint.h"
#include "model/fp8_linears.h"
#include "model/half.h"
#include "tests/files.h"
#include "tests/losses.h"
#include "tests/training.h"

namespace stepladder {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// The number that the format's definition gives a code; NaN where it is not finite.
template <class Q>
double number(int code) {
  const int exponent = (code & 0x7F) >> Q::kMantissa, mantissa = code & ((1 << Q::kMantissa) - 1);
  const double fraction = std::ldexp(mantissa, -Q::kMantissa);
  const double value =
      exponent == 0 ? std::ldexp(fraction, 1 - Q::kBias) : std::ldexp(1.0 + fraction, exponent - Q::kBias);
  if (value > static_cast<double>(Q::kMax)) return std::numeric_limits<double>::quiet_NaN();
  return code < 0x80 ? value : -value;
}

/// The code of the number nearest to x, ties to even; found by trying all codes.
template <class Q>
int nearest_code(double x) {
  int best = 0;
  double least = HUGE_VAL;
  for (int code = 0; code < 0x80; ++code) {
    const double distance = std::fabs(std::fabs(x) - number<Q>(code));
    if (distance < least || (distance == least && code % 2 == 0)) best = code, least = distance;
  }
  return std::signbit(x) ? best | 0x80 : best;
}

template <class Q>
class Fp8Format : public testing::Test {};
using Formats = testing::Types<Float8E4M3, Float8E5M2>;
TYPED_TEST_SUITE(Fp8Format, Formats);

TYPED_TEST(Fp8Format, EveryCodeIsTheNumberThatItsBitsSay) {
  for (int code = 0; code < 256; ++code) {
    const float got = to_float(TypeParam{static_cast<uint8_t>(code)});
    const double expected = number<TypeParam>(code);
    const bool infinite = TypeParam::kMantissa == 2 && (code & 0x7F) == 0x7C;
    if (infinite) {
      EXPECT_TRUE(std::isinf(got)) << code;
    } else if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got)) << code;
    } else {
      EXPECT_EQ(got, expected) << code;
      EXPECT_EQ(from_float<TypeParam>(got).bits, code);
    }
  }
}

TYPED_TEST(Fp8Format, RoundsToTheNearestNumberTiesToEven) {
  std::vector<float> values;
  for (int code = 0; code < 0x7B; ++code) {  // middles between neighbours, and the floats beside them
    const auto low = static_cast<float>(number<TypeParam>(code)),
               high = static_cast<float>(number<TypeParam>(code + 1));
    const float middle = 0.5F * (low + high);
    for (const float x : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, kInf)}) {
      values.push_back(x);
      values.push_back(-x);
    }
  }
  for (uint64_t i = 0; i < 2000; ++i)
    values.push_back(
        std::ldexp(static_cast<float>(random_uniform(3, i)) - 0.5F, static_cast<int>(i % 40) - 20));
  for (const float x : values) EXPECT_EQ(from_float<TypeParam>(x).bits, nearest_code<TypeParam>(x)) << x;
}

TYPED_TEST(Fp8Format, SaturatesButShowsWhatIsNotFinite) {
  for (const float x : {TypeParam::kMax, 1.5F * TypeParam::kMax, std::numeric_limits<float>::max()}) {
    EXPECT_EQ(to_float(from_float<TypeParam>(x)), TypeParam::kMax);
    EXPECT_EQ(to_float(from_float<TypeParam>(-x)), -TypeParam::kMax);
  }
  for (const float x : {kInf, -kInf, kNan}) EXPECT_TRUE(std::isnan(to_float(from_float<TypeParam>(x)))) << x;
}

/// CPU ops and tensors in host memory.
class Fp8Ops : public testing::Test {
 protected:
  Fp8Ops() : ops_(make_cpu_ops()) {
    Arena plan;
    ops_->device().bind_workspace(plan, small_config());
    arena_ = std::make_unique<Arena>(*ops_, plan.bytes() + (2 << 20));
    ops_->device().bind_workspace(*arena_, small_config());
  }
  Tensor f32(Shape shape, const std::vector<float>& values) {
    const Tensor t = arena_->alloc("f32", DType::f32, shape);
    (*ops_)(Upload{t, values.data()});
    return t;
  }
  Tensor bf16(Shape shape, const std::vector<float>& values) {
    const Tensor t = arena_->alloc("bf16", DType::bf16, shape);
    (*ops_)(Copy{t, f32(shape, values)});
    return t;
  }
  Tensor random(Shape shape, uint64_t seed, float size = 1.0F) {
    std::vector<float> values;
    for (int64_t i = 0; i < shape.numel(); ++i)
      values.push_back(size * (2.0F * static_cast<float>(random_uniform(seed, i)) - 1.0F));
    return bf16(shape, values);
  }
  Tensor fp8(DType type, Shape shape, float scale) {
    Tensor t = arena_->alloc("fp8", type, shape).scaled(f32({1}, {scale}), f32({1}, {0.0F}));
    std::fill_n(static_cast<uint8_t*>(t.data), t.bytes(), uint8_t{0x7F});
    return t;
  }
  Tensor transpose_of(const Tensor& q) {
    Tensor t = fp8(q.dtype, {q.shape[1], q.shape[0]}, 1.0F);
    t.scale = q.scale, t.amax = q.amax;
    return t;
  }
  /// The numbers that a float or FP8 tensor represents, its scale applied.
  static std::vector<float> values(const Tensor& t) {
    std::vector<float> all;
    const float scale = is_fp8(t.dtype) ? *t.scale : 1.0F;
    with_number_type(t.dtype, [&]<class T>(T) {
      for (int64_t i = 0; i < t.numel(); ++i) all.push_back(to_float(t.ptr<T>()[i]) * scale);
    });
    return all;
  }

  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Arena> arena_;
};

TEST(Tensor, PartsKeepTheScaleOfTheWhole) {
  std::array<Float8E4M3, 24> data{};
  float scale = 2.0F, amax = 0.0F;
  const Tensor whole{data.data(), DType::f8e4m3, {4, 2, 3}, "whole", &scale, &amax};
  for (const Tensor& part : {whole[1], whole.slices(1, 3), whole.view({24}), whole.first({6})}) {
    EXPECT_EQ(part.scale, &scale) << part;
    EXPECT_EQ(part.amax, &amax) << part;
  }
  EXPECT_EQ(whole[1].data, &data[6]);
  EXPECT_EQ(whole.slices(1, 3).data, &data[6]);
  EXPECT_EQ(whole.slices(1, 3).shape, (Shape{2, 2, 3}));
  const Tensor planned{nullptr, DType::f8e4m3, {4, 2}, "planned"};
  EXPECT_EQ(planned.slices(1, 3).data, nullptr);
}

TEST_F(Fp8Ops, QuantizeWritesBothLayoutsAndTheLargestMagnitude) {
  const int64_t N = 19, C = 21;
  const Tensor x = random({N, C}, 1, 3.0F), dbias = bf16({C}, std::vector<float>(C, 2.0F));
  const std::vector<float> exact = values(x);
  const Tensor sums = bf16({C}, std::vector<float>(C, 2.0F));
  (*ops_)(SumRows{sums, x});
  for (const DType type : {DType::f8e4m3, DType::f8e5m2}) {
    const Tensor q = fp8(type, {N, C}, 0.125F), qt = transpose_of(q);
    (*ops_)(Quantize{q, qt, x, type == DType::f8e4m3 ? dbias : Tensor{}});
    const auto rows = values(q), columns = values(qt);
    float largest = 0.0F;
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t c = 0; c < C; ++c) {
        const auto at = static_cast<size_t>(n * C + c);
        const double code = type == DType::f8e4m3
                                ? number<Float8E4M3>(nearest_code<Float8E4M3>(exact[at] * 8.0))
                                : number<Float8E5M2>(nearest_code<Float8E5M2>(exact[at] * 8.0));
        EXPECT_EQ(rows[at], 0.125 * code);
        EXPECT_EQ(columns[static_cast<size_t>(c * N + n)], rows[at]);
        largest = std::max(largest, std::fabs(exact[at]));
      }
    }
    EXPECT_EQ(*q.amax, largest);
  }
  EXPECT_EQ(values(dbias), values(sums));
}

TEST_F(Fp8Ops, EitherLayoutMayBeLeftOut) {
  const Tensor x = random({16, 32}, 2), q = fp8(DType::f8e4m3, {16, 32}, 0.5F), qt = transpose_of(q);
  (*ops_)(Quantize{q, qt, x, {}});
  const auto rows = values(q), columns = values(qt);
  const Tensor alone = fp8(DType::f8e4m3, {16, 32}, 0.5F), turned = transpose_of(alone);
  (*ops_)(Quantize{alone, {}, x, {}});
  (*ops_)(Quantize{{}, turned, x, {}});
  EXPECT_EQ(values(alone), rows);
  EXPECT_EQ(values(turned), columns);
}

TEST_F(Fp8Ops, AnyElementThatIsNotFiniteShowsInItsPlaceAndInTheNextScale) {
  for (const float bad : {kInf, -kInf, kNan}) {
    std::vector<float> x(64, 1.0F);
    x[7] = bad;
    const Tensor q = fp8(DType::f8e5m2, {8, 8}, 1.0F);
    (*ops_)(Quantize{q, transpose_of(q), bf16({8, 8}, x), {}});
    EXPECT_TRUE(std::isnan(values(q)[7]));
    EXPECT_EQ(values(q)[8], 1.0F);
    EXPECT_FALSE(std::isfinite(*q.amax));
    const Tensor scale = f32({1, 4}, {1.0F, 0.0F, 0.0F, 0.0F}),
                 history = f32({1, 4}, {1.0F, 1.0F, 1.0F, 1.0F});
    (*ops_)(UpdateScales{scale, history, f32({1}, {*q.amax}), q.dtype});
    EXPECT_TRUE(std::isnan(values(scale)[0]));
  }
}

TEST_F(Fp8Ops, QuantizeToFitScalesEachMatrixByItself) {
  std::vector<float> x(2 * 16 * 32);
  for (size_t i = 0; i < x.size(); ++i) x[i] = (i < 512 ? 0.02F : 3e4F) * static_cast<float>(i % 7) / 6.0F;
  const Tensor scales = f32({2, 4}, std::vector<float>(8, kNan)), amaxes = f32({2}, {kNan, kNan});
  const Tensor q = arena_->alloc("q", DType::f8e4m3, {2, 16, 32}).scaled(scales, amaxes);
  const Tensor qt = arena_->alloc("qt", DType::f8e4m3, {2, 32, 16}).scaled(scales, amaxes);
  const Tensor from = bf16({2, 16, 32}, x);
  (*ops_)(QuantizeToFit{q, qt, from});
  const std::vector<float> exact = values(from);
  for (size_t l = 0; l < 2; ++l) {
    const float scale = values(scales)[l * kScaleStride], amax = values(amaxes)[l];
    EXPECT_EQ(amax, *std::max_element(&exact[l * 512], &exact[l * 512] + 512));
    EXPECT_LE(amax, 448.0F * scale);
    EXPECT_GT(amax, 448.0F * scale / 2.0F);
    for (size_t i = 0; i < 512; ++i) {
      const double code = number<Float8E4M3>(nearest_code<Float8E4M3>(exact[l * 512 + i] / scale));
      EXPECT_EQ(to_float(q.ptr<Float8E4M3>()[l * 512 + i]), code);
      EXPECT_EQ(to_float(qt.ptr<Float8E4M3>()[l * 512 + i % 32 * 16 + i / 32]), code);
    }
  }
}

TEST_F(Fp8Ops, ActivationsAreQuantizedUnrounded) {
  const Tensor x = random({32, 48}, 4, 3.0F), dout = random({32, 48}, 5);
  const Tensor out = arena_->alloc("gelu", DType::f32, {32, 48}),
               wide = arena_->alloc("x", DType::f32, {32, 48});
  const Tensor dwide = arena_->alloc("dout", DType::f32, {32, 48});
  (*ops_)(Copy{wide, x}), (*ops_)(Copy{dwide, dout});
  const auto expect_quantized = [&](const Tensor& q, const Tensor& qt) {
    const Tensor expected = fp8(q.dtype, {32, 48}, *q.scale), turned = transpose_of(expected);
    (*ops_)(Quantize{expected, turned, out, {}});
    EXPECT_EQ(values(q), values(expected));
    EXPECT_EQ(values(qt), values(turned));
    EXPECT_EQ(*q.amax, *expected.amax);
  };
  const Tensor q = fp8(DType::f8e4m3, {32, 48}, 0x1p-6F), qt = transpose_of(q);
  const Tensor dq = fp8(DType::f8e5m2, {32, 48}, 0x1p-12F), dqt = transpose_of(dq);
  (*ops_)(QuantizeGelu{q, qt, x});
  (*ops_)(GeluForward{out, wide});
  expect_quantized(q, qt);
  const Tensor of_gelu = bf16({48}, std::vector<float>(48, 1.0F));
  (*ops_)(QuantizeGeluBackward{dq, dqt, of_gelu, dout, x});
  (*ops_)(GeluBackward{out, dwide, wide});
  expect_quantized(dq, dqt);
  const Tensor exact = f32({48}, std::vector<float>(48, 1.0F)),
               sums = bf16({48}, std::vector<float>(48, 0.0F));
  (*ops_)(SumRows{exact, out});
  (*ops_)(Copy{sums, exact});
  EXPECT_EQ(values(of_gelu), values(sums));
}

TEST_F(Fp8Ops, SlopesOfGeluAreItsDerivativeInE4m3AndMultiplyTheGradient) {
  const int64_t N = 32, C = 48;
  const Tensor x = random({N, C}, 4, 4.0F), dout = random({N, C}, 5), q = fp8(DType::f8e4m3, {N, C}, 1.0F),
               slopes = fp8(DType::f8e4m3, {N, C}, 1.0F);
  (*ops_)(QuantizeGelu{q, {}, x, slopes});
  const auto got = values(slopes), at = values(x), gradient = values(dout);
  for (size_t i = 0; i < got.size(); ++i) {
    const double z = at[i], u = std::sqrt(2.0 / M_PI) * (z + 0.044715 * z * z * z), t = std::tanh(u);
    const double slope =
        0.5 * (1.0 + t) + 0.5 * z * (1.0 - t * t) * std::sqrt(2.0 / M_PI) * (1.0 + 0.134145 * z * z);
    EXPECT_EQ(got[i], static_cast<float>(number<Float8E4M3>(nearest_code<Float8E4M3>(slope)))) << z;
  }

  std::vector<float> products(got.size());
  for (size_t i = 0; i < got.size(); ++i) products[i] = gradient[i] * got[i];
  const Tensor dq = fp8(DType::f8e5m2, {N, C}, 0x1p-12F), expected = fp8(DType::f8e5m2, {N, C}, 0x1p-12F);
  const Tensor dbias = bf16({C}, std::vector<float>(C, 0.0F)), sums = bf16({C}, std::vector<float>(C, 0.0F));
  (*ops_)(QuantizeGeluBackward{dq, {}, dbias, dout, slopes});
  const Tensor exact = f32({N, C}, products), of_rows = f32({C}, std::vector<float>(C, 0.0F));
  (*ops_)(Quantize{expected, {}, exact}), (*ops_)(SumRows{of_rows, exact}), (*ops_)(Copy{sums, of_rows});
  EXPECT_EQ(values(dq), values(expected));
  EXPECT_EQ(values(dbias), values(sums));
}

TEST_F(Fp8Ops, LinearWithGeluIsTheOneAndThenTheOther) {
  const int64_t N = 32, C = 48, K = 16;
  const Tensor x = fp8(DType::f8e4m3, {N, K}, 0x1p-8F), w = fp8(DType::f8e4m3, {C, K}, 0x1p-8F);
  (*ops_)(Quantize{x, {}, random({N, K}, 6)}), (*ops_)(Quantize{w, {}, random({C, K}, 7)});
  const Tensor b = random({C}, 8), dbias = random({C}, 9), dbias_alone = bf16({C}, values(dbias));
  const auto half = [&] { return bf16({N, C}, std::vector<float>(N * C, kNan)); };
  const auto pair = [&](DType type) {
    const Tensor q = fp8(type, {N, C}, 0x1p-8F);
    return Fp8Pair{q, transpose_of(q)};
  };
  const auto expect_same = [&](const Fp8Pair& got, const Fp8Pair& expected) {
    EXPECT_EQ(values(got.q), values(expected.q));
    EXPECT_EQ(values(got.qt), values(expected.qt));
    EXPECT_EQ(*got.q.amax, *expected.q.amax);
  };

  const Tensor y = half(), y_alone = half();
  const Fp8Pair gelu = pair(DType::f8e4m3), gelu_alone = pair(DType::f8e4m3);
  (*ops_)(LinearQuantizeGelu{gelu.q, gelu.qt, y, x, w, b});
  (*ops_)(LinearForward{y_alone, x, w, b});
  (*ops_)(QuantizeGelu{gelu_alone.q, gelu_alone.qt, y_alone});
  EXPECT_EQ(values(y), values(y_alone));
  expect_same(gelu, gelu_alone);
  const Tensor slopes = fp8(DType::f8e4m3, {N, C}, 1.0F), slopes_alone = fp8(DType::f8e4m3, {N, C}, 1.0F);
  (*ops_)(LinearQuantizeGelu{gelu.q, gelu.qt, y, x, w, b, slopes});
  (*ops_)(QuantizeGelu{gelu_alone.q, gelu_alone.qt, y_alone, slopes_alone});
  expect_same(gelu, gelu_alone);
  EXPECT_EQ(values(slopes), values(slopes_alone));

  const Tensor dy = half(), dy_alone = half();
  const Fp8Pair dgelu = pair(DType::f8e5m2), dgelu_alone = pair(DType::f8e5m2);
  const Tensor dout = fp8(DType::f8e5m2, {N, K}, 0x1p-16F);
  (*ops_)(Quantize{dout, {}, random({N, K}, 10)});
  for (const Tensor& kept : {y, slopes}) {
    (*ops_)(LinearQuantizeGeluBackward{dgelu.q, dgelu.qt, dbias, dy, dout, w, kept});
    (*ops_)(Matmul{dy_alone, dout, w, MatOp::NT});
    (*ops_)(QuantizeGeluBackward{dgelu_alone.q, dgelu_alone.qt, dbias_alone, dy_alone, kept});
    expect_same(dgelu, dgelu_alone);
    EXPECT_EQ(values(dbias), values(dbias_alone));
  }

  // Other types are refused, as the kernel for Hopper doesn't take them.
  EXPECT_THROW((*ops_)(LinearQuantizeGelu{dgelu.q, dgelu.qt, y, x, w, b}), std::invalid_argument);
  EXPECT_THROW((*ops_)(LinearQuantizeGelu{gelu.q, gelu.qt, y, dout, w, b}), std::invalid_argument);
  EXPECT_THROW((*ops_)(LinearQuantizeGeluBackward{dgelu.q, dgelu.qt, dbias, dy, x, w, y}),
               std::invalid_argument);
  EXPECT_THROW((*ops_)(LinearQuantizeGeluBackward{gelu.q, gelu.qt, dbias, dy, dout, w, y}),
               std::invalid_argument);
}

TEST_F(Fp8Ops, LayernormIsQuantizedUnrounded) {
  const int64_t N = 19, C = 48;
  const Tensor x = random({N, C}, 10, 3.0F), w = random({C}, 11, 2.0F), b = random({C}, 12);
  const Tensor mean = f32({N}, std::vector<float>(N, kNan)), rstd = f32({N}, std::vector<float>(N, kNan));
  const Tensor expected_mean = f32({N}, std::vector<float>(N)),
               expected_rstd = f32({N}, std::vector<float>(N));
  (*ops_)(LayerNormForward{bf16({N, C}, std::vector<float>(N * C)), expected_mean, expected_rstd, x, w, b});
  const Tensor q = fp8(DType::f8e4m3, {N, C}, 0x1p-5F), qt = transpose_of(q);
  (*ops_)(QuantizeLayerNorm{q, qt, mean, rstd, x, w, b});
  EXPECT_EQ(values(mean), values(expected_mean));
  EXPECT_EQ(values(rstd), values(expected_rstd));

  const auto vx = values(x), vw = values(w), vb = values(b), rows = values(q), columns = values(qt);
  float largest = 0.0F;
  for (int64_t n = 0; n < N; ++n) {
    const double m = mean.ptr<float>()[n], r = rstd.ptr<float>()[n];
    for (int64_t c = 0; c < C; ++c) {
      const auto i = static_cast<size_t>(n * C + c), at = static_cast<size_t>(c);
      const double v = (static_cast<double>(vx[i]) - m) * r * vw[at] + vb[at];
      EXPECT_EQ(rows[i], 0x1p-5 * number<Float8E4M3>(nearest_code<Float8E4M3>(v * 0x1p5))) << v;
      EXPECT_EQ(columns[static_cast<size_t>(c * N + n)], rows[i]);
      largest = std::max(largest, static_cast<float>(std::fabs(v)));
    }
  }
  EXPECT_NEAR(*q.amax, largest, 0x1p-20F * largest);
}

TEST_F(Fp8Ops, LayernormsGradientIsQuantizedAsStored) {
  const int64_t N = 16, C = 32;
  const Tensor dout = random({N, C}, 20), x = random({N, C}, 21), w = random({C}, 22);
  const Tensor mean = f32({N}, std::vector<float>(N, 0.1F)), rstd = f32({N}, std::vector<float>(N, 1.5F));
  const Tensor before = random({N, C}, 23), one = bf16({C}, std::vector<float>(C, 1.0F));
  std::vector<Tensor> got, expected;  // each holds dx, dw, db and dbias
  for (auto* all : {&got, &expected})
    for (const Tensor& t : {before, one, one, one}) all->push_back(bf16(t.shape, values(t)));
  (*ops_)(LayerNormBackward{expected[0], NormParams{expected[1], expected[2]}, expected[3], dout,
                            NormInput{x, mean, rstd}, w});
  const Tensor q = fp8(DType::f8e5m2, {N, C}, 0x1p-13F), qt = transpose_of(q);
  (*ops_)(QuantizeLayerNormBackward{Fp8Pair{q, qt}, got[0], NormParams{got[1], got[2]}, got[3], dout,
                                    NormInput{x, mean, rstd}, w});
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(values(got[i]), values(expected[i])) << i;
  EXPECT_NE(values(got[0]), values(before));

  const Tensor of_dx = fp8(DType::f8e5m2, {N, C}, 0x1p-13F), turned = transpose_of(of_dx);
  (*ops_)(Quantize{of_dx, turned, expected[0]});
  EXPECT_EQ(values(q), values(of_dx));
  EXPECT_EQ(values(qt), values(turned));
  EXPECT_EQ(*q.amax, *of_dx.amax);
}

TEST_F(Fp8Ops, TheClassifiersGradientIsQuantizedUnrounded) {
  const int64_t N = 6, V = 45, Vp = 64;
  const Tensor logits = random({N, Vp}, 9, 4.0F), wide = arena_->alloc("wide", DType::f32, {N, Vp});
  const Tensor targets = arena_->alloc("targets", DType::i32, {N});
  for (int32_t n = 0; n < N; ++n) targets.ptr<int32_t>()[n] = 7 * n;
  const Tensor losses = f32({N}, std::vector<float>(N, kNan)),
               expected_losses = f32({N}, std::vector<float>(N));
  const std::vector<float> before = values(logits);
  const Tensor q = fp8(DType::f8e5m2, {N, Vp}, 0x1p-20F), qt = transpose_of(q);
  (*ops_)(QuantizeCrossEntropy{q, losses, logits, targets, V, 0.01F});
  EXPECT_EQ(values(logits), before);

  (*ops_)(Copy{wide, logits});
  (*ops_)(CrossEntropyForwardBackward{expected_losses, wide, targets, V, 0.01F});
  const Tensor expected = fp8(DType::f8e5m2, {N, Vp}, 0x1p-20F), turned = transpose_of(expected);
  (*ops_)(Quantize{expected, turned, wide});
  EXPECT_EQ(values(q), values(expected));
  EXPECT_EQ(*q.amax, *expected.amax);
  EXPECT_EQ(values(losses), values(expected_losses));
  (*ops_)(Transpose{qt, q});
  EXPECT_EQ(values(qt), values(turned));
}

TEST_F(Fp8Ops, ScalesFollowTheLargestOfTheLastSteps) {
  const Tensor scale = f32({2, 4}, std::vector<float>(8, kNan)), amax = f32({2}, {0.0F, 0.0F});
  const Tensor history = f32({2, 3}, std::vector<float>(6, 0.0F));
  const auto step = [&](float first, DType type = DType::f8e4m3) {
    amax.ptr<float>()[0] = first, amax.ptr<float>()[1] = 448.0F;
    (*ops_)(UpdateScales{scale, history, amax, type});
    return values(scale)[0];
  };
  EXPECT_EQ(step(0.0F), 1.0F) << "of nothing known";
  EXPECT_EQ(step(448.0F), 1.0F);
  EXPECT_EQ(step(std::nextafter(448.0F, kInf)), 2.0F) << "the least power of two that fits";
  EXPECT_EQ(step(1.0F), 2.0F) << "the largest of three steps";
  EXPECT_EQ(step(3.0F), 2.0F);
  EXPECT_EQ(step(3.0F), 0x1p-7F) << "448 has left the window";
  EXPECT_EQ(step(0.0F), 0x1p-7F) << "a tensor that was not written leaves its history alone";
  EXPECT_EQ(values(history), (std::vector<float>{3.0F, 3.0F, 1.0F, 448.0F, 448.0F, 448.0F}));
  EXPECT_EQ(step(1e-8F, DType::f8e5m2), 0x1p-14F);
  EXPECT_TRUE(std::isnan(step(kInf)));
}

TEST_F(Fp8Ops, MatmulIsTheProductOfWhatTheElementsStandFor) {
  const int64_t M = 37, N = 48, K = 300;
  for (const auto& [a_type, b_type] : {std::pair{DType::f8e4m3, DType::f8e4m3},
                                       {DType::f8e5m2, DType::f8e4m3},
                                       {DType::f8e4m3, DType::f8e5m2}}) {
    const Tensor a = fp8(a_type, {M, K}, 0.25F), b = fp8(b_type, {N, K}, 0x1p-9F);
    (*ops_)(Quantize{a, {}, random({M, K}, 6), {}});
    (*ops_)(Quantize{b, {}, random({N, K}, 7, 0.02F), {}});
    const Tensor expected = arena_->alloc("out", DType::f32, {M, N});
    (*ops_)(Matmul{expected, f32({M, K}, values(a)), f32({N, K}, values(b)), MatOp::NT});
    for (const Write write : {Write::set, Write::add}) {
      const float before = write == Write::add ? 1.0F : 0.0F;
      const Tensor out = bf16({M, N}, std::vector<float>(M * N, write == Write::add ? before : kNan));
      (*ops_)(Matmul{out, a, b, MatOp::NT, write});
      const auto got = values(out), exact = values(expected);
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_NEAR(got[i], exact[i] + before, 0x1p-8F * std::fabs(exact[i] + before) + 1e-6F);
      const Tensor sum = f32({M, N}, std::vector<float>(M * N, write == Write::add ? before : kNan));
      (*ops_)(Matmul{sum, a, b, MatOp::NT, write});
      const auto wide = values(sum);
      for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(wide[i], exact[i] + before, 1e-6F);
    }
    const Tensor bias = random({N}, 8), biased = bf16({M, N}, std::vector<float>(M * N, kNan));
    (*ops_)(LinearForward{biased, a, b, bias});
    const Tensor residual = random({M, N}, 9), whole = bf16({M, N}, std::vector<float>(M * N, kNan));
    (*ops_)(LinearForward{whole, a, b, bias, residual});
    const auto got = values(biased), exact = values(expected), add = values(bias);
    const auto added = values(whole), before = values(residual);
    for (size_t i = 0; i < got.size(); ++i) {
      const float sum = exact[i] + add[i % static_cast<size_t>(N)], all = sum + before[i];
      EXPECT_NEAR(got[i], sum, 0x1p-8F * std::fabs(sum) + 1e-6F);
      EXPECT_NEAR(added[i], all, 0x1p-8F * std::fabs(all) + 1e-6F);
    }
  }
}

TEST_F(Fp8Ops, BiasGradientsAddUpInF32) {
  // A row of ones would add nothing to a 16-bit sum of 2^15.
  const int64_t N = 16, C = 32;
  const Tensor q = fp8(DType::f8e5m2, {N, C}, 1.0F), x = bf16({N, C}, std::vector<float>(N * C, 1.0F));
  const std::vector<float> before(C, 0x1p15F), after(C, 0x1p15F + static_cast<float>(N));
  const Tensor dbias = f32({C}, before);
  (*ops_)(Quantize{q, {}, x, dbias});
  EXPECT_EQ(values(dbias), after);
  const Tensor slopes = arena_->alloc("slopes", DType::f8e4m3, {N, C});
  for (int64_t i = 0; i < N * C; ++i) slopes.ptr<Float8E4M3>()[i] = from_float<Float8E4M3>(1.0F);
  const Tensor of_gelu = f32({C}, before);
  (*ops_)(QuantizeGeluBackward{q, {}, of_gelu, x, slopes});
  EXPECT_EQ(values(of_gelu), after);
}

TEST_F(Fp8Ops, RefusesWhatFp8IsNot) {
  const Tensor a = fp8(DType::f8e4m3, {16, 32}, 1.0F), d = fp8(DType::f8e5m2, {16, 32}, 1.0F);
  const Tensor out = bf16({16, 16}, std::vector<float>(256)), x = random({16, 32}, 1);
  Tensor unscaled = a;
  unscaled.scale = nullptr;
  EXPECT_THROW((*ops_)(Matmul{out, d, d, MatOp::NT}), std::invalid_argument)
      << "no tensor core multiplies these";
  EXPECT_THROW((*ops_)(Matmul{out, a, x, MatOp::NT}), std::invalid_argument);
  EXPECT_THROW((*ops_)(Matmul{out, a, unscaled, MatOp::NT}), std::invalid_argument);
  EXPECT_THROW(
      (*ops_)(LinearForward{f32({16, 16}, std::vector<float>(256)), a, a, f32({16}, std::vector<float>(16))}),
      std::invalid_argument);
  EXPECT_THROW((*ops_)(Matmul{bf16({32, 32}, std::vector<float>(1024)), a, a, MatOp::TN}),
               std::invalid_argument);
  EXPECT_THROW((*ops_)(Quantize{{}, {}, x, {}}), std::invalid_argument);
  EXPECT_THROW((*ops_)(Quantize{a, a, x, {}}), std::invalid_argument) << "not transposed";
  EXPECT_THROW((*ops_)(Quantize{unscaled, {}, x, {}}), std::invalid_argument);
  EXPECT_THROW((*ops_)(Quantize{a, transpose_of(d), x, {}}), std::invalid_argument) << "two scales";
  EXPECT_THROW((*ops_)(Quantize{x, {}, x, {}}), std::invalid_argument);
  EXPECT_THROW((*ops_)(Transpose{a, a}), std::invalid_argument);
  EXPECT_THROW((*ops_)(QuantizeGeluBackward{d, {}, random({16}, 2), x, x}), std::invalid_argument)
      << "a bias of rows";
  const Tensor rows = f32({16}, std::vector<float>(16)), w = random({32}, 2), at = transpose_of(a);
  EXPECT_THROW((*ops_)(QuantizeLayerNorm{a, a, rows, rows, x, w, w}), std::invalid_argument)
      << "not transposed";
  EXPECT_THROW((*ops_)(QuantizeLayerNorm{a, at, rows, rows, x, w, random({16}, 2)}), std::invalid_argument);
  EXPECT_THROW((*ops_)(QuantizeLayerNorm{a, at, rows, f32({8}, std::vector<float>(8)), x, w, w}),
               std::invalid_argument);
  EXPECT_THROW((*ops_)(QuantizeLayerNormBackward{Fp8Pair{d, d}, x, NormParams{w, w}, w, x,
                                                 NormInput{x, rows, rows}, w}),
               std::invalid_argument);
  EXPECT_THROW((*ops_)(GeluBackward{a, a, a}), std::invalid_argument) << "not a float";
}

TEST(Fp8Extents, ThoseThatAGpuCannotMultiplyNameTheOptionToChange) {
  const auto reason = [](int64_t B, int64_t T, int64_t C) -> std::string {
    Config config;
    config.B = B, config.T = T, config.C = C;
    try {
      expect_fp8_extents(config);
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  };
  const auto names = [](const std::string& text, const char* option) {
    return text.find(option) != std::string::npos;
  };
  EXPECT_EQ(reason(2, 24, 768), "");
  const std::string channels = reason(4, 1024, 100), tokens = reason(3, 100, 768);
  EXPECT_TRUE(names(channels, "--channels") && !names(channels, "--batch")) << channels;
  EXPECT_TRUE(names(tokens, "--batch") && names(tokens, "--seq") && !names(tokens, "--channels")) << tokens;
}

TEST(Fp8Rung, EveryGemmOfThePassesIsOfFp8) {
  for (const char* rung : {"fp8", "fp8_muon"}) {
    Training run(rung);
    run.losses(1);
    int gemms = 0, of_muon = 0;
    for (const std::string& call : run.recording.calls) {
      if (call.find("matmul") == std::string::npos && !call.starts_with("linear_")) continue;
      const bool fp8 = call.find("f8e4m3") != std::string::npos;
      ++(fp8 ? gemms : of_muon);
    }
    // Calls of GEMMs in four passes (a step, before it one to warm up and two to set scales): forward, dgrad
    // and wgrad of four layers in each block, and of the head.
    EXPECT_EQ(gemms, (1 + 3) * 3 * (4 * run.config.L + 1)) << rung;
    // Three products in each of five iterations, for four stacks of matrices.
    EXPECT_EQ(of_muon, run.trainer->architecture() == kGpt2 ? 0 : 3 * 5 * 4) << rung;
  }
}

TEST(Fp8Rung, ShowsNanOfAWeightInTheLoss) {
  Training run("fp8");
  run.losses(2);
  const float nan = kNan;
  for (const Tensor& w : {run.trainer->tensors().params.find("h.*.mlp.c_fc.weight"),
                          run.trainer->tensors().weights.find("h.*.mlp.c_fc.weight")})
    (*run.ops)(Upload{w[0][3].first({1}), &nan});
  run.losses(1);  // multiplies by weights quantised before the NaN
  EXPECT_TRUE(std::isnan(run.losses(1)[0]));
}

TEST(Fp8Rung, EvaluatingLeavesTrainingAlone) {
  Training alone("fp8"), watched("fp8");
  std::vector<float> losses;
  Loader other{learnable_tokens(watched.config), watched.config.B, watched.config.T};
  for (int step = 0; step < 5; ++step) {
    losses.push_back(watched.losses(1)[0]);
    // Evaluates with inputs of GEMMs far larger than training's.
    const Tensor norm = watched.trainer->tensors().weights.find("h.*.ln_1.weight");
    (*watched.ops)(Affine{norm, norm, 1024.0F, 0.0F});
    watched.trainer->evaluate(other, 2);
    (*watched.ops)(Affine{norm, norm, 1.0F / 1024.0F, 0.0F});
  }
  EXPECT_EQ(alone.losses(5), losses);
}

TEST(Fp8Rung, ResumesBitForBit) {
  TempFolder folder;
  const std::string path = folder / "half.ckpt";
  for (const char* rung : {"fp8", "fp8_muon"}) {
    Training whole(rung), first(rung), rest(rung);
    auto losses = whole.losses(6);
    first.losses(3);
    save_checkpoint(path, *first.ops, *first.trainer, {.step = 3, .batch = 3, .seed = 1337});
    load_checkpoint(path, *rest.ops, *rest.trainer, rest.config);
    rest.trainer->prepare();
    rest.data.seek(3);
    rest.done = 3;
    losses.erase(losses.begin(), losses.begin() + 3);
    EXPECT_EQ(rest.losses(3), losses) << rung;
  }
}

TEST(Fp8Rung, TakesACheckpointOfItsParentOnTheLadderOfLearning) {
  TempFolder folder;
  const std::string path = folder / "half.ckpt";
  Training in_bf16("03_rotary"), rest("fp8_muon");
  in_bf16.losses(20);
  save_checkpoint(path, *in_bf16.ops, *in_bf16.trainer, {.step = 20, .batch = 20, .seed = 1337});
  load_checkpoint(path, *rest.ops, *rest.trainer, rest.config);
  rest.trainer->prepare();
  rest.data.seek(20);
  rest.done = 20;
  expect_close(rest.losses(5), in_bf16.losses(5), our_rung("fp8")->tolerance);
}

TEST(Fp8Rung, CalibratesBeforeTheFirstStepCounts) {
  Training run("fp8");
  run.losses(1);
  const Tensor history = run.trainer->tensors().fp8_history;
  for (const float newest : run.values(history)) EXPECT_TRUE(std::isfinite(newest));
  for (int64_t group = 0; group < 2; ++group)
    for (int64_t role = 0; role < history.shape[1]; ++role) {
      const auto values = run.values(history[group][role]);
      EXPECT_GT(values[0], 0.0F) << "step 0 of " << role;
      EXPECT_GT(values[1], 0.0F) << "calibration of " << role;
      EXPECT_EQ(values[2], 0.0F) << role;
    }
  // The last layer's output gradient stays within a factor of two from calibration to the first step, as
  // delayed scaling needs.
  const auto last = run.values(history[1][4 * run.config.L]);
  EXPECT_NEAR(last[0] / last[1], 1.0F, 0.5F);
}

TEST(Fp8Rung, AGradientThroughWeightsOfZeroKeepsTheScaleOfTheLargest) {
  Training run("fp8_muon");
  const int64_t L = run.config.L;
  const float largest = 1.0F / static_cast<float>(run.config.B * run.config.T);
  // With projections of 0 no gradient reaches what is before them in the first step.
  for (const NamedTensor& p : run.trainer->tensors().params.each())
    if (p.name.ends_with("c_proj.weight")) (*run.ops)(Zero{p.tensor});
  run.trainer->prepare();
  const Tensor history = run.trainer->tensors().fp8_history;
  for (const bool first : {true, false}) {
    run.losses(1);
    for (const int64_t kind : {Fp8Linears::kQkv, Fp8Linears::kFc})
      for (int64_t l = 0; l < L; ++l) {
        const float newest = run.values(history[1][kind * L + l])[0];
        EXPECT_GT(newest, 0.0F);
        EXPECT_EQ(newest == largest, first) << newest;
      }
    for (int64_t l = 0; l < L; ++l)
      EXPECT_NE(run.values(history[1][Fp8Linears::kFcproj * L + l])[0], largest) << "known from the start";
  }
}

TEST(Fp8Rung, NeedsTheRangeOfBf16) {
  for (const char* rung : {"fp8", "fp8_muon"})
    EXPECT_THROW(Training(rung, DType::f16), UnsupportedError) << rung;
}

}  // namespace
}  // namespace stepladder
