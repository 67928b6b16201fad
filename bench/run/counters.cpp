#include "bench/run/counters.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>

#include "bench/base/text.h"
#include "bench/run/child.h"
#include "model/environment.h"
#include "model/error.h"

namespace stepladder {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOtherType = "other";
constexpr const char* kFunction = "Kernel Name";
/// What ncu answers where the driver keeps the counters for administrators.
constexpr std::string_view kNoPermission = "ERR_NVGPUCTRPERM";

struct Metric {
  const char *name, *unit;
  const char* field;  // in a profile
  double KernelCounters::*value;
};
constexpr Metric kMetrics[] = {
    {"dram__bytes_read.sum", "byte", "dram_read_bytes", &KernelCounters::dram_read},
    {"dram__bytes_write.sum", "byte", "dram_written_bytes", &KernelCounters::dram_written},
    {"lts__t_bytes.sum", "byte", "l2_bytes", &KernelCounters::l2},
    {"smsp__inst_executed.sum", "inst", "instructions", &KernelCounters::instructions},
};

/// Folders that may hold ncu: those of PATH, of toolkits, and of Nsight Compute's own packages, the newest
/// first.
std::vector<fs::path> ncu_folders() {
  std::vector<fs::path> folders;
  for (const std::string& folder : split(environment_variable("PATH"), ':'))
    if (!folder.empty()) folders.emplace_back(folder);
  if (const char* home = std::getenv("CUDA_HOME")) folders.push_back(fs::path(home) / "bin");
  folders.emplace_back("/usr/local/cuda/bin");
  std::vector<fs::path> versions;
  std::error_code none;
  for (const auto& version : fs::directory_iterator("/opt/nvidia/nsight-compute", none))
    versions.push_back(version);
  std::ranges::sort(versions, std::greater<>());
  append(folders, versions);
  return folders;
}

/// The cells of a line of CSV.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"')
      cells.back() += line[++i];
    else if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      cells.emplace_back();
    else if (c != '\r')
      cells.back() += c;
  }
  return cells;
}

}  // namespace

Ncu find_ncu() {
  for (const fs::path& folder : ncu_folders()) {
    const std::string path = folder / "ncu";
    if (::access(path.c_str(), X_OK) != 0 || !fs::is_regular_file(path)) continue;
    const std::string said = output_of({path, "--version"}, 60).value_or("");
    const size_t at = said.find("Version ");
    if (at == std::string::npos) continue;  // broken, such as a wrapper of one that is gone
    const size_t begin = at + 8;
    return {path, printable(said.substr(begin, said.find_first_of(" \n", begin) - begin), 40)};
  }
  throw InputError(
      "--counters: no ncu on PATH, in CUDA_HOME, /usr/local/cuda/bin or /opt/nvidia/nsight-compute: install "
      "Nsight Compute, which CUDA's toolkit has, or put its folder on PATH");
}

std::vector<KernelCounters> kernel_counters(const std::vector<std::string>& lines) {
  std::vector<std::string> header;
  const auto column = [&](const std::string& name) {
    const auto found = std::ranges::find(header, name);
    if (found == header.end()) throw Error(cat("--counters: ncu printed no ", name));
    return static_cast<size_t>(found - header.begin());
  };
  std::vector<KernelCounters> kernels;
  for (const std::string& line : lines) {
    if (!line.starts_with('"')) continue;
    const std::vector<std::string> cells = cells_of(line);
    if (cells.front() == "ID") {
      header = cells;
      column(kFunction);
      continue;
    }
    if (cells.size() != header.size()) continue;  // the rung's own output
    const bool units = cells.front().empty();     // the row below the header
    KernelCounters kernel;
    if (!units) kernel.function = cells[column(kFunction)];
    for (const Metric& metric : kMetrics) {
      std::string cell = cells[column(metric.name)];
      std::erase(cell, ',');  // "1,234.5"
      const std::optional<double> value = number_from<double>(cell);
      if (units ? cell != metric.unit : !value)
        throw Error(cat("--counters: ncu printed '", printable(cell, 40), "' for ", metric.name,
                        units ? "'s unit, expected " : " of ", units ? metric.unit : kernel.function));
      if (!units) kernel.*metric.value = *value;
    }
    if (!units) kernels.push_back(kernel);
  }
  if (kernels.empty()) throw Error("--counters: ncu counted no kernel of the step");
  return kernels;
}

