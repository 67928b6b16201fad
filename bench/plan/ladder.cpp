#include "bench/plan/ladder.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>

#include "bench/base/json_fields.h"
#include "bench/base/text.h"
#include "bench/results/json.h"
#include "bench/run/placeholders.h"
#include "model/nearest.h"

namespace stepladder {

// Generated: folder and table of each ladder of ours, and name and source of each ablation that is built.
std::vector<std::pair<std::string, std::string>> built_ladders();
std::vector<std::pair<std::string, std::string>> built_ablations();

namespace {

constexpr const char* kTime = "stepladder";  // the ladder of time, whose file has no name

constexpr MathMode kMathModes[] = {MathMode::fp32, MathMode::tf32, MathMode::half, MathMode::fp8};

MathMode math_mode(const std::string& name) {
  for (MathMode mode : kMathModes)
    if (name == name_of(mode)) return mode;
  throw InputError(cat("unknown math ", Json(name).dump(), ": fp32, tf32, half or fp8"));
}

using Words = std::vector<std::string>;

std::string text_or_none(const Json& row, const char* key) {
  return field_if<std::string>(row, key).value_or("");
}

Words words_at(const Json& row, const char* key) {
  return field_if<Words>(row, key).value_or(Words());
}

/// A field's whole number from `least` to `most`; nothing where the field is missing.
std::optional<int64_t> count_if(const Json& row, const char* key, int64_t least = 0,
                                int64_t most = kMaxWorkload) {
  if (!row.contains(key)) return std::nullopt;
  const Json& value = row.at(key);
  if (!value.is_number_integer() || value < least || value > most)
    throw InputError(cat(key, " is not a whole number from ", least, " to ", most));
  return value.get<int64_t>();
}

int count_at(const Json& row, const char* key, int fallback, int64_t least, int64_t most) {
  return static_cast<int>(count_if(row, key, least, most).value_or(fallback));
}

/// Checks that `name` can be a path's part, a list's item and a table's cell. Throws InputError if it can't.
void check_name(const std::string& name) {
  const auto good = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '.'; };
  if (name.empty() || name.size() > 60 || !std::ranges::all_of(name, good) || !std::isalnum(name.front()))
    throw InputError(
        cat("'", printable(name, 60),
            "' is no name: letters, digits, '_', '-' and '.', 60 at most, a letter or digit first"));
}

/// What a user may call a rung: "02_tf32", "02", "tf32".
std::vector<std::string> names_of(const Rung& rung) {
  const size_t digits = rung.name.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string::npos || rung.name[digits] != '_') return {rung.name};
  return {rung.name, rung.name.substr(0, digits), rung.name.substr(digits + 1)};
}

/// Whether a rung changes its parent's math mode.
bool sets_math(const Rung& rung) {
  return !rung.parent.empty() && rung.math != our_rung(rung.parent)->math;
}

