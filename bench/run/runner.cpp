#include "bench/run/runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <filesystem>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "bench/base/peak.h"
#include "bench/base/process.h"
#include "bench/base/statistics.h"
#include "bench/base/text.h"
#include "bench/results/json.h"
#include "bench/run/child_report.h"
#include "bench/run/machine.h"
#include "bench/run/ranks.h"
#include "model/config.h"
#include "model/flops.h"

namespace stepladder {
namespace {

/// Marks the warm-up and sums up the rest. Throws std::logic_error on an MFU over 1.
Summary summarize(Run& run, const ChildReport& report, const Workload& workload) {
  std::vector<double> ms;
  for (const Step& step : run.steps) ms.push_back(step.step_ms);
  const size_t warmup = warmup_steps(ms, static_cast<size_t>(workload.warmup));
  for (size_t i = 0; i < warmup; ++i) run.steps[i].warmup = true;
  const std::span<const double> timed = std::span(ms).subspan(warmup);

  Summary summary = report.summary;
  summary.median_step_ms = median(timed);
  summary.p10_step_ms = quantile(timed, 0.1);
  summary.p90_step_ms = quantile(timed, 0.9);
  summary.first_step_ms = ms.front();
  summary.warmup_steps = static_cast<int64_t>(warmup);
  if (!run.evaluations.empty() && run.evaluations.back().step == std::ssize(run.steps))
    summary.val_loss = report.val_loss;
  std::vector<double> cycles;
  for (const Step& step : std::span(run.steps).subspan(warmup)) {
    if (step.cycles) cycles.push_back(*step.cycles);
    if (const auto throttled = step.device.throttled())
      summary.throttled_steps = summary.throttled_steps.value_or(0) + *throttled;
  }
  if (!cycles.empty()) summary.cycles = median(cycles);
  if (summary.throttled_steps)
    summary.throttled = 2 * *summary.throttled_steps > std::ssize(run.steps) - summary.warmup_steps;

  const double tokens = tokens_of(run.config);
  summary.tokens_per_second = tokens / (summary.median_step_ms * 1e-3);
  if (workload.until_loss.value_or(0.0) > 0.0)
    summary.to_loss = {.loss = *workload.until_loss,
                       .reached = report.reached(),
                       .steps = std::ssize(run.steps),
                       .seconds = std::accumulate(ms.begin(), ms.end(), 0.0) * 1e-3,
                       .tokens = tokens * static_cast<double>(ms.size()),
                       .joules = {}};
  if (!workload.program.native && report.between_arrivals_ms > 0.0)
    summary.covered = std::min(1.0, report.in_steps_ms / report.between_arrivals_ms);
  const std::string model = run.config.at("model");
  if (const auto& models = Config::names(); std::ranges::find(models, model) == models.end()) return summary;
  Config config = Config::named(model);
  config.B = run.config.at("B");
  config.T = run.config.at("T");
  DeviceInfo device = workload.device;
  if (const int as = workload.program.native ? run.config.value("compute_capability", 0) : 0; as > 0)
    device.compute_capability = std::min(device.compute_capability, as);  // the capability that it ran as
  auto peak = workload.program.math ? gemm_peak(device, *workload.program.math) : std::nullopt;
  if (peak) *peak *= static_cast<double>(workload.devices);
  const FlopsPerToken flops = report.flops ? *report.flops : flops_per_token(config);
  summary.mfu_nanogpt = mfu(flops.nanogpt, summary.tokens_per_second, peak);
  summary.mfu_llmc = mfu(flops.llmc, summary.tokens_per_second, peak);
  return summary;
}

// ---- several devices

/// The ranks' runs as one: rank 0's, with the slowest rank's time for each step.
void merge(Run& run, const std::vector<Run>& parts, const std::deque<ChildReport>& reports) {
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const Run& part = parts[rank];
    const ChildReport& report = reports[rank];
    Rank& row = run.ranks.emplace_back();
    row.rank = static_cast<int64_t>(rank);
    row.host = report.host;
    row.device = report.device;
    row.memory = report.summary.memory;
    row.memory.by_name.clear();  // rank 0's names stand for all
    for (const Step& step : part.steps) row.step_ms.push_back(step.step_ms);
    for (size_t i = 0; i < std::min(run.steps.size(), part.steps.size()); ++i) {
      Step& step = run.steps[i];
      step.step_ms = std::max(step.step_ms, part.steps[i].step_ms);
      step.cycles = std::max(step.cycles, part.steps[i].cycles);
      if (part.steps[i].device.throttled().value_or(false)) step.device = part.steps[i].device;
    }
  }
}

/// The energy of all devices, each counted once, and whether another process used one of them.
void add_energy(Summary& summary, std::vector<Rank>& ranks, const std::vector<Run>& parts,
                const std::deque<ChildReport>& reports) {
  std::set<std::pair<std::string, std::string>> counted;  // ranks on the CPU of a machine share one device
  double joules = 0.0;
  std::optional<double> to_loss = 0.0;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const auto energy = reports[rank].energy();
    if (!energy) return;
    if (energy->shared) summary.shared = summary.shared.value_or(false) || *energy->shared;
    if (!counted.emplace(reports[rank].host, reports[rank].device).second) continue;
    StepEnergy used = energy_of(parts[rank].steps, static_cast<size_t>(summary.warmup_steps));
    if (energy->unknown == kMixed || energy->unknown == kStill)
      used.joules.reset();  // drop all steps' energy: steps may have been reported late
    if (!used.joules && summary.joules_unknown.empty())
      summary.joules_unknown = energy->unknown.empty() ? used.unknown : energy->unknown;
    joules += used.joules.value_or(0.0);
    if (!ranks.empty()) ranks[rank].joules = used.joules;
    const auto& in_all = parts[rank].steps.back().energy_j;
    to_loss = to_loss && in_all && *in_all > 0.0 ? std::optional(*to_loss + *in_all) : std::nullopt;
  }
  if (summary.joules_unknown.empty()) summary.joules = joules;
  if (summary.to_loss) summary.to_loss->joules = to_loss;
}

