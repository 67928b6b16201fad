#include "bench/report/report.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "bench/base/table.h"
#include "bench/base/text.h"
#include "bench/cli/charts.h"
#include "bench/cli/commands.h"
#include "bench/plan/ladder_file.h"
#include "bench/report/ablation.h"
#include "bench/report/speedups.h"
#include "bench/results/file.h"
#include "bench/results/run_json.h"
#include "bench/run/child.h"
#include "bench/verdict/comparison.h"
#include "bench/verdict/history.h"
#include "model/atomic_file.h"
#include "model/error.h"
#include "model/fd.h"
#include "model/flops.h"

namespace stepladder {
namespace {

struct ReportOptions {
  std::vector<std::string> results;
  std::string out, into;
  bool wide = false;

  std::vector<Option> options() {
    return {{"RESULT", &results, "", "results files, finished or not, or a part of one, FILE:PART"},
            {"out", &out, "DIR",
             "where to write; default: beside the first RESULT, or report/ for one that lies here", "Report"},
            wide_option(wide, "Report"),
            {"into", &into, "FILE", "also renews what is between <!-- stepladder: begin --> and end in it",
             "Report"}};
  }
};

/// The file's name on the page: its last part, where that tells it from the others.
std::string name_of(const std::string& path, const std::vector<std::string>& paths) {
  const auto last = [](const std::string& p) { return std::filesystem::path(p).filename().string(); };
  const auto same = std::ranges::count(paths, last(path), last);
  return same > 1 ? path : last(path);
}

/// What the page reads of a result: all of it, with what only the journal holds, our notes, and how it stands
/// against the peers, or, on the CPU, against the first rung's losses.
Json page_json(const Results& results, const Json& given) {
  Json json = results_file_json(results);
  Json& report = json["report"] = given;
  report.update({{"warnings", Json::array()}, {"notes", Json::array()}, {"against", Json::array()}});
  report["learning"] = learning(results);
  for (const Note& note : report_notes(results))
    report[note.warning ? "warnings" : "notes"].push_back(note.text);
  for (const Speedup& s : against_peers(results)) {
    report["against"].push_back({{"against", s.against}, {"rounds", s.ratio.rounds}});
    report["against"].back().update(to_json(s.ratio, "ratio"));
  }
  return json;
}

/// A profile, with the device's dense peaks in TFLOP/s where they are known.
Json profile_json(Json profile) {
  Results on;
  on.context = profile.value("context", Json::object());
  Json peaks = Json::object();
  for (const MathMode mode : {MathMode::fp32, MathMode::tf32, MathMode::half, MathMode::fp8})
    if (const auto peak = peak_flops(text_at(on.device(), "name"), mode))
      peaks[name_of(mode)] = *peak * 1e-12;
  if (profile["profile"].is_object() && profile["profile"]["ceilings"].is_object())
    profile["profile"]["ceilings"]["peak_tflops"] = peaks;
  return profile;
}

/// Text that a child reads while this process has it open; nothing of it is left on a disk, however that
/// ends.
Fd memory_file(const std::string& text) {
  Fd file(::memfd_create("stepladder", MFD_CLOEXEC));
  if (!file.open()) throw Error(cat("cannot open one file more: ", std::strerror(errno)));
  if (!write_all(file.get(), text)) throw Error(cat("no memory for the report: ", std::strerror(errno)));
  return file;
}

/// Rows on the workload that has the most of them: how much of a ladder a file holds.
int64_t ladder_size(const Results& results) {
  std::map<std::string, int64_t> rows;
  for (const ResultRow& v : aggregate(results))
    if (!is_ablation(v.variant)) ++rows[v.workload];
  int64_t most = 0;
  for (const auto& [workload, count] : rows) most = std::max(most, count);
  return most;
}

/// What a report is of.
class Given {
 public:
  struct File {
    std::string path, name, about;
    Results results;
    int64_t size;
    std::string title() const { return printable(about.empty() ? name : cat(name, ": ", about), 400); }
  };

  /// The parts of the files. Throws InputError.
  explicit Given(const std::vector<std::string>& paths) {
    std::error_code none;
    for (const std::string& path : paths) {
      const std::string file = std::filesystem::weakly_canonical(path, none).string();
      if (!seen_.insert(file).second && !none) continue;
      if (const std::string kind = kind_of(path); !kind.empty() && kind != "results") {
        add_json(path, name_of(path, paths), kind);
        continue;
      }
      std::vector<Part> parts = load_measured_parts(path);
      if (parts.empty()) throw InputError(cat(path, ": holds no run"));
      for (Part& part : parts) {
        if (part.name.empty())
          add(path, name_of(path, paths), part);
        else if (path.ends_with(":" + part.name) || seen_.insert(cat(file, ":", part.name)).second)
          add(cat(path, ": ", part.name), part.name, part);
      }
    }
    if (files_.empty() && others_.empty()) throw InputError("no results file is among those given");
    // The file that holds the most of a ladder leads.
    std::ranges::stable_sort(files_, std::greater(), &File::size);
  }

  const std::vector<File>& files() const { return files_; }
  bool one_device() const { return devices_.size() < 2; }

