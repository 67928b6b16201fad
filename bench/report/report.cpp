#include "bench/report/report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "bench/base/table.h"
#include "bench/base/text.h"
#include "bench/plan/ladder_file.h"
#include "bench/plan/programs.h"
#include "bench/report/ablation.h"
#include "bench/report/scaling.h"
#include "bench/report/speedups.h"
#include "bench/results/json.h"
#include "model/error.h"

namespace stepladder {
namespace {

/// Behind an interval of the step times, or of a speed-up; nothing where there is none.
std::optional<int64_t> fewest_rounds(const std::vector<ResultRow>& variants, bool speedups = true) {
  std::optional<int64_t> fewest;
  const auto look = [&](const Estimate& e) {
    if (e.interval) fewest = std::min(fewest.value_or(e.rounds), e.rounds);
  };
  for (const ResultRow& v : variants) {
    if (!v.numbers) continue;
    look(v.numbers->median_step_ms);
    if (!speedups) continue;
    for (const auto& speedup : {v.numbers->previous, v.numbers->baseline})
      if (speedup) look(speedup->ratio);
    for (const Speedup& speedup : v.numbers->peers) look(speedup.ratio);
  }
  return fewest;
}

std::string ratio(const std::optional<Speedup>& speedup) {
  return speedup ? text_of(speedup->ratio, 2) : kNone;
}

std::string percent(const std::optional<double>& fraction) {
  return fraction ? fixed(*fraction * 100, 1) : "n/a";
}

std::string both(const std::string& a, const std::string& b) {
  return a + " / " + b;
}

/// 0 is unknown: a trainer of one's own need not tell.
std::string gib(int64_t bytes) {
  if (bytes == 0) return kNone;
  const double size = static_cast<double>(bytes) / (1 << 30);
  return fixed(size, size < 0.1 ? 3 : size < 10 ? 2 : 1);
}

/// A field of a file; "unknown" where it doesn't say.
std::string known_text(const Json& json, const char* key) {
  return json.contains(key) ? text_at(json, key) : "unknown";
}

/// The rows of our rungs, or those of the peers.
std::vector<ResultRow> only(const std::vector<ResultRow>& variants, bool peers) {
  std::vector<ResultRow> rows;
  for (const ResultRow& v : variants)
    if (v.peer.empty() != peers) rows.push_back(v);
  return rows;
}

/// The names of the peers that took part, in the order of their rows.
std::vector<std::string> peers_of(const std::vector<ResultRow>& variants) {
  std::vector<std::string> peers;
  for (const ResultRow& v : variants)
    if (!v.peer.empty() && std::ranges::count(peers, v.peer) == 0) peers.push_back(v.peer);
  return peers;
}

/// The median of the row that a speed-up is against, and the speed-up.
std::pair<std::string, std::string> beside(const ResultRow& row, const std::string& peer,
                                           const std::vector<ResultRow>& all) {
  for (const Speedup& speedup : row.numbers->peers)
    for (const ResultRow& other : all)
      if (other.peer == peer && other.variant == speedup.against && other.workload == row.workload &&
          other.backend == row.backend)
        return {sized(other.numbers->median_step_ms.value), ratio(speedup)};
  return {kNone, kNone};
}

std::string status_text(const ResultRow& v) {
  if (!v.reason.empty()) return cat(name_of(v.status), ": ", v.reason);
  const int64_t skipped = v.numbers ? v.numbers->skipped_steps.value_or(0) : 0;
  return cat(name_of(v.status), v.disturbed() ? ", " + v.disturbance : "",
             skipped > 0 ? cat(", ", skipped, " steps skipped") : "");
}

bool several_workloads(const std::vector<ResultRow>& rows) {
  return std::ranges::any_of(rows, [&](const ResultRow& v) { return v.workload != rows.front().workload; });
}

/// Whether rungs of ours compute in fewer bits than the device does: on the CPU, where that makes them
/// slower.
bool emulates(const std::vector<ResultRow>& rows) {
  return std::ranges::any_of(rows, [](const ResultRow& v) {
    const Rung* rung = v.peer.empty() ? ladder().listed(v.variant) : nullptr;
    return v.backend == "cpu" && rung && rung->math != MathMode::fp32;
  });
}

/// The table of `rows`, which are all of our rungs or all of peers; `all` has those that they compare with.
Table table_of(const std::vector<ResultRow>& rows, const std::vector<ResultRow>& all, bool ratios_only) {
  const bool ours = rows.empty() || rows.front().peer.empty(), absolute = !ratios_only;
  using Numbers = ResultRow::Numbers;
  const auto any = [&](auto Numbers::*known) {
    return std::ranges::any_of(rows, [=](const ResultRow& v) { return v.numbers && (*v.numbers).*known; });
  };
  Columns<ResultRow> columns;
  columns.add_text(ours ? "rung" : "peer", [](const ResultRow& v) { return v.variant; });
  if (several_workloads(rows)) columns.add_text("workload", [](const ResultRow& v) { return v.workload; });
  const auto add = [&](const std::string& header, int spare,
                       std::function<std::string(const Numbers&)> cell) {
    columns.add({header, Align::right, spare},
                [cell](const ResultRow& v) { return v.numbers ? cell(*v.numbers) : kNone; });
  };
  if (absolute) {
    add("median ms", 0, [](const Numbers& n) { return sized(n.median_step_ms.value); });
    add(interval_name(fewest_rounds(rows, false).value_or(0)), 6,
        [](const Numbers& n) { return interval_text(n.median_step_ms); });
    add("tok/s", 4, [](const Numbers& n) { return rounded(n.tokens_per_second.value); });
  }
  if (ours) {
    add("x previous", 8, [](const Numbers& n) { return ratio(n.previous); });
    add("x baseline", 0, [](const Numbers& n) { return ratio(n.baseline); });
    for (const std::string& peer : peers_of(all)) {
      const auto of_peer = [&all, peer](const ResultRow& v) {
        return v.numbers ? beside(v, peer, all) : std::pair(kNone, kNone);
      };
      const std::string title = peer_title(peer);
      if (absolute)
        columns.add({title + " ms", Align::right, 5}, [=](const ResultRow& v) { return of_peer(v).first; });
      columns.add({"x " + title, Align::right, 7}, [=](const ResultRow& v) { return of_peer(v).second; });
    }
  }
  add("MFU %", 2, [](const Numbers& n) { return both(percent(n.mfu_nanogpt), percent(n.mfu_llmc)); });
  if (absolute) {
    add("live/process GiB", 9,
        [](const Numbers& n) { return both(gib(n.memory.live_peak), gib(n.memory.process_peak)); });
    if (any(&Numbers::cycles))
      add("Mcycles", 1, [](const Numbers& n) { return n.cycles ? sized(n.cycles->value * 1e-6) : kNone; });
    if (any(&Numbers::joules)) {
      add("J/step", 6, [](const Numbers& n) { return n.joules ? sized(n.joules->value) : kNone; });
      add("tok/J", 2,
          [](const Numbers& n) { return n.tokens_per_joule ? sized(n.tokens_per_joule->value) : kNone; });
    }
    add("first step ms", 1, [](const Numbers& n) { return sized(n.first_step_ms); });
  }
  // What numbers of the CPU tell is that all learn the same.
  add("loss", emulates(rows) ? 10 : 3, [](const Numbers& n) { return fixed(n.final_loss, 4); });
  if (any(&Numbers::val_loss))
    add("val loss", 3, [](const Numbers& n) { return n.val_loss ? fixed(*n.val_loss, 4) : kNone; });
  columns.add({"status", Align::left, 0, true}, status_text);
  return columns.table(rows);
}

/// What training until a loss took, of rungs and peers alike.
Table to_loss_table(const std::vector<ResultRow>& rows, bool ratios_only) {
  std::set<std::string> firsts;  // that the rest is held against
  for (const ResultRow& row : rows)
    if (const auto& first = row.numbers->to_loss->first) firsts.insert(first->against);
  Columns<ResultRow> columns;
  columns.add_text("trained to a loss", [](const ResultRow& v) { return v.variant; });
  if (several_workloads(rows)) columns.add_text("workload", [](const ResultRow& v) { return v.workload; });
  columns.add({"val loss", Align::right, 3},
              [](const ResultRow& v) { return cat("<= ", number_text(v.numbers->to_loss->loss)); });
  columns.add("reached",
              [](const ResultRow& v) { return cat(v.numbers->to_loss->reached, " of ", v.runs.size()); });
  const auto add = [&](const std::string& header, int spare,
                       std::function<std::string(const TimeToLoss&)> cell) {
    columns.add({header, Align::right, spare}, [cell](const ResultRow& v) {
      return v.numbers->to_loss->reached > 0 ? cell(*v.numbers->to_loss) : kNone;
    });
  };
  if (!ratios_only) add("seconds", 0, [](const TimeToLoss& t) { return text_of(t.seconds, 1); });
  if (!firsts.empty())
    add(cat("x ", firsts.size() > 1 ? "first" : *firsts.begin()), 0,
        [](const TimeToLoss& t) { return ratio(t.first); });
  add("steps", 4, [](const TimeToLoss& t) { return text_of(t.steps, 0); });
  add("Mtokens", 1, [](const TimeToLoss& t) { return fixed(t.tokens.value * 1e-6, 2); });
  if (!ratios_only) add("kJ", 2, [](const TimeToLoss& t) { return text_of(scaled(t.joules, 1e-3), 1); });
  return columns.table(rows);
}

/// A rung's gains in the order of kGains; null for a kind that was not asked for.
std::vector<const Gain*> gains_of(const AblatedRung& row) {
  return {row.ladder ? &*row.ladder : nullptr, row.without ? &*row.without : nullptr,
          row.only ? &*row.only : nullptr};
}
constexpr const char* kGains[] = {"ladder gain", "leave-one-out", "only-one"};

/// Whether the rows are of a ladder file's switches.
bool of_switches(const std::vector<AblatedRung>& rows) {
  return std::ranges::none_of(rows, [](const AblatedRung& row) { return row.ladder.has_value(); });
}

std::string saved_memory(const AblatedRung& row) {
  std::vector<std::string> saved;
  for (size_t kind = row.ladder ? 0 : 1; kind < std::size(kGains); ++kind) {
    const Gain* gain = gains_of(row)[kind];
    saved.push_back(gain && gain->ok()
                        ? cat(gain->saved_bytes < 0 ? "-" : "", bytes_text(std::abs(gain->saved_bytes)))
                        : kNone);
  }
  return join(saved, " / ");
}

std::string problems(const AblatedRung& row) {
  std::vector<std::string> problems;
  for (const Gain* gain : gains_of(row)) {
    if (!gain || gain->ok()) continue;
    const std::string problem = cat(gain->status, ": ", gain->reason);
    if (std::ranges::count(problems, problem) == 0) problems.push_back(problem);
  }
  return problems.empty() ? "ok" : join(problems, "; ");
}

Table table_of(const std::vector<AblatedRung>& rows, bool ratios_only) {
  Columns<AblatedRung> columns;
  columns.add_text(of_switches(rows) ? "switch" : "rung", [](const AblatedRung& row) { return row.rung; });
  if (std::ranges::any_of(rows, [&](const AblatedRung& row) { return row.config != rows.front().config; }))
    columns.add_text("workload", [](const AblatedRung& row) { return workload_of(row.config); });
  for (size_t kind = of_switches(rows) ? 1 : 0; kind < std::size(kGains); ++kind)
    columns.add(kGains[kind], [kind](const AblatedRung& row) {
      const Gain* gain = gains_of(row)[kind];
      return !gain ? kNone : gain->ok() ? text_of(gain->ratio, 3) : gain->status;
    });
  if (!ratios_only) columns.add({"live memory saved", Align::right, 1}, saved_memory);
  columns.add({"status", Align::left, 0, true}, problems);
  return columns.table(rows);
}

Table table_of(const std::vector<AblatedPair>& rows) {
  Columns<AblatedPair> columns;
  columns.add_text("switches", [](const AblatedPair& row) { return cat(row.one, ", ", row.other); });
  if (std::ranges::any_of(rows, [&](const AblatedPair& row) { return row.config != rows.front().config; }))
    columns.add_text("workload", [](const AblatedPair& row) { return workload_of(row.config); });
  columns.add("both alone", [](const AblatedPair& row) {
    return row.both.ok() ? text_of(row.both.ratio, 3) : row.both.status;
  });
  columns.add("interaction", [](const AblatedPair& row) { return text_of(row.interaction, 3); });
  return columns.table(rows);
}

Table table_of(const std::vector<ScaledRun>& rows, bool ratios_only) {
  using Row = ScaledRun;
  const bool independent =
      std::ranges::any_of(rows, [](const Row& r) { return r.independent_efficiency.has_value(); });
  const auto percent = [](const std::optional<Estimate>& e) { return text_of(scaled(e, 100), 1); };
  Columns<Row> columns;
  columns.add_text("on several devices", [](const Row& r) { return r.variant; });
  columns.add("devices", [](const Row& r) { return std::to_string(r.devices); });
  if (std::ranges::any_of(rows, [](const Row& r) { return r.machines > 1; }))
    columns.add("machines", [](const Row& r) { return std::to_string(r.machines); });
  columns.add("B each", [](const Row& r) { return r.config.at("B").dump(); });
  if (!ratios_only) columns.add("tok/s", [](const Row& r) { return rounded(r.tokens_per_second.value); });
  columns.add("x one device", [](const Row& r) { return text_of(r.speedup, 2); });
  columns.add("efficiency %", [=](const Row& r) { return percent(r.efficiency); });
  if (independent)
    columns.add({"independent %", Align::right, 3},
                [=](const Row& r) { return percent(r.independent_efficiency); });
  if (!ratios_only) {
    columns.add({"exposed ms", Align::right, 2}, [=](const Row& r) { return text_of(r.exposed_ms, 2); });
    if (independent)
      columns.add({"communication ms", Align::right, 1},
                  [=](const Row& r) { return text_of(r.communication_ms, 2); });
  }
  columns.add({"one device", Align::left, 4},
              [](const Row& r) { return cat(r.against, " B=", r.one_batch); });
  return columns.table(rows);
}

/// How the tables of ablations are read.
std::vector<std::string> ablation_notes(const std::vector<AblatedRung>& rows,
                                        const std::vector<AblatedPair>& pairs, const std::string& tuned) {
  std::vector<std::string> exclude_one;
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (size_t kind = 0; kind < std::size(kGains); ++kind) {
    int64_t intervals = 0, excluding = 0;
    for (const AblatedRung& row : rows)
      if (const Gain* gain = gains_of(row)[kind]; gain && gain->ok() && gain->ratio.interval) {
        ++intervals;
        fewest = std::min(fewest, gain->ratio.rounds);
        excluding += gain->ratio.interval->lo > 1.0 || gain->ratio.interval->hi < 1.0;
      }
    if (intervals > 0) exclude_one.push_back(cat(excluding, " of ", intervals, " (", kGains[kind], ")"));
  }
  const char* const what = of_switches(rows) ? "switch" : "rung";
  const std::string first = of_switches(rows) ? kAllOff : ladder().rungs.front().name;
  std::vector<std::string> lines = {
      cat(of_switches(rows) ? "" : "Ladder gain: time of the rung before / the rung's. ", "Leave-one-out: ",
          tuned, " without the ", what, " / itself. Only-one: ", first, " / itself with the ", what,
          " alone. Each within a round, by time per token; over 1 the ", what, " is faster."),
      cat("Live memory saved, in the same order: the arena's peak without the ", what,
          " less that with it.")};
  if (!pairs.empty())
    lines.emplace_back(
        "Interaction: the gain of both over the product of each one's alone; over 1 each is worth more "
        "beside "
        "the other.");
  if (!exclude_one.empty())
    lines.push_back(
        cat("Gains whose ", interval_name(fewest), " excludes 1: ", join(exclude_one, ", "), "."));
  return lines;
}

/// How many rounds were measured; before the end, how many were begun, of those planned.
std::string rounds_text(const Results& results) {
  if (results.stopped.is_object() && results.stopped.contains("rounds"))
    return known_text(results.stopped, "rounds");
  const std::string planned = known_text(results.plan, "rounds");
  const std::string here = cat(results.rounds_begun());
  return results.complete || here == planned ? planned : cat(here, " of ", planned);
}

std::string title(const Results& results) {
  std::vector<std::string> workloads;  // as they first appear
  for (const Run& run : results.runs)
    if (!std::ranges::count(workloads, run.workload())) workloads.push_back(run.workload());
  const std::string commit = known_text(results.context, "commit");
  const bool until_loss = number_at(results.plan, "until_loss").has_value();
  return cat(results.device_model(), "; ", printable(join(workloads, ", "), 200), "; ",
             counted(rounds_text(results), "round"), until_loss ? " of at most " : " of ",
             known_text(results.plan, "steps"), " steps, ", known_text(results.plan, "warmup"),
             " left out as warm-up; ", known_text(results.context, "time"),
             commit.empty() ? "" : ", commit " + commit);
}

/// How many runs the plan holds; a file may hold any plan, so in double.
double planned(const Json& plan) {
  const auto size = [&](const char* key) {
    return plan.contains(key) ? static_cast<double>(plan[key].size()) : 0.0;
  };
  const double variants = size("rungs") + size("peers");
  const double own = size("own_batch");  // these have one batch each
  // Where a rung runs on several numbers of devices, the plan says how many runs a round has.
  const double in_round = number_at(plan, "runs_in_round").value_or((variants - own) * size("batch") + own);
  const auto most = number_at(plan, "max_rounds");  // of --until-ci
  return in_round * (most ? most : number_at(plan, "rounds")).value_or(0.0);
}

std::string disturbed_note(const ResultRow& v) {
  return cat(v.variant, ", ", v.workload,
             v.disturbance == "shared"
                 ? ": another process used the device in "
                 : ": heat or the hardware's protection cut the clocks in most steps of ",
             v.disturbed_rounds, " of ", v.rounds, " rounds; ",
             v.disturbed() ? "its times are shown, nothing is claimed on them."
                           : "its numbers are without those rounds.");
}

/// The fastest of the rows that `among` holds of, of those on the fewest devices; null where none is.
template <class Among>
const ResultRow* fastest(const std::vector<ResultRow>& variants, Among among) {
  const auto key = [](const ResultRow& v) {
    return std::pair(-world_size(v.config), v.numbers->tokens_per_second.value);
  };
  const ResultRow* best = nullptr;
  for (const ResultRow& v : variants)
    if (v.numbers && !v.disturbed() && among(v) && (!best || key(v) > key(*best))) best = &v;
  return best;
}

const ResultRow* fastest_rung(const std::vector<ResultRow>& variants) {
  return fastest(variants, [](const ResultRow& v) { return v.peer.empty() && !is_ablation(v.variant); });
}

/// Where rounds come from several cards of a kind, or hosts, the step times of a row on each; "" where one
/// did all.
std::string cards_note(const Results& results, const ResultRow* row) {
  const std::set<std::string> cards = results.cards();
  if (cards.size() < 2) return "";
  std::map<std::string, std::vector<double>> ms;
  if (row)
    for (const auto& [round, run] : row->runs)
      ms[results.device_of(*run)].push_back(run->summary->median_step_ms);
  std::vector<std::string> each;
  for (const auto& [card, of] : ms) {
    const auto [least, most] = std::ranges::minmax(of);
    each.push_back(cat(sized(least), of.size() > 1 ? " to " + sized(most) : "", " ms on ",
                       printable(card.substr(0, 12), kMaxCell), " (", counted(std::ssize(of), "round"), ")"));
  }
  const char* what = text_at(results.device(), "backend") == "cpu" ? "host" : "card";
  return cat("Rounds come from ", cards.size(), " ", what, "s", row ? cat("; ", row->variant, ": ") : "",
             join(each, ", "), ". Each round is of one ", what, ", and so is every ratio.");
}

/// Whether the losses of `row` could be compared with those of `first`.
bool has_reference(const ResultRow& row, const std::vector<ResultRow>& variants, const std::string& first) {
  return std::ranges::any_of(variants, [&](const ResultRow& other) {
    return other.variant == first && other.numbers && same_task(other.config, row.config);
  });
}

/// What a reader has to know, as it is collected.
class Notes {
 public:
  void note(const std::string& text) { lines_.push_back({printable(text, 400), false}); }
  void warn(const std::string& text) { lines_.push_back({printable(text, 400), true}); }
  std::vector<Note> lines() && { return std::move(lines_); }

