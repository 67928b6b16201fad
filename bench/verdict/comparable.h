// What has to be the same in two results for them to be compared.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/results/configuration.h"
#include "bench/results/results.h"
#include "bench/results/rounds.h"

namespace stepladder {

/// Runs by rung and workload, in the order of their first appearance; peers are left out.
struct Rows {
  std::vector<RowKey> order;
  std::map<RowKey, Rounds> rounds;

  explicit Rows(const Results& results);
  /// The runs of a row; null where there is none.
  const Rounds* find(const RowKey& key) const;
};

/// A field in which BASE and NEW differ: in all of their runs, or in those of some rungs.
struct Disagreement {
  Difference difference;
  std::vector<std::string> rungs;  // empty: all

  /// "config.lr 0.0006 / 0.0002 (13_cuda_graphs)"
  std::string text() const;
};

/// Checks that two results have the same device model, configuration and first seed, and share a rung on a
/// workload. Otherwise throws Error with kExitNotComparable, naming the fields that differ.
void require_comparable(const Results& base, const Results& next);

/// Checks that the steps that both take to a loss may be compared: with the same model, data, evaluations and
/// horizon. Returns the other fields that differ, the learning rate say. Throws as require_comparable() does.
std::vector<Disagreement> require_comparable_steps(const Results& base, const Results& next);
/// Checks that the times of a step may be compared: on the same device model, in the same environment, after
/// as many steps of warm-up. Throws as require_comparable() does.
void require_comparable_times(const Results& base, const Results& next);

}  // namespace stepladder
