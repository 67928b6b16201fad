// The CUDA ops against the CPU reference: operands, the comparison, and the fixture that tests of op families
// share.
//
// f32 sums small integers exactly in any order, so results from such operands must be equal. Elsewhere a
// tolerance counts roundings: those of the formula, and the root of a sum's length, as rounding errors add up
// like a random walk.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "model/arena.h"
#include "model/error.h"
#include "model/ops.h"
#include "model/random.h"
#include "tests/gpu_options.h"
#include "tests/packed.h"

namespace stepladder {

inline constexpr float kEps = std::numeric_limits<float>::epsilon();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr int64_t kV = 50257;

/// The number of roundings by which a sum of n terms may be off.
inline float roundings(int64_t n) {
  return 8.0F + std::sqrt(static_cast<float>(n));
}

/// The distance from 1 to the next number of the type: an op that rounds its result once is off by at most
/// half of this distance, relatively.
inline float epsilon_of(DType t) {
  return t == DType::bf16 ? 0x1p-7F : t == DType::f16 ? 0x1p-10F : kEps;
}

/// An operand in host memory, its values as floats whatever the dtype; i32 values are in the floats' bits.
struct Array {
  DType dtype = DType::f32;
  Shape shape;
  std::vector<float> values;
  bool output = false;

  /// A copy with each value rounded to `type`.
  Array as(DType type) const {
    Array a = *this;
    a.dtype = type;
    a.values = rounded_to(type, values);
    return a;
  }
};

/// Allowed difference: absolute + relative * |reference|.
struct Tolerance {
  float absolute = 0.0F, relative = 0.0F;
};
inline constexpr Tolerance kExact{};

inline constexpr DType kFloatTypes[] = {DType::f32, DType::bf16, DType::f16};

/// The tolerance of results that are within `t` of each other before they are rounded to `type`: at worst
/// they become neighbours, in f16 at least a subnormal apart. With `t` = 0 they stay equal.
inline Tolerance rounded(Tolerance t, DType type) {
  if (type == DType::f32 || (t.absolute == 0.0F && t.relative == 0.0F)) return t;
  return {t.absolute + (type == DType::f16 ? 0x1p-24F : 0.0F), t.relative + epsilon_of(type)};
}

using Call = std::function<void(Ops&, const std::vector<Tensor>&)>;

/// The Call of one op on its operands t: CALL(Add{t[0], t[1], t[2]}).
#define CALL(...) [&](Ops& o, const std::vector<Tensor>& t) { o(__VA_ARGS__); }

class OpAgreement : public testing::Test {
 protected:
  /// Options of the CUDA backend under test.
  virtual OpsOptions options() const { return {}; }

  void SetUp() override {
    open_device(cuda_, options());
    cpu_ = make_cpu_ops();
  }

  /// Binds scratch of both backends for N = B*T rows of C channels in NH heads.
  void bind(int64_t B, int64_t T, int64_t C, int64_t NH = 1) {
    Config config;
    config.B = B, config.T = config.max_T = T, config.V = kV, config.C = C, config.NH = NH;
    for (Ops* ops : {cuda_.get(), cpu_.get()}) {
      Arena plan;
      ops->device().bind_workspace(plan, config);
      ops->device().bind_workspace(*arenas_.emplace_back(std::make_unique<Arena>(*ops, plan.bytes())),
                                   config);
    }
  }

  float uniform() { return static_cast<float>(random_uniform(20240607, counter_++)); }

  /// Random numbers, uniform in [low, high).
  Array reals(Shape shape, float low = -1.0F, float high = 1.0F) {
    Array a{DType::f32, shape, std::vector<float>(static_cast<size_t>(shape.numel()))};
    for (float& x : a.values) x = low + (high - low) * uniform();
    return a;
  }
  /// Random whole numbers in [-limit, limit].
  Array integers(Shape shape, int limit = 8) {
    Array a = reals(shape, static_cast<float>(-limit), static_cast<float>(limit + 1));
    for (float& x : a.values) x = std::min(std::floor(x), static_cast<float>(limit));
    return a;
  }
  /// Random tokens in [0,V); a larger `skew` draws the first ones more often.
  Array tokens(Shape shape, int64_t V, int skew = 1) {
    Array a = reals(shape, 0.0F, 1.0F);
    a.dtype = DType::i32;
    for (float& x : a.values) {
      const float at = std::pow(x, static_cast<float>(skew)) * static_cast<float>(V);
      x = std::bit_cast<float>(std::min(static_cast<int32_t>(at), static_cast<int32_t>(V - 1)));
    }
    return a;
  }
  /// An output to overwrite, filled with NaN.
  static Array out(Shape shape, DType dtype = DType::f32) {
    return {dtype, shape, std::vector<float>(static_cast<size_t>(shape.numel()), kNan), true};
  }
  /// An output that starts from `a`, to accumulate into or to overwrite in place.
  static Array inout(Array a) {
    a.output = true;
    return a;
  }
  /// Square matrices with NaN above their diagonals.
  static Array poison_above(Array a) {
    const int64_t T = a.shape[-1];
    for (int64_t i = 0; i < a.shape.numel(); ++i)
      if (i % T > i / T % T) a.values[static_cast<size_t>(i)] = kNan;
    return a;
  }

