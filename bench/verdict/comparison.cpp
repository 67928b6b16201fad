#include "bench/verdict/comparison.h"

#include <algorithm>
#include <cmath>

#include "bench/base/text.h"
#include "bench/plan/ladder_file.h"
#include "bench/results/crossing.h"
#include "bench/results/learns.h"
#include "bench/results/rounds.h"

namespace stepladder {
namespace {

// ---- notes for the reader

/// Adds lines on quantities that could not be judged, or not in every pair.
void add_unknown(std::vector<std::string>& lines, const ComparedRow& row) {
  const std::string of = cat(row.variant, ", ", row.workload, ": ");
  for (const ComparedQuantity& quantity : row.numbers->quantities)
    if (quantity.pairs < row.numbers->pairs)
      lines.push_back(cat(of, quantity.pairs, " of ", row.numbers->pairs, " pairs know the ",
                          name_of(quantity.what), " of both sides."));
  if (!row.numbers->unknown.empty())
    lines.push_back(cat(of, join(row.numbers->unknown, " and "), " not known: judged without."));
}

std::vector<std::string> notes(const Results& base, const Results& next,
                               const std::vector<ComparedRow>& rows) {
  std::vector<std::string> lines;
  const std::string base_commit = text_at(base.context, "commit"), commit = text_at(next.context, "commit");
  const bool known = !base_commit.empty() && !commit.empty();
  std::vector<std::string> same, other_algorithms;
  size_t judged = 0, fewest = kMinPairs;
  bool mixed = false;
  for (const ComparedRow& row : rows) {
    if (row.numbers && row.numbers->disturbed > 0)
      lines.push_back(cat(row.variant, ", ", row.workload, ": ",
                          counted(static_cast<int64_t>(row.numbers->disturbed), "pair"),
                          row.numbers->disturbed == 1 ? " is" : " are", " left out, the device was ",
                          row.numbers->disturbance, "."));
    if (row.numbers) add_unknown(lines, row);
    if (row.verdict == Verdict::skipped) continue;
    ++judged;
    if (row.numbers) fewest = std::min(fewest, row.numbers->pairs);
    if (row.numbers && row.numbers->other_algorithms && row.numbers->find(Quantity::cycles))
      add_once(other_algorithms, row.variant);
    if (row.same_sources) add_once(same, row.variant);
    if (!row.same_sources && known && base_commit == commit && !commit.ends_with("-dirty") && !mixed) {
      mixed = true;
      lines.push_back(cat("STALE: both say commit ", commit, ", yet the sources of ", row.variant,
                          " differ: one of the two was not built from it."));
    }
  }
  const bool all = judged > 0 && std::ranges::all_of(rows, [](const ComparedRow& row) {
                     return row.same_sources || row.verdict == Verdict::skipped;
                   });
  if (!same.empty())
    lines.push_back(
        cat(all ? "Every rung" : join(same, ", "),
            ": the same sources (the rung's file and what it calls) in BASE and NEW, so this compares the "
            "machine with itself, or options",
            known && base_commit != commit && all ? "; the commits differ, so if the change should touch "
                                                    "them, one side was not rebuilt, or `sources` in the "
                                                    "ladder file lacks a file."
                                                  : "."));
  if (fewest < kMinPairs)
    lines.push_back(cat(fewest, fewest == 1 ? " pair is" : " pairs are", " too few: ", kMinPairs,
                        " at least, 10 find 2 %."));
  if (!other_algorithms.empty())
    lines.push_back(
        cat(join(other_algorithms, ", "),
            ": BASE and NEW ran different GEMM algorithms, as each searched by itself. These differ "
            "in cycles at the same time of a step: the limit of cycles is higher there."));
  if (const std::string was = text_at(base.context, "time"), is = text_at(next.context, "time");
      !was.empty() && !is.empty() && is < was)
    lines.emplace_back("STALE: NEW was measured before BASE; are the two in the wrong order?");
  for (const auto& [results, side] : {std::pair(&base, "BASE"), std::pair(&next, "NEW")})
    if (!results->complete)
      lines.push_back(
          cat(side, " is unfinished: it has ", counted(std::ssize(results->runs), "run"), " of its plan."));
  if (const auto was = base.cards(), is = next.cards(); was != is && !was.contains("") && !is.contains(""))
    lines.push_back(cat("BASE and NEW ran on different ",
                        text_at(next.device(), "backend") == "cpu" ? "hosts, which differ"
                                                                   : "cards, and cards of one model differ",
                        " by some percent: `stepladder gate` measures both on one."));
  if (const auto was = number_at(base.context.value("telemetry", Json()), "power_limit_w"),
      is = number_at(next.context.value("telemetry", Json()), "power_limit_w");
      was && is && *was != *is)
    lines.push_back(cat("The power limit changed from ", number_text(*was), " to ", number_text(*is),
                        " W, and a card at its limit takes its time by it: a difference may be its."));
  for (const char* field : {"version", "build"})
    if (const std::string was = text_at(base.context, field), is = text_at(next.context, field);
        was != is && !was.empty() && !is.empty())
      lines.push_back(cat("The ", field, " changed from ", was, " to ", is, "."));
  for (const char* field : {"driver", "runtime", "blas", "attention"})
    if (const std::string was = text_at(base.device(), field), is = text_at(next.device(), field); was != is)
      lines.push_back(cat("The device's ", field, " changed from ", was.empty() ? "unknown" : was, " to ",
                          is.empty() ? "unknown" : is, ": a difference may be its."));
  const auto before = versions_told(base);
  for (const auto& [name, is] : versions_told(next))
    if (const auto was = before.find(name); was != before.end() && was->second != is)
      lines.push_back(cat("The trainers' ", name, " changed from ", was->second, " to ", is,
                          ": a difference may be its."));
  return lines;
}

// ---- one row

/// The first run that is not ok, with the number of such runs, "NEW: crash: killed (1 of 3 runs)"; "" where
/// all are ok.
std::string failure(const Rounds& rounds, const char* side) {
  const auto failed = [](const auto& item) { return item.second->status != Status::ok; };
  const auto first = std::ranges::find_if(rounds, failed);
  if (first == rounds.end()) return "";
  return cat(side, ": ", first->second->outcome(), " (", std::ranges::count_if(rounds, failed), " of ",
             rounds.size(), " runs)");
}

double tolerance_of(const std::string& variant, const Ladder& ladder) {
  // Two builds of the lowest rung need not agree to the bit: they get the tolerance of the next rung.
  constexpr double kRounding = 1e-5;
  if (const Rung* rung = ladder.listed(variant)) return std::max(rung->tolerance, kRounding);
  return std::ranges::max_element(ladder.rungs, {}, &Rung::tolerance)->tolerance;
}

bool unsupported(const Rounds& rounds) {
  return std::ranges::all_of(rounds,
                             [](const auto& item) { return item.second->status == Status::unsupported; });
}

/// Parts of the arena that are larger in NEW than in BASE.
std::vector<std::string> grown_parts(const Memory& base, const Memory& next) {
  std::vector<std::string> parts;
  for (const auto& [name, bytes] : next.by_name) {
    const auto was = base.by_name.find(name);
    const int64_t before = was == base.by_name.end() ? 0 : std::max<int64_t>(was->second, 0);
    if (bytes > before) parts.push_back(cat(name, " +", bytes_text(bytes - before)));
  }
  return parts;
}

/// Whether live memory is the same in each run of a row: in our rungs' arenas always, else where trainers
/// call it exact.
bool is_exact(const Rounds& rounds, const Ladder& ladder) {
  return ladder.built_in() || std::ranges::all_of(rounds, [](const auto& item) {
           return item.second->summary->memory.exact.value_or(false);
         });
}

const Memory& largest(const Rounds& rounds) {
  const auto bytes = [](const auto& item) { return item.second->summary->memory.live_peak; };
  return std::ranges::max_element(rounds, {}, bytes)->second->summary->memory;
}

/// Whether two runs used different GEMM algorithms, or may have: one of them searched and doesn't tell its
/// choice.
bool other_algorithms(const Summary& was, const Summary& is) {
  const auto searched = [](const Summary& s) {
    return s.compile && s.compile->searched + s.compile->from_cache > 0;
  };
  return (searched(was) || searched(is)) && (!was.compile || !is.compile || was.compile->algorithms.empty() ||
                                             was.compile->algorithms != is.compile->algorithms);
}

/// The mean ms from the begin of a step to that of the next, where the run tells how much of the time its
/// steps cover.
std::optional<double> ms_to_next(const Run& run, size_t first) {
  const double covered = run.summary->covered.value_or(0.0);
  if (!(covered > 0.0)) return std::nullopt;
  return mean_ms(run, first) + mean_ms(run, 1) * (1.0 / covered - 1.0);
}

ComparedRow::Numbers numbers_of(const RowKey& key, const Rounds& base, const Rounds& next, bool exact_memory,
                                const Limits& limits) {
  ComparedRow::Numbers numbers;
  struct RunPair {
    const Run *was, *is;
    size_t first;  // the first step that either timed: from it means are taken, so slow steps count
  };
  std::vector<RunPair> pairs;
  for (const auto& [run, other] : pairs_of(next, base)) {
    const char* was = other->disturbance();
    if (const std::string disturbance = *was ? was : run->disturbance(); !disturbance.empty()) {
      if (numbers.disturbed++ == 0) numbers.disturbance = disturbance;
      continue;
    }
    pairs.push_back({other, run, std::min(first_timed(*other), first_timed(*run))});
    numbers.other_algorithms = numbers.other_algorithms || other_algorithms(*other->summary, *run->summary);
  }
  numbers.pairs = pairs.size();
  const auto noise = limits.noise.find(key);
  const auto compare = [&](Quantity what, auto known, double limit,
                           std::vector<double> LogRatios::*of = nullptr) {
    ComparedQuantity quantity{.what = what, .limit = limit};
    std::vector<double> before, after, log_ratios;
    bool base_knows = false, next_knows = false;
    for (const auto& [was, is, first] : pairs) {
      const std::optional<double> x = known(*was, first), y = known(*is, first);
      base_knows = base_knows || x, next_knows = next_knows || y;
      if (!x || !y || !(*x > 0.0) || !(*y > 0.0) || std::isinf(*x) || std::isinf(*y)) continue;
      before.push_back(*x);
      after.push_back(*y);
      log_ratios.push_back(std::log(*y) - std::log(*x));
    }
    quantity.pairs = log_ratios.size();
    if (quantity.pairs > 0) {
      quantity.base = median(before);
      quantity.next = median(after);
      if (of && noise != limits.noise.end() && !(noise->second.*of).empty())
        quantity.limit = raised_limit(limit, noise->second.*of, quantity.pairs);
    }
    if (quantity.pairs >= kMinPairs) quantity.change = paired_change(log_ratios, limits.upper_confidence);
    if ((base_knows && next_knows) || what == Quantity::time)
      numbers.quantities.push_back(quantity);
    else if (base_knows || next_knows)
      numbers.unknown.push_back(cat(base_knows ? "NEW's " : "BASE's ", name_of(what)));
  };
  compare(
      Quantity::time, [](const Run& run, size_t) { return std::optional(run.summary->median_step_ms); },
      limits.threshold, &LogRatios::time);
  compare(
      Quantity::cycles, [](const Run& run, size_t) { return run.summary->cycles; },
      numbers.other_algorithms ? limits.cycles_other_algorithms : limits.cycles, &LogRatios::cycles);
  const double of_means = std::max(limits.threshold, kMinMeanTimeLimit);
  compare(
      Quantity::mean_time, [](const Run& run, size_t first) { return std::optional(mean_ms(run, first)); },
      of_means, &LogRatios::time);
  compare(Quantity::time_to_next, ms_to_next, of_means, &LogRatios::time);
  compare(
      Quantity::energy, [](const Run& run, size_t) { return run.summary->joules; }, limits.energy,
      &LogRatios::energy);
  if (!exact_memory) {
    compare(
        Quantity::memory,
        [](const Run& run, size_t) {
          const auto bytes = static_cast<double>(run.summary->memory.live_peak);
          return bytes > 0.0 ? std::optional(bytes) : std::nullopt;
        },
        kMinMemoryLimit);
    if (const ComparedQuantity* memory = numbers.find(Quantity::memory)) {
      numbers.base_bytes = std::llround(memory->base);
      numbers.new_bytes = std::llround(memory->next);
    }
    return numbers;
  }
  const Memory &before = largest(base), &after = largest(next);
  numbers.base_bytes = before.live_peak;
  numbers.new_bytes = after.live_peak;
  if (after.live_peak > before.live_peak) numbers.grown = grown_parts(before, after);
  if ((numbers.base_bytes > 0) != (numbers.new_bytes > 0))
    numbers.unknown.push_back(cat(numbers.base_bytes > 0 ? "NEW's" : "BASE's", " live memory"));
  return numbers;
}

/// What is doubtful about the noise that set a row's limit; "" where nothing is.
std::string doubtful_noise(const RowKey& key, const Limits& limits, size_t pairs) {
  const auto noise = limits.noise.find(key);
  if (noise == limits.noise.end() || pairs == 0) return "";
  const std::vector<double>& times = noise->second.time;
  const double floor = std::expm1(noise_floor(times, pairs));
  std::vector<std::string> doubts;
  if (times.size() < kEnoughNoisePairs)
    doubts.push_back(cat("its noise is known from ", times.size(), " pairs only, calibrate with ",
                         kEnoughNoisePairs, " or more"));
  if (floor > std::max(limits.threshold, kMaxNoiseLimit))
    doubts.push_back(cat("its noise of ", fixed(floor * 100, 1), " % would make any limit meaningless; ",
                         fixed(raised_limit(limits.threshold, times, pairs) * 100, 1), " % is used"));
  return doubts.empty() ? "" : cat(key.first, ", ", key.second, ": ", join(doubts, "; "), ".");
}

/// "1.9 % more cycles", "0.2 % less time".
std::string change_text(const ComparedQuantity& quantity) {
  const double percent = std::expm1(quantity.change->log_ratio) * 100;
  return cat(fixed(std::abs(percent), 1), " % ", percent < 0 ? "less " : "more ", name_of(quantity.what));
}

/// The reason that a REGRESSION in time or in cycles gives.
std::string slower_text(const ComparedQuantity& time, const ComparedQuantity* cycles) {
  if (!cycles || !cycles->change)
    return cat("slower: ", change_text(time), ", the limit is ", fixed(time.limit * 100, 2), " %");
  constexpr double kHidden = 0.002;  // a smaller difference of log ratios is noise
  return cat(change_text(time), ", ", change_text(*cycles),
             cycles->change->log_ratio > time.change->log_ratio + kHidden
                 ? ": the card made up for it with its clock"
                 : "");
}

/// How many pairs would tell the verdict if each quantity kept its mean and spread: a bound's distance from
/// the mean is spread / sqrt(pairs). Infinite where a mean lies on its limit.
double pairs_that_tell(const std::vector<ComparedQuantity>& quantities) {
  double regression = INFINITY, pass = 0.0;  // a regression takes one quantity, a pass all
  for (const ComparedQuantity& one : quantities) {
    if (!one.change || one.what == Quantity::energy) continue;
    const double to_limit = std::log1p(one.limit) - one.change->log_ratio;
    if (is_of_means(one.what) && to_limit > 0.0) continue;  // it hinders no PASS
    const double half =
        to_limit > 0.0 ? one.change->hi - one.change->log_ratio : one.change->log_ratio - one.change->lo;
    const double needed = static_cast<double>(one.pairs) * std::pow(half / to_limit, 2);
    if (to_limit <= 0.0) regression = std::min(regression, needed);
    pass = std::max(pass, to_limit > 0.0 ? needed : INFINITY);
  }
  return std::min(regression, pass);
}

/// Advice on what would decide a verdict whose bounds enclose the limit.
std::string advice_of(const ComparedRow::Numbers& n) {
  constexpr double kMostPairs = 200.0;
  const double pairs = pairs_that_tell(n.quantities);
  if (pairs > kMostPairs)
    return "; the change lies so near to it that pairs won't tell: more --steps, or another limit";
  return cat("; about ", std::max(std::ceil(pairs), static_cast<double>(n.pairs + 1)),
             " pairs would tell, if it stays as it is (gate: --max-pairs)");
}

/// Why neither PASS nor REGRESSION holds.
std::string undecided_text(const ComparedRow::Numbers& n) {
  if (!n.time().change) return "too few pairs";
  for (const Quantity what : {Quantity::cycles, Quantity::memory})
    if (const ComparedQuantity* one = n.find(what); one && !one->change)
      return cat("too few pairs know the ", name_of(what), " of both");
  const auto above = std::ranges::find_if(
      n.quantities, [](const ComparedQuantity& one) { return one.above() && one.what != Quantity::energy; });
  if (above == n.quantities.end()) return "the bounds enclose the limit" + advice_of(n);
  const std::string what = above->what == Quantity::time ? "slower" : change_text(*above);
  return above->pairs < kMinCertainPairs
             ? cat(what, ", but ", above->pairs, " pairs are never certain: ", kMinCertainPairs, " at least")
             : what + ", but not certainly so";
}

/// Sets the verdict that follows from a row's numbers, `certain` among them, and its reason.
void judge(ComparedRow& row, bool may_pass) {
  const ComparedRow::Numbers& n = *row.numbers;
  const ComparedQuantity& time = n.time();
  const ComparedQuantity *cycles = n.find(Quantity::cycles), *energy = n.find(Quantity::energy),
                         *memory = n.find(Quantity::memory);
  const auto regressed = [](const ComparedQuantity* x) { return x && x->above() && x->certain; };
  std::vector<std::string> reasons;
  if (!memory && n.base_bytes > 0 && n.new_bytes > n.base_bytes)  // 0 where BASE did not tell
    reasons.push_back(cat("live memory grew by ", bytes_text(n.new_bytes - n.base_bytes),
                          n.grown.empty() ? "" : ": " + join(n.grown, ", ")));
  // A rung that takes less time at a higher clock may take more cycles: memory has a clock of its own.
  const bool faster = time.certainly_less;
  if (regressed(&time) || (regressed(cycles) && !faster))
    reasons.push_back(slower_text(time, cycles));
  else if (const ComparedQuantity* mean = n.find(Quantity::mean_time); regressed(mean))
    reasons.push_back(cat(change_text(*mean), time.above() ? "" : ": slow steps that the median hides"));
  else if (const ComparedQuantity* to_next = n.find(Quantity::time_to_next); regressed(to_next))
    reasons.push_back(cat(change_text(*to_next), ": it passes between steps"));
  for (const ComparedQuantity* more : {energy, memory})
    if (regressed(more)) reasons.push_back(change_text(*more));
  row.verdict = Verdict::regression;
  if (reasons.empty()) {
    const bool pass =
        may_pass && time.below() && (!cycles || cycles->below() || faster) &&
        std::ranges::none_of(
            n.quantities, [](const ComparedQuantity& one) { return is_of_means(one.what) && one.above(); }) &&
        (!memory || memory->below());
    row.verdict = pass ? Verdict::pass : Verdict::inconclusive;
    if (!pass) reasons.push_back(undecided_text(n));
  }
  row.reason = join(reasons, "; ");
}

/// Sets whether a quantity is certainly more, or less, by Holm's test over all mean times or, without
/// `of_means`, over all others.
void mark_certain(std::vector<ComparedRow>& rows, bool of_means, double alpha) {
  std::vector<ComparedQuantity*> tested;
  std::vector<PairedChange> changes;
  for (ComparedRow& row : rows) {
    if (!row.numbers) continue;
    for (ComparedQuantity& quantity : row.numbers->quantities) {
      if (is_of_means(quantity.what) != of_means) continue;
      tested.push_back(&quantity);
      changes.push_back(quantity.change.value_or(PairedChange{}));
    }
  }
  const std::vector<bool> more = certain_by(changes, alpha, &PairedChange::p_slower),
                          less = certain_by(changes, alpha, &PairedChange::p_faster);
  for (size_t i = 0; i < tested.size(); ++i)
    tested[i]->certain = more[i], tested[i]->certainly_less = less[i];
}

// ---- learning

/// Why neither FASTER nor SLOWER holds, and with how many seeds more one would.
std::string untold_text(const LearningNumbers& n) {
  const LearningChange& change = n.change;
  const auto of_all = [&](size_t missed) { return cat(change.seeds - missed, " of ", change.seeds); };
  if (!n.no_interval.empty()) return n.no_interval;
  if (std::min(change.base_missed, change.next_missed) == change.seeds)
    return "no seed of either reached the loss to stay";
  if (change.seeds < kMinCertainPairs)
    return cat(counted(static_cast<int64_t>(change.seeds), "seed"), " in common, ", kMinCertainPairs,
               " are the least");
  if (change.by_signs())
    return cat(of_all(change.base_missed), " seeds of BASE and ", of_all(change.next_missed),
               " of NEW reached the loss to stay, and signs alone don't tell");
  if (!change.seconds) return "the times of a step are not known";
  std::vector<std::string> texts;
  for (const LearningNumbers::More& more : n.more)
    texts.push_back(more.seeds == 0 ? cat(more.percent, " % would be told")
                                    : cat(more.percent, " % takes ", more.seeds, " more seeds"));
  return join(texts, ", ");
}

/// "commit 0123abc, 2025-01-31T12:00:00.000Z"
std::string described(const Results& results) {
  const std::string commit = text_at(results.context, "commit"), time = text_at(results.context, "time");
  return cat(commit.empty() ? "an unknown commit" : "commit " + commit, time.empty() ? "" : ", " + time);
}

/// Fills in row.learning, or row.reason where a run's evaluations don't tell or the runs for times are not
/// ok. `alpha` is the row's share of false alarms, for LearningNumbers::more.
void learn(ComparedRow& row, const RowKey& key, const Rounds& base, const Rounds& next, const Limits& limits,
           double alpha) {
  StepTimes times;
  if (limits.base_times) times = {rounds_of(*limits.base_times, key), rounds_of(*limits.next_times, key)};
  for (const auto& [rounds, side] :
       {std::pair(&times.base, "BASE's times"), std::pair(&times.next, "NEW's times")})
    if (row.reason.empty() && limits.base_times)
      row.reason = rounds->empty() ? cat(side, ": there are none") : failure(*rounds, side);
  if (!row.reason.empty()) return;
  try {
    row.learning =
        learning_numbers(base, next, *limits.until_loss, alpha, limits.base_times ? &times : nullptr);
  } catch (const InputError& e) {
    row.reason = e.what();
  }
}

/// Sets the verdicts that follow from the rows' `learning`, by Holm's test over all rows.
void judge_learning(std::vector<ComparedRow>& rows, double alpha) {
  std::vector<ComparedRow*> learning;
  std::vector<double> p_values;
  for (ComparedRow& row : rows)
    if (row.learning) learning.push_back(&row), p_values.push_back(row.learning->change.p_changed());
  const std::vector<bool> changed = holm(p_values, alpha);
  for (size_t i = 0; i < learning.size(); ++i) {
    ComparedRow& row = *learning[i];
    const LearningChange& change = row.learning->change;
    row.verdict = !changed[i]                         ? Verdict::not_told_apart
                  : change.p_faster < change.p_slower ? Verdict::faster
                                                      : Verdict::slower;
    if (!changed[i])
      row.reason = untold_text(*row.learning);
    else if (change.by_signs())
      row.reason = cat("by the signs of ", change.seeds, " pairs; the loss was reached to stay by ",
                       change.seeds - change.base_missed, " of BASE and ", change.seeds - change.next_missed,
                       " of NEW");
  }
}

/// Adds what a reader of verdicts on learning has to know: intended changes, equal curves, and where times
/// are from.
void add_learning_notes(Comparison& comparison, const std::vector<Disagreement>& intended,
                        const Limits& limits) {
  for (const Disagreement& one : intended)
    comparison.notes.push_back(cat("An intended change? BASE / NEW: ", one.text(), "."));
  for (const ComparedRow& row : comparison.rows)
    if (row.learning && row.learning->same_curves)
      comparison.notes.push_back(cat(row.variant, ", ", row.workload,
                                     ": BASE and NEW learn the same to the bit from each seed, so only the "
                                     "time of a step can differ."));
  if (limits.base_times)
    comparison.notes.push_back(cat("Steps to the loss are of the runs of --steps-from (", comparison.base,
                                   " / ", comparison.next, "), times of a step of BASE and NEW (",
                                   described(*limits.base_times), " / ", described(*limits.next_times),
                                   ")."));
}

/// Compares NEW's losses with BASE's, in long runs by their means: fills in row.reason where NEW is worse.
/// A tolerance without a limit is always kept.
Learns learns_as_base(ComparedRow& row, const Rounds& base, const Rounds& next, double tolerance) {
  const auto steps = [](const Rounds& rounds) { return rounds.begin()->second->steps.size(); };
  if (std::min(steps(base), steps(next)) <= kShortRun) {
    for (const auto& [run, other] : pairs_of(next, base)) {
      const std::string apart = divergence(*other, "BASE", *run, tolerance);
      if (apart.empty()) continue;
      row.reason = cat("NEW: diverged: ", apart);
      return Learns::worse;
    }
    return Learns::same;
  }
  const Learns learns = learns_the_same(base, next, tolerance);
  if (learns == Learns::worse)
    row.reason =
        cat("NEW: diverged: losses are certainly over BASE's by more than the tolerance of ", tolerance);
  return learns == Learns::not_shown && !std::isfinite(tolerance) ? Learns::same : learns;
}

/// Adds lines on keywords that one side alone recorded, with which nothing was compared.
void add_one_sided(std::vector<std::string>& lines, const Run& was, const Run& is) {
  for (const auto& [side, run, other] : {std::tuple("BASE", &was, &is), std::tuple("NEW", &is, &was)})
    for (const auto& [key, value] : run->config.items())
      if (!other->config.contains(key) && key != "versions")
        add_once(lines, cat("Only ", side, " records ", printable(key, 60), ", ", printable(dump(value), 100),
                            ": it was not compared."));
}

/// A sentence on how far validation losses after the last step are apart; "" where fewer than
/// kMinCertainPairs pairs have them.
std::string equality_text(const ComparedRow& row, const Rounds& base, const Rounds& next) {
  std::vector<double> differences;
  for (const auto& [run, other] : pairs_of(next, base))
    if (run->summary->val_loss && other->summary->val_loss)
      differences.push_back(*run->summary->val_loss - *other->summary->val_loss);
  if (differences.size() < kMinCertainPairs) return "";
  return cat(row.variant, ", ", row.workload, ": the validation loss after the last step changed by ",
             fixed(mean_of(differences).value, 4), " nats; ",
             equal_losses(differences) ? "it is" : "it is not shown to be", " equal within ",
             number_text(kEqualLoss), " (two one-sided t tests, ", differences.size(), " pairs).");
}

}  // namespace

const char* name_of(Verdict verdict) {
  constexpr const char* kNames[] = {"PASS",   "REGRESSION",     "INCONCLUSIVE", "FASTER",
                                    "SLOWER", "NOT TOLD APART", "FAILED",       "SKIPPED"};
  return kNames[static_cast<size_t>(verdict)];
}

const char* name_of(Quantity quantity) {
  constexpr const char* kNames[] = {"time",   "cycles",     "mean time", "mean time to the next step",
                                    "energy", "live memory"};
  return kNames[static_cast<size_t>(quantity)];
}

const ComparedQuantity* ComparedRow::Numbers::find(Quantity what) const {
  const auto found = std::ranges::find(quantities, what, &ComparedQuantity::what);
  return found == quantities.end() ? nullptr : &*found;
}

Verdict overall(const std::vector<ComparedRow>& rows) {
  using enum Verdict;
  for (Verdict worst : {failed, regression, slower, inconclusive, not_told_apart, pass, faster})
    if (std::ranges::find(rows, worst, &ComparedRow::verdict) != rows.end()) return worst;
  return skipped;
}

ExitCode exit_code(const std::vector<ComparedRow>& rows, bool undecided_passes) {
  constexpr ExitCode kCodes[] = {kExitOk,         kExitRegression,   kExitInconclusive, kExitOk,
                                 kExitRegression, kExitInconclusive, kExitFailed,       kExitNotComparable};
  const ExitCode code = kCodes[static_cast<size_t>(overall(rows))];
  return code == kExitInconclusive && undecided_passes ? kExitOk : code;
}

double raised_limit(double threshold, std::span<const double> noise, size_t pairs) {
  return std::max(threshold, std::min(kMaxNoiseLimit, std::expm1(noise_floor(noise, pairs))));
}

Comparison compare(const Results& base, const Results& next, const Limits& limits) {
  std::vector<Disagreement> intended;
  if (limits.until_loss) {
    intended = require_comparable_steps(base, next);
    require_comparable_times(limits.base_times ? *limits.base_times : base,
                             limits.next_times ? *limits.next_times : next);
  } else {
    require_comparable(base, next);
  }
  const Rows before(base), after(next);
  std::vector<RowKey> keys = after.order;
  for (const RowKey& key : before.order)
    if (!after.find(key)) keys.push_back(key);

  const auto common = static_cast<double>(
      std::ranges::count_if(keys, [&](const RowKey& key) { return before.find(key) && after.find(key); }));
  const Ladder ladder = ladder_of(base), next_ladder = ladder_of(next);  // NEW's ladder sets no limit
  std::vector<std::string> other_tolerances, unheld, not_shown, better, one_sided, equalities;
  std::string fixed_order;
  for (const auto& [side, results] : {std::pair("BASE", &base), std::pair("NEW", &next)})
    if (has_fixed_order(*results))
      fixed_order = cat(side, " saw its data in the same order from each seed: train with --shuffle");
  Comparison comparison;
  for (const RowKey& key : keys) {
    ComparedRow& row = comparison.rows.emplace_back();
    row.variant = key.first;
    row.workload = key.second;
    const Rounds *was = before.find(key), *is = after.find(key);
    if (!was || !is) {
      row.reason = was ? "only in BASE" : "only in NEW";
      continue;
    }
    row.same_sources = was->begin()->second->source_hash == is->begin()->second->source_hash;
    if (unsupported(*was)) {
      row.reason = failure(*was, "BASE");
      continue;
    }
    for (const std::string& reason : {failure(*is, "NEW"), failure(*was, "BASE")})
      if (!reason.empty()) row.reason += (row.reason.empty() ? "" : "; ") + reason;
    add_one_sided(one_sided, *was->begin()->second, *is->begin()->second);
    const double tolerance = tolerance_of(row.variant, ladder);
    // Runs until a loss are not compared by loss: each learns until it reaches the loss.
    if (row.reason.empty() && !limits.until_loss && !number_at(next.plan, "until_loss")) {
      const Learns learns = learns_as_base(row, *was, *is, tolerance);
      if (learns == Learns::not_shown) add_once(not_shown, row.variant);
      if (learns == Learns::better) add_once(better, row.variant);
    }
    if (!std::isfinite(tolerance)) {
      if (!limits.until_loss) add_once(unheld, row.variant);
    } else if (tolerance != tolerance_of(row.variant, next_ladder)) {
      add_once(other_tolerances, row.variant);
    }
    if (row.reason.empty() && limits.until_loss) {
      learn(row, key, *was, *is, limits, kFalseAlarms / common);
      if (row.learning && !fixed_order.empty()) row.learning->forget_interval(fixed_order);
      if (row.learning) continue;
    }
    if (!row.reason.empty()) {
      row.verdict = Verdict::failed;
      continue;
    }
    const bool exact = is_exact(*was, ladder), next_exact = is_exact(*is, next_ladder);
    if (exact != next_exact)
      one_sided.push_back(cat(row.variant, ", ", row.workload, ": only ", exact ? "BASE" : "NEW",
                              " calls its live memory exact: judged as memory that isn't."));
    row.numbers = numbers_of(key, *was, *is, exact && next_exact, limits);
    if (const std::string text = equality_text(row, *was, *is); !text.empty()) equalities.push_back(text);
    if (row.numbers->pairs == 0 && row.numbers->disturbed > 0) {
      row.verdict = limits.final ? Verdict::failed : Verdict::inconclusive;
      row.reason =
          cat("the device was ", row.numbers->disturbance, " in all ", row.numbers->disturbed, " pairs");
      row.numbers.reset();
    }
  }

  constexpr double kShareOfMeans = 0.1;  // little, so that they cost the other quantities little
  mark_certain(comparison.rows, false, limits.alpha * (1.0 - kShareOfMeans));
  mark_certain(comparison.rows, true, limits.alpha * kShareOfMeans);
  for (ComparedRow& row : comparison.rows)
    if (row.numbers) judge(row, limits.may_pass);
  judge_learning(comparison.rows, limits.alpha);

  comparison.base = described(base);
  comparison.next = described(next);
  comparison.device = (limits.next_times ? *limits.next_times : next).device_model();
  comparison.notes = notes(base, next, comparison.rows);
  if (limits.until_loss) add_learning_notes(comparison, intended, limits);
  if (!other_tolerances.empty())
    comparison.notes.push_back(cat(join(other_tolerances, ", "),
                                   ": NEW's ladder has another tolerance; losses are held to BASE's."));
  if (!unheld.empty())
    comparison.notes.push_back(
        cat(join(unheld, ", "), ": losses were not compared, as BASE's ladder gives no tolerance."));
  if (!not_shown.empty())
    comparison.notes.push_back(cat(join(not_shown, ", "), ": not shown to learn as well as BASE: that takes ",
                                   kMinBaselines, " runs of BASE where they have over ", kShortRun,
                                   " steps, and losses that spread less than the tolerance."));
  if (!better.empty())
    comparison.notes.push_back(cat(join(better, ", "),
                                   ": losses are certainly under BASE's by more than the tolerance. Does NEW "
                                   "still train on the same task?"));
  append(comparison.notes, one_sided);
  append(comparison.notes, equalities);
  for (const ComparedRow& row : comparison.rows) {
    if (!row.numbers) continue;
    std::string note = doubtful_noise({row.variant, row.workload}, limits, row.numbers->pairs);
    if (!note.empty()) comparison.notes.push_back(std::move(note));
  }
  return comparison;
}

Looks::Looks(size_t first, size_t last, Limits limits)
    : first_(first), last_(last), limits_(std::move(limits)) {}

Comparison Looks::look(const Results& base, const Results& next, size_t pairs, bool final) {
  Limits limits = limits_;
  limits.alpha = alpha_at(std::max(pairs, first_), first_, last_, limits_.alpha);
  limits.upper_confidence = upper_confidence(first_, last_, limits_.upper_confidence);
  limits.may_pass = final || may_pass_at(pairs, first_, last_);
  limits.final = final;
  Comparison comparison = compare(base, next, limits);
  for (ComparedRow& row : comparison.rows) {
    const RowKey key(row.variant, row.workload);
    if (!undecided(row.verdict)) decided_.emplace(key, row);
    if (const auto found = decided_.find(key); found != decided_.end()) row = found->second;
  }
  return comparison;
}

}  // namespace stepladder
