// Runs of a variant on a workload, by round: what they come to, and how they compare with others of the same
// rounds.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/base/statistics.h"
#include "bench/results/results.h"

namespace stepladder {

/// Runs of a variant on a workload, by round.
using Rounds = std::map<int64_t, const Run*>;

/// The runs of a row.
Rounds rounds_of(const Results& results, const RowKey& row);

/// The runs of `one` and `other` in the rounds that both have.
std::vector<std::pair<const Run*, const Run*>> pairs_of(const Rounds& one, const Rounds& other);

/// Leaves out the rounds in which the device was throttled or shared.
void drop_disturbed(Rounds& rounds);

/// How many times faster `after` is than `before` by time per token, over the rounds that both took part in.
/// Every run must be ok. Nothing where no round is common.
std::optional<Estimate> speedup(const Rounds& before, const Rounds& after);

/// How many times sooner a variant reached a loss than another variant, and why: by fewer steps, and by
/// shorter steps.
struct Sooner {
  std::string against;
  Estimate seconds, steps, step_ms;
  std::optional<Estimate> joules;
};
template <class Archive>
void fields(Archive& a, Any<Sooner> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, against, seconds, steps, step_ms)
  a.if_any("joules", x.joules);
}
/// How many times sooner `after` reached its loss than `before`, over the rounds in which both did, since
/// each round has its own seed. Nothing where there is no such round.
std::optional<Sooner> sooner(const Rounds& before, const Rounds& after);

/// By how many ms a step of `rounds` is longer than a step of `than`, over the rounds that both took part in;
/// nothing where no round is common.
std::optional<Estimate> longer(const Rounds& rounds, const Rounds& than);

/// What a run took besides its steps: start-up, sampling between them, evaluation, and the end.
double besides_steps_ms(const Run& run);

/// The number of steps that a run's summary is computed from, even where the file lacks some (export --format
/// short).
int64_t timed_steps(const Run& run);

/// A warning where a trainer's steps fill less than half of the time between the ends of steps; "" where
/// they fill more, or the share is unknown.
std::string little_covered(const Summary& summary);

/// The first step at which the losses of `run` and `baseline` differ by more than `tolerance`, relative to
/// those of `baseline`, which is called `name`: "step 7: loss 4.51, 00_fp32_baseline has 4.49 (...)"; ""
/// where no step does.
std::string divergence(const Run& baseline, const std::string& name, const Run& run, double tolerance);

/// How many times faster a row is than another variant's.
struct Speedup {
  std::string against;
  Estimate ratio;
};
template <class Archive>
void fields(Archive& a, Any<Speedup> auto& x) {
  estimate_fields(a, "ratio", x.ratio);
  STEPLADDER_EACH(STEPLADDER_FIELD, against)
  a("rounds", x.ratio.rounds);
}

/// What training until a loss took, medians over the rounds that reached it; no numbers where none did.
struct TimeToLoss {
  double loss = 0.0;                // asked for
  int64_t reached = 0;              // rounds that reached the loss; the numbers below are of these
  Estimate seconds, steps, tokens;  // unset where `reached` is 0
  Estimate step_ms;                 // mean of a run's steps without the first
  std::optional<Estimate> joules;
  std::optional<Sooner> first;  // compared with the workload's first row that reached the loss
};
template <class Archive>
void fields(Archive& a, Any<TimeToLoss> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, loss, reached)
  if (x.reached == 0) return;
  a("interval", interval_name(x.reached));
  STEPLADDER_EACH(STEPLADDER_FIELD, seconds, steps, step_ms, tokens)
  a.if_any("joules", x.joules);
  a.if_any("first", x.first);
}

/// A variant on a workload over its rounds: a row of the report. There are numbers where every run is ok.
struct ResultRow {
  std::string variant, backend, workload, peer;
  Status status = Status::ok;  // the first run's that is not ok, with its reason
  std::string reason;
  int64_t rounds = 0;
  Json config = Json::object();
  /// Rounds in which the device was throttled or shared: the numbers are without them. Where all rounds were
  /// disturbed, the numbers are of these, and reports claim nothing from them.
  int64_t disturbed_rounds = 0;
  std::string disturbance;  // what disturbed the first such round: "throttled" or "shared"
  bool disturbed() const { return rounds > 0 && disturbed_rounds == rounds; }

  struct Numbers : Measured<Estimate> {
    std::optional<Estimate> tokens_per_joule;  // where every round has joules
    double final_loss = 0.0;
    std::optional<TimeToLoss> to_loss;       // of runs until a loss
    std::optional<double> break_even_steps;  // steps until a longer first step than the rung below's pays off
    std::optional<Speedup> previous;         // the nearest rung below that took part
    std::optional<Speedup> baseline;         // the lowest rung
    std::vector<Speedup> peers;  // a rung's counterparts: "pytorch/02_tf32" for 02_tf32, "llmc" for all
  };
  std::optional<Numbers> numbers;
  /// Whether reports may claim something from its numbers.
  bool claimable() const { return numbers && !disturbed(); }
  /// What training until a loss took; null where there are no numbers, or no loss was asked for.
  const TimeToLoss* to_loss() const { return numbers && numbers->to_loss ? &*numbers->to_loss : nullptr; }
  Rounds runs;  // runs that the numbers are of, in the results
};
/// How many times faster row `after` is than row `before`; nothing where a row is missing, or nothing may be
/// claimed from its numbers.
std::optional<Estimate> speedup(const ResultRow* before, const ResultRow* after);
template <class Archive>
void fields(Archive& a, Any<ResultRow::Numbers> auto& x) {
  measured_fields(a, x);
  a.if_any("tokens_per_joule", x.tokens_per_joule);
  STEPLADDER_EACH(STEPLADDER_FIELD, final_loss)
  a.if_any("break_even_steps", x.break_even_steps);
  a.if_any("to_loss", x.to_loss);
  a("speedup_previous", x.previous);
  a("speedup_baseline", x.baseline);
  a("speedup_peers", x.peers);
}

/// Rows as they first appear, not compared with each other yet. Runs of independent ranks make no rows:
/// scaling() compares other runs with them.
std::vector<ResultRow> rows_of(const Results& results);

}  // namespace stepladder
