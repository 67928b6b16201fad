// Compares two results of the same workloads on the same device model: is NEW slower, or does it take more
// memory? Or, for runs until a loss: does NEW reach the loss sooner?
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/results/results.h"
#include "bench/verdict/comparable.h"
#include "bench/verdict/learning.h"
#include "bench/verdict/noise.h"
#include "bench/verdict/paired.h"
#include "model/error.h"

namespace stepladder {

/// The probability that any rung of an unchanged build is called a regression, however many rungs there are
/// and however large the noise, as far as a t test holds (docs/statistics.md).
inline constexpr double kFalseAlarms = 0.01;
/// The limit of time and cycles by default: smaller slowdowns are ignored.
inline constexpr double kMinLimit = 0.01;
/// The limit of cycles where both builds were measured alternating: ten pairs know them to 0.07 %
/// (docs/statistics.md).
inline constexpr double kMinCyclesLimit = 0.003;
/// The limit of cycles where the two builds ran different GEMM algorithms, which differ by 1 % in cycles at
/// the same time of a step: cycles go on while a kernel waits for memory.
inline constexpr double kMinCyclesLimitOtherAlgorithms = 0.02;
/// The limit of live memory, as a ratio less 1, for a trainer that doesn't call it exact. Noise doesn't raise
/// it.
inline constexpr double kMinMemoryLimit = 0.01;
/// The limit of energy, whose counter moves ten times a second.
inline constexpr double kMinEnergyLimit = 0.02;
/// The limit of mean time, or that of time if higher: a single slow step moves a mean.
inline constexpr double kMinMeanTimeLimit = 0.02;
/// The machine's noise raises a limit at most to this: a PASS under a higher limit says nothing.
inline constexpr double kMaxNoiseLimit = 0.05;
/// Fewest A/A pairs for a noise floor that is more than a guess.
inline constexpr size_t kEnoughNoisePairs = 10;

enum class Verdict {
  pass,  // the upper bounds of time, of memory and, unless time is certainly less, of cycles lie below their
         // limits, no lower bound of a mean time lies above its limit; exact memory has not grown
  regression,    // a lower bound lies above its limit and a change is certain; or exact memory has grown
  inconclusive,  // neither: more pairs would tell
  // Verdicts on runs until a loss, by their seconds to it:
  faster,          // certainly fewer seconds
  slower,          // certainly more seconds, which is a regression
  not_told_apart,  // neither: more seeds would tell
  failed,          // a run crashed, diverged, did not fit or timed out
  skipped,         // in one of the two results only, or not for this device
};
/// "PASS", "REGRESSION", ...
const char* name_of(Verdict verdict);
/// Whether more pairs may decide a verdict.
inline bool undecided(Verdict verdict) {
  return verdict == Verdict::inconclusive || verdict == Verdict::not_told_apart;
}

/// What is compared: the medians of a step's time and of its cycles; its mean time, and that to the next step
/// where trainers of a ladder file tell it; its mean energy; and the peak of live memory where that isn't
/// exact.
enum class Quantity { time, cycles, mean_time, time_to_next, energy, memory };
/// Whether a quantity is a mean of times, which hinders a PASS only where it is over its limit.
inline bool is_of_means(Quantity what) {
  return what == Quantity::mean_time || what == Quantity::time_to_next;
}
/// "time", ...
const char* name_of(Quantity quantity);

/// A quantity of a rung in both results, over their pairs.
struct ComparedQuantity {
  Quantity what = Quantity::time;
  size_t pairs = 0;                         // pairs that know the quantity of both sides
  double base = 0.0, next = 0.0;            // medians over the pairs' runs: ms, cycles, joules, bytes
  std::optional<PairedChange> change = {};  // nothing for fewer than kMinPairs pairs
  double limit = 0.0;                       // as a ratio less 1: 0.01
  bool certain = false;                     // NEW takes significantly more by Holm's test
  bool certainly_less = false;              // NEW takes significantly less by Holm's test

  bool above() const { return change && change->lo > std::log1p(limit); }
  bool below() const { return change && change->hi < std::log1p(limit); }
};

/// A rung on a workload in both results.
struct ComparedRow {
  std::string variant, workload;
  Verdict verdict = Verdict::skipped;
  std::string reason;
  bool same_sources = false;  // the rung's file and model/ are the same in both
  int64_t repetition = 0;     // counted from 1, where both were compared more than once

