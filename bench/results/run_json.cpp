#include "bench/results/run_json.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/base/text.h"
#include "bench/results/writer.h"
#include "model/error.h"

namespace stepladder {
namespace {

/// A place in a file, spelt out only where an error names it: a file has a million places.
struct Place {
  const Place* parent = nullptr;
  const char* name = nullptr;  // the field's name; null for a list item
  size_t index = 0;

  std::string text() const {
    if (!parent) return name;
    return name ? cat(parent->text(), ".", name) : cat(parent->text(), "[", index, "]");
  }
};

class Reader {
 public:
  /// Reads an object, or row `row` of an object's columns.
  Reader(const Json& json, const Place& place, std::optional<size_t> row = {})
      : json_(json), place_(place), row_(row) {
    require(json.is_object(), place, "an object");
  }

  template <class T>
  void operator()(const char* key, T& value) const {
    const auto found = json_.find(key);
    const Place place = {.parent = &place_, .name = key};
    if (found == json_.end()) throw InputError(cat(place.text(), " is missing"));
    read(row_ ? (*found)[*row_] : *found, value, place);
  }
  template <class T>
  void added(const char* key, T& value) const {
    if (json_.contains(key)) (*this)(key, value);
  }
  template <class T>
  void if_any(const char* key, T& value) const {
    added(key, value);
  }
  template <class T>
  void if_any(const char* key, std::optional<T>& value) const {
    if (json_.contains(key)) added(key, value.emplace());
  }

 private:
  static void require(bool ok, const Place& place, const char* wanted) {
    if (!ok) throw InputError(cat(place.text(), " is not ", wanted));
  }
  static void read(const Json& json, Status& value, const Place& place) {
    const auto known =
        std::ranges::find_if(kStatuses, [&](Status status) { return json == name_of(status); });
    require(known != std::end(kStatuses), place, "a status");
    value = *known;
  }
  static void read(const Json& json, std::map<std::string, int64_t>& value, const Place& place) {
    require(json.is_object(), place, "an object");
    for (const auto& [key, item] : json.items()) read(item, value[key], place);
  }
  template <class T>
  static void read(const Json& json, std::optional<T>& value, const Place& place) {
    if (!json.is_null()) read(json, value.emplace(), place);
  }
  /// Reads steps from their columns, all of one length; numbers whose column is missing are unknown.
  static void read(const Json& json, std::vector<Step>& steps, const Place& place) {
    require(json.is_object(), place, "an object of columns");
    const auto ms = json.find("step_ms");
    steps.resize(ms != json.end() && ms->is_array() ? ms->size() : 0);
    Json columns = Json::object();
    for (const auto& [key, column] : json.items()) {
      const Place here = {.parent = &place, .name = key.c_str()};
      Json& whole = columns[key] =
          column.is_object() ? run_length_decoded(column, steps.size(), here) : column;
      require(whole.is_array() && whole.size() == steps.size(), here, "a list as long as step_ms");
    }
    for (size_t i = 0; i < steps.size(); ++i) {
      steps[i].step = static_cast<int64_t>(i);
      const Reader reader(columns, place, i);
      fields(reader, steps[i]);
    }
  }
  /// A column of `steps` items that was run-length encoded as {"values": [61, 60], "times": [3, 2]}.
  static Json run_length_decoded(const Json& encoded, size_t steps, const Place& place) {
    const Json values = encoded.value("values", Json()), times = encoded.value("times", Json());
    require(values.is_array() && times.is_array() && values.size() == times.size(), place,
            "a list, nor \"values\" with as many \"times\"");
    Json column = Json::array();
    for (size_t i = 0; i < times.size(); ++i) {
      const auto many = times[i].is_number_integer() ? times[i].get<int64_t>() : 0;
      require(many > 0 && static_cast<size_t>(many) <= steps - column.size(), place,
              "as long as step_ms: its \"times\" come to another number");
      for (int64_t time = 0; time < many; ++time) column.push_back(values[i]);
    }
    return column;
  }
  template <class T>
  static void read(const Json& json, std::vector<T>& values, const Place& place) {
    require(json.is_array(), place, "a list");
    values.reserve(json.size());
    for (size_t i = 0; i < json.size(); ++i)
      read(json[i], values.emplace_back(), Place{.parent = &place, .index = i});
  }
  template <class T>
  static void read(const Json& json, T& value, const Place& place) {
    constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
    if constexpr (requires(const Reader reader) { fields(reader, value); }) {
      const Reader reader(json, place);
      fields(reader, value);
    } else {
      if constexpr (std::same_as<T, bool>) require(json.is_boolean(), place, "true or false");
      if constexpr (std::same_as<T, double>) require(json.is_number(), place, "a number");
      if constexpr (std::same_as<T, std::string>) require(json.is_string(), place, "a string");
      if constexpr (std::same_as<T, Json>) require(json.is_object(), place, "an object");
      if constexpr (std::same_as<T, int64_t>)
        require(json.is_number_integer() && !(json.is_number_unsigned() && json.get<uint64_t>() > kMax),
                place, "a 64-bit whole number");
      value = json.get<T>();
    }
  }

