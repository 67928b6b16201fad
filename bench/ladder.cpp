#include "bench/ladder.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/nearest.h"

namespace stepladder {

extern const char* const kLadderJson;  // generated from variants/ladder.json

namespace {

constexpr MathMode kMathModes[] = {MathMode::fp32, MathMode::tf32, MathMode::half, MathMode::fp8};

MathMode math_mode(const std::string& name) {
  for (MathMode mode : kMathModes)
    if (name == name_of(mode)) return mode;
  throw std::logic_error("ladder.json: unknown math '" + name + "'");
}

std::vector<Rung> parse_ladder() {
  const auto table = nlohmann::json::parse(kLadderJson);
  std::vector<Rung> rungs;
  for (const auto& row : table.at("rungs")) {
    Rung& rung = rungs.emplace_back();
    row.at("name").get_to(rung.name);
    if (!row.at("parent").is_null()) row.at("parent").get_to(rung.parent);
    row.at("changes").get_to(rung.changes);
    row.at("requires").at("compute_capability").get_to(rung.compute_capability);
    rung.math = math_mode(row.at("math"));
    row.at("tolerance").get_to(rung.tolerance);
    row.at("diff_budget").get_to(rung.diff_budget);
    if (row.value("batch", "") == "largest") rung.batch = BatchSize::largest;
  }
  return rungs;
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

const std::vector<Rung>& ladder() {
  static const std::vector<Rung> rungs = parse_ladder();
  return rungs;
}

std::string Ablation::unchanged() const {
  return source.empty() ? cat("changes nothing in ", reference.name) : "";
}

std::string Ablation::program() const {
  return cat(kind, '_', rung.name);
}

std::vector<Ablation> ablations() {
  std::vector<Ablation> all;
  const auto tuned = std::find_if(ladder().rbegin(), ladder().rend(),
                                  [](const Rung& rung) { return rung.batch == BatchSize::usual; });
  for (const Rung& rung : ladder()) {
    if (rung.parent.empty() || rung.batch != BatchSize::usual) continue;
    all.push_back(
        {"without/" + rung.name, "without", rung, *tuned, rung.name == "02_tf32" ? "" : "merge", *tuned});
    all.push_back({"only/" + rung.name, "only", rung, ladder().front(), "merge", rung});
  }
  return all;
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
