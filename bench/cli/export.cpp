#include "bench/report/export.h"

#include <algorithm>
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
  std::vector<std::string> results = {"reports/latest/results.json"};
  std::string format = "googlebenchmark", out;

  std::vector<Option> options() {
    return {
        {"RESULT", &results, "",
         "a results file, finished or not; as json or short also a campaign's, else a part of it, FILE:PART; "
         "several campaigns' of one commit and kind of device become one"},
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
  for (Json& part : file["parts"])
    if (part.value("result", Json()).contains("runs"))
      part["result"] = shortened(load_measured(path, part["result"]));
  return file;
}

/// Adds to `whole` the parts of another card's file; of a part that both have, the later result counts.
/// Throws InputError, or Error with kExitNotComparable where commit or kind of device differ.
void add_parts(Json& whole, const std::string& path, const Json& file) {
  check_campaign(path, file);
  const char* way_out = "export it by itself";
  require_same(path, "commit", whole.value("commit", Json()), file.value("commit", Json()), way_out);
  require_same(path, "device", text_at(whole.value("device", Json()), "name"),
               text_at(file.value("device", Json()), "name"), way_out);
  for (const Json& part : file["parts"]) {
    const auto same = std::ranges::find_if(
        whole["parts"], [&](const Json& of) { return text_at(of, "name") == text_at(part, "name"); });
    if (same == whole["parts"].end())
      whole["parts"].push_back(part);
    else if (part.contains("result") || !same->contains("result"))
      *same = part;
  }
  whole["complete"] = whole.value("complete", Json()) == true && file.value("complete", Json()) == true;
}

std::string text_in(const ExportOptions& options) {
  const std::string& path = options.results.front();
  Json file = load_part(path);
  const bool is_short = options.format == "short";
  if ((is_short || options.format == "json") && is_campaign(file)) {
    check_campaign(path, file);
    for (size_t i = 1; i < options.results.size(); ++i)
      add_parts(file, options.results[i], load_part(options.results[i]));
    return file_text(shortened_campaign(path, std::move(file)));
  }
  if (options.results.size() > 1)
    throw InputError(cat("only campaigns' files are joined, as json or short: export ", path, " by itself"));
  const Results results = load_results(path, file);
  if (options.format == "csv") return csv(results);
  if (options.format == "json") return file_text(results_file_json(results));
  if (is_short) return file_text(shortened(results));
  const Json json = google_benchmark(results);
  for (const std::string& line : left_out(results)) std::cerr << "stepladder: left out: " << line << "\n";
  if (json["benchmarks"].empty()) throw InputError(cat(path, ": no run in it is ok: nothing to export"));
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
