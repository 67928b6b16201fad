// Linear layers on CUDA against the CPU: fused by cuBLASLt where possible and in other ways elsewhere, with
// searched algorithms, and recorded as a graph.
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "tests/files.h"
#include "tests/gpu_options.h"
#include "tests/op_agreement.h"

namespace stepladder {
namespace {

// cuBLASLt's tanh may be the hardware's approximation, whose error is up to 2^-11. Before tanh saturates, the
// error shifts gelu(x) by half the error times x, and gelu'(x) by about 3 |x| times the error.
constexpr float kGeluError = 0x1p-10F, kGeluSlopeError = 0x1p-8F;
constexpr float kSteepestGelu = 1.13F;
constexpr float kTf32Eps = 0x1p-10F;

/// A linear layer: x (N,Cin) and w (Cout,Cin) of type `dtype`, f32 multiplied at `precision`. Gradients of w
/// and of biases have type `sums`.
struct LinearCase {
  int64_t N, Cin, Cout;
  DType dtype;
  Precision precision;
  DType sums = dtype;

  Shape x() const { return {N, Cin}; }
  Shape w() const { return {Cout, Cin}; }
  Shape y() const { return {N, Cout}; }
};

std::ostream& operator<<(std::ostream& out, const LinearCase& c) {
  return out << "N=" << c.N << " Cin=" << c.Cin << " Cout=" << c.Cout << ' '
             << (c.precision == Precision::tf32 ? "tf32" : name_of(c.dtype))
             << (c.sums == c.dtype ? "" : ", gradients in f32");
}

/// A magnitude that sums of K products of numbers below 1 hardly ever exceed.
float largest(int64_t K) {
  const auto terms = static_cast<float>(K);
  return std::min(terms, 2.0F * std::sqrt(terms));
}

/// The error of a sum of K products plus a term of 1; the sum may be stored once before it is complete.
float product_error(const LinearCase& c, int64_t K) {
  const float products = c.precision == Precision::tf32 ? 3.0F * kTf32Eps * roundings(K)
                                                        : kEps * roundings(K) * static_cast<float>(K);
  return products + epsilon_of(c.dtype) * (largest(K) + 1.0F);
}

/// The tensor from its second element on, under another shape: aligned to one element only.
Tensor shifted(const Tensor& t, Shape shape) {
  return {static_cast<std::byte*>(t.data) + size_of(t.dtype), t.dtype, shape, t.name};
}

class LinearGpuTest : public OpAgreement {
 protected:
  void SetUp() override {
    OpAgreement::SetUp();
    if (cuda_) bind(4, 250, 768);
  }

  /// Cases of all types, on shapes that suit every epilogue, some, or none.
  std::vector<LinearCase> cases() const {
    constexpr int64_t kExtents[][3] = {{13, 48, 144}, {1, 1, 1},      {77, 31, 65}, {1000, 64, 256},
                                       {5, 12, 20},   {300, 768, 96}, {13, 48, kV}, {13, 4000, 8}};
    std::vector<std::pair<DType, Precision>> types = {{DType::f32, Precision::fp32},
                                                      {DType::f16, Precision::fp32}};
    if (cuda_->device().info().bf16) {
      types.emplace_back(DType::f32, Precision::tf32);
      types.emplace_back(DType::bf16, Precision::fp32);
    }
    std::vector<LinearCase> all;
    for (const auto& [dtype, precision] : types)
      for (const auto& [N, Cin, Cout] : kExtents) all.push_back({N, Cin, Cout, dtype, precision});
    return all;
  }

  /// Random -1, 0 and 1: their sums stay small enough for every type to hold exactly.
  Array units(const LinearCase& c, Shape shape) { return integers(shape, 1).as(c.dtype); }
  Array reals_of(const LinearCase& c, Shape shape, float limit = 1.0F) {
    return reals(shape, -limit, limit).as(c.dtype);
  }
  /// A gradient: NaN to overwrite, or numbers to add to.
  Array target(const LinearCase& c, Shape shape, Write write) {
    return write == Write::add ? inout(reals(shape).as(c.sums)) : out(shape, c.sums);
  }

