#include "bench/results/results.h"

#include <algorithm>
#include <limits>
#include <set>

#include "model/error.h"

namespace stepladder {

const char* name_of(Status status) {
  constexpr const char* kNames[] = {"ok", "oom", "unsupported", "diverged", "crash", "timeout"};
  return kNames[static_cast<size_t>(status)];
}

std::string workload_of(const Json& config) {
  const int64_t devices = world_size(config);
  return cat(config.at("model").get<std::string>(), " B=", config.at("B").get<int64_t>(),
             " T=", config.at("T").get<int64_t>(),
             devices > 1
                 ? cat(" on ", devices, has_independent_ranks(config) ? " independent" : "", " devices")
                 : "");
}

bool has_independent_ranks(const Json& config) {
  const auto found = config.find("independent_ranks");
  return found != config.end() && *found == true;
}

int config_depth(const Json& config) {
  int depth = 0;
  for (const Json& value : config) depth = std::max(depth, value.is_structured() ? config_depth(value) : 0);
  return depth + 1;
}

int64_t world_size(const Json& config) {
  const auto found = config.find("world_size");
  return found == config.end() ? 1 : found->get<int64_t>();
}

int64_t global_batch(const Json& config) {
  const auto batch = config.at("B").get<int64_t>(), devices = world_size(config);
  return batch <= std::numeric_limits<int64_t>::max() / devices ? batch * devices : 0;
}

double tokens_of(const Json& config) {
  const auto found = config.find("accumulate");
  const bool whole = config.contains(kWholeBatch) && config[kWholeBatch] == true;
  const double micro_batches =
      !whole && found != config.end() && found->is_number() ? found->get<double>() : 1.0;
  return config.at("B").get<double>() * config.at("T").get<double>() *
         static_cast<double>(world_size(config)) * std::max(1.0, micro_batches);
}

bool same_task(const Json& one, const Json& other) {
  return one.at("model") == other.at("model") && one.at("T") == other.at("T") &&
         tokens_of(one) == tokens_of(other);
}

std::optional<bool> DeviceState::throttled() const {
  static const std::set<std::string> cuts = {"hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown",
                                             "hw_power_brake"};
  if (!throttle) return std::nullopt;
  return std::ranges::any_of(*throttle, [](const std::string& reason) { return cuts.contains(reason); });
}

Json Results::environment() const {
  const Json set = context.is_object() ? context.value("environment", Json::object()) : Json();
  return set.is_object() ? set : Json::object();
}

Json Results::device() const {
  return context.is_object() ? context.value("device", Json::object()) : Json::object();
}

std::string Results::device_model() const {
  const Json of = device();
  const std::string name = of.contains("name") ? text_at(of, "name") : "unknown";
  const std::string cores = text_at(context, "cores");
  return text_at(of, "backend") == "cpu" && !cores.empty()
             ? cat(name, ", ", cores, cores == "1" ? " core" : " cores")
             : name;
}

std::string Results::device_of(const Run& run) const {
  if (!run.device.empty()) return run.device;
  const std::string uuid = whole_text_at(device(), "uuid");
  return uuid.empty() ? whole_text_at(context, "host") : uuid;
}

std::set<std::string> Results::cards() const {
  std::set<std::string> uuids;
  for (const Run& run : runs) uuids.insert(device_of(run));
  return uuids;
}

int64_t Results::rounds_begun() const {
  std::set<int64_t> rounds;
  for (const Run& run : runs) rounds.insert(run.round);
  return std::ssize(rounds);
}

const Run* Results::find(const RowKey& row, int64_t round) const {
  const auto found =
      std::ranges::find_if(runs, [&](const Run& run) { return run.round == round && run.is_of(row); });
  return found == runs.end() ? nullptr : &*found;
}

}  // namespace stepladder
