#include "bench/rung/ceilings.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "bench/plan/ladder.h"
#include "model/random.h"

namespace stepladder {
namespace {

constexpr int kTimes = 5;

/// Seconds of one call of `work`, the best of several stretches of at least `stretch_ms`.
double seconds_of(Ops& ops, double stretch_ms, const std::function<void()>& work) {
  const auto stretch = [&](int repeats) {
    ops.device().start_timer();
    for (int i = 0; i < repeats; ++i) work();
    ops.device().stop_timer();
    return ops.device().elapsed().ms;
  };
  stretch(1);  // sets up what the first use needs
  const int repeats = static_cast<int>(std::clamp(std::ceil(stretch_ms / stretch(2) * 2.0), 1.0, 1e4));
  double best = stretch(repeats);
  for (int i = 1; i < kTimes; ++i) best = std::min(best, stretch(repeats));
  return best / repeats * 1e-3;
}

/// Fills `x` uniformly from [-1,1): copies and products of constants would be faster than those of weights.
void fill(Ops& ops, Tensor x) {
  std::vector<float> tile(static_cast<size_t>(std::min<int64_t>(x.numel(), 1 << 20)));
  for (size_t i = 0; i < tile.size(); ++i) tile[i] = static_cast<float>(2.0 * random_uniform(3, i) - 1.0);
  const auto n = static_cast<int64_t>(tile.size());
  const Tensor tiles = x.view({x.numel() / n, n});
  for (int64_t i = 0; i < tiles.shape[0]; ++i) ops(Upload{tiles[i], tile.data()});
}

}  // namespace

double Ceilings::floor_ms(double bytes, double flops, MathMode math) const {
  const auto peak = flops_per_s.find(math);
  const double product_s = flops > 0.0 && peak != flops_per_s.end() ? flops / peak->second : 0.0;
  return std::max(bytes / bytes_per_s, product_s) * 1e3;
}

Json Ceilings::json() const {
  Json gemm = Json::object();
  for (const auto& [math, peak] : flops_per_s) gemm[name_of(math)] = peak * 1e-12;
  return {{"copy_gb_per_s", bytes_per_s * 1e-9}, {"gemm_tflops", gemm}};
}

Ceilings measure_ceilings(Ops& ops, const Config& config) {
  const DeviceInfo device = ops.device().info();
  const bool cpu = device.backend == "cpu";
  // Far larger than caches, and enough work for every multiprocessor.
  const int64_t n = cpu ? 512 : 8192, elements = cpu ? int64_t{1} << 24 : int64_t{1} << 27;
  const double stretch_ms = cpu ? 10.0 : 50.0;
  const DType half = device.bf16 ? config.half : DType::f16;
  const auto build = [&](Arena& arena) {
    ops.device().bind_workspace(arena, config);
    std::vector<Tensor> tensors;
    for (const char* name : {"from", "to"}) tensors.push_back(arena.alloc(name, DType::f32, {elements}));
    for (const DType type : {DType::f32, half})
      for (const char* name : {"out", "a", "b"}) tensors.push_back(arena.alloc(name, type, {n, n}));
    return tensors;
  };
  Arena plan;
  build(plan);
  Arena arena(ops, plan.bytes());
  const std::vector<Tensor> x = build(arena);
  for (const size_t i : {0, 3, 4}) fill(ops, x[i]);
  for (const size_t i : {3, 4}) ops(Copy{x[i + 3], x[i]});

  Ceilings ceilings;
  ceilings.bytes_per_s = 2.0 * static_cast<double>(x[0].bytes()) / seconds_of(ops, stretch_ms, [&] {
                           ops(Copy{x[1], x[0]});
                         });
  const auto gemm = [&](MathMode math, Tensor out, Tensor a, Tensor b) {
    const double flops = 2.0 * std::pow(static_cast<double>(n), 3.0);
    ceilings.flops_per_s[math] = flops / seconds_of(ops, stretch_ms, [&] {
                                   ops(Matmul{out, a, b, MatOp::NT});
                                 });
  };
  gemm(MathMode::fp32, x[2], x[3], x[4]);
  if (device.has_tf32()) {
    ops.set_matmul_precision(Precision::tf32);
    gemm(MathMode::tf32, x[2], x[3], x[4]);
    ops.set_matmul_precision(Precision::fp32);
  }
  gemm(MathMode::half, x[5], x[6], x[7]);
  if (half == DType::bf16 && (cpu || device.compute_capability >= 89)) {
    // The FP8 matrices and their scale reuse memory of the f32 tensors.
    const Tensor scale = x[1].first({1});
    ops(WriteValues{scale, {0x1p-8F}});  // scales numbers below 1 to all of e4m3's range
    const auto quantized = [&](const Tensor& memory, const Tensor& from) {
      const Tensor q = Tensor{memory.data, DType::f8e4m3, {n, n}, memory.name}.scaled(scale, x[0].first({1}));
      ops(Quantize{q, {}, from});
      return q;
    };
    gemm(MathMode::fp8, x[5], quantized(x[3], x[6]), quantized(x[4], x[7]));
  }
  return ceilings;
}

}  // namespace stepladder
