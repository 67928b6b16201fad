#include "bench/report/profile_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "bench/base/table.h"
#include "bench/base/text.h"
#include "bench/results/results.h"
#include "model/error.h"

namespace stepladder {
namespace {

constexpr size_t kKernels = 20, kOps = 30;  // rows of the longest tables
constexpr size_t kName = 60;                // characters

/// A field of a file that may hold anything; null where it is missing.
const Json& at(const Json& json, const char* key) {
  static const Json none;
  const auto found = json.is_object() ? json.find(key) : json.end();
  return json.is_object() && found != json.end() ? *found : none;
}

std::string number(const Json& value, int digits, double scale = 1.0) {
  return value.is_number() ? fixed(scale * value.get<double>(), digits) : kNone;
}
/// A rate with three significant digits or more.
std::string rate(const Json& value) {
  if (!value.is_number()) return kNone;
  const double x = value;
  return fixed(x, x >= 99.5 ? 0 : x >= 9.95 ? 1 : x >= 0.995 ? 2 : 4);
}
/// A count, the mean over steps: whole, or with one digit after the point.
std::string count(const Json& value) {
  if (!value.is_number()) return kNone;
  const auto n = value.get<double>();
  return fixed(n, n == std::trunc(n) ? 0 : 1);
}

/// A table of the times of `rows`, each called by its field `key`, with the number in its field `counted`.
Table time_table(const Json& rows, const char* heading, const char* header, const char* key,
                 const char* counted) {
  Table table({{.title = header, .align = Align::left}, {"ms"}, {"%"}, {counted}}, heading);
  for (const Json& row : rows)
    table.add({text_at(row, key), number(at(row, "ms"), 3), number(at(row, "percent"), 1),
               count(at(row, counted))});
  return table;
}

Table kernel_table(const Json& p) {
  Table table({{.title = "kernel", .align = Align::left},
               {.title = "type", .align = Align::left},
               {"ms"},
               {"%"},
               {"count"}},
              "Kernels");
  size_t shown = 0;
  for (const Json& row : at(p, "kernels")) {
    if (shown++ == kKernels) break;
    table.add({printable(text_at(row, "name"), kName), text_at(row, "type"), number(at(row, "ms"), 3),
               number(at(row, "percent"), 1), count(at(row, "count"))});
  }
  return table;
}

Table op_table(const Json& p) {
  Table table(
      {{.title = "op", .align = Align::left},
       {.title = "count", .meaning = "calls in a step"},
       {"ms"},
       {"GB/s"},
       {.title = "TFLOP/s", .priority = 2},
       {.title = "FLOP/B", .priority = 1},
       {.title = "floor", .unit = "ms", .meaning = "what the measured rates of a copy and a GEMM allow"},
       {.title = "floor", .unit = "%", .meaning = "of what the op takes"},
       {.title = "% of gap", .meaning = "of what the step takes beyond all floors"}},
      "Ops against their floors");
  size_t shown = 0;
  for (const Json& row : at(p, "ops")) {
    if (shown++ == kOps) break;
    const bool product = number_at(row, "flops").value_or(0.0) > 0.0;
    table.add({text_at(row, "op"), count(at(row, "count")), number(at(row, "ms"), 3),
               rate(at(row, "gb_per_s")), product ? rate(at(row, "tflops")) : kNone,
               product ? rate(at(row, "intensity")) : kNone, number(at(row, "floor_ms"), 3),
               number(at(row, "percent_of_ceiling"), 0), number(at(row, "percent_of_gap"), 1)});
  }
  const Json idle = at(p, "phases").empty() ? Json() : at(at(p, "phases").back(), "ms");
  table.add({"idle", "", number(idle, 3), "", "", "", "", "", number(at(p, "idle_percent_of_gap"), 1)});
  table.add(
      {"step", "", number(at(p, "device_ms"), 3), "", "", "", number(at(p, "floor_ms"), 3),
       fixed(100.0 * number_at(p, "floor_ms").value_or(0.0) / number_at(p, "device_ms").value_or(1.0), 0),
       "100.0"});
  return table;
}

/// A table of each op with the types that it reads and writes: it shows what stays in 32 bits under mixed
/// precision.
Table type_table(const Json& p) {
  std::map<std::string, std::set<std::string>> types;
  for (const Json& row : at(p, "ops")) {
    const std::string name = text_at(row, "op");
    for (const Json& one : at(row, "types"))
      if (one.is_string())
        types[name.substr(0, name.find(' '))].insert(one.get<std::string>());  // the op without its sizes
  }
  Table table({{.title = "op", .align = Align::left}, {.title = "types", .align = Align::left}},
              "Types of the numbers that ops read and write");
  for (const auto& [op, of] : types)
    table.add({op, join(std::vector<std::string>(of.begin(), of.end()), "; ")});
  return table;
}

/// A table of what the kernels of a step did by the device's counters, beside the bytes that the floor
/// counts.
Table counter_table(const Json& counters) {
  constexpr double kMega = 1e-6;
  Table table({{.title = "type", .align = Align::left},
               {"kernels"},
               {.title = "DRAM read", .unit = "MB"},
               {.title = "DRAM written", .unit = "MB"},
               {.title = "L2",
                .priority = 2,
                .unit = "MB",
                .meaning = "what multiprocessors and copies asked the L2 cache for"},
               {.title = "floor", .unit = "MB", .meaning = "bytes of the floor: each operand once"},
               {.title = "DRAM", .unit = "x floor", .meaning = "below 1 where operands are still in a cache"},
               {.title = "instructions", .priority = 1, .unit = "M", .meaning = "executed by warps"}},
              "Counters");
  std::map<std::string, double> step;
  const auto add = [&](const std::string& type, const Json& row) {
    const double dram =
        number_at(row, "dram_read_bytes").value_or(0.0) + number_at(row, "dram_written_bytes").value_or(0.0);
    const double floor = number_at(row, "floor_bytes").value_or(0.0);
    table.add({type, count(at(row, "count")), number(at(row, "dram_read_bytes"), 1, kMega),
               number(at(row, "dram_written_bytes"), 1, kMega), number(at(row, "l2_bytes"), 1, kMega),
               number(at(row, "floor_bytes"), 1, kMega), floor > 0.0 ? fixed(dram / floor, 2) : kNone,
               number(at(row, "instructions"), 1, kMega)});
  };
  for (const Json& row : at(counters, "kernel_types")) {
    add(text_at(row, "type"), row);
    for (const auto& [field, value] : row.items())
      if (value.is_number()) step[field] += value.get<double>();
  }
  add("step", step);
  return table;
}

/// The workload of a profile; "?" where the file doesn't say.
std::string workload_at(const Json& p) {
  const Json& config = at(p, "config");
  const bool known = at(config, "model").is_string() && at(config, "B").is_number_integer() &&
                     at(config, "T").is_number_integer();
  return known ? workload_of(config) : "?";
}

std::string profile_title(const Json& file) {
  const Json& p = at(file, "profile");
  const auto ms = [](const Json& value) { return value.is_number() ? sized(value.get<double>()) : kNone; };
  return cat(
      text_at(p, "variant"), " on ", text_at(at(at(file, "context"), "device"), "name"), ", ", workload_at(p),
      ": ", ms(at(p, "device_ms")), " ms a step, mean of ", count(at(p, "steps")), " traced",
      at(p, "untraced_step_ms").is_number() ? cat("; ", ms(at(p, "untraced_step_ms")), " ms untraced") : "",
      ".");
}

std::string sum(const Json& p) {
  return cat("The phases sum to ", number(at(p, "phases_ms"), 3), " ms, the device's timer has ",
             number(at(p, "device_ms"), 3), " ms: ", number(at(p, "phases_apart"), 2, 100.0), " % apart",
             at(p, "phases_add_up") == false ? ", MORE THAN THE 2 % ALLOWED" : "", ".");
}

std::string clocks(const Json& p) {
  return cat("A step took ", number(at(p, "step_ms"), 3), " ms by the host's clock, ",
             number(at(p, "device_ms"), 3), " ms by the device's timer and ", number(at(p, "span_ms"), 3),
             " ms to the end of the last record of its work: at most ",
             number(at(p, "clocks_apart"), 2, 100.0), " % apart",
             at(p, "clocks_agree") == false ? ", MORE THAN THE 1 % ALLOWED" : "", ".");
}

std::string rates(const Json& p) {
  std::string text = cat("Measured rates: copy ", rate(at(at(p, "ceilings"), "copy_gb_per_s")), " GB/s");
  for (const auto& [math, tflops] : at(at(p, "ceilings"), "gemm_tflops").items())
    text += cat(", ", math, " GEMM ", rate(tflops), " TFLOP/s");
  return text +
         ". An op's floor is the longer of bytes / copy and FLOPs / GEMM; the gap is what a step takes " +
         "beyond the sum of floors.";
}

}  // namespace

Section section_of_profile(const Json& file) {
  const Json& p = at(file, "profile");
  Section section{.heading = printable(profile_title(file), 400)};
  section.sentences.push_back(cat("Times: ", text_at(p, "times"), "."));
  section.tables.push_back(time_table(at(p, "phases"), "Phases", "phase", "name", "ops"));
  section.tables.push_back(time_table(at(p, "kernel_types"), "Kernel types", "type", "type", "count"));
  if (!at(p, "kernels").empty()) section.tables.push_back(kernel_table(p));
  section.tables.push_back(op_table(p));
  if (const Json& counters = at(p, "counters"); !counters.is_null()) {
    section.tables.push_back(counter_table(counters));
    section.sentences.push_back(cat("Counters: ", text_at(counters, "source"), ", one step."));
  }
  if (const Json& ops = at(p, "ops"); !ops.empty() && ops.front().contains("types"))
    section.tables.push_back(type_table(p));
  for (const std::string& line : {sum(p), clocks(p), rates(p)})
    section.notes.push_back({printable(line, 400)});
  return section;
}

}  // namespace stepladder
