// What several files say together: the page of a report, and the tables that another file shows.
#pragma once

#include <string>
#include <vector>

#include "bench/report/answer.h"
#include "bench/results/json.h"

namespace stepladder {

/// A file of a report, or a campaign's part, which says what it is for.
struct MeasuredFile {
  std::string path, name, about;
  Findings findings;

  std::string device() const { return findings.results().device_model(); }
  std::string title() const;
  NamedFindings named() const;
};

/// A profile of a report.
struct TracedFile {
  std::string name;
  Json profile;  // a profile file's JSON
};

/// Whether they are of several devices, of which only ratios compare.
bool of_several_devices(const std::vector<MeasuredFile>& files, const std::vector<TracedFile>& profiles);

/// The certificates of files, where several have some; else nothing.
Section horizons_of(const std::vector<MeasuredFile>& files);

/// The page as data: reports/page.py makes HTML of it and words nothing. By device, the first file of which
/// is its main one, with what was measured, as sections, and on what.
///   {"title", "mixed", "by_device": section, "horizons": section, "gains": {rung: text},
///    "files": [{"name", "about", "called", "device", "main", "gist", "section", "environment": section,
///               "sources": {rung: hash}}],
///    "profiles": [{"name", "rung", "section"}]}
/// Profiles come in the order of the ladder, and none where there are several devices, which don't compare.
Json page_json(const std::vector<MeasuredFile>& files, std::vector<TracedFile> profiles,
               const std::string& title = "");

/// The tables of the first device for another Markdown file: the ladder, rungs beside their peers, and
/// ablations. Where a file has six rounds, and so 95 % intervals, only of such files.
std::string tables_markdown(const std::vector<MeasuredFile>& files);

}  // namespace stepladder
