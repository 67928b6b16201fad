// Child processes: started, listened to, and ended for certain.
#pragma once

#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/error.h"
#include "model/fd.h"

namespace stepladder {

/// While one lives, SIGINT, SIGTERM and SIGHUP end a running child instead of this process, and nothing
/// between two children is cut short. A signal that this process was started with ignored (nohup) stays
/// ignored, one that it was started with blocked arrives.
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

/// SIGINT, SIGTERM or SIGHUP ended a child, and with it what this process was about.
class Interrupted : public Error {
 public:
  explicit Interrupted(int by) : Error("interrupted"), signal(by) {}
  int signal;
};

/// A command that isn't there, or may not be run.
class CannotStart : public Error {
  using Error::Error;
};

/// A command that was ended because it prints more than anybody asked for.
class TooMuchOutput : public Error {
  using Error::Error;
};

/// Throws Interrupted when a signal that an InterruptGuard caught has come.
void check_interrupted();

/// A signal's name, such as "SIGKILL".
std::string signal_name(int signal);

/// How a child ended, and the last it said on stderr.
struct ChildEnd {
  enum class How { exited, signalled, stopped, timed_out, refused };
  How how = How::exited;
  int code = 0;  // exit status, or signal
  std::string stderr_tail;
  bool torn = false;      // the last event that it wrote has no newline
  bool lingered = false;  // had said all, and was ended after kLingering

  /// The last line on stderr, as " (line)"; "" where there is none.
  std::string last_words() const;
  /// "was killed by SIGKILL, ..." where someone else or the system ended it, not a fault of its own; else "".
  std::string killed_from_outside() const;
};

/// The child's file descriptor that run_child() reads lines from.
enum class Channel : int { out = 1, events = 3 };

/// Runs `command` (looked up on PATH unless it has a slash) to its end in a process group of its own, stdin
/// and the streams not listened to at /dev/null, and hands each line that it writes on `channel` to
/// `on_line`, which returns false to have it killed (`refused`). The last line of text needs no newline, an
/// event does. What it throws ends the child too. The whole group is killed after `timeout_s`, on an
/// interrupt, and when the child ends; the child dies with this process, however that ends. Throws
/// CannotStart.
ChildEnd run_child(const std::vector<std::string>& command, Channel channel, double timeout_s,
                   const std::function<bool(std::string_view line)>& on_line);

/// Processes that stand or fall together: one for each rank, or a launcher that starts them all.
struct Job {
  struct Process {
    std::vector<std::string> command;
    std::vector<std::string> environment = {};  // "NAME=value", on top of this process's
    std::string folder = {};                    // where it runs; "" for this process's
  };
  std::vector<Process> processes;
  /// Streams of lines. A launcher finds the path of rank r's in STEPLADDER_EVENTS_r, since a
  /// launcher seldom hands descriptors down.
  size_t ranks = 1;
  bool launcher = false;  // its single process starts the ranks, even if there is only one
  /// Between SIGTERM, which lets a launcher clean up, and SIGKILL. With 0, SIGKILL is all.
  double grace_s = 0.0;
  /// Whether it has said all that it was started for, or that it failed. It may then take kLingering to end;
  /// what is left is killed, and it counts as having exited with 0.
  std::function<bool()> finished = {};
  /// Hears of its start, with a further write end of each rank's stream, for lines that come from elsewhere.
  std::function<void(std::vector<Fd> streams)> started = {};
  /// Whether it has failed in a way that its processes may not tell: asked after each line and every second.
  std::function<bool()> failed = {};
  /// What its processes say on stderr, they say on this one's too.
  bool passes_errors_on = false;
  /// Others wait for its one process somewhere else: being stopped (SIGSTOP) ends it.
  bool one_of_several = false;
};
inline constexpr double kLingering = 10.0;  // seconds

/// How a job ended: the process that failed first, or 0 where none did; and of one that was refused, the rank
/// whose line was.
struct JobEnd {
  size_t process = 0;
  ChildEnd end;
  size_t refused = 0;
};

/// Takes a line, and the rank that it is from; false to have the job ended.
using OnLine = std::function<bool(size_t rank, std::string_view line)>;

/// run_child() for a job. The first process that fails or, among several, is stopped (SIGSTOP) ends the
/// others.
JobEnd run_job(const Job& job, Channel channel, double timeout_s, const OnLine& on_line);

/// What `command` prints on stdout in `folder` ("" for this process's), without the last newline; nothing
/// unless it exits with 0 within `timeout_s`. Throws TooMuchOutput.
std::optional<std::string> output_of(const std::vector<std::string>& command, double timeout_s = 10.0,
                                     const std::string& folder = "");

/// Those of this process's variables that a launcher such as mpirun or srun gave it, as "NAME=value". A child
/// doesn't get them by itself.
std::vector<std::string> variables_of_launcher();

/// Adds OMP_NUM_THREADS and OPENBLAS_NUM_THREADS, which share this machine's cores out among `processes`, to
/// an environment; not those that it sets, or this process's own does.
void share_cores(std::vector<std::string>& environment, int64_t processes);

/// Replaces this process by `command`. Throws Error when it cannot be started.
[[noreturn]] void exec(const std::vector<std::string>& command);

}  // namespace stepladder
