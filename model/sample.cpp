#include "model/sample.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "model/error.h"
#include "model/random.h"
#include "model/tokenizer.h"

namespace stepladder {

int32_t sample_token(std::span<const float> logits, const SampleOptions& options, double uniform) {
  check(!logits.empty(), "no logits to sample from");
  if (!(options.temperature >= 0.0F) || std::isinf(options.temperature))
    throw InputError(cat("temperature ", options.temperature, ": give 0 or a positive number"));
  if (options.top_k < 0) throw InputError(cat("top-k ", options.top_k, ": give 0 or a positive number"));
  if (std::ranges::any_of(logits, [](float x) { return std::isnan(x); }))
    throw Error("logits hold NaN: the run diverged; lower --lr or go back to an older checkpoint");
  const auto largest = std::ranges::max_element(logits);
  if (std::isinf(*largest))
    throw Error("logits overflow: the run diverged; lower --lr or go back to an older checkpoint");
  if (options.temperature == 0.0F) return static_cast<int32_t>(largest - logits.begin());

  // Keep the top_k most likely tokens; of two equally likely tokens the earlier one comes first.
  std::vector<int32_t> candidates(logits.size());
  std::iota(candidates.begin(), candidates.end(), 0);
  const auto top_k = static_cast<size_t>(options.top_k);
  if (top_k > 0 && top_k < candidates.size()) {
    std::ranges::nth_element(candidates, candidates.begin() + options.top_k, [&](int32_t a, int32_t b) {
      return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
    });
    candidates.resize(top_k);
    std::ranges::sort(candidates);
  }

  std::vector<double> cumulative(candidates.size());
  std::transform_inclusive_scan(
      candidates.begin(), candidates.end(), cumulative.begin(), std::plus<>{},
      [&](int32_t token) { return std::exp((double{logits[token]} - *largest) / options.temperature); });
  // The first token whose cumulative weight lies above the draw; its own weight is above 0.
  const double last_below = std::nextafter(cumulative.back(), 0.0);
  const double draw = std::min(uniform * cumulative.back(), last_below);
  return candidates[std::ranges::upper_bound(cumulative, draw) - cumulative.begin()];
}

int64_t positions_to_sample(int64_t prompt, int64_t tokens, int64_t most) {
  const int64_t length = std::max<int64_t>(prompt, 1) + tokens;
  return std::min(most, (length + 15) / 16 * 16);
}

Generated generate(const NextLogits& next_logits, std::span<const int32_t> prompt, int count,
                   const SampleOptions& options) {
  using Clock = std::chrono::steady_clock;
  std::vector<int32_t> text(prompt.begin(), prompt.end());
  if (text.empty()) text.push_back(Tokenizer::kEndOfText);
  const auto given = static_cast<std::ptrdiff_t>(text.size());
  Generated drawn;
  auto start = Clock::now();
  for (int i = 0; i < count; ++i) {
    text.push_back(sample_token(next_logits(text), options, random_uniform(options.seed, i)));
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    (i == 0 ? drawn.first_s : drawn.rest_s) = seconds;
    if (i == 0) start = Clock::now();
  }
  drawn.tokens.assign(text.begin() + given, text.end());
  return drawn;
}

}  // namespace stepladder
