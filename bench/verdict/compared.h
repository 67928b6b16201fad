// A comparison: what is compared of a rung, by which limits, and the verdict on it.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/results/results.h"
#include "bench/verdict/learning.h"
#include "bench/verdict/noise.h"
#include "bench/verdict/paired.h"
#include "model/error.h"

namespace stepladder {

/// The probability that any rung of an unchanged build is called a regression, however many rungs there are
/// and however large the noise, as far as a t test holds (docs/statistics.md).
inline constexpr double kFalseAlarms = 0.01;
/// More time, or cycles, is nobody's concern below that, unless told otherwise.
inline constexpr double kMinLimit = 0.01;
/// The limit of cycles where both builds were measured alternating: ten pairs know them to 0.07 %
/// (docs/statistics.md).
inline constexpr double kMinCyclesLimit = 0.003;
/// The limit of cycles where the two ran different GEMM algorithms, which differ by 1 % in cycles at the same
/// time of a step: those that wait for memory tick on.
inline constexpr double kMinCyclesLimitOtherAlgorithms = 0.02;
/// The least limit of the live memory of a trainer that doesn't call it exact.
inline constexpr double kMinMemoryLimit = 0.01;
/// The limit of energy, whose counter moves ten times a second.
inline constexpr double kMinEnergyLimit = 0.02;
/// The machine's noise raises a limit no further than to this: a PASS under a higher one says nothing.
inline constexpr double kMaxNoiseLimit = 0.05;
/// A noise floor from fewer A/A pairs is a guess.
inline constexpr size_t kEnoughNoisePairs = 10;

enum class Verdict {
  pass,        // the upper bounds of time, cycles and memory lie below their limits, of cycles where time is
               // not certainly less; memory that is exact has not grown
  regression,  // a lower bound lies above its limit and a change is certain; or exact memory has grown
  inconclusive,  // neither: more pairs would tell
  // Verdicts on runs until a loss, by their seconds to it:
  faster,          // certainly less
  slower,          // certainly more, which is a regression
  not_told_apart,  // neither: more seeds would tell
  failed,          // a run crashed, diverged, did not fit or timed out
  skipped,         // in one of the two only, or not for this device
};
/// "PASS", "REGRESSION", ...
const char* name_of(Verdict verdict);
/// Whether more pairs may tell.
inline bool undecided(Verdict verdict) {
  return verdict == Verdict::inconclusive || verdict == Verdict::not_told_apart;
}

/// What is compared: the medians of a step's time and of its cycles, its mean energy, and the peak of live
/// memory where that isn't exact.
enum class Quantity { time, cycles, energy, memory };
/// "time", ...
const char* name_of(Quantity quantity);

/// A quantity of a rung in both results, over their pairs.
struct ComparedQuantity {
  Quantity what = Quantity::time;
  size_t pairs = 0;                         // that know it of both sides
  double base = 0.0, next = 0.0;            // medians over the pairs' runs: ms, cycles, joules, bytes
  std::optional<PairedChange> change = {};  // none from fewer than kMinPairs
  double limit = 0.0;                       // as a ratio less 1: 0.01
  bool certain = false;                     // that it is more at all, among all that is compared
  bool certainly_less = false;              // the same that it is less

  bool above() const { return change && change->lo > std::log1p(limit); }
  bool below() const { return change && change->hi < std::log1p(limit); }
};

/// A rung on a workload in both results.
struct ComparedRow {
  std::string variant, workload;
  Verdict verdict = Verdict::skipped;
  std::string reason;
  bool same_sources = false;  // the rung's file and model/ are the same in both
  int64_t repetition = 0;     // from 1, where both were compared more than once

  struct Numbers {
    size_t pairs = 0;               // without those in which the device was throttled or shared
    size_t disturbed = 0;           // pairs in which it was
    bool other_algorithms = false;  // the two ran different GEMM algorithms, or may have
    std::string disturbance;
    std::vector<ComparedQuantity> quantities;  // the time, and the rest where both sides know it at all
    std::vector<std::string> unknown;          // of one side alone: "NEW's cycles"
    int64_t base_bytes = 0, new_bytes = 0;     // live: the most of exact memory, else medians
    std::vector<std::string> grown;            // parts of the arena, "activations/att +1.5 KiB"

    const ComparedQuantity& time() const { return quantities.front(); }
    /// Null where it is unknown.
    const ComparedQuantity* find(Quantity what) const;
  };
  std::optional<Numbers> numbers;  // none of a row that failed or was skipped, or of runs until a loss
  std::optional<LearningNumbers> learning;  // of runs until a loss
};

/// What a difference has to exceed.
struct Limits {
  // As ratios less 1:
  double threshold = kMinLimit, cycles = kMinLimit, energy = kMinEnergyLimit;
  double cycles_other_algorithms = kMinCyclesLimitOtherAlgorithms;
  /// Log ratios of A/A pairs: they raise a row's limits as raised_limit() says.
  NoiseByRow noise = {};
  // This look at the data:
  double alpha = kFalseAlarms;
  double upper_confidence = kBoundConfidence;
  bool may_pass = true;
  bool final = true;  // no pair follows that nothing may disturb
  /// A loss by whose seconds to it rows are judged, instead of by their steps.
  std::optional<double> until_loss = {};
  /// Results whose times of a step are taken then; null for the runs' own.
  const Results *base_times = nullptr, *next_times = nullptr;
};

struct Comparison {
  std::vector<ComparedRow> rows;
  std::vector<std::string> notes;  // what stands between the reader and a wrong reading
  std::string base, next;          // "commit 0123abc of 2025-01-31T12:00:00.000Z"
  std::string device;
  bool undecided_passes = false;  // for JUnit, where an undecided row else is a failure
};

/// The worst row's: kExitFailed, then kExitRegression, then kExitInconclusive; kExitNotComparable where every
/// row was skipped.
ExitCode exit_code(const std::vector<ComparedRow>& rows);

/// The verdict of all rows: the verdict that exit_code() stands for.
Verdict overall(const std::vector<ComparedRow>& rows);

/// The first run that did not end well, with how many did not, "NEW: crash: killed (1 of 3 runs)"; "" where
/// all did.
std::string failure(const Rounds& rounds, const char* side);

}  // namespace stepladder