void merge(Summary& summary, std::vector<Rank>& ranks, const std::vector<Run>& parts) {
  for (Rank& rank : ranks) {
    for (auto peak : {&Memory::live_peak, &Memory::reserved_peak, &Memory::process_peak})
      summary.memory.*peak = std::max(summary.memory.*peak, rank.memory.*peak);
    std::vector<double> mhz, watts;
    const std::span<const Step> steps = parts[static_cast<size_t>(rank.rank)].steps;
    for (const Step& step : steps.subspan(static_cast<size_t>(summary.warmup_steps))) {
      if (step.device.sm_mhz) mhz.push_back(static_cast<double>(*step.device.sm_mhz));
      if (step.device.power_w) watts.push_back(*step.device.power_w);
    }
    if (!mhz.empty()) rank.sm_mhz = median(mhz);
    if (!watts.empty()) rank.power_w = median(watts);
  }
}

/// The job to start for a run; `launched` are its ranks, where a launcher starts them.
Job job_of(const Workload& workload, std::optional<LaunchedRanks>& launched) {
  const std::string channel = std::to_string(static_cast<int>(Channel::events));
  const Program& program = workload.program;
  Job::Process process{
      .command = workload.command, .environment = workload.environment, .folder = program.folder};
  if (program.native)
    append(process.command, {"--events", channel});
  else if (!program.starts_ranks())
    process.environment.push_back("STEPLADDER_EVENTS=" + channel);
  if (launched) {
    AgentOptions rank{
        .folder = process.folder.empty() ? std::filesystem::current_path().string() : process.folder,
        .backend = workload.backend,
        .clocks = !program.native,
        .due = workload.energy_due()};
    if (!process.environment.empty()) rank.command = {"env"};  // a launcher might not pass the environment on
    for (const auto* words : {&process.environment, &process.command}) append(rank.command, *words);
    return job_of_launcher(workload.launcher, std::move(rank), workload.devices, *launched);
  }
  if (program.starts_ranks()) return job_of_command(process, workload.devices);
  if (workload.devices == 1) return {.processes = {process}};
  return job_of_ranks(process, workload.devices);
}