/// Bits of a number type called "bf16", "torch.float32" or the like; 0 for an unknown name.
int bits_of(const std::string& dtype) {
  static const std::vector<std::pair<int, std::vector<const char*>>> kinds = {
      {8, {"fp8", "float8", "e4m3", "e5m2"}},
      {16, {"bf16", "bfloat16", "fp16", "f16", "float16", "half"}},
      {32, {"fp32", "f32", "float32"}}};
  for (const auto& [bits, names] : kinds)
    if (std::ranges::any_of(names, [&](const char* name) { return dtype.find(name) != dtype.npos; }))
      return bits;
  return 0;
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

Rung without_row(const Ladder& ladder, const Rung& rung, const Rung& last, const Rung& reference) {
  Rung row = reference;
  row.changes = reference.name == last.name ? cat("everything but: ", rung.changes)
                                            : cat(reference.changes, "; ", rung.changes);
  if (sets_math(rung)) {
    row.math = ladder.find(rung.parent).math;
    row.tolerance = ladder.find(rung.parent).tolerance;
  }
  for (const Rung& other : ladder.rungs)  // rungs that this one had replaced are back
    if (other.name <= last.name && other.name != rung.name &&
        (other.subsumed_by.empty() || other.subsumed_by == rung.name))
      row.compute_capability = std::max(row.compute_capability, other.compute_capability);
  return row;
}

/// Keys of a rung of ours, of a rung of a ladder file, and of such a file for all its rungs at once.
const Words kOurKeys = {"name",  "parent",    "changes", "group",   "trainer",     "requires", "math",
                        "batch", "tolerance", "beside",  "sharded", "diff_budget", "needs",    "subsumed_by"},
            kFileKeys = {"name",      "parent",      "changes", "group",     "requires",
                         "math",      "batch",       "source",  "sources",   "version",
                         "tolerance", "environment", "command", "arguments", "switches"},
            kSharedKeys = {"requires",    "math",   "command", "tolerance",
                           "environment", "source", "sources", "version"};

Rung rung_from(const Json& row, bool ours) {
  if (!row.is_object()) throw InputError("it is no object");
  check_keys(row, ours ? kOurKeys : kFileKeys);
  Rung rung;
  rung.name = field_at<std::string>(row, "name");
  check_name(rung.name);
  rung.trainer = field_if<std::string>(row, "trainer").value_or(rung.name);
  rung.group = text_or_none(row, "group");
  rung.parent = text_or_none(row, "parent");
  rung.changes = field_at<std::string>(row, "changes");
  if (row.contains("requires")) {
    if (!row["requires"].is_object()) throw InputError("requires is not an object");
    check_keys(row["requires"], {"compute_capability", "devices"});
    rung.compute_capability = count_at(row["requires"], "compute_capability", 0, 0, 1000);
    rung.devices = count_at(row["requires"], "devices", 1, 1, kMaxDevices);
  }
  if (!ours) rung.math.reset();
  if (const auto math = field_if<std::string>(row, "math")) rung.math = math_mode(*math);
  rung.tolerance = field_if<double>(row, "tolerance").value_or(std::numeric_limits<double>::infinity());
  if (!(rung.tolerance >= 0.0)) throw InputError("its tolerance is negative");
  rung.diff_budget = count_at(row, "diff_budget", 0, 0, kMaxWorkload);
  if (const Json batch = row.value("batch", Json()); batch == "largest") {
    rung.batch = BatchSize::largest;
  } else if (!batch.is_null()) {
    if (batch.is_string())
      throw InputError(cat("batch is neither \"largest\" nor a number but ", batch.dump()));
    rung.batch = BatchSize::own;
    rung.own_batch = *count_if(row, "batch", 1);
  }
  rung.beside = field_if<bool>(row, "beside").value_or(false);
  rung.sharded = field_if<bool>(row, "sharded").value_or(false);
  rung.needs = text_or_none(row, "needs");
  rung.subsumed_by = text_or_none(row, "subsumed_by");
  rung.native = ours;
  if (ours) rung.command = {cat("{bin}/", rung.trainer), "{arguments}"};
  if (ours) return rung;
  rung.command = field_at<Words>(row, "command");
  if (rung.command.empty()) throw InputError("command is empty");
  append(rung.command, words_at(row, "arguments"));
  // By name: the order counts for the hash of the rung's sources.
  const Json environment = field_if<Json>(row, "environment").value_or(Json::object());
  for (const auto& [name, value] : environment.get<std::map<std::string, Json>>()) {
    if (!value.is_string()) throw InputError(cat("environment: ", printable(name, 60), " is not a string"));
    if (name.empty() || name.find('=') != std::string::npos)
      throw InputError(cat("environment: '", printable(name, 60), "' is no name of a variable"));
    rung.environment.push_back(cat(name, "=", value.get<std::string>()));
  }
  rung.shown = text_or_none(row, "source");
  rung.sources = words_at(row, "sources");
  if (!rung.shown.empty()) rung.sources.insert(rung.sources.begin(), rung.shown);
  rung.version = words_at(row, "version");
  for (const Words* words : {&rung.command, &rung.environment, &rung.version})
    for (const std::string& word : *words)
      if (word.find('\0') != std::string::npos) throw InputError("a word with a NUL in it");
  return rung;
}

Switch switch_from(const Json& json) {
  if (!json.is_object()) throw InputError("it is no object");
  check_keys(json, {"name", "changes", "on", "off", "excludes"});
  Switch one{.name = field_at<std::string>(json, "name"),
             .changes = text_or_none(json, "changes"),
             .on = words_at(json, "on"),
             .off = words_at(json, "off"),
             .excludes = words_at(json, "excludes")};
  check_name(one.name);
  if (one.on == one.off)
    throw InputError(cat(one.name, " changes nothing: \"on\" and \"off\" are the same words"));
  return one;
}

/// Checks a ladder's switches. Throws InputError for too many, for two of one name, and for one that excludes
/// itself or an unknown switch.
void check_switches(const std::vector<Switch>& switches) {
  if (switches.size() > kMaxSwitches)
    throw InputError(cat("switches: ", switches.size(), " are more than ", kMaxSwitches));
  for (const Switch& one : switches) {
    if (std::ranges::count(switches, one.name, &Switch::name) > 1)
      throw InputError(cat("switches: ", one.name, " is there twice"));
    for (const std::string& other : one.excludes)
      if (other == one.name || std::ranges::count(switches, other, &Switch::name) == 0)
        throw InputError(
            cat("switches: ", one.name, " excludes ", printable(other, 60), ", which is no other one"));
  }
}

/// Replaces {switches} in a command by the words of switches. Throws InputError for an unknown switch, and
/// for two that exclude each other.
void fill_switches(Words& command, const std::vector<Switch>& switches, const Words& on) {
  for (const std::string& name : on) {
    const auto found = std::ranges::find(switches, name, &Switch::name);
    if (found == switches.end()) throw InputError(cat("no switch is called ", printable(name, 60)));
    for (const std::string& other : found->excludes)
      if (std::ranges::count(on, other) > 0)
        throw InputError(cat("the switches ", name, " and ", other,
                             " exclude each other: leave one out (ablate: by --rungs)"));
  }
  const auto place = std::ranges::find(command, kSwitches);
  if (place == command.end()) {
    if (!on.empty()) throw InputError("no word of its command is {switches}, where its switches would go");
    return;
  }
  Words words;
  for (const Switch& one : switches) append(words, std::ranges::count(on, one.name) > 0 ? one.on : one.off);
  command.insert(command.erase(place), words.begin(), words.end());
}

WorkloadDefaults workload_from(const Json& json) {
  if (!json.is_object()) throw InputError("it is no object");
  check_keys(json, {"model", "batch", "seq", "steps", "warmup", "rounds"});
  WorkloadDefaults workload;
  workload.model = field_if<std::string>(json, "model");
  const Json batches = json.value("batch", Json::array());
  if (!batches.is_array() && !batches.is_null()) throw InputError("batch is not a list of whole numbers");
  for (const Json& item : batches) workload.batch.push_back(*count_if({{"batch", item}}, "batch", 1));
  workload.seq = count_if(json, "seq", 1);
  workload.steps = count_if(json, "steps", 1);
  workload.warmup = count_if(json, "warmup");
  workload.rounds = count_if(json, "rounds", 1);
  if (workload.steps && workload.warmup.value_or(0) >= *workload.steps)
    throw InputError(cat("warmup ", *workload.warmup, " leaves none of steps ", *workload.steps, " to time"));
  return workload;
}

std::vector<Ablation> ablations_of(const Ladder& ladder) {
  const auto built = built_ablations();
  std::vector<Rung> rungs = ladder.rungs;
  std::erase_if(rungs, [](const Rung& rung) { return !rung.ablated(); });
  if (built.empty() || rungs.empty()) return {};
  const Rung first = ladder.rungs.front(), last = rungs.back();

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
    const Rung& reference = rung.needs.empty() ? first : found.at(cat(kOnly, "/", rung.needs)).row;
    add(kOnly, rung, reference, only_row(rung, reference));
  }
  for (auto rung = rungs.rbegin(); rung != rungs.rend(); ++rung) {
    const auto needing = std::ranges::find(rungs, rung->name, &Rung::needs);
    const bool with_it = source_of(cat(kWithout, "/", rung->name)) == "merge" && needing != rungs.end();
    const Rung& reference = with_it ? found.at(cat(kWithout, "/", needing->name)).row : last;
    add(kWithout, *rung, reference, without_row(ladder, *rung, last, reference));
  }
  std::vector<Ablation> all;
  for (const Rung& rung : rungs)
    for (const char* kind : {kWithout, kOnly}) all.push_back(found.at(cat(kind, "/", rung.name)));
  return all;
}

}  // namespace

