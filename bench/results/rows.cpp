#include "bench/results/rows.h"

#include <algorithm>

namespace stepladder {
namespace {

ResultRow::Numbers numbers_of(const Rounds& rounds) {
  ResultRow::Numbers numbers;
  const auto of = [&](double Summary::*field) {
    std::vector<double> values;
    for (const auto& [round, run] : rounds) values.push_back((*run->summary).*field);
    return values;
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

}  // namespace

std::vector<ResultRow> rows_of(const Results& results) {
  std::vector<ResultRow> rows;
  for (const Run& run : results.runs) {
    if (is_apart(run.config)) continue;
    const std::string workload = run.workload();
    auto row = std::find_if(rows.begin(), rows.end(), [&](const ResultRow& r) {
      return r.workload == workload && r.variant == run.variant && r.backend == run.backend;
    });
    if (row == rows.end()) {
      row = rows.emplace(rows.end());
      row->variant = run.variant, row->backend = run.backend, row->workload = workload;
      row->peer = run.peer, row->config = run.config;
    }
    if (run.status != Status::ok && row->status == Status::ok) {
      row->status = run.status;
      row->reason = run.reason;
    }
    row->runs[run.round] = &run;
  }
  for (ResultRow& row : rows) {
    row.rounds = std::ssize(row.runs);
    row.throttled_rounds =
        std::count_if(row.runs.begin(), row.runs.end(), [](const auto& r) { return r.second->throttled(); });
    if (!row.throttled()) drop_throttled(row.runs);
    if (row.status == Status::ok) row.numbers = numbers_of(row.runs);
  }
  return rows;
}

}  // namespace stepladder
