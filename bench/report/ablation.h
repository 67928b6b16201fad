// What an optimisation buys, asked three ways: on its place in the ladder, last of all, and alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/base/statistics.h"
#include "bench/plan/ladder.h"
#include "bench/results/json.h"
#include "bench/results/results.h"
#include "bench/results/rounds.h"

namespace stepladder {

/// A ladder file's trainer as `kinds` of ablations have its switches `names`: all off, then each alone
/// (kOnly), each two (kBoth), each left out (kWithout), last all on; its other switches are off.
std::vector<Rung> rungs_of_switches(const Ladder& file, const std::vector<std::string>& names,
                                    const std::vector<std::string>& kinds);

/// The last rung that is ablated(), out of which the "without" ablations leave a rung; the first rung of the
/// ladder where none is ablated.
const Rung& tuned_rung(const Ladder& ladder = stepladder::ladder());
/// The rung that the results' ablations start from: the last ablated() one that they have, since the ladder
/// may have grown; where switches were ablated, kAllOn, the variant with all of them on.
std::string tuned_rung(const Results& results);

/// Whether a variant is called as "without/03_fused_adamw", "only/03_fused_adamw" or "both/compile+fused".
bool is_ablation(const std::string& variant);
/// Whether a row is of a rung: neither an ablation nor a peer.
bool is_rung(const ResultRow& row);

/// How many times faster `after` is than `before`, two variants. A number only where all runs of both are ok.
struct Gain {
  std::string before, after;
  /// "ok", or the status of a run that is not ok; "unchanged" where the rung changes nothing, so that nothing
  /// is measured; "missing" while unfinished; "throttled" or "shared" where one of the two was in every
  /// round; "not reached" where they were to reach a loss, and in no round both did.
  std::string status = "ok";
  std::string reason = {};
  Estimate ratio = {};  // of times per token, over rounds without disturbance; over 1: `after` is faster
  std::optional<Sooner> to_loss = {};       // where the plan is to a loss; then there whenever this is ok
  std::optional<int64_t> saved_bytes = {};  // live peak of `before` less that of `after`, where both told it

  bool ok() const { return status == "ok"; }
  /// The ratio by which a gain is judged: of seconds to the loss, where the loss was the aim, else of time
  /// per token.
  const Estimate& worth() const { return to_loss ? to_loss->seconds : ratio; }
};
template <class Archive>
void fields(Archive& a, Any<Gain> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, before, after, status, reason)
  if (!x.ok()) return;
  estimate_fields(a, "ratio", x.ratio);
  a("rounds", x.ratio.rounds);
  a.if_any("saved_bytes", x.saved_bytes);
  a.if_any("to_loss", x.to_loss);
}

/// A rung or a switch on a workload, ablated. A rung that looks for its batch has a single row, compared with
/// others at their largest batch.
struct AblatedRung {
  std::string rung;
  Json config;                  // model, B and T of the trainer it is measured against
  std::optional<Gain> ladder;   // the rung before -> the rung; nothing for a switch
  std::optional<Gain> without;  // the tuned rung without it -> the tuned rung; where asked for
  std::optional<Gain> only;     // the first rung -> the first rung with it alone; where asked for
};
template <class Archive>
void fields(Archive& a, Any<AblatedRung> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, rung, config)
  a.if_any("ladder", x.ladder);
  a.if_any("without", x.without);
  a.if_any("only", x.only);
}

/// The names of a row's three gains, and the gains in that order: a null pointer where `ablate --kinds` left
/// one out.
inline constexpr const char* kGains[] = {"ladder gain", "leave-one-out", "only-one"};
std::vector<const Gain*> gains_of(const AblatedRung& row);
/// Whether the switches of a ladder file were ablated, not rungs of ours.
bool of_switches(const Results& results);

/// The ablated rungs or switches, workload by workload in the order of the ladder; empty unless the plan is
/// of an ablation.
std::vector<AblatedRung> ablated_rungs(const Results& results);

/// Two switches on a workload, with all other switches off.
struct AblatedPair {
  std::string one, other;
  Json config;
  Gain both;  // all off -> both on
  /// The interaction: the gain of both over the product of the gains of each alone, in rounds of all four
  /// variants; above 1, each gains more beside the other. For runs until a loss, that of seconds and of steps
  /// too, in rounds in which all four reached the loss.
  std::optional<Estimate> interaction, seconds, steps;
};
template <class Archive>
void fields(Archive& a, Any<AblatedPair> auto& x) {
  a("switches", std::vector{x.one, x.other});
  STEPLADDER_EACH(STEPLADDER_FIELD, config, both)
  a.if_any("interaction", x.interaction);
  a.if_any("seconds", x.seconds);
  a.if_any("steps", x.steps);
}

std::vector<AblatedPair> ablated_pairs(const Results& results);

}  // namespace stepladder
