#include "bench/results/rounds.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/base/text.h"
#include "bench/results/crossing.h"
#include "model/error.h"

namespace stepladder {
namespace {

double ms_per_token(const Run& run) {
  return run.summary->median_step_ms / tokens_of(run.config);
}

/// What training until a loss took, over the rounds that reached the loss; nothing where none had a loss to
/// reach.
std::optional<TimeToLoss> to_loss_of(const Rounds& rounds) {
  std::optional<TimeToLoss> all;
  std::vector<double> seconds, steps, tokens, step_ms, joules;
  for (const auto& [round, run] : rounds) {
    const auto& one = run->summary->to_loss;
    if (!one) continue;
    if (!all) all.emplace().loss = one->loss;
    const std::optional<ReachedLoss> took = reached_loss(*run);
    if (!took) continue;
    ++all->reached;
    seconds.push_back(took->seconds);
    steps.push_back(took->steps);
    tokens.push_back(took->tokens);
    step_ms.push_back(mean_step_ms(*run));
    if (took->joules) joules.push_back(*took->joules);
  }
  if (!all || all->reached == 0) return all;
  all->seconds = median_over_rounds(seconds);
  all->steps = median_over_rounds(steps);
  all->tokens = median_over_rounds(tokens);
  all->step_ms = median_over_rounds(step_ms);
  if (joules.size() == seconds.size()) all->joules = median_over_rounds(joules);
  return all;
}

/// An archive that gathers each number of the rounds' Measured, and then fills in the row's Measured.
class OverRounds {
 public:
  void operator()(const char* name, const double& value) { values_[name].push_back(value); }
  void operator()(const char* name, const std::optional<double>& value) {
    if (value) values_[name].push_back(*value);
  }

  void operator()(const char* name, double& number) { number = median(values_[name]); }
  void operator()(const char* name, std::optional<double>& number) {
    if (!values_[name].empty()) number = median(values_[name]);
  }
  void operator()(const char* name, Estimate& number) { number = median_over_rounds(values_[name]); }
  void operator()(const char* name, std::optional<Estimate>& number) {
    if (values_[name].size() == rounds_) number = median_over_rounds(values_[name]);
  }
  void added(const char* name, auto& value) { (*this)(name, value); }
  // numbers_of() fills in the following fields.
  void operator()(const char*, const Memory&) {}
  void if_any(const char*, const auto&) {}

  explicit OverRounds(const Rounds& rounds) : rounds_(rounds.size()) {
    for (const auto& [round, run] : rounds) measured_fields(*this, *run->summary);
  }

