#include "bench/report/report.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <deque>
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
#include "bench/report/export.h"
#include "bench/report/page.h"
#include "bench/report/trials.h"
#include "bench/results/file.h"
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
  std::string out, into, title;
  bool wide = false;

  std::vector<Option> options() {
    return {{"RESULT", &results, "", "results files, finished or not, or a part of one, FILE:PART"},
            {"out", &out, "DIR",
             "where to write; default: beside the first RESULT, or report/ for one that lies here", "Report"},
            {"title", &title, "TEXT", "of the page and summary; default: a ladder's name", "Report"},
            wide_option(wide, "Report"),
            {"into", &into, "FILE", "also renews what is between <!-- stepladder: begin --> and end in it",
             "Report"}};
  }
};

/// A file's name on the page: the last part of its path, or the whole path if another file has the same last
/// part.
std::string name_of(const std::string& path, const std::vector<std::string>& paths) {
  const auto last = [](const std::string& p) { return std::filesystem::path(p).filename().string(); };
  const auto same = std::ranges::count(paths, last(path), last);
  return same > 1 ? path : last(path);
}

/// Names the device of a file by its model; for a CPU, with the number of cores that were used.
void name_device(Json& file) {
  Results on;
  on.context = file.value("context", Json::object());
  if (on.device().is_object() && on.device().contains("name"))
    file["context"]["device"]["name"] = on.device_model();
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

/// A file in memory with `text`, for a child to read while this process has it open; it never touches a disk.
Fd memory_file(const std::string& text) {
  Fd file(::memfd_create("stepladder", MFD_CLOEXEC));
  if (!file.open()) throw Error(cat("cannot open one file more: ", std::strerror(errno)));
  if (!write_all(file.get(), text)) throw Error(cat("no memory for the report: ", std::strerror(errno)));
  return file;
}

/// How many rows a file has on the workload that has the most of them, ablations aside; with `climbed` only
/// rungs of its ladder, not those beside it.
int64_t rows_in(const Findings& file, bool climbed) {
  std::map<std::string, int64_t> rows;
  for (const ResultRow& row : file.rows) {
    const Rung* rung = file.ladder.listed(row.variant);
    if (!is_ablation(row.variant) && (!climbed || (rung && !rung->beside))) ++rows[row.workload];
  }
  int64_t most = 0;
  for (const auto& [workload, count] : rows) most = std::max(most, count);
  return most;
}

/// The files that a report is made of.
class Given {
 public:
  /// Reads the parts of the files. Throws InputError.
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
      const std::vector<Trial> ranked = trials_of(parts);
      std::vector<Trial> best = best_of(ranked);
      if (!ranked.empty()) trials_.push_back(section_of(ranked, kTrialsShown));
      // Only the best trials are shown like other parts, the soonest first, or one if none reached the loss.
      if (best.empty() && !ranked.empty()) best.push_back(ranked.front());
      std::erase_if(parts, [&](const Part& part) {
        return part.name.starts_with(Trial::kPart) &&
               std::ranges::find(best, part.name, &Trial::part) == best.end();
      });
      std::ranges::stable_sort(parts, {}, [&](const Part& part) {
        const auto trial = std::ranges::find(best, part.name, &Trial::part);
        return trial == best.end() ? 0.0 : trial->seconds.value_or(INFINITY);
      });
      const auto [of, alone] = file_and_part(path);
      for (Part& part : parts) {
        if (part.name.empty())
          add(path, name_of(path, paths), part);
        else if (!alone.empty() || seen_.insert(cat(file, ":", part.name)).second)
          add(cat(of, ": ", part.name), told_apart(part, name_of(of, paths)), part);
      }
    }
    if (files_.empty() && others_.empty()) throw InputError("no results file is among those given");
    // The file that climbs most of a ladder comes first, of two that climb as much the one to a loss; then
    // those with the most rows; in a search for steps, the one that certifies.
    std::ranges::stable_sort(files_, std::greater(), [](const MeasuredFile& file) {
      const auto& all = file.findings.certificates;
      const bool certifies = !all.empty() && exit_code(all) == kExitOk;
      return std::pair(rows_in(file.findings, false),
                       certifies && file.name.starts_with(Certificate::kFresh));
    });
    const auto first = std::ranges::max_element(files_, {}, [](const MeasuredFile& file) {
      const std::vector<ResultRow>& rows = file.findings.rows;
      if (file.name.starts_with(Trial::kPart))
        return std::pair(int64_t{std::ranges::none_of(rows, &ResultRow::disturbed)}, false);
      const bool to_loss = std::ranges::any_of(rows, [](const ResultRow& row) { return row.to_loss(); });
      return std::pair(rows_in(file.findings, true), to_loss);
    });
    if (first != files_.end()) std::rotate(files_.begin(), first, first + 1);
  }

  const std::vector<MeasuredFile>& files() const { return files_; }
  bool ratios_only() const { return of_several_devices(files_, profiles()); }
  /// The name of the ladder of one's own that all files are of; "" for our ladder, or several.
  std::string ladder() const {
    std::set<std::string> names;
    for (const MeasuredFile& file : files_)
      names.insert(file.findings.ladder.built_in() ? "" : file.findings.ladder.name);
    return names.size() == 1 ? *names.begin() : "";
  }
  /// A section of tables for each file that has trials.
  const std::vector<Section>& trials() const { return trials_; }
  Json page(const std::string& title) const {
    Json page = page_json(files_, profiles(), title);
    page["trials"] = Json::array();
    for (const Section& section : trials_) page["trials"].push_back(section.json());
    return page;
  }

  /// What charts are drawn from: results, then profiles and a history, which is made from several results
  /// where none was given. Moves the results into the history: call it last.
  std::vector<Json> charts() {
    std::vector<Json> all;
    for (const MeasuredFile& file : files_) {
      all.push_back(results_file_json(file.findings));
      all.back()["report"] = {{"name", file.name}, {"path", file.path}};
    }
    append(all, others_);
    for (Json& file : all) name_device(file);
    if (files_.size() < 2 || has_history_) return all;
    std::vector<std::pair<std::string, Results>> named;
    for (const MeasuredFile& file : files_)
      for (Results& results : results_)
        if (&results == &file.findings.results()) named.emplace_back(file.name, std::move(results));
    all.push_back(to_json(history_of(std::move(named), kMinLimit)));
    return all;
  }

 private:
  std::vector<TracedFile> profiles() const {
    std::vector<TracedFile> traced;
    for (const Json& other : others_)
      if (other.contains("profile")) traced.push_back({other["report"]["name"], other});
    return traced;
  }
  /// The name of a part, with its file's where an earlier file has such a part of the same device.
  std::string told_apart(const Part& part, const std::string& file) {
    const bool first = parts_.insert({part.results.device_model(), part.name}).second;
    return first ? part.name : cat(part.name, " of ", file);
  }
  void add(const std::string& path, const std::string& name, Part& part) {
    if (!part.name.empty() && (!part.skipped.empty() || part.exit_code.value_or(0) != 0))
      notice(cat(
          "warning: ", path, " ",
          part.skipped.empty() ? cat("ended with exit code ", *part.exit_code) : "skipped: " + part.skipped));
    if (!part.profile.is_null()) {
      others_.push_back(profile_json(std::move(part.profile)));
      others_.back()["report"] = {{"name", name}, {"path", path}};
    } else if (!part.results.runs.empty()) {
      results_.push_back(std::move(part.results));
      files_.push_back({path, name, part.about, Findings(results_.back())});
    } else if (part.name.empty()) {
      throw InputError(
          cat(path, ": no run in it has finished: `stepladder resume ", path, "` goes on with it"));
    }
  }
  void add_json(const std::string& path, const std::string& name, const std::string& kind) {
    if (kind != "history") {
      notice(cat("warning: ", path, ": a file of kind \"", kind, "\" is not part of a report"));
      return;
    }
    has_history_ = true;
    others_.push_back(load_json(path));
    others_.back()["report"] = {{"name", name}, {"path", path}};
  }

  static constexpr size_t kTrialsShown = 10;  // trials of a contest in the report

  std::vector<MeasuredFile> files_;
  std::vector<Section> trials_;
  std::deque<Results> results_;  // owns what files_ refers to: a deque never moves its elements
  std::vector<Json> others_;     // profiles and histories
  std::set<std::string> seen_;
  std::set<std::pair<std::string, std::string>> parts_;  // devices and names of parts
  bool has_history_ = false;
};

