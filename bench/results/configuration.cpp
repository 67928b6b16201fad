#include "bench/results/configuration.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "bench/base/text.h"
#include "bench/results/json.h"
#include "model/error.h"

namespace stepladder {
namespace {

void add(Json& to, const std::string& of, const Json& from, std::initializer_list<const char*> keys) {
  for (const char* key : keys) to[of + key] = from.is_object() ? from.value(key, Json()) : Json();
}

/// How the configurations of two runs of a row differ; "" where they are alike.
std::string unlike(const Run& first, const Run& run) {
  const bool same = first.source_hash == run.source_hash && first.backend == run.backend;
  if (same && first.config == run.config) return "";
  Json was = configuration_of(first), is = configuration_of(run);
  was["sources"] = first.source_hash, is["sources"] = run.source_hash;
  Json both = was;
  both.update(is);
  std::vector<std::string> texts;
  for (const auto& [field, value] : both.items()) {
    const Json before = was.value(field, Json()), after = is.value(field, Json());
    const auto shown = [](const Json& told) { return told.is_null() ? "none" : printable(dump(told), 100); };
    if (before != after && dump(before) != dump(after))  // also as a file keeps them
      texts.push_back(cat(printable(field, 100), " ", shown(before), " / ", shown(after)));
  }
  if (texts.empty()) return "";
  return cat(printable(run.variant, 100), ", ", printable(run.workload(), 100), ": its runs of rounds ",
             first.round, " and ", run.round,
             " are of different configurations or sources: ", join(texts, ", "),
             "; a row has one: leave out of what a trainer tells of itself what differs in each run, or "
             "measure them apart, into two files");
}

}  // namespace

Json configuration_of(const Results& results) {
  const Json ladder = results.plan.value("ladder", Json()), device = results.device();
  Json all = {{"ladder", ladder.is_null() ? Json("Stepladder's") : Json(text_at(ladder, "name"))}};
  all["environment"] = results.environment();
  add(all, "device.", device, {"backend", "name", "compute_capability"});
  if (text_at(device, "backend") == "cpu") {  // there the host is the device
    add(all, "", results.context, {"cpu", "cores"});
    if (results.context.contains("thread_environment")) add(all, "", results.context, {"thread_environment"});
  }
  add(all, "plan.", results.plan,
      {"model", "seq", "steps", "warmup", "until_loss", "data", "val_data", "lr"});
  for (const char* key : {"eval_every", "eval_batches", "eval_skip"})  // older files don't tell
    if (results.plan.contains(key)) add(all, "plan.", results.plan, {key});
  return all;
}

Json configuration_of(const Run& run) {
  Json all = {{"backend", run.backend}};
  for (const auto& [key, value] : run.config.items())
    if (key != "seed" && key != "versions") all["config." + key] = value;
  return all;
}

std::map<std::string, std::string> versions_told(const Results& results) {
  std::map<std::string, std::set<std::string>> told;
  for (const Run& run : results.runs)
    if (const Json versions = run.config.value("versions", Json()); versions.is_object())
      for (const auto& [name, version] : versions.items())
        if (version.is_string()) told[printable(name, 60)].insert(printable(version.get<std::string>(), 100));
  std::map<std::string, std::string> all;
  for (const auto& [name, versions] : told) all[name] = join({versions.begin(), versions.end()}, ", ");
  return all;
}

std::string settings_of(const Json& config) {
  static const std::vector<std::pair<const char*, Json>> defaults = {
      {"dtype", nullptr},       {"accumulate", 1},        {"attention", "auto"},  {"compute_capability", 0},
      {"deterministic", false}, {"narrow_access", false}, {"late_launch", false}, {"nccl", false}};
  std::vector<std::string> parts;
  for (const auto& [name, usual] : defaults)
    if (config.value(name, usual) != usual) {
      std::string words = name;
      std::ranges::replace(words, '_', ' ');
      parts.push_back(cat(words, " ", text_at(config, name)));
    }
  return join(parts, ", ");
}

std::vector<Difference> differences(const Json& was, const Json& is) {
  const auto text = [](const Json& of, const std::string& field) {
    std::string all = whole_text_at(of, field);
    const std::string key = field.substr(field.find('.') + 1);
    if (key != "data" && key != "val_data" && key != "vocab") return all;
    const std::filesystem::path path = all;
    return (path.has_filename() ? path : path.parent_path()).filename().string();
  };
  std::vector<Difference> found;
  for (const auto& item : is.items()) {
    if (!was.contains(item.key())) continue;
    Difference one = {item.key(), text(was, item.key()), text(is, item.key())};
    if (one.was != one.is) found.push_back(std::move(one));
  }
  return found;
}

void require_alike(const Results& results, const Run& run) {
  if (!run.summary) return;
  const RowKey row = run.row();
  const auto first = std::ranges::find_if(
      results.runs, [&](const Run& other) { return other.summary.has_value() && other.is_of(row); });
  if (first == results.runs.end()) return;
  if (const std::string why = unlike(*first, run); !why.empty()) throw Error(why, kExitNotComparable);
}

void require_alike(const Results& results, const std::string& what) {
  std::map<RowKey, const Run*> firsts;
  for (const Run& run : results.runs) {
    if (!run.summary) continue;
    const Run& first = *firsts.emplace(run.row(), &run).first->second;
    if (const std::string why = unlike(first, run); !why.empty())
      throw Error(cat(what, ": ", why), kExitNotComparable);
  }
}

}  // namespace stepladder
