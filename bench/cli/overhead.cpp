#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <numeric>
#include <span>
#include <utility>

#include "bench/base/process.h"
#include "bench/base/statistics.h"
#include "bench/base/table.h"
#include "bench/base/text.h"
#include "bench/cli/commands.h"
#include "bench/cli/measure.h"
#include "bench/cli/temporary_file.h"
#include "bench/results/file.h"
#include "bench/results/rounds.h"
#include "bench/run/child.h"
#include "bench/run/machine.h"
#include "bench/run/progress.h"
#include "bench/run/runner.h"
#include "bench/verdict/comparison.h"

namespace stepladder {
namespace {

namespace fs = std::filesystem;

struct OverheadOptions {
  int64_t pairs = 20;
  double limit = 0.2;  // percent
  bool wide = false;
  MeasureOptions measure;

  std::vector<Option> options() {
    constexpr const char* kPlan = MeasureOptions::kPlan;
    return measure.workload_options(
        {{"pairs", &pairs, "N", "of runs, by itself and under the harness", kPlan, {kMinPairs, 1000}},
         {"limit", &limit, "PERCENT", "the step times may differ by this much", kPlan, {0, 1000}},
         wide_option(wide, kPlan)});
  }
};

/// A run's times in ms: its median timed step, and all the time that it spent outside steps.
struct Cost {
  double step = 0.0, besides = 0.0;
};

/// Runs a rung without the harness: the rung sends no events, but writes its steps' times to a file at its
/// end. Throws Error where the rung fails.
Cost alone(const Workload& workload) {
  const TemporaryFile file("overhead");
  std::vector<std::string> command = workload.command;
  append(command, {"--times", file.path});
  const auto start = std::chrono::steady_clock::now();
  const ChildEnd end =
      run_child(command, Channel::events, workload.timeout_s, [](std::string_view) { return true; });
  const double wall_ms = ms_since(start);
  if (!end.ok() || !fs::exists(file.path))
    throw Error(cat(workload.program.variant, " by itself fails", end.last_words()));
  const auto ms = load_json(file.path).get<std::vector<double>>();
  if (std::ssize(ms) != workload.steps)
    throw Error(cat(workload.program.variant, " by itself made ", ms.size(), " steps"));
  return {median(std::span(ms).subspan(static_cast<size_t>(workload.warmup))),
          std::accumulate(ms.begin(), ms.end(), wall_ms, std::minus())};
}

Cost under_harness(const Workload& workload, Progress& progress) {
  const Run run = run_program(workload, [&](const Step& step) { progress.step(step); });
  progress.finish(run);
  if (run.status != Status::ok) throw Error(cat(workload.program.variant, ": ", run.outcome()));
  // Time the same steps as alone() does, whether or not they had settled.
  std::vector<double> ms;
  for (const Step& step : std::span(run.steps).subspan(static_cast<size_t>(workload.warmup)))
    ms.push_back(step.step_ms);
  return {median(ms), besides_steps_ms(run)};
}

struct OverheadRow {
  Workload workload;
  std::vector<double> alone_ms = {}, harness_ms = {}, alone_besides = {}, harness_besides = {};
  std::vector<double> log_ratios = {};
  PairedChange change = {};
  bool certain = false;  // the change isn't zero, by a test over all rows together

