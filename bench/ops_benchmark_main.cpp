// ops_benchmark: every op of model/ops/ on the shapes of GPT-2 124M, through Google Benchmark. The time is
// the device's own; operands rotate through more memory than any cache holds; an op's rates are compared with
// those of a copy and a matmul measured in the same process.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <vector>

#include "bench/rung/ceilings.h"
#include "model/gpt2.h"
#include "model/half.h"
#include "model/muon.h"
#include "model/ops.h"
#include "model/random.h"

namespace stepladder {
namespace {

constexpr int64_t kRotated = int64_t{256} << 20;  // bytes: more than four times the 50 MiB of an H200's L2
constexpr int64_t kMostCopies = 4096;
constexpr int64_t kBlock = 1 << 20;  // elements of random data, repeated
constexpr int64_t kLayers = 12;      // Muon updates equal matrices of all layers together

/// Allocates an op's operands, filled with random values.
class Operands {
 public:
  Operands(Ops& backend, Arena& arena, const Config& config, DType type)
      : ops(backend),
        B(config.B),
        T(config.T),
        N(B * T),
        C(config.C),
        V(config.V),
        Vp((V + 127) / 128 * 128),
        NH(config.NH),
        arena_(arena),
        type_(type) {}

  Tensor f32(Shape shape) { return fill(DType::f32, shape); }
  Tensor bf16(Shape shape) { return fill(DType::bf16, shape); }
  Tensor x(Shape shape) { return fill(type_, shape); }
  Tensor x() { return x({B, T, C}); }
  Tensor qkv() { return x({B, T, 3 * C}); }
  Tensor wide() { return x({B, T, 4 * C}); }
  Tensor logits() { return x({B, T, V}); }
  Tensor logp() { return f32({B, T, V}); }
  Tensor each_row() { return f32({B, T}); }
  Tensor each_column() { return x({C}); }
  Tensor heads() { return x({B, NH, T, C / NH}); }
  Tensor scores() { return x({B, NH, T, T}); }
  Tensor squares() { return x({kLayers, C, C}); }
  Tensor angles() { return f32({T, C / NH / 2, 2}); }
  Tensor tokens() { return fill(DType::i32, {B, T}); }
  /// An FP8 matrix with a scale, or several matrices with a scale each.
  Tensor fp8(Shape shape, int64_t scales = 1, DType type = DType::f8e4m3) {
    fp8_type_ = type, scale_ = f32({scales, kScaleStride}), amax_ = f32({scales});
    return fp8_turned(shape);
  }
  Tensor gradient(Shape shape) { return fp8(shape, 1, DType::f8e5m2); }
  /// The transpose of the last FP8 matrix, of the same type and scale.
  Tensor fp8_turned(Shape shape) { return fill(fp8_type_, shape).scaled(scale_, amax_); }

  Ops& ops;
  const int64_t B, T, N, C, V, Vp, NH;  // N = B*T; Vp is V padded

 private:
  Tensor fill(DType type, Shape shape);

  Arena& arena_;
  DType type_;
  DType fp8_type_ = DType::f8e4m3;
  Tensor scale_, amax_;  // of the last FP8 matrix
};

/// Values in [0.05, 1), so that every op stays finite; tokens in [0, V).
template <class T>
const std::vector<T>& random_block(int64_t V) {
  static const std::vector<T> block = [&] {
    std::vector<T> values(kBlock);
    for (size_t i = 0; i < values.size(); ++i) {
      const double uniform = random_uniform(1337, i);
      if constexpr (std::is_same_v<T, int32_t>)
        values[i] = static_cast<int32_t>(uniform * static_cast<double>(V));
      else
        values[i] = from_float<T>(static_cast<float>(0.05 + 0.95 * uniform));
    }
    return values;
  }();
  return block;
}

Tensor Operands::fill(DType type, Shape shape) {
  const Tensor whole = arena_.alloc("operands/tensor", type, shape);
  if (arena_.planning()) return whole;
  const void* values = type == DType::i32    ? static_cast<const void*>(random_block<int32_t>(V).data())
                       : is_fp8(type)        ? static_cast<const void*>(random_block<Float8E4M3>(V).data())
                       : type == DType::bf16 ? static_cast<const void*>(random_block<BFloat16>(V).data())
                                             : static_cast<const void*>(random_block<float>(V).data());
  for (int64_t at = 0; at < whole.numel(); at += kBlock) {
    Tensor part = whole.view({whole.numel()});
    part.data = static_cast<std::byte*>(part.data) + static_cast<size_t>(at) * size_of(type);
    part.shape = {std::min(kBlock, whole.numel() - at)};
    ops(Upload{part, values});
  }
  return whole;
}

/// Adds up the bytes and FLOPs of ops while it lives.
class Total final : public OpObserver {
 public:
  explicit Total(Ops& ops) : ops_(ops) { ops.observe(this); }
  ~Total() override { ops_.observe(nullptr); }
  double bytes = 0.0, flops = 0.0;

