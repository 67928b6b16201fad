#include "bench/verdict/comparison_report.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/base/table.h"
#include "bench/base/text.h"
#include "bench/results/run_json.h"

namespace stepladder {
namespace {

bool is_repeated(const Comparison& comparison) {
  return std::ranges::any_of(comparison.rows, [](const ComparedRow& row) { return row.repetition > 0; });
}

Table table_of(const Comparison& comparison) {
  using Row = ComparedRow;
  using Numbers = ComparedRow::Numbers;
  std::set<std::string> workloads;
  for (const Row& row : comparison.rows) workloads.insert(row.workload);
  Columns<Row> columns;
  const auto add = [&](const std::string& header, int spare,
                       std::function<std::string(const Numbers&)> cell) {
    columns.add({header, Align::right, spare},
                [cell](const Row& row) { return row.numbers ? cell(*row.numbers) : kNone; });
  };
  columns.add_text("rung", [](const Row& row) { return row.variant; });
  if (is_repeated(comparison))
    columns.add("time", [](const Row& row) { return std::to_string(row.repetition); });
  workloads.erase("");  // of a rung that only one side has
  if (workloads.size() > 1)
    columns.add_text("workload", [](const Row& row) { return row.workload.empty() ? kNone : row.workload; });
  add("pairs", 0, [](const Numbers& n) { return std::to_string(n.pairs); });
  add("BASE ms", 5, [](const Numbers& n) { return n.pairs > 0 ? sized(n.time().base) : kNone; });
  add("NEW ms", 6, [](const Numbers& n) { return n.pairs > 0 ? sized(n.time().next) : kNone; });
  const auto any = [&](Quantity what) {
    return std::ranges::any_of(comparison.rows,
                               [=](const Row& row) { return row.numbers && row.numbers->find(what); });
  };
  constexpr Quantity kAll[] = {Quantity::time, Quantity::cycles, Quantity::energy, Quantity::memory};
  const bool several = std::ranges::count_if(kAll, any) > 1;
  for (const Quantity what : kAll) {
    if (!any(what)) continue;
    const std::string of = several ? cat(name_of(what), " ") : "";
    add(several ? of + "%" : "change %", 0, [=](const Numbers& n) {
      const ComparedQuantity* quantity = n.find(what);
      return quantity && quantity->change ? percent_of(quantity->change->log_ratio) : kNone;
    });
    add(of + "bounds %", what == Quantity::time ? 4 : 3, [=](const Numbers& n) {
      const ComparedQuantity* quantity = n.find(what);
      return quantity && quantity->change
                 ? cat(percent_of(quantity->change->lo), " to ", percent_of(quantity->change->hi))
                 : kNone;
    });
    add(of + "limit %", 1, [=](const Numbers& n) {
      const ComparedQuantity* quantity = n.find(what);
      return quantity ? "+" + fixed(quantity->limit * 100, 2) : kNone;
    });
  }
  add("live GiB of both", 2, [](const Numbers& n) {
    const auto gib = [](int64_t bytes) {
      return bytes > 0 ? fixed(static_cast<double>(bytes) / (1 << 30), 3) : kNone;
    };
    return cat(gib(n.base_bytes), " / ", gib(n.new_bytes));
  });
  columns.add({"verdict", Align::left, 0, true}, [](const Row& row) {
    return cat(name_of(row.verdict), row.reason.empty() ? "" : ": " + row.reason);
  });
  return columns.table(comparison.rows);
}

/// "1 of 11 rungs is slower or larger."
std::string headline(const Comparison& comparison) {
  const Verdict verdict = overall(comparison.rows);
  const auto count = [&](Verdict of_row) {
    return std::ranges::count(comparison.rows, of_row, &ComparedRow::verdict);
  };
  const auto compared = std::ssize(comparison.rows) - count(Verdict::skipped);
  const auto number = count(verdict);
  const char* what = verdict == Verdict::pass           ? "no worse"
                     : verdict == Verdict::regression   ? "slower, larger or hungrier"
                     : verdict == Verdict::inconclusive ? "undecided: more pairs would tell"
                     : verdict == Verdict::failed       ? "without numbers"
                                                        : "compared";
  if (verdict == Verdict::skipped) return "no rung ran in both.";
  const char* each = is_repeated(comparison) ? " comparison" : " rung";
  return cat(number, " of ", compared, each, compared == 1 ? " " : "s ", number == 1 ? "is " : "are ", what,
             ".");
}

std::vector<std::string> lines_of(const Comparison& comparison) {
  std::vector<std::string> lines = {cat(
      "Change: mean over pairs of log(NEW / BASE) of the runs' median steps (of energy, mean steps; of live "
      "memory, peaks), over 0 where NEW takes more. ",
      "Bounds: each holds with ", fixed(kBoundConfidence * 100, 0),
      " %, the upper one over all looks together. REGRESSION: a lower one is over its limit, and that the "
      "rung takes more at all is certain to ",
      fixed((1 - kFalseAlarms) * 100, 0), " % among all that is compared",
      is_repeated(comparison) ? " each time" : "", ", from ", kMinCertainPairs,
      " pairs; or live bytes grew that are the same in each run. PASS: the upper ones of time, cycles and "
      "live "
      "memory are under theirs.")};
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

/// "REGRESSION, time +1.54 % (+1.37 to +1.72): live memory grew ..": one line.
std::string verdict_of(const ComparedRow& row) {
  std::string says = name_of(row.verdict);
  for (const ComparedQuantity& quantity :
       row.numbers ? row.numbers->quantities : std::vector<ComparedQuantity>())
    if (const auto& c = quantity.change)
      says += cat(", ", name_of(quantity.what), " ", percent_of(c->log_ratio), " % (", percent_of(c->lo),
                  " to ", percent_of(c->hi), ")");
  if (!row.reason.empty()) says += ": " + row.reason;
  return printable(says, 600);
}

/// A line for each row: GitHub's workflow command that annotates the run with an error, a warning or a
/// notice.
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
    const bool bad = row.verdict == Verdict::regression || row.verdict == Verdict::failed;
    const char* level = bad ? "error" : row.verdict == Verdict::inconclusive ? "warning" : "notice";
    text +=
        cat("::", level, " title=",
            escaped(printable(cat(row.variant, row.workload.empty() ? "" : ", ", row.workload), 200), ":,"),
            "::", escaped(verdict_of(row), ""), "\n");
  }
  for (const std::string& note : comparison.notes)
    if (note.starts_with("STALE")) text += cat("::warning::", escaped(printable(note, 600), ""), "\n");
  return text;
}

/// A test case for each row, as JUnit's XML has them, which CI systems show.
std::string junit_report(const Comparison& comparison) {
  const auto escaped = [](const std::string& text, size_t limit) {
    std::string out;
    for (const char c : printable(text, limit)) {
      const size_t which = std::string_view("&<>\"").find(c);
      constexpr const char* kEntities[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
      out += which == std::string_view::npos ? std::string(1, c) : kEntities[which];
    }
    return out;
  };
  const auto count = [&](auto... verdicts) {
    return std::ranges::count_if(comparison.rows,
                                 [&](const ComparedRow& row) { return ((row.verdict == verdicts) || ...); });
  };
  std::string cases;
  for (const ComparedRow& row : comparison.rows) {
    const std::string says = escaped(verdict_of(row), 600);
    const char* const name = name_of(row.verdict);
    cases += cat("    <testcase classname=\"", escaped(row.workload, 200), "\" name=\"",
                 escaped(row.variant, 200), row.repetition > 0 ? cat(" #", row.repetition) : "", "\">");
    switch (row.verdict) {
      case Verdict::pass:
        cases += cat("<system-out>", says, "</system-out>");
        break;
      case Verdict::skipped:
        cases += cat("<skipped message=\"", says, "\"/>");
        break;
      case Verdict::failed:
        cases += cat("<error type=\"", name, "\" message=\"", says, "\"/>");
        break;
      case Verdict::regression:
      case Verdict::inconclusive:
        cases += cat("<failure type=\"", name, "\" message=\"", says, "\"/>");
    }
    cases += "</testcase>\n";
  }
  const std::string counts = cat("tests=\"", comparison.rows.size(), "\" failures=\"",
                                 count(Verdict::regression, Verdict::inconclusive), "\" errors=\"",
                                 count(Verdict::failed), "\" skipped=\"", count(Verdict::skipped), "\"");
  return cat("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites ", counts,
             ">\n  <testsuite name=\"stepladder\" ", counts, ">\n", cases, "  </testsuite>\n</testsuites>\n");
}

}  // namespace

std::string terminal_report(const Comparison& comparison, bool wide) {
  std::string text;
  for (const std::string& line : sides(comparison)) text += folded(line) + "\n";
  text += "\n" + table_of(comparison).terminal(wide) + "\n";
  for (const std::string& line : lines_of(comparison)) text += folded(line) + "\n";
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
  const auto add_change = [](Json& item, const ComparedQuantity& quantity, const char* p_value) {
    if (const auto& c = quantity.change) {
      item["ratio"] = {{"value", std::exp(c->log_ratio)}, {"lo", std::exp(c->lo)}, {"hi", std::exp(c->hi)}};
      item[p_value] = c->p_slower;
      item["certain"] = quantity.certain;
    }
    item["limit"] = 1.0 + quantity.limit;
  };
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
                 {"verdict", name_of(row.verdict)},
                 {"reason", row.reason},
                 {"same_sources", row.same_sources}};
    if (row.repetition > 0) item["repetition"] = row.repetition;
    if (const auto& n = row.numbers) {
      item["pairs"] = n->pairs;
      if (n->pairs > 0) {
        item["base_ms"] = n->time().base;
        item["new_ms"] = n->time().next;
      }
      add_change(item, n->time(), "p_slower");
      for (const auto& [what, key] :
           {std::pair(Quantity::cycles, "cycles"), std::pair(Quantity::energy, "joules")})
        if (const ComparedQuantity* quantity = n->find(what)) {
          item[key] = {{"base", quantity->base}, {"new", quantity->next}};
          add_change(item[key], *quantity, "p_more");
        }
      item["live_bytes"] = {{"base", n->base_bytes}, {"new", n->new_bytes}, {"grown", n->grown}};
      if (const ComparedQuantity* memory = n->find(Quantity::memory))
        add_change(item["live_bytes"], *memory, "p_more");
    }
    json["rows"].push_back(std::move(item));
  }
  json["notes"] = comparison.notes;
  return json;
}

std::string report_in(const std::string& format, const Comparison& comparison, bool wide) {
  if (format == "markdown") return markdown_report(comparison);
  if (format == "github") return github_report(comparison);
  if (format == "junit") return junit_report(comparison);
  if (format == "json") return dump(to_json(comparison), 2) + "\n";
  return terminal_report(comparison, wide);
}

}  // namespace stepladder