  void expect_forward(const LinearCase& c) {
    const Call call = [c](Ops& o, auto& t) {
      o.set_matmul_precision(c.precision);
      o(LinearForward{t[0], t[1], t[2], t[3]});
    };
    const std::string what = cat("linear_forward ", c);
    expect_agreement(what, {out(c.y(), c.dtype), units(c, c.x()), units(c, c.w()), units(c, {c.Cout})},
                     kExact, call);
    expect_outputs(what, {out(c.y(), c.dtype), reals_of(c, c.x()), reals_of(c, c.w()), reals_of(c, {c.Cout})},
                   {{product_error(c, c.Cin), epsilon_of(c.dtype)}}, call);
  }

  /// Checks LinearForward with a residual, which may also be the output.
  void expect_residual_forward(const LinearCase& c) {
    for (const bool in_place : {false, true}) {
      const Call call = [=](Ops& o, auto& t) {
        o.set_matmul_precision(c.precision);
        o(LinearForward{t[0], t[1], t[2], t[3], in_place ? t[0] : t[4]});
      };
      const std::string what = cat("linear_forward of a residual ", in_place ? "in place " : "", c);
      const auto arrays = [&](const Array& residual, const Array& x, const Array& w, const Array& b) {
        return in_place ? std::vector<Array>{inout(residual), x, w, b}
                        : std::vector<Array>{out(c.y(), c.dtype), x, w, b, residual};
      };
      expect_agreement(what, arrays(units(c, c.y()), units(c, c.x()), units(c, c.w()), units(c, {c.Cout})),
                       kExact, call);
      expect_outputs(
          what, arrays(reals_of(c, c.y()), reals_of(c, c.x()), reals_of(c, c.w()), reals_of(c, {c.Cout})),
          {{product_error(c, c.Cin), epsilon_of(c.dtype)}}, call);
    }
  }

  void expect_gelu_forward(const LinearCase& c) {
    const float pre = product_error(c, c.Cin), eps = epsilon_of(c.dtype);
    expect_outputs(cat("linear_gelu_forward ", c),
                   {out(c.y(), c.dtype), out(c.y(), c.dtype), reals_of(c, c.x()), reals_of(c, c.w()),
                    reals_of(c, {c.Cout})},
                   {{kSteepestGelu * pre + kGeluError, eps}, {pre, eps}}, [c](Ops& o, auto& t) {
                     o.set_matmul_precision(c.precision);
                     o(LinearGeluForward{t[0], t[1], t[2], t[3], t[4]});
                   });
  }

  void expect_gelu_backward(const LinearCase& c, Write write) {
    const float eps = epsilon_of(c.dtype);
    const float dpre = kSteepestGelu * product_error(c, c.Cout) + kGeluSlopeError * largest(c.Cout);
    const float db = roundings(c.N) * dpre + eps;
    expect_outputs(cat("linear_gelu_backward ", c),
                   {out(c.x(), c.dtype), target(c, {c.Cin}, write), reals_of(c, c.y()), reals_of(c, c.w()),
                    reals_of(c, c.x(), 3.0F)},
                   {{dpre, eps}, {db, 2.0F * eps}}, [=](Ops& o, auto& t) {
                     o.set_matmul_precision(c.precision);
                     o(LinearGeluBackward{t[0], t[1], t[2], t[3], t[4], write});
                   });
  }

  void expect_weight_backward(const LinearCase& c, Write write) {
    const Call call = [=](Ops& o, auto& t) {
      o.set_matmul_precision(c.precision);
      o(LinearWeightBackward{t[0], t[1], t[2], t[3], write});
    };
    const std::string what = cat("linear_weight_backward ", c);
    // An f32 gradient that is added to has more digits than 16 bits hold.
    const int limit = c.sums == c.dtype ? 1 : 1 << 20;
    const auto whole = [&](Shape s) {
      return write == Write::add ? inout(integers(s, limit).as(c.sums)) : out(s, c.sums);
    };
    expect_agreement(what, {whole(c.w()), whole({c.Cout}), units(c, c.y()), units(c, c.x())}, kExact, call);
    const float eps = epsilon_of(c.dtype),
                sum = kEps * roundings(c.N) * static_cast<float>(c.N) + eps * largest(c.N);
    expect_outputs(
        what, {target(c, c.w(), write), target(c, {c.Cout}, write), reals_of(c, c.y()), reals_of(c, c.x())},
        {{product_error(c, c.N), eps}, {sum + eps, 2.0F * eps}}, call);
  }