 private:
  void enter(const OpCall& call, std::span<const Tensor>) override {
    bytes += call.bytes;
    flops += call.flops;
  }
  Ops& ops_;
};

using Call = std::function<void()>;

struct OpBenchmark {
  const char* name;
  std::function<Call(Operands&)> make;
  bool half_only = false;  // on CUDA, never in f32
  bool f32_only = false;
};

template <class Op = Matmul>
Call product(Operands& o, int64_t M, int64_t N, int64_t K, MatOp how = MatOp::NT) {
  const Tensor out = o.x({M, N}), a = how == MatOp::TN ? o.x({K, M}) : o.x({M, K}),
               b = how == MatOp::NT ? o.x({N, K}) : o.x({K, N});
  return [=, &ops = o.ops] { ops(Op{out, a, b, how}); };
}

/// Sgemm beside matmul/`name`.
OpBenchmark sgemm(const char* name, std::function<Call(Operands&)> make) {
  return {.name = name, .make = std::move(make), .f32_only = true};
}

/// A step of Muon, all its ops, on a matrix (R,C) of each layer.
Call muon(Operands& o, int64_t R, int64_t C) {
  const Shape shape{kLayers, R, C}, square{kLayers, std::min(R, C), std::min(R, C)};
  const Tensor w = o.f32(shape), m = o.f32(shape), g = o.x(shape), copy = o.x(shape);
  const Tensor clip = o.f32({1}), lr = o.f32({1});
  const NewtonSchulz scratch{o.x(shape), o.x(shape), o.x(square), o.x(square)};
  return [=, &ops = o.ops] {
    ops(MuonMomentum{scratch.x, m, g, clip, 0.95F});
    ops(MuonUpdate{w, copy, newton_schulz(ops, scratch), lr, 0.1F});
  };
}

/// A benchmark of the op that the function `make` returns.
template <class Make>
OpBenchmark row(Make make, bool half_only = false) {
  using Op = std::invoke_result_t<Make, Operands&>;
  const auto call = [make](Operands& o) -> Call { return [op = make(o), &ops = o.ops] { ops(op); }; };
  return {Op::kName, call, half_only};
}

#define ROW(...) row([](Operands& o) { return __VA_ARGS__; })
#define HALF_ROW(...) row([](Operands& o) { return __VA_ARGS__; }, true)

const std::vector<OpBenchmark>& op_benchmarks() {
  static const std::vector<OpBenchmark> all = {
      {"upload",
       [](Operands& o) {
         const Tensor t = o.tokens();
         const auto host = std::make_shared<std::vector<int32_t>>(static_cast<size_t>(t.numel()));
         return [=, &ops = o.ops] { ops(Upload{t, host->data()}); };
       }},
      {"download",
       [](Operands& o) {
         const Tensor t = o.tokens();
         const auto host = std::make_shared<std::vector<int32_t>>(static_cast<size_t>(t.numel()));
         return [=, &ops = o.ops] { ops(Download{host->data(), t}); };
       }},
      ROW(Zero{o.x()}),
      ROW(Copy{o.x(), o.x()}),
      {"write",
       [](Operands& o) {
         const Tensor t = o.f32({2});
         return [=, &ops = o.ops] { ops(WriteValues{t, {1.0F, 2.0F}}); };
       }},
      {"stage_receive",
       [](Operands& o) {
         const Tensor t = o.tokens(), staged = o.tokens();
         const auto host = o.ops.device().allocate_host(t.bytes());
         return [=, &ops = o.ops] {
           ops(Stage{staged, host.get()});
           ops(Receive{t, staged});
         };
       }},
      ROW(Add{o.x(), o.x(), o.x()}),
      ROW(Mul{o.x(), o.x(), o.x()}),
      ROW(Affine{o.x(), o.x(), 2.0F, 1.0F}),
      ROW(Pow{o.x(), o.x(), 3}),
      ROW(Tanh{o.x(), o.x()}),
      ROW(Sqrt{o.x(), o.x()}),
      ROW(Lerp{o.x(), o.x(), 0.1F}),
      ROW(AddCMul{o.x(), o.x(), o.x(), 1e-3F}),
      ROW(AddCDiv{o.x(), o.x(), o.x(), 1e-3F}),
      ROW(ScaleBy{o.x(), o.f32({1})}),
      ROW(RowMean{o.each_row(), o.x()}),
      ROW(RowRstd{o.each_row(), o.x(), o.each_row(), 1e-5F}),
      ROW(Normalize{o.x(), o.x(), o.each_row(), o.each_row()}),
      ROW(NormalizeBackward{o.x(), o.x(), o.x(), o.each_row(), o.each_row(), o.each_row()}),
      ROW(MulColumns{o.x(), o.x(), o.each_column()}),
      ROW(AddColumns{o.x(), o.x(), o.each_column()}),
      ROW(SumRows{o.each_column(), o.x()}),
      ROW(EmbeddingBackward{o.x({o.V, o.C}), o.tokens(), o.x()}),
      ROW(PositionBackward{o.x({o.T, o.C}), o.x()}),
      {"matmul/qkv", [](Operands& o) { return product(o, o.N, 3 * o.C, o.C); }},
      {"matmul/attproj", [](Operands& o) { return product(o, o.N, o.C, o.C); }},
      {"matmul/fc", [](Operands& o) { return product(o, o.N, 4 * o.C, o.C); }},
      {"matmul/fcproj", [](Operands& o) { return product(o, o.N, o.C, 4 * o.C); }},
      {"matmul/head", [](Operands& o) { return product(o, o.N, o.V, o.C); }},
      {"matmul/dfc", [](Operands& o) { return product(o, o.N, o.C, 4 * o.C, MatOp::NN); }},
      {"matmul/dfcw", [](Operands& o) { return product(o, 4 * o.C, o.C, o.N, MatOp::TN); }},
      {"matmul/dattprojw", [](Operands& o) { return product(o, o.C, o.C, o.N, MatOp::TN); }},
      sgemm("sgemm/fc", [](Operands& o) { return product<Sgemm>(o, o.N, 4 * o.C, o.C); }),
      sgemm("sgemm/head", [](Operands& o) { return product<Sgemm>(o, o.N, o.V, o.C); }),
      sgemm("sgemm/dfc", [](Operands& o) { return product<Sgemm>(o, o.N, o.C, 4 * o.C, MatOp::NN); }),
      sgemm("sgemm/dfcw", [](Operands& o) { return product<Sgemm>(o, 4 * o.C, o.C, o.N, MatOp::TN); }),
      sgemm("sgemm/dattprojw", [](Operands& o) { return product<Sgemm>(o, o.C, o.C, o.N, MatOp::TN); }),
      ROW(MatmulAdd{o.squares(), o.squares(), o.squares(), MatOp::NN, o.squares(), 2.0F, -5.0F}),
      ROW(SymmetricMatmul{o.squares(), o.squares(), MatOp::NT, o.squares(), 2.0F, -5.0F}),
      ROW(LinearForward{o.qkv(), o.x(), o.x({3 * o.C, o.C}), o.x({3 * o.C})}),
      {"linear_forward/residual",
       ROW(LinearForward{o.x(), o.x(), o.x({o.C, o.C}), o.each_column(), o.x()}).make},
      ROW(LinearGeluForward{o.wide(), o.wide(), o.x(), o.x({4 * o.C, o.C}), o.x({4 * o.C})}),
      ROW(LinearGeluBackward{o.wide(), o.x({4 * o.C}), o.x(), o.x({o.C, 4 * o.C}), o.wide(), Write::set}),
      ROW(LinearWeightBackward{o.x({3 * o.C, o.C}), o.x({3 * o.C}), o.qkv(), o.x(), Write::set}),
      HALF_ROW(Quantize{o.fp8({o.N, 3 * o.C}), o.fp8_turned({3 * o.C, o.N}), o.qkv(), o.x({3 * o.C})}),
      HALF_ROW(QuantizeToFit{o.fp8({2, 3 * o.C, o.C}, 2), o.fp8_turned({2, o.C, 3 * o.C}),
               o.x({2, 3 * o.C, o.C})}),
      HALF_ROW(QuantizeGelu{o.fp8({o.N, 4 * o.C}), o.fp8_turned({4 * o.C, o.N}), o.wide()}),
      HALF_ROW(QuantizeGeluBackward{o.fp8({o.N, 4 * o.C}), o.fp8_turned({4 * o.C, o.N}), o.x({4 * o.C}),
               o.wide(), o.wide()}),
      HALF_ROW(LinearQuantizeGelu{o.fp8({o.N, 4 * o.C}), o.fp8_turned({4 * o.C, o.N}), o.bf16({o.N, 4 * o.C}),
               o.fp8({o.N, o.C}), o.fp8({4 * o.C, o.C}), o.bf16({4 * o.C}), o.fp8({o.N, 4 * o.C})}),
      HALF_ROW(LinearQuantizeGeluBackward{o.gradient({o.N, 4 * o.C}), o.fp8_turned({4 * o.C, o.N}),
               o.bf16({4 * o.C}), o.bf16({o.N, 4 * o.C}), o.gradient({o.N, o.C}), o.fp8({4 * o.C, o.C}),
               o.fp8({o.N, 4 * o.C})}),
      HALF_ROW(QuantizeLayerNorm{o.fp8({o.N, o.C}), o.fp8_turned({o.C, o.N}), o.each_row(),
               o.each_row(), o.x(), o.each_column(), o.each_column()}),
      HALF_ROW(QuantizeLayerNormBackward{Fp8Pair{o.fp8({o.N, o.C}), o.fp8_turned({o.C, o.N})},
               o.x(), NormParams{o.each_column(), o.each_column()}, o.each_column(), o.x(),
               NormInput{o.x(), o.each_row(), o.each_row()}, o.each_column()}),
      HALF_ROW(QuantizeCrossEntropy{o.fp8({o.B, o.T, o.Vp}), o.each_row(), o.x({o.B, o.T, o.Vp}), o.tokens(),
               o.V, 1e-4F}),
      HALF_ROW(Transpose{o.fp8({4 * o.C, o.N}), o.fp8_turned({o.N, 4 * o.C})}),
      HALF_ROW(UpdateScales{o.f32({49, kScaleStride}), o.f32({49, 16}), o.f32({49}), DType::f8e4m3}),
      ROW(EncoderForward{o.x(), o.tokens(), o.x({o.V, o.C}), o.x({o.T, o.C})}),
      ROW(LayerNormForward{o.x(), o.each_row(), o.each_row(), o.x(), o.each_column(), o.each_column()}),
      ROW(AddBiasResidual{o.x(), o.x(), o.x(), o.each_column()}),
      ROW(LayerNormBackward{o.x(), NormParams{o.each_column(), o.each_column()}, o.each_column(), o.x(),
          NormInput{o.x(), o.each_row(), o.each_row()}, o.each_column()}),
      ROW(BiasGeluForward{o.wide(), o.wide(), o.x({4 * o.C})}),
      ROW(GeluForward{o.wide(), o.wide()}),
      ROW(GeluBackward{o.wide(), o.wide(), o.wide()}),
      ROW(ReluSquaredForward{o.wide(), o.wide()}),
      ROW(ReluSquaredBackward{o.wide(), o.wide(), o.wide()}),
      ROW(RotaryTable{o.angles()}),
      ROW(QkNormRotaryForward{o.qkv(), o.f32({o.B, o.T, 2 * o.NH}), o.angles()}),
      {"qk_norm_rotary_forward/norm",
       ROW(QkNormRotaryForward{o.qkv(), o.f32({o.B, o.T, 2 * o.NH}), {}}).make},
      {"qk_norm_rotary_forward/rotary", ROW(QkNormRotaryForward{o.qkv(), {}, o.angles()}).make},
      ROW(QkNormRotaryBackward{o.qkv(), o.qkv(), o.f32({o.B, o.T, 2 * o.NH}), o.angles()}),
      {"qk_norm_rotary_backward/norm",
       ROW(QkNormRotaryBackward{o.qkv(), o.qkv(), o.f32({o.B, o.T, 2 * o.NH}), {}}).make},
      {"qk_norm_rotary_backward/rotary", ROW(QkNormRotaryBackward{o.qkv(), {}, {}, o.angles()}).make},
      ROW(SplitQkv{o.heads(), o.heads(), o.heads(), o.qkv()}),
      ROW(MergeQkv{o.qkv(), o.heads(), o.heads(), o.heads()}),
      ROW(SplitHeads{o.heads(), o.x()}),
      ROW(MergeHeads{o.x(), o.heads()}),
      ROW(CausalMask{o.x({o.T, o.T})}),
      ROW(AddMask{o.scores(), o.x({o.T, o.T})}),
      ROW(SoftmaxForward{o.scores(), o.scores()}),
      ROW(SoftmaxBackward{o.scores(), o.scores(), o.scores()}),
      ROW(CausalSoftmaxForward{o.scores(), o.scores()}),
      ROW(CausalSoftmaxBackward{o.scores(), o.scores(), o.scores()}),
      ROW(ScaledCausalSoftmaxForward{o.scores(), o.scores(), 0.125F}),
      ROW(ScaledCausalSoftmaxBackward{o.scores(), o.scores(), o.scores(), 0.125F}),
      HALF_ROW(AttentionForward{o.x(), o.f32({o.B, o.NH, o.T}), o.qkv()}),
      HALF_ROW(AttentionBackward{o.qkv(), o.x(), o.x(), o.f32({o.B, o.NH, o.T}), o.qkv()}),
      ROW(CachedAttention{o.x({1, o.C}), o.x({2, o.T, o.C}), o.x({1, 3 * o.C}), o.T - 1, o.NH}),
      ROW(LogSoftmaxForward{o.logp(), o.logits()}),
      ROW(LogSoftmaxBackward{o.logits(), o.logp(), o.logp()}),
      ROW(NllLossForward{o.each_row(), o.logp(), o.tokens()}),
      ROW(NllLossBackward{o.logp(), o.tokens(), {1.0F}}),
      ROW(AddMean{o.f32({1}), o.each_row()}),
      ROW(CrossEntropyForward{o.each_row(), o.logits(), o.tokens(), o.V}),
      ROW(CrossEntropyForwardBackward{o.each_row(), o.logits(), o.tokens(), o.V, {1e-3F}}),
      {"cross_entropy_forward_backward/capped",
       ROW(CrossEntropyForwardBackward{o.each_row(), o.logits(), o.tokens(), o.V, {1e-3F}, 15.0F}).make},
      ROW(SumOfSquares{o.f32({1}), o.x({4 * o.C, o.C})}),
      ROW(ClipFactor{o.f32({1}), o.f32({1}), o.f32({148}), 1.0F}),
      {"clip_grad_norm",
       [](Operands& o) {
         const Tensor factor = o.f32({1}), norm = o.f32({1});
         const auto grads = std::make_shared<std::vector<Tensor>>();
         for (int i = 0; i < 4; ++i) grads->push_back(o.x({4 * o.C, o.C}));
         return [=, &ops = o.ops] { ops(ClipGradNorm{factor, norm, *grads, 1.0F}); };
       }},
      {"adamw",
       [](Operands& o) {
         const Tensor schedule = o.f32({2}), clip = o.f32({1});
         const auto tensors = std::make_shared<std::vector<AdamWTensor>>();
         for (int i = 0; i < 4; ++i) {
           const Shape shape{4 * o.C, o.C};
           tensors->push_back({o.f32(shape), o.x(shape), o.f32(shape), o.f32(shape), {}, true});
         }
         return [=, &ops = o.ops] { ops(AdamWStep{*tensors, schedule, clip, Hyper().adamw()}); };
       }},
      ROW(MuonMomentum{o.squares(), o.f32({kLayers, o.C, o.C}), o.squares(), o.f32({1}), 0.95F}),
      ROW(MuonUpdate{o.f32({kLayers, o.C, o.C}), o.squares(), o.squares(), o.f32({1}), 0.1F}),
      {"muon/square", [](Operands& o) { return muon(o, o.C, o.C); }},
      {"muon/wide", [](Operands& o) { return muon(o, o.C, 4 * o.C); }},
      {"muon/tall", [](Operands& o) { return muon(o, 4 * o.C, o.C); }},
  };
  return all;
}
#undef ROW
#undef HALF_ROW

/// A backend with its workspace and its ceilings.
class Machine {
 public:
  Machine(std::shared_ptr<Ops> backend, const Config& shapes) : ops(std::move(backend)), config(shapes) {}
  double seconds(const Call& call) const {
    ops->device().start_timer();
    call();
    ops->device().stop_timer();
    return ops->device().elapsed().ms * 1e-3;
  }
  /// The rates of a copy and of square matmuls. The first call measures them, then binds the workspace for
  /// other ops.
  const Ceilings& ceilings() {
    if (ceilings_) return *ceilings_;
    ceilings_ = measure_ceilings(*ops, config);
    Arena planned;
    ops->device().bind_workspace(planned, config);
    workspace_.emplace(*ops, planned.bytes());
    ops->device().bind_workspace(*workspace_, config);
    return *ceilings_;
  }

