// Loss and gradients of every rung of the ladder of time against an independent GPT-2 in double precision and
// its finite differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "bench/plan/ladder.h"
#include "model/gpt2.h"
#include "model/half.h"
#include "model/random.h"
#include "tests/built.h"
#include "tests/tokens.h"
#include "tests/trainers.h"

namespace stepladder {
namespace {

using Vector = std::vector<double>;

/// GPT-2's loss in double, written from its definition and sharing no code with the trainers. `p` holds the
/// parameters in the order of Params::each().
class ReferenceGpt2 {
 public:
  explicit ReferenceGpt2(const Config& config)
      : B(config.B), T(config.T), V(config.V), L(config.L), C(config.C), NH(config.NH) {}

  double loss(const std::vector<Vector>& p, const Batch& batch) const {
    Vector x(static_cast<size_t>(B * T * C));
    for (int64_t n = 0; n < B * T; ++n)
      for (int64_t c = 0; c < C; ++c) x[n * C + c] = p[0][batch.tokens[n] * C + c] + p[1][n % T * C + c];
    for (int64_t l = 0; l < L; ++l) {
      const Vector* w = &p[2 + 12 * l];
      const Vector y = attention(linear(layernorm(x, w[0], w[1]), w[2], w[3]));
      add_to(x, linear(y, w[4], w[5]));
      Vector h = linear(layernorm(x, w[6], w[7]), w[8], w[9]);
      for (double& u : h)
        u = 0.5 * u * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (u + 0.044715 * u * u * u)));
      add_to(x, linear(h, w[10], w[11]));
    }
    const Vector logits = linear(layernorm(x, p[p.size() - 2], p[p.size() - 1]), p[0], Vector(V, 0.0));
    double total = 0.0;
    for (int64_t n = 0; n < B * T; ++n) {
      double sum = 0.0;
      for (int64_t v = 0; v < V; ++v) sum += std::exp(logits[n * V + v]);
      total += std::log(sum) - logits[n * V + batch.targets[n]];
    }
    return total / static_cast<double>(B * T);
  }

