#include "bench/report/export.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <map>
#include <set>
#include <sstream>

#include "bench/base/statistics.h"
#include "bench/base/table.h"
#include "bench/base/text.h"
#include "bench/report/ablation.h"
#include "bench/report/speedups.h"
#include "bench/results/crossing.h"
#include "bench/results/json.h"
#include "bench/results/writer.h"
#include "model/error.h"

namespace stepladder {
namespace {

bool exported(const Run& run) {
  return run.status == Status::ok && !run.disturbed();
}

std::string name_of(const Run& run) {
  const int64_t devices = world_size(run.config);
  return cat(run.variant, "/", run.config.at("model").get<std::string>(), "/B:", run.config.at("B"),
             "/T:", run.config.at("T"), devices > 1 ? cat("/devices:", devices) : "",
             has_independent_ranks(run.config) ? "/independent" : "");
}

double device_ms(const Run& run) {
  std::vector<double> ms;
  for (const Step& step : run.steps)
    if (!step.warmup && step.device_ms) ms.push_back(*step.device_ms);
  return ms.empty() ? run.summary->median_step_ms : median(ms);
}

double rounded_to(int digits, double value) {
  return number_from<double>(cat(std::setprecision(digits), value)).value_or(0.0);
}

constexpr size_t kFirstSteps = 99;

/// Keeps only the first steps and the last one of a run until a loss, and writes into each evaluation the
/// seconds of all steps until then.
void shorten_until_loss(Run& run) {
  double ms = 0.0;
  size_t steps = 0;
  for (Evaluation& evaluation : run.evaluations) {
    if (evaluation.seconds) continue;
    for (; steps < run.steps.size() && steps < static_cast<size_t>(evaluation.step); ++steps)
      ms += run.steps[steps].step_ms;
    evaluation.seconds = std::round(ms) / 1e3;
  }
  const size_t first = std::max(kFirstSteps, static_cast<size_t>(run.summary->warmup_steps));
  if (run.steps.size() > first)
    run.steps.erase(run.steps.begin() + static_cast<std::ptrdiff_t>(first), run.steps.end() - 1);
}

/// Replaces each rank's step times by the median of those after the warm-up.
void shorten_ranks(Run& run) {
  const auto warmup = static_cast<size_t>(run.summary->warmup_steps);
  for (Rank& rank : run.ranks) {
    if (rank.step_ms.size() <= warmup) continue;
    rank.step_ms.erase(rank.step_ms.begin(), rank.step_ms.begin() + static_cast<std::ptrdiff_t>(warmup));
    rank.step_ms = {median(rank.step_ms)};
  }
}

/// An archive that lists the numbers and words of a struct at `place` in `columns`, in the form that csv_of()
/// takes.
struct PlainFields {
  std::string place, columns = {};

