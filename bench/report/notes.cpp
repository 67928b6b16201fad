#include "bench/report/notes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "bench/base/text.h"
#include "bench/report/answer.h"
#include "bench/report/rows_table.h"
#include "bench/results/crossing.h"
#include "bench/results/json.h"
#include "bench/verdict/learning.h"
#include "model/error.h"

namespace stepladder {
namespace {

/// A field of a file; "unknown" where it doesn't say.
std::string known_text(const Json& json, const char* key) {
  return json.contains(key) ? text_at(json, key) : "unknown";
}

/// Whether an environment variable concerns libraries that compute on the CPU alone.
bool of_cpu_libraries(std::string_view variable) {
  return variable.starts_with("OPENBLAS_") || variable.starts_with("MKL_") || variable.starts_with("ONEDNN_");
}

/// How many rounds were measured; before the end of the plan "2 of 6", begun and planned.
std::string rounds_text(const Results& results) {
  const std::string planned = known_text(results.plan, "rounds"), here = cat(results.rounds_begun());
  return results.complete || here == planned ? here : cat(here, " of ", planned);
}

/// The number of runs in a plan; a double, since a file may hold any numbers.
double planned(const Json& plan) {
  const auto size = [&](const char* key) {
    return plan.contains(key) ? static_cast<double>(plan[key].size()) : 0.0;
  };
  const double variants = size("rungs") + size("peers");
  const double own = size("own_batch");  // programs with one batch each
  // Where a rung runs on several numbers of devices, the plan says how many runs a round has.
  const double in_round = number_at(plan, "runs_in_round").value_or((variants - own) * size("batch") + own);
  const auto most = number_at(plan, "max_rounds");  // set by --until-ci
  return in_round * (most ? most : number_at(plan, "rounds")).value_or(0.0);
}

/// The step times of a row on each card or host, if several of one model took part; "" if one did all.
std::string cards_note(const Results& results, const ResultRow* row) {
  const std::set<std::string> cards = results.cards();
  if (cards.size() < 2) return "";
  std::map<std::string, std::vector<double>> ms;
  if (row)
    for (const auto& [round, run] : row->runs)
      ms[results.device_of(*run)].push_back(run->summary->median_step_ms);
  std::vector<std::string> each;
  for (const auto& [card, of] : ms) {
    const auto [least, most] = std::ranges::minmax(of);
    each.push_back(cat(sized(least), of.size() > 1 ? " to " + sized(most) : "", " ms on ",
                       printable(card.substr(0, 12), kMaxCell), " (", counted(std::ssize(of), "round"), ")"));
  }
  const char* what = text_at(results.device(), "backend") == "cpu" ? "host" : "card";
  return cat("Rounds come from ", cards.size(), " ", what, "s", row ? cat("; ", row->variant, ": ") : "",
             join(each, ", "), ". Each round is of one ", what, ", and so is every ratio.");
}

/// Collects notes for the reader.
class Notes {
 public:
  void note(const std::string& text) { lines_.push_back({printable(text, 400), false}); }
  void warn(const std::string& text) { lines_.push_back({printable(text, 400), true}); }
  std::vector<Note> lines() && { return std::move(lines_); }

  /// Adds notes on how to read intervals and the rows of peers.
  void add_legend(const std::vector<ResultRow>& variants) {
    if (const auto fewest = fewest_rounds(variants))
      note(*fewest < kLeastRoundsForInterval ? cat(interval_name(*fewest),
                                                   ": fastest to slowest round; in brackets the chance that "
                                                   "the true median lies between them.")
                                             : "Intervals: 95 %, over rounds.");
    if (!peers_of(variants).empty())
      note(
          "Peers start from weights of their own, so their losses are not compared. Their memory is what "
          "they "
          "report: allocated at most / whole process.");
  }