  const Json& json_;
  const Place& place_;
  const std::optional<size_t> row_;
};

/// Makes joules and cycles that are not positive unknown: the counter stood still.
void check_counters(Run& run) {
  const auto check = [](std::optional<double>& value) {
    const bool wrong = value && !(*value > 0.0);
    if (wrong) value.reset();
    return wrong;
  };
  if (run.summary) {
    check(run.summary->cycles);
    if (run.summary->to_loss) check(run.summary->to_loss->joules);
    if (check(run.summary->joules) && run.summary->joules_unknown.empty())
      run.summary->joules_unknown = kStill;
  }
  for (Rank& rank : run.ranks) check(rank.joules);
}

constexpr int64_t kMaxRound = 1'000'000'000;

/// Marks the warm-up, and checks what summaries, rows and charts rely on.
void check_and_mark_warmup(Run& run) {
  const auto require = [&](bool ok, const char* problem) {
    if (!ok) throw InputError(cat("run: ", problem));
  };
  const auto positive = [&](const char* field) {
    const auto found = run.config.find(field);
    return found != run.config.end() && found->is_number_integer() && *found > 0;
  };
  require(run.config.contains("model") && run.config["model"].is_string() && positive("B") && positive("T"),
          "config must name a model and positive B and T");
  require(config_depth(run.config) <= kMaxConfigDepth, "config is nested too deep");
  require(
      !run.config.contains("world_size") || (positive("world_size") && run.config["world_size"] <= 1'000'000),
      "config's world_size is no number of devices");
  require(std::isfinite(tokens_of(run.config)), "config's tokens of a step are not finite");
  require(run.round >= 0 && run.round <= kMaxRound, "its round is none");
  for (Step& step : run.steps) {
    step.warmup = run.summary && step.step < run.summary->warmup_steps;
    require(step.step_ms > 0.0, "a step's step_ms is not positive");
  }
  check_counters(run);
  for (const Rank& rank : run.ranks)
    for (const double ms : rank.step_ms) require(ms > 0.0, "a rank's step_ms is not positive");
  if (run.status != Status::ok) return;
  require(run.summary.has_value(), "is ok, yet has no summary");
  require(run.summary->median_step_ms > 0.0, "median_step_ms is not positive");
  require(run.summary->warmup_steps >= 0, "warmup_steps is negative");
  require(run.summary->memory.live_peak >= 0, "live_peak is negative");
  if (const auto& until = run.summary->to_loss) {
    require(until->steps > 0, "to_loss has no step");
    require(until->steps == 1 || until->seconds * 1e3 > run.summary->first_step_ms,
            "to_loss has fewer seconds than its first step");
  }
  require(std::ranges::any_of(run.steps, [](const Step& step) { return !step.warmup; }),
          "is ok, yet has no timed step");
  require(run.steps.back().loss.has_value(), "is ok, yet its last loss is not finite");
  for (const Evaluation& e : run.evaluations)
    require(e.seconds || (e.step >= 0 && e.step <= std::ssize(run.steps)),
            "is evaluated after its last step");
}

}  // namespace

Json to_json(const Run& run) {
  return Writer::write(run);
}

Json to_json(const Results& results) {
  Json json = {{"schema", kSchema},
               {"complete", results.complete},
               {"context", results.context},
               {"plan", results.plan},
               {"stopped", results.stopped}};
  json["runs"] = Writer::write(results.runs);
  return json;
}

void check_schema(const Json& json, int64_t oldest) {
  const Place place = {.name = "the file"};
  int64_t schema = 0;
  Reader(json, place)("schema", schema);
  if (schema < oldest || schema > kSchema)
    throw InputError(cat("schema ", schema, ", this version reads ", kSchema));
}

Run run_from(const Json& json) {
  Run run;
  const Place place = {.name = "run"};
  const Reader reader(json, place);
  fields(reader, run);
  check_and_mark_warmup(run);
  return run;
}

}  // namespace stepladder
