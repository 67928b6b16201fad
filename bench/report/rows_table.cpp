#include "bench/report/rows_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "bench/base/text.h"
#include "bench/plan/programs.h"
#include "model/error.h"

namespace stepladder {
namespace {

using Numbers = ResultRow::Numbers;

/// The cell of a speed-up, "1.02 (1.01 to 1.03)", and against whom.
Cell ratio_cell(const std::optional<Speedup>& speedup) {
  if (!speedup) return kNone;
  const auto& [against, ratio] = *speedup;
  return Cell::of(ratio, 2,
                  cat("against ", against, ratio.interval ? "; " + interval_name(ratio.rounds) : ""));
}

/// The cell of a number whose interval is its hint: in the text, the interval would widen a column that few
/// readers need.
Cell measured(const std::optional<Estimate>& estimate) {
  Cell cell = Cell::of(estimate);
  cell.hint = std::exchange(cell.between, "");
  return cell;
}

std::string percent(const std::optional<double>& fraction) {
  return fraction ? fixed(*fraction * 100, 1) : "n/a";
}

std::string both(const std::string& a, const std::string& b) {
  return a + " / " + b;
}

/// The row of a peer that a row's speed-up is against, and the speed-up; nothing where there is none.
std::pair<const ResultRow*, std::optional<Speedup>> beside(const PlacedRow& placed, const std::string& peer) {
  if (placed.row->numbers)
    for (const Speedup& speedup : placed.row->numbers->peers)
      for (const ResultRow& other : placed.file->rows)
        if (other.peer == peer && other.variant == speedup.against &&
            other.workload == placed.row->workload && other.backend == placed.row->backend)
          return {&other, speedup};
  return {};
}

std::string status_text(const ResultRow& v) {
  if (!v.reason.empty()) return cat(name_of(v.status), ": ", v.reason);
  const int64_t skipped = v.numbers ? v.numbers->skipped_steps.value_or(0) : 0;
  return cat(name_of(v.status), v.disturbed() ? ", " + v.disturbance : "",
             skipped > 0 ? cat(", ", skipped, " steps skipped") : "");
}

/// A rung's name with what it changes.
Cell name_cell(const PlacedRow& placed) {
  const Rung* rung = placed.row->peer.empty() ? placed.file->ladder.listed(placed.row->variant) : nullptr;
  return {placed.row->variant, "", "", rung ? rung->changes : ""};
}

Cell joules_cell(const ResultRow& row) {
  if (row.numbers->joules) return measured(row.numbers->joules);
  std::string why;
  for (const auto& [round, run] : row.runs)
    if (why.empty()) why = run->summary->joules_unknown;
  return {kNone, "", why};
}

Columns<PlacedRow> named_columns(const std::string& title, const std::vector<PlacedRow>& rows) {
  Columns<PlacedRow> columns;
  columns.add_text(title, name_cell);
  columns.add_text_if_it_differs(rows, "workload", [](const PlacedRow& p) { return p.row->workload; });
  if (std::ranges::any_of(rows, [](const PlacedRow& p) { return !p.measured.empty(); }))
    columns.add_text("measured", [](const PlacedRow& p) { return p.measured; });
  return columns;
}

void add_peers(Columns<PlacedRow>& columns, const std::vector<PlacedRow>& rows, bool absolute) {
  std::vector<std::string> peers;
  for (const PlacedRow& p : rows)
    for (const std::string& peer : peers_of(p.file->rows)) add_once(peers, peer);
  for (const std::string& peer : peers) {
    const std::string title = peer_title(peer);
    if (absolute)
      columns.add({.title = title,
                   .priority = 5,
                   .unit = "ms",
                   .meaning = title + "'s counterpart in the same rounds"},
                  [=](const PlacedRow& p) -> Cell {
                    const ResultRow* other = beside(p, peer).first;
                    if (!other) return kNone;
                    return Cell::of(other->numbers->median_step_ms.value, other->variant);
                  });
    columns.add(
        {.title = "x " + title, .priority = 7, .meaning = "times as fast as " + title + " in the same round"},
        [=](const PlacedRow& p) { return ratio_cell(beside(p, peer).second); });
  }
}

}  // namespace

std::string gib_text(int64_t bytes, std::optional<double> least) {
  if (bytes == 0) return kNone;
  const double size = static_cast<double>(bytes) / (1 << 30), smallest = least ? *least / (1 << 30) : size;
  return fixed(size, smallest < 0.1 ? 3 : smallest < 10 ? 2 : 1);
}

std::optional<int64_t> fewest_rounds(const std::vector<ResultRow>& rows) {
  std::optional<int64_t> fewest;
  const auto look = [&](const Estimate& e) {
    if (e.interval) fewest = std::min(fewest.value_or(e.rounds), e.rounds);
  };
  for (const ResultRow& row : rows) {
    if (!row.numbers) continue;
    look(row.numbers->median_step_ms);
    for (const auto& speedup : {row.numbers->previous, row.numbers->baseline})
      if (speedup) look(speedup->ratio);
    for (const Speedup& speedup : row.numbers->peers) look(speedup.ratio);
  }
  return fewest;
}

bool emulates(const ResultRow& row) {
  const Rung* rung = row.peer.empty() ? our_rung(row.variant) : nullptr;
  return row.backend == "cpu" && rung && rung->math != MathMode::fp32;
}

std::vector<std::string> peers_of(const std::vector<ResultRow>& rows) {
  std::vector<std::string> peers;
  for (const ResultRow& row : rows)
    if (!row.peer.empty()) add_once(peers, row.peer);
  return peers;
}

Table rows_table(const std::vector<PlacedRow>& rows, bool ratios_only, const std::string& heading) {
  const bool ours = rows.empty() || rows.front().row->peer.empty(), absolute = !ratios_only;
  const auto any = [&](auto known) {
    return std::ranges::any_of(
        rows, [=](const PlacedRow& p) { return p.row->numbers && (*p.row->numbers).*known; });
  };
  const bool emulated = std::ranges::any_of(rows, [](const PlacedRow& p) { return emulates(*p.row); });
  Columns<PlacedRow> columns = named_columns(ours ? "rung" : "peer", rows);
  const auto add = [&](Table::Column column, std::function<Cell(const Numbers&)> cell) {
    columns.add(std::move(column),
                [cell](const PlacedRow& p) { return p.row->numbers ? cell(*p.row->numbers) : kNone; });
  };
  double least_ms = HUGE_VAL, most_ms = 0.0, least_bytes = HUGE_VAL;
  int64_t fewest = 0;  // rounds behind an interval
  for (const PlacedRow& p : rows) {
    if (!p.row->numbers) continue;
    const Numbers& n = *p.row->numbers;
    const int64_t rounds = n.median_step_ms.rounds;
    if (n.median_step_ms.interval) fewest = fewest == 0 ? rounds : std::min(fewest, rounds);
    least_ms = std::min(least_ms, n.median_step_ms.value);
    most_ms = std::max(most_ms, n.median_step_ms.value);
    for (const int64_t bytes : {n.memory.live_peak, n.memory.process_peak})
      if (bytes > 0) least_bytes = std::min(least_bytes, static_cast<double>(bytes));
  }
  const int ms_digits = column_digits(least_ms, most_ms);
  if (absolute) {
    add({.title = "median",
         .unit = "ms",
         .meaning =
             "step time by the host's clock, device synchronised; median over rounds of each run's median"},
        [](const Numbers& n) { return Cell::of(n.median_step_ms.value); });
    if (fewest > 0)
      add({.title = interval_name(fewest), .priority = 4, .meaning = "of the median, over rounds"},
          [=](const Numbers& n) { return interval_text(n.median_step_ms, ms_digits); });
    add({.title = "tok/s", .priority = 5, .meaning = "tokens a second"},
        [](const Numbers& n) { return rounded(n.tokens_per_second.value); });
  }
  if (ours && !rows.empty()) {
    add({.title = "x previous",
         .priority = 8,
         .meaning =
             "times as fast, by time per token, as its parent, or the nearest of its parents that took part"},
        [](const Numbers& n) { return ratio_cell(n.previous); });
    add({.title = "x baseline", .meaning = "times as fast, by time per token, as the lowest rung"},
        [](const Numbers& n) { return ratio_cell(n.baseline); });
    add_peers(columns, rows, absolute);
  }
  if (any(&Numbers::mfu_nanogpt))
    add({.title = "MFU",
         .priority = 5,
         .unit = "%",
         .meaning =
             "model FLOPs utilisation by nanoGPT's formula / by llm.c's; n/a where the device's peak is not "
             "known"},
        [](const Numbers& n) { return both(percent(n.mfu_nanogpt), percent(n.mfu_llmc)); });
  if (absolute) {
    add({.title = "live/process",
         .priority = 9,
         .unit = "GiB",
         .meaning =
             "peak of the trainer's own tensors / of the process, on a GPU of all that is in use there"},
        [=](const Numbers& n) {
          return both(gib_text(n.memory.live_peak, least_bytes),
                      gib_text(n.memory.process_peak, least_bytes));
        });
    if (any(&Numbers::cycles))
      add({.title = "Mcycles",
           .priority = 1,
           .meaning = "millions of cycles that an SM's clock counted in a step"},
          [](const Numbers& n) { return measured(scaled(n.cycles, 1e-6)); });
    if (any(&Numbers::joules)) {
      columns.add({.title = "J/step", .priority = 6, .meaning = "joules of a step, all devices together"},
                  [](const PlacedRow& p) { return p.row->numbers ? joules_cell(*p.row) : kNone; });
      add({.title = "tok/J", .priority = 2, .meaning = "tokens a joule"},
          [](const Numbers& n) { return measured(n.tokens_per_joule); });
    }
    add({.title = "first step", .priority = 1, .unit = "ms", .meaning = "compiling and searching included"},
        [](const Numbers& n) { return Cell::of(n.first_step_ms); });
  }
  // On the CPU the loss is what counts: it shows that all rungs learn the same.
  add({.title = "loss", .priority = emulated ? 10 : 3, .meaning = "of the last training step"},
      [](const Numbers& n) { return fixed(n.final_loss, 4); });
  if (any(&Numbers::val_loss))
    add({.title = "val loss", .priority = 3, .meaning = "validation loss after the last step"},
        [](const Numbers& n) { return n.val_loss ? fixed(*n.val_loss, 4) : kNone; });
  columns.add({.title = "status", .align = Align::left, .reasons = true},
              [](const PlacedRow& p) { return status_text(*p.row); });
  return columns.table(rows, heading);
}

Table to_loss_table(const std::vector<PlacedRow>& rows, bool ratios_only) {
  Columns<PlacedRow> columns = named_columns("trained to a loss", rows);
  columns.add({.title = "val loss", .priority = 3, .meaning = "the validation loss asked for"},
              [](const PlacedRow& p) { return cat("<= ", number_text(p.row->to_loss()->loss)); });
  columns.add({.title = "reached", .meaning = "in how many rounds; the numbers are of these"},
              [](const PlacedRow& p) { return cat(p.row->to_loss()->reached, " of ", p.row->runs.size()); });
  const auto add = [&](Table::Column column, std::function<Cell(const TimeToLoss&)> cell) {
    columns.add(std::move(column), [cell](const PlacedRow& p) {
      const TimeToLoss& took = *p.row->to_loss();
      return took.reached > 0 ? cell(took) : kNone;
    });
  };
  if (!ratios_only)
    add({.title = "seconds",
         .meaning = "steps times the mean step: without evaluations, and without the first step's compiling"},
        [](const TimeToLoss& t) { return Cell::of(t.seconds); });
  add({.title = "steps", .meaning = "to the loss, interpolated between evaluations"},
      [](const TimeToLoss& t) { return Cell::of(t.steps, 0); });
  if (!ratios_only)
    add({.title = "step", .unit = "ms", .meaning = "mean of a run's steps without the first"},
        [](const TimeToLoss& t) { return Cell::of(t.step_ms); });
  add({.title = "Mtokens", .priority = 1, .meaning = "millions of tokens, of all devices"},
      [](const TimeToLoss& t) { return fixed(t.tokens.value * 1e-6, 2); });
  if (!ratios_only)
    add({.title = "kJ", .priority = 2, .meaning = "kilojoules, of all devices"},
        [](const TimeToLoss& t) { return Cell::of(scaled(t.joules, 1e-3)); });
  return columns.table(rows, "Time to a loss");
}

void add_factors(const std::function<void(Table::Column, std::function<Cell(const Sooner&)>)>& add,
                 bool joules) {
  add({.title = "x steps", .meaning = "how many times fewer steps reach the loss"},
      [](const Sooner& sooner) { return Cell::of(sooner.steps, 2); });
  add({.title = "x time a step", .meaning = "how many times less time a step takes"},
      [](const Sooner& sooner) { return Cell::of(sooner.step_ms, 2); });
  add({.title = "x seconds", .meaning = "how many times sooner the loss is reached: by both"},
      [](const Sooner& sooner) { return Cell::of(sooner.seconds, 2); });
  if (joules)
    add({.title = "x joules", .meaning = "how many times fewer joules reach the loss"},
        [](const Sooner& sooner) { return Cell::of(sooner.joules, 2); });
}

Table factors_table(const std::vector<PlacedRow>& rows) {
  std::vector<PlacedRow> held;  // rows with factors against another row
  bool joules = false;
  for (const PlacedRow& p : rows)
    if (const auto& first = p.row->to_loss()->first; first && first->against != p.row->variant) {
      held.push_back(p);
      joules |= first->joules.has_value();
    }
  Columns<PlacedRow> columns = named_columns("trainer", held);
  columns.add_text("than", [](const PlacedRow& p) { return p.row->to_loss()->first->against; });
  add_factors(
      [&](Table::Column column, std::function<Cell(const Sooner&)> cell) {
        columns.add(std::move(column), [cell](const PlacedRow& p) { return cell(*p.row->to_loss()->first); });
      },
      joules);
  return columns.table(held, "Sooner at the loss, in rounds in which both reached it");
}

Table groups_table(const std::vector<GroupGain>& groups) {
  Columns<GroupGain> columns;
  columns.add_text("group", [](const GroupGain& g) { return g.name; });
  columns.add_text_if_it_differs(groups, "workload", [](const GroupGain& g) { return g.workload; });
  columns.add_text("from", [](const GroupGain& g) { return g.before; });
  columns.add_text("to", [](const GroupGain& g) { return g.rungs.back(); });
  columns.add({.title = "speed-up", .meaning = "times as fast after as before the group"},
              [](const GroupGain& g) { return Cell::of(g.ratio, 2); });
  columns.add({.title = "PyTorch's", .priority = 6, .meaning = "the speed-up between PyTorch's counterparts"},
              [](const GroupGain& g) { return Cell::of(g.pytorch, 2); });
  return columns.table(groups, "Rungs as published tables group them");
}

}  // namespace stepladder
