// Child processes: started, listened to, and ended for certain.
#pragma once

#include <csignal>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/error.h"
#include "model/fd.h"

namespace stepladder {

/// While a guard lives, SIGINT, SIGTERM and SIGHUP end a running child instead of this process, and code
/// between two children is not cut short. A signal that was ignored when this process started (nohup) stays
/// ignored. A signal that the thread blocks is let through while the guard lives.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  std::vector<std::pair<int, struct sigaction>> before_;
  sigset_t mask_before_{};
};

/// Thrown after SIGINT, SIGTERM or SIGHUP has ended a child: the caller should end too. Not an Error, so that
/// code that handles errors lets it pass.
class Interrupted : public std::exception {
 public:
  explicit Interrupted(int by) : signal(by) {}
  const char* what() const noexcept override { return "interrupted"; }
  int signal;
};

/// Thrown for a command that doesn't exist or may not be run.
class CannotStart : public Error {
  using Error::Error;
};

/// Throws Interrupted if an InterruptGuard has caught a signal.
void check_interrupted();

/// A signal's name, such as "SIGKILL".
std::string signal_name(int signal);

/// How a child ended, and the end of its stderr.
struct ChildEnd {
  enum class How { exited, signalled, stopped, timed_out, refused };
  How how = How::exited;
  int code = 0;  // exit status, or signal
  std::string stderr_tail;
  bool torn = false;      // the last event written has no newline
  bool lingered = false;  // reported its end, then was killed after kLingering

  /// Whether it exited with 0.
  bool ok() const { return how == How::exited && code == 0; }
  /// The last line on stderr, as " (line)"; "" where there is none.
  std::string last_words() const;
  /// "was killed by SIGKILL, ..." for SIGKILL or SIGTERM, which another process or the system sent; else "".
  std::string killed_from_outside() const;
};

/// The child's file descriptor that run_child() reads lines from.
enum class Channel : int { out = 1, events = 3 };

/// Runs `command` (looked up on PATH unless it has a slash) to its end in a process group of its own, stdin
/// and the streams not listened to at /dev/null, and hands each line that it writes on `channel` to
/// `on_line`, which returns false to have the child killed (`refused`). On Channel::out the last line needs
/// no newline; on Channel::events it does. An exception from `on_line` kills the child too. The whole group
/// is killed after `timeout_s`, on an interrupt, and when the child ends; the child dies with this process,
/// however this process ends. Throws CannotStart.
ChildEnd run_child(const std::vector<std::string>& command, Channel channel, double timeout_s,
                   const std::function<bool(std::string_view line)>& on_line);

/// Processes of which none goes on once one has failed: one for each rank, or a launcher that starts all
/// ranks.
struct Job {
  struct Process {
    std::vector<std::string> command;
    std::vector<std::string> environment = {};  // "NAME=value", on top of this process's
    std::string folder = {};                    // where it runs; "" for this process's
  };
  std::vector<Process> processes;
  /// How many streams of lines there are, one a rank. A launcher's ranks find rank r's path in
  /// STEPLADDER_EVENTS_r, since launchers seldom hand file descriptors down.
  size_t ranks = 1;
  bool launcher = false;  // its single process starts the ranks, even if there is only one
  /// Seconds between SIGTERM, which lets a launcher clean up, and SIGKILL. 0 sends SIGKILL alone.
  double grace_s = 0.0;
  /// Whether the job has told its end, or that it failed. It may then take kLingering to exit; processes that
  /// are left are killed, and the job counts as having exited with 0.
  std::function<bool()> finished = {};
  /// Called once the job has started, with a second write end of each rank's stream, for lines that come from
  /// other machines.
  std::function<void(std::vector<Fd> streams)> started = {};
  /// Whether the job has failed in a way that its processes may not tell: asked after each line and every
  /// second.
  std::function<bool()> failed = {};
  /// Copies the processes' stderr to this process's stderr.
  bool passes_errors_on = false;
  /// The job's one process has peers on other machines that wait for it: if it is stopped (SIGSTOP), the job
  /// ends.
  bool one_of_several = false;
};
inline constexpr double kLingering = 10.0;  // seconds

/// How a job ended: the process that failed first (0 if none failed), its end, and the rank whose line was
/// refused, if one was.
struct JobEnd {
  size_t process = 0;
  ChildEnd end;
  size_t refused = 0;
};

/// Takes a line and the rank that wrote it; returns false to end the job.
using OnLine = std::function<bool(size_t rank, std::string_view line)>;

/// Runs a job as run_child() runs a command. The first process that fails or, among several, is stopped
/// (SIGSTOP) ends the others.
JobEnd run_job(const Job& job, Channel channel, double timeout_s, const OnLine& on_line);

/// Runs `command` in `folder` ("" for this process's). Returns how it ended, and in `text` what it printed on
/// stdout, without the last newline; a command that prints more than 8 MiB is refused. Throws CannotStart.
ChildEnd run_for_output(const std::vector<std::string>& command, std::string& text, double timeout_s,
                        const std::string& folder = "");

/// What `command` prints on stdout, as by run_for_output(); nothing unless it exits with 0 within
/// `timeout_s`.
std::optional<std::string> output_of(const std::vector<std::string>& command, double timeout_s = 10.0,
                                     const std::string& folder = "");

/// This process's environment variables from a launcher such as mpirun or srun, as "NAME=value". A child
/// doesn't inherit them by itself.
std::vector<std::string> variables_of_launcher();

/// Adds to `environment` OMP_NUM_THREADS and OPENBLAS_NUM_THREADS, which divide this machine's cores among
/// `processes`, unless `environment` or this process's own environment sets them.
void share_cores(std::vector<std::string>& environment, int64_t processes);

/// Replaces this process by `command`. Throws Error when it cannot be started.
[[noreturn]] void exec(const std::vector<std::string>& command);

}  // namespace stepladder
