#include "bench/report/export.h"

#include <iostream>

#include "bench/cli/commands.h"
#include "bench/plan/ladder_file.h"
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
    return {
        {"RESULT", &results, "",
         "a results file, finished or not; as json or short also a campaign's, else a part of it, FILE:PART"},
        {"format",
         &format,
         "NAME",
         "a row for each run, or json: all of it, in this version's schema, or short: what a page shows of "
         "it",
         "Export",
         {"googlebenchmark", "csv", "json", "short"}},
        {"out", &out, "FILE", "default: standard output", "Export"}};
  }
};

/// A campaign's file, the results in it as short as this version makes them.
Json shortened_campaign(const std::string& path, Json file) {
  check_campaign(path, file);
  for (Json& part : file["parts"])
    if (part.value("result", Json()).contains("runs"))
      part["result"] = shortened(load_measured(path, part["result"]));
  return file;
}

std::string text_in(const ExportOptions& options) {
  const Json file = load_part(options.results);
  const bool is_short = options.format == "short";
  if ((is_short || options.format == "json") && is_campaign(file))
    return file_text(shortened_campaign(options.results, file));
  const Results results = load_results(options.results, file);
  if (options.format == "csv") return csv(results);
  if (options.format == "json") return file_text(results_file_json(results));
  if (is_short) return file_text(shortened(results));
  const Json json = google_benchmark(results);
  for (const std::string& line : left_out(results)) std::cerr << "stepladder: left out: " << line << "\n";
  if (json["benchmarks"].empty())
    throw InputError(cat(options.results, ": no run in it is ok: nothing to export"));
  return dump(json, 1) + "\n";
}

int export_results(ExportOptions& options) {
  const std::string text = text_in(options);
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
