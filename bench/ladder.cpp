#include "bench/ladder.h"

#include "bench/results.h"
#include "model/nearest.h"

namespace stepladder {

extern const char* const kLadderJson;  // generated from variants/ladder.json

namespace {

constexpr MathMode kMathModes[] = {MathMode::fp32, MathMode::tf32, MathMode::half, MathMode::fp8};

MathMode math_mode(const std::string& name) {
  for (MathMode mode : kMathModes)
    if (name == name_of(mode)) return mode;
  throw InputError(cat("unknown math ", Json(name).dump()));
}

int count_at(const Json& row, const char* key) {
  const Json& value = row.at(key);
  if (!value.is_number_unsigned() || value > 1'000'000) throw InputError(cat(key, " is not a count"));
  return value.get<int>();
}

/// What a user may call a rung: "02_tf32", "02", "tf32".
std::vector<std::string> names_of(const Rung& rung) {
  const size_t underscore = rung.name.find('_');
  return {rung.name, rung.name.substr(0, underscore), rung.name.substr(underscore + 1)};
}

}  // namespace

std::string Rung::requirement() const {
  return compute_capability == 0 ? "" : cat("sm_", compute_capability);
}

std::vector<Rung> ladder_from(const std::string& json) {
  const Json table = parse_json(json);
  std::vector<Rung> rungs;
  try {
    for (const Json& row : table.at("rungs")) {
      Rung& rung = rungs.emplace_back();
      row.at("name").get_to(rung.name);
      if (!row.at("parent").is_null()) row.at("parent").get_to(rung.parent);
      row.at("changes").get_to(rung.changes);
      rung.compute_capability = count_at(row.at("requires"), "compute_capability");
      rung.math = math_mode(row.at("math"));
      row.at("tolerance").get_to(rung.tolerance);
      rung.diff_budget = count_at(row, "diff_budget");
      if (row.value("batch", "") == "largest") rung.batch = BatchSize::largest;
      if (!(rung.tolerance >= 0.0)) throw InputError("tolerance is not negative");
    }
  } catch (const Json::exception& e) {
    throw InputError(cat("ladder.json: rungs[", rungs.size(), "]: ", e.what()));
  }
  return rungs;
}

const std::vector<Rung>& ladder() {
  static const std::vector<Rung> rungs = ladder_from(kLadderJson);
  return rungs;
}

const Rung& find_rung(const std::string& name) {
  std::vector<std::string> candidates;
  for (const Rung& rung : ladder()) {
    for (const std::string& candidate : names_of(rung)) {
      if (name == candidate) return rung;
      candidates.push_back(candidate);
    }
  }
  throw InputError(cat("unknown rung '", name, "': did you mean '", nearest(name, candidates), "'?"));
}

std::string unsupported_reason(const Rung& rung, const DeviceInfo& device) {
  if (device.backend == "cpu" || device.compute_capability >= rung.compute_capability) return "";
  return cat("needs ", rung.requirement(), ", this is sm_", device.compute_capability, " (", device.name,
             ")");
}

const char* name_of(MathMode mode) {
  switch (mode) {
    case MathMode::fp32:
      return "fp32";
    case MathMode::tf32:
      return "tf32";
    case MathMode::half:
      return "half";
    case MathMode::fp8:
      return "fp8";
  }
  throw std::logic_error("unknown math mode");
}

}  // namespace stepladder
