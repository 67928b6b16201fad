#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <set>

#include "bench/base/json_fields.h"
#include "bench/base/place.h"
#include "bench/base/process.h"
#include "bench/base/text.h"
#include "bench/cli/commands.h"
#include "bench/cli/measure.h"
#include "bench/plan/ladder_file.h"
#include "bench/plan/plan.h"
#include "bench/plan/presets.h"
#include "bench/results/file.h"
#include "bench/results/json.h"
#include "bench/run/child.h"
#include "bench/run/counters.h"
#include "bench/run/machine.h"
#include "bench/run/placeholders.h"
#include "bench/run/progress.h"
#include "model/nearest.h"

namespace stepladder {
namespace {

constexpr const char* kMaxTime = "max-time";
constexpr double kPartGrace = 30.0;  // seconds that a part may take to end after SIGTERM
constexpr const char* kWayOut = "--overwrite starts again, --out names another file";

/// The commands that a part may run.
std::vector<Command> measuring_commands() {
  return {run_command(), ablate_command(), profile_command()};
}

struct CampaignOptions {
  static constexpr const char* kCampaign = "Campaign";

  std::string plan = kCampaignPlan, out = "reports/latest/campaign.jsonl", max_time;
  std::vector<std::string> parts, peers;
  bool dry_run = false, overwrite = false, retry_failed = false;
  MeasureOptions measure;

  /// The options that all parts share: on which ladder, model, data and device to measure.
  std::vector<Option> shared() {
    static const std::set<std::string> names = {"preset", "ladder", "python", "peer",
                                                "model",  "seq",    "timeout"};
    static const std::set<std::string> groups = {RungSettings::kData, RungSettings::kTraining,
                                                 RungSettings::kDevice, RungSettings::kOps,
                                                 RungSettings::kSearch};
    std::vector<Option> options =
        measure.workload_options(measure.ladder_options() + std::vector<Option>{peer_option(peers)});
    std::erase_if(options, [](const Option& option) {
      return !names.contains(option.name) && !groups.contains(option.group);
    });
    return options;
  }
  std::vector<Option> options() {
    return std::vector<Option>{
               {"plan", &plan, "FILE", "its parts, the most valuable first", kCampaign},
               {"parts", &parts, "LIST", "those to measure, by name; default: all", kCampaign},
               {"out", &out, "FILE", "results file of all parts", kCampaign},
               {kMaxTime, &max_time, "DURATION", "of this call: 90m, 2h; the same command then goes on",
                kCampaign},
               {"dry-run", &dry_run, "", "list the parts, and about how long each takes", kCampaign},
               {"retry-failed", &retry_failed, "", "run again what failed in a part", kCampaign},
               {"overwrite", &overwrite, "", "measure the parts again, each in place of the one in FILE",
                kCampaign},
               Progress::quiet_option(kCampaign)} +
           shared();
  }
};

bool is_option(const std::string& word, const std::string& name) {
  return word == "--" + name || word.starts_with("--" + name + "=");
}

/// Whether a command line has the option.
bool has_option(const std::vector<std::string>& words, const std::string& name) {
  return std::ranges::any_of(words, [&](const std::string& word) { return is_option(word, name); });
}

/// The value that a command line gives the option; the last one counts, empty is none.
std::string value_of(const std::vector<std::string>& words, const std::string& name) {
  std::string value;
  for (size_t i = 0; i < words.size(); ++i)
    if (is_option(words[i], name)) {
      const size_t equals = words[i].find('=');
      value = equals == std::string::npos ? words.at(i + 1) : words[i].substr(equals + 1);
    }
  return value;
}

/// Seconds of a part's own --max-time; infinite where it has none.
double own_limit_s(const std::vector<std::string>& words) {
  const std::string limit = value_of(words, kMaxTime);
  return limit.empty() ? INFINITY : duration_s(limit);
}

constexpr const char* kCounts =
    "{devices}";  // in a part's --devices; stands for 2, 4 and so on, up to all devices here

/// A command line without the options for device, Python, timeout and peers.
std::vector<std::string> what_is_measured(const std::vector<std::string>& words) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < words.size(); ++i) {
    const auto is = [&](const char* name) { return is_option(words[i], name); };
    if (std::ranges::none_of(std::array{"peer", "python", "backend", "device", "timeout"}, is))
      kept.push_back(words[i]);
    else if (words[i].find('=') == std::string::npos)
      ++i;
  }
  return kept;
}

