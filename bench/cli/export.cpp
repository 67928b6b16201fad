#include "bench/report/export.h"

#include <iostream>
#include <memory>

#include "bench/base/options.h"
#include "bench/base/text.h"
#include "bench/cli/commands.h"
#include "bench/results/file.h"
#include "model/atomic_file.h"
#include "model/error.h"

namespace stepladder {
namespace {

struct ExportOptions {
  std::string results = "reports/latest/results.json", format = "googlebenchmark", out;
};

int export_results(const ExportOptions& options) {
  const Results results = load_results(options.results);
  std::string text;
  if (options.format == "csv") {
    text = csv(results);
  } else {
    const Json json = google_benchmark(results);
    for (const std::string& line : left_out(results)) std::cerr << "stepladder: left out: " << line << "\n";
    if (json["benchmarks"].empty())
      throw InputError(cat(options.results, ": no run in it is ok: nothing to export"));
    text = json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  if (options.out.empty()) {
    std::cout << text << std::flush;
    return kExitOk;
  }
  AtomicFile file(options.out);
  file.write(text);
  file.commit();
  return kExitOk;
}

}  // namespace

void add_export_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* command = app.add_subcommand("export", "write results in a format that other tools read");
  add_help(*command, "");
  command->add_option("RESULT", options->results, "a results file, finished or not");
  add_options(
      *command,
      {{"format", &options->format, "NAME", "one run a row", "Export", 0, 0, {"googlebenchmark", "csv"}},
       {"out", &options->out, "FILE", "default: standard output", "Export"}});
  command->callback([options, &exit_code] { exit_code = export_results(*options); });
}

}  // namespace stepladder