  void expect_all(const LinearCase& c) {
    expect_forward(c);
    expect_residual_forward(c);
    expect_gelu_forward(c);
    for (const Write write : {Write::set, Write::add}) {
      expect_gelu_backward(c, write);
      expect_weight_backward(c, write);
    }
  }
};

TEST_F(LinearGpuTest, ForwardAgrees) {
  for (const LinearCase& c : cases()) expect_forward(c);
}

TEST_F(LinearGpuTest, ForwardOfAResidualAgreesInPlaceToo) {
  for (const LinearCase& c : cases()) expect_residual_forward(c);
}

TEST_F(LinearGpuTest, GeluForwardAgrees) {
  for (const LinearCase& c : cases()) expect_gelu_forward(c);
}

TEST_F(LinearGpuTest, GeluBackwardAgreesSetOrAdded) {
  for (const LinearCase& c : cases())
    for (const Write write : {Write::set, Write::add}) expect_gelu_backward(c, write);
}

TEST_F(LinearGpuTest, WeightBackwardAgreesSetOrAdded) {
  for (const LinearCase& c : cases())
    for (const Write write : {Write::set, Write::add}) expect_weight_backward(c, write);
}

TEST_F(LinearGpuTest, GradientsOf16BitTensorsAddUpInF32) {
  for (LinearCase c : cases()) {
    if (c.dtype == DType::f32) continue;
    c.sums = DType::f32;
    for (const Write write : {Write::set, Write::add}) {
      expect_gelu_backward(c, write);
      expect_weight_backward(c, write);
    }
  }
}

TEST_F(LinearGpuTest, LeadingDimensionsAreRows) {
  for (const DType type : {DType::f32, DType::f16}) {
    const auto of = [&](Shape s) { return integers(s, 1).as(type); };
    expect_agreement("linear_forward", {out({3, 5, 16}, type), of({3, 5, 24}), of({16, 24}), of({16})},
                     kExact, CALL(LinearForward{t[0], t[1], t[2], t[3]}));
    expect_agreement("linear_weight_backward",
                     {out({16, 24}, type), out({16}, type), of({3, 5, 16}), of({3, 5, 24})}, kExact,
                     CALL(LinearWeightBackward{t[0], t[1], t[2], t[3], Write::set}));
  }
}

TEST_F(LinearGpuTest, OperandsMayBeAlignedToAnElementOnly) {
  constexpr int64_t N = 40, Cin = 64, Cout = 128;
  const Shape x{N, Cin}, w{Cout, Cin}, y{N, Cout}, bx{Cin}, by{Cout};
  for (const DType type : {DType::f32, DType::f16}) {
    const LinearCase c{N, Cin, Cout, type, Precision::fp32};
    const auto of = [&](const Shape& s) { return units(c, {s.numel() + 1}); };
    expect_agreement(
        "linear_forward", {inout(of(y)), of(x), of(w), of(by)}, kExact,
        CALL(LinearForward{shifted(t[0], y), shifted(t[1], x), shifted(t[2], w), shifted(t[3], by)}));
    expect_agreement(
        "linear_forward of a residual", {inout(of(y)), of(x), of(w), of(by), of(y)}, kExact,
        CALL(LinearForward{t[0].first(y), t[1].first(x), t[2].first(w), t[3].first(by), shifted(t[4], y)}));
    for (const Write write : {Write::set, Write::add})
      expect_agreement("linear_weight_backward", {inout(of(w)), inout(of(by)), of(y), of(x)}, kExact,
                       CALL(LinearWeightBackward{shifted(t[0], w), shifted(t[1], by), shifted(t[2], y),
                                                 shifted(t[3], x), write}));
    // gelu of whole numbers isn't whole: results agree within a rounding, or the error of cuBLASLt's tanh.
    const float eps = epsilon_of(type);
    expect_agreement("linear_gelu_forward", {inout(of(y)), inout(of(y)), of(x), of(w), of(by)},
                     {kGeluError, eps},
                     CALL(LinearGeluForward{shifted(t[0], y), shifted(t[1], y), shifted(t[2], x),
                                            shifted(t[3], w), shifted(t[4], by)}));
    const float dpre = kGeluSlopeError * largest(Cout) + eps * largest(Cout);
    expect_outputs("linear_gelu_backward", {inout(of(x)), inout(of(bx)), of(y), of(w), of(x)},
                   {{dpre, eps}, {roundings(N) * dpre, eps}},
                   CALL(LinearGeluBackward{shifted(t[0], x), shifted(t[1], bx), shifted(t[2], y),
                                           shifted(t[3], w), shifted(t[4], x), Write::set}));
  }
}

TEST_F(LinearGpuTest, WithoutScratchTooTheyAgree) {
  cuda_ = make_cuda_ops(0, gpu_test_options(options()));
  for (const LinearCase& c : {LinearCase{13, 48, 144, DType::f32, Precision::fp32},
                              LinearCase{1000, 64, 256, DType::f16, Precision::fp32}})
    expect_all(c);
}

TEST_F(LinearGpuTest, WhatAnOlderDeviceLacksIsRefused) {
  OpsOptions turing;
  turing.compute_capability = 75;
  cuda_ = make_cuda_ops(0, turing);
  bind(4, 250, 768);
  const auto block = cuda_->device().allocate(1 << 16);
  const auto tensor = [&](Shape s) { return Tensor{block.get(), DType::bf16, s, "operand"}; };
  EXPECT_THROW((*cuda_)(LinearForward{tensor({8, 32}), tensor({8, 16}), tensor({32, 16}), tensor({32})}),
               UnsupportedError);
  expect_all({1000, 64, 256, DType::f16, Precision::fp32});
}

// ---- a layer's ops together: searched and recorded

class CompileGpuTest : public LinearGpuTest {
 protected:
  OpsOptions options() const override {
    OpsOptions options;
    options.cache_dir = cache_dir_;
    options.deterministic = deterministic_;
    options.search_again = search_again_;
    options.early_launch = early_launch_;
    return options;
  }
  /// Replaces the backend, so that algorithms are lost as in a new process.
  void start_again() {
    cuda_ = make_cuda_ops(0, gpu_test_options(options()));
    bind(4, 250, 768);
  }