  /// What the page is made of: results, then profiles and a history, which is made of several results where
  /// none was given. Leaves no results behind.
  std::vector<Json> pages() {
    std::vector<Json> all;
    for (const File& file : files_)
      all.push_back(
          page_json(file.results, {{"name", file.name}, {"path", file.path}, {"about", file.about}}));
    all.insert(all.end(), others_.begin(), others_.end());
    if (files_.size() < 2 || has_history_) return all;
    std::vector<std::pair<std::string, Results>> named;
    for (File& file : files_) named.emplace_back(file.name, std::move(file.results));
    all.push_back(to_json(history_of(std::move(named), kMinLimit)));
    return all;
  }

 private:
  static void warn(const std::string& what) {
    std::cerr << "stepladder: warning: " << printable(what, kMaxMessage) << "\n";
  }
  void add(const std::string& path, const std::string& name, Part& part) {
    if (!part.name.empty() && (!part.skipped.empty() || part.exit_code.value_or(0) != 0))
      warn(cat(
          path, " ",
          part.skipped.empty() ? cat("ended with exit code ", *part.exit_code) : "skipped: " + part.skipped));
    if (!part.profile.is_null()) {
      others_.push_back(profile_json(std::move(part.profile)));
      others_.back()["report"] = {{"name", name}, {"path", path}};
    } else if (!part.results.runs.empty()) {
      devices_.insert(part.results.device_model());
      const int64_t size = ladder_size(part.results);
      files_.push_back({path, name, part.about, std::move(part.results), size});
    } else if (part.name.empty()) {
      throw InputError(
          cat(path, ": no run in it has finished: `stepladder resume ", path, "` goes on with it"));
    }
  }
  void add_json(const std::string& path, const std::string& name, const std::string& kind) {
    if (kind != "history") {
      warn(cat(path, ": a file of kind \"", kind, "\" is not part of a report"));
      return;
    }
    has_history_ = true;
    others_.push_back(load_json(path));
    others_.back()["report"] = {{"name", name}, {"path", path}};
  }

  std::vector<File> files_;
  std::vector<Json> others_;  // for the page alone
  std::set<std::string> devices_, seen_;
  bool has_history_ = false;
};

/// Tables on stdout, and in summary.md.
void print_tables(const Given& given, const std::filesystem::path& out, bool wide) {
  const bool ratios_only = !given.one_device();
  std::string markdown = "# Stepladder\n";
  for (const Given::File& file : given.files()) {
    if (given.files().size() > 1) {
      markdown += cat("\n## ", markdown_text(file.title()), "\n");
      std::cout << "==== " << file.title() << "\n";
    }
    markdown += "\n" + markdown_report(file.results, ratios_only);
    std::cout << terminal_report(file.results, ratios_only, wide) << "\n";
  }
  if (given.files().empty()) return;
  const std::string summary = (out / "summary.md").string();
  write_atomically(summary, markdown);
  std::cout << "wrote " << printable(summary, kMaxMessage) << "\n" << std::flush;
}

/// Whether the tables have a place in a file, as renew() in page.py wants it.
bool has_marks(const std::string& path) {
  const std::vector<std::string> both = {"<!-- stepladder: begin -->", "<!-- stepladder: end -->"};
  std::vector<std::string> marks;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (std::ranges::count(both, line) > 0) marks.push_back(line);
  }
  return marks == both;
}

int report(ReportOptions& options) {
  namespace fs = std::filesystem;
  const InterruptGuard guard;
  Given given(options.results);
  std::error_code error;
  if (!options.into.empty() && !fs::is_regular_file(options.into, error))
    throw InputError(
        cat(options.into, ": --into renews a file that is there; write the marks into one first"));
  if (!options.into.empty() && !has_marks(options.into))
    throw InputError(
        cat(options.into,
            ": wants one line <!-- stepladder: begin --> and one <!-- stepladder: end --> below it, "
            "between which the tables go"));
  fs::path out =
      options.out.empty() ? fs::path(options.results.front()).parent_path() : fs::path(options.out);
  // A dozen files, which nobody wants among his own.
  if (out.empty() || (options.out.empty() && fs::equivalent(out, ".", error))) out = "report";
  fs::create_directories(out, error);
  if (error) throw InputError(cat(out.string(), ": cannot make the folder: ", error.message()));

  for (const auto& [file, kind] : {std::pair("summary.md", "summary"), std::pair("results.csv", "table"),
                                   std::pair("index.html", "page"), std::pair("published.md", "published")})
    check_same_kind((out / file).string(), kind);
  print_tables(given, out, options.wide);
  check_interrupted();
  std::vector<Fd> files;
  std::vector<std::string> paths;
  for (const Json& page : given.pages()) {
    files.push_back(memory_file(dump(page)));
    paths.push_back(cat("/proc/", ::getpid(), "/fd/", files.back().get()));
  }
  if (paths.empty()) return kExitOk;
  paths.push_back("--out=" + out.string());
  if (!options.into.empty()) paths.insert(paths.end(), {"--into", options.into});
  return draw("report.py", paths) ? kExitOk : kExitFailed;
}

}  // namespace

Command report_command() {
  return command<ReportOptions>("report", "page, tables and charts of results files and profiles", report);
}

}  // namespace stepladder
