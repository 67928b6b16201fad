#include "bench/report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "bench/ablation.h"
#include "bench/program.h"
#include "bench/scaling.h"
#include "bench/table.h"
#include "bench/text.h"
#include "model/error.h"

namespace stepladder {
namespace {

constexpr const char* kNone = "-";

std::string interval(const Estimate& e) {
  return e.interval ? cat(sized(e.interval->lo), " to ", sized(e.interval->hi)) : kNone;
}

/// Behind an interval of the step times; nothing where there is none.
std::optional<int64_t> fewest_rounds(const std::vector<Variant>& variants) {
  std::optional<int64_t> fewest;
  for (const Variant& v : variants)
    if (v.numbers && v.numbers->median_step_ms.interval)
      fewest = std::min(fewest.value_or(v.rounds), v.numbers->median_step_ms.rounds);
  return fewest;
}

std::string ratio(const Estimate& e, int digits) {
  const auto text = [digits](double x) { return fixed(x, digits); };
  return text(e.value) +
         (e.interval ? cat(" (", text(e.interval->lo), " to ", text(e.interval->hi), ")") : "");
}

std::string ratio(const std::optional<Speedup>& speedup) {
  return speedup ? ratio(speedup->ratio, 2) : kNone;
}

std::string percent(const std::optional<double>& fraction) {
  return fraction ? fixed(*fraction * 100, 1) : "n/a";
}

std::string both(const std::string& a, const std::string& b) {
  return a + " / " + b;
}

std::string gib(int64_t bytes) {
  const double size = static_cast<double>(bytes) / (1 << 30);
  return fixed(size, size < 10 ? 2 : 1);
}

std::string text_at(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) return "unknown";
  return printable(found->is_string() ? found->get<std::string>() : found->dump(), 200);
}

std::string counted(const std::string& number, const std::string& noun) {
  return number + " " + noun + (number == "1" ? "" : "s");
}

/// The rows of our rungs, or those of the peers.
std::vector<Variant> only(const std::vector<Variant>& variants, bool peers) {
  std::vector<Variant> rows;
  for (const Variant& v : variants)
    if (v.peer.empty() != peers) rows.push_back(v);
  return rows;
}

/// The names of the peers that took part, in the order of their rows.
std::vector<std::string> peers_of(const std::vector<Variant>& variants) {
  std::vector<std::string> peers;
  for (const Variant& v : variants)
    if (!v.peer.empty() && std::count(peers.begin(), peers.end(), v.peer) == 0) peers.push_back(v.peer);
  return peers;
}

/// The median of the row that a speed-up is against, and the speed-up.
std::pair<std::string, std::string> beside(const Variant& row, const std::string& peer,
                                           const std::vector<Variant>& all) {
  for (const Speedup& speedup : row.numbers->peers)
    for (const Variant& other : all)
      if (other.peer == peer && other.variant == speedup.against && other.workload == row.workload &&
          other.backend == row.backend)
        return {sized(other.numbers->median_step_ms.value), ratio(speedup)};
  return {kNone, kNone};
}

/// The table of `variants`, which are all of our rungs or all of peers; `all` has those that they compare
/// with.
Table table_of(const std::vector<Variant>& variants, const std::vector<Variant>& all, bool ratios_only) {
  const bool ours = variants.empty() || variants.front().peer.empty();
  const std::vector<std::string> peers = ours ? peers_of(all) : std::vector<std::string>();
  const bool validated = std::any_of(variants.begin(), variants.end(),
                                     [](const Variant& v) { return v.numbers && v.numbers->val_loss; });
  std::set<std::string> workloads;
  for (const Variant& v : variants) workloads.insert(v.workload);

  std::vector<Table::Column> columns = {{ours ? "rung" : "peer", Align::left}};
  if (workloads.size() > 1) columns.push_back({"workload", Align::left});
  const auto absolute = [&](const std::vector<std::string>& headers) {
    for (const std::string& header : headers)
      if (!ratios_only) columns.push_back({header});
  };
  absolute({"median ms", interval_name(fewest_rounds(variants).value_or(0)), "tok/s"});
  if (ours)
    for (const char* header : {"x previous", "x baseline"}) columns.push_back({header});
  for (const std::string& peer : peers) {
    absolute({peer_title(peer) + " ms"});
    columns.push_back({"x " + peer_title(peer)});
  }
  columns.push_back({"MFU %"});
  absolute({"live / process GiB", "first step ms"});
  columns.push_back({"loss"});
  if (validated) columns.push_back({"val loss"});
  columns.push_back({"status", Align::left});
  const size_t size = columns.size();

  Table table(std::move(columns));
  for (const Variant& v : variants) {
    std::vector<std::string> row = {v.variant};
    if (workloads.size() > 1) row.push_back(v.workload);
    if (const auto& n = v.numbers) {
      const auto absolute_cells = [&](const std::vector<std::string>& cells) {
        if (!ratios_only) row.insert(row.end(), cells.begin(), cells.end());
      };
      absolute_cells({sized(n->median_step_ms.value), interval(n->median_step_ms),
                      grouped(std::llround(n->tokens_per_second.value))});
      if (ours) row.insert(row.end(), {ratio(n->previous), ratio(n->baseline)});
      for (const std::string& peer : peers) {
        const auto [ms, speedup] = beside(v, peer, all);
        absolute_cells({ms});
        row.push_back(speedup);
      }
      row.push_back(both(percent(n->mfu_nanogpt), percent(n->mfu_llmc)));
      absolute_cells({both(gib(n->memory.live_peak), gib(n->memory.process_peak)), sized(n->first_step_ms)});
      row.push_back(fixed(n->final_loss, 4));
      if (validated) row.push_back(n->val_loss ? fixed(*n->val_loss, 4) : kNone);
    }
    row.resize(size - 1, kNone);
    const int64_t skipped = v.numbers ? v.numbers->skipped_steps.value_or(0) : 0;
    row.push_back(v.reason.empty() ? cat(name_of(v.status), v.throttled() ? ", throttled" : "",
                                         skipped > 0 ? cat(", ", skipped, " steps skipped") : "")
                                   : cat(name_of(v.status), ": ", v.reason));
    table.add(std::move(row));
  }
  return table;
}

/// A rung's gains in the order of kGains; null for a kind that was not asked for.
std::vector<const Gain*> gains_of(const AblatedRung& row) {
  return {&row.ladder, row.without ? &*row.without : nullptr, row.only ? &*row.only : nullptr};
}
constexpr const char* kGains[] = {"ladder gain", "leave-one-out", "only-one"};

Table table_of(const std::vector<AblatedRung>& rows, bool ratios_only) {
  const bool several = std::any_of(rows.begin(), rows.end(),
                                   [&](const AblatedRung& row) { return row.config != rows.front().config; });
  std::vector<Table::Column> columns = {{"rung", Align::left}};
  if (several) columns.push_back({"workload", Align::left});
  for (const char* header : kGains) columns.push_back({header});
  if (!ratios_only) columns.push_back({"live memory saved"});
  columns.push_back({"status", Align::left});
  Table table(std::move(columns));
  for (const AblatedRung& row : rows) {
    std::vector<std::string> cells = {row.rung}, saved, problems;
    if (several) cells.push_back(workload_of(row.config));
    for (const Gain* gain : gains_of(row)) {
      const bool ok = gain && gain->ok();
      cells.push_back(ok ? ratio(gain->ratio, 3) : gain ? gain->status : kNone);
      saved.push_back(ok ? cat(gain->saved_bytes < 0 ? "-" : "", bytes_text(std::abs(gain->saved_bytes)))
                         : kNone);
      if (!gain || ok) continue;
      const std::string problem = cat(gain->status, ": ", gain->reason);
      if (std::count(problems.begin(), problems.end(), problem) == 0) problems.push_back(problem);
    }
    if (!ratios_only) cells.push_back(join(saved, " / "));
    cells.push_back(problems.empty() ? "ok" : join(problems, "; "));
    table.add(std::move(cells));
  }
  return table;
}

Table table_of(const std::vector<ScaledRun>& rows, bool ratios_only) {
  const bool apart =
      std::any_of(rows.begin(), rows.end(), [](const ScaledRun& r) { return r.apart_efficiency; });
  std::vector<Table::Column> columns = {{"on several devices", Align::left}, {"devices"}, {"B each"}};
  if (!ratios_only) columns.push_back({"tok/s"});
  for (const char* header : {"x one device", "efficiency %"}) columns.push_back({header});
  if (apart) columns.push_back({"apart %"});
  if (!ratios_only) columns.push_back({"exposed ms"});
  if (!ratios_only && apart) columns.push_back({"communication ms"});
  columns.push_back({"one device", Align::left});
  Table table(std::move(columns));
  for (const ScaledRun& row : rows) {
    const auto percent = [](Estimate e) {
      if (auto& i = e.interval) *i = {i->lo * 100, i->hi * 100};
      e.value *= 100;
      return ratio(e, 1);
    };
    const auto ms = [](const std::optional<Estimate>& e) { return e ? ratio(*e, 2) : kNone; };
    std::vector<std::string> cells = {row.variant, std::to_string(row.devices), row.config.at("B").dump()};
    if (!ratios_only) cells.push_back(grouped(std::llround(row.tokens_per_second.value)));
    cells.insert(cells.end(), {ratio(row.speedup, 2), percent(row.efficiency)});
    if (apart) cells.push_back(row.apart_efficiency ? percent(*row.apart_efficiency) : kNone);
    if (!ratios_only) cells.push_back(ms(row.exposed_ms));
    if (!ratios_only && apart) cells.push_back(ms(row.communication_ms));
    cells.push_back(cat(row.against, " B=", row.one_batch));
    table.add(std::move(cells));
  }
  return table;
}

/// How the table of ablations is read.
std::vector<std::string> ablation_notes(const std::vector<AblatedRung>& rows) {
  std::vector<std::string> exclude_one;
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (size_t kind = 0; kind < std::size(kGains); ++kind) {
    int64_t intervals = 0, apart = 0;
    for (const AblatedRung& row : rows)
      if (const Gain* gain = gains_of(row)[kind]; gain && gain->ok() && gain->ratio.interval) {
        ++intervals;
        fewest = std::min(fewest, gain->rounds);
        apart += gain->ratio.interval->lo > 1.0 || gain->ratio.interval->hi < 1.0;
      }
    if (intervals > 0) exclude_one.push_back(cat(apart, " of ", intervals, " (", kGains[kind], ")"));
  }
  const std::string first = ladder().front().name, tuned = tuned_rung().name;
  std::vector<std::string> lines = {
      cat("Ladder gain: time of the rung before / the rung's. Leave-one-out: ", tuned,
          " without the rung / itself. Only-one: ", first,
          " / itself with the rung alone. Each within a round, ",
          "by time per token; over 1 the rung is faster."),
      "Live memory saved, in the same order: the arena's peak without the rung less that with it."};
  if (!exclude_one.empty())
    lines.push_back(
        cat("Gains whose ", interval_name(fewest), " excludes 1: ", join(exclude_one, ", "), "."));
  return lines;
}

/// How many rounds were measured, or before the end, are planned.
std::string rounds_text(const Results& results) {
  const bool ended = results.stopped.is_object() && results.stopped.contains("rounds");
  return text_at(ended ? results.stopped : results.plan, "rounds");
}

std::string title(const Results& results) {
  std::set<std::string> workloads;
  for (const Run& run : results.runs) workloads.insert(run.workload());
  const std::string commit = text_at(results.context, "commit");
  return cat(device_name(results), "; ", printable(join({workloads.begin(), workloads.end()}, ", "), 200),
             "; ", counted(rounds_text(results), "round"), " of ", text_at(results.plan, "steps"),
             " steps, the first ", text_at(results.plan, "warmup"), " left out; ",
             text_at(results.context, "time"), commit.empty() ? "" : ", commit " + commit);
}

/// How many runs the plan holds; a file may hold any plan, so in double.
double planned(const Json& plan) {
  const auto size = [&](const char* key) {
    return plan.contains(key) ? static_cast<double>(plan[key].size()) : 0.0;
  };
  const auto in_round = plan.find("runs_in_round");  // where a rung runs on several numbers of devices
  const auto most = plan.find("max_rounds");         // null without --until-ci
  const auto rounds = most != plan.end() && most->is_number() ? most : plan.find("rounds");
  const double variants = size("rungs") + size("peers");
  const double own = size("own_batch");  // these have one batch each
  return rounds != plan.end() && rounds->is_number()
             ? (in_round != plan.end() && in_round->is_number() ? in_round->get<double>()
                                                                : (variants - own) * size("batch") + own) *
                   rounds->get<double>()
             : 0.0;
}

std::string throttled_note(const Variant& v) {
  return cat(v.variant, ", ", v.workload,
             ": heat or the hardware's protection cut the clocks in most steps of ", v.throttled_rounds,
             " of ", v.rounds, " rounds; ",
             v.throttled() ? "its times are shown, nothing is claimed on them."
                           : "its numbers are without those rounds.");
}

std::vector<Note> notes(const Results& results, const std::vector<Variant>& variants,
                        const std::vector<AblatedRung>& ablated) {
  std::vector<Note> lines;
  const auto note = [&](const std::string& text) { lines.push_back({printable(text, 400), false}); };
  const auto warn = [&](const std::string& text) { lines.push_back({printable(text, 400), true}); };
  const auto fewest = fewest_rounds(variants);
  const std::string interval =
      !fewest ? ""
      : *fewest < kLeastRoundsForInterval
          ? cat(" ", interval_name(*fewest),
                ": fastest to slowest round; in brackets how often such a range holds the true median.")
          : " Intervals: 95 % bootstrap over rounds.";
  note(cat("Step time: host clock, device synchronised; median over rounds of each run's median.", interval));
  note(
      "x previous: against the nearest rung below that took part; x baseline: against the lowest; by time "
      "per token, should batches differ. MFU: by "
      "nanoGPT's formula / llm.c's. Memory: arena / whole process.");
  if (!peers_of(variants).empty())
    note(
        "Peers: x PyTorch and x llm.c are how many times faster our rung is than the peer in the same round. "
        "They start from weights of their own, so their losses are not compared. Their memory is what they "
        "report: allocated at most / whole process.");
  const Json device = results.context.value("device", Json::object());
  if (const auto attention = device.find("attention"); attention != device.end() && attention->is_string())
    if (const auto why = attention->get<std::string>(); why.starts_with("native ("))
      warn(cat("Flash attention ran on the project's own kernels: ", why.substr(8, why.size() - 9), "."));
  if (results.stopped.is_object())
    if (const auto why = results.stopped.find("reason"); why != results.stopped.end() && *why != "rounds")
      note(cat("Stopped by ", text_at(results.stopped, "reason"), " after ",
               counted(rounds_text(results), "round"), "."));
  if (const std::string busy = busy_note(results.context); !busy.empty()) warn(busy);
  if (!results.complete)
    warn(cat("Unfinished: ", results.runs.size(), " of ", fixed(planned(results.plan), 0),
             " runs; the same command with --resume continues."));
  if (const auto asked = results.plan.find("warmup"); asked != results.plan.end() && asked->is_number()) {
    const auto late = std::count_if(results.runs.begin(), results.runs.end(), [&](const Run& run) {
      return run.summary && run.summary->warmup_steps > *asked;
    });
    if (late > 0)
      note(cat("Steps settled late in ", late, " of ", results.runs.size(),
               " runs: there more than the first ", asked->dump(), " are left out."));
  }
  for (const Variant& v : variants) {
    if (!v.numbers) continue;
    if (v.throttled_rounds > 0) warn(throttled_note(v));
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
  const bool emulated = std::any_of(variants.begin(), variants.end(), [](const Variant& v) {
    const auto rung =
        std::find_if(ladder().begin(), ladder().end(), [&](const Rung& r) { return r.name == v.variant; });
    return v.backend == "cpu" && rung != ladder().end() && rung->math != MathMode::fp32;
  });
  if (emulated)
    warn(
        "On the CPU reduced precisions are emulated by rounding: their numerics are real, their speed "
        "tells nothing.");
  if (const auto scaled = scaling(results); !scaled.empty()) {
    note(
        "On several devices: step time of the slowest rank, tokens of all; MFU against the peak of all; "
        "memory of the rank with the most. Efficiency: tokens/s over those of one device in the same round, "
        "by the number of devices. Exposed: by how much the step is longer than that of one device with the "
        "same batch, which communicates nothing.");
    if (std::any_of(scaled.begin(), scaled.end(), [](const ScaledRun& r) { return r.apart_efficiency; }))
      note(
          "Apart: the efficiency of the same devices that train at the same time, each by itself: what the "
          "slowest one and shared power or host cost. Communication: by how much a step is longer than "
          "theirs.");
    if (const auto predicted = predicted_scaling(results); !predicted.empty()) {
      const PredictedRun& last = predicted.back();
      note(cat("Predicted, not measured: ", last.variant, " at B=", last.batch, " on ", last.devices,
               " devices in ", last.machines, " machines at best reaches ", fixed(last.efficiency * 100, 1),
               " % (nominal links, bench/scaling_model.h)."));
    }
  }
  if (!ablated.empty())
    for (const std::string& line : ablation_notes(ablated)) note(line);
  return lines;
}

/// The fastest of the rows that `among` holds of, of those on the fewest devices; null where none is.
template <class Among>
const Variant* fastest(const std::vector<Variant>& variants, Among among) {
  const auto key = [](const Variant& v) {
    const auto devices = v.config.find("world_size");
    const int64_t size =
        devices != v.config.end() && devices->is_number_integer() ? devices->get<int64_t>() : 1;
    return std::pair(-size, v.numbers->tokens_per_second.value);
  };
  const Variant* best = nullptr;
  for (const Variant& v : variants)
    if (v.numbers && !v.throttled() && among(v) && (!best || key(v) > key(*best))) best = &v;
  return best;
}

const Variant* fastest_rung(const std::vector<Variant>& variants) {
  return fastest(variants, [](const Variant& v) { return v.peer.empty() && !is_ablation(v.variant); });
}

Rounds unthrottled_rounds(const Results& results, const Variant& v) {
  Rounds rounds;
  for (const Run& run : results.runs)
    if (run.variant == v.variant && run.workload() == v.workload && !run.throttled())
      rounds[run.round] = &run;
  return rounds;
}

std::vector<Speedup> against_peers(const Results& results, const std::vector<Variant>& variants) {
  std::vector<Speedup> ratios;
  const Variant* best = fastest_rung(variants);
  if (!best) return ratios;
  for (const std::string& peer : peers_of(variants)) {
    const Variant* other =
        fastest(variants, [&](const Variant& v) { return v.peer == peer && v.workload == best->workload; });
    if (!other) continue;
    if (const auto ratio = speedup(unthrottled_rounds(results, *other), unthrottled_rounds(results, *best)))
      ratios.push_back({other->variant, *ratio});
  }
  return ratios;
}

/// The fastest rung that is ok, in how much memory, and against whom; "" where none is.
std::string headline(const Results& results, const std::vector<Variant>& variants, bool ratios_only) {
  const Variant* best = fastest_rung(variants);
  if (!best) return "";
  const Variant::Numbers& n = *best->numbers;
  std::string text = "Fastest: " + best->variant;
  if (!ratios_only)
    text += cat(", ", sized(n.median_step_ms.value), " ms a step, ",
                grouped(std::llround(n.tokens_per_second.value)), " tok/s, ", gib(n.memory.live_peak),
                " GiB live");
  const auto times = [](const Speedup& speedup) { return fixed(speedup.ratio.value, 2) + "x"; };
  std::vector<std::string> against;
  if (n.baseline) against.push_back(cat(times(*n.baseline), " the speed of ", n.baseline->against));
  for (const Speedup& peer : against_peers(results, variants))
    against.push_back(cat(times(peer), " that of ", peer.against));
  return printable(text + (against.empty() ? "" : "; " + join(against, ", ")), 400) + ".";
}

/// The lines above the table, each a paragraph.
std::vector<std::string> head(const Results& results, const std::vector<Variant>& variants,
                              bool ratios_only) {
  const std::string answer = headline(results, variants, ratios_only);
  return answer.empty() ? std::vector{title(results)} : std::vector{answer, title(results)};
}

}  // namespace

std::string device_name(const Results& results) {
  const auto device = results.context.find("device");
  return device == results.context.end() ? "unknown" : text_at(*device, "name");
}

std::string busy_note(const Json& context) {
  constexpr double kUsual = 0.25;  // what any system does now and then
  const auto number = [&](const char* key) {
    const auto found = context.find(key);
    return found != context.end() && found->is_number() ? found->get<double>() : 0.0;
  };
  const double busy = number("busy_cores"), cores = number("cores");
  if (busy < std::max(kUsual, 0.1 * cores)) return "";
  return cat("Other processes kept ", fixed(busy, 1), " of ", fixed(cores, 0),
             " cores busy when this began: times are longer and vary more.");
}

std::vector<Note> report_notes(const Results& results) {
  return notes(results, aggregate(results), ablated_rungs(results));
}

std::vector<Speedup> against_peers(const Results& results) {
  return against_peers(results, aggregate(results));
}

std::string terminal_report(const Results& results, bool ratios_only) {
  const auto variants = aggregate(results);
  const auto rungs = only(variants, false), peers = only(variants, true);
  const auto ablated = ablated_rungs(results);
  const auto scaled = scaling(results);
  std::string text = join(head(results, variants, ratios_only), "\n") + "\n\n";
  text += table_of(rungs, variants, ratios_only).terminal() + "\n";
  if (!peers.empty()) text += table_of(peers, variants, ratios_only).terminal() + "\n";
  if (!ablated.empty()) text += table_of(ablated, ratios_only).terminal() + "\n";
  if (!scaled.empty()) text += table_of(scaled, ratios_only).terminal() + "\n";
  for (const Note& note : notes(results, variants, ablated)) text += note.text + "\n";
  return text;
}

std::string markdown_report(const Results& results, bool ratios_only) {
  const auto variants = aggregate(results);
  const auto rungs = only(variants, false), peers = only(variants, true);
  const auto ablated = ablated_rungs(results);
  const auto scaled = scaling(results);
  std::string text = join(head(results, variants, ratios_only), "\n\n") + "\n\n";
  text += table_of(rungs, variants, ratios_only).markdown() + "\n";
  if (!peers.empty()) text += "## Peers\n\n" + table_of(peers, variants, ratios_only).markdown() + "\n";
  if (!scaled.empty()) text += "## Scaling\n\n" + table_of(scaled, ratios_only).markdown() + "\n";
  if (!ablated.empty()) text += "## Ablations\n\n" + table_of(ablated, ratios_only).markdown() + "\n";
  for (const Note& note : notes(results, variants, ablated)) text += "- " + note.text + "\n";
  return text;
}

std::string comparison(const Results& results, const std::string& before, const std::string& after) {
  const auto variants = aggregate(results);
  std::vector<Variant> rows;
  for (const Variant& v : variants)
    if (v.variant == before || v.variant == after) rows.push_back(v);
  if (rows.empty()) return cat("Neither ", before, " nor ", after, " was measured.\n");
  std::string text = title(results) + "\n\n" + table_of(rows, variants, false).terminal();
  for (const Variant& v : rows)
    if (v.numbers && v.throttled_rounds > 0) text += "\n" + throttled_note(v) + "\n";
  for (const Variant& b : rows) {
    for (const Variant& a : rows) {
      if (b.variant != before || a.variant != after || a.workload != b.workload) continue;
      if (!a.numbers || !b.numbers) continue;
      const auto gain = speedup(unthrottled_rounds(results, b), unthrottled_rounds(results, a));
      if (!gain) continue;
      const int64_t more = a.numbers->memory.live_peak - b.numbers->memory.live_peak;
      text += cat("\n", after, " runs at ", ratio(*gain, 2), " times the speed of ", before, " on ",
                  a.workload, ", with ",
                  more == 0 ? "the same" : cat(bytes_text(std::abs(more)), more > 0 ? " more" : " less"),
                  " live memory.\n");
    }
  }
  return text;
}

}  // namespace stepladder
