// Trainers of linked rungs, each in an arena of the size that it needs.
#pragma once

#include <algorithm>
#include <cstring>

#include "model/gpt2.h"

namespace stepladder {

/// An arena of the size that `make(arena)` allocates. The CPU's is filled with NaN, so that reads of
/// unwritten memory show.
template <class Make>
std::unique_ptr<Arena> planned_arena(Ops& ops, const Make& make) {
  Arena plan;
  make(plan);
  auto arena = std::make_unique<Arena>(ops, plan.bytes());
  if (ops.device().info().backend == "cpu")
    std::memset(arena->data(), 0xFF, static_cast<size_t>(plan.bytes()));
  return arena;
}

/// The trainer of a linked rung after reset(), and its arena.
inline std::pair<std::unique_ptr<Arena>, std::unique_ptr<Trainer>> built(Ops& ops, const std::string& rung,
                                                                         const Config& config,
                                                                         const Hyper& hyper = {}) {
  const auto build = std::ranges::find(linked_rungs(), rung, &RungBuild::name);
  check(build != linked_rungs().end(), rung, " is not linked");
  auto arena = planned_arena(ops, [&](Arena& plan) { build->make(ops, plan, config, hyper); });
  auto trainer = build->make(ops, *arena, config, hyper);
  trainer->reset();
  return {std::move(arena), std::move(trainer)};
}

}  // namespace stepladder
