// Copies of the CUDA backend: between types, of values that travel with the launch, and of staged batches.
#include <array>

#include "tests/op_agreement.h"

namespace stepladder {
namespace {

class StagingGpuTest : public OpAgreement {};

TEST_F(StagingGpuTest, CopyConvertsBetweenAllTypes) {
  for (const DType from : kFloatTypes) {
    for (const DType to : kFloatTypes) {
      for (const int64_t n : {int64_t{1}, int64_t{1023}, int64_t{300'001}}) {
        // Values range from below the smallest f16 to above the largest: ties, subnormals and infinities.
        Array x = reals({n}, -26.0F, 18.0F);
        for (float& v : x.values) v = std::exp2(v) * (uniform() < 0.5F ? -1.0F : 1.0F);
        for (size_t i = 0; i < x.values.size(); i += 3)
          x.values[i] = std::ldexp(std::floor(uniform() * 4096), -6);
        x.values.front() = -std::numeric_limits<float>::infinity();
        expect_agreement(cat(name_of(from), " to ", name_of(to), ' ', n), {out({n}, to), x.as(from)}, kExact,
                         CALL(Copy{t[0], t[1]}));
      }
      Array nan = reals({2});
      nan.values[1] = kNan;
      const auto got = run(*cuda_, {out({2}, to), nan.as(from)}, CALL(Copy{t[0], t[1]}));
      EXPECT_TRUE(std::isnan(got[0][1])) << name_of(from) << " to " << name_of(to);
    }
  }
}

TEST_F(StagingGpuTest, WrittenValuesAgree) {
  expect_agreement("one", {out({1})}, kExact, CALL(WriteValues{t[0], {0.1F}}));
  expect_agreement("eight", {out({8})}, kExact,
                   CALL(WriteValues{t[0], {1, 2, 3, -4, 0.5F, 1e30F, 1e-30F, 8}}));
}

TEST_F(StagingGpuTest, StagedBatchesArriveInOrderWhileOpsRun) {
  constexpr int kSteps = 32;
  constexpr int64_t kN = 1 << 18, kWork = 1 << 24;
  const auto device = [&](Shape shape) {
    return cuda_->device().allocate(static_cast<size_t>(shape.numel()) * sizeof(float));
  };
  const auto staged_block = device({kN}), batch_block = device({kN}), seen_block = device({kSteps, kN}),
             work_block = device({kWork});
  const Tensor staged{staged_block.get(), DType::f32, {kN}, "staged"};
  const Tensor batch{batch_block.get(), DType::f32, {kN}, "batch"};
  const Tensor seen{seen_block.get(), DType::f32, {kSteps, kN}, "seen"};
  const Tensor work{work_block.get(), DType::f32, {kWork}, "work"};
  (*cuda_)(Zero{work});

  std::array<std::shared_ptr<void>, 2> host;
  for (auto& block : host) block = cuda_->device().allocate_host(kN * sizeof(float));
  const auto stage = [&](int step) {
    // The Stage two steps earlier has finished reading this memory, since the last step's Stage waited for
    // it.
    auto* values = static_cast<float*>(host[static_cast<size_t>(step % 2)].get());
    for (int64_t i = 0; i < kN; ++i) values[i] = static_cast<float>(step * 1000 + i % 1000);
    (*cuda_)(Stage{staged, values});
  };
  stage(0);
  for (int step = 0; step < kSteps; ++step) {
    (*cuda_)(Affine{work, work, 0.5F, 1.0F});  // keeps the device behind the host
    (*cuda_)(Receive{batch, staged});
    if (step + 1 < kSteps) stage(step + 1);
    (*cuda_)(Affine{work, work, 0.5F, 1.0F});
    (*cuda_)(Copy{seen[step], batch});
  }
  std::vector<float> got(kN);
  for (int step = 0; step < kSteps; ++step) {
    (*cuda_)(Download{got.data(), seen[step]});
    for (int64_t i = 0; i < kN; ++i)
      ASSERT_EQ(got[static_cast<size_t>(i)], static_cast<float>(step * 1000 + i % 1000))
          << "step " << step << ", element " << i;
  }
}

TEST_F(StagingGpuTest, SynchronizeWaitsForStaging) {
  constexpr int64_t kN = 1 << 24;
  const auto block = cuda_->device().allocate(kN * sizeof(float));
  const auto host = cuda_->device().allocate_host(kN * sizeof(float));
  const Tensor staged{block.get(), DType::f32, {kN}, "staged"};
  auto* values = static_cast<float*>(host.get());
  std::fill_n(values, kN, 1.0F);
  (*cuda_)(Stage{staged, values});
  cuda_->synchronize();
  std::fill_n(values, kN, 2.0F);
  std::vector<float> got(kN);
  (*cuda_)(Download{got.data(), staged});
  EXPECT_EQ(got.front(), 1.0F);
  EXPECT_EQ(got.back(), 1.0F);
}

TEST_F(StagingGpuTest, OutOfPageLockedMemoryIsItsOwnError) {
  EXPECT_THROW(cuda_->device().allocate_host(size_t{1} << 50), OutOfMemoryError);
  EXPECT_NE(cuda_->device().allocate_host(0), nullptr);
  expect_agreement("afterwards", {out({3}), reals({3})}, kExact, CALL(Copy{t[0], t[1]}));
}

}  // namespace
}  // namespace stepladder
