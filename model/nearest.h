// The candidate closest to a misspelt name, for "did you mean".
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace stepladder {

/// The least number of insertions, deletions and substitutions that turn `a` into `b` (Levenshtein 1966).
inline size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

/// The first of the candidates at the smallest edit distance from `name`; "" when there are none.
inline std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
  const auto closest =
      std::ranges::min_element(candidates, {}, [&](const auto& c) { return edit_distance(name, c); });
  return closest == candidates.end() ? "" : *closest;
}

/// ": did you mean X?" for a candidate that begins with `name`, or is within the edit distance of a typing
/// slip; else ": ", `otherwise`.
inline std::string suggestion(std::string_view name, const std::vector<std::string>& candidates,
                              const std::string& otherwise) {
  constexpr size_t kTelling = 3;  // letters
  const auto longer = std::ranges::find_if(candidates, [&](const auto& c) { return c.starts_with(name); });
  const bool begun = name.size() >= kTelling && longer != candidates.end();
  const std::string closest = begun ? *longer : nearest(name, candidates);
  const bool slip = !closest.empty() && edit_distance(name, closest) <= (name.size() + 2) / 3;
  return ": " + (begun || slip ? "did you mean " + closest + "?" : otherwise);
}

}  // namespace stepladder