 private:
  std::map<std::string, std::vector<double>> values_;
  size_t rounds_;
};

ResultRow::Numbers numbers_of(const Rounds& rounds) {
  ResultRow::Numbers numbers;
  OverRounds over(rounds);
  measured_fields(over, numbers);
  numbers.to_loss = to_loss_of(rounds);
  if (numbers.joules) {
    std::vector<double> values;
    for (const auto& [round, run] : rounds) values.push_back(tokens_of(run->config) / *run->summary->joules);
    numbers.tokens_per_joule = median_over_rounds(values);
  }

  std::vector<double> timed;
  bool all_there = true;  // a short file lacks most steps of a run until a loss
  for (const auto& [round, run] : rounds) {
    for (const Step& step : run->steps)
      if (!step.warmup) timed.push_back(step.step_ms);
    all_there &= !run->summary->to_loss || std::ssize(run->steps) == run->summary->to_loss->steps;
    if (!numbers.compile) numbers.compile = run->summary->compile;
    numbers.skipped_steps = std::max(numbers.skipped_steps, run->summary->skipped_steps);
    const Memory& memory = run->summary->memory;
    if (numbers.memory.by_name.empty()) numbers.memory.by_name = memory.by_name;
    for (auto peak : {&Memory::live_peak, &Memory::reserved_peak, &Memory::process_peak})
      numbers.memory.*peak = std::max(numbers.memory.*peak, memory.*peak);
  }
  if (all_there) {
    numbers.p10_step_ms = quantile(timed, 0.1);
    numbers.p90_step_ms = quantile(timed, 0.9);
  }
  numbers.final_loss = rounds.begin()->second->steps.back().loss.value();
  return numbers;
}

/// The median over rounds of of(a, b), where a and b are the two runs of one round: drift between rounds
/// cancels. Skips rounds whose of() is nothing; nothing if none is left.
template <class Of>
std::optional<Estimate> over_pairs(const Rounds& one, const Rounds& other, Of of) {
  std::vector<double> values;
  for (const auto& [a, b] : pairs_of(one, other))
    if (const std::optional<double> value = of(*a, *b)) values.push_back(*value);
  if (values.empty()) return std::nullopt;
  return median_over_rounds(values);
}

}  // namespace

Rounds rounds_of(const Results& results, const RowKey& row) {
  Rounds rounds;
  for (const Run& run : results.runs)
    if (run.is_of(row)) rounds[run.round] = &run;
  return rounds;
}

std::vector<std::pair<const Run*, const Run*>> pairs_of(const Rounds& one, const Rounds& other) {
  std::vector<std::pair<const Run*, const Run*>> pairs;
  for (const auto& [round, run] : one)
    if (const auto found = other.find(round); found != other.end()) pairs.emplace_back(run, found->second);
  return pairs;
}

void drop_disturbed(Rounds& rounds) {
  std::erase_if(rounds, [](const auto& round) { return round.second->disturbed(); });
}

std::optional<Estimate> speedup(const Rounds& before, const Rounds& after) {
  return over_pairs(before, after,
                    [](const Run& was, const Run& is) { return ms_per_token(was) / ms_per_token(is); });
}

std::optional<Sooner> sooner(const Rounds& before, const Rounds& after) {
  const auto ratio = [&](auto of) {
    return over_pairs(before, after, [&](const Run& was, const Run& is) -> std::optional<double> {
      const auto one = reached_loss(was), other = reached_loss(is);
      if (!one || !other) return std::nullopt;
      const std::optional<double> a = of(was, *one), b = of(is, *other);
      return a && b ? std::optional(*a / *b) : std::nullopt;
    });
  };
  using Known = std::optional<double>;
  const auto seconds = ratio([](const Run&, const ReachedLoss& took) -> Known { return took.seconds; });
  if (!seconds) return std::nullopt;
  return Sooner{before.begin()->second->variant, *seconds,
                *ratio([](const Run&, const ReachedLoss& took) -> Known { return took.steps; }),
                *ratio([](const Run& run, const ReachedLoss&) -> Known { return mean_step_ms(run); }),
                ratio([](const Run&, const ReachedLoss& took) { return took.joules; })};
}

std::optional<Estimate> longer(const Rounds& rounds, const Rounds& than) {
  return over_pairs(rounds, than, [](const Run& run, const Run& other) {
    return run.summary->median_step_ms - other.summary->median_step_ms;
  });
}

double besides_steps_ms(const Run& run) {
  double ms = run.wall_ms;
  for (const Step& step : run.steps) ms -= step.step_ms;
  return ms;
}

int64_t timed_steps(const Run& run) {
  const Summary& s = *run.summary;
  return (s.to_loss ? s.to_loss->steps : std::ssize(run.steps)) - s.warmup_steps;
}

std::optional<Estimate> speedup(const ResultRow* before, const ResultRow* after) {
  const bool both = before && before->claimable() && after && after->claimable();
  return both ? speedup(before->runs, after->runs) : std::nullopt;
}

std::string little_covered(const Summary& summary) {
  constexpr double kLittle = 0.5;
  if (!summary.covered || *summary.covered >= kLittle) return "";
  return cat(
      "its steps fill ", fixed(*summary.covered * 100, 1),
      " % of the time from the first to the last: is step_ms in milliseconds, and is all of a step in it?");
}

std::string divergence(const Run& baseline, const std::string& name, const Run& run, double tolerance) {
  const size_t steps = std::min(baseline.steps.size(), run.steps.size());
  for (size_t i = 0; i < steps; ++i) {
    for (const auto& [of, called] : {std::pair(&baseline, &name), std::pair(&run, &run.variant)})
      if (!of->steps[i].loss) return cat(*called, ": step ", i, " has no loss");
    const double expected = *baseline.steps[i].loss, loss = *run.steps[i].loss;
    const double apart = loss == expected ? 0.0 : std::abs(loss - expected) / std::abs(expected);  // 0/0
    if (!(apart <= tolerance))
      return cat("step ", i, ": loss ", number_text(loss), ", ", name, " has ", number_text(expected),
                 "; they are ", apart * 100, " % apart, the tolerance is ", number_text(tolerance * 100),
                 " %");
  }
  return "";
}

std::vector<ResultRow> rows_of(const Results& results) {
  std::vector<ResultRow> rows;
  for (const Run& run : results.runs) {
    if (has_independent_ranks(run.config)) continue;
    const std::string workload = run.workload();
    auto row = std::ranges::find_if(
        rows, [&](const ResultRow& r) { return r.workload == workload && r.variant == run.variant; });
    if (row == rows.end()) {
      row = rows.emplace(rows.end());
      row->variant = run.variant, row->backend = run.backend, row->workload = workload;
      row->peer = run.peer, row->config = run.config;
    }
    if (run.status == Status::ok)
      row->backend = run.backend;  // as the run told, which a failed run may not have
    if (run.status != Status::ok && row->status == Status::ok) {
      row->status = run.status;
      row->reason = run.reason;
    }
    row->runs[run.round] = &run;
  }
  for (ResultRow& row : rows) {
    row.rounds = std::ssize(row.runs);
    row.disturbed_rounds =
        std::ranges::count_if(row.runs, [](const auto& r) { return r.second->disturbed(); });
    for (const auto& [round, run] : row.runs)
      if (row.disturbance.empty()) row.disturbance = run->disturbance();
    if (!row.disturbed()) drop_disturbed(row.runs);
    if (row.status == Status::ok) row.numbers = numbers_of(row.runs);
  }
  return rows;
}

}  // namespace stepladder
