// The fused CUDA ops against the CPU reference: each type, with and without 128-bit accesses.
#include "tests/op_agreement.h"

namespace stepladder {
namespace {

struct Variant {
  DType dtype;
  bool wide_access;
  int compute_capability;  // 0: unlimited
};

class FusedGpuTest : public OpAgreement, public testing::WithParamInterface<Variant> {
 protected:
  OpsOptions options() const override {
    OpsOptions options;
    options.wide_access = GetParam().wide_access;
    options.compute_capability = GetParam().compute_capability;
    return options;
  }

  static DType type() { return GetParam().dtype; }

  Array values(Shape shape, float low = -1.0F, float high = 1.0F) {
    return reals(shape, low, high).as(type());
  }
  Array whole(Shape shape, int limit = 8) { return integers(shape, limit).as(type()); }
  /// Multiples of 1/32 in [-2,2]: sums of a few of them are exact in f32.
  Array fractions(Shape shape) {
    Array a = integers(shape, 64);
    for (float& x : a.values) x /= 32.0F;
    return a.as(type());
  }
  static Array result(Shape shape) { return out(shape, type()); }

  /// The tolerance of f32 arithmetic, `absolute` and `relative`, plus a 16-bit result rounded to the other
  /// neighbour.
  static Tolerance rounded(float absolute, float relative = 0.0F) {
    if (type() == DType::f32) return {absolute, relative};
    const float subnormal = type() == DType::f16 ? 0x1p-24F : 0.0F;
    return {absolute + subnormal, relative + epsilon_of(type())};
  }
};

// Rows of one element, in one warp with one pack and with three, over several warps, for the scalar path, and
// too long for registers.
const Shape kNormShapes[] = {{1, 1},      {13, 48},   {3, 77},   {5000, 768}, {1000, 1024}, {77, 1025},
                             {500, 1600}, {40, 2304}, {9, 3840}, {7, 3848},   {3, kV}};

TEST_P(FusedGpuTest, LayerNormForwardAgrees) {
  for (const Shape& s : kNormShapes) {
    const int64_t N = s[0], C = s[1];
    const std::vector<Array> arrays = {result(s), out({N}), out({N}), fractions(s), values({C}), values({C})};
    // (x - mean) * rstd is at most about 2; the mean's error is that of its sum.
    expect_agreement(named("layernorm_forward", s), arrays,
                     rounded(8.0F * kEps * roundings(C), kEps * roundings(C)),
                     CALL(LayerNormForward{t[0], t[1], t[2], t[3], t[4], t[5]}));
  }
}

TEST_P(FusedGpuTest, AddBiasResidualAgrees) {
  for (const Shape& s : kNormShapes) {
    const Array x = fractions(s), y = fractions(s), bias = fractions({s[1]});
    const Tolerance few = rounded(4.0F * kEps, kEps);
    expect_also_in_place(named("add_bias_residual", s), {result(s), x, y, bias}, few,
                         CALL(AddBiasResidual{t[0], t[1], t[2], t[3]}));
  }
}

TEST_P(FusedGpuTest, LayerNormBackwardAgrees) {
  for (const Shape& s : kNormShapes) {
    const int64_t N = s[0], C = s[1];
    bind(1, N, C);
    const Array dx = values(s), dout = values(s), x = values(s), w = values({C});
    const Array mean = reals({N}, -0.1F, 0.1F), rstd = reals({N}, 0.5F, 2.0F);
    const auto call =
        CALL(LayerNormBackward{t[0], NormParams{t[1], t[2]}, t[3], t[4], NormInput{t[5], t[6], t[7]}, t[8]});
    // Sums of N terms of at most 8; a few elements of the new dx in them may be rounded to the other
    // neighbour.
    const auto rows = static_cast<float>(N);
    const float flipped = type() == DType::f32 ? 0.0F : (4.0F + rows / 100.0F) * 8.0F * epsilon_of(type());
    const float sums = kEps * (roundings(N) + roundings(C)) * 8.0F * (rows + 1.0F) + flipped;
    expect_agreement(
        named("all", s),
        {inout(dx), inout(values({C})), inout(values({C})), inout(values({C})), dout, x, mean, rstd, w},
        rounded(sums), call);
    expect_agreement(
        named("dx alone", s), {inout(dx), result({C}), result({C}), dout, x, mean, rstd, w},
        rounded(16.0F * kEps * (8.0F + roundings(C))), [](Ops& o, auto& t) {
          o(LayerNormBackward{t[0], NormParams{t[1], t[2]}, {}, t[3], NormInput{t[4], t[5], t[6]}, t[7]});
          for (const int sum : {1, 2}) o(Zero{t[sum]});
        });
  }
}

TEST_P(FusedGpuTest, LayerNormBackwardSumsEveryRowOnce) {
  for (const Shape& s : kNormShapes) {
    const int64_t N = s[0], C = s[1];
    bind(1, N, C);
    // Every sum is exact where xhat has whole numbers and w = 0, which leaves dx unchanged.
    Array ones = out({N}), zeros = result({C});
    std::fill(ones.values.begin(), ones.values.end(), 1.0F);
    std::fill(zeros.values.begin(), zeros.values.end(), 0.0F);
    ones.output = zeros.output = false;
    expect_agreement(
        named("whole numbers", s),
        {inout(whole(s)), inout(whole({C})), inout(whole({C})), inout(whole({C})), whole(s), whole(s),
         integers({N}), ones, zeros},
        kExact,
        CALL(LayerNormBackward{t[0], NormParams{t[1], t[2]}, t[3], t[4], NormInput{t[5], t[6], t[7]}, t[8]}));
    expect_agreement(
        named("into f32", s),
        {inout(whole(s)), inout(integers({C}, 1 << 20)), inout(integers({C}, 1 << 20)),
         inout(integers({C}, 1 << 20)), whole(s), whole(s), integers({N}), ones, zeros},
        kExact,
        CALL(LayerNormBackward{t[0], NormParams{t[1], t[2]}, t[3], t[4], NormInput{t[5], t[6], t[7]}, t[8]}));
  }
}

struct ClassifierCase {
  int64_t B, T, V, Vp;
};

// Padded and unpadded rows; rows that start on every multiple of an element; fewer elements than a pack; rows
// that shared memory holds twice, once or not at all.
const ClassifierCase kClassifierCases[] = {{1, 1, 1, 1},         {1, 1, 1, 8},        {5, 3, 3, 3},
                                           {3, 7, 48, 64},       {1, 17, 1000, 1003}, {1, 13, 1025, 1025},
                                           {2, 5, kV, kV},       {2, 5, kV, 50304},   {3, 3, 9000, 9001},
                                           {1, 3, 65537, 65537}, {1, 3, 65537, 65544}};

TEST_P(FusedGpuTest, CrossEntropyAgrees) {
  for (const ClassifierCase& c : kClassifierCases) {
    const Shape rows{c.B, c.T}, s{c.B, c.T, c.Vp};
    const std::string what = cat("V=", c.V, " Vp=", c.Vp, " rows=", rows);
    const Array targets = tokens(rows, c.V);
    Array logits = values(s, -10.0F, 10.0F);
    for (int64_t i = 0; i < s.numel(); ++i)
      if (i % c.Vp >= c.V) logits.values[static_cast<size_t>(i)] = kNan;
    // The loss, max - logit + log(sum), has terms of at most 20 + log(V).
    const Tolerance loss{kEps * (4.0F * 31.0F + roundings(c.V)), 0.0F};
    expect_agreement("losses, " + what, {out(rows), logits, targets}, loss,
                     CALL(CrossEntropyForward{t[0], t[1], t[2], c.V}));

    for (const float scaler : {0.0F, 1024.0F}) {
      const float scale = 0.125F, total = scaler == 0.0F ? scale : scale * scaler;
      Array state = out({4});
      state.values = {scaler, 0.0F, 0.0F, 0.0F};
      state.output = false;
      const auto call = [=](Ops& o, auto& t) {
        const Tensor loss_scaler = scaler == 0.0F ? Tensor{} : t[3];
        o(CrossEntropyForwardBackward{t[0], t[1], t[2], c.V, scale, loss_scaler});
      };
      const Tolerance tolerance =
          rounded(8.0F * kEps * total + loss.absolute, kEps * (64.0F + 2.0F * roundings(c.V)));
      expect_agreement(cat("gradient, scaler ", scaler, ", ", what),
                       {out(rows), inout(logits), targets, state}, tolerance, call);
      // The gradient is compared by itself too, since the losses' tolerance is far larger than probabilities.
      expect_agreement(
          cat("gradient alone, scaler ", scaler, ", ", what), {out(rows), inout(logits), targets, state},
          rounded(8.0F * kEps * total, kEps * (64.0F + 2.0F * roundings(c.V))), [=](Ops& o, auto& t) {
            call(o, t);
            o(Zero{t[0]});
          });
    }
  }
}

// z = 15 tanh(x / 15) and its slope are off by some roundings of 15, a probability p by p times that error.
TEST_P(FusedGpuTest, CrossEntropyOfCappedLogitsAgrees) {
  constexpr float kCap = 15.0F, kCapped = 8.0F * kCap * kEps;
  for (const ClassifierCase& c : kClassifierCases) {
    const Shape rows{c.B, c.T}, s{c.B, c.T, c.Vp};
    const std::string what = cat("V=", c.V, " Vp=", c.Vp, " rows=", rows);
    const Array targets = tokens(rows, c.V);
    Array logits = values(s, -60.0F, 60.0F);
    for (int64_t i = 0; i < s.numel(); ++i)
      if (i % c.Vp >= c.V) logits.values[static_cast<size_t>(i)] = kNan;
    const Tolerance loss{kEps * (4.0F * 41.0F + roundings(c.V)) + kCapped, 0.0F};
    expect_agreement("losses, " + what, {out(rows), logits, targets}, loss,
                     CALL(CrossEntropyForward{t[0], t[1], t[2], c.V, kCap}));
    expect_agreement("gradient, " + what, {out(rows), inout(logits), targets},
                     rounded(loss.absolute, kEps * (64.0F + 2.0F * roundings(c.V)) + kCapped),
                     CALL(CrossEntropyForwardBackward{t[0], t[1], t[2], c.V, LossScale{0.125F}, kCap}));
    expect_agreement(
        "gradient alone, " + what, {out(rows), inout(logits), targets},
        rounded(0.125F * (8.0F * kEps + kCapped), kEps * (64.0F + 2.0F * roundings(c.V)) + kCapped),
        [&](Ops& o, auto& t) {
          o(CrossEntropyForwardBackward{t[0], t[1], t[2], c.V, LossScale{0.125F}, kCap});
          o(Zero{t[0]});
        });
  }
}

TEST_P(FusedGpuTest, CrossEntropyTakesInfiniteLogits) {
  Array logits = values({1, 4, 1000}, -10.0F, 10.0F);
  for (size_t i = 0; i < logits.values.size(); ++i)
    if (i % 1000 % 3 != 0) logits.values[i] = -std::numeric_limits<float>::infinity();
  Array targets = tokens({1, 4}, 1);
  expect_agreement("-inf", {out({1, 4}), inout(logits), targets},
                   rounded(kEps * (4.0F * 31.0F + roundings(1000)), kEps * (64.0F + 2.0F * roundings(1000))),
                   CALL(CrossEntropyForwardBackward{t[0], t[1], t[2], 1000, 1.0F}));
}

TEST_P(FusedGpuTest, SumRowsTakesEveryElementOnce) {
  // Fewer columns than a pack, a chunk and a warp hold, and a few more; up to the largest number of chunks.
  for (const Shape& s : {Shape{1, 1}, Shape{3, 8}, Shape{65, 33}, Shape{129, 264}, Shape{5000, 768},
                         Shape{1000, 3072}, Shape{20000, 40}, Shape{77, 1025}}) {
    bind(1, s[0], s[1]);
    expect_agreement(named("whole numbers", s), {inout(whole({s[1]})), whole(s)}, kExact,
                     CALL(SumRows{t[0], t[1]}));
  }
}

TEST_P(FusedGpuTest, EncoderForwardAgrees) {
  constexpr int64_t kVocabulary = 700;
  for (const Shape& s : {Shape{1, 1, 1}, Shape{13, 1000, 48}, Shape{2, 7, 77}, Shape{3, 5, 1600}})
    expect_agreement(
        named("encoder_forward", s),
        {result(s), tokens({s[0], s[1]}, kVocabulary), values({kVocabulary, s[2]}), values({s[1] + 3, s[2]})},
        kExact, CALL(EncoderForward{t[0], t[1], t[2], t[3]}));
  for (const Shape& s : {Shape{13, 1000, 48}, Shape{2, 7, 77}})
    expect_agreement(named("encoder_forward without positions", s),
                     {result(s), tokens({s[0], s[1]}, kVocabulary), values({kVocabulary, s[2]})}, kExact,
                     CALL(EncoderForward{t[0], t[1], t[2]}));
}

TEST_P(FusedGpuTest, GeluAgrees) {
  for (const Shape& s : {Shape{1, 1}, Shape{13, 48}, Shape{3, 7, 77}, Shape{1000, 3072}, Shape{2, 5, 1025}}) {
    Array x = fractions(s);
    for (float& v : x.values) v *= 4.0F;  // reaches both flat tails of GELU
    const Tolerance few = rounded(32.0F * kEps, 8.0F * kEps);
    expect_agreement(named("bias_gelu_forward", s), {result(s), inout(x), fractions({s[-1]})}, few,
                     CALL(BiasGeluForward{t[0], t[1], t[2]}));
    expect_agreement(named("gelu_forward", s), {result(s), x}, few, CALL(GeluForward{t[0], t[1]}));
    expect_also_in_place(named("gelu_backward", s), {result(s), values(s), x}, few,
                         CALL(GeluBackward{t[0], t[1], t[2]}));
  }
}

TEST_P(FusedGpuTest, GeluIsFlatFarOut) {
  Array x = result({1, 8});
  x.values = {-60000.0F, -300.0F, -30.0F, -12.0F, 12.0F, 30.0F, 300.0F, 60000.0F};
  x = x.as(type());
  Array dout = x, zeros = x;
  dout.output = zeros.output = false;
  std::fill(dout.values.begin(), dout.values.end(), 1.0F);
  std::fill(zeros.values.begin(), zeros.values.end(), 0.0F);
  const Tolerance few = rounded(32.0F * kEps, 8.0F * kEps);
  expect_agreement("bias_gelu_forward", {result({1, 8}), inout(x), zeros}, few,
                   CALL(BiasGeluForward{t[0], t[1], t[2].view({8})}));
  x.output = false;
  expect_agreement("gelu_forward", {result({1, 8}), x}, few, CALL(GeluForward{t[0], t[1]}));
  expect_agreement("gelu_backward", {result({1, 8}), dout, x}, few, CALL(GeluBackward{t[0], t[1], t[2]}));
}

TEST_P(FusedGpuTest, ReluSquaredAgrees) {
  for (const Shape& s : {Shape{1, 1}, Shape{13, 48}, Shape{3, 7, 77}, Shape{1000, 3072}, Shape{2, 5, 1025}}) {
    const Array x = fractions(s);
    expect_agreement(named("relu_squared_forward", s), {result(s), x}, kExact,
                     CALL(ReluSquaredForward{t[0], t[1]}));
    expect_also_in_place(named("relu_squared_backward", s), {result(s), values(s), x}, kExact,
                         CALL(ReluSquaredBackward{t[0], t[1], t[2]}));
  }
}

struct HeadsCase {
  int64_t B, T, NH, HS;
};

// Heads whose halves are whole packs, GPT-2's among them; heads for the scalar path; the smallest and the
// largest.
const HeadsCase kHeadsCases[] = {{1, 1, 1, 2},    {13, 37, 3, 16}, {2, 100, 12, 64},
                                 {1, 50, 25, 64}, {3, 33, 5, 8},   {2, 7, 2, 128},
                                 {1, 9, 3, 6},    {2, 5, 1, 80},   {1, 3, 4, 126}};

TEST_P(FusedGpuTest, QkNormRotaryAgrees) {
  for (const HeadsCase& c : kHeadsCases) {
    const Shape qkv{c.B, c.T, 3 * c.NH * c.HS}, norms{c.B, c.T, 2 * c.NH}, table{c.T + 3, c.HS / 2, 2};
    const std::string what = cat("B=", c.B, " T=", c.T, " NH=", c.NH, " HS=", c.HS);
    // After the norm a channel is at most the root of HS; its rotation adds a few roundings.
    const float few = kEps * (16.0F + roundings(c.HS)), largest = std::sqrt(static_cast<float>(c.HS));
    const Tolerance angles{2.0F * kEps, 0.0F}, norm{0.0F, few}, forward = rounded(few * largest);
    expect_agreement("table, " + what, {out(table)}, angles, CALL(RotaryTable{t[0]}));
    const std::vector<Array> x = {inout(values(qkv)), out(norms), inout(out(table))};
    expect_outputs("both, " + what, x, {forward, norm, angles}, [](Ops& o, auto& t) {
      o(RotaryTable{t[2]});
      o(QkNormRotaryForward{t[0], t[1], t[2]});
    });
    expect_outputs("norm, " + what, {x[0], x[1]}, {forward, norm}, CALL(QkNormRotaryForward{t[0], t[1], {}}));
    expect_outputs("rotary, " + what, {x[0], x[2]}, {rounded(few * 2.0F), angles}, [](Ops& o, auto& t) {
      o(RotaryTable{t[1]});
      o(QkNormRotaryForward{t[0], {}, t[1]});
    });

    // The norm's gradient, rstd * (dy - y * mean(dy * y)), is at most 2 * (1 + 2 * 2).
    const Tolerance backward = rounded(few * 20.0F);
    const Array dy = inout(values(qkv)), y = values(qkv, -2.0F, 2.0F), rstd = reals(norms, 0.5F, 2.0F);
    expect_outputs("both back, " + what, {dy, y, rstd, x[2]}, {backward, angles}, [](Ops& o, auto& t) {
      o(RotaryTable{t[3]});
      o(QkNormRotaryBackward{t[0], t[1], t[2], t[3]});
    });
    expect_agreement("norm back, " + what, {dy, y, rstd}, backward,
                     CALL(QkNormRotaryBackward{t[0], t[1], t[2], {}}));
    expect_outputs("rotary back, " + what, {dy, x[2]}, {rounded(few * 2.0F), angles}, [](Ops& o, auto& t) {
      o(RotaryTable{t[1]});
      o(QkNormRotaryBackward{t[0], {}, {}, t[1]});
    });
  }
}

TEST_P(FusedGpuTest, QkNormRotaryRefusesHeadsThatNoWarpHolds) {
  EXPECT_THROW(run(*cuda_, {inout(values({1, 2, 3 * 130})), out({1, 2, 2})},
                   CALL(QkNormRotaryForward{t[0], t[1], {}})),
               std::invalid_argument);
}

TEST_P(FusedGpuTest, ScaledCausalSoftmaxAgreesAndReadsNothingAboveTheDiagonal) {
  constexpr float kScale = 0.125F;
  for (const int64_t T :
       {int64_t{1}, int64_t{33}, int64_t{256}, int64_t{1000}, int64_t{1024}, int64_t{1025}, int64_t{1600}}) {
    const Shape s{1, 3, T, T};
    const Tolerance forward = rounded(std::numeric_limits<float>::min(), kEps * (48.0F + roundings(T)));
    const Array x = poison_above(values(s, -80.0F, 80.0F));
    expect_also_in_place(named("forward", s), {result(s), x}, forward,
                         CALL(ScaledCausalSoftmaxForward{t[0], t[1], kScale}));
    expect_agreement(named("forward, negative scale", s), {result(s), x}, forward,
                     CALL(ScaledCausalSoftmaxForward{t[0], t[1], -kScale}));

    const float largest = 2.0F / static_cast<float>(T);
    const Tolerance backward = rounded(kEps * (8.0F + roundings(T)) * 4.0F * largest * kScale);
    const Array p = poison_above(values(s, 0.0F, largest)), dp = poison_above(values(s));
    expect_also_in_place(named("backward", s), {result(s), dp, p}, backward,
                         CALL(ScaledCausalSoftmaxBackward{t[0], t[1], t[2], kScale}));
  }
}

TEST_P(FusedGpuTest, OperandsMayStartAtAnyElement) {
  constexpr int64_t kN = 12, kC = 64, kPadded = kN * kC + 8;
  bind(1, kN, kC);
  const auto inner = [](const Tensor& t, Shape shape) {  // the elements from the second on
    return Tensor{static_cast<std::byte*>(t.data) + size_of(t.dtype), t.dtype, shape, t.name};
  };
  const auto padded = [](Array a) {  // numbers instead of NaN where no op writes
    std::fill(a.values.begin(), a.values.end(), 0.5F);
    return a.as(a.dtype);
  };
  const Array x = values({kPadded}), y = values({kPadded}), column = values({kC});
  const Array rows = reals({kN}, 0.5F, 1.0F), to = padded(result({kPadded}));
  const Shape s{kN, kC};
  expect_agreement("layernorm_forward", {to, out({kN}), out({kN}), x, column, column},
                   rounded(16.0F * kEps * roundings(kC), kEps * roundings(kC)),
                   CALL(LayerNormForward{inner(t[0], s), t[1], t[2], inner(t[3], s), t[4], t[5]}));
  const float sums = kEps * 2.0F * roundings(kC) * 8.0F * kN + 64.0F * (epsilon_of(type()) - kEps);
  expect_agreement("layernorm_backward",
                   {inout(x), inout(column), inout(column), inout(column), y, y, rows, rows, column},
                   rounded(sums),
                   CALL(LayerNormBackward{inner(t[0], s), NormParams{t[1], t[2]}, t[3], inner(t[4], s),
                                          NormInput{inner(t[5], s), t[6], t[7]}, t[8]}));
  expect_agreement("gelu_backward", {to, x, y}, rounded(32.0F * kEps, 8.0F * kEps),
                   CALL(GeluBackward{inner(t[0], s), inner(t[1], s), inner(t[2], s)}));
  expect_agreement("relu_squared_backward", {to, x, y}, rounded(8.0F * kEps),
                   CALL(ReluSquaredBackward{inner(t[0], s), inner(t[1], s), inner(t[2], s)}));
  expect_agreement("qk_norm_rotary_forward", {inout(x), out({1, 12, 4})}, rounded(64.0F * kEps, 32.0F * kEps),
                   CALL(QkNormRotaryForward{inner(t[0], {1, 12, 48}), t[1], {}}));
  expect_agreement("cross_entropy", {out({1, kN}), inout(x), tokens({1, kN}, kC)},
                   rounded(kEps * 128.0F, kEps * 128.0F),
                   CALL(CrossEntropyForwardBackward{t[0], inner(t[1], {1, kN, kC}), t[2], kC, 1.0F}));
  constexpr int64_t kLong = 40000;
  expect_agreement("cross_entropy of a long row",
                   {out({1, 1}), inout(values({kLong + 8})), tokens({1, 1}, kLong)},
                   rounded(kEps * (128.0F + roundings(kLong)), kEps * (128.0F + 2.0F * roundings(kLong))),
                   CALL(CrossEntropyForwardBackward{t[0], inner(t[1], {1, 1, kLong}), t[2], kLong, 1.0F}));
  expect_agreement("sum_rows", {inout(whole({kC})), whole({kPadded})}, kExact,
                   CALL(SumRows{t[0], inner(t[1], s)}));
}

std::string variant_name(const testing::TestParamInfo<Variant>& info) {
  const Variant& v = info.param;
  return cat(name_of(v.dtype), v.wide_access ? "Wide" : "Scalar",
             v.compute_capability == 75 ? "OnTuring" : "");
}

INSTANTIATE_TEST_SUITE_P(Types, FusedGpuTest,
                         testing::Values(Variant{DType::f32, true, 0}, Variant{DType::f32, false, 0},
                                         Variant{DType::bf16, true, 0}, Variant{DType::bf16, false, 0},
                                         Variant{DType::f16, true, 0}, Variant{DType::f16, false, 0},
                                         Variant{DType::f32, true, 75}, Variant{DType::f16, true, 75},
                                         Variant{DType::f16, false, 75}),
                         variant_name);

}  // namespace
}  // namespace stepladder