struct PlannedPart {
  std::string name, about;
  std::vector<std::string> words;  // the part's command, with the shared options
  int64_t devices = 1;             // how many the part needs
  std::vector<int64_t> counts{};   // what kCounts stands for
  bool chosen = true;              // by --parts

  bool takes_counts() const { return line("") != words; }
  std::vector<std::string> line() const {
    std::string list;
    for (const int64_t count : counts) list += cat(list.empty() ? "" : ",", count);
    return line(list);
  }
  std::string command() const { return shell_line(line()); }
  bool is_measured_by(const std::string& other) const {
    return what_is_measured(line()) == what_is_measured(shell_words(other));
  }
  std::string title() const { return about.empty() ? name : cat(name, ": ", about); }
  std::string lacks() const { return cat("needs ", devices, " devices"); }
  bool profile() const { return words.front() == "profile"; }
  /// The ladder of the part's trainers, which may be its preset's.
  Ladder ladder() const {
    MeasureOptions asked;
    asked.ladder = value_of(words, "ladder"), asked.preset = value_of(words, "preset");
    return asked.ladder_asked();
  }

 private:
  std::vector<std::string> line(const std::string& list) const {
    std::vector<std::string> all = words;
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i] == cat("--devices=", kCounts) || (all[i] == kCounts && i > 0 && all[i - 1] == "--devices"))
        all[i] = filled(all[i], {{"devices", list}});
    return all;
  }
};

/// `words`, followed by the options for all parts, as far as `command` takes them and `words` lacks them.
/// --peer is added only with `peers`.
std::vector<std::string> with_shared(std::vector<std::string> words, const Command& command, bool peers,
                                     CampaignOptions options) {
  CampaignOptions usual;
  auto given = options.shared(), defaults = usual.shared();
  for (std::vector<Option>* shared : {&given, &defaults})
    std::erase_if(*shared, [&](const Option& option) {
      return has_option(words, option.name) || (!peers && option.name == "peer") ||
             std::ranges::find(command.options, option.name, &Option::name) == command.options.end();
    });
  append(words, arguments_of(given, defaults));
  return words;
}

/// Carries out a part's command line in this process.
void carry_out_here(const std::vector<std::string>& words, const std::vector<Command>& commands) {
  std::vector<const char*> argv = {"stepladder"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  run_command_line({"stepladder", "", {}, {}}, version(), static_cast<int>(argv.size()), argv.data(),
                   commands);
}

/// Parses a part's command line as its command would, and does nothing. Throws InputError.
void check_command(const std::vector<std::string>& words, std::vector<Command> commands) {
  for (Command& command : commands) command.run = [owner_of_options = command.run] { return int{kExitOk}; };
  carry_out_here(words, commands);
}

/// Whether a profile's --counters can be counted here.
bool can_count(const DeviceProbe& probe) try {
  if (probe.device.backend == "cpu") return false;
  find_ncu();
  return true;
} catch (const InputError&) {
  return false;
}

PlannedPart part_from(const Json& json, const CampaignOptions& options, int64_t devices_here) {
  if (!json.is_object()) throw InputError("is no object");
  check_keys(json, {"name", "about", "command", "devices", "peers"});
  PlannedPart part{.name = text_at(json, "name"), .about = text_at(json, "about"), .words = {}};
  const auto plain = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; };
  if (part.name.empty() || !std::ranges::all_of(part.name, plain))
    throw InputError("needs a \"name\" of letters, digits, - and _");
  part.words = shell_words(field_if<std::string>(json, "command").value_or(""));
  const std::vector<Command> commands = measuring_commands();
  const auto measures =
      std::ranges::find(commands, part.words.empty() ? "" : part.words.front(), &Command::name);
  if (measures == commands.end())
    throw InputError("needs a \"command\" that begins with run, ablate or profile");
  for (const char* ours : {"out", "resume", "retry-failed", "overwrite", "quiet", "help"})
    if (has_option(part.words, ours)) throw InputError(cat("--", ours, " is not for a part to say"));
  if (std::ranges::any_of(part.words, [](const std::string& word) { return word.starts_with("-h"); }))
    throw InputError("-h is not for a part to say");
  part.devices = field_if<int64_t>(json, "devices").value_or(1);
  if (part.devices < 1) throw InputError("\"devices\" is how many it needs");
  part.counts = device_counts(devices_here);
  const bool peers = field_if<bool>(json, "peers").value_or(true);
  part.words = with_shared(std::move(part.words), *measures, peers, options);
  check_command(part.line(), commands);
  own_limit_s(part.words);
  return part;
}

