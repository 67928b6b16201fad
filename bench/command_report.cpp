#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <list>
#include <memory>
#include <set>

#include "bench/child.h"
#include "bench/commands.h"
#include "bench/machine.h"
#include "bench/options.h"
#include "bench/report.h"
#include "bench/results_file.h"
#include "bench/text.h"
#include "model/atomic_file.h"
#include "model/error.h"

namespace stepladder {
namespace {

constexpr double kPageTimeout = 300.0;  // seconds

struct ReportOptions {
  std::vector<std::string> results;
  std::string out;

  std::vector<Option> options() {
    return {{"out", &out, "DIR", "where to write; default: beside the first RESULT", "Report"}};
  }
};

/// A file that lives as long as this.
struct TemporaryFile {
  std::string path;
  explicit TemporaryFile(std::string name) : path(std::move(name)) {}
  ~TemporaryFile() { std::filesystem::remove(path); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
};

/// Draws the charts and writes the page, or says on stderr what is missing for them. False when that failed
/// for another reason.
bool write_page(const std::vector<std::string>& results, const std::string& out) {
  const std::string script = STEPLADDER_SOURCE_DIR "/reports/report.py";
  std::vector<std::string> command = {python(), script};
  command.insert(command.end(), results.begin(), results.end());
  command.insert(command.end(), {"--out", out});
  ChildEnd end;
  try {
    end = run_child(command, Channel::out, kPageTimeout, [](std::string_view line) {
      if (line.starts_with("! "))
        std::cerr << "stepladder: warning: " << line.substr(2) << "\n";
      else
        std::cout << line << "\n";
      return true;
    });
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

/// What the page reads of a result: all of it, with what only the journal holds, and our notes.
Json page_json(const Results& results, const std::string& name) {
  Json json = to_json(results);
  Json& report = json["report"] = {{"name", name}, {"warnings", Json::array()}, {"notes", Json::array()}};
  for (const Note& note : report_notes(results))
    report[note.warning ? "warnings" : "notes"].push_back(note.text);
  return json;
}

int report(const ReportOptions& options) {
  namespace fs = std::filesystem;
  std::vector<Results> all;
  std::set<std::string> devices;
  for (const std::string& path : options.results) {
    all.push_back(load_results(path));
    devices.insert(device_name(all.back()));
  }
  fs::path out =
      options.out.empty() ? fs::path(options.results.front()).parent_path() : fs::path(options.out);
  if (out.empty()) out = ".";
  std::error_code error;
  fs::create_directories(out, error);
  if (error) throw InputError(cat(out.string(), ": cannot make the folder: ", error.message()));

  const bool ratios_only = devices.size() > 1;
  std::string markdown = "# Stepladder\n";
  for (const Results& results : all) {
    markdown += "\n" + markdown_report(results, ratios_only);
    std::cout << terminal_report(results, ratios_only) << "\n";
  }
  const std::string summary = (out / "summary.md").string();
  write_atomically(summary, markdown);
  std::cout << "wrote " << summary << "\n" << std::flush;

  std::list<TemporaryFile> files;
  std::vector<std::string> paths;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].runs.empty()) continue;
    files.emplace_back((out / cat(".report.", ::getpid(), ".", i, ".json")).string());
    paths.push_back(files.back().path);
    write_atomically(paths.back(), page_json(all[i], name_of(options.results[i], options.results)).dump());
  }
  return paths.empty() || write_page(paths, out.string()) ? kExitOk : kExitFailed;
}

}  // namespace

void add_report_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* command = app.add_subcommand("report", "page, table and charts of results files");
  add_help(*command, "");
  command->add_option("RESULT", options->results, "results files, finished or not")
      ->required()
      ->type_name("");
  add_options(*command, options->options());
  command->callback([options, &exit_code] { exit_code = report(*options); });
}

}  // namespace stepladder
