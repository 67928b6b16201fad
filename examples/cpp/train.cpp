// Logistic regression by gradient descent, measured by Stepladder. Build it beside its ladder.json and climb:
//
//   cd examples/cpp
//   c++ -std=c++17 -O2 -I../../bench/run train.cpp -o train
//   c++ -std=c++17 -O3 -march=native -ffast-math -I../../bench/run train.cpp -o train_native
//   stepladder run --ladder ladder.json
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "stepladder.h"

namespace {

struct Options {
  int batch = 256, features = 512, steps = 100;
  unsigned seed = 1337;
};

/// Mean cross-entropy over the batch and its gradient, added to `dw`; x (B,C), y (B), w (C).
float loss_and_gradient(const std::vector<float>& x, const std::vector<float>& y, const std::vector<float>& w,
                        std::vector<float>& dw) {
  const size_t B = y.size(), C = w.size();
  float loss = 0.0F;
  for (size_t b = 0; b < B; ++b) {
    const float* row = &x[b * C];
    float logit = 0.0F;
    for (size_t c = 0; c < C; ++c) logit += row[c] * w[c];
    // log(1 + exp(-z)) for the label's sign, without overflow
    const float z = y[b] > 0.5F ? logit : -logit;
    loss += std::log1p(std::exp(-std::abs(z))) + std::max(-z, 0.0F);
    const float dlogit = (1.0F / (1.0F + std::exp(-logit)) - y[b]) / static_cast<float>(B);
    for (size_t c = 0; c < C; ++c) dw[c] += dlogit * row[c];
  }
  return loss / static_cast<float>(B);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const int value = std::atoi(argv[i + 1]);
    if (name == "--batch") options.batch = value;
    if (name == "--features") options.features = value;
    if (name == "--steps") options.steps = value;
    if (name == "--seed") options.seed = static_cast<unsigned>(value);
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const auto B = static_cast<size_t>(options.batch), C = static_cast<size_t>(options.features);
  std::mt19937 random(options.seed);
  std::normal_distribution<float> normal;
  std::vector<float> truth(C), w(C), dw(C);
  for (float& value : truth) value = normal(random);
  std::vector<std::pair<std::vector<float>, std::vector<float>>> batches(16);  // x (B,C) and labels (B)
  for (auto& [x, y] : batches) {
    for (size_t b = 0; b < B; ++b) {
      float logit = 0.0F;
      for (size_t c = 0; c < C; ++c) {
        x.push_back(normal(random));
        logit += x.back() * truth[c];
      }
      y.push_back(logit > 0.0F ? 1.0F : 0.0F);
    }
  }

  stepladder_client::Run run(options.batch, options.features);
  run.config("dtype", "f32");
  for (int i = 0; i < options.steps && !run.finished(); ++i) {
    auto step = run.step();
    const auto& [x, y] = batches[static_cast<size_t>(i) % batches.size()];
    dw.assign(C, 0.0F);
    const float loss = loss_and_gradient(x, y, w, dw);
    for (size_t c = 0; c < C; ++c) w[c] -= 1.0F * dw[c];
    step.done(loss);
    std::cout << "step " << i + 1 << " | loss " << loss << '\n';
  }
  return run.exit_code();
}
