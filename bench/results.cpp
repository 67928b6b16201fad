#include "bench/results.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>

#include "bench/ablation.h"
#include "bench/ladder.h"
#include "bench/scaling.h"
#include "bench/text.h"
#include "model/error.h"

namespace stepladder {
namespace {

constexpr Status kStatuses[] = {Status::ok,       Status::oom,   Status::unsupported,
                                Status::diverged, Status::crash, Status::timeout};

// ---- fields of each struct, listed once for reading and writing
// ----------------------------------------------

template <class T, class Struct>
concept Any = std::same_as<std::remove_const_t<T>, Struct>;

template <class Archive>
void fields(Archive& a, Any<Step> auto& x) {
  a("step", x.step);
  a("warmup", x.warmup);
  a("step_ms", x.step_ms);
  a("device_ms", x.device_ms);
  a("loss", x.loss);
  a("grad_norm", x.grad_norm);
  a("lr", x.lr);
  a.or_null("sm_mhz", x.device.sm_mhz);
  a.or_null("memory_mhz", x.device.memory_mhz);
  a.or_null("power_w", x.device.power_w);
  a.or_null("temperature_c", x.device.temperature_c);
  a.or_null("throttle", x.device.throttle);
}

template <class Archive>
void fields(Archive& a, Any<Memory> auto& x) {
  a("live_peak", x.live_peak);
  a("reserved_peak", x.reserved_peak);
  a("process_peak", x.process_peak);
  a("by_name", x.by_name);
}

template <class Archive>
void fields(Archive& a, Any<Compile> auto& x) {
  a("search_ms", x.search_ms);
  a("capture_ms", x.capture_ms);
  a("searched", x.searched);
  a("from_cache", x.from_cache);
}

template <class Archive>
void fields(Archive& a, Any<Summary> auto& x) {
  a("median_step_ms", x.median_step_ms);
  a("p10_step_ms", x.p10_step_ms);
  a("p90_step_ms", x.p90_step_ms);
  a("first_step_ms", x.first_step_ms);
  a("startup_ms", x.startup_ms);
  a("warmup_steps", x.warmup_steps);
  a("tokens_per_second", x.tokens_per_second);
  a("mfu_nanogpt", x.mfu_nanogpt);
  a("mfu_llmc", x.mfu_llmc);
  a("val_loss", x.val_loss);
  a("memory_bytes", x.memory);
  a.if_there("compile", x.compile);
  a.if_there("skipped_steps", x.skipped_steps);
  a.or_null("throttled_steps", x.throttled_steps);
  a.or_null("throttled", x.throttled);
}

template <class Archive>
void fields(Archive& a, Any<Rank> auto& x) {
  a("rank", x.rank);
  a("host", x.host);
  a("device", x.device);
  a("step_ms", x.step_ms);
  a("memory_bytes", x.memory);
  a.if_there("sm_mhz", x.sm_mhz);
  a.if_there("power_w", x.power_w);
}

template <class Archive>
void fields(Archive& a, Any<Run> auto& x) {
  a("variant", x.variant);
  a("source_hash", x.source_hash);
  a("backend", x.backend);
  a.unless_empty("peer", x.peer);
  a("round", x.round);
  a("status", x.status);
  a("reason", x.reason);
  a("config", x.config);
  a("steps", x.steps);
  a.unless_empty("ranks", x.ranks);
  a("summary", x.summary);
  a.unless_missing("wall_ms", x.wall_ms);
}

// ---- writing
// -------------------------------------------------------------------------------------------------

class Writer {
 public:
  template <class T>
  void operator()(const char* key, const T& value) {
    json_[key] = write(value);
  }
  template <class T>
  void unless_empty(const char* key, const T& value) {
    if (!value.empty()) (*this)(key, value);
  }
  template <class T>
  void if_there(const char* key, const std::optional<T>& value) {
    if (value) (*this)(key, *value);
  }
  template <class T>
  void or_null(const char* key, const std::optional<T>& value) {
    (*this)(key, value);
  }
  template <class T>
  void unless_missing(const char* key, const T& value) {
    (*this)(key, value);
  }
  Json json() && { return std::move(json_); }

