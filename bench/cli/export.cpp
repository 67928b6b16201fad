#include "bench/report/export.h"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "bench/base/gzip.h"
#include "bench/base/text.h"
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
  std::string results = kLatestResults, out;
  std::optional<std::string> format;

  std::vector<Option> options() {
    return {{"RESULT", &results, "", "a results file, finished or not, or a part of it, FILE:PART"},
            {"format",
             &format,
             "NAME",
             "a row for each run; or json: all of it, with what follows from the runs; or short: a results "
             "file of "
             "what a page shows; default: csv where --out ends in that, else googlebenchmark",
             "Export",
             {"googlebenchmark", "csv", "json", "short"}},
            {"out", &out, "FILE", "default: standard output; compressed where it ends in .gz", "Export"}};
  }
  std::string format_of_out() const {
    return format.value_or(out.ends_with(".csv") ? "csv" : "googlebenchmark");
  }
};

/// A part as JSON, with the numbers computed from its runs.
Json json_of(const Part& part) {
  Json json = {{"name", part.name}, {"about", part.about}};
  if (!part.skipped.empty()) json["skipped"] = part.skipped;
  if (part.exit_code) json["exit_code"] = *part.exit_code;
  json["wall_s"] = part.wall_s;
  if (!part.profile.is_null())
    json["result"] = part.profile;
  else if (part.skipped.empty())
    json["result"] = results_file_json(part.results);
  return json;
}

std::string json_text(const std::vector<Part>& parts) {
  if (parts.size() == 1 && parts.front().name.empty()) return dump(json_of(parts.front())["result"]) + "\n";
  Json json = {{"schema", kSchema}, {"kind", "parts"}, {"parts", Json::array()}};
  for (const Part& part : parts) json["parts"].push_back(json_of(part));
  return dump(json) + "\n";
}

std::string text_in(const ExportOptions& options) {
  const std::string &path = options.results, format = options.format_of_out();
  if (format == "json") return json_text(load_measured_parts(path));
  if (format == "short") {
    std::string text;
    for (std::vector<Part> parts = load_measured_parts(path); Part & part : parts) {
      part.results = shortened(std::move(part.results));
      text += lines_of(part);
    }
    return text;
  }
  const Results results = load_measured(path);
  if (format == "csv") return csv(results);
  const Json json = google_benchmark(results);
  for (const std::string& line : left_out(results)) notice("left out: " + line);
  if (json["benchmarks"].empty()) throw InputError(cat(path, ": no run in it is ok: nothing to export"));
  return dump(json, 1) + "\n";
}

/// Checks --out. Throws InputError if it is the file to export, an existing file of another kind, or a
/// results file of another measurement.
void check_out(const ExportOptions& options) {
  std::error_code none;
  if (std::filesystem::equivalent(file_and_part(options.results).first, options.out, none))
    throw InputError(cat(options.out, " is what is exported: name another --out"));
  const std::string format = options.format_of_out();
  check_same_kind(options.out, format == "short" ? "results" : format == "json" ? "export" : format);
  if (format != "short" || !std::filesystem::exists(options.out, none)) return;
  const std::vector<Part> parts = load_parts(options.results);
  for (const Part& there : load_parts(options.out))
    if (std::ranges::find(parts, there.last_session, &Part::last_session) == parts.end())
      throw InputError(cat(options.out, " holds another measurement: name another --out"));
}

int export_results(ExportOptions& options) {
  if (!options.out.empty()) check_out(options);
  const std::string text = text_in(options);
  if (options.out.empty())
    std::cout << text << std::flush;
  else
    write_atomically(options.out, is_gzip_name(options.out) ? gzipped(text) : text);
  return kExitOk;
}

}  // namespace

Command export_command() {
  return command<ExportOptions>("export", "write results in a format that other tools read", export_results);
}

}  // namespace stepladder