std::string Rung::requirement() const {
  std::string text = compute_capability == 0 ? "" : cat("sm_", compute_capability);
  if (devices > 1) text += cat(text.empty() ? "" : ", ", devices, " devices");
  return text;
}

Ladder ladder_from(const Json& table, const std::string& folder, const std::string& sources) {
  Ladder ladder{.name = kTime, .folder = folder, .workload = {}, .rungs = {}};
  const auto in = [&](const std::string& place, const auto& read) {
    try {
      read();
    } catch (const Json::exception& e) {
      throw InputError(place + e.what());
    } catch (const InputError& e) {
      throw InputError(place + e.what());
    }
  };
  in("", [&] {
    if (!table.is_object()) throw InputError("it is no object");
    Words known = {"name", "workload", "rungs", "switches"};
    if (!ladder.built_in()) append(known, kSharedKeys);
    check_keys(table, known);
    if (!ladder.built_in() || table.contains("name")) ladder.name = field_at<std::string>(table, "name");
    check_name(ladder.name);
    if (!ladder.built_in() && ladder.name != kTime && our_ladder(ladder.name))
      throw InputError(cat("'", ladder.name, "' is what a ladder of ours is called: take another name"));
    if (ladder.name == kWithout || ladder.name == kOnly || ladder.name == kBoth)
      throw InputError(cat("'", ladder.name, "' is what ablations are called: take another name"));
    for (const char* list : {"rungs", "switches"})
      if (table.contains(list) && !table[list].is_array()) throw InputError(cat(list, " is not a list"));
    if (table.value("rungs", Json::array()).empty() && table.value("switches", Json::array()).empty())
      throw InputError("it has no rungs");
  });
  for (const Json& row : table.value("switches", Json::array()))
    in(cat("switches[", ladder.switches.size(), "]: "), [&] { ladder.switches.push_back(switch_from(row)); });
  check_switches(ladder.switches);
  Json shared = Json::object();
  for (const std::string& key : kSharedKeys)
    if (table.contains(key)) shared[key] = table[key];
  if (table.contains("workload"))
    in("workload: ", [&] { ladder.workload = workload_from(table["workload"]); });
  if (!ladder.switches.empty() && shared.contains("command"))
    in("", [&] {
      Json row = shared;
      row["name"] = kAllOff, row["changes"] = "";
      ladder.switched = rung_from(row, /*ours=*/false);
      if (std::ranges::count(ladder.switched->command, kSwitches) == 0)
        throw InputError("switches: no word of its command is {switches}, where they would go");
    });
  if (!table.contains("rungs"))
    in("", [&] {
      if (!ladder.switched) throw InputError("command is missing: what starts its trainer, with {switches}");
      ladder.rungs = {ladder.with(kAllOff, {})};
      if (std::ranges::any_of(ladder.switches, [](const Switch& one) { return !one.excludes.empty(); }))
        return;
      ladder.rungs.push_back(ladder.with(kAllOn, ladder.switch_names()));
      ladder.rungs.back().parent = kAllOff;
    });
  for (const Json& row : table.value("rungs", Json::array()))
    in(cat("rungs[", ladder.rungs.size(), "]: "), [&] {
      Json whole = shared;
      if (row.is_object()) whole.update(row);
      Rung rung = rung_from(row.is_object() ? whole : row, ladder.built_in());
      fill_switches(rung.command, ladder.switches, words_at(whole, "switches"));
      if (ladder.built_in()) rung.shown = cat(sources, rung.beside ? "/beside/" : "/", rung.trainer, ".cpp");
      if (ladder.listed(rung.name)) throw InputError(cat(rung.name, " is there twice"));
      if (!rung.parent.empty() && !ladder.listed(rung.parent) && !ladder.built_in())
        throw InputError(cat("its parent, ", printable(rung.parent, 60), ", is none of those above it"));
      ladder.rungs.push_back(std::move(rung));
    });
  return ladder;
}