void write(const std::string& path, const std::string& text) {
  write_atomically(path, text);
  std::cout << "wrote " << printable(path, kMaxMessage) << "\n" << std::flush;
}

/// Prints the tables on stdout, and writes summary.md and results.csv.
void print_tables(const Given& given, const std::filesystem::path& out, const std::string& title, bool wide) {
  const bool ratios_only = given.ratios_only();
  std::string markdown =
      cat("# Stepladder", title.empty() ? "" : ": " + markdown_text(printable(title, 200)), "\n");
  if (const Section horizons = horizons_of(given.files()); !horizons.tables.empty()) {
    markdown += "\n" + horizons.markdown();
    std::cout << horizons.terminal(wide) << "\n";
  }
  for (const Section& section : given.trials()) {
    markdown += "\n" + section.markdown();
    std::cout << section.terminal(wide) << "\n";
  }
  for (const MeasuredFile& file : given.files()) {
    Section section = section_of(file.findings, ratios_only);
    if (given.files().size() > 1) {
      section.heading = file.title();
      std::cout << "==== ";
    }
    markdown += "\n" + section.markdown();
    std::cout << section.terminal(wide) << "\n";
  }
  if (given.files().empty()) return;
  write((out / "summary.md").string(), markdown);
  std::vector<NamedFindings> named;
  for (const MeasuredFile& file : given.files()) named.push_back(file.named());
  write((out / "results.csv").string(), csv(named));
}