/// Sets PlannedPart::chosen for the parts that --parts names, or for all without --parts. Throws InputError
/// for a name that no part has.
void choose(std::vector<PlannedPart>& parts, const CampaignOptions& options) {
  for (const std::string& name : options.parts)
    if (std::ranges::find(parts, name, &PlannedPart::name) == parts.end()) {
      const auto names = texts_of(parts, &PlannedPart::name);
      throw InputError(cat("--parts ", name, ": no part of ", options.plan, " is called that",
                           suggestion(name, names, cat("there are ", join(names, ", ")))));
    }
  for (PlannedPart& part : parts)
    part.chosen = options.parts.empty() || std::ranges::find(options.parts, part.name) != options.parts.end();
}

/// The parts in the plan's file. Throws InputError naming the file, the part and what is wrong with it.
std::vector<PlannedPart> parts_of(const CampaignOptions& options, const DeviceProbe& probe) {
  const std::string path = here_or_shared(options.plan);
  const Json json = load_json_of("a campaign's plan, a list of parts", path, &Json::is_array);
  if (json.empty()) throw InputError(cat(path, ": is an empty list, which is no campaign's plan"));
  std::vector<PlannedPart> parts;
  for (size_t i = 0; i < json.size(); ++i) {
    const std::string name = json[i].is_object() ? text_at(json[i], "name") : "";
    const auto wrong = [&](const std::string& what) {
      return InputError(cat(path, ": part ", i + 1, name.empty() ? "" : cat(" (", name, ")"), ": ", what));
    };
    try {
      parts.push_back(part_from(json[i], options, probe.devices));
    } catch (const InputError& e) {
      throw wrong(e.what());
    }
    if (std::ranges::count(parts, name, &PlannedPart::name) > 1) throw wrong("another part has that name");
  }
  choose(parts, options);
  // Where nothing counts, a profile is worth having without counters.
  const auto counts = [](const PlannedPart& part) { return has_option(part.words, "counters"); };
  if (std::ranges::any_of(parts, counts) && !can_count(probe))
    for (PlannedPart& part : parts) std::erase(part.words, "--counters");
  return parts;
}

/// Checks that the ablations are built if a part needs them, since that part might begin hours later. Throws
/// InputError.
void check_built(const std::vector<PlannedPart>& parts) {
  const std::filesystem::path bin = bin_dir();
  std::error_code none;
  for (const PlannedPart& part : parts)
    if (part.chosen && part.words.front() == "ablate" && !has_option(part.words, "ladder") &&
        !std::filesystem::exists(bin / "ablations", none))
      throw InputError(cat(part.name, ": ", (bin / "ablations").string(), " is not there: cmake --build ",
                           bin.parent_path().string(), " --target ablations builds it"));
}

/// The command line that measured a part, without "stepladder", and without --out and what follows it.
std::string command_of(const Part& part) {
  std::vector<std::string> words = shell_words(whole_text_at(part.results.context, "command_line"));
  words.erase(std::ranges::find_if(words, [](const std::string& word) { return is_option(word, "out"); }),
              words.end());
  if (!words.empty()) words.erase(words.begin());  // stepladder
  return shell_line(words);
}

/// A campaign: its plan, the parts that its results file has so far, and how the others are measured.
class Campaign {
 public:
  /// Reads what the results file has. Throws InputError for a damaged file and, except in a dry run, Error
  /// with kExitNotComparable for results of another commit or kind of device; with --overwrite neither.
  Campaign(const CampaignOptions& options, std::vector<PlannedPart> parts, const DeviceProbe& probe)
      : options_(options), parts_(std::move(parts)), context_(machine_context(probe)) {
    try {
      look();
      for (const PlannedPart& part : parts_)
        if (const Part* there = find(part)) check(part, *there);
    } catch (const Error& e) {
      if (!options.overwrite && (!options.dry_run || e.code() != kExitNotComparable)) throw;
      if (!options.overwrite) notice(e.what());
      other_ = true;
    }
    if (other_ || options.overwrite) return;
    // A part that was measured on other numbers of devices goes on with those numbers.
    for (PlannedPart& part : parts_) {
      const Part* there = find(part);
      const Json measured = there ? there->results.plan.value("devices", Json()) : Json();
      if (!part.takes_counts() || !measured.is_array() || measured.empty() ||
          !std::ranges::all_of(measured, &Json::is_number_integer))
        continue;
      part.counts = measured.get<std::vector<int64_t>>();
      part.devices = std::max(part.devices, std::ranges::max(part.counts));
    }
  }

