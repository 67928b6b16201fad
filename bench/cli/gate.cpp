#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>

#include "bench/base/process.h"
#include "bench/base/text.h"
#include "bench/cli/commands.h"
#include "bench/cli/measure.h"
#include "bench/cli/verdict_options.h"
#include "bench/plan/ladder_file.h"
#include "bench/plan/pairs.h"
#include "bench/report/report.h"
#include "bench/report/speedups.h"
#include "bench/results/learns.h"
#include "bench/run/child.h"
#include "bench/run/machine.h"
#include "model/fd.h"

namespace stepladder {
namespace {

namespace fs = std::filesystem;

struct GateOptions {
  std::string base, next;
  int64_t pairs = kMinCertainPairs, max_pairs = 20, repeat = 1;
  std::string max_time;
  std::optional<std::string> results, cache;
  MeasureOptions measure;
  VerdictOptions verdict{kMinCyclesLimit};

  std::vector<Option> options() {
    const char* plan = MeasureOptions::kPlan;
    const std::vector<Option> gate = {
        {"BASE", &base, "", "what to compare with: a build's bin/, or a ladder file"},
        {"NEW", &next, "", "what is judged: the same"},
        {"ladder", &measure.ladder, "FILE", "the ladder file in both BASE and NEW, which are folders then",
         plan},
        {"python", &measure.python, "PATH", "what {python} stands for in a ladder's commands", plan},
        {"pairs", &pairs, "N", "before the first look", plan, {kMinPairs, 1000}},
        {"max-pairs", &max_pairs, "N", "when to give up", plan, {kMinPairs, 1000}},
        {"repeat", &repeat, "N", "times all of it, each with a verdict of its own", plan, {1, 1000}},
        {"max-time", &max_time, "DURATION", "starts no further pair after that: 90s, 20m, 2h", plan},
        {"results", &results, "DIR",
         "base.jsonl, new.jsonl and algorithms/, replaced; default: reports/gate, or reports/gate-2 and so "
         "on "
         "while another gate writes there",
         MeasureOptions::kFiles}};
    std::vector<Option> all = measure.workload_options(gate + measure.device_options()) +
                              measure.loss_options() + verdict.options();
    Option& own = *std::ranges::find(all, "cache", &Option::name);
    own.value = &cache;
    own.help =
        "keeps those found; '': none, each run searches; default: algorithms/ in --results, emptied before";
    return all;
  }
};

/// A side of the gate, BASE or NEW: its path and its rungs.
struct Contender {
  std::string place;
  Ladder ladder;

