// The fused optimizer ops of CUDA against the CPU reference: clip_grad_norm and adamw over tensors of all
// sizes and alignments.
#include "tests/op_agreement.h"

namespace stepladder {
namespace {

constexpr AdamW kHyper{.beta1 = 0.9F, .beta2 = 0.95F, .eps = 1e-8F, .weight_decay = 0.1F};

// Sizes of tensors, some around a tile's: more tensors than one launch takes.
std::vector<int64_t> sizes() {
  std::vector<int64_t> n = {100'003, 1, 3, 768, 2047, 2048, 2049, 8192, 8200, 12 * 768, 300'000};
  while (n.size() < 70) n.push_back(static_cast<int64_t>(n.size()) * 37);
  return n;
}

class AdamWGpuTest : public OpAgreement {
 protected:
  /// Operands of adamw_of(), five for each tensor: w, g, m, v, low. Every second tensor leaves low unused.
  std::vector<Array> operands(DType type) { return operands(type, type); }
  std::vector<Array> operands(DType gradients, DType type) {
    std::vector<Array> arrays;
    for (const int64_t n : sizes()) {
      arrays.push_back(inout(reals({n})));
      arrays.push_back(reals({n}).as(gradients));
      arrays.push_back(inout(reals({n})));
      arrays.push_back(inout(reals({n}, 0.01F, 1.0F)));
      arrays.push_back(out({n}, type));
      if (arrays.size() / 5 % 2 == 0) arrays.back() = integers({n}).as(type);
    }
    return arrays;
  }
  /// A call of AdamWStep on every tensor from its element `skip` on; an odd `skip` leaves them unaligned.
  static Call adamw_of(int64_t skip, bool scaled) {
    return [=](Ops& o, const std::vector<Tensor>& t) {
      const auto rest = [skip](const Tensor& x) {
        const int64_t n = std::max<int64_t>(x.numel() - skip, 0);
        return Tensor{
            static_cast<std::byte*>(x.data) + (x.numel() - n) * static_cast<int64_t>(size_of(x.dtype)),
            x.dtype,
            {n},
            x.name};
      };
      std::vector<AdamWTensor> tensors;
      for (size_t i = 0; i + 5 <= t.size(); i += 5)
        tensors.push_back({rest(t[i]), rest(t[i + 1]), rest(t[i + 2]), rest(t[i + 3]),
                           i / 5 % 2 == 0 ? rest(t[i + 4]) : Tensor{}, i / 5 % 3 == 0});
      const size_t at = sizes().size() * 5;
      o(AdamWStep{tensors, t[at], t[at + 1], kHyper, scaled ? t[at + 2] : Tensor{}});
    };
  }
  static Array values(std::vector<float> v) {
    return {DType::f32, {static_cast<int64_t>(v.size())}, std::move(v)};
  }
  /// Expects agreement of AdamWStep on every tensor from its element `skip` on.
  void expect_agreement_from(int64_t skip, DType gradients, DType type) {
    std::vector<Array> arrays = operands(gradients, type);
    for (size_t i = 4; i < arrays.size(); i += 10) arrays[i] = inout(integers(arrays[i].shape).as(type));
    arrays.push_back(values({0.02F, 3.0F}));
    arrays.push_back(values({0.5F}));
    expect_agreement(cat(name_of(type), " from element ", skip), arrays, rounded({16.0F * kEps, 0.0F}, type),
                     adamw_of(skip, false));
  }
};

TEST_F(AdamWGpuTest, AdamWAgreesForAnySizeTypeAndStep) {
  // A parameter's terms are at most 1, its update at most lr * (|mhat| / sqrt(vhat) + decay) = 0.02 * 10.
  const Tolerance few{16.0F * kEps, 0.0F};
  for (const DType type : kFloatTypes) {
    for (const float t : {1.0F, 2.0F, 1000.0F}) {
      std::vector<Array> arrays = operands(type);
      arrays.push_back(values({0.02F, t}));
      arrays.push_back(values({0.5F}));
      expect_agreement(cat(name_of(type), " t=", t), arrays, rounded(few, type), adamw_of(0, false));
    }
  }
}

TEST_F(AdamWGpuTest, GradientsInF32UpdateCopiesIn16Bits) {
  for (const DType type : {DType::bf16, DType::f16}) {
    for (const int64_t skip : {0, 1}) expect_agreement_from(skip, DType::f32, type);
  }
}

TEST_F(AdamWGpuTest, UnalignedTensorsAgree) {
  for (const DType type : kFloatTypes) {
    for (const int64_t skip : {1, 2, 4}) expect_agreement_from(skip, type, type);
  }
}

TEST_F(AdamWGpuTest, AnOverflownStepChangesNothingAndDoesNotCount) {
  for (const DType type : kFloatTypes) {
    // Five steps were skipped, so step 6 counts as the first.
    std::vector<Array> arrays = operands(type);
    arrays.push_back(values({0.02F, 6.0F}));
    arrays.push_back(values({0.5F}));
    arrays.push_back(values({1024.0F, 0.0F, 5.0F, 0.0F}));
    expect_agreement(cat(name_of(type), " scaled"), arrays, rounded({16.0F * kEps, 0.0F}, type),
                     adamw_of(0, true));
    arrays.back().values[3] = 1.0F;
    for (size_t i = 4; i < arrays.size(); i += 10) arrays[i] = inout(integers(arrays[i].shape).as(type));
    const auto got = run(*cuda_, arrays, adamw_of(0, true));
    for (size_t i = 0; i < arrays.size(); ++i) EXPECT_TRUE(same_bits(got[i], arrays[i].values)) << i;
  }
}

TEST_F(AdamWGpuTest, NarrowAccessGivesTheSame) {
  OpsOptions narrow;
  narrow.wide_access = false;
  const auto other = make_cuda_ops(0, gpu_test_options(narrow));
  std::vector<Array> arrays = operands(DType::bf16);
  arrays.push_back(values({0.02F, 7.0F}));
  arrays.push_back(values({0.5F}));
  const auto expected = run(*cpu_, arrays, adamw_of(0, false));
  const auto got = run(*other, arrays, adamw_of(0, false));
  for (size_t i = 0; i < arrays.size(); ++i)
    if (arrays[i].output) expect_near(got[i], expected[i], rounded({16.0F * kEps, 0.0F}, DType::bf16), i);
}

/// clip_grad_norm of the gradients in operands 2 and up; operands 0 and 1 are the factor and the norm, the
/// last is the loss scaler if `scaled`.
Call clip_of(float max_norm, bool scaled, int64_t skip = 0) {
  return [=](Ops& o, const std::vector<Tensor>& t) {
    std::vector<Tensor> grads;
    for (size_t i = 2; i < t.size() - (scaled ? 1 : 0); ++i) {
      const int64_t first = std::min(skip, t[i].numel());
      grads.push_back({static_cast<std::byte*>(t[i].data) + first * static_cast<int64_t>(size_of(t[i].dtype)),
                       t[i].dtype,
                       {t[i].numel() - first},
                       "gradient"});
    }
    o(ClipGradNorm{t[0], t[1], grads, max_norm, scaled ? t.back() : Tensor{}});
  };
}

TEST_F(AdamWGpuTest, NormOfAllGradientsAgrees) {
  bind(1, 1, 48);
  for (const DType type : kFloatTypes) {
    std::vector<Array> whole = {out({1}), out({1})}, real = whole;
    int64_t terms = 0;
    for (const int64_t n : sizes()) {
      whole.push_back(integers({n}, 2).as(type));
      real.push_back(reals({n}).as(type));
      terms += n;
    }
    for (const float max_norm : {1.0F, 1e6F}) {
      for (const int64_t skip : {0, 1}) {
        const std::string what = cat(name_of(type), " to ", max_norm, " from element ", skip);
        // The sum of whole numbers is exact; the root, the limit's denominator and their ratio are rounded.
        expect_agreement(what, whole, {0.0F, 3.0F * kEps}, clip_of(max_norm, false, skip));
        expect_agreement(what, real, {0.0F, kEps * roundings(terms / 1024)}, clip_of(max_norm, false, skip));
      }
    }
  }
}

TEST_F(AdamWGpuTest, NormOfOneGradientAndOfNarrowAccessAgrees) {
  bind(1, 1, 48);
  OpsOptions narrow;
  narrow.wide_access = false;
  const auto other = make_cuda_ops(0, gpu_test_options(narrow));
  Config config;
  config.C = 48;
  Arena plan;
  other->device().bind_workspace(plan, config);
  Arena arena(*other, plan.bytes());
  other->device().bind_workspace(arena, config);
  for (const int64_t n : {int64_t{1}, int64_t{3'000'017}}) {
    const std::vector<Array> arrays = {out({1}), out({1}), integers({n}, 2).as(DType::bf16)};
    expect_agreement(cat(n), arrays, {0.0F, 3.0F * kEps}, clip_of(1.0F, false));
    const auto expected = run(*cpu_, arrays, clip_of(1.0F, false));
    const auto got = run(*other, arrays, clip_of(1.0F, false));
    for (size_t i : {0, 1}) expect_near(got[i], expected[i], {0.0F, 3.0F * kEps}, i);
  }
}

TEST_F(AdamWGpuTest, LossScalerFollowsTheGradients) {
  bind(1, 1, 48);
  const Array grads = integers({5000}).as(DType::f16);
  struct Case {
    float scale, good;
    bool overflow;
  };
  for (const Case& c : {Case{1024.0F, 0.0F, false}, Case{1024.0F, 1999.0F, false}, Case{1024.0F, 7.0F, true},
                        Case{0x1p24F, 1999.0F, false}}) {
    // Each state starts with the overflow flag that the previous step left set.
    std::vector<Array> arrays = {out({1}), out({1}), grads, inout(values({c.scale, c.good, 3.0F, 1.0F}))};
    if (c.overflow) arrays[2].values[4999] = std::numeric_limits<float>::infinity();
    const std::string what = cat("scale ", c.scale, " after ", c.good, c.overflow ? ", overflow" : "");
    expect_agreement(what, arrays, {0.0F, 3.0F * kEps}, clip_of(0.01F, true));
    const std::vector<float> scaler = run(*cuda_, arrays, clip_of(0.01F, true))[3];
    EXPECT_EQ(scaler[0], c.overflow          ? c.scale / 2
                         : c.good == 1999.0F ? std::min(2 * c.scale, 0x1p24F)
                                             : c.scale);
    EXPECT_EQ(scaler[2], c.overflow ? 4.0F : 3.0F);
    EXPECT_EQ(scaler[3], c.overflow ? 1.0F : 0.0F);
  }
  std::vector<Array> nan = {out({1}), out({1}), grads, inout(values({1024.0F, 7.0F, 3.0F, 0.0F}))};
  nan[2].values[17] = kNan;
  const auto got = run(*cuda_, nan, clip_of(1.0F, true));
  EXPECT_TRUE(std::isnan(got[1][0]));
  EXPECT_EQ(got[3][0], 512.0F);
  EXPECT_EQ(got[3][3], 1.0F);
}

// Misfits that check() lets pass and the kernels refuse. OpCpu.MisfitShapesAndTypesThrowNamingTheOp tests
// those that check() refuses.
TEST_F(AdamWGpuTest, ItsKernelsRefuseABetaOfOneAndGradientsOfTwoTypesOrNone) {
  bind(1, 1, 48);
  const auto tensor = [](int64_t n, DType dtype = DType::f32) { return Tensor{nullptr, dtype, {n}, "t"}; };
  const Tensor x = tensor(8), one = tensor(1), mixed[] = {x, tensor(8, DType::bf16)};
  const AdamWTensor good{x, x, x, x, {}, false};
  EXPECT_THROW((*cuda_)(AdamWStep{{&good, 1}, tensor(2), one, {1.0F, 0.9F, 1e-8F, 0.0F}}),
               std::invalid_argument);
  EXPECT_THROW((*cuda_)(ClipGradNorm{one, one, mixed, 1.0F}), std::invalid_argument);
  EXPECT_THROW((*cuda_)(ClipGradNorm{one, one, {}, 1.0F}), std::invalid_argument);
}

}  // namespace
}  // namespace stepladder