std::vector<KernelCounters> count_kernels(const Ncu& ncu, const std::vector<std::string>& command,
                                          int64_t number, double timeout_s) {
  const std::string metrics = join(texts_of(kMetrics, &Metric::name), ",");
  // Clocks and caches stay as they are in a run. The kernels of a CUDA graph are counted one by one.
  std::vector<std::string> line = {ncu.path};
  append(line,
         split(cat("--csv --page raw --print-units base --print-kernel-base function --metrics ", metrics,
                   " --clock-control none --cache-control none --graph-profiling node --nvtx "
                   "--nvtx-include step/ --range-filter ::",
                   number),
               ' '));
  append(line, command);
  std::vector<std::string> said;
  const ChildEnd end = run_child(line, Channel::out, timeout_s, [&](std::string_view text) {
    said.emplace_back(text);
    return true;
  });
  const auto refused = [](const std::string& text) { return text.find(kNoPermission) != std::string::npos; };
  if (refused(end.stderr_tail) || std::ranges::any_of(said, refused))
    throw Error(cat("--counters: the driver lets only administrators read counters (", kNoPermission,
                    "): run as root, or load the module nvidia with NVreg_RestrictProfilingToAdminUsers=0"));
  if (end.how == ChildEnd::How::timed_out)
    throw Error(cat("--counters: ncu took longer than ", sized(timeout_s), " s: give a longer --timeout"));
  if (!end.ok()) {
    const auto error =
        std::ranges::find_if(said, [](const std::string& s) { return s.starts_with("==ERROR=="); });
    throw Error(cat("--counters: ncu failed",
                    error != said.end() ? cat(" (", printable(*error, 300), ")") : end.last_words()));
  }
  return kernel_counters(said);
}

Json counters_by_type(const Ncu& ncu, const std::vector<KernelCounters>& kernels, const Json& timeline,
                      const Json& profile) {
  std::map<std::string, std::vector<std::string>> types_of;  // by function, in the order of the step
  for (const Json& event : timeline.at("traceEvents"))
    if (event.at("ph") == "X" && event.at("args").contains("op")) {  // a kernel's slice
      const std::string name = event.at("name");
      types_of[name.substr(0, name.find('<'))].push_back(event.at("cat"));
    }

  struct Sum {
    int64_t count = 0;
    KernelCounters total;
  };
  std::map<std::string, Sum> sums;
  std::map<std::string, size_t> seen;
  for (const KernelCounters& kernel : kernels) {
    const auto types = types_of.find(kernel.function);
    const size_t at = seen[kernel.function]++;
    Sum& sum = sums[types != types_of.end() && at < types->second.size() ? types->second[at] : kOtherType];
    ++sum.count;
    for (const Metric& metric : kMetrics) sum.total.*metric.value += kernel.*metric.value;
  }
  std::map<std::string, double> floor;
  for (const Json& op : profile.at("ops")) floor[op.at("type")] += op.at("bytes").get<double>();

  std::vector<std::string> order;  // the longest time first, as the profile has its types
  for (const Json& row : profile.at("kernel_types")) order.push_back(row.at("type"));
  add_once(order, kOtherType);
  Json rows = Json::array();
  for (const std::string& type : order) {
    const auto sum = sums.find(type);
    if (sum == sums.end()) continue;
    Json row = {{"type", type}, {"count", sum->second.count}};
    for (const Metric& metric : kMetrics) row[metric.field] = sum->second.total.*metric.value;
    row["floor_bytes"] = floor.contains(type) ? Json(floor[type]) : Json();
    rows.push_back(row);
  }
  return {{"source", cat("Nsight Compute ", ncu.version)}, {"kernel_types", rows}};
}

}  // namespace stepladder
