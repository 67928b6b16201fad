#include "bench/report/export.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "bench/cli/commands.h"
#include "bench/plan/ladder_file.h"
#include "bench/plan/settings.h"
#include "bench/report/speedups.h"
#include "bench/results/file.h"
#include "bench/results/json.h"
#include "model/atomic_file.h"
#include "model/error.h"

namespace stepladder {
namespace {

struct ExportOptions {
  std::vector<std::string> results = {kLatestResults};
  std::optional<std::string> format;
  std::string out;

  std::vector<Option> options() {
    return {
        {"RESULT", &results, "",
         "a results file, finished or not; as json or short also a campaign's, else a part of it, FILE:PART; "
         "several campaigns' of one commit and kind of device become one"},
        {"format",
         &format,
         "NAME",
         "a row for each run, or json: all of it, in this version's schema, or short: what a page shows of "
         "it; default: csv where --out ends in that, else googlebenchmark",
         "Export",
         {"googlebenchmark", "csv", "json", "short"}},
        {"out", &out, "FILE", "default: standard output", "Export"}};
  }
  std::string format_of_out() const {
    return format.value_or(out.ends_with(".csv") ? "csv" : "googlebenchmark");
  }
};

/// A campaign's file, the results in it as short as this version makes them. Throws InputError.
Json shortened_campaign(const std::string& path, Json file) {
  check_campaign(path, file);
  for (Json& part : file["parts"])
    if (part.value("result", Json()).contains("runs"))
      part["result"] = shortened(load_measured(cat(path, ": ", text_at(part, "name")), part["result"]));
  return file;
}

/// Whether every part of the plan that campaigns follow unless told otherwise has ended in a file: one that
/// was told to measure some of them can't know that others have the rest.
bool has_ended_plan(const Json& file) {
  const std::string plan = here_or_shared(kCampaignPlan);
  std::error_code none;
  if (!std::filesystem::exists(plan, none)) return false;
  return std::ranges::all_of(load_json(plan), [&](const Json& planned) {
    return std::ranges::any_of(file["parts"], [&](const Json& part) {
      return text_at(part, "name") == text_at(planned, "name") && has_ended(part, INFINITY);
    });
  });
}

/// Adds to `whole` the parts of another card's file; of a part that both have, the result that has more
/// counts, or the later. Throws Error with kExitNotComparable where commit or kind of device differ.
void add_parts(Json& whole, const std::string& path, const Json& file) {
  const char* way_out = "export it by itself";
  require_same(path, "commit", whole.value("commit", Json()), file.value("commit", Json()), way_out);
  require_same(path, "device", text_at(whole.value("device", Json()), "name"),
               text_at(file.value("device", Json()), "name"), way_out);
  for (const Json& part : file["parts"]) {
    const auto same = std::ranges::find_if(
        whole["parts"], [&](const Json& of) { return text_at(of, "name") == text_at(part, "name"); });
    if (same == whole["parts"].end())
      whole["parts"].push_back(part);
    else if (!same->contains("result") || !has_less(part.value("result", Json()), (*same)["result"]))
      *same = part;
  }
  whole["complete"] = whole.value("complete", Json()) == true && file.value("complete", Json()) == true;
}

/// `file` is what the first has.
std::string text_in(const ExportOptions& options, Json file) {
  const std::string &path = options.results.front(), format = options.format_of_out();
  const bool is_short = format == "short";
  if ((is_short || format == "json") && is_campaign(file)) {
    file = shortened_campaign(path, std::move(file));
    for (size_t i = 1; i < options.results.size(); ++i)
      add_parts(file, options.results[i],
                shortened_campaign(options.results[i], load_part(options.results[i])));
    if (options.results.size() > 1 && file["complete"] == false) file["complete"] = has_ended_plan(file);
    return file_text(file);
  }
  if (options.results.size() > 1)
    throw InputError(cat("only campaigns' files are joined, as json or short: export ", path, " by itself"));
  const Results results = load_measured(path, file);
  if (format == "csv") return csv(results);
  if (format == "json") return file_text(results_file_json(results));
  if (is_short) return file_text(shortened(results));
  const Json json = google_benchmark(results);
  for (const std::string& line : left_out(results))
    std::cerr << "stepladder: left out: " << printable(line, kMaxMessage) << "\n";
  if (json["benchmarks"].empty()) throw InputError(cat(path, ": no run in it is ok: nothing to export"));
  return dump(json, 1) + "\n";
}

/// Throws InputError where --out is one of the files that are exported, or is there and something else than
/// `file` exported before.
void check_out(const ExportOptions& options, const Json& file) {
  std::error_code none;
  for (const std::string& path : options.results)
    for (const std::string& source : {path, path.substr(0, path.rfind(':'))})
      if (std::filesystem::equivalent(source, options.out, none))
        throw InputError(cat(options.out, " is what is exported: name another --out"));
  const std::string format = options.format_of_out();
  if (format != "json" && format != "short") return check_same_kind(options.out, format);
  check_same_kind(options.out, is_campaign(file) ? "campaign" : "results");
  Json there;
  try {
    there = load_json(options.out);
  } catch (const InputError&) {  // nothing is there, or it is damaged
    return;
  }
  for (const char* field : {"commit", "context"})
    if (there.value(field, Json()) != file.value(field, Json()))
      throw InputError(cat(options.out, " holds other measurements: name another --out"));
}

int export_results(ExportOptions& options) {
  Json file = load_part(options.results.front());
  if (!file.is_object()) throw InputError(cat(options.results.front(), ": is no results file"));
  if (!options.out.empty()) check_out(options, file);
  const std::string text = text_in(options, std::move(file));
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