  /// How the columns are read.
  void add_legend(const std::vector<ResultRow>& variants) {
    const auto fewest = fewest_rounds(variants);
    const std::string interval = !fewest ? ""
                                 : *fewest < kLeastRoundsForInterval
                                     ? cat(" ", interval_name(*fewest),
                                           ": fastest to slowest round; in brackets the chance that the true "
                                           "median lies between them.")
                                     : " Intervals: 95 %, over rounds.";
    note(cat("Step time: host clock, device synchronised; median over rounds of each run's median.",
             interval));
    note(
        "x previous: against the nearest rung below that took part; x baseline: against the lowest; by time "
        "per token, should batches differ. MFU: by nanoGPT's formula / by llm.c's. Memory: peak of the "
        "trainer's own tensors / of the whole process.");
    if (!peers_of(variants).empty())
      note(
          "Peers: x PyTorch and the like are how many times faster the rung is than the peer in the same "
          "round. They start from weights of their own, so their losses are not compared. Their memory is "
          "what "
          "they report: allocated at most / whole process.");
  }

  /// How the measurement went as a whole.
  void add_course(const Results& results, const std::vector<ResultRow>& variants) {
    if (const std::string why = whole_text_at(results.device(), "attention"); why.starts_with("native ("))
      warn(cat("Flash attention ran on the project's own kernels: ", why.substr(8, why.size() - 9), "."));
    if (const std::string why = text_at(results.stopped, "reason"); !why.empty() && why != "rounds")
      note(cat("Stopped by ", why, " after ", counted(rounds_text(results), "round"), "."));
    if (const std::string cards = cards_note(results, fastest_rung(variants)); !cards.empty()) note(cards);
    if (const std::string busy = busy_note(results.context); !busy.empty()) warn(busy);
    std::vector<std::string> set;
    const Json environment = results.environment();
    for (const auto& item : environment.items())
      set.push_back(cat(printable(item.key(), 60), "=", text_at(environment, item.key())));
    if (!set.empty())
      warn(cat("Measured with ", join(set, ", "),
               " in the environment, which changes what libraries compute, or how: a rung may not be what "
               "its name says."));
    if (!results.complete)
      warn(cat("Unfinished: ", results.runs.size(), " of ", fixed(planned(results.plan), 0),
               " runs are done; the same command with --resume continues."));
    if (const auto asked = number_at(results.plan, "warmup")) {
      const auto late = std::ranges::count_if(results.runs, [&](const Run& run) {
        return run.summary && static_cast<double>(run.summary->warmup_steps) > *asked;
      });
      if (late > 0)
        note(cat("Steps settled late in ", late, " of ", counted(std::ssize(results.runs), "run"),
                 ": there more steps are left out as warm-up than the ", *asked, " planned."));
    }
  }

