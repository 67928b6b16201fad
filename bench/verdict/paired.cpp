#include "bench/verdict/paired.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/base/statistics.h"
#include "model/error.h"
#include "model/random.h"

namespace stepladder {

PairedChange paired_change(std::span<const double> log_ratios, double upper_confidence) {
  check(log_ratios.size() >= kMinPairs, "a change from ", log_ratios.size(), " pairs");
  const Mean change = mean_of(log_ratios);
  const double above = p_above(change), below = p_below(change);
  return {.log_ratio = change.value,
          .lo = bound(change, 1 - kBoundConfidence),
          .hi = bound(change, upper_confidence),
          .p_slower = above,
          .p_faster = below,
          .p_changed = std::min(1.0, 2 * std::min(above, below)),
          .pairs = log_ratios.size()};
}

std::vector<bool> holm(std::span<const double> p_values, double alpha) {
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p_values[a] < p_values[b]; });
  std::vector<bool> rejected(p_values.size(), false);
  for (size_t k = 0; k < order.size(); ++k) {
    if (!(p_values[order[k]] <= alpha / static_cast<double>(order.size() - k))) break;
    rejected[order[k]] = true;
  }
  return rejected;
}

std::vector<bool> certain_by(std::span<const PairedChange> changes, double alpha, double PairedChange::*p) {
  std::vector<double> p_values;
  for (const PairedChange& change : changes)
    p_values.push_back(change.pairs < kMinCertainPairs ? 1.0 : change.*p);
  return holm(p_values, alpha);
}

double alpha_at(size_t pairs, size_t first, size_t last, double alpha) {
  check(first <= pairs && pairs <= last, "a look after ", pairs, " pairs of ", first, " to ", last);
  const auto spent = [&](size_t n) {
    const double share = static_cast<double>(n) / static_cast<double>(last);
    return alpha * share * share;
  };
  return spent(pairs) - (pairs == first ? 0.0 : spent(pairs - 1));
}

bool may_pass_at(size_t pairs, size_t first, size_t last) {
  for (size_t look = first; look < last; look *= 2)
    if (pairs == look) return true;
  return pairs == last;
}

double upper_confidence(size_t first, size_t last, double confidence) {
  check(first > 0 && first <= last, "looks after ", first, " to ", last, " pairs");
  int looks = 1;
  for (size_t look = first; look < last; look *= 2) ++looks;
  return 1.0 - (1.0 - confidence) / looks;
}

double noise_floor(std::span<const double> log_ratios, size_t pairs) {
  constexpr int kResamples = 10'000;
  constexpr uint64_t kBootstrapSeed = 1337;  // the same draws every time
  check(!log_ratios.empty() && pairs > 0, "a noise floor of nothing");
  const auto n = static_cast<double>(log_ratios.size());
  std::vector<double> sizes(kResamples);
  uint64_t counter = 0;
  for (double& size : sizes) {
    for (size_t i = 0; i < pairs; ++i)
      size += log_ratios[static_cast<size_t>(random_uniform(kBootstrapSeed, counter++) * n)];
    size = std::abs(size / static_cast<double>(pairs));
  }
  return quantile(sizes, 0.99);
}

}  // namespace stepladder