 private:
  template <class T>
  static Json write(const T& value) {
    if constexpr (requires(Writer w) { fields(w, value); }) {
      Writer writer;
      fields(writer, value);
      return std::move(writer).json();
    } else if constexpr (std::same_as<T, Status>) {
      return name_of(value);
    } else {
      return value;
    }
  }
  template <class T>
  static Json write(const std::optional<T>& value) {
    return value ? write(*value) : Json();
  }
  template <class T>
  static Json write(const std::vector<T>& values) {
    Json array = Json::array();
    for (const T& value : values) array.push_back(write(value));
    return array;
  }

  Json json_ = Json::object();
};

template <class T>
Json write(const T& value) {
  Writer writer;
  fields(writer, value);
  return std::move(writer).json();
}

// ---- reading
// -------------------------------------------------------------------------------------------------

/// A place in a file. Spelt out only where an error names it: a file has a million.
struct Place {
  const Place* parent = nullptr;
  const char* name = nullptr;  // of a field; an item of a list has none
  size_t index = 0;

  std::string text() const {
    if (!parent) return name;
    return name ? cat(parent->text(), ".", name) : cat(parent->text(), "[", index, "]");
  }
};

class Reader {
 public:
  Reader(const Json& json, const Place& place) : json_(json), place_(place) {
    require(json.is_object(), place, "an object");
  }

  template <class T>
  void operator()(const char* key, T& value) const {
    const auto found = json_.find(key);
    const Place place = {.parent = &place_, .name = key};
    if (found == json_.end()) throw InputError(cat(place.text(), " is missing"));
    read(*found, value, place);
  }
  template <class T>
  void unless_empty(const char* key, T& value) const {
    if (json_.contains(key)) (*this)(key, value);
  }
  template <class T>
  void if_there(const char* key, std::optional<T>& value) const {
    if (json_.contains(key)) (*this)(key, value.emplace());
  }
  /// Fields that a file written before there were any lacks.
  template <class T>
  void or_null(const char* key, std::optional<T>& value) const {
    unless_missing(key, value);
  }
  template <class T>
  void unless_missing(const char* key, T& value) const {
    if (json_.contains(key)) (*this)(key, value);
  }

