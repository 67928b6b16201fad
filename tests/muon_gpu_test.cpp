// Muon's CUDA ops against the CPU reference: matrices of all shapes, alignments and types, and overflowed
// steps.
#include "model/muon.h"
#include "tests/op_agreement.h"

namespace stepladder {
namespace {

struct Types {
  DType x, g;
};
constexpr Types kTypes[] = {{DType::f32, DType::f32},
                            {DType::bf16, DType::bf16},
                            {DType::f16, DType::f16},
                            {DType::bf16, DType::f32},
                            {DType::f16, DType::f32}};

// Matrices of one element, of less than a pack, and of several tiles; a stack of more matrices than one
// launch takes.
const Shape kShapes[] = {{1, 1},      {3, 5, 7},     {2, 768, 768}, {36, 48, 48},
                         {2, 96, 33}, {5, 200, 301}, {1100, 3, 4},  {2, 3, 64, 16}};

class MuonGpuTest : public OpAgreement {
 protected:
  void SetUp() override {
    OpAgreement::SetUp();
    if (!IsSkipped()) bind(1, 64, 48);
  }
  static Array values(std::vector<float> v) {
    return {DType::f32, {static_cast<int64_t>(v.size())}, std::move(v)};
  }
  static std::string name_of(const Shape& s, const Types& types) {
    return cat(stepladder::name_of(types.x), " of ", stepladder::name_of(types.g), ' ', s);
  }
  /// The tensor from its element `skip` on; without the last slice of its first dimension if `skip` is not 0.
  static Tensor from(const Tensor& t, int64_t skip) {
    if (skip == 0) return t;
    Tensor rest = t.slices(0, t.shape[0] - 1);
    rest.data = static_cast<std::byte*>(t.data) + skip * static_cast<int64_t>(size_of(t.dtype));
    return rest;
  }
};

TEST_F(MuonGpuTest, MomentumAgreesForAnyShapeTypeAndAlignment) {
  for (const Shape& s : kShapes) {
    for (const Types& types : kTypes) {
      for (const int64_t skip : {0, 1}) {
        if (skip > s[0] - 1) continue;
        SCOPED_TRACE(cat("from element ", skip));
        // Values of small tensors are positive: a norm of terms that cancel would have no digits left.
        const float low = s.numel() < 16 ? 0.5F : -1.0F;
        // u is off by a few roundings of 1; its norm is about the root of its size.
        const float few = 16.0F * kEps, size = std::sqrt(static_cast<float>(s[-2] * s[-1]));
        const Tolerance x = rounded({few / size, few}, types.x);
        const std::vector<Array> arrays = {inout(reals(s).as(types.x)), inout(reals(s, low)),
                                           reals(s, low).as(types.g), values({0.5F})};
        expect_outputs(name_of(s, types), arrays, {x, {4.0F * kEps, 0.0F}},
                       CALL(MuonMomentum{from(t[0], skip), from(t[1], skip), from(t[2], skip), t[3], 0.95F}));
      }
    }
  }
}

TEST_F(MuonGpuTest, UpdateAgreesForAnyShapeTypeAndAlignment) {
  for (const Shape& s : kShapes) {
    for (const DType type : kFloatTypes) {
      for (const int64_t skip : {0, 1}) {
        if (skip > s[0] - 1) continue;
        SCOPED_TRACE(cat("from element ", skip));
        const Tolerance few{8.0F * kEps, 0.0F};
        const std::vector<Array> arrays = {inout(reals(s)), inout(reals(s).as(type)), reals(s).as(type),
                                           values({0.02F})};
        expect_outputs(named("with a copy", s), arrays, {few, rounded(few, type)},
                       CALL(MuonUpdate{from(t[0], skip), from(t[1], skip), from(t[2], skip), t[3], 0.1F}));
        expect_agreement(named("without", s), {inout(reals(s)), reals(s).as(type), values({0.02F})}, few,
                         CALL(MuonUpdate{from(t[0], skip), {}, from(t[1], skip), t[2], 0.1F}));
      }
    }
  }
}

TEST_F(MuonGpuTest, AnOverflowedStepChangesNothing) {
  const Shape s{3, 40, 24};
  for (const float overflow : {0.0F, 1.0F}) {
    const Array scaler = values({8.0F, 0.0F, 0.0F, overflow});
    const Tolerance few = overflow == 0.0F ? Tolerance{16.0F * kEps, 0.0F} : kExact;
    expect_agreement("momentum", {inout(reals(s)), inout(reals(s)), reals(s), values({0.5F}), scaler}, few,
                     CALL(MuonMomentum{t[0], t[1], t[2], t[3], 0.95F, t[4]}));
    expect_agreement("update", {inout(reals(s)), inout(reals(s)), reals(s), values({0.02F}), scaler}, few,
                     CALL(MuonUpdate{t[0], t[1], t[2], t[3], 0.1F, t[4]}));
  }
}

// For small singular values the iterations multiply a rounding by up to 3.4445^5.
TEST_F(MuonGpuTest, NewtonSchulzAgrees) {
  struct Case {
    int64_t n, R, C;
  };
  for (const Case& c : {Case{1, 1, 1}, Case{3, 20, 50}, Case{3, 50, 20}, Case{5, 48, 48}, Case{2, 192, 768},
                        Case{2, 768, 192}, Case{1, 33, 65}}) {
    for (const DType type : kFloatTypes) {
      if (type == DType::bf16 && !cuda_->device().info().bf16) continue;
      const int64_t S = std::min(c.R, c.C);
      const Shape s{c.n, c.R, c.C}, square{c.n, S, S};
      // The norm is below 1, as after MuonMomentum.
      const float most = 1.0F / std::sqrt(static_cast<float>(c.R * c.C));
      const std::vector<Array> arrays = {inout(reals(s, -most, most).as(type)), out(s, type),
                                         out(square, type), out(square, type)};
      const auto call = [](Ops& o, const std::vector<Tensor>& t) {
        o.set_matmul_precision(Precision::fp32);
        const Tensor result = newton_schulz(o, {t[0], t[1], t[2], t[3]});
        EXPECT_EQ(result.data, t[1].data);
      };
      const auto expected = run(*cpu_, arrays, call)[1], got = run_twice(arrays, call)[1];
      double off = 0.0, size = 0.0;
      for (size_t i = 0; i < got.size(); ++i) {
        off += std::pow(static_cast<double>(got[i]) - expected[i], 2);
        size += std::pow(static_cast<double>(expected[i]), 2);
      }
      EXPECT_TRUE(std::sqrt(off / size) <= (type == DType::f32 ? 1e-5 : 16.0 * epsilon_of(type)))
          << stepladder::name_of(type) << ' ' << s << " is off by " << std::sqrt(off / size)
          << " of its norm";
    }
  }
}

}  // namespace
}  // namespace stepladder