const std::vector<Ladder>& our_ladders() {
  static const std::vector<Ladder> ours = [] {
    std::vector<Ladder> all;
    for (const auto& [sources, table] : built_ladders()) {
      try {
        Ladder ladder = ladder_from(parse_json(table), "", sources);
        for (Rung& rung : ladder.rungs)
          for (const Ladder& other : all) {
            if (other.listed(rung.name)) throw InputError(cat(other.name, " has a ", rung.name, " too"));
            if (const Rung* its = other.listed(rung.trainer)) rung.shown = its->shown;
          }
        all.push_back(std::move(ladder));
      } catch (const InputError& e) {
        throw InputError(cat(sources, "/ladder.json: ", e.what()));
      }
    }
    return all;
  }();
  return ours;
}

const Ladder& ladder() {
  return our_ladders().front();
}

const Ladder* our_ladder(const std::string& name) {
  const auto found = std::ranges::find(our_ladders(), name, &Ladder::name);
  return found != our_ladders().end() ? &*found : nullptr;
}

const Rung* our_rung(const std::string& name) {
  for (const Ladder& ladder : our_ladders())
    if (const Rung* rung = ladder.listed(name)) return rung;
  return nullptr;
}

const Rung& find_rung(const std::string& asked) {
  const Rung* rung = our_rung(asked);
  return rung ? *rung : ladder().find(asked);
}

