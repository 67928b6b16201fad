#include <cmath>
#include <exception>
#include <iostream>
#include <map>

#include "bench/base/table.h"
#include "bench/base/text.h"
#include "bench/cli/commands.h"
#include "bench/cli/measure.h"
#include "bench/plan/ladder_file.h"
#include "bench/plan/pairs.h"
#include "bench/results/file.h"
#include "bench/run/child.h"
#include "bench/run/machine.h"
#include "bench/verdict/comparison.h"
#include "bench/verdict/noise.h"
#include "bench/verdict/paired.h"
#include "model/atomic_file.h"

namespace stepladder {
namespace {

struct CalibrateOptions {
  int64_t pairs = 20;
  std::string out = "reports/latest/noise.json";
  MeasureOptions measure;

  std::vector<Option> options() {
    return measure.workload_options(
        measure.ladder_options() + measure.device_options() +
        std::vector<Option>{
            {"pairs", &pairs, "N", "of runs of the same program", MeasureOptions::kPlan, {kMinPairs, 1000}},
            {"out", &out, "FILE", "the noise file, replaced", MeasureOptions::kFiles}});
  }
};

/// Adds to `noise` log(second / first) of each pair whose runs both ended well and undisturbed.
void collect(Noise& noise, const Results& first, const Results& second) {
  for (const Run& run : second.runs) {
    const Run* other = first.find(run.row(), run.round);
    if (run.status != Status::ok || !other || other->status != Status::ok) continue;
    if (run.disturbed() || other->disturbed()) continue;
    LogRatios& row = noise.log_ratios[run.row()];
    const Summary &is = *run.summary, &was = *other->summary;
    row.time.push_back(std::log(is.median_step_ms / was.median_step_ms));
    if (is.cycles && was.cycles) row.cycles.push_back(std::log(*is.cycles / *was.cycles));
    if (is.joules && was.joules) row.energy.push_back(std::log(*is.joules / *was.joules));
  }
}

/// A table of the limits, in %, that the noise sets for comparisons over 5, 10 and 20 pairs.
std::string table_of(const Noise& noise) {
  constexpr size_t kPairs[] = {5, 10, 20};
  std::vector<Table::Column> columns = {{.title = "rung", .align = Align::left},
                                        {.title = "workload", .align = Align::left},
                                        {.title = "of", .align = Align::left},
                                        {"pairs"}};
  for (size_t pairs : kPairs) columns.push_back({cat("limit % at ", pairs)});
  Table table(std::move(columns));
  for (const auto& [key, row] : noise.log_ratios)
    for (const auto& [what, ratios, least] :
         {std::tuple("time", &row.time, kMinLimit), std::tuple("cycles", &row.cycles, kMinCyclesLimit),
          std::tuple("energy", &row.energy, kMinEnergyLimit)}) {
      if (ratios->empty()) continue;
      std::vector<Cell> cells = {key.first, key.second, what, std::to_string(ratios->size())};
      for (size_t pairs : kPairs) {
        const double limit = raised_limit(least, *ratios, pairs);
        const bool noisier = std::expm1(noise_floor(*ratios, pairs)) > limit;  // than any limit may be
        cells.emplace_back((noisier ? "> " : "") + fixed(limit * 100, 2));
      }
      table.add(std::move(cells));
    }
  return table.terminal();
}

int calibrate(CalibrateOptions& options) {
  const DeviceProbe probe = require_device(options.measure.rung.backend, options.measure.rung.device);
  check_same_kind(options.out, "noise");
  make_folder_of(options.out);
  AtomicFile out(options.out);  // fails before an hour of measuring if the file can't be written

  Side first, second;
  first.plan.ladder = ladder_at(options.measure.ladder);
  first.plan.programs = programs(first.plan.ladder, options.measure.rungs, {}, options.measure.python);
  complete(first.plan, options.measure, probe);
  first.plan.stopping.rounds = options.pairs;
  second.plan = first.plan;

  const InterruptGuard guard;
  PairedRuns pairs(first, second);
  std::exception_ptr stopped;
  try {
    while (!pairs.exhausted()) pairs.measure_pair();
  } catch (const std::exception&) {
    if (pairs.pairs() < kMinPairs) throw;
    stopped = std::current_exception();
  }

  Noise noise;
  noise.context = machine_context(probe);
  noise.steps = first.plan.settings.steps;
  noise.warmup = first.plan.warmup;
  noise.ladder = first.plan.ladder.told_name();
  collect(noise, first.results, second.results);
  // Leave out a rung with a failed run: its other pairs aren't a fair sample.
  bool good = true;
  std::map<RowKey, std::string> left_out;  // each row left out, and why
  for (const Results* results : {&first.results, &second.results})
    for (const Run& run : results->runs) {
      const RowKey key = run.row();
      if (run.status != Status::ok) {
        noise.log_ratios.erase(key);
        good &= run.status == Status::unsupported;
        left_out[key] = run.outcome();
      } else if (run.disturbed() && !noise.log_ratios.contains(key)) {
        left_out.emplace(key, cat("the device was ", run.disturbance(), " in all pairs"));
      }
    }
  std::vector<std::string> lines;
  for (const auto& [key, why] : left_out) lines.push_back(cat(key.first, ", ", key.second, ": ", why));
  if (noise.log_ratios.empty()) throw Error("there is no noise to write down: " + join(lines, "; "));
  out.write(dump(to_json(noise), 1) + "\n");
  out.commit();
  for (const std::string& line : lines) notice("left out: " + line);
  std::cout << table_of(noise) << "\nwrote " << printable(options.out, kMaxMessage) << std::endl;
  if (stopped) {
    notice(cat("stopped after ", pairs.pairs(), " pairs, which are kept"));
    std::rethrow_exception(stopped);
  }
  return good ? kExitOk : kExitFailed;
}

}  // namespace

Command calibrate_command() {
  return command<CalibrateOptions>("calibrate", "how much this machine's times differ where nothing changed",
                                   calibrate, kUsualOptions);
}

}  // namespace stepladder
