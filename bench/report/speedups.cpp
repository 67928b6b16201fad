#include "bench/report/speedups.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/base/text.h"
#include "bench/plan/ladder_file.h"
#include "bench/report/ablation.h"
#include "bench/report/scaling.h"
#include "bench/results/configuration.h"
#include "bench/results/run_json.h"
#include "bench/results/writer.h"

namespace stepladder {
namespace {

/// Steps after which a longer first step has paid off; nothing where the first step isn't longer, or never
/// pays off.
std::optional<double> break_even(const ResultRow::Numbers& before, const ResultRow::Numbers& after) {
  const double invested = after.first_step_ms - before.first_step_ms;
  const double saved = before.median_step_ms.value - after.median_step_ms.value;
  if (!(invested > 0.0 && saved > 0.0)) return std::nullopt;
  return std::ceil(invested / saved);
}

/// The row of `variant` that `row` is compared with; null where there is none.
const ResultRow* held_against(const std::string& variant, const ResultRow& row,
                              const std::vector<ResultRow>& rows, bool strong, const Ladder& ladder) {
  const ResultRow* best = nullptr;
  const Rung* rung = ladder.listed(row.variant);
  const bool own_batch = rung && rung->batch != BatchSize::usual;
  const auto size = [](const ResultRow& of) {
    return std::pair(of.status == Status::ok, of.config.at("B").get<int64_t>());
  };
  for (const ResultRow& other : rows) {
    if (other.backend != row.backend || other.variant != variant) continue;
    if (other.workload == row.workload) return &other;
    // A rung on several devices is compared with the rungs below it that run on one device.
    if (world_size(row.config) > 1 && other.workload == workload_of(on_one_device(row.config, strong)))
      best = &other;
    // A rung that has chosen its batch is compared with the others at their largest batch that fits.
    const bool same_but_for_batch = other.config.at("model") == row.config.at("model") &&
                                    other.config.at("T") == row.config.at("T") &&
                                    world_size(other.config) == world_size(row.config);
    if (own_batch && same_but_for_batch && (!best || size(other) > size(*best))) best = &other;
  }
  return best;
}

std::optional<Speedup> compare(const ResultRow* other, const ResultRow& row) {
  const auto ratio = speedup(other, &row);
  return ratio ? std::optional(Speedup{other->variant, *ratio}) : std::nullopt;
}

void add_speedups(ResultRow& row, const std::vector<ResultRow>& rows, bool strong, const Ladder& ladder) {
  ResultRow::Numbers& numbers = *row.numbers;
  const auto against = [&](const std::string& name) { return held_against(name, row, rows, strong, ladder); };
  const auto below = ladder.ancestors(row.variant);
  const auto previous = std::ranges::find_if(below, against);
  if (previous != below.end()) {
    const ResultRow& before = *against(*previous);
    numbers.previous = compare(&before, row);
    if (numbers.compile && before.workload == row.workload && before.claimable() && !row.disturbed())
      numbers.break_even_steps = break_even(*before.numbers, numbers);
  }
  if (!below.empty()) numbers.baseline = compare(against(below.back()), row);
  if (!row.peer.empty()) return;
  for (const ResultRow& other : rows) {
    const bool counterpart = other.variant == other.peer || other.variant == other.peer + "/" + row.variant;
    if (other.peer.empty() || !counterpart || other.workload != row.workload || other.backend != row.backend)
      continue;
    if (const auto speedup = compare(&other, row)) numbers.peers.push_back(*speedup);
  }
}

/// Compares what training until a loss took with the first undisturbed row of its workload that reached it.
void add_speedups_to_loss(std::vector<ResultRow>& rows) {
  std::map<std::string, const ResultRow*> firsts;  // by workload
  for (ResultRow& row : rows) {
    if (row.disturbed() || !row.to_loss() || row.to_loss()->reached == 0) continue;
    const ResultRow& first = *firsts.emplace(row.workload, &row).first->second;
    row.numbers->to_loss->first = sooner(first.runs, row.runs);
  }
}

}  // namespace

template <class Archive>
void fields(Archive& a, Any<ResultRow> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, variant, backend, config, status, reason, rounds)
  a.if_any("peer", x.peer);
  if (x.disturbed_rounds > 0) {
    STEPLADDER_EACH(STEPLADDER_FIELD, disturbed_rounds, disturbance)
    a("disturbed", x.disturbed());
  }
  std::vector<int64_t> counted;
  for (const auto& [round, run] : x.runs) counted.push_back(round);
  a("counted", counted);
  a("interval", interval_name(std::ssize(counted)));
  a.if_any("settings", settings_of(x.config));
  if (x.numbers) fields(a, *x.numbers);
}

