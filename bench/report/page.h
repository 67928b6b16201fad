// Several results files together: the page of a report, and its tables for another Markdown file.
#pragma once

#include <string>
#include <vector>

#include "bench/report/answer.h"
#include "bench/results/json.h"

namespace stepladder {

/// A results file of a report, or a part of a campaign, whose `about` says what it is for.
struct MeasuredFile {
  std::string path, name, about;
  Findings findings;

  std::string device() const { return findings.results().device_model(); }
  std::string title() const;
  NamedFindings named() const;
};

/// A profile file of a report.
struct TracedFile {
  std::string name;
  Json profile;  // a profile file's JSON
};

/// Whether the files are of several devices, so that only ratios may be compared.
bool of_several_devices(const std::vector<MeasuredFile>& files, const std::vector<TracedFile>& profiles);

/// The certificates of all files, where several files have some; else an empty section.
Section horizons_of(const std::vector<MeasuredFile>& files);

/// The page as data: reports/page.py makes HTML of it and words nothing. Files are in the order of their
/// devices; the first file of a device is its main one. Each has a section of what was measured, and one of
/// what it was measured on.
///   {"title", "mixed", "by_device": section, "horizons": section, "gains": {ladder: {rung: text}},
///    "files": [{"name", "about", "called", "ladder", "device", "main", "gist", "section",
///               "environment": section, "sources": {rung: hash}}],
///    "profiles": [{"name", "rung", "section"}]}
/// Profiles come in the order of the ladder, and are left out where there are several devices, which don't
/// compare.
Json page_json(const std::vector<MeasuredFile>& files, std::vector<TracedFile> profiles,
               const std::string& title = "");

/// The tables of the first device for another Markdown file: the ladder, rungs beside their peers, and
/// ablations. Only files of the most rounds are shown; six rounds and more, which have 95 % intervals, count
/// as equally many.
std::string tables_markdown(const std::vector<MeasuredFile>& files);

}  // namespace stepladder
