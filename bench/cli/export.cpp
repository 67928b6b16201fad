#include "bench/report/export.h"

#include <iostream>

#include "bench/cli/commands.h"
#include "bench/report/speedups.h"
#include "bench/results/file.h"
#include "bench/results/json.h"
#include "model/atomic_file.h"
#include "model/error.h"

namespace stepladder {
namespace {

struct ExportOptions {
  std::string results = "reports/latest/results.json", format = "googlebenchmark", out;

  std::vector<Option> options() {
    return {{"RESULT", &results, "", "a results file, finished or not"},
            {"format",
             &format,
             "NAME",
             "a row for each run, or json: all of it, in this version's schema",
             "Export",
             {"googlebenchmark", "csv", "json"}},
            {"out", &out, "FILE", "default: standard output", "Export"}};
  }
};

int export_results(ExportOptions& options) {
  const Results results = load_results(options.results);
  std::string text;
  if (options.format == "csv") {
    text = csv(results);
  } else if (options.format == "json") {
    text = file_text(results_file_json(results));
  } else {
    const Json json = google_benchmark(results);
    for (const std::string& line : left_out(results)) std::cerr << "stepladder: left out: " << line << "\n";
    if (json["benchmarks"].empty())
      throw InputError(cat(options.results, ": no run in it is ok: nothing to export"));
    text = dump(json, 1) + "\n";
  }
  if (options.out.empty())
    std::cout << text << std::flush;
  else
    write_atomically(options.out, text);
  return kExitOk;
}

}  // namespace

Command export_command() {
  return command<ExportOptions>("export", "write results in a format that other tools read", export_results);
}

}  // namespace stepladder
