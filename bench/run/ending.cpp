#include "bench/run/ending.h"

#include <algorithm>

#include "bench/base/text.h"

namespace stepladder {
namespace {

Ending reported_failure(const ChildReport::Failure& failure) {
  for (Status status : {Status::oom, Status::unsupported, Status::diverged})
    if (failure.status == name_of(status)) return {status, failure.reason};
  return {Status::crash, failure.reason};
}

/// The rank with the fewest steps among those that have not told their end.
size_t furthest_behind(const std::deque<ChildReport>& reports, const std::vector<Run>& parts) {
  size_t rank = 0;
  for (size_t r = 1; r < reports.size(); ++r)
    if (!reports[r].ended && (reports[rank].ended || parts[r].steps.size() < parts[rank].steps.size()))
      rank = r;
  return rank;
}

}  // namespace

Ending ending_of(const ChildEnd& end, const ChildReport& report, const Run& run, const Workload& workload,
                 size_t rank) {
  std::string last = end.last_words();
  if (last.find("No module named '") != std::string::npos && workload.program.takes_python)
    last += "; use --python to name a Python that has it";
  const std::string torn = end.torn ? "; its last line has no newline, without which it is no event" : "";
  const auto crash = [&](const auto&... what) { return Ending{Status::crash, cat(what..., torn, last)}; };
  switch (end.how) {
    case ChildEnd::How::timed_out:
      if (report.error) return reported_failure(*report.error);
      return {Status::timeout, cat("killed after ", number_text(workload.timeout_s), " s at step ",
                                   run.steps.size(), " of ", workload.steps, "; --timeout allows more")};
    case ChildEnd::How::signalled:
      if (report.error) return reported_failure(*report.error);  // as after an uncaught exception
      return crash("killed by ", signal_name(end.code), " at step ", run.steps.size(), " of ",
                   workload.steps);
    case ChildEnd::How::stopped:
      return crash("stopped by a signal at step ", run.steps.size(), " of ", workload.steps);
    case ChildEnd::How::refused:
      return crash("too long a line on its event stream");
    case ChildEnd::How::exited:
      break;
  }
  if (end.code == kExitUsage && workload.program.native)
    throw InputError(report.error ? report.error->reason
                                  : cat(workload.program.variant, " refused its options", last));
  if (report.error) return reported_failure(*report.error);
  if (workload.is_failure(end.code)) return crash("exit status ", end.code);
  if (!report.started)
    return workload.command_starts_ranks()
               ? crash("it told nothing: no start came at the path that STEPLADDER_EVENTS_", rank, " names")
               : crash(
                     "it told nothing: does it call stepladder.start()? No start came on the file descriptor "
                     "that "
                     "STEPLADDER_EVENTS names");
  if (!report.ended)
    return crash("ended without reporting its end, after ", run.steps.size(), " of ", workload.steps,
                 " steps");
  if (static_cast<int64_t>(run.steps.size()) != workload.steps && !report.reached())
    return crash("reported ", run.steps.size(), " of ", workload.steps, " steps");
  if (std::ssize(run.steps) <= workload.warmup)
    return crash("reached the loss after ", run.steps.size(), " steps, of which --warmup ", workload.warmup,
                 " leaves none to time: lower it, or --until-loss");
  for (const Step& step : run.steps)
    if (rank == 0 && !step.loss)
      return {Status::diverged, cat("step ", step.step, ": the loss is not finite")};
  for (const Evaluation& evaluation : run.evaluations)
    if (!evaluation.val_loss)
      return {Status::diverged, cat("the validation loss after step ", evaluation.step, " is not finite")};
  return {};
}

std::optional<size_t> first_with_error(const std::deque<ChildReport>& reports) {
  for (size_t rank = 0; rank < reports.size(); ++rank)
    if (reports[rank].error) return rank;
  return std::nullopt;
}

std::pair<size_t, ChildEnd> blamed(JobEnd job_end, const std::deque<ChildReport>& reports,
                                   const std::vector<Run>& parts, const std::vector<size_t>& exits,
                                   bool command) {
  ChildEnd& end = job_end.end;
  // A rank that a signal ended is to blame, even if others noticed its end and exited first.
  auto rank =
      std::ranges::find_if(exits, [&](size_t r) { return reports[r].exit->how != ChildEnd::How::exited; });
  if (rank == exits.end())
    rank = std::ranges::find_if(exits, [&](size_t r) { return reports[r].exit->code != 0; });
  const auto told = first_with_error(reports);
  if (end.how == ChildEnd::How::timed_out) return {told.value_or(furthest_behind(reports, parts)), end};
  if (end.how == ChildEnd::How::refused) return {job_end.refused, end};
  if (told && command) return {*told, {ChildEnd::How::exited, kExitFailed, end.stderr_tail}};
  if (rank != exits.end()) return {*rank, *reports[*rank].exit};
  const size_t process = job_end.process;
  const bool none = end.how == ChildEnd::How::exited && end.code == kExitOk && !reports[process].error;
  return {none ? told.value_or(process) : process, end};  // a rank that told an error need not have exited
}

std::string launcher_words(const ChildEnd& end) {
  constexpr std::string_view kError = "stepladder: error: ";
  if (const size_t at = end.stderr_tail.find(kError); at != std::string::npos)
    return ChildEnd{.stderr_tail = end.stderr_tail.substr(at, end.stderr_tail.find('\n', at) - at)}
        .last_words();
  return end.last_words();
}

std::optional<Ending> left_by_launcher(const ChildEnd& end, const std::string& launcher,
                                       const std::deque<ChildReport>& reports,
                                       const std::vector<std::string>& hosts) {
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (reports[rank].exit || reports[rank].ended) continue;
    const bool by_signal = end.how == ChildEnd::How::signalled;
    return Ending{
        Status::crash,
        cat(launcher, " ended before rank ", rank, hosts[rank].empty() ? "" : cat(" (", hosts[rank], ")"),
            " did, ", by_signal ? cat("killed by ", signal_name(end.code)) : cat("exit status ", end.code),
            launcher_words(end))};
  }
  return std::nullopt;
}

}  // namespace stepladder
