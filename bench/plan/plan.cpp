#include "bench/plan/plan.h"

#include <algorithm>

#include "model/error.h"
#include "model/random.h"

namespace stepladder {
namespace {

/// A program at a batch, on each number of devices that it is asked for.
void add_runs(const Plan& plan, const Program& program, int64_t batch, int64_t round,
              std::vector<PlannedRun>& runs) {
  if (program.devices == 1) {
    runs.push_back({program, batch, round});
  } else if (plan.devices.empty() && plan.devices_present < program.devices) {
    runs.push_back({program, batch, round, 1, cat("needs ", program.devices, " devices")});
  } else {
    for (const int64_t devices : plan.devices.empty() ? std::vector{plan.devices_present} : plan.devices) {
      PlannedRun run{program, plan.scaling == "strong" ? batch / devices : batch, round, devices};
      runs.push_back(run);
      run.apart = plan.apart && devices > 1 && program.peer.empty();
      if (run.apart) runs.push_back(run);
    }
  }
}

}  // namespace

std::vector<PlannedRun> runs_of(const Plan& plan, int64_t round) {
  std::vector<PlannedRun> runs;
  for (int64_t batch : plan.batch)
    for (const Program& program : plan.programs)
      if (!plan.own_batch.contains(program.variant)) add_runs(plan, program, batch, round, runs);
  for (const Program& program : plan.programs)
    if (const auto own = plan.own_batch.find(program.variant); own != plan.own_batch.end())
      runs.push_back({program, own->second, round});
  if (plan.order == "abba" && round % 2 == 1) std::reverse(runs.begin(), runs.end());
  if (plan.order == "shuffled") {  // Fisher and Yates
    const uint64_t seed = random_bits(plan.order_seed, static_cast<uint64_t>(round));
    for (size_t i = runs.size(); i > 1; --i) std::swap(runs[i - 1], runs[random_bits(seed, i) % i]);
  }
  return runs;
}

Json config_of(const Plan& plan, const PlannedRun& run) {
  const RungSettings& s = plan.settings;
  Json config = {{"model", *s.model}, {"B", run.batch}, {"T", *s.seq}, {"seed", s.seed}};
  if (run.devices > 1) config["world_size"] = run.devices;
  if (run.apart) config["apart"] = true;
  return config;
}

RunRequest request_for(const Plan& plan, const PlannedRun& run, const std::string& device_name,
                       double timeout_s) {
  RungSettings s = plan.settings;
  RunRequest request;
  request.program = run.program;
  request.source_hash = plan.source_hashes.at(run.program.variant);
  request.device_name = device_name;
  request.round = run.round;
  request.config = config_of(plan, run);
  request.backend = s.backend;
  request.devices = run.devices;
  request.steps = s.steps;
  request.warmup = plan.warmup;
  request.timeout_s = timeout_s;
  request.arguments = {"--model", *s.model,
                       "--batch", std::to_string(run.batch),
                       "--seq",   std::to_string(*s.seq),
                       "--steps", std::to_string(s.steps),
                       "--vocab", s.vocab};
  if (!s.val_data.empty())
    request.arguments.insert(request.arguments.end(), {"--eval-every", std::to_string(s.steps)});
  if (run.apart) request.arguments.emplace_back("--apart");
  if (run.devices > 1) s.device = 0;  // each rank's own
  const auto shared = s.shared_arguments(run.program.math, !run.program.peer.empty());
  request.arguments.insert(request.arguments.end(), shared.begin(), shared.end());
  return request;
}

Json Plan::json() const {
  std::vector<std::string> rungs, peers;
  for (const Program& program : programs) (program.peer.empty() ? rungs : peers).push_back(program.variant);
  Json json = {{"rungs", rungs},
               {"peers", peers},
               {"model", settings.model.value()},
               {"batch", batch},
               {"own_batch", own_batch},
               {"seq", settings.seq.value()},
               {"steps", settings.steps},
               {"warmup", warmup},
               {"rounds", stopping.rounds},
               {"order", order},
               {"order_seed", order == "shuffled" ? Json(order_seed) : Json()},
               {"until_ci", stopping.until_ci ? Json(*stopping.until_ci) : Json()},
               {"max_rounds", stopping.until_ci ? Json(stopping.max_rounds) : Json()},
               {"max_time_s", stopping.max_time_s ? Json(*stopping.max_time_s) : Json()},
               {"source_hashes", source_hashes}};
  RungSettings told = settings;
  json.update(options_json(told.shared_options(), {RungSettings::kData, RungSettings::kTraining,
                                                   RungSettings::kDevice, RungSettings::kOps}));
  if (!ablate.is_null()) json["ablate"] = ablate;
  if (std::any_of(programs.begin(), programs.end(), [](const Program& p) { return p.devices > 1; })) {
    json["devices"] = devices.empty() ? std::vector{devices_present} : devices;
    json["scaling"] = scaling;
    if (apart) json["apart"] = true;
    json["runs_in_round"] = runs_of(*this, 0).size();
  }
  return json;
}

}  // namespace stepladder