  struct Numbers {
    size_t pairs = 0;               // pairs in which the device was not throttled or shared
    size_t disturbed = 0;           // pairs in which the device was throttled or shared
    bool other_algorithms = false;  // BASE and NEW ran different GEMM algorithms, or may have
    std::string disturbance;
    std::vector<ComparedQuantity> quantities;  // first the time, then the others that both sides know
    std::vector<std::string> unknown;          // quantities that one side alone lacks: "NEW's cycles"
    int64_t base_bytes = 0, new_bytes = 0;     // live memory: the most where exact, else medians
    std::vector<std::string> grown;            // parts of the arena, "activations/att +1.5 KiB"

    const ComparedQuantity& time() const { return quantities.front(); }
    /// The quantity; null where it is unknown.
    const ComparedQuantity* find(Quantity what) const;
  };
  std::optional<Numbers> numbers;  // nothing for rows that failed or were skipped, and for runs until a loss
  std::optional<LearningNumbers> learning;  // of runs until a loss
};

/// The limits that a difference has to exceed, and how certainly.
struct Limits {
  // Limits as ratios less 1:
  double threshold = kMinLimit, cycles = kMinLimit, energy = kMinEnergyLimit;
  double cycles_other_algorithms = kMinCyclesLimitOtherAlgorithms;
  /// Log ratios of A/A pairs: they raise a row's limits as raised_limit() says.
  NoiseByRow noise = {};
  // For this look at the data:
  double alpha = kFalseAlarms;
  double upper_confidence = kBoundConfidence;
  bool may_pass = true;
  bool final = true;  // no look follows: a row without an undisturbed pair fails
  /// The loss to reach: rows are judged by the seconds to it. Nothing: rows are judged by their steps.
  std::optional<double> until_loss = {};
  /// With until_loss, results that give the times of a step; null: the runs give their own.
  const Results *base_times = nullptr, *next_times = nullptr;
};

struct Comparison {
  std::vector<ComparedRow> rows;
  std::vector<std::string> notes;  // what keeps the reader from a wrong reading
  std::string base, next;          // "commit 0123abc, 2025-01-31T12:00:00.000Z"
  std::string device;
  bool undecided_passes = false;  // whether undecided rows pass, in JUnit and by exit code
};

/// The exit code of the worst row: kExitFailed, then kExitRegression, kExitInconclusive and kExitOk;
/// kExitNotComparable where every row was skipped.
ExitCode exit_code(const std::vector<ComparedRow>& rows, bool undecided_passes = false);

/// The verdict of the worst row, from which exit_code() follows.
Verdict overall(const std::vector<ComparedRow>& rows);

/// The limit, a ratio less 1: `threshold`, or the noise_floor() over `pairs` if larger, which counts up to
/// kMaxNoiseLimit.
double raised_limit(double threshold, std::span<const double> noise, size_t pairs);

/// Pairs runs of the same rung and workload by round, or by seed where they train until a loss, and judges
/// each rung and workload. Peers are left out. Throws Error with kExitNotComparable as require_comparable()
/// does.
Comparison compare(const Results& base, const Results& next, const Limits& limits);

/// Verdicts while pairs are added: looks after `first` to `last` pairs. A REGRESSION spends alpha_at() of
/// limits.alpha; a PASS is possible where may_pass_at() holds, by an upper bound with upper_confidence(). So
/// both kinds of error are, over all looks together, no more frequent than with a single look.
class Looks {
 public:
  Looks(size_t first, size_t last, Limits limits);

  /// Looks once more, after `pairs`. A row with a verdict keeps it: each further look would be one more
  /// chance of a false alarm. `final` says that no look follows, so this look may PASS in place of the next
  /// one that could; a final look may come after fewer pairs than `first`.
  Comparison look(const Results& base, const Results& next, size_t pairs, bool final = false);

 private:
  size_t first_, last_;
  Limits limits_;
  std::map<RowKey, ComparedRow> decided_;
};

}  // namespace stepladder
