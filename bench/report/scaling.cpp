#include "bench/report/scaling.h"

#include <algorithm>
#include <set>

#include "bench/plan/ladder_file.h"
#include "bench/report/scaling_model.h"
#include "bench/results/rounds.h"

namespace stepladder {
namespace {

constexpr int64_t kPredicted[] = {2, 4, 8, 16, 32, 64};  // devices

/// The runs of a row that are ok and not disturbed, by round; empty where a run is not ok.
Rounds good_rounds(const Results& results, const RowKey& row) {
  Rounds rounds = rounds_of(results, row);
  if (std::ranges::any_of(rounds, [](const auto& r) { return r.second->status != Status::ok; })) return {};
  drop_disturbed(rounds);
  return rounds;
}

/// The variants on one device that `variant` may be compared with, best first: itself, then the rungs below,
/// or, where all of those compute in other types, rungs of the ladder that compute in the same types. For a
/// peer's rung: the peer's counterparts, and last the variant with the peer's own name.
std::vector<std::string> bases(const std::string& variant, const Ladder& ladder) {
  const size_t own = variant.find('/') + 1;  // 0 where there is no peer
  const Rung* rung = ladder.listed(variant.substr(own));
  const auto alike = [&](const std::string& name) {
    const Rung* other = ladder.listed(name);
    return rung && other && other->math == rung->math && other->devices == 1;
  };
  std::vector<std::string> below = ladder.ancestors(variant.substr(own));
  if (rung && std::ranges::none_of(below, alike)) {
    std::vector<std::string> beside;
    for (const Rung& other : ladder.rungs)
      if (alike(other.name)) beside.push_back(other.name);
    if (!beside.empty()) below = beside;
  }
  std::vector<std::string> names = {variant};
  for (const std::string& name : below) names.push_back(variant.substr(0, own) + name);
  if (own > 0) names.push_back(variant.substr(0, own - 1));
  return names;
}

int64_t machines_of(const Run& run) {
  std::set<std::string> hosts;
  for (const Rank& rank : run.ranks) hosts.insert(rank.host);
  return std::max<int64_t>(1, std::ssize(hosts));
}

/// A scaled run with the rounds on one device that it is compared with.
struct Scaled {
  ScaledRun row;
  Rounds one;
};

std::vector<Scaled> scaled_runs(const Results& results) {
  const bool strong = results.plan.value("scaling", Json()) == "strong";
  const Ladder ladder = ladder_of(results);
  std::vector<Scaled> all;
  std::set<RowKey> seen;
  for (const Run& run : results.runs) {
    const int64_t devices = world_size(run.config);
    const RowKey key = run.row();
    if (devices == 1 || has_independent_ranks(run.config) || !seen.insert(key).second) continue;
    const Rounds rounds = good_rounds(results, key);
    const Json one_config = on_one_device(run.config, strong);
    Json independent_config = run.config;
    independent_config["independent_ranks"] = true;
    const Rounds independent = good_rounds(results, {run.variant, workload_of(independent_config)});
    for (const std::string& base : bases(run.variant, ladder)) {
      const Rounds one = good_rounds(results, {base, workload_of(one_config)});
      const auto ratio = speedup(one, rounds);
      if (!ratio) continue;
      const auto share = [&](const Estimate& of_all) {
        return stepladder::scaled(of_all, 1.0 / static_cast<double>(devices));
      };
      std::vector<double> rates;
      for (const auto& [round, r] : rounds) rates.push_back(r->summary->tokens_per_second);
      Scaled& scaled = all.emplace_back();
      ScaledRun& row = scaled.row;
      row.variant = run.variant;
      row.against = base;
      row.config = run.config;
      row.devices = devices;
      row.machines = machines_of(*rounds.begin()->second);
      row.one_batch = one_config["B"];
      row.tokens_per_second = median_over_rounds(rates);
      row.speedup = *ratio;
      row.efficiency = share(*ratio);
      if (!strong) row.exposed_ms = longer(rounds, one);
      if (const auto by_themselves = speedup(one, independent))
        row.independent_efficiency = share(*by_themselves);
      row.communication_ms = longer(rounds, independent);
      scaled.one = one;
      break;
    }
  }
  return all;
}

/// Bytes of gradients, which are what a step reduces; 0 where unknown.
double gradient_bytes(const Run& run) {
  double bytes = 0.0;
  for (const auto& [name, size] : run.summary->memory.by_name)
    if (name.starts_with("grads/")) bytes += static_cast<double>(size);
  return bytes;
}

}  // namespace

Json on_one_device(Json config, bool strong) {
  if (strong) config["B"] = global_batch(config);
  config["world_size"] = 1;
  return config;
}

std::vector<ScaledRun> scaling(const Results& results) {
  std::vector<ScaledRun> rows;
  for (Scaled& scaled : scaled_runs(results)) rows.push_back(std::move(scaled.row));
  return rows;
}

std::vector<PredictedRun> predicted_scaling(const Results& results) {
  const auto link = nominal_link(text_at(results.device(), "name"));
  std::vector<PredictedRun> rows;
  if (!link || results.plan.value("scaling", Json()) == "strong") return rows;
  for (const auto& [row, one] : scaled_runs(results)) {
    const auto same = [&, variant = row.variant, batch = row.one_batch](const PredictedRun& p) {
      return p.variant == variant && p.batch == batch;
    };
    const double bytes = gradient_bytes(*one.begin()->second);
    if (!(bytes > 0.0) || std::ranges::any_of(rows, same)) continue;
    std::vector<double> ms;
    for (const auto& [round, run] : one) ms.push_back(run->summary->median_step_ms);
    const double compute_s = median(ms) * 1e-3;
    const double tokens = static_cast<double>(row.one_batch) * row.config.at("T").get<double>();
    for (const int64_t devices : kPredicted) {
      const double step_s = predicted_step_s(compute_s, bytes, devices, *link);
      rows.push_back({row.variant, row.one_batch, devices,
                      (devices + kDevicesPerMachine - 1) / kDevicesPerMachine,
                      tokens * static_cast<double>(devices) / step_s, compute_s / step_s});
    }
  }
  return rows;
}

}  // namespace stepladder
