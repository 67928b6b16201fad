#include "bench/report/ablation.h"

#include <algorithm>
#include <array>

#include "bench/base/text.h"
#include "bench/plan/ladder_file.h"
#include "bench/results/crossing.h"
#include "bench/results/rounds.h"
#include "model/error.h"

namespace stepladder {
namespace {

/// The strings among the items of a list in a file.
std::vector<std::string> strings_at(const Json& json, const char* key) {
  std::vector<std::string> strings;
  if (const auto list = json.find(key); list != json.end())
    for (const Json& item : *list)
      if (item.is_string()) strings.push_back(item);
  return strings;
}

/// The rung of a variant: "03_fused_adamw" of "without/03_fused_adamw".
std::string rung_of(const std::string& variant) {
  return variant.substr(is_ablation(variant) ? variant.find('/') + 1 : 0);
}

/// The variant that an ablation is measured against; `tuned` is the tuned rung of the results.
std::string reference_of(const Ladder& ladder, const std::string& name, const std::string& tuned) {
  const Ablation* const ablation = listed_ablation(name);
  if (ablation && ablation->reference.name != tuned_rung(ladder).name) return ablation->reference.name;
  return name.starts_with(kWithout) ? tuned : ladder.rungs.front().name;
}

bool looks_for_batch(const std::string& variant) {
  const Rung* rung = our_rung(rung_of(variant));
  return rung && rung->batch == BatchSize::largest;
}

/// Model, B and T of all runs, but of rungs that look for their batch, as they first appear.
std::vector<Json> configs_of(const Results& results) {
  std::vector<Json> configs;
  for (const Run& run : results.runs) {
    const Json config = {
        {"model", run.config.at("model")}, {"B", run.config.at("B")}, {"T", run.config.at("T")}};
    if (!looks_for_batch(run.variant)) add_once(configs, config);
  }
  return configs;
}

/// The runs of a variant on a workload, or on any if the variant looks for its batch.
Rounds ablation_rounds(const Results& results, const std::string& variant, const std::string& workload) {
  Rounds rounds;
  for (const Run& run : results.runs)
    if (run.variant == variant && (run.workload() == workload || looks_for_batch(variant)))
      rounds[run.round] = &run;
  return rounds;
}

int64_t live_peak(const Rounds& rounds) {
  int64_t peak = 0;
  for (const auto& [round, run] : rounds) peak = std::max(peak, run->summary->memory.live_peak);
  return peak;
}

Gain gain_of(const Results& results, const std::string& before, const std::string& after,
             const std::string& workload) {
  Gain gain{.before = before, .after = after};
  Rounds from = ablation_rounds(results, before, workload), to = ablation_rounds(results, after, workload);
  const std::pair<const std::string&, Rounds&> sides[] = {{before, from}, {after, to}};
  for (const auto& [variant, rounds] : sides) {
    if (rounds.empty()) gain.status = "missing", gain.reason = variant + " was not measured";
    for (const auto& [round, run] : rounds)
      if (gain.ok() && run->status != Status::ok)
        gain.status = name_of(run->status),
        gain.reason = cat(variant, run->reason.empty() ? "" : ": ", run->reason);
    if (!gain.ok()) return gain;
  }
  for (const auto& [variant, rounds] : sides) {
    const std::string disturbance = rounds.begin()->second->disturbance();
    drop_disturbed(rounds);
    if (!rounds.empty()) continue;
    gain.status = disturbance;
    gain.reason = cat(variant, " was ", disturbance, " in every round");
    return gain;
  }
  if (const auto ratio = speedup(from, to)) {
    gain.ratio = *ratio;
    if (const int64_t was = live_peak(from), is = live_peak(to); was > 0 && is > 0)
      gain.saved_bytes = was - is;
    gain.to_loss = sooner(from, to);
    if (number_at(results.plan, "until_loss") && !gain.to_loss)
      gain.status = "not reached", gain.reason = cat(before, " and ", after, " reached the loss in no round");
  } else {
    gain.status = "missing", gain.reason = cat(before, " and ", after, " have no round in common");
  }
  return gain;
}

/// What one switch is worth beside another, from the runs with both off, each alone, and both on: over the
/// rounds in which `of` is known of all four. Nothing where there is no such round.
template <class Of>
std::optional<Estimate> interaction(const Rounds (&four)[4], Of of) {
  std::vector<double> ratios;
  for (const auto& [round, run] : four[3]) {
    std::vector<double> values;
    for (const Rounds& rounds : four)
      if (const auto at = rounds.find(round);
          at != rounds.end() && at->second->status == Status::ok && !at->second->disturbed())
        if (const std::optional<double> value = of(*at->second)) values.push_back(*value);
    if (values.size() == 4) ratios.push_back(values[1] * values[2] / (values[0] * values[3]));
  }
  return ratios.empty() ? std::nullopt : std::optional(median_over_rounds(ratios));
}

/// The variant of two switches alone: "both/compile+fused".
std::string pair_of(const std::string& one, const std::string& other) {
  return cat(kBoth, "/", one, "+", other);
}

}  // namespace

const Rung& tuned_rung(const Ladder& ladder) {
  const auto tuned = std::find_if(ladder.rungs.rbegin(), ladder.rungs.rend(),
                                  [](const Rung& rung) { return rung.ablated(); });
  return tuned == ladder.rungs.rend() ? ladder.rungs.front() : *tuned;
}

std::string tuned_rung(const Results& results) {
  if (of_switches(results)) return kAllOn;
  const auto measured = [&](const Rung& rung) {
    return rung.ablated() && std::ranges::find(results.runs, rung.name, &Run::variant) != results.runs.end();
  };
  const Ladder ladder = ladder_of(results);
  const auto& rungs = ladder.rungs;
  const auto tuned = std::find_if(rungs.rbegin(), rungs.rend(), measured);
  return tuned == rungs.rend() ? tuned_rung(ladder).name : tuned->name;
}

bool is_ablation(const std::string& variant) {
  return std::ranges::any_of(std::array{kWithout, kOnly, kBoth},
                             [&](const char* kind) { return variant.starts_with(cat(kind, "/")); });
}

bool is_rung(const ResultRow& row) {
  return row.peer.empty() && !is_ablation(row.variant);
}

std::vector<Rung> rungs_of_switches(const Ladder& file, const std::vector<std::string>& names,
                                    const std::vector<std::string>& kinds) {
  std::vector<Rung> rungs = {file.with(kAllOff, {})};
  const auto add = [&](const std::string& rung, const std::vector<std::string>& on) {
    rungs.push_back(file.with(rung, on));
  };
  const auto wanted = [&](const char* kind) { return std::ranges::count(kinds, kind) > 0; };
  if (wanted(kOnly))
    for (const std::string& name : names) add(cat(kOnly, "/", name), {name});
  for (size_t i = 0; wanted(kBoth) && i < names.size(); ++i)
    for (size_t j = i + 1; j < names.size(); ++j) add(pair_of(names[i], names[j]), {names[i], names[j]});
  if (wanted(kWithout))
    for (const std::string& name : names) {
      std::vector<std::string> others = names;
      std::erase(others, name);
      add(cat(kWithout, "/", name), others);
    }
  add(kAllOn, names);
  rungs.back().parent = kAllOff;
  return rungs;
}

std::vector<AblatedRung> ablated_rungs(const Results& results) {
  const Json plan = results.plan.value("ablate", Json::object());
  const auto names = strings_at(plan, "rungs"), kinds = strings_at(plan, "kinds");
  if (names.empty()) return {};
  const Json unchanged = plan.is_object() ? plan.value("unchanged", Json()) : Json();
  const auto among = [](const std::string& name, const std::vector<std::string>& list) {
    return std::ranges::count(list, name) > 0;
  };
  const std::vector<Json> configs = configs_of(results);
  const auto largest = std::max_element(configs.begin(), configs.end(),
                                        [](const Json& a, const Json& b) { return a["B"] < b["B"]; });

  const Ladder ladder = ladder_of(results);
  const std::string tuned = tuned_rung(results);
  std::vector<AblatedRung> rows;
  for (auto config = configs.begin(); config != configs.end(); ++config) {
    const std::string workload = workload_of(*config);
    const auto gain = [&](const std::string& before, const std::string& after) {
      for (const std::string& variant : {before, after})
        if (const auto why = unchanged.find(variant); why != unchanged.end() && why->is_string())
          return Gain{before, after, "unchanged", cat(variant, " ", why->get<std::string>())};
      return gain_of(results, before, after, workload);
    };
    if (of_switches(results)) {
      for (const std::string& name : names) {
        AblatedRung& row = rows.emplace_back(AblatedRung{name, *config, {}, {}, {}});
        if (among(kWithout, kinds)) row.without = gain(cat(kWithout, "/", name), kAllOn);
        if (among(kOnly, kinds)) row.only = gain(kAllOff, cat(kOnly, "/", name));
      }
      continue;
    }
    for (const Rung& rung : ladder.rungs) {
      const bool own_batch = rung.batch == BatchSize::largest;
      if (!among(rung.name, names) || rung.parent.empty() || (own_batch && config != largest)) continue;
      AblatedRung& row =
          rows.emplace_back(AblatedRung{rung.name, *config, gain(rung.parent, rung.name), {}, {}});
      const std::string without = cat(kWithout, "/", rung.name), only = cat(kOnly, "/", rung.name);
      if (among(kWithout, kinds))
        row.without =
            own_batch ? gain(tuned, rung.name) : gain(without, reference_of(ladder, without, tuned));
      if (among(kOnly, kinds)) row.only = gain(reference_of(ladder, only, tuned), only);
    }
  }
  return rows;
}

std::vector<AblatedPair> ablated_pairs(const Results& results) {
  if (!of_switches(results)) return {};
  const auto names = strings_at(results.plan.value("ablate", Json::object()), "rungs");
  std::vector<AblatedPair> rows;
  for (const Json& config : configs_of(results)) {
    const std::string workload = workload_of(config);
    for (size_t i = 0; i < names.size(); ++i)
      for (size_t j = i + 1; j < names.size(); ++j) {
        const std::string both = pair_of(names[i], names[j]);
        if (rounds_of(results, {both, workload}).empty()) continue;
        AblatedPair& row = rows.emplace_back(
            AblatedPair{names[i], names[j], config, gain_of(results, kAllOff, both, workload), {}, {}, {}});
        const Rounds four[] = {rounds_of(results, {kAllOff, workload}),
                               rounds_of(results, {cat(kOnly, "/", names[i]), workload}),
                               rounds_of(results, {cat(kOnly, "/", names[j]), workload}),
                               rounds_of(results, {both, workload})};
        row.interaction = interaction(four, [](const Run& run) -> std::optional<double> {
          return run.summary->to_loss ? mean_step_ms(run) : run.summary->median_step_ms;
        });
        const auto until = [](double ReachedLoss::*of) {
          return [of](const Run& run) {
            const std::optional<ReachedLoss> took = reached_loss(run);
            return took ? std::optional((*took).*of) : std::nullopt;
          };
        };
        row.seconds = interaction(four, until(&ReachedLoss::seconds));
        row.steps = interaction(four, until(&ReachedLoss::steps));
      }
  }
  return rows;
}

bool of_switches(const Results& results) {
  const Json ladder = results.plan.value("ladder", Json());
  return ladder.is_object() && ladder.contains("switches") && results.plan.contains("ablate");
}

std::vector<const Gain*> gains_of(const AblatedRung& row) {
  return {row.ladder ? &*row.ladder : nullptr, row.without ? &*row.without : nullptr,
          row.only ? &*row.only : nullptr};
}

}  // namespace stepladder