/// A run as it is asked for, before any of it has happened.
Run asked_for(const Workload& workload) {
  Run run;
  run.variant = workload.program.variant;
  run.peer = workload.program.peer;
  run.source_hash = workload.source_hash;
  run.backend = workload.backend;
  run.round = workload.round;
  run.config = workload.config;
  run.device = identity_of(workload.device);
  return run;
}

// ---- how a run ended

struct Ending {
  Status status = Status::ok;
  std::string reason;
};

Ending reported_failure(const ChildReport::Failure& failure) {
  for (Status status : {Status::oom, Status::unsupported, Status::diverged})
    if (failure.status == name_of(status)) return {status, failure.reason};
  return {Status::crash, failure.reason};
}

/// The first error of a `stepladder rank` in a launcher's stderr, else the launcher's last words, in
/// parentheses; "" where there are none.
std::string launcher_words(const ChildEnd& end) {
  constexpr std::string_view kError = "stepladder: error: ";
  if (const size_t at = end.stderr_tail.find(kError); at != std::string::npos)
    return ChildEnd{.stderr_tail = end.stderr_tail.substr(at, end.stderr_tail.find('\n', at) - at)}
        .last_words();
  return end.last_words();
}

/// The ranks of a run, one for each device: their reports, and the run that they add up to.
class RanksOfRun {
 public:
  /// Each rank's report fills a copy of `run`, the run as requested.
  RanksOfRun(const Workload& workload, const Run& run, const std::function<void(const Step&)>& on_step)
      : workload_(workload), parts_(static_cast<size_t>(workload.devices), run) {
    for (size_t rank = 0; rank < parts_.size(); ++rank)
      reports_.emplace_back(parts_[rank], workload, rank, on_step);
  }

  /// Starts the ranks, and listens until all have ended. Throws BadReport, CannotStart.
  JobEnd carry_out() {
    if (workload_.has_launcher()) launched_.emplace(parts_.size(), workload_.launcher);
    Job job = job_of(workload_, launched_);
    if (launched_) job.failed = [this] { return any_failed() || launched_->failure(); };
    // A launcher should end the other ranks once a rank has failed, but Open MPI's may deadlock over it.
    job.finished = [this] {
      return any_failed() || first_with_error() || std::ranges::all_of(reports_, &ChildReport::ended);
    };
    return run_job(job, Channel::events, workload_.timeout_s, [this](size_t from, std::string_view line) {
      rank_ = from;
      reports_[from].take(line);
      if (reports_[from].exit) exits_.push_back(from);
      return true;
    });
  }

  /// How the run ended, by the rank that is to blame.
  Ending ending_of_all(const JobEnd& job_end) {
    last_words_ = job_end.end.stderr_tail;
    const auto how = job_end.end.how;
    const bool by_itself = how == ChildEnd::How::exited || how == ChildEnd::How::signalled;
    if ((launched_ || workload_.command_starts_ranks()) && by_itself && !any_failed())
      if (auto left = left_by_launcher(job_end.end)) {
        names_itself_ = true;
        return *left;
      }
    ChildEnd end;
    std::tie(rank_, end) = blamed(job_end);
    Ending ending = ending_of(end, rank_);
    if (const auto& exit = reports_[rank_].exit; exit && !exit->stderr_tail.empty())
      last_words_ = exit->stderr_tail;
    for (size_t other = 0; ending.status == Status::ok && other < parts_.size(); ++other)
      ending = ending_of(end, rank_ = other);
    return ending;
  }