  int carry_out(int64_t devices) {
    const InterruptGuard guard;
    start_ = std::chrono::steady_clock::now();
    int worst = kExitOk;
    size_t left_out = 0;
    for (const PlannedPart& part : parts_) {
      if (!part.chosen) continue;
      check_interrupted();
      if (!options_.overwrite && done(part)) {
        if (!Progress::quiet) notice(part.name + ": done");
      } else if (part.devices > devices) {
        skip(part);
      } else if (left_s() <= 0) {
        ++left_out;
      } else {
        worst = std::max(worst, measure(part));
      }
    }
    std::cout << "wrote " << printable(options_.out, kMaxMessage) << "\n";
    if (left_out > 0)
      notice(cat("--max-time left no time for ", left_out, " of ", chosen(), " parts: ", goes_on()));
    return worst;
  }

  /// Errors that parts not yet begun would meet hours later: rungs, batches or data that are missing.
  std::vector<std::string> problems(int64_t devices) const {
    std::vector<std::string> all;
    for (const PlannedPart& part : parts_) {
      if (!part.chosen || part.profile() || part.devices > devices || find(part)) continue;
      try {
        std::vector<std::string> words = part.line();
        words.push_back(cat("--", kCheckOnly));
        carry_out_here(words, measuring_commands());
      } catch (const Error& e) {
        all.push_back(cat("part ", part.name, ": ", e.what()));
      }
    }
    return all;
  }

  /// A list of what each chosen part measures and about how long it takes. The time is from this file, else
  /// from the campaign that comes with the sources, whose model of device is named if it is another one.
  std::string listing(int64_t devices) {
    std::string text;
    double sum = 0.0, sum_elsewhere = 0.0;
    bool all_known = true;
    const auto [kept, elsewhere] = kept_campaign();
    for (const PlannedPart& part : parts_) {
      if (!part.chosen) continue;
      const bool ready = !other_ && !options_.overwrite && done(part),
                 skipped = !ready && part.devices > devices;
      auto about = seconds_of(part);
      const auto before = about || skipped || ready ? std::nullopt : seconds_before(kept, part);
      if (elsewhere.empty() && before) about = before;
      if (!skipped && !ready) sum += about.value_or(0.0), all_known &= about.has_value();
      if (!about) sum_elsewhere += before.value_or(0.0);
      text += cat(part.name, ": ", part.about, "\n  ",
                  skipped  ? "skipped: " + part.lacks()
                  : ready  ? "done"
                  : about  ? "about " + duration_text(*about)
                  : before ? cat("unknown how long; on an ", elsewhere, " ", duration_text(*before))
                           : "unknown how long",
                  "\n  stepladder ", printable(part.command(), kMaxMessage), "\n");
    }
    return text +
           cat(counted(chosen(), "part"), ": ", sum > 0 ? "about " + duration_text(sum) : "unknown how long",
               sum > 0 && !all_known ? ", and those not known" : "",
               sum_elsewhere > 0 ? cat("; on an ", elsewhere, " these take ", duration_text(sum_elsewhere))
                                 : "",
               "\n");
  }

 private:
  /// Reads the file at --out, if there is one. Throws InputError where it isn't a results file, or is
  /// damaged.
  void look() {
    std::error_code none;
    if (!std::filesystem::exists(options_.out, none)) return;
    try {
      there_ = load_measured_parts(options_.out);
    } catch (const InputError& e) {
      throw InputError(cat(e.what(), "; ", kWayOut));
    }
  }

  const Part* find(const PlannedPart& part) const {
    const auto found = std::ranges::find(there_, part.name, &Part::name);
    return found == there_.end() || !found->skipped.empty() ? nullptr : &*found;
  }