  void add(const Cost& by_itself, const Cost& measured) {
    alone_ms.push_back(by_itself.step);
    harness_ms.push_back(measured.step);
    log_ratios.push_back(std::log(measured.step / by_itself.step));
    alone_besides.push_back(by_itself.besides);
    harness_besides.push_back(measured.besides);
  }
  bool within(double limit) const { return -limit < change.lo && change.hi < limit; }
  bool beyond(double limit) const { return certain && (change.lo > limit || change.hi < -limit); }
};

std::string table_of(const std::vector<OverheadRow>& rows, double limit, bool wide) {
  Columns<OverheadRow> columns;
  columns.add_text("rung", [](const OverheadRow& r) { return r.workload.program.variant; });
  columns.add({.title = "batch", .priority = 3},
              [](const OverheadRow& r) { return r.workload.config["B"].dump(); });
  columns.add({.title = "pairs", .priority = 2},
              [](const OverheadRow& r) { return std::to_string(r.log_ratios.size()); });
  columns.add({"alone ms"}, [](const OverheadRow& r) { return sized(median(r.alone_ms)); });
  columns.add({"harness ms"}, [](const OverheadRow& r) { return sized(median(r.harness_ms)); });
  columns.add({"change %"}, [](const OverheadRow& r) { return percent_of(r.change.log_ratio, 3); });
  columns.add({"bounds %"}, [](const OverheadRow& r) {
    return cat(percent_of(r.change.lo, 3), " to ", percent_of(r.change.hi, 3));
  });
  columns.add({.title = "ms besides, both", .priority = 1}, [](const OverheadRow& r) {
    return cat(fixed(median(r.alone_besides), 0), " / ", fixed(median(r.harness_besides), 0));
  });
  columns.add_text("verdict", [limit](const OverheadRow& r) {
    return r.within(limit) ? "within" : r.beyond(limit) ? "BEYOND" : "undecided";
  });
  return columns.table(rows).terminal(wide);
}

int overhead(OverheadOptions& options) {
  const DeviceProbe probe = require_device(options.measure.rung.backend, options.measure.rung.device);
  Plan plan;
  std::vector<std::string> left_out;
  for (const Rung& rung : ladder().chosen(options.measure.rungs)) {
    Program program = program_of(rung);
    std::string why = why_not_here(rung, probe);
    if (program.devices > 1) why = "overhead measures rungs of one device";  // ranks need the harness
    if (why.empty())
      plan.programs.push_back(std::move(program));
    else
      left_out.push_back(cat(rung.name, ": ", why));
  }
  if (plan.programs.empty()) throw UnsupportedError(join(left_out, "; "));
  for (const std::string& line : left_out) notice("left out: " + line);
  complete(plan, options.measure, probe);
  std::vector<OverheadRow> rows;
  for (Workload& workload : workloads_of(plan, 0)) rows.push_back({.workload = std::move(workload)});

  const InterruptGuard guard;
  TelemetryOfDevices telemetry;
  Progress progress(rows.size() * static_cast<size_t>(options.pairs));
  std::exception_ptr stopped;
  try {
    for (int64_t pair = 0; pair < options.pairs; ++pair)
      for (OverheadRow& row : rows) {
        Workload& workload = row.workload;
        workload.round = pair;
        workload.telemetry = &telemetry;
        progress.start(workload.program.variant, pair, workload.steps);
        if (pair % 2 == 0) {
          const Cost by_itself = alone(workload);
          row.add(by_itself, under_harness(workload, progress));
        } else {
          const Cost measured = under_harness(workload, progress);
          row.add(alone(workload), measured);
        }
      }
  } catch (const std::exception&) {
    const auto too_few = [](const OverheadRow& row) { return row.log_ratios.size() < kMinPairs; };
    if (std::ranges::any_of(rows, too_few)) throw;
    stopped = std::current_exception();
  }

  std::vector<PairedChange> changes;
  for (const OverheadRow& row : rows) changes.push_back(paired_change(row.log_ratios));
  const std::vector<bool> certain = certain_by(changes, kFalseAlarms, &PairedChange::p_changed);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].change = changes[i];
    rows[i].certain = certain[i];
  }
  const double limit = std::log1p(options.limit / 100);
  std::cout << table_of(rows, limit, options.wide)
            << "\nChange: mean over pairs of log(harness / alone) of the runs' median steps. "
            << "Bounds: each holds with " << fixed(kBoundConfidence * 100, 0)
            << " %. within: both lie within " << number_text(static_cast<float>(options.limit))
            << " %. BEYOND: one lies beyond that, and that there is a change at all is certain to "
            << fixed((1 - kFalseAlarms) * 100, 0) << " % among all rungs, from " << kMinCertainPairs
            << " pairs." << std::endl;
  if (stopped) std::rethrow_exception(stopped);
  if (std::ranges::any_of(rows, [&](const OverheadRow& row) { return row.beyond(limit); }))
    return kExitRegression;
  const bool within = std::ranges::all_of(rows, [&](const OverheadRow& row) { return row.within(limit); });
  return within ? kExitOk : kExitInconclusive;
}

}  // namespace

Command overhead_command() {
  return command<OverheadOptions>(
      "overhead", "are rungs as fast under the harness as they are by themselves?", overhead, kUsualOptions);
}

}  // namespace stepladder