  /// Checks the reports of ranks that all ended well, after `took_ms`. Throws BadReport where a rank's steps
  /// took longer than that, or ranks trained differently.
  void check(double took_ms) const {
    for (const ChildReport& report : reports_) report.check_steps(took_ms);
    for (size_t rank = 1; rank < parts_.size(); ++rank)  // until a loss, ranks choose when to stop
      if (parts_[rank].steps.size() != parts_[0].steps.size())
        throw BadReport(cat("ranks made different numbers of steps: rank 0 ", parts_[0].steps.size(),
                            ", rank ", rank, " ", parts_[rank].steps.size()));
    const auto with = [&](size_t rank, const char* key) {
      const std::string of = text_at(parts_[rank].config, key);
      return cat(name_of(rank), " with ", key, "=", of.empty() ? "none" : of);
    };
    for (const char* key : {"model", "dtype", "math", "max_T", "V", "L", "NH", "C", "data", "versions"})
      for (size_t rank = 1; rank < parts_.size(); ++rank)
        if (text_at(parts_[0].config, key) != text_at(parts_[rank].config, key))
          throw BadReport(cat("ranks train differently: ", with(0, key), ", ", with(rank, key)));
  }

  const Run& first() const { return parts_[0]; }
  /// The ranks' runs as one.
  Run together() {
    Run run = parts_[0];
    for (size_t rank = 0; launched_ && rank < parts_.size(); ++rank)
      if (reports_[rank].host.empty()) reports_[rank].host = launched_->hosts()[rank];
    if (parts_.size() > 1) merge(run, parts_, reports_);
    return run;
  }
  /// Adds the summary to a run of together(), where all ranks ended well.
  void sum_up(Run& run) const {
    run.summary = summarize(run, reports_[0], workload_);
    merge(*run.summary, run.ranks, parts_);
    add_energy(*run.summary, run.ranks, parts_, reports_);
  }

  bool through_launcher() const { return launched_.has_value(); }
  /// The last words on stderr of the rank that is to blame.
  const std::string& last_words() const { return last_words_; }
  /// `reason`, with the name of the rank to blame in front if there are several ranks. A reason that names a
  /// rank itself is left as it is.
  std::string named(const std::string& reason) const {
    if (parts_.size() == 1 || reason.empty() || reason.starts_with("rank ") || reason.starts_with("ranks ") ||
        names_itself_)
      return reason;
    return cat(name_of(rank_), ": ", reason);
  }

 private:
  /// "rank 1 (node02)".
  std::string name_of(size_t rank) const {
    const std::string host = launched_ ? launched_->hosts()[rank] : "";
    return cat("rank ", rank, host.empty() ? "" : cat(" (", host, ")"));
  }
  bool any_failed() const { return std::ranges::any_of(reports_, &ChildReport::failed); }
  /// The first rank that sent an error event.
  std::optional<size_t> first_with_error() const {
    for (size_t rank = 0; rank < reports_.size(); ++rank)
      if (reports_[rank].error) return rank;
    return std::nullopt;
  }
  /// The rank with the fewest steps among those that have not told their end.
  size_t furthest_behind() const {
    size_t rank = 0;
    for (size_t r = 1; r < parts_.size(); ++r)
      if (!reports_[r].ended && (reports_[rank].ended || parts_[r].steps.size() < parts_[rank].steps.size()))
        rank = r;
    return rank;
  }
  Ending ending_of(const ChildEnd& end, size_t rank) const;
  std::pair<size_t, ChildEnd> blamed(const JobEnd& job_end) const;
  std::optional<Ending> left_by_launcher(const ChildEnd& end) const;

  const Workload& workload_;
  std::vector<Run> parts_;           // a run for each rank
  std::deque<ChildReport> reports_;  // a report for each rank
  std::vector<size_t> exits_;        // ranks in the order of their ends
  size_t rank_ = 0;                  // the rank heard last, or to blame
  bool names_itself_ = false;        // the reason says who is to blame
  std::optional<LaunchedRanks> launched_;
  std::string last_words_;
};

