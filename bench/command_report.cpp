#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <memory>

#include "bench/charts.h"
#include "bench/commands.h"
#include "bench/options.h"
#include "bench/report.h"
#include "bench/results_file.h"
#include "bench/text.h"
#include "model/atomic_file.h"
#include "model/error.h"

namespace stepladder {
namespace {

struct ReportOptions {
  std::string result, out;

  std::vector<Option> options() {
    return {{"out", &out, "DIR", "where to write; default: beside RESULT", "Report"}};
  }
};

/// A file that lives as long as this.
struct TemporaryFile {
  std::string path;
  ~TemporaryFile() { std::filesystem::remove(path); }
};

int report(const ReportOptions& options) {
  namespace fs = std::filesystem;
  const Results results = load_results(options.result);
  fs::path out = options.out.empty() ? fs::path(options.result).parent_path() : fs::path(options.out);
  if (out.empty()) out = ".";
  std::error_code error;
  fs::create_directories(out, error);
  if (error) throw InputError(cat(out.string(), ": cannot make the folder: ", error.message()));

  const std::string summary = (out / "summary.md").string();
  write_atomically(summary, markdown_report(results));
  std::cout << terminal_report(results) << "\nwrote " << summary << "\n" << std::flush;
  if (results.runs.empty()) return kExitOk;

  // The charts read one file; what only the journal holds is put into one for them.
  std::optional<TemporaryFile> merged;
  if (!results.complete) {
    merged.emplace(TemporaryFile{(out / cat(".merged.", ::getpid(), ".json")).string()});
    write_atomically(merged->path, to_json(results).dump());
  }
  return draw_charts("charts.py", merged ? merged->path : options.result, out.string()) ? kExitOk
                                                                                        : kExitFailed;
}

}  // namespace

void add_report_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* command = app.add_subcommand("report", "table and charts of a results file");
  add_help(*command, "");
  command->add_option("RESULT", options->result, "a results file, finished or not")
      ->required()
      ->type_name("");
  add_options(*command, options->options());
  command->callback([options, &exit_code] { exit_code = report(*options); });
}

}  // namespace stepladder