  std::vector<LinearCase> searched_cases() const {
    std::vector<LinearCase> all = {{13, 48, 144, DType::f32, Precision::fp32},
                                   {77, 31, 65, DType::f16, Precision::fp32},
                                   {1000, 64, 256, DType::f16, Precision::fp32},
                                   {1000, 64, 256, DType::f16, Precision::fp32, DType::f32}};
    if (cuda_->device().info().bf16) {
      all.push_back({1000, 768, 3072, DType::bf16, Precision::fp32, DType::f32});
      all.push_back({300, 768, 96, DType::f32, Precision::tf32});
      all.push_back({1000, 768, 3072, DType::bf16, Precision::fp32});
    }
    return all;
  }

  /// The operands of run_layer(): outputs (gradients are added to where `write` is add), inputs, then outputs
  /// with residuals.
  std::vector<Array> layer_arrays(const LinearCase& c, Write write) {
    return {out(c.y(), c.dtype),        out(c.y(), c.dtype),       out(c.y(), c.dtype),
            out(c.x(), c.dtype),        target(c, {c.Cin}, write), target(c, c.w(), write),
            target(c, {c.Cout}, write), out(c.x(), c.dtype),       reals_of(c, c.x()),
            reals_of(c, c.w()),         reals_of(c, {c.Cout}),     reals_of(c, c.y()),
            reals_of(c, c.x(), 3.0F),   out(c.y(), c.dtype),       inout(reals_of(c, c.y()))};
  }
  static void run_layer(Ops& o, const std::vector<Tensor>& t, const LinearCase& c, Write write) {
    const Tensor x = t[8], w = t[9], b = t[10], dout = t[11], before = t[12];
    o.set_matmul_precision(c.precision);
    o(LinearForward{t[0], x, w, b});
    o(LinearGeluForward{t[1], t[2], x, w, b});
    o(LinearGeluBackward{t[3], t[4], dout, w, before, write});
    o(LinearWeightBackward{t[5], t[6], dout, x, write});
    o(Matmul{t[7], dout, w, MatOp::NN});
    o(LinearForward{t[13], x, w, b, dout});
    o(LinearForward{t[14], x, w, b, t[14]});
  }
  void search_all() {
    for (const LinearCase& c : searched_cases())
      for (const Write write : {Write::set, Write::add})
        run(*cuda_, layer_arrays(c, write),
            [&](Ops& o, auto& t) { o.search([&] { run_layer(o, t, c, write); }); });
  }
  void expect_all_right() {
    for (const LinearCase& c : searched_cases()) {
      expect_all(c);
      expect_agreement(cat("matmul ", c), {out(c.x(), c.dtype), units(c, c.y()), units(c, c.w())}, kExact,
                       [c](Ops& o, auto& t) {
                         o.set_matmul_precision(c.precision);
                         o(Matmul{t[0], t[1], t[2], MatOp::NN});
                       });
    }
  }
  std::vector<std::string> cache_files() const {
    std::vector<std::string> files;
    if (std::filesystem::exists(cache_dir_))
      for (const auto& entry : std::filesystem::directory_iterator(cache_dir_))
        files.push_back(entry.path().string());
    return files;
  }

