#include "bench/report/page.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "bench/base/text.h"
#include "bench/report/notes.h"
#include "bench/report/profile_report.h"
#include "bench/report/report.h"
#include "bench/report/rows_table.h"
#include "bench/results/configuration.h"
#include "model/error.h"

namespace stepladder {
namespace {

std::string called(const MeasuredFile& file) {
  return file.about.empty() ? file.name : "part " + file.name;
}

/// The files of each device, in the order of the devices' first files.
std::vector<std::vector<const MeasuredFile*>> by_device(const std::vector<MeasuredFile>& files) {
  std::vector<std::vector<const MeasuredFile*>> groups;
  for (const MeasuredFile& file : files) {
    const auto same = [&](const auto& group) { return group.front()->device() == file.device(); };
    const auto there = std::ranges::find_if(groups, same);
    (there == groups.end() ? groups.emplace_back() : *there).push_back(&file);
  }
  return groups;
}

std::vector<NamedFindings> but(const std::vector<const MeasuredFile*>& files, const MeasuredFile* one) {
  std::vector<NamedFindings> others;
  for (const MeasuredFile* file : files)
    if (file != one) others.push_back(file->named());
  return others;
}

/// What a file was measured on; with `main`, the device's first file, only what differs from `main`.
Section environment_of(const MeasuredFile& file, const MeasuredFile* main) {
  const Json device = file.findings.results().device();
  const Json &context = file.findings.results().context, &plan = file.findings.results().plan;
  Section section{.heading = file.name};
  const auto add = [&](const Json& where, const char* key, const char* title) {
    if (!where.is_object() || !where.contains(key) || text_at(where, key).empty()) return;
    const bool bytes = where[key].is_number_integer() && std::string_view(key).ends_with("memory");
    section.facts.push_back(
        {title, bytes ? bytes_text(where[key]) : printable(whole_text_at(where, key), 400)});
  };
  const Results& results = file.findings.results();
  const bool gpu = text_at(device, "backend") != "cpu";
  const bool ours = file.findings.ladder.built_in() ||
                    std::ranges::any_of(results.runs, [](const Run& run) { return !run.peer.empty(); });
  add(device, "name", "device");
  if (gpu) add(device, "compute_capability", "compute capability");
  if (gpu) add(device, "total_memory", "device memory");
  add(device, "driver", "driver's CUDA");
  if (ours) {  // libraries that our rungs use
    add(device, "runtime", "CUDA runtime");
    add(device, "blas", "BLAS");
    if (gpu) add(device, "attention", "flash attention");
  }
  add(device, "uuid", "UUID");
  for (const auto& [name, versions] : versions_told(results)) section.facts.push_back({name, versions});
  std::set<std::string> elsewhere;
  for (const Run& run : results.runs)
    if (run.backend != text_at(device, "backend")) elsewhere.insert(cat(run.variant, ": ", run.backend));
  if (!elsewhere.empty())
    section.facts.push_back(
        {"trained elsewhere", printable(join({elsewhere.begin(), elsewhere.end()}, ", "), 400)});
  for (const auto& [key, title] :
       {std::pair("os", "system"), std::pair("cpu", "CPU"), std::pair("cores", "cores"),
        std::pair("memory", "memory"), std::pair("version", "stepladder"), std::pair("commit", "commit"),
        std::pair("time", "measured"), std::pair("command_line", "command")})
    add(context, key, title);
  const std::string ladder = dump(plan.value("ladder", Json()));
  for (const auto& [key, title] : {std::pair("data", "data"), std::pair("val_data", "validation data"),
                                   std::pair("seed", "seed"), std::pair("lr", "learning rate")})
    if (ours || ladder.find(cat("{", key, "}")) != std::string::npos ||
        ladder.find("{arguments}") != std::string::npos)  // data that no command takes was not trained with
      add(plan, key, title);
  if (!main) return section;
  section.sentences.emplace_back("As above, but");
  const std::vector<Fact> usual = environment_of(*main, nullptr).facts;
  std::erase_if(section.facts, [&](const Fact& fact) {
    return std::ranges::any_of(
        usual, [&](const Fact& other) { return other.title == fact.title && other.value == fact.value; });
  });
  return section;
}

/// A device's rungs on a workload, from the first of its files that has them, and the trainers beside the
/// ladder in the same configuration, from all its files. A trainer that failed in that first file is left
/// out.
std::vector<PlacedRow> device_rows(const std::vector<const MeasuredFile*>& files, const std::string& ladder,
                                   const std::string& workload) {
  std::vector<PlacedRow> rows;
  std::vector<NamedFindings> alike;
  for (const MeasuredFile* file : files)
    if (file->findings.ladder.name == ladder) alike.push_back(file->named());
  std::set<std::string> there, settings;
  const auto add = [&](const Findings& file, const ResultRow& row) {
    if (row.claimable() && (row.numbers->previous || row.numbers->baseline || !row.numbers->peers.empty()))
      rows.push_back({&file, &row, "on " + files.front()->device()});
  };
  for (const NamedFindings& file : alike) {
    if (!there.empty()) break;
    for (const ResultRow& row : file.file->rows)
      if (row.workload == workload && is_rung(row)) {
        there.insert(row.variant);
        settings.insert(settings_of(row.config));
        add(*file.file, row);
      }
  }
  for (const BesideLadder& beside : beside_ladder(alike, workload))
    if (!there.contains(beside.row->variant) && settings.contains(settings_of(beside.row->config)))
      add(*beside.file->file, *beside.row);
  for (PlacedRow& p : rows)
    if (const std::string of = settings_of(p.row->config); !of.empty()) p.measured += ", " + of;
  return rows;
}

/// A ladder's rungs on each device, on the first workload that several devices have.
Section devices_beside_each_other(const std::vector<std::vector<const MeasuredFile*>>& groups) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const auto& group : groups)
    for (const MeasuredFile* file : group)
      for (const ResultRow& row : file->findings.rows) {
        const std::string& ladder = file->findings.ladder.name;
        if (!seen.emplace(ladder, row.workload).second) continue;
        std::vector<PlacedRow> rows;
        int64_t devices = 0;
        for (const auto& other : groups) {
          const std::vector<PlacedRow> of = device_rows(other, ladder, row.workload);
          devices += !of.empty();
          append(rows, of);
        }
        if (devices < 2) continue;
        std::ranges::stable_sort(rows, {}, [](const PlacedRow& p) {
          return std::pair(p.file->ladder.height(p.row->variant), p.row->variant);
        });
        Section section{.heading = "The devices beside each other, " + row.workload};
        section.tables.push_back(rows_table(rows, /*ratios_only=*/true));
        return section;
      }
  return {};
}