  /// Adds notes on the measurement as a whole: what stopped it, what ran on our own kernels, what was left
  /// out.
  void add_course(const Results& results, const ResultRow* best) {
    if (const std::string why = whole_text_at(results.device(), "attention"); why.starts_with("native ("))
      warn(cat("Flash attention ran on the project's own kernels: ", why.substr(8, why.size() - 9), "."));
    if (const std::string why = text_at(results.stopped, "reason"); !why.empty() && why != "rounds")
      note(cat("Stopped ", why == "failed" ? "since every rung had failed" : "by " + why, " after ",
               counted(rounds_text(results), "round"), "."));
    if (const std::string cards = cards_note(results, best); !cards.empty()) note(cards);
    if (const std::string busy = busy_note(results.context); !busy.empty()) warn(busy);
    std::vector<std::string> set;
    const Json environment = results.environment();
    const bool on_gpu = text_at(results.device(), "backend") == "cuda";
    for (const auto& item : environment.items())
      if (!on_gpu || !of_cpu_libraries(item.key()))
        set.push_back(cat(printable(item.key(), 60), "=", text_at(environment, item.key())));
    if (!set.empty())
      warn(cat("Measured with ", join(set, ", "),
               " in the environment, which changes what libraries compute, or how: a rung may not be what "
               "its name says."));
    if (!results.complete)
      warn(cat("Unfinished: ", results.runs.size(), " of ", fixed(planned(results.plan), 0),
               " runs are done; the same command with --resume continues."));
    if (const auto asked = number_at(results.plan, "warmup")) {
      const auto late = std::ranges::count_if(results.runs, [&](const Run& run) {
        return run.summary && static_cast<double>(run.summary->warmup_steps) > *asked;
      });
      if (late > 0)
        note(cat("Steps settled late in ", late, " of ", counted(std::ssize(results.runs), "run"),
                 ": there more steps are left out as warm-up than the ", *asked, " planned."));
    }
  }

  void add_rows(const std::vector<ResultRow>& variants, const Ladder& ladder) {
    for (const ResultRow& v : variants) {
      if (!v.numbers) continue;
      const Rung* own = ladder.built_in() || !v.peer.empty() ? nullptr : ladder.listed(v.variant);
      if (const std::string odd = own ? contradicted_math(own->math, v.config) : ""; !odd.empty())
        warn(cat(v.variant, ", ", v.workload, ": ", odd, "."));
      if (v.disturbed_rounds > 0) warn(disturbed_note(v));
      if (const std::string little = little_covered(*v.runs.begin()->second->summary); !little.empty())
        warn(cat(v.variant, ", ", v.workload, ": ", little));
      if (is_ablation(v.variant)) continue;
      if (const auto& compile = v.numbers->compile)
        note(cat(v.variant, ", ", v.workload, ": ", fixed(compile->search_ms, 0), " ms of search (",
                 compile->searched, " GEMMs, ", compile->from_cache, " from the cache), ",
                 fixed(compile->capture_ms, 0), " ms of capture",
                 v.numbers->break_even_steps
                     ? cat("; pays off after ", fixed(*v.numbers->break_even_steps, 0), " steps")
                     : "",
                 "."));
      if (v.numbers->skipped_steps.value_or(0) > 0)
        warn(cat(v.variant, ", ", v.workload, ": ", *v.numbers->skipped_steps,
                 " steps were skipped, fp16 had overflowed."));
    }
  }

  /// Warns of rungs that failed.
  void add_failures(const Results& results, const std::vector<ResultRow>& variants) {
    std::map<std::pair<std::string, std::string>, std::vector<std::string>> failed;
    for (const ResultRow& v : variants)
      if (is_rung(v) && stepladder::failed(v.status))
        failed[{v.workload, name_of(v.status)}].push_back(v.variant);
    for (const Run& run : results.runs)  // these have no row
      if (has_independent_ranks(run.config) && stepladder::failed(run.status))
        add_once(failed[{run.workload(), name_of(run.status)}], run.variant);
    for (const auto& [key, names] : failed)
      warn(cat(key.second, ": ", join(names, ", "), " on ", key.first, ". No speed-up is claimed for ",
               names.size() > 1 ? "them." : "it."));
  }

