// Verdicts on runs until a loss and, for other runs, whether NEW learns as BASE does.
#pragma once

#include <string>
#include <vector>

#include "bench/verdict/comparable.h"
#include "bench/verdict/compared.h"

namespace stepladder {

/// "commit 0123abc, 2025-01-31T12:00:00.000Z"
std::string described(const Results& results);

/// Fills in row.learning, or row.reason where a run's evaluations don't tell or the runs for times are not
/// ok. `alpha` is the row's share of false alarms, for LearningNumbers::more.
void learn(ComparedRow& row, const RowKey& key, const Rounds& base, const Rounds& next, const Limits& limits,
           double alpha);

/// Sets the verdicts that follow from the rows' `learning`, by Holm's test over all rows.
void judge_learning(std::vector<ComparedRow>& rows, double alpha);

/// Adds what a reader of verdicts on learning has to know: intended changes, equal curves, and where times
/// are from.
void add_learning_notes(Comparison& comparison, const std::vector<Disagreement>& intended,
                        const Limits& limits);

/// Compares NEW's losses with BASE's, in long runs by their means: fills in row.reason where NEW is worse.
/// Returns whether NEW is shown not to be worse.
bool learns_as_base(ComparedRow& row, const Rounds& base, const Rounds& next, double tolerance);

/// A sentence on how far validation losses after the last step are apart; "" where fewer than
/// kMinCertainPairs pairs have them.
std::string equality_text(const ComparedRow& row, const Rounds& base, const Rounds& next);

}  // namespace stepladder
