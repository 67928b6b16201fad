// Traces one step of a rung, for tests on either backend.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/rung/profile.h"
#include "model/data.h"
#include "model/gpt2.h"
#include "model/tracing.h"
#include "tests/built.h"
#include "tests/tokens.h"

namespace stepladder {

struct TracedStep {
  Tracing::Step step;
  std::vector<OpCall> calls;
  nlohmann::ordered_json profile;
  int64_t vocabulary = 0;  // rows of the classifier's product, padding included

  /// The FLOPs of the step's calls of this kind.
  double flops(OpKind kind) const {
    double sum = 0.0;
    for (const int64_t id : step.calls)
      if (const OpCall& call = calls.at(static_cast<size_t>(id)); call.kind == kind) sum += call.flops;
    return sum;
  }
};

/// Traces a rung's third step, by which time it is compiled and recorded, on random tokens in `accumulate`
/// batches.
inline TracedStep traced_step(const std::string& rung, const std::unique_ptr<Ops>& backend,
                              const Config& config, int accumulate = 1) {
  Ops& ops = *backend;
  Tracing tracing(ops);
  auto tokens = random_tokens(8 * config.B * config.T + 1, config.V);
  Loader data(std::make_shared<const Tokens>("random tokens", std::move(tokens), config.V), config.B,
              config.T);

  Hyper hyper;
  hyper.accumulate = accumulate;
  const auto [arena, trainer] = built(ops, rung, config, hyper);
  trainer->init(1337);
  trainer->prepare();
  for (int step = 0; step < 2; ++step) trainer->step(data, step, 1e-3F);
  ops.synchronize();

  TracedStep traced;
  tracing.begin_step();
  const auto start = std::chrono::steady_clock::now();
  ops.device().start_timer();
  trainer->step(data, 2, 1e-3F);
  ops.device().stop_timer();
  ops.synchronize();
  const std::chrono::duration<double, std::milli> host = std::chrono::steady_clock::now() - start;
  traced.step = tracing.end_step();
  traced.calls = tracing.calls();
  traced.vocabulary = trainer->tensors().weights.find("wte.weight").shape[0];
  Ceilings ceilings;
  ceilings.bytes_per_s = 1e12;
  Profile profile(ceilings);
  profile.add(traced.step, traced.calls, host.count(), ops.device().elapsed().ms);
  traced.profile = profile.json(tracing.source(), std::nullopt);
  return traced;
}

}  // namespace stepladder
