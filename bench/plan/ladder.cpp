#include "bench/plan/ladder.h"

#include <algorithm>
#include <map>

#include "bench/base/text.h"
#include "bench/results/json.h"
#include "model/nearest.h"

namespace stepladder {

// Generated: variants/ladder.json, and name and source of each ablation that is built.
extern const char* const kLadderJson;
std::vector<std::pair<std::string, std::string>> built_ablations();

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
  if (rung.beside) return {rung.name};
  return {rung.name, rung.name.substr(0, underscore), rung.name.substr(underscore + 1)};
}

/// Whether the rung's GEMMs run on something else than those of the rung before.
bool sets_math(const Rung& rung) {
  return !rung.parent.empty() && rung.math != find_rung(rung.parent).math;
}

Rung only_row(const Rung& rung, const Rung& reference) {
  Rung row = reference;
  row.changes = reference.parent.empty() ? cat("nothing is clever but: ", rung.changes)
                                         : cat(reference.changes, "; ", rung.changes);
  row.compute_capability = std::max(reference.compute_capability, rung.compute_capability);
  row.tolerance = std::max(reference.tolerance, rung.tolerance);
  if (sets_math(rung)) row.math = rung.math;
  return row;
}

Rung without_row(const Rung& rung, const Rung& last, const Rung& reference) {
  Rung row = reference;
  row.changes = reference.name == last.name ? cat("everything but: ", rung.changes)
                                            : cat(reference.changes, "; ", rung.changes);
  if (sets_math(rung)) {
    row.math = find_rung(rung.parent).math;
    row.tolerance = find_rung(rung.parent).tolerance;
  }
  for (const Rung& other : ladder())  // what the rung had taken the place of is back
    if (other.name <= last.name && other.name != rung.name &&
        (other.subsumed_by.empty() || other.subsumed_by == rung.name))
      row.compute_capability = std::max(row.compute_capability, other.compute_capability);
  return row;
}

}  // namespace

std::string Rung::source() const {
  return cat("variants/", beside ? "beside/" : "", trainer, ".cpp");
}

std::string Rung::requirement() const {
  std::string text = compute_capability == 0 ? "" : cat("sm_", compute_capability);
  if (devices > 1) text += cat(text.empty() ? "" : ", ", devices, " devices");
  return text;
}