 private:
  static void require(bool ok, const Place& place, const char* wanted) {
    if (!ok) throw InputError(cat(place.text(), " is not ", wanted));
  }
  static void read(const Json& json, bool& value, const Place& place) {
    require(json.is_boolean(), place, "true or false");
    value = json.get<bool>();
  }
  static void read(const Json& json, double& value, const Place& place) {
    require(json.is_number(), place, "a number");
    value = json.get<double>();
  }
  static void read(const Json& json, int64_t& value, const Place& place) {
    constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
    require(json.is_number_integer() && !(json.is_number_unsigned() && json.get<uint64_t>() > kMax), place,
            "a 64-bit whole number");
    value = json.get<int64_t>();
  }
  static void read(const Json& json, std::string& value, const Place& place) {
    require(json.is_string(), place, "a string");
    value = json.get<std::string>();
  }
  static void read(const Json& json, Json& value, const Place& place) {
    require(json.is_object(), place, "an object");
    value = json;
  }
  static void read(const Json& json, Status& value, const Place& place) {
    const auto known = std::find_if(std::begin(kStatuses), std::end(kStatuses),
                                    [&](Status status) { return json == name_of(status); });
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
  template <class T>
  static void read(const Json& json, std::vector<T>& values, const Place& place) {
    require(json.is_array(), place, "a list");
    values.reserve(json.size());
    for (size_t i = 0; i < json.size(); ++i)
      read(json[i], values.emplace_back(), Place{.parent = &place, .index = i});
  }
  template <class T>
  static void read(const Json& json, T& value, const Place& place) {
    const Reader reader(json, place);
    fields(reader, value);
  }

  const Json& json_;
  const Place& place_;
};

// ---- rows
// ----------------------------------------------------------------------------------------------------

Json optional(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

Json to_json(const Estimate& estimate, const char* name) {
  const auto& interval = estimate.interval;
  return {{name, estimate.value},
          {"lo", interval ? Json(interval->lo) : Json()},
          {"hi", interval ? Json(interval->hi) : Json()}};
}

Json to_json(const std::optional<Speedup>& speedup) {
  if (!speedup) return nullptr;
  Json json = to_json(speedup->ratio, "ratio");
  json["against"] = speedup->against;
  return json;
}

Json to_json(const Variant& row) {
  Json json = {{"variant", row.variant},        {"backend", row.backend}, {"config", row.config},
               {"status", name_of(row.status)}, {"reason", row.reason},   {"rounds", row.rounds}};
  if (!row.peer.empty()) json["peer"] = row.peer;
  if (row.throttled_rounds > 0) {
    json["throttled_rounds"] = row.throttled_rounds;
    json["throttled"] = row.throttled();
  }
  if (!row.numbers) return json;
  const Variant::Numbers& numbers = *row.numbers;
  json["median_step_ms"] = to_json(numbers.median_step_ms, "value");
  json["p10_step_ms"] = numbers.p10_step_ms;
  json["p90_step_ms"] = numbers.p90_step_ms;
  json["first_step_ms"] = numbers.first_step_ms;
  json["startup_ms"] = numbers.startup_ms;
  json["tokens_per_second"] = to_json(numbers.tokens_per_second, "value");
  json["mfu_nanogpt"] = optional(numbers.mfu_nanogpt);
  json["mfu_llmc"] = optional(numbers.mfu_llmc);
  json["memory_bytes"] = write(numbers.memory);
  json["final_loss"] = numbers.final_loss;
  if (numbers.compile) json["compile"] = write(*numbers.compile);
  if (numbers.skipped_steps) json["skipped_steps"] = *numbers.skipped_steps;
  if (numbers.break_even_steps) json["break_even_steps"] = *numbers.break_even_steps;
  json["val_loss"] = optional(numbers.val_loss);
  json["speedup_previous"] = to_json(numbers.previous);
  json["speedup_baseline"] = to_json(numbers.baseline);
  json["speedup_peers"] = Json::array();
  for (const Speedup& speedup : numbers.peers)
    json["speedup_peers"].push_back(to_json(std::optional(speedup)));
  return json;
}

template <class Get>
std::vector<double> over(const Rounds& rounds, Get get) {
  std::vector<double> values;
  for (const auto& [round, run] : rounds) values.push_back(get(*run));
  return values;
}

Variant::Numbers numbers_of(const Rounds& rounds) {
  Variant::Numbers numbers;
  const auto of = [&](double Summary::*field) {
    return over(rounds, [field](const Run& run) { return (*run.summary).*field; });
  };
  numbers.median_step_ms = median_over_rounds(of(&Summary::median_step_ms));
  numbers.tokens_per_second = median_over_rounds(of(&Summary::tokens_per_second));
  numbers.first_step_ms = median(of(&Summary::first_step_ms));
  numbers.startup_ms = median(of(&Summary::startup_ms));

  const auto known = [&](std::optional<double> Summary::*field) -> std::optional<double> {
    std::vector<double> values;
    for (const auto& [round, run] : rounds)
      if (const auto& value = (*run->summary).*field) values.push_back(*value);
    if (values.empty()) return std::nullopt;
    return median(values);
  };
  numbers.mfu_nanogpt = known(&Summary::mfu_nanogpt);
  numbers.mfu_llmc = known(&Summary::mfu_llmc);
  numbers.val_loss = known(&Summary::val_loss);

  std::vector<double> timed;
  for (const auto& [round, run] : rounds) {
    for (const Step& step : run->steps)
      if (!step.warmup) timed.push_back(step.step_ms);
    if (!numbers.compile) numbers.compile = run->summary->compile;
    numbers.skipped_steps = std::max(numbers.skipped_steps, run->summary->skipped_steps);
    const Memory& memory = run->summary->memory;
    if (numbers.memory.by_name.empty()) numbers.memory.by_name = memory.by_name;
    for (auto peak : {&Memory::live_peak, &Memory::reserved_peak, &Memory::process_peak})
      numbers.memory.*peak = std::max(numbers.memory.*peak, memory.*peak);
  }
  numbers.p10_step_ms = quantile(timed, 0.1);
  numbers.p90_step_ms = quantile(timed, 0.9);
  numbers.final_loss = rounds.begin()->second->steps.back().loss.value();
  return numbers;
}

/// Steps after which a longer first step has paid off; nothing where none is due or none comes.
std::optional<double> break_even(const Variant::Numbers& before, const Variant::Numbers& after) {
  const double invested = after.first_step_ms - before.first_step_ms;
  const double saved = before.median_step_ms.value - after.median_step_ms.value;
  if (!(invested > 0.0 && saved > 0.0)) return std::nullopt;
  return std::ceil(invested / saved);
}

/// Place in the ladder; past its end for a variant that it does not list.
size_t height(const std::string& variant) {
  const auto& rungs = ladder();
  const auto found =
      std::find_if(rungs.begin(), rungs.end(), [&](const Rung& r) { return r.name == variant; });
  return static_cast<size_t>(found - rungs.begin());
}

bool chooses_batch(const std::string& variant) {
  const size_t at = height(variant);
  return at < ladder().size() && ladder()[at].batch == BatchSize::largest;
}

bool comparable_but_for_batch(const Json& a, const Json& b) {
  return a.at("model") == b.at("model") && a.at("T") == b.at("T");
}

/// What summaries, rows and charts rely on.
void validate(const Run& run, const std::string& where) {
  const auto require = [&](bool ok, const char* problem) {
    if (!ok) throw InputError(cat(where, ": ", problem));
  };
  const auto positive = [&](const char* field) {
    const auto found = run.config.find(field);
    return found != run.config.end() && found->is_number_integer() && *found > 0;
  };
  require(run.config.contains("model") && run.config["model"].is_string() && positive("B") && positive("T"),
          "config must name a model and positive B and T");
  require(
      !run.config.contains("world_size") || (positive("world_size") && run.config["world_size"] <= 1'000'000),
      "config's world_size is no number of devices");
  for (const Step& step : run.steps) require(step.step_ms > 0.0, "a step's step_ms is not positive");
  for (const Rank& rank : run.ranks)
    for (const double ms : rank.step_ms) require(ms > 0.0, "a rank's step_ms is not positive");
  if (run.status != Status::ok) return;
  require(run.summary.has_value(), "is ok, yet has no summary");
  require(run.summary->median_step_ms > 0.0, "median_step_ms is not positive");
  require(run.summary->memory.live_peak >= 0, "live_peak is negative");
  require(std::any_of(run.steps.begin(), run.steps.end(), [](const Step& step) { return !step.warmup; }),
          "is ok, yet has no timed step");
  require(run.steps.back().loss.has_value(), "is ok, yet its last loss is not finite");
}

}  // namespace

const char* name_of(Status status) {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::oom:
      return "oom";
    case Status::unsupported:
      return "unsupported";
    case Status::diverged:
      return "diverged";
    case Status::crash:
      return "crash";
    case Status::timeout:
      return "timeout";
  }
  throw std::logic_error("unknown status");
}

std::string workload_of(const Json& config) {
  const int64_t devices = world_size(config);
  return cat(config.at("model").get<std::string>(), " B=", config.at("B").get<int64_t>(),
             " T=", config.at("T").get<int64_t>(), devices > 1 ? cat(" on ", devices, " devices") : "",
             is_apart(config) ? " apart" : "");
}

bool is_apart(const Json& config) {
  const auto found = config.find("apart");
  return found != config.end() && *found == true;
}

int64_t world_size(const Json& config) {
  const auto found = config.find("world_size");
  return found == config.end() ? 1 : found->get<int64_t>();
}

int64_t global_batch(const Json& config) {
  const auto batch = config.at("B").get<int64_t>(), devices = world_size(config);
  return batch <= std::numeric_limits<int64_t>::max() / devices ? batch * devices : 0;
}

double ms_per_token(const Run& run) {
  const Json& config = run.config;
  return run.summary->median_step_ms / (config.at("B").get<double>() * config.at("T").get<double>() *
                                        static_cast<double>(world_size(config)));
}

std::vector<std::string> ancestors(const std::string& variant) {
  std::vector<std::string> names;
  for (size_t at = height(variant); at < ladder().size() && !ladder()[at].parent.empty();
       at = height(ladder()[at].parent))
    names.push_back(ladder()[at].parent);
  return names;
}

const Run* Results::find(const std::string& variant, const std::string& workload, int64_t round) const {
  const auto found = std::find_if(runs.begin(), runs.end(), [&](const Run& run) {
    return run.variant == variant && run.round == round && run.workload() == workload;
  });
  return found == runs.end() ? nullptr : &*found;
}

std::optional<Estimate> speedup(const Rounds& before, const Rounds& after) {
  std::vector<double> before_ms, after_ms;
  for (const auto& [round, run] : after) {
    const auto other = before.find(round);
    if (other == before.end()) continue;
    before_ms.push_back(ms_per_token(*other->second));
    after_ms.push_back(ms_per_token(*run));
  }
  if (after_ms.empty()) return std::nullopt;
  return speedup(before_ms, after_ms);
}

std::vector<Variant> aggregate(const Results& results) {
  struct Row {
    size_t workload;
    Variant variant;
    Rounds rounds;
  };
  std::vector<Row> rows;
  std::vector<std::string> workloads;
  for (const Run& run : results.runs) {
    if (is_apart(run.config)) continue;
    const std::string workload = run.workload();
    const auto seen = std::find(workloads.begin(), workloads.end(), workload);
    const auto index = static_cast<size_t>(seen - workloads.begin());
    if (seen == workloads.end()) workloads.push_back(workload);
    auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) {
      return r.workload == index && r.variant.variant == run.variant && r.variant.backend == run.backend;
    });
    if (row == rows.end()) {
      row = rows.insert(rows.end(), {index, {}, {}});
      row->variant = {run.variant, run.backend, workload,   run.peer, Status::ok,
                      "",          0,           run.config, 0,        std::nullopt};
    }
    if (run.status != Status::ok && row->variant.status == Status::ok) {
      row->variant.status = run.status;
      row->variant.reason = run.reason;
    }
    row->rounds[run.round] = &run;
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::pair(a.workload, height(a.variant.variant)) <
           std::pair(b.workload, height(b.variant.variant));
  });

  const bool strong = results.plan.value("scaling", Json()) == "strong";
  for (Row& row : rows) {
    row.variant.rounds = std::ssize(row.rounds);
    const auto throttled = [](const auto& round) { return round.second->throttled(); };
    row.variant.throttled_rounds = std::count_if(row.rounds.begin(), row.rounds.end(), throttled);
    if (!row.variant.throttled()) std::erase_if(row.rounds, throttled);
  }
  for (Row& row : rows) {
    if (row.variant.status == Status::ok) {
      row.variant.numbers = numbers_of(row.rounds);
      // A rung that has chosen its batch is compared with the largest one of the others.
      const bool own_batch = chooses_batch(row.variant.variant);
      const auto on_one_device = [strong](Json config) {
        if (strong) config["B"] = global_batch(config);
        config["world_size"] = 1;
        return workload_of(config);
      };
      const auto against = [&](const std::string& name) -> const Row* {
        const Row* best = nullptr;
        for (const Row& other : rows) {
          if (other.variant.backend != row.variant.backend || other.variant.variant != name) continue;
          if (other.workload == row.workload) return &other;
          // A rung on several devices is compared with those below it that run on one.
          if (world_size(row.variant.config) > 1 &&
              other.variant.workload == on_one_device(row.variant.config))
            best = &other;
          if (own_batch && comparable_but_for_batch(other.variant.config, row.variant.config) &&
              (!best || other.variant.config.at("B") > best->variant.config.at("B")))
            best = &other;
        }
        return best;
      };
      const auto compare = [&](const Row& other) -> std::optional<Speedup> {
        if (other.variant.status != Status::ok || other.variant.throttled() || row.variant.throttled())
          return std::nullopt;
        const auto ratio = speedup(other.rounds, row.rounds);
        return ratio ? std::optional(Speedup{other.variant.variant, *ratio}) : std::nullopt;
      };
      const auto below = ancestors(row.variant.variant);
      const auto previous = std::find_if(below.begin(), below.end(), against);
      if (previous != below.end()) {
        const Row& before = *against(*previous);
        row.variant.numbers->previous = compare(before);
        if (row.variant.numbers->compile && before.workload == row.workload && before.variant.numbers)
          row.variant.numbers->break_even_steps = break_even(*before.variant.numbers, *row.variant.numbers);
      }
      if (!below.empty() && against(below.back()))
        row.variant.numbers->baseline = compare(*against(below.back()));
      if (!row.variant.peer.empty()) continue;
      for (const Row& other : rows) {
        const std::string& peer = other.variant.peer;
        const bool counterpart =
            other.variant.variant == peer || other.variant.variant == peer + "/" + row.variant.variant;
        if (peer.empty() || !counterpart || other.workload != row.workload ||
            other.variant.backend != row.variant.backend)
          continue;
        if (const auto speedup = compare(other)) row.variant.numbers->peers.push_back(*speedup);
      }
    }
  }
  std::vector<Variant> variants;
  for (Row& row : rows) variants.push_back(std::move(row.variant));
  return variants;
}