/// Each rung's speed-up over the rung before it, as text, by ladder: on the first workload of the files if
/// the rung has one there, else on the first workload where it has one, with that workload's name.
Json gains_of(const std::vector<MeasuredFile>& files) {
  std::string first;
  std::map<std::pair<std::string, std::string>, const ResultRow*> known;
  for (const MeasuredFile& file : files)
    for (const ResultRow& row : file.findings.rows) {
      if (!is_rung(row)) continue;
      if (first.empty()) first = row.workload;
      if (!row.numbers || !row.numbers->previous) continue;
      const auto [there, is_new] =
          known.emplace(std::pair(file.findings.ladder.told_name(), row.variant), &row);
      if (!is_new && row.workload == first && there->second->workload != first) there->second = &row;
    }
  Json gains = Json::object();
  for (const auto& [rung, row] : known)
    gains[rung.first][rung.second] = cat(fixed(row->numbers->previous->ratio.value, 2), "x",
                                         row->workload == first ? "" : " on " + row->workload);
  return gains;
}

int64_t most_rounds(const Findings& file) {
  size_t most = 0;
  for (const ResultRow& row : file.rows) most = std::max(most, row.runs.size());
  return std::min<int64_t>(kLeastRoundsForInterval, static_cast<int64_t>(most));
}

/// The fastest rung that has peers. A rung of 8 bits comes after the fastest rung of 16 bits, in which the
/// peers' GEMMs compute.
std::vector<const ResultRow*> like_the_peers(const Findings& file, const std::string& workload) {
  std::vector<const ResultRow*> rows;
  for (const ResultRow& row : file.rows)
    if (row.workload == workload && row.peer.empty() && row.numbers && !row.numbers->peers.empty())
      rows.push_back(&row);
  std::ranges::stable_sort(rows, {}, [](const ResultRow* row) { return row->numbers->median_step_ms.value; });
  const auto half =
      std::ranges::find_if(rows, [](const auto* row) { return text_at(row->config, "math") == "half"; });
  if (rows.empty()) return rows;
  if (text_at(rows[0]->config, "math") == "fp8" && half != rows.end()) return {*half, rows[0]};
  return {rows[0]};
}

}  // namespace

std::string MeasuredFile::title() const {
  return printable(about.empty() ? name : cat(name, ": ", about), 400);
}

bool of_several_devices(const std::vector<MeasuredFile>& files, const std::vector<TracedFile>& profiles) {
  std::set<std::string> devices;
  for (const MeasuredFile& file : files) devices.insert(file.device());
  for (const TracedFile& file : profiles) {
    Results on;
    on.context = file.profile.value("context", Json::object());
    devices.insert(on.device_model());
  }
  return devices.size() > 1;
}

NamedFindings MeasuredFile::named() const {
  return {name, called(*this), &findings};
}

Section horizons_of(const std::vector<MeasuredFile>& files) {
  std::vector<Certificate> all;
  int64_t having = 0;
  for (const MeasuredFile& file : files) {
    having += !file.findings.certificates.empty();
    for (Certificate c : file.findings.certificates) {
      c.part = file.name;
      all.push_back(std::move(c));
    }
  }
  return having < 2 ? Section() : of_horizons(std::move(all));
}