  /// Checks that the campaign may go on with a part in the file. Throws Error with kExitNotComparable if the
  /// part was measured by another build or on another kind of device, or if its trainers have changed.
  void check(const PlannedPart& part, const Part& there) const {
    const std::string what = cat(options_.out, ":", part.name);
    const Json& context = there.results.context;
    const bool own = context.contains("stepladder_commit");
    require_same(what, "commit", text_at(context, own ? "stepladder_commit" : "commit"), build_commit(),
                 kWayOut);
    require_same(what, "device", text_at(there.results.device(), "name"), device_name(), kWayOut);
    if (!own) return;
    const Ladder ladder = part.ladder();
    require_same(what, "the trainers' commit", text_at(context, "commit"),
                 ladder.built_in() ? "" : commit_of(ladder), kWayOut);
    if (ladder.built_in()) return;
    const Json measured = there.results.plan.value("source_hashes", Json::object());
    Json now = Json::object();
    for (const Program& trainer : programs(ladder, {"all"}, {}, options_.measure.python))
      if (measured.contains(trainer.variant)) now[trainer.variant] = trainer.source_hash();
    require_same_sources(what, there.results, now, options_.retry_failed);
  }

  std::string goes_on() const {
    return options_.overwrite ? "without --overwrite the same command goes on" : "the same command goes on";
  }
  int64_t chosen() const { return std::ranges::count(parts_, true, &PlannedPart::chosen); }
  std::string device_name() const { return text_at(context_.value("device", Json()), "name"); }

  /// Whether nothing of the part is left to measure.
  bool done(const PlannedPart& part) const {
    const Part* there = find(part);
    if (!there || there->exit_code != kExitOk || command_of(*there) != part.command()) return false;
    if (!there->profile.is_null()) return true;
    if (!there->results.complete) return false;
    // A part that ended at a call's --max-time, shorter than the part's own, isn't done.
    const auto limit = number_at(there->results.plan, "max_time_s");
    return text_at(there->results.stopped, "reason") != "max_time" ||
           (limit && *limit >= own_limit_s(part.words));
  }

  double left_s() const {
    if (options_.max_time.empty()) return INFINITY;
    return duration_s(options_.max_time) - ms_since(start_) * 1e-3;
  }

  void skip(const PlannedPart& part) {
    notice(cat(part.name, ": skipped: ", part.lacks()));
    const auto there = std::ranges::find(there_, part.name, &Part::name);
    if (there == there_.end())
      ResultsFile(options_.out, context_, Json::object(), Existing::resume, part.title()).skip(part.lacks());
  }

  /// Runs the part's command, which resumes what the file has of the part. Returns its exit code.
  int measure(const PlannedPart& part) {
    std::vector<std::string> command = {"/proc/self/exe"};
    append(command, part.line());
    append(command, {"--out", options_.out, "--part", part.title()});
    if (!part.profile()) command.emplace_back(options_.overwrite ? "--overwrite" : "--resume");
    if (!part.profile() && options_.retry_failed) command.emplace_back("--retry-failed");
    if (const double left = left_s(); !part.profile() && std::isfinite(left)) {
      const Part* there = options_.overwrite ? nullptr : find(part);
      const double spent = there ? spent_s(there->results) : 0.0;
      if (spent + left < own_limit_s(part.words))  // the last --max-time counts
        append(command, {cat("--", kMaxTime), fixed(spent + left, 3)});
    }
    if (Progress::quiet)
      command.emplace_back("--quiet");
    else
      notice(cat(part.name, ": ", part.command()));
    const Job job = {.processes = {{command}}, .grace_s = kPartGrace, .passes_errors_on = true};
    ChildEnd end;
    try {
      end = run_job(job, Channel::out, 1e9, [](size_t, std::string_view) { return true; }).end;
    } catch (const Interrupted&) {
      notice(cat("interrupted in part ", part.name, ": ", goes_on()));
      throw;
    }
    const bool killed = end.how != ChildEnd::How::exited;
    const bool stopped = killed || end.code > 128;  // a signal stopped the part; the campaign goes on
    const int code = stopped ? kExitFailed : end.code;
    if (killed)
      notice(cat(part.name, " was killed by ", signal_name(end.code), ": ", goes_on()));
    else if (code != kExitOk)
      notice(cat(part.name, " ended with exit code ", end.code,
                 stopped ? ": " + goes_on()
                 : code == kExitNotComparable
                     ? cat(": --overwrite --parts ", part.name, " measures that part from its beginning")
                 : code == kExitFailed ? ": --retry-failed runs again what failed in it"
                                       : ""));
    there_.clear();
    look();
    return code;
  }