  void add_rows(const std::vector<ResultRow>& variants, const Ladder& ladder) {
    for (const ResultRow& v : variants) {
      if (!v.numbers) continue;
      const Rung* own = ladder.built_in() || !v.peer.empty() ? nullptr : ladder.listed(v.variant);
      if (const std::string odd = own ? contradicted_math(own->math, v.config) : ""; !odd.empty())
        warn(cat(v.variant, ", ", v.workload, ": ", odd, "."));
      if (v.disturbed_rounds > 0) warn(disturbed_note(v));
      if (const std::string little = little_covered(*v.runs.begin()->second->summary); !little.empty())
        warn(cat(v.variant, ", ", v.workload, ": ", little));
      if (is_ablation(v.variant)) continue;
      if (const auto& compile = v.numbers->compile)
        note(cat(v.variant, ", ", v.workload, ": ", fixed(compile->search_ms, 0), " ms of search (",
                 compile->searched, " GEMMs, ", compile->from_cache, " from the cache), ",
                 fixed(compile->capture_ms, 0), " ms of capture",
                 v.numbers->break_even_steps
                     ? cat("; pays off after ", fixed(*v.numbers->break_even_steps, 0), " steps")
                     : "",
                 "."));
      if (v.numbers->skipped_steps.value_or(0) > 0)
        warn(cat(v.variant, ", ", v.workload, ": ", *v.numbers->skipped_steps,
                 " steps were skipped, fp16 had overflowed."));
    }
  }

