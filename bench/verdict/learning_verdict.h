// What NEW learns: verdicts on runs until a loss, and whether other runs learn as BASE's do.
#pragma once

#include <string>
#include <vector>

#include "bench/verdict/comparable.h"
#include "bench/verdict/compared.h"

namespace stepladder {

/// "commit 0123abc, 2025-01-31T12:00:00.000Z"
std::string described(const Results& results);

/// Fills in row.learning, or row.reason where a run's evaluations don't tell. `alpha` is what may go wrong
/// for the row, of which its seeds more are told.
void learn(ComparedRow& row, const RowKey& key, const Rounds& base, const Rounds& next, const Limits& limits,
           double alpha);

/// The verdicts that follow from the rows' `learning`, among all of them.
void judge_learning(std::vector<ComparedRow>& rows, double alpha);

/// What a reader of these verdicts has to know: intended changes, equal curves, and where times are from.
void add_learning_notes(Comparison& comparison, const std::vector<Disagreement>& intended,
                        const Limits& limits);

/// Holds NEW's losses to BASE's, those of long runs by their means: fills in row.reason where NEW is worse.
/// Returns whether it is shown not to be.
bool learns_as_base(ComparedRow& row, const Rounds& base, const Rounds& next, double tolerance);

/// How far validation losses after the last step are apart; "" where fewer than kMinCertainPairs know them.
std::string equality_text(const ComparedRow& row, const Rounds& base, const Rounds& next);

}  // namespace stepladder
