// The CUDA ops against the CPU reference and PyTorch, on shapes that divide nothing evenly.
#include "tests/op_agreement.h"
#include "tests/op_cases.h"
#include "tests/padded_rows.h"

namespace stepladder {
namespace {

class OpGpuTest : public OpAgreement {};

std::string named(DType type, const char* op, const Shape& shape) {
  return cat(name_of(type), ' ', op, shape);
}

TEST_F(OpGpuTest, MatchesPyTorch) {
  expect_ops_match_pytorch(*cuda_);
}

TEST_F(OpGpuTest, LogSoftmaxLeavesThePaddingOfRowsAlone) {
  expect_log_softmax_leaves_padding_alone(*cuda_);
}

TEST_F(OpGpuTest, ElementwiseOpsAgree) {
  for (const Shape& s : {Shape{1}, Shape{13, 48}, Shape{1024}, Shape{3, 7, 1000, 77}}) {
    for (const DType type : kFloatTypes) {
      const Array x = reals(s, -3.0F, 3.0F).as(type), y = reals(s, -3.0F, 3.0F).as(type),
                  positive = reals(s, 0.5F, 2.0F).as(type);
      const Tolerance few = rounded({8.0F * kEps * 9.0F, 0.0F}, type);  // roundings of terms of at most 3^2
      expect_also_in_place(named(type, "add", s), {out(s, type), x, y}, kExact, CALL(Add{t[0], t[1], t[2]}));
      expect_also_in_place(named(type, "mul", s), {out(s, type), x, y}, kExact, CALL(Mul{t[0], t[1], t[2]}));
      expect_agreement(named(type, "mul by itself", s), {out(s, type), x}, kExact,
                       CALL(Mul{t[0], t[1], t[1]}));
      expect_also_in_place(named(type, "affine", s), {out(s, type), x}, few,
                           CALL(Affine{t[0], t[1], 0.7F, -0.3F}));
      expect_agreement(named(type, "pow 2", s), {out(s, type), x}, rounded({0.0F, 2.0F * kEps}, type),
                       CALL(Pow{t[0], t[1], 2}));
      expect_agreement(named(type, "pow 3", s), {inout(x)}, rounded({0.0F, 4.0F * kEps}, type),
                       CALL(Pow{t[0], t[0], 3}));
      expect_agreement(named(type, "tanh", s), {out(s, type), x}, rounded({0.0F, 4.0F * kEps}, type),
                       CALL(Tanh{t[0], t[1]}));
      expect_agreement(named(type, "sqrt", s), {out(s, type), positive}, kExact, CALL(Sqrt{t[0], t[1]}));
      expect_agreement(named(type, "lerp", s), {inout(x), y}, few, CALL(Lerp{t[0], t[1], 0.1F}));
      expect_agreement(named(type, "addcmul", s), {inout(x), y, y}, few,
                       CALL(AddCMul{t[0], t[1], t[2], 0.05F}));
      expect_agreement(named(type, "addcdiv", s), {inout(x), y, positive}, few,
                       CALL(AddCDiv{t[0], t[1], t[2], -0.4F}));
      expect_agreement(named(type, "scale_by", s), {inout(x), reals({1})}, kExact, CALL(ScaleBy{t[0], t[1]}));
      expect_agreement(named(type, "zero", s), {out(s, type)}, kExact, CALL(Zero{t[0]}));
    }
  }
}

TEST_F(OpGpuTest, RowOpsAgree) {
  for (const Shape& s : {Shape{1, 1}, Shape{13, 48}, Shape{1000, 768}, Shape{77, 1025}, Shape{3, kV}}) {
    for (const DType type : kFloatTypes) {
      const int64_t N = s[0], C = s[1];
      const Array x = reals(s, 9.0F, 11.0F).as(type), y = reals(s).as(type), z = reals(s).as(type),
                  w = reals({C}).as(type);
      const Array mean = reals({N}, 9.9F, 10.1F), rstd = reals({N}, 0.5F, 2.0F), a = reals({N}),
                  b = reals({N});
      expect_agreement(named(type, "row_mean of integers", s), {out({N}), integers(s).as(type)}, {0.0F, kEps},
                       CALL(RowMean{t[0], t[1]}));
      expect_agreement(named(type, "row_mean", s), {out({N}), x}, {0.0F, kEps * roundings(C)},
                       CALL(RowMean{t[0], t[1]}));
      expect_agreement(named(type, "row_rstd", s), {out({N}), x, mean}, {0.0F, kEps * roundings(C)},
                       CALL(RowRstd{t[0], t[1], t[2], 1e-5F}));
      expect_agreement(named(type, "normalize", s), {out(s, type), x, mean, rstd},
                       rounded({0.0F, 4.0F * kEps}, type), CALL(Normalize{t[0], t[1], t[2], t[3]}));
      // At most six roundings of terms no larger than 1 + 2 * (1 + 1 + 1).
      expect_agreement(named(type, "normalize_backward", s), {inout(reals(s).as(type)), y, z, a, b, rstd},
                       rounded({42.0F * kEps, 0.0F}, type),
                       CALL(NormalizeBackward{t[0], t[1], t[2], t[3], t[4], t[5]}));
      expect_also_in_place(named(type, "mul_columns", s), {out(s, type), y, w}, kExact,
                           CALL(MulColumns{t[0], t[1], t[2]}));
      expect_also_in_place(named(type, "add_columns", s), {out(s, type), y, w}, kExact,
                           CALL(AddColumns{t[0], t[1], t[2]}));
    }
  }
}

TEST_F(OpGpuTest, SumOverRowsIsExactForIntegersWithAndWithoutScratch) {
  for (const bool bound : {false, true}) {
    if (bound) bind(13, 1000, 48);
    for (const Shape& s :
         {Shape{1, 1}, Shape{5, 48}, Shape{255, 33}, Shape{513, 768}, Shape{13, 1000, 192}}) {
      for (const DType type : kFloatTypes) {
        const int64_t N = s.numel() / s[-1];
        expect_agreement(named(type, "integers", s),
                         {inout(integers({s[-1]}).as(type)), integers(s).as(type)}, kExact,
                         CALL(SumRows{t[0], t[1]}));
        const float bound_on_sum = static_cast<float>(N) + 1.0F;
        expect_agreement(named(type, "reals", s), {inout(reals({s[-1]}).as(type)), reals(s).as(type)},
                         rounded({kEps * roundings(N) * bound_on_sum, 0.0F}, type),
                         CALL(SumRows{t[0], t[1]}));
        expect_agreement(named(type, "integers into f32", s),
                         {inout(integers({s[-1]})), integers(s).as(type)}, kExact, CALL(SumRows{t[0], t[1]}));
      }
    }
  }
}

TEST_F(OpGpuTest, EmbeddingOpsAgreeForRareFrequentAndEqualTokens) {
  bind(13, 1000, 768);
  struct Case {
    int64_t B, T, V, C;
    int skew;
  };
  // Runs of equal tokens: none, some across many chunks, and one over all positions.
  for (const Case& c :
       {Case{13, 1000, kV, 48, 1}, Case{13, 1000, 700, 48, 6}, Case{3, 1000, 5, 768, 3},
        Case{13, 1000, 1, 300, 1}, Case{1, 1, kV, 96, 1}, Case{2, 16, 2, 48, 1}, Case{1, 33, 1, 1, 1}}) {
    for (const DType type : kFloatTypes) {
      const std::string what = cat(name_of(type), " B=", c.B, " T=", c.T, " V=", c.V, " C=", c.C);
      const Array at = tokens({c.B, c.T}, c.V, c.skew);
      const Shape x{c.B, c.T, c.C}, wte{c.V, c.C}, wpe{c.T + 3, c.C};
      expect_agreement(what, {inout(integers(wte).as(type)), at, integers(x).as(type)}, kExact,
                       CALL(EmbeddingBackward{t[0], t[1], t[2]}));
      expect_agreement(what, {inout(integers(wpe).as(type)), integers(x).as(type)}, kExact,
                       CALL(PositionBackward{t[0], t[1]}));
      expect_agreement(what + " into f32", {inout(integers(wte)), at, integers(x).as(type)}, kExact,
                       CALL(EmbeddingBackward{t[0], t[1], t[2]}));
      expect_agreement(what + " into f32", {inout(integers(wpe)), integers(x).as(type)}, kExact,
                       CALL(PositionBackward{t[0], t[1]}));
    }
  }
}

struct MatmulCase {
  MatOp op;
  Shape out, a, b;
  int64_t K;
};

const std::vector<MatmulCase>& matmul_cases() {
  static const std::vector<MatmulCase> cases = {
      {MatOp::NN, {13, 48}, {13, 31}, {31, 48}, 31},
      {MatOp::NT, {13, 48}, {13, 31}, {48, 31}, 31},
      {MatOp::TN, {13, 48}, {31, 13}, {31, 48}, 31},
      {MatOp::NN, {3, 100, 96}, {3, 100, 48}, {48, 96}, 48},
      {MatOp::NT, {3, 100, 96}, {3, 100, 48}, {96, 48}, 48},
      {MatOp::TN, {96, 48}, {3, 100, 96}, {3, 100, 48}, 300},
      {MatOp::NT, {2, 7, kV}, {2, 7, 48}, {kV, 48}, 48},
      {MatOp::NN, {2, 7, 48}, {2, 7, kV}, {kV, 48}, kV},
      {MatOp::TN, {kV, 48}, {2, 7, kV}, {2, 7, 48}, 14},
      {MatOp::NT, {2, 3, 65, 65}, {2, 3, 65, 16}, {2, 3, 65, 16}, 16},
      {MatOp::NN, {2, 3, 65, 16}, {2, 3, 65, 65}, {2, 3, 65, 16}, 65},
      {MatOp::TN, {2, 3, 65, 16}, {2, 3, 65, 65}, {2, 3, 65, 16}, 65},
      {MatOp::NN, {13, 1, 1, 16}, {13, 1, 1, 1}, {13, 1, 1, 16}, 1},
      {MatOp::NN, {1, 1}, {1, 1}, {1, 1}, 1},
  };
  return cases;
}

Call matmul(MatOp op, Write write, Precision precision) {
  return [=](Ops& o, const std::vector<Tensor>& t) {
    o.set_matmul_precision(precision);
    o(Matmul{t[0], t[1], t[2], op, write});
  };
}

TEST_F(OpGpuTest, MatmulOfIntegersIsExactInBothPrecisions) {
  bind(2, 64, 48);
  std::vector<Precision> precisions = {Precision::fp32};
  if (cuda_->device().info().compute_capability >= 80) precisions.push_back(Precision::tf32);
  for (const MatmulCase& c : matmul_cases()) {
    const std::string what = cat(c.out, " of ", c.a, " and ", c.b);
    for (const Precision precision : precisions) {
      expect_agreement(what, {out(c.out), integers(c.a), integers(c.b)}, kExact,
                       matmul(c.op, Write::set, precision));
      expect_agreement(what, {inout(integers(c.out)), integers(c.a), integers(c.b)}, kExact,
                       matmul(c.op, Write::add, precision));
    }
  }
}

TEST_F(OpGpuTest, MatmulOfRealsIsWithinItsPrecision) {
  bind(2, 64, 48);
  for (const MatmulCase& c : matmul_cases()) {
    const std::string what = cat(c.out, " of ", c.a, " and ", c.b);
    const Array a = reals(c.a), b = reals(c.b);
    // An output element's terms are at most 1.
    const auto terms = static_cast<float>(c.K);
    expect_agreement(what, {out(c.out), a, b}, {kEps * roundings(c.K) * terms, 0.0F},
                     matmul(c.op, Write::set, Precision::fp32));
    if (cuda_->device().info().compute_capability < 80) continue;
    // The CPU rounds both operands to the nearest TF32 number, and hardware may truncate them: the difference
    // is up to three half-units of each.
    constexpr float kTf32Eps = 0x1p-10F;
    expect_agreement(what, {out(c.out), a, b}, {3.0F * kTf32Eps * roundings(c.K), 0.0F},
                     matmul(c.op, Write::set, Precision::tf32));
  }
}

TEST_F(OpGpuTest, MatmulOf16BitsAccumulatesInF32AndRoundsOnce) {
  bind(2, 64, 48);
  for (const DType type : {DType::bf16, DType::f16}) {
    if (type == DType::bf16 && !cuda_->device().info().bf16) continue;
    for (const MatmulCase& c : matmul_cases()) {
      const std::string what = cat(name_of(type), ' ', c.out, " of ", c.a, " and ", c.b);
      // Sums of integers are exact in any order, even those with more bits than the type.
      const Array a = integers(c.a).as(type), b = integers(c.b).as(type);
      expect_agreement(what, {out(c.out, type), a, b}, kExact, matmul(c.op, Write::set, Precision::fp32));
      // cuBLAS may round the product before it adds.
      expect_agreement(what, {inout(integers(c.out).as(type)), a, b},
                       {8.0F * epsilon_of(type), epsilon_of(type)},
                       matmul(c.op, Write::add, Precision::tf32));
      const Array x = reals(c.a).as(type), y = reals(c.b).as(type);
      const Tolerance f32{kEps * roundings(c.K) * static_cast<float>(c.K), 0.0F};
      expect_agreement(what, {out(c.out, type), x, y}, rounded(f32, type),
                       matmul(c.op, Write::set, Precision::fp32));

      // 16-bit operands with an f32 output give what f32 operands of the same values give.
      SCOPED_TRACE(what + " to f32");
      const auto set = matmul(c.op, Write::set, Precision::fp32);
      const auto got = run(*cuda_, {out(c.out), x, y}, set);
      const auto expected = run(*cpu_, {out(c.out), x.as(DType::f32), y.as(DType::f32)}, set);
      expect_near(got[0], expected[0], f32, 0);
      // The f32 addend keeps its last bit, which the operands' type lacks.
      expect_agreement("added", {inout(integers(c.out, 1 << 20)), a, b}, kExact,
                       matmul(c.op, Write::add, Precision::fp32));
    }
  }
}

/// Extents that the tiles of Sgemm (128x128 and 128x64, 8 deep) don't divide, and products whose K is split.
std::vector<MatmulCase> sgemm_cases() {
  std::vector<MatmulCase> cases = matmul_cases();
  for (const auto& [M, N, K] : {std::tuple<int64_t, int64_t, int64_t>{128, 128, 8},
                                {256, 64, 16},
                                {129, 132, 20},
                                {257, 65, 9},
                                {130, 200, 1},
                                {2200, 260, 72},
                                {192, 256, 4100},
                                {65, 63, 2051}}) {
    cases.push_back({MatOp::NN, {M, N}, {M, K}, {K, N}, K});
    cases.push_back({MatOp::NT, {M, N}, {M, K}, {N, K}, K});
    cases.push_back({MatOp::TN, {M, N}, {K, M}, {K, N}, K});
  }
  return cases;
}

TEST_F(OpGpuTest, SgemmAgreesWhateverTheExtentsAndTheWidthOfAccesses) {
  bind(2, 64, 48);
  const auto multiply = [](MatOp op, Write write) {
    return [=](Ops& o, const std::vector<Tensor>& t) { o(Sgemm{t[0], t[1], t[2], op, write}); };
  };
  for (const MatmulCase& c : sgemm_cases()) {
    const std::string what = cat(c.out, " of ", c.a, " and ", c.b);
    expect_agreement(what, {out(c.out), integers(c.a), integers(c.b)}, kExact, multiply(c.op, Write::set));
    expect_agreement(what + " added", {inout(integers(c.out)), integers(c.a), integers(c.b)}, kExact,
                     multiply(c.op, Write::add));
    // An output element's terms are at most 1.
    const Tolerance rounding{kEps * roundings(c.K) * static_cast<float>(c.K), 0.0F};
    expect_agreement(what + " reals", {out(c.out), reals(c.a), reals(c.b)}, rounding,
                     multiply(c.op, Write::set));
  }
}

// Computes 2 op(a) op(b) - 3 addend; in 16 bits the product may be rounded before it is added.
TEST_F(OpGpuTest, MatmulAddAgrees) {
  bind(2, 64, 48);
  for (const DType type : kFloatTypes) {
    if (type == DType::bf16 && !cuda_->device().info().bf16) continue;
    for (const MatmulCase& c : matmul_cases()) {
      const Array a = integers(c.a).as(type), b = integers(c.b).as(type), addend = integers(c.out).as(type);
      const Tolerance tolerance =
          type == DType::f32 ? kExact : Tolerance{24.0F * epsilon_of(type), epsilon_of(type)};
      expect_agreement(cat(name_of(type), ' ', c.out, " of ", c.a, " and ", c.b),
                       {out(c.out, type), a, b, addend}, tolerance, [&](Ops& o, auto& t) {
                         o.set_matmul_precision(Precision::fp32);
                         o(MatmulAdd{t[0], t[1], t[2], c.op, t[3], 2.0F, -3.0F});
                       });
    }
  }
}

/// Tests of SymmetricMatmul: extents that divide nothing, and parts of tiles and whole ones, a few of them.
class SymmetricMatmulGpuTest : public OpAgreement {
 protected:
  struct Case {
    int64_t n, S, K;
  };
  static constexpr Case kCases[] = {{3, 7, 5},     {1, 8, 64},     {2, 64, 24},
                                    {2, 128, 128}, {3, 136, 72},   {1, 200, 1000},
                                    {2, 200, 203}, {1, 1000, 136}, {3, 768, 3072}};