  void add_missing_joules(const Results& results) {
    std::map<std::string, std::string> unknown;  // why, and the first run of which
    for (const Run& run : results.runs)
      if (run.summary && !run.summary->joules_unknown.empty())
        unknown.try_emplace(run.summary->joules_unknown, run.variant);
    for (const auto& [why, variant] : unknown) note(cat("No joules of ", variant, " and others: ", why, "."));
  }

  /// Losses that were held against nothing, or are all that tells.
  void add_losses(const Results& results, const std::vector<ResultRow>& variants) {
    const Ladder ladder = ladder_of(results);
    const std::string& first = ladder.rungs.front().name;
    std::vector<std::string> alone;  // whose losses nothing was held against
    for (const ResultRow& v : variants) {
      const Rung* rung = v.peer.empty() ? ladder.listed(v.variant) : nullptr;
      if (v.numbers && rung && std::isfinite(rung->tolerance) && v.variant != first && !v.numbers->to_loss &&
          !has_reference(v, variants, first) && std::ranges::count(alone, v.variant) == 0)
        alone.push_back(v.variant);
    }
    if (!alone.empty())
      note(cat("Nothing was compared with the losses of ", join(alone, ", "), ": ", first,
               ", their reference, was not measured on the same model, T and batch."));
    if (ladder.built_in() && emulates(variants))
      warn(
          "On the CPU reduced precisions are emulated by rounding: their numerics are real, their speed "
          "tells nothing.");
  }