bool Ladder::usual() const {
  return built_in() && name == kTime;
}

const Rung& Ladder::find(const std::string& asked) const {
  if (const Rung* rung = listed(asked)) return *rung;
  std::vector<std::string> candidates, called;
  const Rung* found = nullptr;
  for (const Rung& rung : rungs) {
    for (const std::string& candidate : names_of(rung)) {
      if (asked == candidate) found = &rung, called.push_back(rung.name);
      candidates.push_back(candidate);
    }
  }
  if (called.size() > 1)
    throw InputError(cat("'", asked, "' may be ", join(called, " or "), ": give the whole name"));
  if (found) return *found;
  throw InputError(cat("unknown rung '", printable(asked, 200), "'",
                       suggestion(asked, candidates,
                                  built_in() ? "`stepladder list` names them"
                                             : cat("there are ", join(texts_of(rungs, &Rung::name), ", ")))));
}

const Rung* Ladder::listed(const std::string& asked) const {
  const size_t at = height(asked);
  return at < rungs.size() ? &rungs[at] : nullptr;
}

size_t Ladder::height(const std::string& asked) const {
  return static_cast<size_t>(std::ranges::find(rungs, asked, &Rung::name) - rungs.begin());
}

std::vector<std::string> Ladder::ancestors(const std::string& asked) const {
  std::vector<std::string> names;
  for (const Rung* rung = listed(asked); rung && !rung->parent.empty(); rung = listed(rung->parent))
    names.push_back(rung->parent);
  return names;
}

std::vector<Rung> Ladder::chosen(const std::vector<std::string>& names) const {
  if (names == std::vector<std::string>{"all"}) return rungs;
  std::vector<bool> wanted(rungs.size(), false);
  const auto place = [&](const std::string& asked) { return &find(asked) - rungs.data(); };
  const auto known = [&](const std::string& asked) {
    return std::ranges::any_of(
        rungs, [&](const Rung& rung) { return std::ranges::count(names_of(rung), asked) > 0; });
  };
  for (const std::string& asked : names) {
    const size_t dash = known(asked) ? std::string::npos : asked.find('-');  // a name may have dashes
    if (dash == 0 || dash == asked.size() - 1)
      throw InputError(cat("--rungs ", asked, ": a range has two ends, such as 00-03"));
    const auto first = place(asked.substr(0, dash));
    const auto last = dash == std::string::npos ? first : place(asked.substr(dash + 1));
    if (last < first) throw InputError(cat("--rungs ", asked, ": the ladder has them the other way round"));
    std::fill(wanted.begin() + first, wanted.begin() + last + 1, true);
  }
  std::vector<Rung> found;
  for (size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i]) found.push_back(rungs[i]);
  return found;
}