  void SetUp() override {
    OpAgreement::SetUp();
    if (!IsSkipped()) bind(2, 64, 48);
  }
  static Shape shape_of(const Case& c, MatOp op) {
    return op == MatOp::TN ? Shape{c.n, c.K, c.S} : Shape{c.n, c.S, c.K};
  }
  /// Calls f(r, c, above, below) for each element of square matrices above a diagonal, and its mirror image.
  template <class F>
  static void each_pair(const Array& squares, F f) {
    const int64_t S = squares.shape[-1];
    for (int64_t first = 0; first < squares.shape.numel(); first += S * S)
      for (int64_t r = 0; r < S; ++r)
        for (int64_t c = r + 1; c < S; ++c)
          f(r, c, static_cast<size_t>(first + r * S + c), static_cast<size_t>(first + c * S + r));
  }
  static Array symmetric(Array a) {
    each_pair(a, [&](int64_t, int64_t, size_t above, size_t below) { a.values[below] = a.values[above]; });
    return a;
  }
  static bool is_symmetric(const Array& like, const std::vector<float>& values) {
    bool same = true;
    each_pair(like, [&](int64_t, int64_t, size_t above, size_t below) {
      same = same && values[above] == values[below];
    });
    return same;
  }
};

TEST_F(SymmetricMatmulGpuTest, AgreesAlsoSearched) {
  for (const bool searched : {false, true}) {
    for (const DType type : kFloatTypes) {
      if (type == DType::bf16 && !cuda_->device().info().bf16) continue;
      for (const Case& c : kCases) {
        for (const MatOp op : {MatOp::NT, MatOp::TN}) {
          const Shape square{c.n, c.S, c.S}, more{c.n + 1, c.S, c.S};
          const Array a = integers(shape_of(c, op), 2).as(type), before = inout(integers(more).as(type)),
                      addend = symmetric(integers(square).as(type));
          // Matmul, with the same extents and alignment, is done in its own way. The last matrix of each
          // output is to be left alone.
          const auto product = [&](Ops& o, auto& t) {
            o.set_matmul_precision(Precision::fp32);
            o(Matmul{t[0].slices(0, c.n), t[3], t[3], op});
            o(SymmetricMatmul{t[1].slices(0, c.n), t[3], op});
            o(SymmetricMatmul{t[2].slices(0, c.n), t[3], op, t[4], 2.0F, -3.0F});
          };
          const std::vector<Array> arrays = {before, before, before, a, addend};
          if (searched) run(*cuda_, arrays, [&](Ops& o, auto& t) { o.search([&] { product(o, t); }); });
          // In 16 bits a library may round the product before it adds.
          const Tolerance added =
              type == DType::f32 ? kExact : Tolerance{24.0F * epsilon_of(type), epsilon_of(type)};
          expect_outputs(cat(name_of(type), ' ', name_of(op), ' ', c.n, " of ", c.S, 'x', c.K), arrays,
                         {kExact, kExact, added}, product);
        }
      }
    }
  }
}

// The project's own kernel computes the half above the diagonal and mirrors it. What it reads of the addend
// tells that it was used: below the diagonal only what is in a tile on the diagonal.
TEST_F(SymmetricMatmulGpuTest, OnHopperHalfOfItIsComputed) {
  if (cuda_->device().info().compute_capability != 90) GTEST_SKIP() << "needs sm_90";
  constexpr int64_t kTile = 128;
  for (const Case& c : kCases) {
    for (const MatOp op : {MatOp::NT, MatOp::TN}) {
      if (c.S % 8 != 0 || (op == MatOp::NT && c.K % 8 != 0)) continue;  // rows start on 16 bytes
      SCOPED_TRACE(cat(name_of(op), ' ', c.n, " of ", c.S, 'x', c.K));
      const Array a = reals(shape_of(c, op)).as(DType::bf16),
                  addend = symmetric(reals({c.n, c.S, c.S}).as(DType::bf16));
      Array poisoned = addend;
      each_pair(addend, [&](int64_t row, int64_t col, size_t, size_t below) {
        if (row / kTile != col / kTile) poisoned.values[below] = kNan;
      });
      const auto call = CALL(SymmetricMatmul{t[0], t[1], op, t[2], 2.0F, -3.0F});
      const auto expected = run(*cpu_, {out(addend.shape, DType::bf16), a, addend}, call),
                 got = run_twice({out(addend.shape, DType::bf16), a, poisoned}, call);
      expect_near(got[0], expected[0],
                  rounded({2.0F * kEps * roundings(c.K) * static_cast<float>(c.K), 0.0F}, DType::bf16), 0);
      EXPECT_TRUE(is_symmetric(addend, got[0]));
    }
  }
}

TEST_F(OpGpuTest, Bf16MatmulNeedsSm80) {
  OpsOptions options;
  options.compute_capability = 75;
  const auto older = make_cuda_ops(0, options);
  const Tensor x{nullptr, DType::bf16, {8, 8}, "x"};
  EXPECT_FALSE(older->device().info().bf16);
  EXPECT_THROW((*older)(Matmul{x, x, x, MatOp::NN}), UnsupportedError);
}

TEST_F(OpGpuTest, Tf32IsUsedWhenAskedForWhereThereIsAny) {
  bind(2, 64, 48);
  // 1 + 2^-12 is not a TF32 number, so TF32 gives other bits.
  const std::vector<Array> arrays = {out({64, 64}), reals({64, 64}, 1.0F + 0x1p-12F, 1.0F + 0x1p-12F),
                                     integers({64, 64})};
  const auto full = run(*cuda_, arrays, matmul(MatOp::NN, Write::set, Precision::fp32));
  const auto tf32 = run(*cuda_, arrays, matmul(MatOp::NN, Write::set, Precision::tf32));
  const auto back = run(*cuda_, arrays, matmul(MatOp::NN, Write::set, Precision::fp32));
  EXPECT_EQ(same_bits(full[0], tf32[0]), cuda_->device().info().compute_capability < 80);
  EXPECT_TRUE(same_bits(full[0], back[0]));
}

TEST_F(OpGpuTest, HeadLayoutsAgree) {
  struct Case {
    int64_t B, NH, T, HS;
  };
  for (const Case& c : {Case{1, 1, 1, 1}, Case{13, 3, 77, 16}, Case{2, 12, 100, 64}, Case{3, 5, 1000, 7}}) {
    for (const DType type : kFloatTypes) {
      const Shape heads{c.B, c.NH, c.T, c.HS}, x{c.B, c.T, c.NH * c.HS}, qkv{c.B, c.T, 3 * c.NH * c.HS};
      expect_agreement(named(type, "split_qkv", heads),
                       {out(heads, type), out(heads, type), out(heads, type), reals(qkv).as(type)}, kExact,
                       CALL(SplitQkv{t[0], t[1], t[2], t[3]}));
      expect_agreement(named(type, "merge_qkv", heads),
                       {out(qkv, type), reals(heads).as(type), reals(heads).as(type), reals(heads).as(type)},
                       kExact, CALL(MergeQkv{t[0], t[1], t[2], t[3]}));
      expect_agreement(named(type, "split_heads", heads), {out(heads, type), reals(x).as(type)}, kExact,
                       CALL(SplitHeads{t[0], t[1]}));
      expect_agreement(named(type, "merge_heads", heads), {out(x, type), reals(heads).as(type)}, kExact,
                       CALL(MergeHeads{t[0], t[1]}));
    }
  }
}

TEST_F(OpGpuTest, MasksAgree) {
  for (const int64_t T : {int64_t{1}, int64_t{65}, int64_t{1000}}) {
    for (const DType type : kFloatTypes) {
      const Shape att{2, 3, T, T};
      expect_agreement(named(type, "causal_mask", {T, T}), {out({T, T}, type)}, kExact,
                       CALL(CausalMask{t[0]}));
      expect_agreement(named(type, "add_mask", att), {inout(reals(att).as(type)), out({T, T}, type)}, kExact,
                       [](Ops& o, auto& t) {
                         o(CausalMask{t[1]});
                         o(AddMask{t[0], t[1]});
                       });
    }
  }
}

TEST_F(OpGpuTest, SoftmaxAgrees) {
  for (const Shape& s : {Shape{5, 1}, Shape{13, 3, 48}, Shape{100, 1000}, Shape{9, 1024}, Shape{7, kV}}) {
    for (const DType type : kFloatTypes) {
      // exp(x - max) is off by up to 20 roundings, as its argument is up to 20.
      const Tolerance forward =
          rounded({std::numeric_limits<float>::min(), kEps * (32.0F + roundings(s[-1]))}, type);
      const Array x = reals(s, -10.0F, 10.0F).as(type);
      expect_also_in_place(named(type, "softmax_forward", s), {out(s, type), x}, forward,
                           CALL(SoftmaxForward{t[0], t[1]}));

      const float largest = 2.0F / static_cast<float>(s[-1]);
      const Tolerance backward = rounded({kEps * (8.0F + roundings(s[-1])) * 2.0F * largest, 0.0F}, type);
      const Array p = reals(s, 0.0F, largest).as(type), dp = reals(s).as(type);
      expect_also_in_place(named(type, "softmax_backward", s), {out(s, type), dp, p}, backward,
                           CALL(SoftmaxBackward{t[0], t[1], t[2]}));
    }
  }
}

TEST_F(OpGpuTest, SoftmaxOfMaskedRowsAgrees) {
  constexpr int64_t kT = 1000;
  const Shape s{2, 2, kT, kT};
  expect_agreement(named("softmax", s), {inout(reals(s, -10.0F, 10.0F)), out({kT, kT})},
                   {std::numeric_limits<float>::min(), kEps * (32.0F + roundings(kT))}, [](Ops& o, auto& t) {
                     o(CausalMask{t[1]});
                     o(AddMask{t[0], t[1]});
                     o(SoftmaxForward{t[0], t[0]});
                   });
}

TEST_F(OpGpuTest, CausalSoftmaxAgreesAndReadsNothingAboveTheDiagonal) {
  for (const int64_t T : {int64_t{1}, int64_t{33}, int64_t{1000}, int64_t{1025}}) {
    for (const DType type : kFloatTypes) {
      const Shape s{2, 2, T, T};
      const Tolerance forward =
          rounded({std::numeric_limits<float>::min(), kEps * (32.0F + roundings(T))}, type);
      const Array x = poison_above(reals(s, -10.0F, 10.0F)).as(type);
      expect_also_in_place(named(type, "forward", s), {out(s, type), x}, forward,
                           CALL(CausalSoftmaxForward{t[0], t[1]}));
      const Tolerance backward = rounded({kEps * (8.0F + roundings(T)) * 2.0F, 0.0F}, type);
      const Array p = poison_above(reals(s, 0.0F, 2.0F / static_cast<float>(T))).as(type),
                  dp = poison_above(reals(s)).as(type);
      expect_also_in_place(named(type, "backward", s), {out(s, type), dp, p}, backward,
                           CALL(CausalSoftmaxBackward{t[0], t[1], t[2]}));
    }
  }
}

TEST_F(OpGpuTest, ClassifierAgrees) {
  for (const Shape& s : {Shape{1, 1, 1}, Shape{3, 7, 48}, Shape{13, 5, 1025}, Shape{2, 3, kV}}) {
    const Shape rows{s[0], s[1]};
    const Array targets = tokens(rows, s[2]);
    for (const DType type : kFloatTypes) {
      // The output, x - max - log(sum), has terms of at most 20 + log(V).
      expect_agreement(named(type, "log_softmax_forward", s), {out(s), reals(s, -10.0F, 10.0F).as(type)},
                       {kEps * (4.0F * 31.0F + roundings(s[2])), 0.0F}, CALL(LogSoftmaxForward{t[0], t[1]}));
      const float largest = 2.0F / static_cast<float>(s[2]);
      const Array logp = reals(s, std::log(largest) - 5.0F, std::log(largest)), dlogp = reals(s);
      // The gradient's exp(logp) times the sum is at most 2, exp's argument at most 16.
      const Tolerance backward = rounded({kEps * (64.0F + 2.0F * roundings(s[2])), 0.0F}, type);
      expect_agreement(named(type, "log_softmax_backward", s), {out(s, type), dlogp, logp}, backward,
                       CALL(LogSoftmaxBackward{t[0], t[1], t[2]}));
      if (type == DType::f32)
        expect_agreement(named(type, "log_softmax_backward in place", s), {inout(dlogp), logp}, backward,
                         CALL(LogSoftmaxBackward{t[0], t[0], t[1]}));
    }
    expect_agreement(named("nll_loss_forward", s), {out(rows), reals(s, -5.0F, 0.0F), targets}, kExact,
                     CALL(NllLossForward{t[0], t[1], t[2]}));
    expect_agreement(named("nll_loss_backward", s), {out(s), targets}, kExact,
                     CALL(NllLossBackward{t[0], t[1], 0.125F}));
    Array loss_scaler = integers({4});
    loss_scaler.values[0] = 1024.0F;
    expect_agreement(named("nll_loss_backward scaled", s), {out(s), targets, loss_scaler}, kExact,
                     CALL(NllLossBackward{t[0], t[1], 0.125F, t[2]}));
  }
}

TEST_F(OpGpuTest, MeanAndNormAgree) {
  bind(1, 1, 48);
  for (const int64_t n : {int64_t{1}, int64_t{1000}, int64_t{1024}, int64_t{13 * 1000}, int64_t{3'000'017}}) {
    expect_agreement(cat("add_mean ", n), {inout(integers({1})), integers({n}, 1)},
                     {2.0F * kEps * 9.0F, 0.0F}, CALL(AddMean{t[0], t[1]}));
    for (const DType type : kFloatTypes) {
      expect_agreement(cat(name_of(type), " sum_of_squares of integers ", n),
                       {out({1}), integers({n}, 1).as(type)}, kExact, CALL(SumOfSquares{t[0], t[1]}));
      expect_agreement(cat(name_of(type), " sum_of_squares ", n), {out({1}), reals({n}).as(type)},
                       {0.0F, kEps * roundings(n / 1024)}, CALL(SumOfSquares{t[0], t[1]}));
    }
  }
  for (const float limit : {0.5F, 1000.0F}) {
    expect_agreement(cat("clip_factor to ", limit), {out({1}), out({1}), reals({148}, 0.0F, 2.0F)},
                     {0.0F, kEps * roundings(148)}, CALL(ClipFactor{t[0], t[1], t[2], limit}));
  }
}

TEST_F(OpGpuTest, ClipFactorKeepsNaN) {
  Array parts = reals({3}, 0.0F, 1.0F);
  parts.values[1] = kNan;
  const auto results = run(*cuda_, {out({1}), out({1}), parts}, CALL(ClipFactor{t[0], t[1], t[2], 1.0F}));
  EXPECT_TRUE(std::isnan(results[0][0]));
  EXPECT_TRUE(std::isnan(results[1][0]));
}

TEST_F(OpGpuTest, IndicesBeyond32BitsReachTheLastRow) {
  constexpr int64_t kRows = 43000;  // 43,000 V elements are more than 2^31
  const int64_t bytes = kRows * kV * int64_t{sizeof(float)};
  if (cuda_->device().memory().free < bytes + (int64_t{1} << 30))
    GTEST_SKIP() << "needs " << bytes << " bytes";
  const auto block = cuda_->device().allocate(static_cast<size_t>(bytes));
  const Tensor x{block.get(), DType::f32, {kRows, kV}, "x"};
  const auto target_block = cuda_->device().allocate(kRows * sizeof(int32_t));
  const Tensor targets{target_block.get(), DType::i32, {kRows}, "targets"};
  (*cuda_)(Zero{targets});

  const auto expect_row = [&](int64_t row, float first, float others) {
    std::vector<float> got(kV);
    (*cuda_)(Download{got.data(), x[row]});
    EXPECT_NEAR(got[0], first, 1e-5F) << "row " << row;
    for (size_t v = 1; v < got.size(); ++v) ASSERT_NEAR(got[v], others, 1e-5F) << "row " << row << ", " << v;
  };
  (*cuda_)(NllLossBackward{x, targets, -2.0F});
  (*cuda_)(Affine{x, x, 1.0F, 1.0F});
  for (const int64_t row : {int64_t{0}, kRows - 1}) expect_row(row, 3.0F, 1.0F);
  (*cuda_)(Zero{x});
  (*cuda_)(SoftmaxForward{x, x});
  (*cuda_)(Affine{x, x, static_cast<float>(kV), 0.0F});
  for (const int64_t row : {int64_t{0}, kRows - 1}) expect_row(row, 1.0F, 1.0F);
}

TEST_F(OpGpuTest, PlanningTakesNoMemoryAndKeepsWhatIsBound) {
  Config config;
  config.B = 2, config.T = config.max_T = 64, config.C = 48, config.NH = 3;
  Arena plan;
  cuda_->device().bind_workspace(plan, config);
  EXPECT_EQ(cuda_->device().memory().reserved_peak, 0);
  {
    Arena arena(*cuda_, plan.bytes());
    cuda_->device().bind_workspace(arena, config);
    EXPECT_EQ(arena.bytes(), plan.bytes());
    EXPECT_EQ(cuda_->device().memory().reserved_peak, plan.bytes());
    Config larger = config;
    larger.B = 64;
    Arena other_plan;
    cuda_->device().bind_workspace(other_plan, larger);
    expect_agreement("after another plan", {out({1}), integers({1000})}, kExact,
                     CALL(SumOfSquares{t[0], t[1]}));
  }
}

TEST_F(OpGpuTest, OutOfMemoryIsItsOwnErrorAndTheDeviceGoesOn) {
  EXPECT_THROW(cuda_->device().allocate(size_t{1} << 50), OutOfMemoryError);
  expect_agreement("afterwards", {out({3}), reals({3}), reals({3})}, kExact, CALL(Add{t[0], t[1], t[2]}));
}

TEST_F(OpGpuTest, DescribesItsDevice) {
  const DeviceInfo info = cuda_->device().info();
  EXPECT_EQ(info.backend, "cuda");
  EXPECT_FALSE(info.name.empty());
  EXPECT_EQ(info.uuid.substr(0, 4), "GPU-");
  EXPECT_EQ(info.uuid.size(), 40U);
  EXPECT_GE(info.compute_capability, 75);
  EXPECT_NE(info.driver.find('.'), std::string::npos);
  EXPECT_EQ(info.blas.substr(0, 7), "cuBLAS ");
  const MemoryInfo memory = cuda_->device().memory();
  EXPECT_GT(memory.free, 0);
  EXPECT_GT(memory.later, 0);
  EXPECT_GT(memory.process_peak, 0);
  EXPECT_LE(memory.process_peak, info.total_memory);
  EXPECT_THROW(make_cuda_ops(1 << 20), UnsupportedError);
  EXPECT_THROW(make_cuda_ops(-1), UnsupportedError);
}

TEST_F(OpGpuTest, TimerMeasuresQueuedWork) {
  constexpr int64_t kN = 1 << 26;
  const auto block = cuda_->device().allocate(kN * sizeof(float));
  const Tensor x{block.get(), DType::f32, {kN}, "x"};
  (*cuda_)(Zero{x});
  cuda_->device().start_timer();
  (*cuda_)(Affine{x, x, 0.5F, 1.0F});
  cuda_->device().stop_timer();
  const double once = cuda_->device().elapsed().ms;
  EXPECT_GT(once, 0.01);  // half a gigabyte takes longer than 10 us
  cuda_->device().start_timer();
  for (int i = 0; i < 20; ++i) (*cuda_)(Affine{x, x, 0.5F, 1.0F});
  cuda_->device().stop_timer();
  EXPECT_GT(cuda_->device().elapsed().ms, 2.0 * once);
}

TEST_F(OpGpuTest, PhasesMayFollowEachOtherAndClose) {
  cuda_->phase("forward block", 3);
  cuda_->phase("classifier");
  cuda_->phase(nullptr);
  cuda_->phase(nullptr);
  cuda_->phase("left open");
  cuda_.reset();
}

}  // namespace
}  // namespace stepladder