  TempFolder folder_;
  std::string cache_dir_ = folder_ / "cache";
  bool deterministic_ = false, search_again_ = false, early_launch_ = OpsOptions().early_launch;
};

TEST_F(CompileGpuTest, SearchLeavesResultsRight) {
  search_all();
  const CompileInfo info = cuda_->graph().info();
  EXPECT_GT(info.searched, 0);
  EXPECT_EQ(info.from_cache, 0);
  EXPECT_GT(info.search_ms, 0.0);
  expect_all_right();

  search_all();  // finds nothing new
  EXPECT_EQ(cuda_->graph().info().searched, info.searched);
}

TEST_F(CompileGpuTest, AlgorithmsComeFromTheFileTheNextTime) {
  search_all();
  ASSERT_EQ(cache_files().size(), 1U);
  const std::string file = read_file(cache_files()[0]), chosen = cuda_->graph().info().algorithms;
  EXPECT_FALSE(chosen.empty());

  start_again();
  search_all();
  EXPECT_EQ(cuda_->graph().info().searched, 0);
  EXPECT_EQ(cuda_->graph().info().algorithms, chosen);
  EXPECT_GT(cuda_->graph().info().from_cache, 0);
  EXPECT_EQ(read_file(cache_files()[0]), file);
  expect_all_right();
}

TEST_F(CompileGpuTest, SearchingAgainOrWithOtherOptionsTakesNothingFromTheFile) {
  search_all();
  search_again_ = true;
  start_again();
  search_all();
  EXPECT_GT(cuda_->graph().info().searched, 0);
  EXPECT_EQ(cuda_->graph().info().from_cache, 0);
  EXPECT_EQ(cache_files().size(), 1U);

  search_again_ = false;
  early_launch_ = !early_launch_;
  start_again();
  search_all();
  EXPECT_GT(cuda_->graph().info().searched, 0);
  EXPECT_EQ(cuda_->graph().info().from_cache, 0);
  EXPECT_EQ(cache_files().size(), 2U);
  expect_all_right();
}

TEST_F(CompileGpuTest, ADamagedFileIsWrittenAnew) {
  search_all();
  ASSERT_EQ(cache_files().size(), 1U);
  const std::string path = cache_files()[0], file = read_file(path);
  for (const std::string& damaged : {std::string(), file.substr(0, file.size() / 2), std::string("{}")}) {
    write_file(path, damaged);
    start_again();
    search_all();
    EXPECT_GT(cuda_->graph().info().searched, 0);
    EXPECT_EQ(cuda_->graph().info().from_cache, 0);
    EXPECT_GT(read_file(path).size(), file.size() / 2);
  }
  expect_all_right();
}

TEST_F(CompileGpuTest, SearchNeedsNoFile) {
  for (const std::string& folder : {std::string(), std::string("/proc/none")}) {
    cache_dir_ = folder;
    start_again();
    search_all();
    EXPECT_GT(cuda_->graph().info().searched, 0);
  }
  expect_all_right();
}

TEST_F(CompileGpuTest, DeterministicOpsSearchNothing) {
  deterministic_ = true;
  start_again();
  search_all();
  EXPECT_EQ(cuda_->graph().info().searched, 0);
  EXPECT_TRUE(cache_files().empty());
}

TEST_F(CompileGpuTest, SearchEndsWithItsWork) {
  EXPECT_THROW(cuda_->search([] { throw std::runtime_error("in the middle"); }), std::runtime_error);
  const LinearCase c = searched_cases()[0];
  expect_all(c);
  EXPECT_EQ(cuda_->graph().info().searched, 0);
}

TEST_F(CompileGpuTest, ARecordedStepDoesWhatItsOpsDo) {
  for (const bool searched : {false, true}) {
    if (searched) search_all();
    for (const LinearCase& c : searched_cases()) {
      SCOPED_TRACE(cat(c, searched ? ", searched" : ""));
      const auto arrays = layer_arrays(c, Write::add);
      const auto layer = [&](Ops& o, const std::vector<Tensor>& t) { run_layer(o, t, c, Write::add); };
      const auto direct = run(*cuda_, arrays, [&](Ops& o, auto& t) {
        layer(o, t);
        layer(o, t);
      });
      const auto replayed = run(*cuda_, arrays, [&](Ops& o, auto& t) {
        const auto step = o.record([&] { layer(o, t); });
        step();
        step();
        o.synchronize();
      });
      const auto recorded = run(*cuda_, arrays, [&](Ops& o, auto& t) { o.record([&] { layer(o, t); }); });
      for (size_t i = 0; i < arrays.size(); ++i) {
        EXPECT_TRUE(same_bits(direct[i], replayed[i])) << "operand " << i;
        EXPECT_TRUE(same_bits(recorded[i], arrays[i].values)) << "recording wrote operand " << i;
      }
    }
  }
  EXPECT_GT(cuda_->graph().info().capture_ms, 0.0);
}

TEST_F(CompileGpuTest, TheFirstThingMayBeRecorded) {
  const LinearCase c{1000, 64, 256, DType::f16, Precision::fp32};
  const auto arrays = layer_arrays(c, Write::set);
  const auto direct = run(*cuda_, arrays, [&](Ops& o, auto& t) { run_layer(o, t, c, Write::set); });
  start_again();
  const auto replayed =
      run(*cuda_, arrays, [&](Ops& o, auto& t) { o.record([&] { run_layer(o, t, c, Write::set); })(); });
  for (size_t i = 0; i < arrays.size(); ++i)
    EXPECT_TRUE(same_bits(direct[i], replayed[i])) << "operand " << i;
}

TEST_F(CompileGpuTest, ARecordingThatFailsLeavesTheOpsUsable) {
  const LinearCase c{13, 48, 144, DType::f32, Precision::fp32};
  const auto block = cuda_->device().allocate(16);
  const Tensor four{block.get(), DType::f32, {4}, "operand"};
  float host[4];
  EXPECT_THROW(cuda_->record([&] {
    (*cuda_)(Zero{four});
    throw std::runtime_error("in the middle");
  }),
               std::runtime_error);
  expect_forward(c);
  EXPECT_THROW(cuda_->record([&] { (*cuda_)(Download{host, four}); }), Error);  // waits for the device
  expect_forward(c);
  EXPECT_THROW(cuda_->record([&] { cuda_->record([] {}); }), Error);
  expect_forward(c);
  EXPECT_NO_THROW(cuda_->record([] {})());  // a step without ops
  cuda_->record([&] { (*cuda_)(Zero{four}); })();
  (*cuda_)(Download{host, four});
  for (const float x : host) EXPECT_EQ(x, 0.0F);
}

// Searches the products of a GPT-2 124M step at B=4, which may take ten seconds: a search must not cost more
// than it saves.
TEST_F(CompileGpuTest, SearchOfAGpt2StepTakesSeconds) {
  const DType type = cuda_->device().info().bf16 ? DType::bf16 : DType::f16;
  constexpr int64_t C = 768, N = 4096;
  for (const auto& [Cin, Cout] : {std::pair{C, 3 * C}, {C, C}, {C, 4 * C}, {4 * C, C}}) {
    const LinearCase c{N, Cin, Cout, type, Precision::fp32};
    run(*cuda_, layer_arrays(c, Write::set),
        [&](Ops& o, auto& t) { o.search([&] { run_layer(o, t, c, Write::set); }); });
  }
  EXPECT_LT(cuda_->graph().info().search_ms, 10e3);
  RecordProperty("search_ms", static_cast<int>(cuda_->graph().info().search_ms));
  RecordProperty("searched", cuda_->graph().info().searched);
}

}  // namespace
}  // namespace stepladder
