#include "bench/verdict/comparison_report.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/base/table.h"
#include "bench/base/text.h"
#include "bench/results/json.h"

namespace stepladder {
namespace {

const std::string kNone = "-";

/// A log ratio as a signed percentage: "+2.03".
std::string percent(double log_ratio) {
  const double value = std::expm1(log_ratio) * 100;
  return (value < 0 ? "" : "+") + fixed(value, 2);
}

std::string gib(int64_t bytes) {
  return fixed(static_cast<double>(bytes) / (1 << 30), 3);
}

bool is_repeated(const Comparison& comparison) {
  return std::any_of(comparison.rows.begin(), comparison.rows.end(),
                     [](const ComparedRow& row) { return row.repetition > 0; });
}

Table table_of(const Comparison& comparison) {
  using Row = ComparedRow;
  using Numbers = ComparedRow::Numbers;
  std::set<std::string> workloads;
  for (const Row& row : comparison.rows) workloads.insert(row.workload);
  Columns<Row> columns;
  const auto add = [&](const char* header, std::function<std::string(const Numbers&)> cell) {
    columns.add(header, [cell](const Row& row) { return row.numbers ? cell(*row.numbers) : kNone; });
  };
  columns.add_text("rung", [](const Row& row) { return row.variant; });
  columns.add(
      "time", [](const Row& row) { return std::to_string(row.repetition); }, is_repeated(comparison));
  columns.add_text(
      "workload", [](const Row& row) { return row.workload; }, workloads.size() > 1);
  add("pairs", [](const Numbers& n) { return std::to_string(n.pairs); });
  add("BASE ms", [](const Numbers& n) { return n.pairs > 0 ? sized(n.base_ms) : kNone; });
  add("NEW ms", [](const Numbers& n) { return n.pairs > 0 ? sized(n.new_ms) : kNone; });
  add("change %", [](const Numbers& n) { return n.change ? percent(n.change->log_ratio) : kNone; });
  add("bounds %", [](const Numbers& n) {
    return n.change ? cat(percent(n.change->lo), " to ", percent(n.change->hi)) : kNone;
  });
  add("limit %", [](const Numbers& n) { return "+" + fixed(n.limit * 100, 2); });
  add("live GiB, both", [](const Numbers& n) { return cat(gib(n.base_bytes), " / ", gib(n.new_bytes)); });
  columns.add_text("verdict", [](const Row& row) {
    return cat(name_of(row.judgement), row.reason.empty() ? "" : ": " + row.reason);
  });
  return columns.table(comparison.rows);
}

/// "1 of 11 rungs is slower or larger."
std::string headline(const Comparison& comparison) {
  const Judgement verdict = overall(comparison.rows);
  const auto count = [&](Judgement judgement) {
    return std::count_if(comparison.rows.begin(), comparison.rows.end(),
                         [&](const ComparedRow& row) { return row.judgement == judgement; });
  };
  const auto compared = std::ssize(comparison.rows) - count(Judgement::skipped);
  const auto number = count(verdict);
  const char* what = verdict == Judgement::pass           ? "no slower and no larger"
                     : verdict == Judgement::regression   ? "slower or larger"
                     : verdict == Judgement::inconclusive ? "undecided: more pairs would tell"
                     : verdict == Judgement::failed       ? "without numbers"
                                                          : "compared";
  if (verdict == Judgement::skipped) return "no rung ran in both.";
  const char* each = is_repeated(comparison) ? " comparison" : " rung";
  return cat(number, " of ", compared, each, compared == 1 ? " " : "s ", number == 1 ? "is " : "are ", what,
             ".");
}

std::vector<std::string> lines_of(const Comparison& comparison) {
  std::vector<std::string> lines = {cat(
      "Change: mean over pairs of log(NEW / BASE) of the runs' median steps, over 0 where NEW is slower. ",
      "Bounds: each holds with ", fixed(kBoundConfidence * 100, 0),
      " %, the upper one over all looks together. REGRESSION: the lower one is over the limit, and that the "
      "rung is slower at all is certain to ",
      fixed((1 - kFalseAlarms) * 100, 0), " % among all rungs, from ", kMinCertainPairs,
      " pairs; or live bytes grew. PASS: the upper one is under the limit.")};
  lines.insert(lines.end(), comparison.notes.begin(), comparison.notes.end());
  for (std::string& line : lines) line = printable(line, 600);
  return lines;
}

std::vector<std::string> sides(const Comparison& comparison) {
  std::vector<std::string> lines = {cat("BASE: ", comparison.base), cat("NEW: ", comparison.next),
                                    comparison.device};
  for (std::string& line : lines) line = printable(line, 400);
  return lines;
}

}  // namespace

std::string terminal_report(const Comparison& comparison) {
  std::string text = join(sides(comparison), "\n") + "\n\n" + table_of(comparison).terminal() + "\n";
  for (const std::string& line : lines_of(comparison)) text += line + "\n";
  return cat(text, "\n", name_of(overall(comparison.rows)), ": ", headline(comparison), "\n");
}

std::string markdown_report(const Comparison& comparison) {
  std::string text =
      cat("## Stepladder: ", name_of(overall(comparison.rows)), "\n\n", headline(comparison), "\n\n");
  for (const std::string& line : sides(comparison)) text += "- " + markdown_text(line) + "\n";
  text += "\n" + table_of(comparison).markdown() + "\n";
  for (const std::string& line : lines_of(comparison)) text += "- " + markdown_text(line) + "\n";
  return text;
}

Json to_json(const Comparison& comparison) {
  Json json = {{"schema", kSchema},
               {"kind", "comparison"},
               {"verdict", name_of(overall(comparison.rows))},
               {"exit_code", static_cast<int>(exit_code(comparison.rows))},
               {"base", comparison.base},
               {"new", comparison.next},
               {"device", comparison.device}};
  json["rows"] = Json::array();
  for (const ComparedRow& row : comparison.rows) {
    Json item = {{"variant", row.variant},
                 {"workload", row.workload},
                 {"verdict", name_of(row.judgement)},
                 {"reason", row.reason},
                 {"same_sources", row.same_sources}};
    if (row.repetition > 0) item["repetition"] = row.repetition;
    if (const auto& n = row.numbers) {
      item["pairs"] = n->pairs;
      if (n->pairs > 0) {
        item["base_ms"] = n->base_ms;
        item["new_ms"] = n->new_ms;
      }
      if (const auto& c = n->change) {
        item["ratio"] = {{"value", std::exp(c->log_ratio)}, {"lo", std::exp(c->lo)}, {"hi", std::exp(c->hi)}};
        item["p_slower"] = c->p_slower;
        item["certain"] = n->certain;
      }
      item["limit"] = 1.0 + n->limit;
      item["live_bytes"] = {{"base", n->base_bytes}, {"new", n->new_bytes}, {"grown", n->grown}};
    }
    json["rows"].push_back(std::move(item));
  }
  json["notes"] = comparison.notes;
  return json;
}

std::string github_report(const Comparison& comparison) {
  // Escaped as actions/toolkit does, packages/core/src/command.ts; line ends are gone already.
  const auto escaped = [](const std::string& text, std::string_view more) {
    std::string out;
    for (const char c : text) {
      if (c == '%' || more.find(c) != std::string_view::npos)
        out += c == '%' ? "%25" : c == ':' ? "%3A" : "%2C";
      else
        out += c;
    }
    return out;
  };
  std::string text;
  for (const ComparedRow& row : comparison.rows) {
    const bool bad = row.judgement == Judgement::regression || row.judgement == Judgement::failed;
    const char* level = bad ? "error" : row.judgement == Judgement::inconclusive ? "warning" : "notice";
    std::string says = name_of(row.judgement);
    if (row.numbers && row.numbers->change)
      says += cat(", ", percent(row.numbers->change->log_ratio), " % (", percent(row.numbers->change->lo),
                  " to ", percent(row.numbers->change->hi), ")");
    if (!row.reason.empty()) says += ": " + row.reason;
    text += cat("::", level, " title=", escaped(printable(cat(row.variant, ", ", row.workload), 200), ":,"),
                "::", escaped(printable(says, 600), ""), "\n");
  }
  return text;
}

std::string report_in(const std::string& format, const Comparison& comparison) {
  if (format == "markdown") return markdown_report(comparison);
  if (format == "github") return github_report(comparison);
  if (format == "json") return dump(to_json(comparison), 2) + "\n";
  return terminal_report(comparison);
}

}  // namespace stepladder