  void add_scaling(const Results& results) {
    const auto scaled = scaling(results);
    // Runs apart have no row of their own: they show against one device alone.
    const bool apart = std::ranges::any_of(
        results.runs, [](const Run& run) { return has_independent_ranks(run.config) && run.summary; });
    if (apart &&
        std::ranges::none_of(scaled, [](const ScaledRun& r) { return r.communication_ms.has_value(); }))
      warn(
          "Nothing is said of the runs of --independent-ranks: they are held against one device, which was "
          "not measured in the same rounds: --devices 1,2 measures it too.");
    if (scaled.empty()) return;
    note(
        "On several devices: step time of the slowest rank, tokens of all; MFU against the peak of all; "
        "memory of the rank with the most. Efficiency: tokens/s over those of one device in the same round, "
        "by the number of devices. Exposed: by how much the step is longer than that of one device with the "
        "same batch, which communicates nothing.");
    if (std::ranges::any_of(scaled, [](const ScaledRun& r) { return r.independent_efficiency.has_value(); }))
      note(
          "Independent: the efficiency of the same devices that train at the same time, each by itself: what "
          "the slowest one and shared power or host cost. Communication: by how much a step is longer than "
          "theirs.");
    if (const auto predicted = predicted_scaling(results); !predicted.empty()) {
      const PredictedRun& last = predicted.back();
      note(cat("Predicted, not measured: ", last.variant, " at B=", last.batch, " on ", last.devices,
               " devices in ", last.machines, " machines at best reaches ", fixed(last.efficiency * 100, 1),
               " % (nominal links, bench/report/scaling_model.h)."));
    }
  }