  template <class T>
  void operator()(const std::string& name, const T&) {
    constexpr bool estimate = std::same_as<T, Estimate>;
    if constexpr (estimate || std::is_arithmetic_v<T> || std::same_as<T, std::string>)
      columns += cat(" ", name, "=", place, name, estimate ? "/value" : "");
  }
  template <class T>
  void operator()(const std::string& name, const std::optional<T>&) {
    (*this)(name, T());
  }
  void added(const std::string& name, const auto& value) { (*this)(name, value); }
  void if_any(const std::string& name, const auto& value) { (*this)(name, value); }
};

/// Rows as CSV. `columns` are places in the JSON of a row: "config/model", titled by its last name, or with a
/// title of its own, "until_loss=to_loss/loss"; a place given twice counts once. After them come the other
/// numbers and words of `all`, a struct at `place`. Numbers have full digits; a peak of memory that is 0 is
/// unknown, and so empty.
template <class Struct>
std::string csv_of(const std::vector<Json>& rows, const std::string& columns, const Struct& all,
                   const std::string& place = "") {
  PlainFields plain{place};
  fields(plain, all);
  std::vector<Table::Column> titles;
  std::vector<Json::json_pointer> places;
  std::istringstream words(columns + plain.columns);
  for (std::string word; words >> word;) {
    const size_t titled = word.find('=');
    const Json::json_pointer at("/" + word.substr(titled == word.npos ? 0 : titled + 1));
    if (std::ranges::find(places, at) != places.end()) continue;
    titles.push_back({titled == word.npos ? at.back() : word.substr(0, titled)});
    places.push_back(at);
  }
  Table table(titles);
  for (const Json& row : rows) {
    std::vector<Cell> cells;
    for (const Json::json_pointer& at : places) {
      const Json value = row.contains(at) ? row[at] : Json();
      const bool unknown = value.is_null() || (value == 0 && at.back().ends_with("_peak"));
      cells.emplace_back(unknown                   ? ""
                         : value.is_string()       ? value.get<std::string>()
                         : value.is_number_float() ? number_text(value.get<double>())
                                                   : value.dump());
    }
    table.add(std::move(cells));
  }
  return table.csv();
}

}  // namespace

Json google_benchmark(const Results& results) {
  const Json& from = results.context;
  const auto field = [&](const char* key) { return from.value(key, Json()); };
  const std::string build = text_at(from, "build");
  Json context = {{"date", field("time")},
                  {"host_name", field("host")},
                  {"executable", field("command_line")},
                  {"num_cpus", field("cores")},
                  {"caches", Json::array()},
                  {"load_avg", Json::array()},
                  {"library_build_type",
                   build.empty() || build.find("-DNDEBUG") != std::string::npos ? "release" : "debug"}};
  for (const char* ours : {"version", "commit", "os", "cpu", "device"})
    context[cat("stepladder_", ours)] = field(ours);

  std::map<std::string, std::vector<const Run*>> families;  // runs by name
  std::vector<std::string> names;                           // as they first appear
  for (const Run& run : results.runs) {
    if (!exported(run)) continue;
    const std::string name = name_of(run);
    if (!families.contains(name)) names.push_back(name);
    families[name].push_back(&run);
  }
  Json rows = Json::array();
  for (size_t family = 0; family < names.size(); ++family) {
    const auto& runs = families[names[family]];
    for (size_t i = 0; i < runs.size(); ++i) {
      const Summary& summary = *runs[i]->summary;
      Json& row = rows.emplace_back(Json{{"name", names[family]},
                                         {"family_index", family},
                                         {"per_family_instance_index", 0},
                                         {"run_name", names[family]},
                                         {"run_type", "iteration"},
                                         {"repetitions", runs.size()},
                                         {"repetition_index", i},
                                         {"threads", 1},
                                         {"iterations", timed_steps(*runs[i])},
                                         {"real_time", summary.median_step_ms},
                                         {"cpu_time", device_ms(*runs[i])},
                                         {"time_unit", "ms"},
                                         {"items_per_second", summary.tokens_per_second},
                                         {"round", runs[i]->round}});
      const Json counters = Writer::write(summary);
      for (const auto& [name, number] : counters.items())
        if (number.is_number()) row[name] = number;
    }
  }
  return {{"context", context}, {"benchmarks", rows}};
}

std::string csv(const Results& results) {
  constexpr const char* kColumns =
      "variant peer backend config/model config/B config/T devices independent_ranks round status "
      "reason summary/median_step_ms summary/p10_step_ms summary/p90_step_ms summary/first_step_ms "
      "summary/startup_ms summary/tokens_per_second summary/mfu_nanogpt summary/mfu_llmc "
      "final_loss summary/val_loss live_peak_bytes=summary/memory_bytes/live_peak "
      "reserved_peak_bytes=summary/memory_bytes/reserved_peak "
      "process_peak_bytes=summary/memory_bytes/process_peak summary/throttled summary/shared "
      "summary/cycles summary/joules until_loss=summary/to_loss/loss summary/to_loss/reached "
      "steps_to_loss=summary/to_loss/steps seconds_to_loss=summary/to_loss/seconds "
      "tokens_to_loss=summary/to_loss/tokens joules_to_loss=summary/to_loss/joules device commit "
      "time";
  const std::string device = text_at(results.device(), "name"), commit = text_at(results.context, "commit"),
                    time = text_at(results.context, "time");
  std::vector<Json> rows;
  for (const Run& run : results.runs) {
    Json& row = rows.emplace_back(Json{{"variant", run.variant},
                                       {"peer", run.peer},
                                       {"backend", run.backend},
                                       {"config", run.config},
                                       {"devices", world_size(run.config)},
                                       {"independent_ranks", has_independent_ranks(run.config)},
                                       {"round", run.round},
                                       {"status", stepladder::name_of(run.status)},
                                       {"reason", run.reason},
                                       {"device", device},
                                       {"commit", commit},
                                       {"time", time}});
    if (run.status != Status::ok) continue;
    row["summary"] = Writer::write(*run.summary);
    if (const auto reached = reached_loss(run)) {
      Json& took = row["summary"]["to_loss"];
      took["steps"] = reached->steps, took["seconds"] = reached->seconds, took["tokens"] = reached->tokens;
      if (reached->joules) took["joules"] = *reached->joules;
    }
    row["final_loss"] = Writer::write(run.steps.back().loss);
  }
  return csv_of(rows, kColumns, Summary(), "summary/");
}

std::string csv(const std::vector<NamedFindings>& files) {
  constexpr const char* kColumns =
      "file device backend config/model config/B config/T devices variant peer status reason "
      "disturbance rounds median_step_ms=median_step_ms/value median_step_ms_lo=median_step_ms/lo "
      "median_step_ms_hi=median_step_ms/hi tokens_per_second=tokens_per_second/value "
      "speedup_previous=speedup_previous/ratio speedup_baseline=speedup_baseline/ratio mfu_nanogpt "
      "mfu_llmc cycles=cycles/value joules=joules/value tokens_per_joule=tokens_per_joule/value "
      "live_peak_bytes=memory_bytes/live_peak reserved_peak_bytes=memory_bytes/reserved_peak "
      "process_peak_bytes=memory_bytes/process_peak first_step_ms startup_ms final_loss val_loss";
  std::vector<Json> rows;
  for (const NamedFindings& file : files)
    for (const ResultRow& of : file.file->rows) {
      if (is_ablation(of.variant)) continue;
      Json& row = rows.emplace_back(to_json(of));
      row["file"] = file.name;
      row["device"] = file.file->results().device_model();
      row["devices"] = world_size(of.config);
      row["rounds"] = of.runs.size();
      row["disturbance"] = of.disturbed() ? of.disturbance : "";
    }
  return csv_of(rows, kColumns, ResultRow::Numbers());
}

Results shortened(Results results) {
  std::set<RowKey> named;
  for (Run& run : results.runs) {
    if (run.summary && run.summary->to_loss) shorten_until_loss(run);
    for (Step& step : run.steps)
      step = {.step = step.step,
              .warmup = step.warmup,
              .step_ms = rounded_to(5, step.step_ms),
              .device_ms = {},
              .loss = step.loss ? std::optional(rounded_to(6, *step.loss)) : std::nullopt,
              .grad_norm = {},
              .lr = {}};
    if (!run.summary) continue;
    shorten_ranks(run);
    if (!run.disturbed() && (is_ablation(run.variant) || !named.insert(run.row()).second))
      run.summary->memory.by_name.clear();
  }
  return results;
}

std::vector<std::string> left_out(const Results& results) {
  std::vector<std::string> lines;
  for (const Run& run : results.runs)
    if (!exported(run))
      lines.push_back(printable(cat(run.variant, " ", run.workload(), ", round ", run.round, ": ",
                                    run.status == Status::ok ? run.disturbance() : run.outcome()),
                                400));
  return lines;
}

}  // namespace stepladder