Json page_json(const std::vector<MeasuredFile>& files, std::vector<TracedFile> profiles,
               const std::string& title) {
  const auto groups = by_device(files);
  const bool mixed = of_several_devices(files, profiles);
  Json page = {{"title", printable(title, 200)},
               {"mixed", mixed},
               {"by_device", devices_beside_each_other(groups).json()},
               {"horizons", horizons_of(files).json()},
               {"gains", gains_of(files)},
               {"files", Json::array()},
               {"profiles", Json::array()}};
  for (const auto& group : groups)
    for (const MeasuredFile* file : group) {
      const MeasuredFile* main = file == group.front() ? nullptr : group.front();
      const Findings& findings = file->findings;
      Section section = section_of(findings, mixed);
      section.facts = facts_of(file->named(), but(group, file), mixed);
      std::string gist = answer_of(findings, mixed).gist;
      if (gist.empty()) gist = "No rung ended well";
      Json sources = Json::object();
      for (const Run& run : findings.results().runs)
        if (findings.ladder.built_in() && run.peer.empty() && !run.source_hash.empty())
          sources[run.variant] = run.source_hash;
      page["files"].push_back({{"name", file->name},
                               {"about", file->about},
                               {"called", called(*file)},
                               {"ladder", findings.ladder.told_name()},
                               {"device", file->device()},
                               {"main", !main},
                               {"gist", mixed ? cat(file->device(), ": ", gist) : gist},
                               {"section", section.json()},
                               {"environment", environment_of(*file, main).json()},
                               {"sources", sources}});
    }
  if (mixed) return page;
  const auto rung = [](const TracedFile& file) {
    return text_at(file.profile.value("profile", Json()), "variant");
  };
  std::ranges::stable_sort(profiles, {}, [&](const TracedFile& file) { return ladder().height(rung(file)); });
  for (const TracedFile& file : profiles)
    page["profiles"].push_back(
        {{"name", file.name}, {"rung", rung(file)}, {"section", section_of_profile(file.profile).json()}});
  return page;
}

std::string tables_markdown(const std::vector<MeasuredFile>& files) {
  constexpr int kLeast = 6;  // least priority of a column that is left out where there is no room
  const MeasuredFile& main = files.front();
  std::vector<const MeasuredFile*> here;
  int64_t most = 0;
  for (const MeasuredFile& file : files)
    if (file.device() == main.device()) most = std::max(most, most_rounds(file.findings));
  for (const MeasuredFile& file : files)
    if (file.device() == main.device() && most_rounds(file.findings) == most) here.push_back(&file);

  std::vector<PlacedRow> beside;
  for (const MeasuredFile* file : here) {
    std::set<std::string> workloads;
    for (const ResultRow& row : file->findings.rows)
      if (world_size(row.config) == 1 && workloads.insert(row.workload).second)
        for (const ResultRow* rung : like_the_peers(file->findings, row.workload))
          beside.push_back({&file->findings, rung, "in " + called(*file)});
  }
  const auto place = [](const PlacedRow& p) {
    return std::tuple(p.row->config.at("B").get<int64_t>(), p.row->workload,
                      p.file->ladder.height(p.row->variant), p.row->variant, p.row->runs.size());
  };
  std::ranges::stable_sort(beside, {}, place);
  std::vector<PlacedRow> once;  // of each rung and workload the row of the most rounds
  for (const PlacedRow& p : beside) {
    const bool again = !once.empty() && once.back().row->variant == p.row->variant &&
                       once.back().row->workload == p.row->workload;
    if (again)
      once.back() = p;
    else
      once.push_back(p);
  }

  const Json device = main.findings.results().device();
  std::vector<std::string> with;
  for (const std::string& of : {text_at(device, "blas"), text_at(device, "attention"), called(main)})
    if (!of.empty()) with.push_back(of);
  std::string text =
      cat("\n", markdown_text(cat(title(main.findings.results()), "; ", join(with, ", "), ".")), "\n\n");
  const auto add = [&](const Table& table) {
    if (!table.empty()) text += table.markdown(kLeast) + "\n";
  };
  const auto first = std::ranges::find_if(main.findings.rows, is_rung);
  const auto to_loss = [&](const MeasuredFile& file) {
    const auto rows = placed(file.findings, [](const ResultRow& row) { return row.to_loss() != nullptr; });
    if (!rows.empty() && &file != &main)
      text += markdown_text(cat("To a validation loss of ", number_text(rows.front().row->to_loss()->loss),
                                ", ", called(file), ":")) +
              "\n\n";
    add(to_loss_table(rows, false));
  };
  to_loss(main);
  add(rows_table(
      placed(main.findings,
             [&](const ResultRow& row) { return is_rung(row) && row.workload == first->workload; }),
      false));
  add(groups_table(main.findings.groups));
  if (!once.empty()) add(rows_table(once, false));
  for (const MeasuredFile* file : here) {
    if (file != &main) to_loss(*file);
    add(ablations_table(file->findings, false));
    add(interactions_table(file->findings.pairs));
  }
  return text;
}

}  // namespace stepladder