  /// Warns where training until a loss, or from several seeds, says less than it seems to.
  void add_to_loss(const Findings& file) {
    const bool of_seeds = file.results().by_seeds();
    bool any = of_seeds;
    for (const ResultRow& v : file.rows) {
      if (!v.numbers || !(v.to_loss() || of_seeds)) continue;
      any = true;
      const auto at_first =
          std::ranges::count_if(v.runs, [](const auto& round) { return reached_at_first(*round.second); });
      if (at_first > 0)
        warn(cat(v.variant, ", ", v.workload, ": the loss was reached at the first evaluation in ", at_first,
                 " of ", counted(std::ssize(v.runs), "round"),
                 ", whose steps are not interpolated: evaluate more often."));
      std::set<double> seeds;
      size_t told = 0;
      for (const auto& [round, run] : v.runs)
        if (const auto seed = number_at(run->config, "seed")) ++told, seeds.insert(*seed);
      if (seeds.size() < told)
        warn(cat(v.variant, ", ", v.workload, ": ", told, " runs are of ", counted(std::ssize(seeds), "seed"),
                 ", so that intervals of its steps are too narrow."));
      else if (ignores_seed(v.runs))
        warn(cat(v.variant, ", ", v.workload,
                 ": it learns the same to the bit in several rounds, so it ignores its seed, and intervals "
                 "of its steps say nothing."));
    }
    if (any && has_fixed_order(file.results()))
      warn(
          "The data came in the same order from each seed (no --shuffle), so that intervals of steps are of "
          "initialisation alone.");
  }

  void add_missing_joules(const Results& results) {
    std::map<std::string, std::vector<std::string>> unknown;  // variants of runs without joules, by reason
    for (const Run& run : results.runs)
      if (run.summary && !run.summary->joules_unknown.empty())
        add_once(unknown[run.summary->joules_unknown], run.variant);
    for (const auto& [why, variants] : unknown)
      note(cat("No joules of ", variants.front(), variants.size() > 1 ? " and others: " : ": ", why, "."));
  }

  /// Adds notes on the losses that were not compared and, for the CPU, that only losses tell something there.
  void add_losses(const std::vector<ResultRow>& variants, const Ladder& ladder) {
    const std::string& first = ladder.rungs.front().name;
    std::vector<std::string> alone;  // variants whose losses were not compared
    for (const ResultRow& v : variants) {
      const Rung* rung = v.peer.empty() ? ladder.listed(v.variant) : nullptr;
      if (v.numbers && rung && std::isfinite(rung->tolerance) && v.variant != first && !v.to_loss() &&
          !has_reference(v, variants, first))
        add_once(alone, v.variant);
    }
    if (!alone.empty())
      note(cat("Nothing was compared with the losses of ", join(alone, ", "), ": ", first,
               ", their reference, was not measured on the same model, T and batch."));
    if (ladder.built_in() && std::ranges::any_of(variants, emulates))
      warn(
          "On the CPU reduced precisions are emulated by rounding: their numerics are real, their speed "
          "tells nothing.");
  }

  void add_scaling(const Results& results, const std::vector<ScaledRun>& scaled,
                   const std::vector<PredictedRun>& predicted) {
    // Runs of independent ranks have no row of their own: only the comparison with one device shows them.
    const bool apart = std::ranges::any_of(
        results.runs, [](const Run& run) { return has_independent_ranks(run.config) && run.summary; });
    if (apart &&
        std::ranges::none_of(scaled, [](const ScaledRun& r) { return r.communication_ms.has_value(); }))
      warn(
          "Nothing is said of the runs of --independent-ranks: they are held against one device, which was "
          "not measured in the same rounds: --devices 1,2 measures it too.");
    if (scaled.empty()) return;
    const bool mfu = std::ranges::any_of(
        results.runs, [](const Run& run) { return run.summary && run.summary->mfu_nanogpt; });
    note(cat("On several devices: step time of the slowest rank, tokens of all; ",
             mfu ? "MFU against the peak of all; " : "", "memory of the rank with the most."));
    if (!predicted.empty()) {
      const PredictedRun& last = predicted.back();
      note(cat("Predicted, not measured: ", last.variant, " at B=", last.batch, " on ", last.devices,
               " devices in ", last.machines, " machines at best reaches ", fixed(last.efficiency * 100, 1),
               " % (nominal links, bench/report/scaling_model.h)."));
    }
  }