Json to_json(const Run& run) {
  return write(run);
}

Json to_json(const Results& results) {
  Json json = {{"schema", kSchema},
               {"complete", results.complete},
               {"context", results.context},
               {"plan", results.plan},
               {"stopped", results.stopped}};
  json["runs"] = Json::array();
  for (const Run& run : results.runs) json["runs"].push_back(to_json(run));
  json["variants"] = Json::array();
  for (const Variant& row : aggregate(results)) json["variants"].push_back(to_json(row));
  for (const AblatedRung& row : ablated_rungs(results)) json["ablations"].push_back(to_json(row));
  for (const ScaledRun& row : scaling(results)) json["scaling"].push_back(to_json(row));
  for (const PredictedRun& row : predicted_scaling(results))
    json["scaling_predicted"].push_back(to_json(row));
  return json;
}

Run run_from(const Json& json) {
  Run run;
  const Place place = {.name = "run"};
  const Reader reader(json, place);
  fields(reader, run);
  validate(run, "run");
  return run;
}

Results results_from(const Json& json) {
  const Place place = {.name = "the file"};
  const Reader reader(json, place);
  int64_t schema = 0;
  reader("schema", schema);
  if (schema != kSchema) throw InputError(cat("schema ", schema, ", this version reads schema ", kSchema));
  Results results;
  reader("complete", results.complete);
  reader("context", results.context);
  reader("plan", results.plan);
  if (json.contains("stopped")) results.stopped = json["stopped"];
  reader("runs", results.runs);
  for (size_t i = 0; i < results.runs.size(); ++i) validate(results.runs[i], cat("runs[", i, "]"));
  return results;
}

}  // namespace stepladder