  bool has(const Rung& rung) const {
    return ladder.built_in() ? is_built(rung, place) : ladder.listed(rung.name) != nullptr;
  }
};

/// The contender at `place`: a build's bin/ or a ladder file, where `ladder_file` is empty or the name of a
/// ladder of ours; else the folder that has this file. Throws InputError.
Contender contender(const std::string& place, const std::string& ladder_file) {
  if (fs::path(ladder_file).is_absolute())
    throw InputError(
        cat("--ladder ", ladder_file, ": BASE and NEW have one each, so name it as both have it"));
  const Ladder* ours = our_ladder(ladder_file.empty() ? ladder().name : ladder_file);
  if (const fs::path file = fs::path(place) / ladder_file; !ours) {
    if (!fs::is_directory(place))
      throw InputError(
          cat(place, " is no folder: with --ladder FILE, BASE and NEW are folders that have the file"));
    if (!fs::exists(file))
      throw InputError(cat(file.string(), " is not there: BASE and NEW both need it, so merge it first"));
    return {place, load_ladder(file)};
  }
  if (kind_of(place) == "results")
    throw InputError(cat(place, ": is a results file; `stepladder compare` takes two of them"));
  if (fs::is_regular_file(place)) return {place, load_ladder(place)};
  if (!fs::is_directory(place))
    throw InputError(cat(place, " is not there: name a build's bin/, or a ladder file"));
  if (std::ranges::none_of(ours->rungs, [&](const Rung& rung) { return is_built(rung, place); }))
    throw InputError(cat(place, " holds no rung: name a build's bin/, or a ladder file"));
  return {place, *ours};
}

/// The chosen rungs that both contenders have. `missing` gets the rungs that only one contender has, and
/// those asked for by name that neither has.
std::vector<Rung> common_rungs(const GateOptions& options, const Contender& base, const Contender& next,
                               std::vector<ComparedRow>& missing) {
  const bool all = options.measure.rungs == std::vector<std::string>{"all"};
  Ladder either = next.ladder;
  for (const Rung& rung : base.ladder.rungs)
    if (!either.listed(rung.name)) either.rungs.push_back(rung);
  std::vector<Rung> rungs;
  for (const Rung& rung : either.chosen(options.measure.rungs)) {
    const bool in_base = base.has(rung), in_next = next.has(rung);
    if (in_base && in_next) {
      rungs.push_back(rung);
    } else if (in_base || in_next || !all) {
      ComparedRow& row = missing.emplace_back();
      row.variant = rung.name;
      row.reason = in_base ? "only in BASE" : in_next ? "only in NEW" : "in neither folder";
    }
  }
  const auto which = texts_of(missing, [](const auto& row) { return cat(row.variant, " is ", row.reason); });
  // A rung asked for by name must be measured: leaving it out would pass what nobody has measured.
  if (!rungs.empty() && !missing.empty() && !all)
    throw Error("not comparable: " + join(which, ", "), kExitNotComparable);
  if (rungs.empty())
    throw Error(cat("not comparable: ", base.place, " and ", next.place, " have no rung in common",
                    which.empty() ? "" : cat(": ", join(which, ", ")), "; a build's rungs are in its bin/"),
                kExitNotComparable);
  return rungs;
}

/// The commit that a build's own `stepladder` names in --version; "" where there is no such program, or the
/// commit is unknown.
std::string commit_of_build(const std::string& bin) {
  std::error_code none;
  if (fs::equivalent(bin, bin_dir(), none)) return build_commit();  // an installed stepladder lies elsewhere
  const std::string says = output_of({fs::path(bin) / "stepladder", "--version"}).value_or("");
  const size_t commit = says.find(kOfCommit);
  if (commit == std::string::npos || !says.ends_with(')')) return "";
  return says.substr(commit + kOfCommit.size(), says.size() - 1 - commit - kOfCommit.size());
}

/// One contender's context.
Json context_of(const Contender& contender, const DeviceProbe& probe) {
  Json context = machine_context(probe);
  context["commit"] =
      contender.ladder.built_in() ? commit_of_build(contender.place) : commit_of(contender.ladder);
  context["bin_dir"] = contender.place;
  return context;
}

Side side_of(const GateOptions& options, const Contender& contender, const std::vector<Rung>& rungs,
             const DeviceProbe& probe, const Plan* other) {
  Side side;
  side.plan.ladder = contender.ladder;
  // NEW gets BASE's workload, and the batch that BASE finds: different work can't be compared.
  if (other) side.plan.ladder.workload = other->ladder.workload;
  for (const Rung& rung : rungs) {
    Program program =
        programs(contender.ladder, {rung.name}, {}, options.measure.python, contender.place).front();
    if (other) program.batch = BatchSize::usual;
    side.plan.programs.push_back(std::move(program));
  }
  complete(side.plan, options.measure, probe);
  // Shuffle as --seeds does: otherwise the order of the data ignores the seed.
  if (options.measure.until_loss) side.plan.settings.shuffle = true;
  if (other) side.plan.own_batch = other->own_batch;
  side.plan.stopping.rounds = options.max_pairs;
  return side;
}

/// Removes the algorithms that earlier gates left in a folder.
void empty_cache(const std::string& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".json") fs::remove(entry.path(), error);
}

/// The folder for the results: the one `named`, or the first of reports/gate, reports/gate-2, ... that no
/// other gate has. No other gate can use it while it is open: it is locked, where its file system has locks.
/// Throws InputError.
std::pair<std::string, Fd> results_folder(const std::optional<std::string>& named) {
  constexpr int kMost = 1000;  // gates at once
  std::string path;
  for (int i = 1; i <= kMost; ++i) {
    path = named.value_or(i == 1 ? "reports/gate" : cat("reports/gate-", i));
    std::error_code error;
    fs::create_directories(path, error);
    Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.open())  // the folder is missing if it could not be made
      throw InputError(
          cat(path, ": ", error ? error.message() : std::strerror(errno), "; name another --results"));
    if (::flock(folder.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
      return {path, std::move(folder)};
    if (named) break;
  }
  throw InputError(cat(path, " is being written by another gate: wait for it, or name another --results"));
}

/// Measures pairs until every row has a verdict, the pairs are used up, or it is too late to start another.
Comparison measure(const GateOptions& options, const Side& base, const Side& next, PairedRuns& pairs,
                   const Limits& limits, const std::function<bool()>& too_late) {
  const auto first = static_cast<size_t>(options.pairs);
  Looks looks(first, static_cast<size_t>(options.max_pairs), limits);
  for (;;) {
    pairs.measure_pair();
    if (pairs.pairs() == 1 && limits.until_loss) require_comparable_steps(base.results, next.results);
    if (pairs.pairs() == 1 && !limits.until_loss) require_comparable(base.results, next.results);
    // The losses of so few steps are compared one by one, so that the first pair tells.
    if (base.plan.settings.steps <= int64_t{kShortRun}) {
      Limits early = limits;
      early.final = false;
      for (const ComparedRow& row : compare(base.results, next.results, early).rows)
        if (row.verdict == Verdict::failed) pairs.set_done({row.variant, row.workload});
    }
    const bool late = too_late();
    const bool final = late || pairs.exhausted();
    if (pairs.pairs() < first && !final) continue;
    Comparison comparison = looks.look(base.results, next.results, pairs.pairs(), final);
    for (const ComparedRow& row : comparison.rows)
      if (!undecided(row.verdict) || (row.learning && !row.learning->no_interval.empty()))
        pairs.set_done({row.variant, row.workload});  // nothing more to tell
    if (!late && !pairs.exhausted()) continue;
    if (late && (pairs.pairs() < first || undecided(overall(comparison.rows))))
      comparison.notes.push_back(
          cat("--max-time was up after ", counted(static_cast<int64_t>(pairs.pairs()), "pair"), "."));
    return comparison;
  }
}

/// The line "20 comparisons: 19 PASS, 1 INCONCLUSIVE."
std::string tally(const std::vector<ComparedRow>& rows) {
  std::map<Verdict, int64_t> counts;
  for (const ComparedRow& row : rows) ++counts[row.verdict];
  const auto text = [](const auto& count) { return cat(count.second, " ", name_of(count.first)); };
  return cat(counted(std::ssize(rows), "comparison"), ": ", join(texts_of(counts, text), ", "), ".");
}

/// Adds to `all` the rows of `more`, and the notes that `all` doesn't have yet.
void add(Comparison& all, const Comparison& more) {
  append(all.rows, more.rows);
  for (const std::string& note : more.notes) add_once(all.notes, note);
  all.base = more.base;
  all.next = more.next;
  all.device = more.device;
}

/// Whether `file` holds results that another command than `gate` has measured.
bool holds_other_results(const std::string& file) try {
  return !is_of_a_gate(load_results(file));
} catch (const Error&) {  // no file, or a damaged one
  return false;
}

/// Prepares a side for a repetition: empty results, and a new file for them. Throws InputError.
void begin(Side& side, const std::string& file, const std::string& cache, Json context,
           const VerdictOptions& verdict) {
  side.results = {};
  side.plan.settings.cache = cache;
  side.results.context = std::move(context);
  side.results.plan = side.plan.json();
  side.results.complete = true;
  verdict.check_apart(file);
  check_same_kind(file, "results", "name another --results");
  if (holds_other_results(file))
    throw InputError(cat(file, " holds what no gate has measured: name another --results"));
  side.file = std::make_unique<ResultsFile>(file, side.results.context, side.results.plan,
                                            Existing::overwrite, "", "gate again");
}

/// Checks that both ladders are ours, or both are ladder files, and that their names are equal. Throws Error.
void require_same_kind(const GateOptions& options, const Contender& base, const Contender& next) {
  if (base.ladder.built_in() != next.ladder.built_in())
    throw Error(cat("not comparable: one of ", options.base, " and ", options.next, " is a ladder file"),
                kExitNotComparable);
  if (base.ladder.name != next.ladder.name)
    throw Error(cat("not comparable: BASE's ladder is ", base.ladder.name, ", NEW's ", next.ladder.name,
                    ": two builds of one ladder have its name"),
                kExitNotComparable);
}

int gate(GateOptions& options) {
  if (options.max_pairs < options.pairs)
    throw InputError(cat("--max-pairs ", options.max_pairs, " is less than --pairs ", options.pairs));
  std::optional<double> max_time;
  if (!options.max_time.empty()) max_time = duration_s(options.max_time);
  if (options.cache) options.measure.rung.cache = *options.cache;
  std::vector<ComparedRow> missing;
  const Contender base_contender = contender(options.base, options.measure.ladder),
                  next_contender = contender(options.next, options.measure.ladder);
  require_same_kind(options, base_contender, next_contender);
  const std::vector<Rung> rungs = common_rungs(options, base_contender, next_contender, missing);
  const DeviceProbe probe = require_device(options.measure.rung.backend, options.measure.rung.device);
  Side base = side_of(options, base_contender, rungs, probe, nullptr);
  Side next = side_of(options, next_contender, rungs, probe, &base.plan);
  if (const auto& was = base.plan.settings.model, &is = next.plan.settings.model; was != is)
    throw Error(
        cat("not comparable: BASE trains ", *was, ", NEW ", *is, ": the two ladders have other models"),
        kExitNotComparable);
  const auto [folder, lock] = results_folder(options.results);
  options.verdict.check_files();
  const InterruptGuard guard;
  const auto start = std::chrono::steady_clock::now();
  const auto too_late = [&] { return max_time && ms_since(start) * 1e-3 > *max_time; };
  const Limits limits =
      options.verdict.limits(options.measure.until_loss, context_of(base_contender, probe), base.plan.json());
  Comparison comparison;
  std::exception_ptr stopped;
  for (int64_t time = 1; time <= options.repeat; ++time) {
    const std::string place = options.repeat == 1 ? folder : cat(folder, "/", time);
    // Sides whose timed code is equal share a file of GEMM algorithms, since the luck of two searches would
    // otherwise count as a change; other sides have a file each.
    const std::string cache = options.cache.value_or(place + "/algorithms");
    const Json context = context_of(base_contender, probe);
    Json other = context_of(next_contender, probe);
    other["time"] = context["time"];  // equal times tell `compare` that one gate measured both
    PairedRuns pairs(base, next);
    try {
      begin(base, cat(place, "/base.jsonl"), cache, context, options.verdict);
      begin(next, cat(place, "/new.jsonl"), cache, std::move(other), options.verdict);
      if (!options.cache) empty_cache(cache);
      Comparison one = measure(options, base, next, pairs, limits, too_late);
      for (ComparedRow& row : one.rows) row.repetition = options.repeat == 1 ? 0 : time;
      add(comparison, one);
    } catch (const std::exception&) {  // the verdicts of earlier repetitions stand
      if (time == 1) {
        if (const size_t kept = pairs.pairs(); kept > 0)
          notice(cat(kept, kept == 1 ? " finished pair is" : " finished pairs are", " kept: `",
                     shell_line({"stepladder", "compare", place + "/base.jsonl", place + "/new.jsonl"}),
                     "` compares them"));
        throw;
      }
      stopped = std::current_exception();
      comparison.notes.push_back(cat("Stopped after ", time - 1, " of ", options.repeat, " times."));
      break;
    }
    try {
      base.file->finish();
      next.file->finish();
    } catch (const Error&) {  // the verdict stands
      stopped = std::current_exception();
      break;
    }
    if (too_late() && time < options.repeat) {
      comparison.notes.push_back(cat("--max-time was up after ", time, " of ", options.repeat, " times."));
      break;
    }
  }
  if (options.repeat > 1) comparison.notes.push_back(tally(comparison.rows));
  const auto of_other_batch = [&](const Rung& rung) {
    const Rung* was = base_contender.ladder.listed(rung.name);  // `rung` is NEW's
    return was && was->batch != rung.batch;
  };
  if (base_contender.ladder.workload != next_contender.ladder.workload ||
      std::ranges::any_of(rungs, of_other_batch))
    comparison.notes.emplace_back(
        "NEW's ladder asks for another workload or batch: both were measured alike.");
  comparison.notes.push_back(cat("The runs are kept in ", folder, "."));
  comparison.base = cat(options.base, ", ", comparison.base);
  comparison.next = cat(options.next, ", ", comparison.next);
  append(comparison.rows, missing);
  if (const std::string busy = busy_note(base.results.context); !busy.empty())
    comparison.notes.push_back(busy);
  const int exit_code = options.verdict.deliver(std::move(comparison), limits);
  if (stopped) std::rethrow_exception(stopped);
  return exit_code;
}

}  // namespace

Command gate_command() {
  return command<GateOptions>("gate",
                              "measures two builds, alternating, until it is clear whether one is slower, "
                              "or reaches a loss sooner",
                              gate, kUsualOptions);
}

}  // namespace stepladder