/// How one rank ended. Only rank 0 has the loss. Throws InputError where a native program refused its
/// options.
Ending RanksOfRun::ending_of(const ChildEnd& end, size_t rank) const {
  const ChildReport& report = reports_[rank];
  const Run& run = parts_[rank];
  std::string last = end.last_words();
  if (last.find("No module named 'stepladder'") != std::string::npos)
    last += "; the harness puts it on PYTHONPATH, which the trainer's command or environment replaces";
  else if (last.find("No module named '") != std::string::npos && workload_.program.takes_python)
    last += "; use --python to name a Python that has it";
  const std::string torn = end.torn ? "; its last line has no newline, without which it is no event" : "";
  const auto crash = [&](const auto&... what) { return Ending{Status::crash, cat(what..., torn, last)}; };
  switch (end.how) {
    case ChildEnd::How::timed_out:
      if (report.error) return reported_failure(*report.error);
      return {Status::timeout, cat("killed after ", number_text(workload_.timeout_s), " s at step ",
                                   run.steps.size(), " of ", workload_.steps, "; --timeout allows more")};
    case ChildEnd::How::signalled:
      if (report.error) return reported_failure(*report.error);  // as after an uncaught exception
      return crash("killed by ", signal_name(end.code), " at step ", run.steps.size(), " of ",
                   workload_.steps);
    case ChildEnd::How::stopped:
      return crash("stopped by a signal at step ", run.steps.size(), " of ", workload_.steps);
    case ChildEnd::How::refused:
      return crash("too long a line on its event stream");
    case ChildEnd::How::exited:
      break;
  }
  if (end.code == kExitUsage && workload_.program.native)
    throw InputError(report.error ? report.error->reason
                                  : cat(workload_.program.variant, " refused its options", last));
  if (report.error) return reported_failure(*report.error);
  if (workload_.is_failure(end.code)) return crash("exit status ", end.code);
  if (!report.started)
    return workload_.command_starts_ranks()
               ? crash("it told nothing: no start came at the path that STEPLADDER_EVENTS_", rank, " names")
               : crash(
                     "it told nothing: does it call stepladder.start()? No start came on the file descriptor "
                     "that STEPLADDER_EVENTS names");
  if (!report.ended)
    return crash("ended without reporting its end, after ", run.steps.size(), " of ", workload_.steps,
                 " steps");
  if (static_cast<int64_t>(run.steps.size()) != workload_.steps && !report.reached())
    return crash("reported ", run.steps.size(), " of ", workload_.steps, " steps");
  if (std::ssize(run.steps) <= workload_.warmup)
    return crash("reached the loss after ", run.steps.size(), " steps, of which --warmup ", workload_.warmup,
                 " leaves none to time: lower it, or --until-loss");
  for (const Step& step : run.steps)
    if (rank == 0 && !step.loss)
      return {Status::diverged, cat("step ", step.step, ": the loss is not finite")};
  for (const Evaluation& evaluation : run.evaluations)
    if (!evaluation.val_loss)
      return {Status::diverged, cat("the validation loss after step ", evaluation.step, " is not finite")};
  return {};
}

/// The rank to blame for the end of a job, and how that rank ended.
std::pair<size_t, ChildEnd> RanksOfRun::blamed(const JobEnd& job_end) const {
  const ChildEnd& end = job_end.end;
  // A rank that a signal ended is to blame, even if others noticed its end and exited first.
  auto rank =
      std::ranges::find_if(exits_, [&](size_t r) { return reports_[r].exit->how != ChildEnd::How::exited; });
  if (rank == exits_.end())
    rank = std::ranges::find_if(exits_, [&](size_t r) { return reports_[r].exit->code != 0; });
  const auto told = first_with_error();
  if (end.how == ChildEnd::How::timed_out) return {told.value_or(furthest_behind()), end};
  if (end.how == ChildEnd::How::refused) return {job_end.refused, end};
  // The exit status of a command that starts the ranks belongs to no rank.
  if (told && !launched_ && workload_.command_starts_ranks())
    return {*told, {ChildEnd::How::exited, kExitFailed, end.stderr_tail}};
  if (rank != exits_.end()) return {*rank, *reports_[*rank].exit};
  const size_t process = job_end.process;
  const bool none = end.how == ChildEnd::How::exited && end.code == kExitOk && !reports_[process].error;
  return {none ? told.value_or(process) : process, end};  // a rank that told an error need not have exited
}