constexpr const char *kBegin = "<!-- stepladder: begin -->", *kEnd = "<!-- stepladder: end -->";

/// The text of a file with the tables between its marks, kBegin and kEnd, each on a line of its own. Throws
/// InputError where the marks are missing.
std::string renewed(const std::string& path, const Given& given) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw InputError(cat(path, ": --into renews a file that is there; write the marks into one first"));
  std::ifstream file(path, std::ios::binary);
  std::string before, after, *to = &before, ends = "\n";
  std::vector<std::string> marks;
  bool all_crlf = true, any = false;
  for (std::string line; std::getline(file, line);) {
    any = true;
    std::string text = line;
    const bool crlf = text.ends_with('\r');
    all_crlf &= crlf || file.eof();
    if (crlf) text.pop_back();
    const bool mark = text == kBegin || text == kEnd;
    if (mark) marks.push_back(text);
    if (mark && text == kEnd) to = &after;
    if (marks.size() != 1 || mark) *to += line + (file.eof() && !mark ? "" : "\n");
  }
  if (marks != std::vector<std::string>{kBegin, kEnd})
    throw InputError(
        cat(path, ": wants one line ", kBegin, " and one ", kEnd, " below it, between which the tables go"));
  if (given.files().empty()) throw InputError(cat(path, ": no results file to make tables of"));
  std::string tables = tables_markdown(given.files());
  if (any && all_crlf)
    for (size_t at = 0; (at = tables.find('\n', at)) != std::string::npos; at += 2)
      tables.insert(at, 1, '\r');
  return before + tables + after;
}

int report(ReportOptions& options) {
  namespace fs = std::filesystem;
  const InterruptGuard guard;
  Given given(options.results);
  std::error_code error;
  const std::string into = options.into.empty() ? "" : renewed(options.into, given);
  fs::path out =
      options.out.empty() ? fs::path(options.results.front()).parent_path() : fs::path(options.out);
  // A report is a dozen files: keep them out of the current folder.
  if (out.empty() || (options.out.empty() && fs::equivalent(out, ".", error))) out = "report";
  make_folder_of((out / "summary.md").string());
  for (const auto& [file, kind] : {std::pair("summary.md", "summary"), std::pair("results.csv", "table"),
                                   std::pair("index.html", "page"), std::pair("published.md", "published")})
    check_same_kind((out / file).string(), kind);
  if (options.title.empty()) options.title = given.ladder();
  print_tables(given, out, options.title, options.wide);
  if (!into.empty()) write(options.into, into);
  check_interrupted();
  std::vector<Fd> files;
  std::vector<std::string> paths;
  const auto pass = [&](const Json& json) {
    files.push_back(memory_file(dump(json)));
    paths.push_back(cat("/proc/", ::getpid(), "/fd/", files.back().get()));
  };
  pass(given.page(options.title));
  for (const Json& chart : given.charts()) pass(chart);
  paths.push_back("--out=" + out.string());
  return draw("report.py", paths) ? kExitOk : kExitFailed;
}

}  // namespace

Command report_command() {
  return command<ReportOptions>("report", "page, tables and charts of results files and profiles", report);
}

}  // namespace stepladder