std::vector<std::string> Ladder::switch_names() const {
  return texts_of(switches, &Switch::name);
}

Rung Ladder::with(const std::string& rung, const std::vector<std::string>& switches_on) const {
  Rung one = switched.value();
  one.name = rung;
  std::vector<std::string> changes;
  for (const Switch& s : switches)
    if (std::ranges::count(switches_on, s.name) > 0) changes.push_back(s.name);
  one.changes = changes.empty() ? "no switch is on" : join(changes, ", ");
  fill_switches(one.command, switches, switches_on);
  return one;
}

Json Ladder::json() const {
  Json rows = Json::array();
  for (const Rung& rung : rungs) {
    Json row = {{"name", rung.name},
                {"parent", rung.parent.empty() ? Json() : Json(rung.parent)},
                {"changes", rung.changes},
                {"group", rung.group},
                {"requires", {{"compute_capability", rung.compute_capability}, {"devices", rung.devices}}},
                {"math", rung.math ? Json(name_of(*rung.math)) : Json()},
                {"tolerance", std::isfinite(rung.tolerance) ? Json(rung.tolerance) : Json()},
                {"command", rung.command}};
    for (const std::string& variable : rung.environment) {  // NAME=value
      const size_t sign = variable.find('=');
      row["environment"][variable.substr(0, sign)] = variable.substr(sign + 1);
    }
    if (rung.batch == BatchSize::largest) row["batch"] = "largest";
    if (rung.batch == BatchSize::own) row["batch"] = rung.own_batch;
    rows.push_back(std::move(row));
  }
  Json json = {{"name", name}, {"rungs", rows}};
  for (const Switch& one : switches)
    json["switches"].push_back(
        {{"name", one.name}, {"changes", one.changes}, {"on", one.on}, {"off", one.off}});
  return json;
}

std::string Ablation::unchanged() const {
  return source.empty()
             ? cat("changes nothing in ", reference.name, ": ", rung.subsumed_by, " takes its place")
             : "";
}

std::string Ablation::program() const {
  return cat(kind, '_', rung.name);
}

const std::vector<Ablation>& ablations() {
  static const std::vector<Ablation> ours = [] {
    std::vector<Ablation> all;
    for (const Ladder& ladder : our_ladders())
      std::ranges::move(ablations_of(ladder), std::back_inserter(all));
    return all;
  }();
  return ours;
}

const Ablation* listed_ablation(std::string_view name) {
  const auto found = std::ranges::find(ablations(), name, &Ablation::name);
  return found != ablations().end() ? &*found : nullptr;
}

Rung row_of(const std::string& trainer) {
  if (trainer.find('/') == std::string::npos) return find_rung(trainer);
  if (const Ablation* ablation = listed_ablation(trainer)) return ablation->row;
  throw InputError(cat("unknown trainer '", trainer, "': no ablation is called that"));
}

const char* name_of(MathMode mode) {
  constexpr const char* kNames[] = {"fp32", "tf32", "half", "fp8"};
  return kNames[static_cast<size_t>(mode)];
}

std::string missing_math(std::optional<MathMode> math, const Json& config) {
  const auto& known = Config::names();
  if (math || std::ranges::find(known, text_at(config, "model")) == known.end()) return "";
  return "\"math\" is missing: without it, as fp32, tf32, half or fp8 in a ladder file, there is no MFU";
}

std::string contradicted_math(std::optional<MathMode> math, const Json& config) {
  const std::string dtype = text_at(config, "dtype");
  const int bits = bits_of(dtype);
  const bool full = math == MathMode::fp32 || math == MathMode::tf32;
  const bool fits = !math || bits == 0 || (math == MathMode::fp8 ? bits < 32 : bits == (full ? 32 : 16));
  return fits ? ""
              : cat("its \"math\" is ", name_of(*math), ", its dtype ", printable(dtype, 60),
                    ": MFU is against the peak of ", name_of(*math));
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