 private:
  static void add_to(Vector& x, const Vector& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  Vector layernorm(const Vector& x, const Vector& w, const Vector& b) const {
    Vector out(x.size());
    for (int64_t n = 0; n < B * T; ++n) {
      const double* row = &x[n * C];
      double mean = 0.0, variance = 0.0;
      for (int64_t c = 0; c < C; ++c) mean += row[c] / static_cast<double>(C);
      for (int64_t c = 0; c < C; ++c) variance += (row[c] - mean) * (row[c] - mean) / static_cast<double>(C);
      for (int64_t c = 0; c < C; ++c)
        out[n * C + c] = (row[c] - mean) / std::sqrt(variance + 1e-5) * w[c] + b[c];
    }
    return out;
  }

  /// x w^T + b for w of shape (out,in).
  Vector linear(const Vector& x, const Vector& w, const Vector& b) const {
    const size_t rows = static_cast<size_t>(B * T), out_size = b.size(), in_size = x.size() / rows;
    Vector out(rows * out_size);
    for (size_t n = 0; n < rows; ++n) {
      for (size_t o = 0; o < out_size; ++o) {
        double sum = b[o];
        for (size_t i = 0; i < in_size; ++i) sum += x[n * in_size + i] * w[o * in_size + i];
        out[n * out_size + o] = sum;
      }
    }
    return out;
  }

  /// Causal attention of qkv (B,T,3C) in NH heads.
  Vector attention(const Vector& qkv) const {
    const int64_t HS = C / NH;
    Vector out(static_cast<size_t>(B * T * C)), p(static_cast<size_t>(T));
    for (int64_t b = 0; b < B; ++b) {
      for (int64_t h = 0; h < NH; ++h) {
        const auto at = [&](int64_t part, int64_t t, int64_t i) {
          return qkv[(b * T + t) * 3 * C + part * C + h * HS + i];
        };
        for (int64_t t = 0; t < T; ++t) {
          double sum = 0.0;
          for (int64_t s = 0; s <= t; ++s) {
            double dot = 0.0;
            for (int64_t i = 0; i < HS; ++i) dot += at(0, t, i) * at(1, s, i);
            sum += p[s] = std::exp(dot / std::sqrt(static_cast<double>(HS)));
          }
          for (int64_t s = 0; s <= t; ++s)
            for (int64_t i = 0; i < HS; ++i) out[(b * T + t) * C + h * HS + i] += p[s] / sum * at(2, s, i);
        }
      }
    }
    return out;
  }

  const int64_t B, T, V, L, C, NH;
};

Config tiny_config() {
  Config config;
  config.model = "test";
  config.B = 2;
  config.T = 8;
  config.max_T = 11;  // more positions than T: unused ones have gradient 0
  config.V = 32;
  config.L = 2;
  config.NH = 2;
  config.C = 16;
  return config;
}

/// The relative error allowed: some tens of f32 roundings on the way through the model, and a few of matmul
/// inputs that are rounded. In 16 bits each of about forty stored results is rounded by up to half an
/// epsilon: a random walk of about three epsilons, of which this allows five sigma.
double tolerance_of(MathMode math, DType half) {
  constexpr double kTf32Epsilon = 0x1p-10;
  constexpr double kFp8Epsilon = 0x1p-2;  // e5m2's, to which gradients are rounded
  const double half_epsilon = half == DType::bf16 ? 0x1p-7 : 0x1p-10;
  return 32 * std::numeric_limits<float>::epsilon() + (math == MathMode::tf32   ? 8 * kTf32Epsilon
                                                       : math == MathMode::half ? 16 * half_epsilon
                                                       : math == MathMode::fp8  ? kFp8Epsilon
                                                                                : 0.0);
}

struct Case {
  std::string rung;
  DType half = DType::bf16;
};

/// Some elements of a tensor's gradient, the steepest first, and the slopes of the loss there.
struct Sampled {
  std::string tensor;
  std::vector<size_t> at;
  Vector gradient, slope;
};

/// Sampled gradients of every tensor beside the loss's slopes, for the parameters that `draw` seeds. Expects
/// the right loss and norm of the gradients too.
std::vector<Sampled> sampled_gradients(const Case& test, uint64_t draw) {
  const Rung& rung = ladder().find(test.rung);
  Config config = tiny_config();
  config.half = test.half;
  const ReferenceGpt2 reference(config);
  // With a learning rate of 0 and beta1 = 0, adam_m after the first step is the gradient, and the parameters
  // stay unchanged.
  constexpr float kLearningRate = 0.0F;
  Hyper hyper;
  hyper.beta1 = 0.0F;
  hyper.grad_clip = 1e30F;
  hyper.accumulate = 2;

  const auto ops = make_cpu_ops();
  const auto [arena, trainer] = built(*ops, rung.name, config, hyper);

  // Weights are large, so that attention is not uniform and GELU not linear; they differ from tensor to
  // tensor; and they are bf16 numbers, so that 16-bit rungs have equal ones.
  const auto params = trainer->tensors().params.each();
  std::vector<Vector> p;
  for (size_t i = 0; i < params.size(); ++i) {
    std::vector<float> host(static_cast<size_t>(params[i].tensor.numel()));
    const bool layernorm_weight = !params[i].decay && params[i].name.ends_with("weight");
    const uint64_t seed = 1000 * draw + 100 + i;
    for (size_t j = 0; j < host.size(); ++j)
      host[j] = to_float(from_float<BFloat16>(static_cast<float>(random_uniform(seed, j) - 0.5) +
                                              (layernorm_weight ? 1.0F : 0.0F)));
    (*ops)(Upload{params[i].tensor, host.data()});
    p.emplace_back(host.begin(), host.end());
  }
  trainer->prepare();

  const auto file =
      std::make_shared<const Tokens>("random tokens", random_tokens(100, config.V, 1), config.V);
  Loader data(file, config.B, config.T), again(file, config.B, config.T);
  trainer->step(data, 0, kLearningRate);
  const auto loss = [&] {
    again.seek(0);
    double sum = 0.0;
    for (int micro = 0; micro < hyper.accumulate; ++micro) sum += reference.loss(p, again.next());
    return sum / hyper.accumulate;
  };

  const double expected_loss = loss();
  EXPECT_TRUE(std::fabs(trainer->train_loss() - expected_loss) <=
              tolerance_of(rung.math.value(), config.half) * expected_loss)
      << trainer->train_loss() << ", expected " << expected_loss;

  trainer->gather_state();
  const auto gradients = trainer->tensors().states[0].group.each();
  std::vector<Sampled> all;
  double squares = 0.0;
  for (size_t i = 0; i < gradients.size(); ++i) {
    std::vector<float> g(static_cast<size_t>(gradients[i].tensor.numel()));
    (*ops)(Download{g.data(), gradients[i].tensor});
    size_t steepest = 0;
    for (size_t j = 0; j < g.size(); ++j) {
      squares += static_cast<double>(g[j]) * g[j];
      if (std::fabs(g[j]) > std::fabs(g[steepest])) steepest = j;
    }
    Sampled& of = all.emplace_back();
    of.tensor = gradients[i].name;
    for (size_t sample = 0; sample < 24; ++sample) {
      const size_t j = sample == 0 ? steepest : random_bits(i, sample) % g.size();
      constexpr double h = 1e-5;
      const double at = p[i][j];
      p[i][j] = at + h;
      const double above = loss();
      p[i][j] = at - h;
      const double below = loss();
      p[i][j] = at;
      of.at.push_back(j);
      of.gradient.push_back(g[j]);
      of.slope.push_back((above - below) / (2 * h));
    }
  }
  EXPECT_TRUE(std::fabs(trainer->grad_norm() - std::sqrt(squares)) <= 1e-5 * std::sqrt(squares));
  return all;
}

class Gradients : public testing::TestWithParam<Case> {};

TEST_P(Gradients, AreTheSlopesOfTheLoss) {
  const double tolerance = tolerance_of(ladder().find(GetParam().rung).math.value(), GetParam().half);
  for (const Sampled& of : sampled_gradients(GetParam(), 0)) {
    const double steepest = std::fabs(of.gradient[0]);
    ASSERT_GT(steepest, 1e-4) << of.tensor << ": a gradient too small to test anything";
    for (size_t i = 0; i < of.at.size(); ++i)
      EXPECT_TRUE(std::fabs(of.gradient[i] - of.slope[i]) <= tolerance * steepest + 1e-8)
          << of.tensor << "[" << of.at[i] << "] is " << of.gradient[i] << ", the slope " << of.slope[i];
  }
}

// FP8 rounds by up to an eighth, several times on the way: single elements may be far off, but a tensor's
// error is small and has no direction.
TEST(Fp8Gradients, AreTheSlopesOfTheLossButForNoise) {
  struct Sums {
    double error = 0.0, slope = 0.0, product = 0.0;
  };
  std::map<std::string, Sums> of_tensor;
  for (uint64_t draw = 0; draw < 8; ++draw) {
    for (const Sampled& of : sampled_gradients({"fp8"}, draw)) {
      Sums& sums = of_tensor[of.tensor];
      for (size_t i = 0; i < of.at.size(); ++i) {
        sums.error += (of.gradient[i] - of.slope[i]) * (of.gradient[i] - of.slope[i]);
        sums.slope += of.slope[i] * of.slope[i];
        sums.product += of.gradient[i] * of.slope[i];
      }
    }
  }
  EXPECT_EQ(of_tensor.size(), 28U);
  for (const auto& [tensor, sums] : of_tensor) {
    EXPECT_LE(std::sqrt(sums.error / sums.slope), tolerance_of(MathMode::fp8, DType::bf16)) << tensor;
    EXPECT_NEAR(sums.product / sums.slope, 1.0, 0.1) << tensor;
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Rung& rung : trainers_of(ladder())) {
    if (rung.math == MathMode::fp8) continue;
    all.push_back({rung.name});
    if (rung.math == MathMode::half) all.push_back({rung.name, DType::f16});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(EveryRung, Gradients, testing::ValuesIn(cases()), [](const auto& test) {
  return "r" + test.param.rung + (test.param.half == DType::f16 ? "_fp16" : "");
});

}  // namespace
}  // namespace stepladder
