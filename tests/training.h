// A small trainer on the CPU with something to learn.
#pragma once

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "model/gpt2.h"
#include "model/random.h"
#include "tests/built.h"
#include "tests/recording_ops.h"

namespace stepladder {

/// Tokens with structure to learn: each mostly follows from the previous one.
inline std::shared_ptr<const Tokens> learnable_tokens(const Config& config) {
  std::vector<uint16_t> tokens(20000);
  for (size_t i = 1; i < tokens.size(); ++i) {
    const bool noise = random_uniform(7, i) < 0.1;
    tokens[i] = static_cast<uint16_t>((noise ? random_bits(8, i) : tokens[i - 1] * 5U + 3U) % config.V);
  }
  return std::make_shared<const Tokens>("learnable tokens", std::move(tokens), config.V);
}

inline Config small_config() {
  Config config;
  config.model = "test";
  config.B = 3;
  config.T = 24;
  config.max_T = 32;
  config.V = 96;
  config.L = 2;
  config.NH = 2;
  config.C = 32;
  return config;
}

/// A linked trainer on the CPU, initialised, with data to learn from.
struct Training {
  explicit Training(const std::string& rung, DType half = DType::bf16, int accumulate = 1,
                    const Config& of = small_config())
      : config(of) {
    config.half = half;
    Hyper hyper;
    hyper.accumulate = accumulate;
    std::tie(arena, trainer) = built(*ops, rung, config, hyper);
    trainer->init(1337);
    ops->observe(&recording);
    trainer->prepare();
  }
  std::vector<float> losses(int steps) {
    std::vector<float> losses;
    for (; steps > 0; --steps) {
      trainer->step(data, done++, 1e-3F);
      losses.push_back(trainer->train_loss());
    }
    return losses;
  }
  std::vector<float> values(Tensor t) {
    std::vector<float> host(static_cast<size_t>(t.numel()));
    (*ops)(Download{host.data(), t});
    return host;
  }

  Config config;
  std::unique_ptr<Ops> ops = make_cpu_ops();
  Recording recording;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<Trainer> trainer;
  Loader data{learnable_tokens(config), config.B, config.T};
  int64_t done = 0;
};

inline std::vector<float> losses_of(const std::string& rung, int steps, int accumulate = 1) {
  return Training(rung, DType::bf16, accumulate).losses(steps);
}

}  // namespace stepladder
