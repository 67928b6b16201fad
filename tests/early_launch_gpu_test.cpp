// Kernels of a recorded step may launch while the previous kernel ends: they do where the device can, and
// read nothing before it is written.
#include "tests/op_agreement.h"

namespace stepladder {
namespace {

class EarlyLaunchGpuTest : public OpAgreement {
 protected:
  /// Replaces the backend under test and binds its scratch.
  void start(const OpsOptions& options) {
    cuda_ = make_cuda_ops(0, gpu_test_options(options));
    bind(4, 1024, 768);
  }

  /// The operands of a chain of N rows: x, which one pass hands to the next, sums, and scratch.
  std::vector<Array> chain_arrays(int64_t N, DType type) {
    const auto of = [&](Shape s, float limit) { return reals(s, -limit, limit).as(type); };
    const Shape x{N, kC}, columns{kC};
    return {inout(of(x, 1)),
            inout(of(columns, 1)),
            inout(of(columns, 1)),
            inout(of(columns, 1)),
            inout(of(columns, 1)),
            out(x, type),
            out(x, type),
            out(x, type),
            out(x, type),
            out({N}),
            out({N}),
            of({kC, kC}, 0.05F),
            of(columns, 1),
            of(columns, 1)};
  }
  /// Runs ops that each read the previous one's output: kernels, matrix products, memsets and copies.
  static void run_chain(Ops& o, const std::vector<Tensor>& t) {
    const Tensor x = t[0], sums = t[1], ln = t[5], y = t[6], dx = t[7], kept = t[8], mean = t[9],
                 rstd = t[10], w = t[11], gain = t[12], shift = t[13];
    o(LayerNormForward{ln, mean, rstd, x, gain, shift});
    o(LinearForward{y, ln, w, shift, x});
    o(Zero{dx});
    o(LayerNormBackward{dx, NormParams{t[2], t[3]}, t[4], y, NormInput{x, mean, rstd}, gain});
    o(Copy{kept, y});
    o(GeluBackward{y, kept, dx});
    o(Add{x, y, dx});
    o(SumRows{sums, x});
    for (const Tensor& s : {sums, t[2], t[3], t[4]}) o(Affine{s, s, 0.5F, 0.0F});
    o(MulColumns{kept, x, sums});
    o(Matmul{y, kept, w, MatOp::NT});
    o(Lerp{x, y, 1e-3F});
  }

  static constexpr int64_t kC = 768;
};

TEST_F(EarlyLaunchGpuTest, RecordedPassesGiveTheBitsOfOpsOneByOne) {
  constexpr int kPasses = 100;
  for (const DType type : {DType::f32, DType::f16})
    for (const int64_t N : {1, 33, 4096}) {
      SCOPED_TRACE(cat(N, " rows ", name_of(type)));
      const auto arrays = chain_arrays(N, type);
      start({});
      const auto direct = run(*cuda_, arrays, [](Ops& o, auto& t) {
        for (int pass = 0; pass < kPasses; ++pass) run_chain(o, t);
      });
      for (const bool early : {false, true}) {
        OpsOptions options;
        options.early_launch = early;
        start(options);
        const auto recorded = run(*cuda_, arrays, [](Ops& o, auto& t) {
          const auto chain = o.record([&] { run_chain(o, t); }, Launch::early);
          for (int pass = 0; pass < kPasses; ++pass) chain();
          o.synchronize();
        });
        for (size_t i = 0; i < arrays.size(); ++i)
          EXPECT_TRUE(same_bits(direct[i], recorded[i])) << "operand " << i << (early ? ", early" : "");
      }
    }
}

TEST_F(EarlyLaunchGpuTest, IsForRecordedKernelsAfterKernelsOfNewDevices) {
  const auto launched_early = [&](const OpsOptions& options, const Call& call) {
    start(options);
    run(*cuda_, chain_arrays(33, DType::f16), call);
    return cuda_->graph().info().launched_early;
  };
  const auto add_twice = [](Ops& o, const std::vector<Tensor>& t) {
    o(Add{t[0], t[0], t[0]});
    o(Add{t[0], t[0], t[0]});
  };
  const Call recorded = [&](Ops& o, auto& t) { o.record([&] { add_twice(o, t); }, Launch::early)(); };
  const bool able = cuda_->device().info().compute_capability >= 90;
  EXPECT_EQ(launched_early({}, recorded), able ? 1 : 0);  // the first kernel has no predecessor
  EXPECT_EQ(launched_early({}, add_twice), 0);
  EXPECT_EQ(launched_early({}, [&](Ops& o, auto& t) { o.record([&] { add_twice(o, t); })(); }), 0);
  EXPECT_EQ(launched_early({.early_launch = false}, recorded), 0);
  EXPECT_EQ(launched_early({.compute_capability = 75}, recorded), 0);
  EXPECT_EQ(launched_early({},
                           [](Ops& o, auto& t) {
                             o.record(
                                 [&] {
                                   o(Zero{t[0]});
                                   o(Add{t[0], t[0], t[0]});  // follows a memset
                                   o(Copy{t[5], t[0]});
                                   o(Add{t[0], t[5], t[5]});  // follows a copy
                                 },
                                 Launch::early)();
                           }),
            0);
}

}  // namespace
}  // namespace stepladder
