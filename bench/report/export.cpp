#include "bench/report/export.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <map>
#include <set>

#include "bench/base/statistics.h"
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

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string cell = "\"";
  for (char c : text) cell += c == '"' ? "\"\"" : std::string(1, c);
  return cell + "\"";
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
  std::string text =
      "variant,peer,backend,model,B,T,devices,independent_ranks,round,status,reason,median_step_ms,"
      "p10_step_ms,p90_step_ms,first_step_ms,startup_ms,tokens_per_second,mfu_nanogpt,mfu_llmc,"
      "final_loss,val_loss,live_peak_bytes,reserved_peak_bytes,process_peak_bytes,throttled,shared,"
      "cycles,joules,until_loss,reached,steps_to_loss,seconds_to_loss,tokens_to_loss,joules_to_loss,"
      "device,commit,time\n";
  const auto number = [](const std::optional<double>& value) { return value ? number_text(*value) : ""; };
  const auto columns = static_cast<size_t>(std::ranges::count(text, ',')) + 1;
  const std::vector<std::string> where = {text_at(results.device(), "name"),
                                          text_at(results.context, "commit"),
                                          text_at(results.context, "time")};
  for (const Run& run : results.runs) {
    std::vector<std::string> cells = {run.variant,
                                      run.peer,
                                      run.backend,
                                      run.config.at("model"),
                                      run.config.at("B").dump(),
                                      run.config.at("T").dump(),
                                      std::to_string(world_size(run.config)),
                                      has_independent_ranks(run.config) ? "true" : "false",
                                      std::to_string(run.round),
                                      stepladder::name_of(run.status),
                                      run.reason};
    if (run.status == Status::ok) {
      const Summary& s = *run.summary;
      for (double value : {s.median_step_ms, s.p10_step_ms, s.p90_step_ms, s.first_step_ms, s.startup_ms,
                           s.tokens_per_second})
        cells.push_back(number_text(value));
      for (const auto& value : {s.mfu_nanogpt, s.mfu_llmc, run.steps.back().loss, s.val_loss})
        cells.push_back(number(value));
      for (int64_t bytes : {s.memory.live_peak, s.memory.reserved_peak, s.memory.process_peak})  // 0: unknown
        cells.push_back(bytes > 0 ? std::to_string(bytes) : "");
      for (const auto& flag : {s.throttled, s.shared})
        cells.emplace_back(!flag ? "" : *flag ? "true" : "false");
      for (const auto& value : {s.cycles, s.joules}) cells.push_back(number(value));
      if (const auto& to = s.to_loss)
        cells.insert(cells.end(),
                     {number_text(to->loss), to->reached ? "true" : "false", std::to_string(to->steps),
                      number_text(to->seconds), number_text(to->tokens), number(to->joules)});
    }
    cells.resize(columns - where.size());
    cells.insert(cells.end(), where.begin(), where.end());
    for (std::string& cell : cells) cell = csv_cell(without_controls(cell));
    text += join(cells, ",") + "\n";
  }
  return text;
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
