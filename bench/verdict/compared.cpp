#include "bench/verdict/compared.h"

#include <algorithm>

namespace stepladder {

const char* name_of(Verdict verdict) {
  constexpr const char* kNames[] = {"PASS",   "REGRESSION",     "INCONCLUSIVE", "FASTER",
                                    "SLOWER", "NOT TOLD APART", "FAILED",       "SKIPPED"};
  return kNames[static_cast<size_t>(verdict)];
}

const char* name_of(Quantity quantity) {
  constexpr const char* kNames[] = {"time", "cycles", "energy", "live memory"};
  return kNames[static_cast<size_t>(quantity)];
}

const ComparedQuantity* ComparedRow::Numbers::find(Quantity what) const {
  const auto found = std::ranges::find(quantities, what, &ComparedQuantity::what);
  return found == quantities.end() ? nullptr : &*found;
}

Verdict overall(const std::vector<ComparedRow>& rows) {
  using enum Verdict;
  for (Verdict worst : {failed, regression, slower, inconclusive, not_told_apart, pass, faster})
    if (std::ranges::find(rows, worst, &ComparedRow::verdict) != rows.end()) return worst;
  return skipped;
}

ExitCode exit_code(const std::vector<ComparedRow>& rows) {
  constexpr ExitCode kCodes[] = {kExitOk,         kExitRegression,   kExitInconclusive, kExitOk,
                                 kExitRegression, kExitInconclusive, kExitFailed,       kExitNotComparable};
  return kCodes[static_cast<size_t>(overall(rows))];
}

std::string failure(const Rounds& rounds, const char* side) {
  const auto failed = [](const auto& item) { return item.second->status != Status::ok; };
  const auto first = std::ranges::find_if(rounds, failed);
  if (first == rounds.end()) return "";
  const Run& run = *first->second;
  return cat(side, ": ", name_of(run.status), run.reason.empty() ? "" : ": " + run.reason, " (",
             std::ranges::count_if(rounds, failed), " of ", rounds.size(), " runs)");
}

}  // namespace stepladder
