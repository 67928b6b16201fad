// Step times over commits: results files in the order of their time, and where their level changed.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/base/section.h"
#include "bench/base/statistics.h"
#include "bench/results/json.h"
#include "bench/results/results.h"

namespace stepladder {

/// What one results file says of a rung on a workload.
struct HistoryPoint {
  std::string file, commit, time;
  Estimate median_step_ms;
  bool changed = false;   // whether the point is the first of a new level
  bool outlier = false;   // whether the point is far off its level
  double level_ms = 0.0;  // median of the level that the point belongs to
};
template <class Archive>
void fields(Archive& a, Any<HistoryPoint> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, file, commit, time)
  estimate_fields(a, "median_step_ms", x.median_step_ms);
  STEPLADDER_EACH(STEPLADDER_FIELD, level_ms, changed, outlier)
}

/// A rung on a workload on a device model, over time. The same rung in another configuration, which compare()
/// refuses, has a series of its own; then the two series name their settings, "dtype fp16, 40 steps".
struct Series {
  std::string device, variant, workload, settings;
  std::vector<HistoryPoint> points;
  Json configuration = {};  // all fields that any of the series' files tells
};
template <class Archive>
void fields(Archive& a, Any<Series> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, device, variant, workload)
  a.if_any("settings", x.settings);
  STEPLADDER_EACH(STEPLADDER_FIELD, points)
}

struct History {
  std::vector<Series> series;
  std::vector<std::string> skipped;  // rows that are left out, and why
};

/// Where a series of logarithms changes its level: the index of the first value of each level but the first.
/// Binary segmentation (Scott and Knott 1974) by medians and Huber's loss, so that single outliers neither
/// hide a change nor make one: a stretch is split where two levels fit it the best, if fewer than 5 % of 999
/// random orders of the stretch (the same ones every time) allow a split as good; then both parts are looked
/// at. Changes of less than `min_size` are then left out, the smallest first. A level has two values at
/// least.
std::vector<size_t> change_points(std::span<const double> values, double min_size);

/// The history that `files`, pairs (name, results), tell. Rows that failed and peers are left out. `min_size`
/// is a ratio less 1.
History history_of(std::vector<std::pair<std::string, Results>> files, double min_size);

/// A section for each series, and what was skipped.
std::vector<Section> sections_of(const History& history);
/// {"schema": .., "kind": "history", "series": [..], "skipped": [..]}
Json to_json(const History& history);

}  // namespace stepladder
