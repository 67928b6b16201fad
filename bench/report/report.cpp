#include "bench/report/report.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/base/table.h"
#include "bench/base/text.h"
#include "bench/report/answer.h"
#include "bench/report/notes.h"
#include "bench/report/rows_table.h"
#include "model/error.h"

namespace stepladder {
namespace {

std::string saved_memory(const AblatedRung& row) {
  std::vector<std::string> saved;
  for (size_t kind = row.ladder ? 0 : 1; kind < std::size(kGains); ++kind) {
    const Gain* gain = gains_of(row)[kind];
    const std::optional<int64_t> bytes = gain ? gain->saved_bytes : std::nullopt;
    saved.push_back(bytes ? cat(*bytes < 0 ? "-" : "", bytes_text(std::abs(*bytes))) : kNone);
  }
  return std::ranges::count(saved, kNone) == std::ssize(saved) ? kNone : join(saved, " / ");
}

std::string problems(const AblatedRung& row) {
  std::vector<std::string> problems;
  for (const Gain* gain : gains_of(row)) {
    if (!gain || gain->ok()) continue;
    const std::string problem = cat(gain->status, ": ", gain->reason);
    add_once(problems, problem);
  }
  return problems.empty() ? "ok" : join(problems, "; ");
}

Table scaling_table(const std::vector<ScaledRun>& rows, bool ratios_only) {
  using Row = ScaledRun;
  const bool independent =
      std::ranges::any_of(rows, [](const Row& r) { return r.independent_efficiency.has_value(); });
  const auto percent = [](const std::optional<Estimate>& e) { return Cell::of(scaled(e, 100), 1); };
  Columns<Row> columns;
  columns.add_text("on several devices", [](const Row& r) { return r.variant; });
  columns.add({"devices"}, [](const Row& r) { return std::to_string(r.devices); });
  if (std::ranges::any_of(rows, [](const Row& r) { return r.machines > 1; }))
    columns.add({"machines"}, [](const Row& r) { return std::to_string(r.machines); });
  columns.add({"B each"}, [](const Row& r) { return r.config.at("B").dump(); });
  if (!ratios_only) columns.add({"tok/s"}, [](const Row& r) { return rounded(r.tokens_per_second.value); });
  columns.add({.title = "x one device", .meaning = "tokens/s over those of one device in the same round"},
              [](const Row& r) { return Cell::of(r.speedup, 2); });
  columns.add({.title = "efficiency", .unit = "%", .meaning = "x one device, by the number of devices"},
              [=](const Row& r) { return percent(r.efficiency); });
  if (independent)
    columns.add({.title = "independent",
                 .priority = 3,
                 .unit = "%",
                 .meaning = "efficiency of the same devices that train each by itself"},
                [=](const Row& r) { return percent(r.independent_efficiency); });
  if (!ratios_only) {
    columns.add({.title = "exposed",
                 .priority = 2,
                 .unit = "ms",
                 .meaning = "by how much a step is longer than that of one device"},
                [=](const Row& r) { return Cell::of(r.exposed_ms, 2); });
    if (independent)
      columns.add({.title = "communication",
                   .priority = 1,
                   .unit = "ms",
                   .meaning = "by how much a step is longer than of independent devices"},
                  [=](const Row& r) { return Cell::of(r.communication_ms, 2); });
  }
  columns.add({.title = "one device", .align = Align::left, .priority = 4},
              [](const Row& r) { return cat(r.against, " B=", r.one_batch); });
  return columns.table(rows, "Scaling");
}

/// A gain of a rung or switch, by its place in kGains.
struct KindOfGain {
  const AblatedRung* row;
  size_t kind;
  const Gain& gain() const { return *gains_of(*row)[kind]; }
};

/// What each rung or switch is worth by steps to the loss, by the time of a step, and by both: a row for each
/// gain.
Table ablations_to_loss(const Findings& file, bool joules) {
  std::vector<KindOfGain> gains;
  for (const AblatedRung& row : file.ablated)
    for (size_t kind = 0; kind < std::size(kGains); ++kind)
      if (gains_of(row)[kind]) gains.push_back({&row, kind});
  Columns<KindOfGain> columns;
  columns.add_text(of_switches(file.results()) ? "switch" : "rung",
                   [](const KindOfGain& g) { return g.row->rung; });
  columns.add_text_if_it_differs(gains, "workload",
                                 [](const KindOfGain& g) { return workload_of(g.row->config); });
  columns.add_text("gain", [](const KindOfGain& g) { return kGains[g.kind]; });
  add_factors(
      [&](Table::Column column, std::function<Cell(const Sooner&)> cell) {
        columns.add(std::move(column), [cell](const KindOfGain& g) -> Cell {
          const Gain& gain = g.gain();
          if (!gain.ok()) return Cell(gain.status, "", gain.reason);
          return cell(*gain.to_loss);
        });
      },
      joules);
  columns.add({.title = "status", .align = Align::left, .reasons = true}, [](const KindOfGain& g) {
    return g.gain().ok() ? "ok" : cat(g.gain().status, ": ", g.gain().reason);
  });
  return columns.table(gains, "Ablations, in rounds in which both reached the loss");
}

}  // namespace

Table ablations_table(const Findings& file, bool ratios_only) {
  const std::vector<AblatedRung>& rows = file.ablated;
  bool joules = false;
  for (const AblatedRung& row : rows)
    for (const Gain* gain : gains_of(row))
      if (gain && gain->to_loss) joules |= gain->to_loss->joules.has_value();
  if (number_at(file.results().plan, "until_loss")) return ablations_to_loss(file, joules);
  const bool switches = of_switches(file.results());
  Columns<AblatedRung> columns;
  columns.add_text(switches ? "switch" : "rung", [](const AblatedRung& row) { return row.rung; });
  columns.add_text_if_it_differs(rows, "workload",
                                 [](const AblatedRung& row) { return workload_of(row.config); });
  const std::string first = switches ? kAllOff : file.ladder.rungs.front().name;
  const std::string meanings[] = {
      "how many times as fast it is as the rung before",
      cat("how many times as fast ", tuned_rung(file.results()), " is with it as without"),
      cat("how many times as fast ", first, " is with it alone")};
  for (size_t kind = switches ? 1 : 0; kind < std::size(kGains); ++kind)
    columns.add({.title = kGains[kind], .meaning = meanings[kind]}, [kind](const AblatedRung& row) -> Cell {
      const Gain* gain = gains_of(row)[kind];
      if (!gain) return kNone;
      return gain->ok() ? Cell::of(gain->ratio, 3) : Cell(gain->status, "", gain->reason);
    });
  if (!ratios_only)
    columns.add({.title = "live memory saved",
                 .priority = 1,
                 .meaning = "of the trainer's own tensors at their peak, in the same order"},
                saved_memory);
  columns.add({.title = "status", .align = Align::left, .reasons = true}, problems);
  return columns.table(rows, "Ablations");
}

Table interactions_table(const std::vector<AblatedPair>& rows) {
  Columns<AblatedPair> columns;
  columns.add_text("switches", [](const AblatedPair& row) { return cat(row.one, ", ", row.other); });
  columns.add_text_if_it_differs(rows, "workload",
                                 [](const AblatedPair& row) { return workload_of(row.config); });
  const bool to_loss =
      std::ranges::any_of(rows, [](const AblatedPair& row) { return row.both.to_loss.has_value(); });
  columns.add({.title = "both alone",
               .meaning = to_loss ? "times sooner at the loss than all off, with both on"
                                  : "times as fast as all off, with both on"},
              [=](const AblatedPair& row) -> Cell {
                if (!row.both.ok()) return Cell(row.both.status, "", row.both.reason);
                return Cell::of(row.both.worth(), 3);
              });
  columns.add({.title = "interaction",
               .meaning = "the gain of both over the product of each one's alone; over 1 each is worth more "
                          "beside the other"},
              [=](const AblatedPair& row) { return Cell::of(to_loss ? row.seconds : row.interaction, 3); });
  if (to_loss) {
    columns.add({.title = "of steps", .meaning = "the interaction by steps to the loss alone"},
                [](const AblatedPair& row) { return Cell::of(row.steps, 3); });
    columns.add({.title = "of time", .meaning = "the interaction by the time of a step alone"},
                [](const AblatedPair& row) { return Cell::of(row.interaction, 3); });
  }
  return columns.table(rows, "Pairs of switches");
}

Section section_of(const Findings& file, bool ratios_only) {
  Section section;
  if (const std::string answer = answer_of(file, ratios_only).text; !answer.empty())
    section.sentences.push_back(answer);
  section.sentences.push_back(title(file.results()));
  const auto add = [&](Table table) {
    if (!table.empty() || section.tables.empty()) section.tables.push_back(std::move(table));
  };
  const auto rungs = placed(file, [](const ResultRow&row) { return row.peer.empty(); }),
             peers = placed(file, [](const ResultRow&row) { return !row.peer.empty(); }),
             to_loss = placed(file, [](const ResultRow&row) { return row.to_loss() != nullptr; });
  const Section certified = section_of(file.certificates);
  for (const Table& table : certified.tables) add(table);
  const auto add_loss = [&] {
    if (to_loss.empty()) return;
    add(to_loss_table(to_loss, ratios_only));
    add(factors_table(
        placed(file, [](const ResultRow& row) { return row.to_loss() && !is_ablation(row.variant); })));
  };
  const auto add_ablations = [&] {
    add(ablations_table(file, ratios_only));
    add(interactions_table(file.pairs));
  };
  const bool for_a_loss = loss_asked(file).has_value();
  if (for_a_loss) add_loss(), add_ablations();
  add(rows_table(rungs, ratios_only, section.tables.empty() ? "" : "Step times"));
  if (std::ranges::none_of(file.rows, emulates)) add(groups_table(file.groups));
  add(rows_table(peers, ratios_only, "Peers"));
  if (!for_a_loss) add_loss();
  add(scaling_table(file.scaled, ratios_only));
  if (!for_a_loss) add_ablations();
  section.notes = certified.notes;
  for (Note& note : notes_of(file)) section.notes.push_back(std::move(note));
  return section;
}

Section two_rungs(const Findings& file, const std::string& before, const std::string& after) {
  const auto both =
      placed(file, [&](const ResultRow& row) { return row.variant == before || row.variant == after; });
  if (both.empty()) return {.sentences = {cat("Neither ", before, " nor ", after, " was measured.")}};
  Section section{.sentences = {title(file.results())}, .tables = {rows_table(both, false)}};
  const auto note = [&](const std::string& text) { section.notes.push_back({text}); };
  for (const PlacedRow& p : both)
    if (p.row->numbers && p.row->disturbed_rounds > 0) note(disturbed_note(*p.row));
  for (const PlacedRow& p : both) {
    const ResultRow &b = *p.row, *a = file.find(after, b.workload);
    const auto gain = b.variant == before ? speedup(&b, a) : std::nullopt;
    if (!gain) continue;
    const int64_t was = b.numbers->memory.live_peak, is = a->numbers->memory.live_peak;
    const std::string memory =
        is == was ? "the same" : cat(bytes_text(std::abs(is - was)), is > was ? " more" : " less");
    note(cat(after, " runs at ", text_of(*gain, 2), " times the speed of ", before, " on ", b.workload,
             was > 0 && is > 0 ? cat(", with ", memory, " live memory") : "", "."));
  }
  for (const std::string& rung : {before, after})
    if (std::ranges::none_of(both, [&](const PlacedRow& p) { return p.row->variant == rung; }))
      note(cat(rung, " was not measured here, so that nothing says what the other buys."));
  return section;
}

}  // namespace stepladder
