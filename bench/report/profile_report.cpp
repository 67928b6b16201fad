#include "bench/report/profile_report.h"

#include <algorithm>
#include <functional>
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

std::string number(const Json& value, int digits) {
  return value.is_number() ? fixed(value.get<double>(), digits) : kNone;
}
/// Three digits or more.
std::string rate(const Json& value) {
  if (!value.is_number()) return kNone;
  const double x = value;
  return fixed(x, x >= 99.5 ? 0 : x >= 9.95 ? 1 : x >= 0.995 ? 2 : 4);
}
/// A mean over steps of something counted.
std::string count(const Json& value) {
  const auto n = value.get<double>();
  return fixed(n, n == static_cast<double>(static_cast<int64_t>(n)) ? 0 : 1);
}

/// Times of `rows`, each called by its field `key`, with how many things were `counted`.
Table time_table(const Json& rows, const char* header, const char* key, const char* counted) {
  Table table({{header, Align::left}, {"ms"}, {"%"}, {counted}});
  for (const Json& row : rows)
    table.add({row[key], number(row["ms"], 3), number(row["percent"], 1), count(row[counted])});
  return table;
}

Table kernel_table(const Json& p) {
  Table table({{"kernel", Align::left}, {"type", Align::left}, {"ms"}, {"%"}, {"count"}});
  for (size_t i = 0; i < std::min(p["kernels"].size(), kKernels); ++i) {
    const Json& row = p["kernels"][i];
    table.add({printable(row["name"].get<std::string>(), kName), row.value("type", ""), number(row["ms"], 3),
               number(row["percent"], 1), count(row["count"])});
  }
  return table;
}

Table op_table(const Json& p) {
  Table table({{"op", Align::left},
               {"count"},
               {"ms"},
               {"GB/s"},
               {"TFLOP/s", Align::right, 2},
               {"FLOP/B", Align::right, 1},
               {"floor ms"},
               {"floor %"},
               {"% of gap"}});
  for (size_t i = 0; i < std::min(p["ops"].size(), kOps); ++i) {
    const Json& row = p["ops"][i];
    const bool product = row["flops"].get<double>() > 0.0;
    table.add({row["op"], count(row["count"]), number(row["ms"], 3), rate(row["gb_per_s"]),
               product ? rate(row["tflops"]) : kNone, product ? rate(row["intensity"]) : kNone,
               number(row["floor_ms"], 3), number(row["percent_of_ceiling"], 0),
               number(row["percent_of_gap"], 1)});
  }
  table.add({"idle", "", number(p["phases"].back()["ms"], 3), "", "", "", "", "",
             number(p["idle_percent_of_gap"], 1)});
  table.add({"step", "", number(p["device_ms"], 3), "", "", "", number(p["floor_ms"], 3),
             fixed(100.0 * p["floor_ms"].get<double>() / p["device_ms"].get<double>(), 0), "100.0"});
  return table;
}

/// Each op with the types of what it reads and writes: what stays in 32 bits under mixed precision.
Table type_table(const Json& p) {
  std::map<std::string, std::set<std::string>> types;
  for (const Json& row : p["ops"]) {
    const std::string name = row["op"];
    for (const Json& one : row.value("types", Json::array()))
      types[name.substr(0, name.find(' '))].insert(one.get<std::string>());  // a product without its extents
  }
  Table table({{"op", Align::left}, {"types", Align::left}});
  for (const auto& [op, of] : types)
    table.add({op, join(std::vector<std::string>(of.begin(), of.end()), "; ")});
  return table;
}

std::string title(const Json& file) {
  const Json& p = file["profile"];
  return cat(
      p["variant"].get<std::string>(), " on ", file["context"]["device"].value("name", "?"), ", ",
      workload_of(p["config"]), ": ", number(p["device_ms"], 3), " ms a step, mean of ",
      p["steps"].get<int64_t>(), " traced",
      p["untraced_step_ms"].is_number() ? cat("; ", number(p["untraced_step_ms"], 3), " ms untraced") : "",
      ".\nTimes: ", p["times"].get<std::string>(), ".");
}

std::string sum(const Json& p) {
  return cat("The phases sum to ", number(p["phases_ms"], 3), " ms, the device's timer has ",
             number(p["device_ms"], 3), " ms: ", fixed(100.0 * p["phases_apart"].get<double>(), 2),
             " % apart", p["phases_add_up"].get<bool>() ? "" : ", MORE THAN THE 2 % ALLOWED", ".");
}

std::string clocks(const Json& p) {
  return cat("A step took ", number(p["step_ms"], 3), " ms by the host's clock, ", number(p["device_ms"], 3),
             " ms by the device's timer and ", number(p["span_ms"], 3),
             " ms to the end of the last record of its work: at most ",
             fixed(100.0 * p["clocks_apart"].get<double>(), 2), " % apart",
             p["clocks_agree"].get<bool>() ? "" : ", MORE THAN THE 1 % ALLOWED", ".");
}

std::string rates(const Json& p) {
  std::string text = cat("Measured rates: copy ", rate(p["ceilings"]["copy_gb_per_s"]), " GB/s");
  for (const auto& [math, tflops] : p["ceilings"]["gemm_tflops"].items())
    text += cat(", ", math, " GEMM ", rate(tflops), " TFLOP/s");
  return text +
         ". An op's floor is the longer of bytes / copy and FLOPs / GEMM; the gap is what a step takes " +
         "beyond the sum of floors.";
}

std::string profile_text(const Json& file, const std::string& heading,
                         const std::function<std::string(const Table&)>& text_of) {
  const Json& p = file["profile"];
  std::string text = title(file) + "\n";
  const auto section = [&](const char* name, const Table& table) {
    text += cat("\n", heading, name, "\n\n", text_of(table));
  };
  section("Phases", time_table(p["phases"], "phase", "name", "ops"));
  text += "\n" + sum(p) + "\n" + clocks(p) + "\n";
  section("Kernel types", time_table(p["kernel_types"], "type", "type", "count"));
  if (!p["kernels"].empty()) section("Kernels", kernel_table(p));
  section("Ops against their floors", op_table(p));
  if (!p["ops"].empty() && p["ops"].front().contains("types"))
    section("Types of the numbers that ops read and write", type_table(p));
  return text + "\n" + rates(p) + "\n";
}

}  // namespace

std::string terminal_profile(const Json& file, bool wide) {
  return profile_text(file, "", [wide](const Table& table) { return table.terminal(wide); });
}

std::string markdown_profile(const Json& file) {
  return "# Profile\n\n" + profile_text(file, "## ", [](const Table& table) { return table.markdown(); });
}

}  // namespace stepladder
