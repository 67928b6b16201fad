#include "bench/verdict/history.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <queue>
#include <ranges>
#include <set>
#include <tuple>

#include "bench/base/table.h"
#include "bench/base/text.h"
#include "bench/results/configuration.h"
#include "bench/results/rounds.h"
#include "bench/results/writer.h"
#include "model/error.h"
#include "model/random.h"

namespace stepladder {
namespace {

constexpr size_t kShortest = 2;  // fewest values of a level
constexpr int kOrders = 999;
constexpr double kSignificance = 0.05;
constexpr double kDeviations = 1.4826;  // standard deviation / median distance, for normal noise
constexpr double kOutlier = 5.0;        // standard deviations from the level

/// The standard deviation of the noise, from the median step between neighbouring values, which changes of
/// level and outliers hardly move.
double noise_of(std::span<const double> values) {
  std::vector<double> steps;
  for (size_t i = 1; i < values.size(); ++i) steps.push_back(std::abs(values[i] - values[i - 1]));
  return kDeviations * median(steps) / std::numbers::sqrt2;
}

/// Item k tells how badly one level fits the first k values: by their distances from their median, squared
/// within the noise and linear beyond it (Huber 1964), so that an outlier's misfit grows only in proportion
/// to its distance.
std::vector<double> misfits(std::span<const double> values, double noise) {
  std::vector<double> sorted, misfits = {0.0};
  for (const double value : values) {
    sorted.insert(std::ranges::upper_bound(sorted, value), value);
    const double level = (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
    double sum = 0.0;
    for (const double one : sorted) {
      const double off = std::abs(one - level);
      sum += off < noise ? off * off / (2 * noise) : off - noise / 2;
    }
    misfits.push_back(sum);
  }
  return misfits;
}

/// The level at which the values stayed: their median. Of two values in the middle the level is the one
/// nearer to the last value, so that it is always a value that was measured.
double level_of(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  const double low = sorted[(sorted.size() - 1) / 2], high = sorted[sorted.size() / 2];
  return std::abs(values.back() - low) <= std::abs(values.back() - high) ? low : high;
}

struct Split {
  size_t at = 0;
  double gain = 0.0;  // how much better two levels fit than one
};

Split best_split(std::span<const double> values, double noise) {
  const std::vector<double> before = misfits(values, noise),
                            after = misfits(std::vector<double>(values.rbegin(), values.rend()), noise);
  Split best;
  for (size_t k = kShortest; k + kShortest <= values.size(); ++k)
    if (const double gain = before.back() - before[k] - after[values.size() - k]; gain > best.gain)
      best = {k, gain};
  return best;
}

/// Whether a random order of the values would seldom allow a split as good.
bool significant(std::span<const double> values, const Split& split, double noise) {
  constexpr uint64_t kSeed = 1337;  // the same orders every time
  std::vector<double> shuffled(values.begin(), values.end());
  uint64_t counter = 0;
  int as_good = 1;  // the order as measured
  for (int i = 0; i < kOrders && as_good < kSignificance * (kOrders + 1); ++i) {
    for (size_t k = shuffled.size() - 1; k > 0; --k)  // Fisher and Yates
      std::swap(shuffled[k],
                shuffled[static_cast<size_t>(random_uniform(kSeed, counter++) * static_cast<double>(k + 1))]);
    as_good += best_split(shuffled, noise).gain >= split.gain * (1 - 1e-9);
  }
  return as_good < kSignificance * (kOrders + 1);
}

void segment(std::span<const double> values, size_t offset, std::vector<size_t>& changes) {
  if (values.size() < 2 * kShortest) return;
  const double noise = noise_of(values);
  const Split split = best_split(values, noise);
  if (split.at == 0 || !significant(values, split, noise)) return;
  segment(values.first(split.at), offset, changes);
  changes.push_back(offset + split.at);
  segment(values.subspan(split.at), offset + split.at, changes);
}

/// The level of each stretch between changes.
std::vector<double> levels_of(std::span<const double> values, const std::vector<size_t>& changes) {
  std::vector<double> levels;
  for (size_t i = 0, begin = 0; i <= changes.size(); ++i) {
    const size_t end = i < changes.size() ? changes[i] : values.size();
    levels.push_back(level_of(values.subspan(begin, end - begin)));
    begin = end;
  }
  return levels;
}

/// Marks changes of level, and outliers: points off their level by more than `min_size`, and by more than
/// five standard deviations of all points from their levels, estimated by the median distance.
void mark_changes(Series& series, double min_size) {
  std::vector<double> logs, off;
  for (const HistoryPoint& point : series.points) logs.push_back(std::log(point.median_step_ms.value));
  const std::vector<size_t> changes = change_points(logs, std::log1p(min_size));
  for (size_t at : changes) series.points[at].changed = true;
  const std::vector<double> levels = levels_of(logs, changes);
  for (size_t i = 0, level = 0; i < logs.size(); ++i) {
    level += series.points[i].changed;
    series.points[i].level_ms = std::exp(levels[level]);
    off.push_back(std::abs(logs[i] - levels[level]));
  }
  const double most = std::max(std::log1p(min_size), kOutlier * kDeviations * median(off));
  for (size_t i = 0; i < logs.size(); ++i) series.points[i].outlier = off[i] > most;
}

/// "d1b55d577ceb", or "abc0000-dirty".
std::string short_commit(const std::string& commit) {
  const size_t end = std::min(commit.find('-'), commit.size());
  return commit.substr(0, std::min<size_t>(end, 12)) + commit.substr(end);
}

/// "+2.1 %" for a point that starts a new level, compared with the level before, and "outlier +9.8 %" for a
/// point that lies off its level.
std::string change_text(const Series& series, size_t at) {
  const HistoryPoint& point = series.points[at];
  std::string text;
  if (point.changed) text = percent_of(std::log(point.level_ms / series.points[at - 1].level_ms), 1) + " %";
  if (point.outlier)
    text += cat(text.empty() ? "" : "; ", "outlier ",
                percent_of(std::log(point.median_step_ms.value / point.level_ms), 1), " %");
  return text;
}

/// Adds to the settings of each series of one variant, workload and device the fields that differ among them;
/// clears the settings of a series that is alone.
void name_settings(std::vector<Series*> alike) {
  if (alike.size() == 1) return alike.front()->settings.clear();
  std::map<std::string, std::set<std::string>> told;  // fields that differ, by their last name
  for (const Series* series : alike)
    for (const Series* other : alike)
      for (const Difference& d : differences(series->configuration, other->configuration))
        told[d.field.substr(d.field.find('.') + 1)].insert(d.field);
  for (Series* series : alike) {
    const std::string usual = cat(", ", series->settings, ",");
    for (const auto& [name, fields] : told) {
      std::string words = name, value;
      std::ranges::replace(words, '_', ' ');
      for (const std::string& field : fields)
        if (value.empty()) value = text_at(series->configuration, field);
      if (value.empty()) value = "none";
      const std::string text = name == "steps" ? value + " steps" : cat(words, " ", value);
      if (usual.find(cat(", ", text, ",")) == usual.npos)
        series->settings += cat(series->settings.empty() ? "" : ", ", text);
    }
  }
}

/// "13_cuda_graphs, gpt2 B=16 T=1024, 30 steps; NVIDIA H200".
std::string name_of(const Series& series) {
  return printable(cat(series.variant, ", ", series.workload, series.settings.empty() ? "" : ", ",
                       series.settings, "; ", series.device),
                   300);
}

Table table_of(const Series& series) {
  int64_t fewest = 0;
  for (const HistoryPoint& p : series.points)
    if (const auto& ms = p.median_step_ms; ms.interval)
      fewest = fewest == 0 ? ms.rounds : std::min(fewest, ms.rounds);
  Table table({{.title = "time", .align = Align::left},
               {.title = "commit", .align = Align::left},
               {.title = "median", .unit = "ms"},
               {interval_name(fewest)},
               {.title = "level", .unit = "ms", .meaning = "the median between two changes"},
               {.title = "change", .meaning = "of the level, or of an outlier off it"},
               {.title = "file", .align = Align::left}});
  for (size_t i = 0; i < series.points.size(); ++i) {
    const HistoryPoint& p = series.points[i];
    table.add({p.time, short_commit(p.commit), sized(p.median_step_ms.value), interval_text(p.median_step_ms),
               sized(p.level_ms), change_text(series, i), p.file});
  }
  return table;
}

}  // namespace

std::vector<size_t> change_points(std::span<const double> values, double min_size) {
  std::vector<size_t> changes;
  segment(values, 0, changes);
  while (!changes.empty()) {
    const std::vector<double> levels = levels_of(values, changes);
    std::vector<double> sizes;
    for (size_t i = 0; i < changes.size(); ++i) sizes.push_back(std::abs(levels[i + 1] - levels[i]));
    const auto least = std::ranges::min_element(sizes);
    if (*least >= min_size) break;
    changes.erase(changes.begin() + (least - sizes.begin()));
  }
  return changes;
}

History history_of(std::vector<std::pair<std::string, Results>> files, double min_size) {
  std::ranges::sort(files, {}, [](const auto& file) {
    return std::pair(text_at(file.second.context, "time"), file.first);
  });
  History history;
  std::map<std::tuple<std::string, std::string, std::string>, std::string> measured;  // by time and card
  for (const auto& [name, results] : files) {
    const std::string model = results.device_model(), time = text_at(results.context, "time");
    const auto [same, is_new] =
        measured.emplace(std::tuple(time, model, text_at(results.device(), "uuid")), name);
    if (!is_new && !time.empty()) {
      history.skipped.push_back(cat(name, ": the same measurement as ", same->second));
      continue;
    }
    for (const ResultRow& row : rows_of(results)) {
      if (!row.numbers || !row.peer.empty()) continue;
      if (row.disturbed()) {
        history.skipped.push_back(cat(row.variant, ", ", row.workload, " in ", name, ": the device was ",
                                      row.disturbance, " in every round"));
        continue;
      }
      Json configuration = configuration_of(results);
      configuration.update(configuration_of(*row.runs.begin()->second));
      auto series = std::ranges::find_if(history.series, [&](const Series& s) {
        return s.device == model && s.variant == row.variant && s.workload == row.workload &&
               differences(s.configuration, configuration).empty();
      });
      if (series == history.series.end()) {
        std::string settings = settings_of(row.config);
        if (row.config.contains("steps"))
          settings += cat(settings.empty() ? "" : ", ", text_at(row.config, "steps"), " steps");
        series =
            history.series.insert(history.series.end(), {model, row.variant, row.workload, settings, {}, {}});
      }
      series->configuration.update(configuration);
      series->points.push_back({name, text_at(results.context, "commit"), time, row.numbers->median_step_ms});
    }
  }
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<Series*>> alike;
  for (Series& series : history.series) {
    alike[{series.device, series.variant, series.workload}].push_back(&series);
    mark_changes(series, min_size);
  }
  for (const auto& [key, several] : alike) name_settings(several);
  return history;
}

std::vector<Section> sections_of(const History& history) {
  std::vector<Section> sections;
  Table once({{.title = "rung, workload and device", .align = Align::left},
              {.title = "time", .align = Align::left},
              {.title = "commit", .align = Align::left},
              {.title = "median", .unit = "ms"},
              {.title = "file", .align = Align::left}});
  for (const Series& series : history.series) {
    if (series.points.size() > 1) {
      sections.push_back({.heading = name_of(series), .tables = {table_of(series)}});
    } else {
      const HistoryPoint& p = series.points.front();
      once.add({name_of(series), p.time, short_commit(p.commit), sized(p.median_step_ms.value), p.file});
    }
  }
  if (!once.empty()) sections.push_back({.heading = "Measured once", .tables = {once}});
  if (history.skipped.empty()) return sections;
  for (Section& none = sections.emplace_back(); const std::string& skipped : history.skipped)
    none.notes.push_back({"skipped " + printable(skipped, 400)});
  return sections;
}

Json to_json(const History& history) {
  return {{"schema", kSchema},
          {"kind", "history"},
          {"series", Writer::write(history.series)},
          {"skipped", history.skipped}};
}

}  // namespace stepladder