/// The ending of a job whose launcher, or command that starts ranks, is to blame: a rank did not connect, or
/// had not told its end. Nothing where it is not to blame.
std::optional<Ending> RanksOfRun::left_by_launcher(const ChildEnd& end) const {
  if (const auto failure = launched_ && !end.lingered ? launched_->failure() : std::nullopt) {
    const bool met = !launched_->hosts()[0].empty();  // if not, the stderr of a rank may say why
    return Ending{Status::crash, cat(*failure, met ? "" : launcher_words(end))};
  }
  if (!launched_ && first_with_error()) return std::nullopt;
  const auto open =
      std::ranges::find_if(reports_, [](const ChildReport& report) { return !report.exit && !report.ended; });
  if (open == reports_.end()) return std::nullopt;
  const bool by_signal = end.how == ChildEnd::How::signalled;
  return Ending{Status::crash,
                cat(launched_ ? cat("the launcher (", workload_.launcher.words, ")") : "the command",
                    " ended before ", name_of(static_cast<size_t>(open - reports_.begin())), " did, ",
                    by_signal ? cat("killed by ", signal_name(end.code)) : cat("exit status ", end.code),
                    launcher_words(end))};
}

/// Why a run can't take place on this device; "" where it can. Throws Error where the program's sources have
/// changed since they were first measured.
std::string refusal(const Workload& workload) {
  std::string why = !workload.unsupported.empty()
                        ? workload.unsupported
                        : unsupported_reason(workload.program.compute_capability, workload.device);
  if (why.empty() && !workload.program.native && workload.program.source_hash() != workload.source_hash)
    throw Error(cat(workload.program.variant,
                    " was changed since its first run: measure again from the start (run: --overwrite)"),
                kExitNotComparable);
  return why;
}

/// What was wrong with a command that could not be started.
Ending not_started(const Workload& workload, const CannotStart& error) {
  const bool words = workload.command.size() == 1 && workload.command[0].find(' ') != std::string::npos;
  return {Status::crash,
          cat(error.what(), words ? "; its command is a list, a word each"
                                  : "; --python names another Python, PATH is searched for others")};
}

}  // namespace

Run run_program(const Workload& workload, const std::function<void(const Step&)>& on_step) {
  Run run = asked_for(workload);
  run.reason = refusal(workload);
  if (!run.reason.empty()) {
    run.status = Status::unsupported;
    return run;
  }
  const auto start = std::chrono::steady_clock::now();
  RanksOfRun ranks(workload, run, on_step);
  Ending ending;
  try {
    const JobEnd end = ranks.carry_out();
    ending = ranks.ending_of_all(end);
    if (ending.status == Status::ok) ranks.check(ms_since(start));
    run = ranks.together();
    if (ending.status == Status::ok) ranks.sum_up(run);
    run.lingered = end.end.lingered && ending.status == Status::ok;  // else the run told an error
  } catch (const BadReport& e) {
    run = ranks.first();
    ending = {Status::crash, e.what()};
  } catch (const CannotStart& e) {
    if (ranks.through_launcher()) throw InputError(cat("--launcher: ", e.what()));
    if (workload.program.native) throw;
    ending = not_started(workload, e);
  } catch (const std::logic_error& e) {  // thrown where the MFU is computed
    const char* told = ", or \"math\" of its row in the ladder file";
    ending = {Status::crash, cat(e.what(), workload.program.native ? "" : told)};
  }
  run.stderr_tail = ranks.last_words();
  run.wall_ms = ms_since(start);
  run.status = ending.status;
  run.reason = ranks.named(ending.reason);
  return run;
}

}  // namespace stepladder