 private:
  std::vector<Note> lines_;
};

std::vector<Note> notes(const Results& results, const std::vector<ResultRow>& variants,
                        const std::vector<AblatedRung>& ablated) {
  Notes notes;
  notes.add_legend(variants);
  notes.add_course(results, variants);
  notes.add_rows(variants, ladder_of(results));
  notes.add_missing_joules(results);
  notes.add_losses(results, variants);
  notes.add_scaling(results);
  if (!ablated.empty())
    for (const std::string& line : ablation_notes(ablated, ablated_pairs(results), tuned_rung(results)))
      notes.note(line);
  return std::move(notes).lines();
}

std::vector<Speedup> against_peers(const std::vector<ResultRow>& variants) {
  std::vector<Speedup> ratios;
  const ResultRow* best = fastest_rung(variants);
  if (!best) return ratios;
  for (const std::string& peer : peers_of(variants)) {
    const ResultRow* other =
        fastest(variants, [&](const ResultRow& v) { return v.peer == peer && v.workload == best->workload; });
    if (!other) continue;
    if (const auto ratio = speedup(other->runs, best->runs)) ratios.push_back({other->variant, *ratio});
  }
  return ratios;
}

/// Of rungs whose speed says nothing, how many learn as the first one does, on every workload; "" where their
/// speed does say something, or that wasn't measured.
std::string learning(const std::vector<ResultRow>& variants, const Ladder& ladder) {
  const std::string& first = ladder.rungs.front().name;
  const bool to_loss =
      std::ranges::any_of(variants, [](const ResultRow& row) { return row.numbers && row.numbers->to_loss; });
  if (!ladder.built_in() || !emulates(variants) || to_loss) return "";
  std::map<std::string, bool> fine;  // by rung
  for (const ResultRow& row : variants) {
    if (!row.peer.empty() || is_ablation(row.variant) || !has_reference(row, variants, first)) continue;
    if (row.status != Status::ok && row.status != Status::diverged) continue;
    const bool ok = row.status == Status::ok;
    if (const auto [at, is_new] = fine.emplace(row.variant, ok); !is_new) at->second &= ok;
  }
  const auto good = std::ranges::count(fine, true, &std::pair<const std::string, bool>::second);
  if (fine.size() < 2) return "";
  return cat(good == std::ssize(fine) ? "All" : cat(good, " of"), " ", fine.size(), " rungs learn as ", first,
             " does, within their tolerances. Their speeds on the CPU tell nothing.");
}

/// The fastest rung that is ok, in how much memory, and against whom; "" where none is.
std::string headline(const std::vector<ResultRow>& variants, bool ratios_only) {
  const ResultRow* best = fastest_rung(variants);
  if (!best) return "";
  const ResultRow::Numbers& n = *best->numbers;
  const ResultRow* second = fastest(variants, [&](const ResultRow& v) {
    return v.peer.empty() && !is_ablation(v.variant) && v.workload == best->workload &&
           v.variant != best->variant;
  });
  const auto lead = second ? speedup(second->runs, best->runs) : std::nullopt;
  const bool within_noise = lead && lead->interval && lead->interval->lo <= 1.0;
  const bool batches = std::ranges::any_of(variants, [&](const ResultRow& v) {
    return v.peer.empty() && v.config.contains("B") && v.config["B"] != best->config.value("B", Json());
  });
  const std::string of = batches ? "Most tokens a second" : "Fastest";
  const bool more_devices = std::ranges::any_of(variants, [&](const ResultRow& v) {
    return v.numbers && world_size(v.config) > world_size(best->config);
  });
  const int64_t devices = world_size(best->config);
  const std::string on = !more_devices  ? ""
                         : devices == 1 ? " on one device"
                                        : cat(" on ", devices, " devices");
  std::string text = cat(of, on, best->rounds < 2 ? " in one round: " : ": ", best->variant,
                         batches ? cat(" at B=", best->config["B"].dump()) : "",
                         within_noise ? cat(" (", second->variant, " within the noise)") : "");
  if (!ratios_only)
    text += cat(", ", sized(n.median_step_ms.value), " ms a step, ", rounded(n.tokens_per_second.value),
                " tok/s", n.memory.live_peak > 0 ? cat(", ", gib(n.memory.live_peak), " GiB live") : "");
  std::vector<std::string> against;
  const auto compare = [&against](const Speedup& speedup, const char* phrase) {
    const double ratio = speedup.ratio.value;
    against.push_back(ratio < 0.995 ? cat(speedup.against, " is ", fixed(1 / ratio, 2), "x as fast")
                                    : cat(fixed(ratio, 2), phrase, speedup.against));
  };
  if (n.baseline) compare(*n.baseline, "x the speed of ");
  for (const Speedup& peer : against_peers(variants)) compare(peer, "x that of ");
  return printable(text + (against.empty() ? "" : "; " + join(against, ", ")), 400) + ".";
}

std::string report_text(const Results& results, bool ratios_only, bool markdown, bool wide = true) {
  const auto variants = aggregate(results);
  const auto rungs = only(variants, false), peers = only(variants, true);
  const auto ablated = ablated_rungs(results);
  const auto scaled = scaling(results);
  std::string answer = learning(variants, ladder_of(results));
  if (answer.empty()) answer = headline(variants, ratios_only);
  const std::string gap = markdown ? "\n\n" : "\n";
  const auto plain = [markdown](const std::string& said) {
    return markdown ? markdown_text(said) : folded(said);
  };
  std::string text = (answer.empty() ? "" : plain(answer) + gap) + plain(title(results)) + "\n\n";
  const auto add = [&](const char* heading, bool shown, const Table& table) {
    if (!shown) return;
    if (markdown && *heading) text += cat("### ", heading, "\n\n");
    text += (markdown ? table.markdown() : table.terminal(wide)) + "\n";
  };
  add("", true, table_of(rungs, variants, ratios_only));
  add("Peers", !peers.empty(), table_of(peers, variants, ratios_only));
  std::vector<ResultRow> to_loss;
  for (const ResultRow& row : variants)
    if (row.numbers && row.numbers->to_loss) to_loss.push_back(row);
  if (!to_loss.empty()) add("Time to a loss", true, to_loss_table(to_loss, ratios_only));
  add("Scaling", !scaled.empty(), table_of(scaled, ratios_only));
  add("Ablations", !ablated.empty(), table_of(ablated, ratios_only));
  if (const auto pairs = ablated_pairs(results); !pairs.empty())
    add("Pairs of switches", true, table_of(pairs));
  for (const Note& note : notes(results, variants, ablated))
    text += (markdown ? "- " : "") + plain(note.text) + "\n";
  return text;
}

}  // namespace

std::string busy_note(const Json& context) {
  constexpr double kUsual = 0.25;  // what any system does now and then
  double busy = number_at(context, "busy_cores").value_or(0.0);
  const double cores = number_at(context, "cores").value_or(0.0);
  std::string when = "began";
  for (const Json& call : context.value("resumed", Json::array()))
    if (const double then = number_at(call, "busy_cores").value_or(0.0); then > busy)
      busy = then, when = "was resumed";
  if (busy < std::max(kUsual, 0.1 * cores)) return "";
  return cat("Other processes kept ", fixed(busy, 1), " of ", fixed(cores, 0), " cores busy when this ", when,
             ": times are longer and vary more.");
}

std::vector<Note> report_notes(const Results& results) {
  return notes(results, aggregate(results), ablated_rungs(results));
}

std::string learning(const Results& results) {
  return learning(aggregate(results), ladder_of(results));
}

std::vector<Speedup> against_peers(const Results& results) {
  return against_peers(aggregate(results));
}

std::string terminal_report(const Results& results, bool ratios_only, bool wide) {
  return report_text(results, ratios_only, /*markdown=*/false, wide);
}

std::string markdown_report(const Results& results, bool ratios_only) {
  return report_text(results, ratios_only, /*markdown=*/true);
}

std::string two_rungs(const Results& results, const std::string& before, const std::string& after,
                      bool wide) {
  const auto variants = aggregate(results);
  std::vector<ResultRow> rows;
  for (const ResultRow& v : variants)
    if (v.variant == before || v.variant == after) rows.push_back(v);
  if (rows.empty()) return cat("Neither ", before, " nor ", after, " was measured.\n");
  std::string text = folded(title(results)) + "\n\n" + table_of(rows, variants, false).terminal(wide);
  for (const ResultRow& v : rows)
    if (v.numbers && v.disturbed_rounds > 0) text += "\n" + folded(disturbed_note(v)) + "\n";
  for (const ResultRow& b : rows) {
    for (const ResultRow& a : rows) {
      if (b.variant != before || a.variant != after || a.workload != b.workload) continue;
      if (!a.numbers || !b.numbers || a.disturbed() || b.disturbed()) continue;
      const auto gain = speedup(b.runs, a.runs);
      if (!gain) continue;
      const int64_t more = a.numbers->memory.live_peak - b.numbers->memory.live_peak;
      std::string buys =
          cat(after, " runs at ", text_of(*gain, 2), " times the speed of ", before, " on ", a.workload);
      if (a.numbers->memory.live_peak > 0 && b.numbers->memory.live_peak > 0)
        buys += cat(", with ",
                    more == 0 ? "the same" : cat(bytes_text(std::abs(more)), more > 0 ? " more" : " less"),
                    " live memory");
      text += "\n" + folded(buys + ".") + "\n";
    }
  }
  for (const std::string& rung : {before, after})
    if (std::ranges::find(rows, rung, &ResultRow::variant) == rows.end())
      text += cat("\n", rung, " was not measured here, so that nothing says what the other buys.\n");
  return text;
}

}  // namespace stepladder