  /// Expected seconds for the rounds of the part that are left, or for the whole part if it will be measured
  /// anew; nothing where no round ran on this model of device.
  std::optional<double> seconds_of(const PlannedPart& part) const {
    const Part* there = find(part);
    if (!there || text_at(there->results.device(), "name") != device_name()) return {};
    if (part.profile()) return there->wall_s;
    const Results& results = there->results;
    const int64_t begun = results.rounds_begun();
    const Json rounds = results.plan.value("rounds", Json());
    if (begun == 0 || !rounds.is_number_integer()) return {};
    const double whole = spent_s(results) * static_cast<double>(rounds) / static_cast<double>(begun);
    return other_ || options_.overwrite ? whole : std::max(0.0, whole - spent_s(results));
  }
  /// The campaign that comes with the sources for this model of device, else one for another model and that
  /// model's name; empty where there is none.
  std::pair<std::vector<Part>, std::string> kept_campaign() const {
    std::pair<std::vector<Part>, std::string> kept;
    std::error_code none;
    for (const auto& folder : std::filesystem::directory_iterator(shared_dir() + "/reports", none)) {
      const std::string path = folder.path() / "results.jsonl.gz";
      if (!std::filesystem::exists(path, none)) continue;
      std::vector<Part> parts = load_measured_parts(path);
      const std::string device = parts.empty() ? "" : text_at(parts.front().results.device(), "name");
      if (device == device_name()) return {std::move(parts), ""};
      if (kept.second < device) kept = {std::move(parts), device};
    }
    return kept;
  }
  /// Seconds that the part took in another campaign, peers counted only if they are asked for; nothing where
  /// that campaign's part measured something else.
  static std::optional<double> seconds_before(const std::vector<Part>& campaign, const PlannedPart& part) {
    for (const Part& of : campaign) {
      if (of.name != part.name || !of.skipped.empty() || !part.is_measured_by(command_of(of))) continue;
      if (part.profile()) return of.wall_s;
      Results results = of.results;
      if (!has_option(part.words, "peer"))
        std::erase_if(results.runs, [](const Run& run) { return !run.peer.empty(); });
      return spent_s(results);
    }
    return {};
  }

  const CampaignOptions& options_;
  std::vector<PlannedPart> parts_;                                                  // all parts of the plan
  const Json context_;                                                              // of this machine
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();  // when measuring began
  std::vector<Part> there_;                                                         // the parts in the file
  bool other_ = false;  // the file is of another build or device
};

int campaign(CampaignOptions& options) {
  if (!options.max_time.empty()) duration_s(options.max_time);
  if (options.overwrite && options.retry_failed)
    throw InputError("--overwrite and --retry-failed contradict each other");
  const DeviceProbe probe = require_device(options.measure.rung.backend, options.measure.rung.device);
  options.measure.preset = preset_for(options.measure.preset, probe.device).name;  // once, for all parts
  const Ladder ladder = ladder_at(options.measure.ladder);
  std::vector<PlannedPart> parts = parts_of(options, probe);
  if (!options.dry_run) check_built(parts);
  Campaign campaign(options, std::move(parts), probe);
  const std::vector<std::string> problems = campaign.problems(probe.devices);
  if (!options.dry_run && !problems.empty())
    throw InputError(cat(problems.front(), "; --parts names others"));
  if (!options.dry_run) return campaign.carry_out(probe.devices);
  std::cout << campaign.listing(probe.devices) << std::flush;
  if (options.plan == kCampaignPlan && ladder.built_in() && probe.device.backend == "cpu")
    notice(
        "these parts are sized for a GPU, and there is none here: all of them take days. --parts LIST "
        "measures some, --plan FILE is one of your own");
  for (const std::string& problem : problems) notice(problem);
  return kExitOk;
}

}  // namespace

Command campaign_command() {
  return command<CampaignOptions>("campaign",
                                  "run a plan of commands into one file, from which a device's page is made",
                                  campaign, kUsualOptions);
}

}  // namespace stepladder