std::vector<Rung> ladder_from(const std::string& json) {
  const Json table = parse_json(json);
  std::vector<Rung> rungs;
  try {
    for (const Json& row : table.at("rungs")) {
      Rung& rung = rungs.emplace_back();
      row.at("name").get_to(rung.name);
      rung.trainer = row.value("trainer", rung.name);
      rung.group = row.value("group", "");
      if (!row.at("parent").is_null()) row.at("parent").get_to(rung.parent);
      row.at("changes").get_to(rung.changes);
      rung.compute_capability = count_at(row.at("requires"), "compute_capability");
      if (row.at("requires").contains("devices")) rung.devices = count_at(row.at("requires"), "devices");
      rung.math = math_mode(row.at("math"));
      row.at("tolerance").get_to(rung.tolerance);
      rung.diff_budget = count_at(row, "diff_budget");
      if (row.value("batch", "") == "largest") rung.batch = BatchSize::largest;
      rung.beside = row.value("beside", false);
      rung.sharded = row.value("sharded", false);
      rung.needs = row.value("needs", "");
      rung.subsumed_by = row.value("subsumed_by", "");
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

const Rung* listed(const std::string& name) {
  const size_t at = height(name);
  return at < ladder().size() ? &ladder()[at] : nullptr;
}

size_t height(const std::string& name) {
  const auto found =
      std::find_if(ladder().begin(), ladder().end(), [&](const Rung& r) { return r.name == name; });
  return static_cast<size_t>(found - ladder().begin());
}

std::vector<std::string> ancestors(const std::string& name) {
  std::vector<std::string> names;
  for (const Rung* rung = listed(name); rung && !rung->parent.empty(); rung = listed(rung->parent))
    names.push_back(rung->parent);
  return names;
}

std::vector<Rung> chosen_rungs(const std::vector<std::string>& names) {
  if (names == std::vector<std::string>{"all"}) return ladder();
  std::vector<bool> wanted(ladder().size(), false);
  const auto place = [](const std::string& name) { return &find_rung(name) - ladder().data(); };
  for (const std::string& name : names) {
    const size_t dash = name.find('-');
    const auto first = place(name.substr(0, dash));
    const auto last = dash == std::string::npos ? first : place(name.substr(dash + 1));
    if (last < first) throw InputError(cat("--rungs ", name, ": the ladder has them the other way round"));
    std::fill(wanted.begin() + first, wanted.begin() + last + 1, true);
  }
  std::vector<Rung> rungs;
  for (size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i]) rungs.push_back(ladder()[i]);
  return rungs;
}

std::string Ablation::unchanged() const {
  return source.empty()
             ? cat("changes nothing in ", reference.name, ": ", rung.subsumed_by, " takes its place")
             : "";
}

std::string Ablation::program() const {
  return cat(kind, '_', rung.name);
}

namespace {

std::vector<Ablation> all_ablations() {
  const auto built = built_ablations();
  if (built.empty()) return {};
  std::vector<Rung> rungs;
  for (const Rung& rung : ladder())
    if (rung.ablated()) rungs.push_back(rung);
  const Rung first = ladder().front(), last = rungs.back();

  const auto source_of = [&](const std::string& name) {
    for (const auto& [ablation, source] : built)
      if (name == ablation) return source;
    return std::string();
  };
  std::map<std::string, Ablation> found;
  const auto add = [&](const char* kind, const Rung& rung, const Rung& reference, Rung row) {
    const std::string name = cat(kind, '/', rung.name);
    row.name = name;
    row.parent = reference.name;
    found[name] = {name, kind, rung, reference, source_of(name), row};
  };
  for (const Rung& rung : rungs) {
    const Rung& reference = rung.needs.empty() ? first : found.at("only/" + rung.needs).row;
    add("only", rung, reference, only_row(rung, reference));
  }
  for (auto rung = rungs.rbegin(); rung != rungs.rend(); ++rung) {
    const auto needing = std::ranges::find(rungs, rung->name, &Rung::needs);
    const bool with_it = source_of("without/" + rung->name) == "merge" && needing != rungs.end();
    const Rung& reference = with_it ? found.at("without/" + needing->name).row : last;
    add("without", *rung, reference, without_row(*rung, last, reference));
  }
  std::vector<Ablation> all;
  for (const Rung& rung : rungs)
    for (const char* kind : {"without/", "only/"}) all.push_back(found.at(kind + rung.name));
  return all;
}

}  // namespace

const std::vector<Ablation>& ablations() {
  static const std::vector<Ablation> all = all_ablations();
  return all;
}

const Ablation* listed_ablation(const std::string& name) {
  const auto found = std::ranges::find(ablations(), name, &Ablation::name);
  return found != ablations().end() ? &*found : nullptr;
}

Rung row_of(const std::string& trainer) {
  if (trainer.find('/') == std::string::npos) return find_rung(trainer);
  if (const Ablation* ablation = listed_ablation(trainer)) return ablation->row;
  throw InputError(cat("unknown trainer '", trainer, "': no ablation is called that"));
}

std::string unsupported_reason(const Rung& rung, const DeviceInfo& device) {
  if (device.backend == "cpu" || device.compute_capability >= rung.compute_capability) return "";
  return cat("needs sm_", rung.compute_capability, ", this is sm_", device.compute_capability, " (",
             device.name, ")");
}

const char* name_of(MathMode mode) {
  constexpr const char* kNames[] = {"fp32", "tf32", "half", "fp8"};
  return kNames[static_cast<size_t>(mode)];
}

void check_devices(const Rung& rung, int64_t channels, int64_t devices) {
  if (!rung.sharded || channels % devices == 0) return;
  std::vector<std::string> good;
  for (int64_t n = 2; n <= std::max<int64_t>(16, 2 * devices) && n <= channels; ++n)
    if (channels % n == 0) good.push_back(std::to_string(n));
  throw InputError(cat(rung.name, ": ", devices, " devices cannot share the optimizer state of ", channels,
                       " channels in equal parts: take a number that divides them, such as ",
                       join(good, ", ")));
}

}  // namespace stepladder
