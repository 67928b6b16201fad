#include "bench/verdict/history.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <set>

#include "bench/base/text.h"
#include "bench/cli/charts.h"
#include "bench/cli/commands.h"
#include "bench/plan/ladder_file.h"
#include "bench/results/file.h"
#include "bench/verdict/comparison.h"
#include "model/atomic_file.h"
#include "model/error.h"

namespace stepladder {
namespace {

namespace fs = std::filesystem;

struct HistoryOptions {
  std::string folder, out = "reports/latest", format = "text";
  double threshold = kMinLimit * 100;  // percent

  std::vector<Option> options() {
    return {{"DIR", &folder, "", "a folder of results files"},
            {"threshold", &threshold, "PERCENT", "a change of less is none", "History", {0, 1000}},
            {"format", &format, "NAME", "text also writes history.json and the chart", "History",
             Allowed{"text", "markdown", "json"}},
            {"out", &out, "DIR", "where to", "History"}};
  }
};

const std::set<std::string> kExtensions = {".json", ".jsonl", ".gz"};

int show_history(HistoryOptions& options) {
  if (options.format != "text" && options.out != HistoryOptions().out)
    throw InputError(
        cat("--out is of --format text, which writes files: redirect --format ", options.format));
  std::error_code error;
  if (!fs::is_directory(options.folder, error)) throw InputError(cat(options.folder, " is no folder"));
  std::vector<std::string> paths;
  const fs::directory_iterator entries(options.folder, error);
  if (error) throw InputError(cat(options.folder, ": cannot be read: ", error.message()));
  for (const auto& entry : entries)
    if (kExtensions.contains(entry.path().extension())) paths.push_back(entry.path().string());
  std::ranges::sort(paths);
  std::vector<std::pair<std::string, Results>> files;
  std::vector<std::string> skipped;
  for (const std::string& path : paths) {
    try {
      const bool several = load_parts(path).size() > 1;  // of these, the part called "ladder" counts
      files.emplace_back(fs::path(path).filename().string(),
                         load_measured(several ? path + ":ladder" : path));
    } catch (const Error& e) {  // such as a file whose rows mix configurations
      skipped.emplace_back(e.what());
    }
  }
  History history = history_of(std::move(files), options.threshold / 100);
  history.skipped.insert(history.skipped.begin(), skipped.begin(), skipped.end());
  if (history.series.empty())
    throw InputError(cat(options.folder, " holds no results file with a rung that is ok",
                         history.skipped.empty() ? "" : "; " + history.skipped.front()));

  const std::string json = dump(to_json(history), 1) + "\n";
  if (options.format != "text") {
    std::cout << (options.format == "json" ? json
                                           : "# Step times over time\n\n" + markdown(sections_of(history)))
              << std::flush;
    return kExitOk;
  }
  const std::string path = (fs::path(options.out) / "history.json").string();
  make_folder_of(path);
  check_same_kind(path, "history");
  write_atomically(path, json);
  std::cout << terminal(sections_of(history), false) << "wrote " << printable(path, kMaxMessage) << std::endl;
  return draw("history.py", {path, "--out=" + options.out}) ? kExitOk : kExitFailed;
}

}  // namespace

Command history_command() {
  return command<HistoryOptions>("history", "step times over time, and where their level changed",
                                 show_history);
}

}  // namespace stepladder
