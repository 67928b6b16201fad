#include "bench/report/export.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iomanip>
#include <map>
#include <set>

#include "bench/base/statistics.h"
#include "bench/base/table.h"
#include "bench/base/text.h"
#include "bench/report/ablation.h"
#include "bench/report/speedups.h"
#include "bench/results/json.h"
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

/// Leaves of a run until a loss its first steps and the last one, and at each evaluation the seconds of all
/// until then.
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

/// Leaves of each rank's step times the median of those after the warm-up.
void shorten_ranks(Run& run) {
  const auto warmup = static_cast<size_t>(run.summary->warmup_steps);
  for (Rank& rank : run.ranks) {
    if (rank.step_ms.size() <= warmup) continue;
    rank.step_ms.erase(rank.step_ms.begin(), rank.step_ms.begin() + static_cast<std::ptrdiff_t>(warmup));
    rank.step_ms = {median(rank.step_ms)};
  }
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
      rows.push_back({{"name", names[family]},
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
    }
  }
  return {{"context", context}, {"benchmarks", rows}};
}

std::string csv(const Results& results) {
  Columns<Run> columns;
  const auto flag = [](const std::optional<bool>& known) { return !known ? "" : *known ? "true" : "false"; };
  const auto number = [](const std::optional<double>& value) { return value ? number_text(*value) : ""; };
  const auto of_summary = [&](const char* title,
                              std::function<std::string(const Run&, const Summary&)> cell) {
    columns.add(title,
                [=](const Run& run) { return run.status == Status::ok ? cell(run, *run.summary) : ""; });
  };
  const auto numbers = [&](std::initializer_list<std::pair<const char*, double Summary::*>> fields) {
    for (const auto& [title, field] : fields)
      of_summary(title, [field = field](const Run&, const Summary& s) { return number_text(s.*field); });
  };
  const auto known =
      [&](std::initializer_list<std::pair<const char*, std::optional<double> Summary::*>> fields) {
        for (const auto& [title, field] : fields)
          of_summary(title, [=, field = field](const Run&, const Summary& s) { return number(s.*field); });
      };
  columns.add("variant", [](const Run& run) { return run.variant; });
  columns.add("peer", [](const Run& run) { return run.peer; });
  columns.add("backend", [](const Run& run) { return run.backend; });
  for (const char* key : {"model", "B", "T"})
    columns.add(key, [=](const Run& run) { return whole_text_at(run.config, key); });
  columns.add("devices", [](const Run& run) { return cat(world_size(run.config)); });
  columns.add("independent_ranks", [=](const Run& run) { return flag(has_independent_ranks(run.config)); });
  columns.add("round", [](const Run& run) { return cat(run.round); });
  columns.add("status", [](const Run& run) { return stepladder::name_of(run.status); });
  columns.add("reason", [](const Run& run) { return run.reason; });
  numbers({{"median_step_ms", &Summary::median_step_ms},
           {"p10_step_ms", &Summary::p10_step_ms},
           {"p90_step_ms", &Summary::p90_step_ms},
           {"first_step_ms", &Summary::first_step_ms},
           {"startup_ms", &Summary::startup_ms},
           {"tokens_per_second", &Summary::tokens_per_second}});
  known({{"mfu_nanogpt", &Summary::mfu_nanogpt}, {"mfu_llmc", &Summary::mfu_llmc}});
  of_summary("final_loss", [=](const Run& run, const Summary&) { return number(run.steps.back().loss); });
  known({{"val_loss", &Summary::val_loss}});
  for (const auto& [title, peak] : {std::pair("live_peak_bytes", &Memory::live_peak),
                                    std::pair("reserved_peak_bytes", &Memory::reserved_peak),
                                    std::pair("process_peak_bytes", &Memory::process_peak)})
    of_summary(title, [peak = peak](const Run&, const Summary& s) {  // 0 is unknown
      return s.memory.*peak > 0 ? cat(s.memory.*peak) : "";
    });
  of_summary("throttled", [=](const Run&, const Summary& s) { return flag(s.throttled); });
  of_summary("shared", [=](const Run&, const Summary& s) { return flag(s.shared); });
  known({{"cycles", &Summary::cycles}, {"joules", &Summary::joules}});
  const auto to_loss = [&](const char* title, std::function<std::string(const ToLoss&)> cell) {
    of_summary(title, [=](const Run&, const Summary& s) { return s.to_loss ? cell(*s.to_loss) : ""; });
  };
  to_loss("until_loss", [](const ToLoss& t) { return number_text(t.loss); });
  to_loss("reached", [=](const ToLoss& t) { return flag(t.reached); });
  to_loss("steps_to_loss", [](const ToLoss& t) { return cat(t.steps); });
  to_loss("seconds_to_loss", [](const ToLoss& t) { return number_text(t.seconds); });
  to_loss("tokens_to_loss", [](const ToLoss& t) { return number_text(t.tokens); });
  to_loss("joules_to_loss", [=](const ToLoss& t) { return number(t.joules); });
  columns.add("device", [&](const Run&) { return text_at(results.device(), "name"); });
  for (const char* key : {"commit", "time"})
    columns.add(key, [&results, key](const Run&) { return text_at(results.context, key); });
  return columns.table(results.runs).csv();
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
      lines.push_back(
          printable(cat(run.variant, " ", run.workload(), ", round ", run.round, ": ",
                        run.status == Status::ok ? run.disturbance()
                                                 : cat(stepladder::name_of(run.status), ": ", run.reason)),
                    400));
  return lines;
}

}  // namespace stepladder
