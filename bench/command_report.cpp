#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <set>

#include "bench/ablation.h"
#include "bench/child.h"
#include "bench/commands.h"
#include "bench/comparison.h"
#include "bench/history.h"
#include "bench/machine.h"
#include "bench/options.h"
#include "bench/report.h"
#include "bench/results_file.h"
#include "bench/temporary_file.h"
#include "bench/text.h"
#include "model/atomic_file.h"
#include "model/error.h"
#include "model/flops.h"

namespace stepladder {
namespace {

constexpr double kPageTimeout = 300.0;  // seconds

struct ReportOptions {
  std::vector<std::string> results;
  std::string out, into;

  std::vector<Option> options() {
    return {
        {"out", &out, "DIR", "where to write; default: beside the first RESULT", "Report"},
        {"into", &into, "FILE", "also renews the tables between <!-- stepladder --> marks in it", "Report"}};
  }
};

/// Draws the charts and writes the page, or says on stderr what is missing for them. False when that failed
/// for another reason.
bool write_page(const std::vector<std::string>& files, const std::string& out, const std::string& into) {
  const std::string script = STEPLADDER_SOURCE_DIR "/reports/report.py";
  std::vector<std::string> command = {python(), script};
  command.insert(command.end(), files.begin(), files.end());
  command.insert(command.end(), {"--out", out});
  if (!into.empty()) command.insert(command.end(), {"--into", into});
  ChildEnd end;
  try {
    end = run_child(command, Channel::out, kPageTimeout, [](std::string_view line) {
      if (line.starts_with("! "))
        std::cerr << "stepladder: warning: " << line.substr(2) << "\n";
      else
        std::cout << line << "\n";
      return true;
    });
  } catch (const Interrupted&) {
    throw;
  } catch (const Error& e) {
    std::cerr << "stepladder: warning: no page and no charts: " << e.what()
              << "; install python3, python3-jinja2 and python3-matplotlib\n";
    return true;
  }
  if (end.how == ChildEnd::How::exited && end.code == 0) return true;
  std::cerr << "stepladder: warning: no page: " << script << " failed" << end.last_words() << "\n";
  return false;
}

/// The file's name on the page: its last part, where that tells it from the others.
std::string name_of(const std::string& path, const std::vector<std::string>& paths) {
  const auto last = [](const std::string& p) { return std::filesystem::path(p).filename().string(); };
  const auto same = std::count_if(paths.begin(), paths.end(),
                                  [&](const std::string& other) { return last(other) == last(path); });
  return same > 1 ? path : last(path);
}

/// What the page reads of a result: all of it, with what only the journal holds, our notes, and how it stands
/// against the peers.
Json page_json(const Results& results, const std::string& name) {
  Json json = to_json(results);
  Json& report = json["report"] = {
      {"name", name}, {"warnings", Json::array()}, {"notes", Json::array()}, {"against", Json::array()}};
  for (const Note& note : report_notes(results))
    report[note.warning ? "warnings" : "notes"].push_back(note.text);
  for (const Speedup& s : against_peers(results)) {
    const auto& interval = s.ratio.interval;
    report["against"].push_back({{"against", s.against},
                                 {"ratio", s.ratio.value},
                                 {"lo", interval ? Json(interval->lo) : Json()},
                                 {"hi", interval ? Json(interval->hi) : Json()}});
  }
  return json;
}

/// A profile, with the device's dense peaks in TFLOP/s where they are known.
Json profile_json(Json profile, const std::string& name) {
  profile["report"] = {{"name", name}};
  Results on;
  on.context = profile.value("context", Json::object());
  Json peaks = Json::object();
  for (const auto& [key, mode] : {std::pair("fp32", MathMode::fp32), std::pair("tf32", MathMode::tf32),
                                  std::pair("half", MathMode::half), std::pair("fp8", MathMode::fp8)})
    if (const auto peak = peak_flops(device_name(on), mode)) peaks[key] = *peak * 1e-12;
  if (profile["profile"].is_object() && profile["profile"]["ceilings"].is_object())
    profile["profile"]["ceilings"]["peak_tflops"] = peaks;
  return profile;
}

/// Whether a file is a profile, a history or another kind that is no results file.
bool is_other_kind(const Json& json) {
  return json.is_object() && (json.contains("profile") || json.contains("kind"));
}

/// Rows on the workload that has the most of them: how much of a ladder a file holds.
int64_t ladder_size(const Results& results) {
  std::map<std::string, int64_t> rows;
  for (const Variant& v : aggregate(results))
    if (!is_ablation(v.variant)) ++rows[v.workload];
  int64_t most = 0;
  for (const auto& [workload, count] : rows) most = std::max(most, count);
  return most;
}

int report(const ReportOptions& options) {
  namespace fs = std::filesystem;
  struct Given {
    std::string name;
    Results results;
    int64_t size;
  };
  std::vector<Given> all;
  std::vector<Json> others;  // for the page alone
  std::set<std::string> devices, seen;
  bool history = false;
  for (const std::string& path : options.results) {
    const std::string name = name_of(path, options.results);
    if (!seen.insert(fs::weakly_canonical(path).string()).second) continue;
    const Json json = load_json(path);
    if (is_other_kind(json)) {
      if (json.contains("profile")) {
        others.push_back(profile_json(json, name));
      } else if (json.at("kind") == "history") {
        others.push_back(json);
        history = true;
      } else {
        std::cerr << "stepladder: warning: " << path << ": a file of kind " << json.at("kind").dump()
                  << " is not part of a report\n";
      }
      continue;
    }
    Results results = load_results(path, json);
    devices.insert(device_name(results));
    const int64_t size = ladder_size(results);
    all.push_back({name, std::move(results), size});
  }
  if (all.empty() && others.empty()) throw InputError("no results file is among those given");
  // The file that holds the most of a ladder leads.
  std::stable_sort(all.begin(), all.end(), [](const Given& a, const Given& b) { return a.size > b.size; });

  fs::path out =
      options.out.empty() ? fs::path(options.results.front()).parent_path() : fs::path(options.out);
  if (out.empty()) out = ".";
  std::error_code error;
  fs::create_directories(out, error);
  if (error) throw InputError(cat(out.string(), ": cannot make the folder: ", error.message()));

  const bool ratios_only = devices.size() > 1;
  std::string markdown = "# Stepladder\n";
  for (const Given& given : all) {
    if (all.size() > 1) {
      markdown += cat("\n# ", given.name, "\n");
      std::cout << "==== " << given.name << "\n";
    }
    markdown += "\n" + markdown_report(given.results, ratios_only);
    std::cout << terminal_report(given.results, ratios_only) << "\n";
  }
  if (!all.empty()) {
    const std::string summary = (out / "summary.md").string();
    write_atomically(summary, markdown);
    std::cout << "wrote " << summary << "\n" << std::flush;
  }

  std::vector<Json> pages;
  for (const Given& given : all)
    if (!given.results.runs.empty()) pages.push_back(page_json(given.results, given.name));
  if (all.size() > 1 && !history) {
    std::vector<std::pair<std::string, Results>> named;
    for (Given& given : all) named.emplace_back(given.name, std::move(given.results));
    others.push_back(to_json(history_of(std::move(named), kMinLimit)));
  }
  pages.insert(pages.end(), others.begin(), others.end());
  std::list<TemporaryFile> files;
  std::vector<std::string> paths;
  for (const Json& page : pages) {
    files.emplace_back((out / cat(".report.", ::getpid(), ".", paths.size(), ".json")).string());
    paths.push_back(files.back().path);
    write_atomically(paths.back(), page.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return paths.empty() || write_page(paths, out.string(), options.into) ? kExitOk : kExitFailed;
}

}  // namespace

void add_report_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* command = app.add_subcommand("report", "page, tables and charts of results files and profiles");
  add_help(*command, "");
  command->add_option("RESULT", options->results, "results files, finished or not, and profiles")
      ->required()
      ->type_name("");
  add_options(*command, options->options());
  command->callback([options, &exit_code] { exit_code = report(*options); });
}

}  // namespace stepladder
