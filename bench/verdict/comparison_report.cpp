#include "bench/verdict/comparison_report.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/base/section.h"
#include "bench/base/text.h"

namespace stepladder {
namespace {

bool is_repeated(const Comparison& comparison) {
  return std::ranges::any_of(comparison.rows, [](const ComparedRow& row) { return row.repetition > 0; });
}

/// Whether a quantity of a row is shown: means of times only where they tell more than the median.
bool is_shown(const ComparedRow& row, const ComparedQuantity& quantity) {
  const ComparedQuantity& time = row.numbers->time();
  return !is_of_means(quantity.what) || (quantity.above() && !(time.above() && time.certain));
}

/// Whether a row has numbers of a quantity that are shown.
bool shows(const Comparison& comparison, Quantity what) {
  return std::ranges::any_of(comparison.rows, [=](const ComparedRow& row) {
    const ComparedQuantity* quantity = row.numbers ? row.numbers->find(what) : nullptr;
    return quantity && is_shown(row, *quantity);
  });
}

void add_step_columns(Columns<ComparedRow>& columns, const Comparison& comparison) {
  using Numbers = ComparedRow::Numbers;
  std::set<std::string> workloads;
  for (const ComparedRow& row : comparison.rows) workloads.insert(row.workload);
  const auto add = [&](const std::string& header, int priority,
                       std::function<std::string(const Numbers&)> cell) {
    columns.add({.title = header, .priority = priority},
                [cell](const ComparedRow& row) { return row.numbers ? cell(*row.numbers) : kNone; });
  };
  workloads.erase("");  // rungs that only one side has have no workload
  if (workloads.size() > 1)
    columns.add_text("workload",
                     [](const ComparedRow& row) { return row.workload.empty() ? kNone : row.workload; });
  add("pairs", 0, [](const Numbers& n) { return std::to_string(n.pairs); });
  add("BASE ms", 5, [](const Numbers& n) { return n.pairs > 0 ? sized(n.time().base) : kNone; });
  add("NEW ms", 6, [](const Numbers& n) { return n.pairs > 0 ? sized(n.time().next) : kNone; });
  const auto any = [&](Quantity what) { return shows(comparison, what); };
  constexpr Quantity kAll[] = {Quantity::time,         Quantity::cycles, Quantity::mean_time,
                               Quantity::time_to_next, Quantity::energy, Quantity::memory};
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
}

/// "+2.03", or "+2.03 (+1.50 to +2.55)" where its interval is known.
std::string change_cell(const LearningNumbers& n, const std::optional<Mean>& change) {
  if (!change) return kNone;
  const std::string percent = percent_of(change->value);
  const auto interval = n.interval(*change);
  return interval ? cat(percent, " (", percent_of(interval->lo), " to ", percent_of(interval->hi), ")")
                  : percent;
}

/// Adds the columns of runs until a loss.
void add_learning_columns(Columns<ComparedRow>& columns, const Comparison& comparison) {
  const auto add = [&](const std::string& header, int priority,
                       std::function<std::string(const LearningNumbers&)> cell) {
    columns.add({.title = header, .priority = priority},
                [cell](const ComparedRow& row) { return row.learning ? cell(*row.learning) : kNone; });
  };
  const auto add_change = [&](const std::string& header, int priority,
                              std::optional<Mean> LearningChange::*change) {
    add(header, priority, [=](const LearningNumbers& n) { return change_cell(n, n.change.*change); });
  };
  const auto of_both = [&](const std::string& header, int priority, double LearningNumbers::*base,
                           double LearningNumbers::*next, double factor, int digits) {
    add(header, priority, [=](const LearningNumbers& n) {
      const auto text = [&](double value) { return value > 0.0 ? fixed(value * factor, digits) : kNone; };
      return cat(text(n.*base), " / ", text(n.*next));
    });
  };
  columns.add({.title = "workload", .align = Align::left, .priority = 6},
              [](const ComparedRow& row) { return row.workload; });
  add("loss", 7, [](const LearningNumbers& n) { return number_text(n.loss); });
  add("seeds", 0, [](const LearningNumbers& n) { return std::to_string(n.change.seeds); });
  add("reached by", 5, [](const LearningNumbers& n) {
    return cat(n.change.seeds - n.change.base_missed, " / ", n.change.seeds - n.change.next_missed);
  });
  of_both("steps of both", 3, &LearningNumbers::base_steps, &LearningNumbers::next_steps, 1.0, 0);
  add_change("steps %", 0, &LearningChange::steps);
  of_both("ms a step", 4, &LearningNumbers::base_ms, &LearningNumbers::next_ms, 1.0, 2);
  add_change("time of a step %", 0, &LearningChange::time);
  add_change("seconds %", 0, &LearningChange::seconds);
  of_both("start-up s", 2, &LearningNumbers::base_startup_ms, &LearningNumbers::next_startup_ms, 1e-3, 1);
  if (std::ranges::any_of(comparison.rows,
                          [](const ComparedRow& row) { return row.learning && row.learning->change.joules; }))
    add_change("joules %", 1, &LearningChange::joules);
}

bool is_of_learning(const Comparison& comparison) {
  return std::ranges::any_of(comparison.rows,
                             [](const ComparedRow& row) { return row.learning.has_value(); });
}

Table table_of(const Comparison& comparison) {
  Columns<ComparedRow> columns;
  columns.add_text("rung", [](const ComparedRow& row) { return row.variant; });
  if (is_repeated(comparison))
    columns.add({"time"}, [](const ComparedRow& row) { return std::to_string(row.repetition); });
  (is_of_learning(comparison) ? add_learning_columns : add_step_columns)(columns, comparison);
  columns.add({.title = "verdict", .align = Align::left, .reasons = true}, [](const ComparedRow& row) {
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
  const char* what = verdict == Verdict::pass             ? "no worse"
                     : verdict == Verdict::regression     ? "worse in time, memory or energy"
                     : verdict == Verdict::inconclusive   ? "undecided: more pairs would tell"
                     : verdict == Verdict::faster         ? "faster"
                     : verdict == Verdict::slower         ? "slower"
                     : verdict == Verdict::not_told_apart ? "not told apart"
                                                          : "compared";
  if (verdict == Verdict::skipped) return "no rung ran in both.";
  const char* each = is_repeated(comparison) ? " comparison" : " rung";
  return cat(number, " of ", compared, each, compared == 1 ? " " : "s ",
             verdict == Verdict::failed ? "failed" : cat(number == 1 ? "is " : "are ", what), ".");
}

/// How to read the columns of changes, where there are any.
std::string step_line(const Comparison& comparison) {
  if (!shows(comparison, Quantity::time)) return "";
  std::vector<std::string> others;
  for (const Quantity what : {Quantity::mean_time, Quantity::time_to_next, Quantity::energy})
    if (shows(comparison, what)) others.push_back(cat(name_of(what), ": mean steps"));
  if (shows(comparison, Quantity::memory)) others.emplace_back("live memory: peaks");
  return cat(
      "Change: mean over pairs of log(NEW / BASE) of the runs' median steps",
      others.empty() ? "" : cat(" (", join(others, "; "), ")"),
      ", over 0 where NEW takes more; BASE ms "
      "and NEW ms are medians over pairs, whose quotient may differ from it. ",
      "Bounds: each holds with ", fixed(kBoundConfidence * 100, 0),
      " %, the upper one over all looks together. REGRESSION: a lower one is over its limit, and that the "
      "rung takes more at all is certain to ",
      fixed((1 - kFalseAlarms) * 100, 0), " % among all that is compared",
      is_repeated(comparison) ? " each time" : "", ", from ", kMinCertainPairs,
      " pairs; or live bytes grew that are the same in each run. PASS: the upper ones of time, cycles and "
      "live "
      "memory are under theirs.");
}

std::string learning_line() {
  return cat(
      "Steps to the loss, interpolated between evaluations, x time of a step (without the first) = seconds. "
      "Changes: mean over seeds of log(NEW / BASE), in brackets its ",
      fixed(kFactorConfidence * 100, 0), " % interval, from ", kMinCertainPairs,
      " seeds; below 0 NEW takes less. FASTER, SLOWER: that the seconds differ is certain to ",
      fixed((1 - kFalseAlarms) * 100, 0), " % among all rungs. Start-up, with the first step, is apart.");
}

/// The table, between what was compared and how it is read.
Section section_of(const Comparison& comparison) {
  Section section;
  for (const std::string& side :
       {cat("BASE: ", comparison.base), cat("NEW: ", comparison.next), comparison.device})
    section.sentences.push_back(printable(side, 400));
  section.tables.push_back(table_of(comparison));
  std::vector<std::string> lines = {is_of_learning(comparison) ? learning_line() : step_line(comparison)};
  append(lines, comparison.notes);
  for (const std::string& line : lines)
    if (!line.empty()) section.notes.push_back({printable(line, 600)});
  return section;
}

/// "REGRESSION, time +1.54 % (+1.37 to +1.72): live memory grew ..": one line.
std::string verdict_of(const ComparedRow& row) {
  std::string says = name_of(row.verdict);
  for (const ComparedQuantity& quantity :
       row.numbers ? row.numbers->quantities : std::vector<ComparedQuantity>())
    if (const auto& c = quantity.change; c && is_shown(row, quantity))
      says += cat(", ", name_of(quantity.what), " ", percent_of(c->log_ratio), " % (", percent_of(c->lo),
                  " to ", percent_of(c->hi), ")");
  if (const auto& n = row.learning)
    for (const auto& [name, change] :
         {std::pair("steps", &n->change.steps), std::pair("time of a step", &n->change.time),
          std::pair("seconds", &n->change.seconds)})
      if (*change) says += cat(", ", name, " ", change_cell(*n, *change), " %");
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
    const ExitCode code = exit_code({row});
    const char* level = code == kExitRegression || code == kExitFailed ? "error"
                        : code == kExitInconclusive                    ? "warning"
                                                                       : "notice";
    text +=
        cat("::", level, " title=",
            escaped(printable(cat(row.variant, row.workload.empty() ? "" : ", ", row.workload), 200), ":,"),
            "::", escaped(verdict_of(row), ""), "\n");
  }
  for (const std::string& note : comparison.notes)
    text += cat(note.starts_with("STALE") ? "::warning::" : "::notice::", escaped(printable(note, 600), ""),
                "\n");
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
  std::string cases;
  int64_t failures = 0, errors = 0, skipped = 0;
  for (const ComparedRow& row : comparison.rows) {
    const std::string says = escaped(verdict_of(row), 600);
    const ExitCode code = exit_code({row});
    cases += cat("    <testcase classname=\"", escaped(row.workload, 200), "\" name=\"",
                 escaped(row.variant, 200), row.repetition > 0 ? cat(" #", row.repetition) : "", "\">");
    if (code == kExitOk) {
      cases += cat("<system-out>", says, "</system-out>");
    } else if (code == kExitNotComparable || (code == kExitInconclusive && comparison.undecided_passes)) {
      ++skipped;
      cases += cat("<skipped message=\"", says, "\"/>");
    } else {
      ++(code == kExitFailed ? errors : failures);
      cases += cat(code == kExitFailed ? "<error" : "<failure", " type=\"", name_of(row.verdict),
                   "\" message=\"", says, "\"/>");
    }
    cases += "</testcase>\n";
  }
  std::string notes;
  for (const std::string& note : comparison.notes) notes += escaped(note, 600) + "\n";
  const std::string counts = cat("tests=\"", comparison.rows.size(), "\" failures=\"", failures,
                                 "\" errors=\"", errors, "\" skipped=\"", skipped, "\"");
  return cat("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites ", counts,
             ">\n  <testsuite name=\"stepladder\" ", counts, ">\n", cases, "    <system-out>", notes,
             "</system-out>\n  </testsuite>\n</testsuites>\n");
}

/// Learning numbers as JSON; ratios are NEW / BASE.
Json to_json(const LearningNumbers& n) {
  const LearningChange& change = n.change;
  const auto of_both = [](double base, double next) { return Json{{"base", base}, {"new", next}}; };
  Json json = {
      {"loss", n.loss},
      {"seeds", change.seeds},
      {"reached", {{"base", change.seeds - change.base_missed}, {"new", change.seeds - change.next_missed}}},
      {"steps", of_both(n.base_steps, n.next_steps)},
      {"step_ms", of_both(n.base_ms, n.next_ms)},
      {"startup_ms", of_both(n.base_startup_ms, n.next_startup_ms)},
      {"seconds", of_both(n.base_steps * n.base_ms * 1e-3, n.next_steps * n.next_ms * 1e-3)},
      {"joules", Json::object()}};
  for (const auto& [key, factor] :
       {std::pair("steps", &change.steps), std::pair("step_ms", &change.time),
        std::pair("seconds", &change.seconds), std::pair("joules", &change.joules)})
    if (const std::optional<Mean>& mean = *factor) {
      const auto interval = n.interval(*mean);
      json[key]["ratio"] = {{"value", std::exp(mean->value)},
                            {"lo", interval ? Json(std::exp(interval->lo)) : Json()},
                            {"hi", interval ? Json(std::exp(interval->hi)) : Json()}};
    }
  if (!change.joules) json.erase("joules");
  json["p_slower"] = change.p_slower;
  json["p_faster"] = change.p_faster;
  json["by_signs"] = change.by_signs();
  if (!n.no_interval.empty()) json["no_interval"] = n.no_interval;
  for (const LearningNumbers::More& more : n.more)
    json["more_seeds"][std::to_string(more.percent)] = more.seeds;
  return json;
}

/// {"schema": 3, "kind": "comparison", "verdict": "PASS", "exit_code": 0, "rows": [..], ..}
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
               {"exit_code", static_cast<int>(exit_code(comparison.rows, comparison.undecided_passes))},
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
           {std::pair(Quantity::cycles, "cycles"), std::pair(Quantity::mean_time, "mean_ms"),
            std::pair(Quantity::time_to_next, "to_next_ms"), std::pair(Quantity::energy, "joules")})
        if (const ComparedQuantity* quantity = n->find(what)) {
          item[key] = {{"base", quantity->base}, {"new", quantity->next}};
          add_change(item[key], *quantity, "p_more");
        }
      item["live_bytes"] = {{"base", n->base_bytes}, {"new", n->new_bytes}, {"grown", n->grown}};
      if (const ComparedQuantity* memory = n->find(Quantity::memory))
        add_change(item["live_bytes"], *memory, "p_more");
    }
    if (row.learning) item["to_loss"] = to_json(*row.learning);
    json["rows"].push_back(std::move(item));
  }
  json["notes"] = comparison.notes;
  return json;
}

}  // namespace

std::string report_in(const std::string& format, const Comparison& comparison, bool wide) {
  if (format == "github") return github_report(comparison);
  if (format == "junit") return junit_report(comparison);
  if (format == "json") return dump(to_json(comparison), 2) + "\n";
  const char* verdict = name_of(overall(comparison.rows));
  if (format == "markdown")
    return cat("## Stepladder: ", verdict, "\n\n", headline(comparison), "\n\n",
               section_of(comparison).markdown());
  return cat(section_of(comparison).terminal(wide), "\n", verdict, ": ", headline(comparison), "\n");
}

}  // namespace stepladder