template <class Archive>
void fields(Archive& a, Any<GroupGain> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, name, before, rungs, config, ratio)
  a("pytorch", x.pytorch);
}

std::vector<ResultRow> aggregate(const Results& results) {
  std::vector<ResultRow> rows = rows_of(results);
  const Ladder ladder = ladder_of(results);
  std::map<std::string, size_t> workloads;  // in the order of their first rows
  for (const ResultRow& row : rows) workloads.emplace(row.workload, workloads.size());
  std::ranges::stable_sort(rows, {}, [&](const ResultRow& row) {
    return std::pair(workloads.at(row.workload), ladder.height(row.variant));
  });
  const bool strong = results.plan.value("scaling", Json()) == "strong";
  for (ResultRow& row : rows)
    if (row.numbers) add_speedups(row, rows, strong, ladder);
  add_speedups_to_loss(rows);
  return rows;
}

namespace {

/// The rungs that a ladder has as one group, and the rung before the first of them.
struct Group {
  std::string name, before;
  std::vector<std::string> rungs;
};
std::vector<Group> groups_in(const Ladder& ladder) {
  std::vector<Group> groups;
  for (const Rung& rung : ladder.rungs) {
    if (rung.group.empty()) continue;
    const auto there = std::ranges::find(groups, rung.group, &Group::name);
    if (there == groups.end())
      groups.push_back({rung.group, rung.parent, {rung.name}});
    else
      there->rungs.push_back(rung.name);
  }
  return groups;
}

std::vector<GroupGain> group_gains(const Findings& file) {
  std::vector<std::string> workloads;
  for (const ResultRow& row : file.rows) add_once(workloads, row.workload);
  std::vector<GroupGain> gains;
  for (const std::string& workload : workloads)
    for (const Group& group : groups_in(file.ladder)) {
      const std::string& last = group.rungs.back();
      const auto ratio = speedup(file.find(group.before, workload), file.find(last, workload));
      if (!ratio) continue;
      GroupGain& of = gains.emplace_back(GroupGain{group.name, workload, group.before, {}, {}, *ratio, {}});
      of.config = file.find(last, workload)->config;
      for (const std::string& rung : group.rungs)
        if (file.find(rung, workload)) of.rungs.push_back(rung);
      of.pytorch =
          speedup(file.find("pytorch/" + group.before, workload), file.find("pytorch/" + last, workload));
    }
  return gains;
}

}  // namespace

Findings::Findings(const Results& results)
    : ladder(ladder_of(results)),
      rows(aggregate(results)),
      ablated(ablated_rungs(results)),
      pairs(ablated_pairs(results)),
      scaled(scaling(results)),
      predicted(predicted_scaling(results)),
      of_(&results) {
  groups = group_gains(*this);
  if (const auto loss = number_at(results.plan, "certify_loss"))
    certificates = stepladder::certificates(results, *loss);
}

const ResultRow* Findings::find(const std::string& variant, const std::string& workload) const {
  const auto found = std::ranges::find_if(
      rows, [&](const ResultRow& row) { return row.variant == variant && row.workload == workload; });
  return found == rows.end() ? nullptr : &*found;
}

Json to_json(const ResultRow& row) {
  return Writer::write(row);
}

Json results_file_json(const Findings& findings) {
  Json json = to_json(findings.results());
  json["variants"] = Writer::write(findings.rows);
  const auto add = [&](const char* key, const auto& rows) {
    if (!rows.empty()) json[key] = Writer::write(rows);
  };
  add("ablations", findings.ablated);
  add("interactions", findings.pairs);
  add("scaling", findings.scaled);
  add("scaling_predicted", findings.predicted);
  add("groups", findings.groups);
  return json;
}

}  // namespace stepladder