  /// Bytes of an op's operands.
  int64_t planned_bytes(const std::function<Call(Operands&)>& make, DType type) const {
    Arena planned;
    Operands plan(*ops, planned, config, type);
    make(plan);
    return planned.bytes();
  }

  const std::shared_ptr<Ops> ops;
  const Config config;

 private:
  std::optional<Arena> workspace_;
  std::optional<Ceilings> ceilings_;
};

[[maybe_unused]]  // in clang's analyzer, see below
void run(benchmark::State& state, const OpBenchmark& op, Machine& machine, DType type) {
  Ops& ops = *machine.ops;
  const Ceilings& ceilings = machine.ceilings();
  const MathMode math = type == DType::f32 ? MathMode::fp32 : MathMode::half;
  const int64_t bytes_of_one = machine.planned_bytes(op.make, type);
  double op_bytes = 0.0, op_flops = 0.0;
  {
    Arena arena(ops, bytes_of_one);
    Operands operands(ops, arena, machine.config, type);
    const Call call = op.make(operands);
    const Total once(ops);
    machine.seconds(call);  // also sets up what the first use needs
    op_bytes = once.bytes, op_flops = once.flops;
  }
  const int64_t copies = std::clamp(kRotated / bytes_of_one + 1, int64_t{2}, kMostCopies);
  Arena arena(ops, bytes_of_one * copies);
  Operands operands(ops, arena, machine.config, type);
  std::vector<Call> calls;
  for (int64_t i = 0; i < copies; ++i) calls.push_back(op.make(operands));

  double total = 0.0;
  size_t i = 0;
  for ([[maybe_unused]] auto _ : state) {
    const double seconds = machine.seconds(calls[i++ % calls.size()]);
    state.SetIterationTime(seconds);
    total += seconds;
  }
  const double runs = static_cast<double>(state.iterations());
  const double bytes = op_bytes * runs / total, flops = op_flops * runs / total;
  state.counters["bytes/s"] = bytes;
  if (op_flops > 0) state.counters["FLOP/s"] = flops;
  state.counters["%ceiling"] = 100 * ceilings.floor_ms(op_bytes, op_flops, math) * 1e-3 * runs / total;
}

/// Registers every op, "cuda/matmul/qkv/bf16", for each backend that is here and each type.
void register_all(std::vector<std::unique_ptr<Machine>>& machines) {
  Config cpu = Config::named("gpt2"), cuda = cpu;
  cpu.B = 1, cpu.T = 64;
  cuda.B = 4, cuda.T = 1024;
  machines.push_back(std::make_unique<Machine>(make_cpu_ops(), cpu));
  try {
    machines.push_back(std::make_unique<Machine>(make_cuda_ops(), cuda));
  } catch (const UnsupportedError& e) {
    std::cerr << "ops_benchmark: CPU only: " << e.what() << std::endl;
  }
  for (const auto& machine : machines) {
    const DeviceInfo device = machine->ops->device().info();
    for (const OpBenchmark& op : op_benchmarks())
      for (DType type : {DType::f32, DType::bf16}) {
        if (device.backend == "cpu" ? type != DType::f32
            : type == DType::f32    ? op.half_only
                                    : op.f32_only || !device.bf16)
          continue;
#ifndef __clang_analyzer__  // the analyzer takes Google Benchmark's registry for a leak
        benchmark::RegisterBenchmark(
            cat(device.backend, "/", op.name, "/", name_of(type)).c_str(),
            [&op, &machine = *machine, type](benchmark::State& state) { run(state, op, machine, type); })
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond);
#endif
      }
    benchmark::AddCustomContext(device.backend, cat(device.name, ", ", device.blas, ", B=", machine->config.B,
                                                    " T=", machine->config.T));
  }
}

}  // namespace
}  // namespace stepladder

int main(int argc, char** argv) {
  try {
    std::vector<std::unique_ptr<stepladder::Machine>> machines;
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return stepladder::kExitUsage;
    stepladder::register_all(machines);
    benchmark::RunSpecifiedBenchmarks();
    return stepladder::kExitOk;
  } catch (const std::exception& e) {
    std::cerr << "ops_benchmark: error: " << e.what() << std::endl;
    return stepladder::kExitFailed;
  }
}