  static std::vector<std::vector<float>> run(Ops& ops, const std::vector<Array>& arrays, const Call& call) {
    std::vector<std::shared_ptr<void>> blocks;
    std::vector<Tensor> tensors;
    for (const Array& a : arrays) {
      const auto bytes = packed(a.dtype, a.values);
      tensors.push_back(
          {blocks.emplace_back(ops.device().allocate(bytes.size())).get(), a.dtype, a.shape, "operand"});
      ops(Upload{tensors.back(), bytes.data()});
    }
    call(ops, tensors);
    std::vector<std::vector<float>> results;
    for (size_t i = 0; i < arrays.size(); ++i) {
      std::vector<std::byte> bytes(tensors[i].bytes());
      ops(Download{bytes.data(), tensors[i]});
      results.push_back(unpacked(arrays[i].dtype, bytes));
    }
    return results;
  }

  static bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  /// The results on CUDA; expects the same bits from a second call.
  std::vector<std::vector<float>> run_twice(const std::vector<Array>& arrays, const Call& call) {
    const auto got = run(*cuda_, arrays, call), again = run(*cuda_, arrays, call);
    for (size_t i = 0; i < arrays.size(); ++i)
      EXPECT_TRUE(same_bits(got[i], again[i])) << "operand " << i << " differs between two calls";
    return got;
  }

  /// Expects CUDA's outputs within `tolerance` of the CPU's, the same bits from a second call, and unchanged
  /// inputs.
  void expect_agreement(const std::string& what, const std::vector<Array>& arrays, Tolerance tolerance,
                        const Call& call) {
    expect_outputs(what, arrays, std::vector<Tolerance>(arrays.size(), tolerance), call);
  }

  /// Expects agreement of an op that writes t[0], and of the op in place, with t[1] for t[0].
  void expect_also_in_place(const std::string& what, const std::vector<Array>& arrays, Tolerance tolerance,
                            const Call& call) {
    expect_agreement(what, arrays, tolerance, call);
    std::vector<Array> others(arrays.begin() + 1, arrays.end());
    others.front().output = true;
    expect_agreement(what + " in place", others, tolerance, [&](Ops& o, std::vector<Tensor> t) {
      t.insert(t.begin(), t.front());
      call(o, t);
    });
  }

  /// The same as expect_agreement(), with a tolerance for each output in turn.
  void expect_outputs(const std::string& what, const std::vector<Array>& arrays,
                      const std::vector<Tolerance>& tolerances, const Call& call) {
    SCOPED_TRACE(what);
    const auto expected = run(*cpu_, arrays, call), got = run_twice(arrays, call);
    size_t output = 0;
    for (size_t i = 0; i < arrays.size(); ++i) {
      if (arrays[i].output) {
        expect_near(got[i], expected[i], tolerances.at(output++), i);
      } else {
        EXPECT_TRUE(same_bits(got[i], arrays[i].values)) << "operand " << i << " was written";
      }
    }
  }

  static void expect_near(const std::vector<float>& got, const std::vector<float>& expected,
                          Tolerance tolerance, size_t operand) {
    for (size_t j = 0; j < got.size(); ++j) {
      const float allowed = tolerance.absolute + tolerance.relative * std::fabs(expected[j]);
      if (got[j] == expected[j] || std::fabs(got[j] - expected[j]) <= allowed) continue;
      ADD_FAILURE() << "operand " << operand << "[" << j << "] is " << got[j] << ", expected " << expected[j]
                    << " +- " << allowed;
      return;
    }
  }

  std::unique_ptr<Ops> cuda_, cpu_;
  std::vector<std::unique_ptr<Arena>> arenas_;  // destroyed before the backends
  uint64_t counter_ = 0;
};

inline std::string named(const char* op, const Shape& shape) {
  return cat(op, shape);
}

}  // namespace stepladder