 private:
  std::vector<Note> lines_;
};

/// "Gains whose 95 % interval excludes 1: 9 of 13 (leave-one-out)."; of fewer rounds, that they tell no small
/// gain; "" where no gain has an interval.
std::string gains_that_exclude_one(const std::vector<AblatedRung>& rows) {
  std::vector<std::string> exclude_one;
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (size_t kind = 0; kind < std::size(kGains); ++kind) {
    int64_t intervals = 0, excluding = 0;
    for (const AblatedRung& row : rows)
      if (const Gain* gain = gains_of(row)[kind]; gain && gain->ok() && gain->worth().interval) {
        ++intervals;
        fewest = std::min(fewest, gain->worth().rounds);
        excluding += !gain->worth().interval->contains(1.0);
      }
    if (intervals > 0) exclude_one.push_back(cat(excluding, " of ", intervals, " (", kGains[kind], ")"));
  }
  if (exclude_one.empty()) return "";
  if (fewest < kLeastRoundsForInterval)
    return cat("Gains of ", fewest, " rounds don't tell a small one from none: --rounds ",
               kLeastRoundsForInterval, " does.");
  std::vector<std::string> nothing;  // rungs none of whose gains excludes 1
  for (const AblatedRung& row : rows)
    if (std::ranges::all_of(gains_of(row), [](const Gain* gain) {
          return !gain || (gain->ok() && gain->worth().interval && gain->worth().interval->contains(1.0));
        }))
      nothing.push_back(row.rung);
  return cat("Gains whose ", interval_name(fewest), " excludes 1: ", join(exclude_one, ", "), ".",
             nothing.empty() ? "" : cat(" None of ", join(nothing, ", "), "."));
}

/// The steps of a run: `--steps`, or where each trainer has its tuned schedule the least and most of these.
std::string steps_of_runs(const Results& results) {
  const bool until_loss = number_at(results.plan, "until_loss").has_value();
  std::map<double, std::string> tuned;
  if (results.plan.contains("tuned"))
    for (const Json& schedule : results.plan["tuned"])
      if (const auto steps = number_at(schedule, "steps")) tuned[*steps] = text_at(schedule, "steps");
  std::string steps = tuned.empty() ? known_text(results.plan, "steps") : tuned.begin()->second;
  if (tuned.size() > 1) steps += " to " + tuned.rbegin()->second;
  return cat(until_loss ? "at most " : "", steps, " steps");
}

}  // namespace

std::string title(const Results& results) {
  std::vector<std::string> workloads;  // as they first appear
  for (const Run& run : results.runs) add_once(workloads, run.workload());
  const std::string commit = known_text(results.context, "commit");
  return cat(results.device_model(), "; ", printable(join(workloads, ", "), 200), "; ",
             counted(rounds_text(results), "round"), " of ", steps_of_runs(results), ", ",
             known_text(results.plan, "warmup"), " left out as warm-up; ",
             known_text(results.context, "time"), commit.empty() ? "" : ", commit " + commit);
}

std::string disturbed_note(const ResultRow& row) {
  return cat(row.variant, ", ", row.workload,
             row.disturbance == "shared"
                 ? ": another process used the device in "
                 : ": heat or the hardware's protection cut the clocks in most steps of ",
             row.disturbed_rounds, " of ", row.rounds, " rounds; ",
             row.disturbed() ? "its times are shown, nothing is claimed on them."
                             : "its numbers are without those rounds.");
}

std::string busy_note(const Json& context) {
  constexpr double kUsual = 0.25;  // cores that any system uses now and then
  double busy = number_at(context, "busy_cores").value_or(0.0);
  const double cores = number_at(context, "cores").value_or(0.0);
  std::string when = "began";
  for (const Json& call : context.value("resumed", Json::array()))
    if (const double then = number_at(call, "busy_cores").value_or(0.0); then > busy)
      busy = then, when = "was resumed";
  if (busy < std::max(kUsual, 0.1 * cores)) return "";
  return cat("Other processes kept ", fixed(busy, 1), " of ", fixed(cores, 0), " cores busy when this ", when,
             ": times are longer and vary more",
             text_at(context.value("device", Json()), "backend") == "cpu"
                 ? "; fewer threads (OMP_NUM_THREADS) leave them room."
                 : ".");
}

std::vector<Note> notes_of(const Findings& file) {
  Notes notes;
  notes.add_legend(file.rows);
  notes.add_course(file.results(), fastest_rung(file));
  notes.add_failures(file.results(), file.rows);
  notes.add_rows(file.rows, file.ladder);
  notes.add_to_loss(file);
  notes.add_missing_joules(file.results());
  notes.add_losses(file.rows, file.ladder);
  notes.add_scaling(file.results(), file.scaled, file.predicted);
  if (const std::string gains = gains_that_exclude_one(file.ablated); !gains.empty()) notes.note(gains);
  return std::move(notes).lines();
}

}  // namespace stepladder
