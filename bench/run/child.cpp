#include "bench/run/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <thread>
#include <utility>

#include "bench/base/process.h"
#include "bench/base/text.h"

namespace stepladder {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxLine = 1 << 20;  // bytes; events are far shorter
constexpr size_t kMaxTail = 4096;

/// The variable that marks every process this one has started, even one that has left its group.
constexpr const char* kStartedBy = "STEPLADDER_STARTED_BY=";

/// Throws Error with errno's text and, where a limit was reached, what raises it.
[[noreturn]] void fail(const char* what) {
  const int error = errno;
  const char* cure = error == EAGAIN   ? "; raise `ulimit -u`, or pids.max of this control group"
                     : error == EMFILE ? "; raise `ulimit -n`"
                     : error == ENFILE || error == ENOMEM ? "; end other processes"
                                                          : "";
  throw Error(cat(what, ": ", std::strerror(error), cure));
}

struct Pipe {
  Fd read, write;
  Pipe() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) fail("cannot make a pipe");
    read = Fd(fds[0]);
    const Fd made(fds[1]);
    // 10 is above every descriptor that the child is given, so that dup2() there overwrites none of the
    // sources.
    write = Fd(::fcntl(fds[1], F_DUPFD_CLOEXEC, 10));
    if (!write.open() && errno == EINVAL) errno = EMFILE;  // the limit on open files is 10 or less
    if (!write.open()) fail("cannot make a pipe");
  }
};

/// The write end of a pipe. Signal handlers, on any thread, write to this descriptor to wake poll().
int wake_fd = -1;
volatile std::sig_atomic_t interrupted_by = 0;

void on_signal(int signal) {
  const int error = errno;
  if (signal != SIGCHLD) interrupted_by = signal;
  [[maybe_unused]] const ssize_t full = ::write(wake_fd, "", 1);
  errno = error;
}

const Pipe& wake_pipe() {
  static const Pipe pipe = [] {
    Pipe p;
    for (int fd : {p.read.get(), p.write.get()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
    wake_fd = p.write.get();
    return p;
  }();
  return pipe;
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> all;
  for (const std::string& word : words) all.push_back(const_cast<char*>(word.c_str()));
  all.push_back(nullptr);
  return all;
}

/// Whether a launcher such as mpirun or srun has set this variable for its processes.
bool is_of_a_launcher(std::string_view name) {
  for (const char* family : {"SLURM_", "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "PMIX_", "PMI_", "PRTE_",
                             "ORTE_", "MPI_LOCAL", "MV2_COMM_WORLD_", "MVP_COMM_WORLD_", "JSM_NAMESPACE_",
                             "FLUX_TASK_", "FLUX_JOB_", "PALS_", "ALPS_APP_", "HOROVOD_"})
    if (name.starts_with(family)) return true;
  return false;
}

/// Whether this variable describes a process of another job: its rank, its event stream or its settings, as a
/// launcher or a harness sets them.
bool is_of_another_job(std::string_view name) {
  for (const char* one :
       {"RANK=", "WORLD_SIZE=", "LOCAL_RANK=", "LOCAL_WORLD_SIZE=", "MASTER_ADDR=", "MASTER_PORT=",
        "STEPLADDER_JOB_SECRET=", "STEPLADDER_EVENTS=", "STEPLADDER_STEPS=", "STEPLADDER_UNTIL_LOSS=",
        "STEPLADDER_EVAL_EVERY=", "STEPLADDER_EVAL_SKIP=", kStartedBy})
    if (name == one) return true;
  return is_of_a_launcher(name) || name.starts_with("STEPLADDER_EVENTS_") ||
         name.starts_with("TORCHELASTIC_");
}

/// This process's environment with `changes`, without variables of a job that this process may be a rank of.
std::vector<std::string> environment_with(const std::vector<std::string>& changes) {
  std::vector<std::string> all = changes;
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    if (is_of_another_job(name)) continue;
    if (std::ranges::none_of(changes, [&](const auto& c) { return c.starts_with(name); }))
      all.emplace_back(text);
  }
  return all;
}

/// What the child does between fork and exec: async-signal-safe calls only.
struct Birth {
  char* const* argv;
  char* const* environment;
  pid_t parent;
  int lines, channel, errors, null, failure;
  const char* folder;  // "" to stay

  [[noreturn]] void run() const {
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);  // the parent's blocked signals are inherited
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // the parent ended before prctl()
    ::dup2(null, STDIN_FILENO);
    ::dup2(null, STDOUT_FILENO);
    ::dup2(errors, STDERR_FILENO);
    ::dup2(lines, channel);
    ::environ = const_cast<char**>(environment);  // execvp() searches its PATH
    if (*folder == '\0' || ::chdir(folder) == 0) ::execvp(argv[0], argv);
    const int error = errno;
    [[maybe_unused]] const ssize_t told = ::write(failure, &error, sizeof error);
    ::_exit(127);
  }
};

/// Appends to `text` what can be read from a pipe without waiting. Returns false at the pipe's end.
bool drain(int fd, std::string& text) {
  std::array<char, 1 << 14> buffer;
  for (;;) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n > 0)
      text.append(buffer.data(), static_cast<size_t>(n));
    else if (n < 0 && errno == EINTR)
      continue;
    else
      return n < 0 && errno == EAGAIN;
    if (text.size() > kMaxLine) return true;  // the caller has enough to look at
  }
}

/// Hands each whole line of `text` to `on_line` and removes it. Returns false once `on_line` refuses a line,
/// or when a line is longer than kMaxLine.
bool hand_over(std::string& text, const std::function<bool(std::string_view)>& on_line) {
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    if (!on_line(std::string_view(text).substr(begin, end - begin))) return false;
  text.erase(0, begin);
  return text.size() <= kMaxLine;
}

/// This process's children.
std::set<pid_t> children() {
  std::set<pid_t> found;
  std::ifstream list(cat("/proc/self/task/", ::getpid(), "/children"));
  for (pid_t pid = 0; list >> pid;) found.insert(pid);
  return found;
}

/// Adopts processes of a job that have left the job's group, and kills them: this process becomes their
/// parent.
class Orphans {
 public:
  Orphans() {
    ::prctl(PR_GET_CHILD_SUBREAPER, &adopted_before_);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    before_ = children();
  }
  ~Orphans() {
    end();
    ::prctl(PR_SET_CHILD_SUBREAPER, adopted_before_);
  }
  Orphans(const Orphans&) = delete;
  Orphans& operator=(const Orphans&) = delete;

  void end() const {
    for (bool any = true; any;) {  // a killed process's children become ours next
      any = false;
      for (const pid_t pid : children()) {
        if (before_.contains(pid) || !is_of_the_job(pid)) continue;
        any = true;
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
      }
    }
  }

 private:
  /// Whether the job started `pid`, which may have joined this process's group. Other adopted processes are
  /// older than the job, or were left behind by other processes of this group.
  bool is_of_the_job(pid_t pid) const {
    constexpr double kTick = 10.0;
    const bool older = process_start_ms(pid).value_or(begin_) < begin_ - kTick;
    return !older && (::getpgid(pid) != ::getpgrp() || was_started_by_this(pid));
  }
  static bool was_started_by_this(pid_t pid) {
    constexpr int kTries = 100;  // /proc/PID/environ is empty for a moment during execve()
    for (int i = 0; i < kTries; ++i) {
      std::ifstream file(cat("/proc/", pid, "/environ"), std::ios::binary);
      bool any = false;
      for (std::string variable; std::getline(file, variable, '\0'); any = true)
        if (variable == cat(kStartedBy, ::getpid())) return true;
      if (any) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  const double begin_ = ms_since_boot();
  int adopted_before_ = 0;
  std::set<pid_t> before_;
};

/// A rank's stream: its pipe, and what was read of an unfinished line.
struct Stream {
  Pipe pipe;
  std::string pending;
};

/// fork() without the handlers that libraries have registered: the child makes async-signal-safe calls only.
/// OpenBLAS's handler ends its threads, and waits forever where one lacks the memory to start again.
pid_t plain_fork() {
#if __GLIBC_PREREQ(2, 34)
  return ::_Fork();
#else
  return ::fork();
#endif
}

/// A process of a job, from its start to its end. The destructor kills its group.
class Member {
 public:
  /// Throws Error when the process cannot be started.
  Member(const Job::Process& process, std::vector<std::string> environment, const Pipe& lines,
         Channel channel, const Fd& null) {
    append(environment, process.environment);
    environment.push_back(cat(kStartedBy, ::getpid()));
    environment = environment_with(environment);
    const std::vector<char*> argv = pointers(process.command), envp = pointers(environment);
    Pipe errors, failure;
    const Birth birth = {argv.data(),
                         envp.data(),
                         ::getpid(),
                         lines.write.get(),
                         static_cast<int>(channel),
                         errors.write.get(),
                         null.get(),
                         failure.write.get(),
                         process.folder.c_str()};
    pid_ = plain_fork();
    if (pid_ < 0) fail("cannot start a process");
    if (pid_ == 0) birth.run();
    ::setpgid(pid_, pid_);  // in parent and child, since either may run first
    errors_ = std::move(errors.read);
    failure.write.close();
    int error = 0;
    if (::read(failure.read.get(), &error, sizeof error) == sizeof error) {
      end_group();
      throw CannotStart(cat("cannot start ", process.command.front(), ": ", std::strerror(error)));
    }
    ::fcntl(errors_.get(), F_SETFL, O_NONBLOCK);
  }
  ~Member() { end_group(); }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  void kill(int signal) const {
    if (pid_ > 0) ::kill(-pid_, signal);
  }
  bool ended() const { return state() != 0 && state() != CLD_STOPPED; }
  bool stopped() const { return state() == CLD_STOPPED; }
  /// Stores in `end` how the process ended. Kills what is left of its group first, while the id is still the
  /// group's.
  void reap() {
    const int status = end_group();
    running = false;
    if (WIFSIGNALED(status) && end.how == ChildEnd::How::exited) end.how = ChildEnd::How::signalled;
    end.code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  }
  int errors() const { return errors_.get(); }
  void listen(bool pass_on) {
    if (!errors_.open()) return;
    const size_t known = end.stderr_tail.size();
    if (!drain(errors_.get(), end.stderr_tail)) errors_.close();
    if (pass_on) std::cerr << without_controls(end.stderr_tail.substr(known), "\n") << std::flush;
    if (end.stderr_tail.size() > kMaxTail) end.stderr_tail.erase(0, end.stderr_tail.size() - kMaxTail);
  }

  bool running = true;
  ChildEnd end;

 private:
  /// Kills the group, and returns the status with which the process ended.
  int end_group() {
    kill(SIGKILL);
    int status = 0;
    if (const pid_t pid = std::exchange(pid_, -1); pid > 0) ::waitpid(pid, &status, 0);
    return status;
  }
  /// The process's si_code; 0 while it runs. Asks for exits and stops in one call, since waitid() for stops
  /// alone fails after an exit.
  int state() const {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT) != 0)
      fail("cannot wait for a process");
    return info.si_pid == pid_ ? info.si_code : 0;
  }

  pid_t pid_ = -1;
  Fd errors_;
};

/// `text` without the sequences that set a terminal's colours: ESC [ ... letter.
std::string without_colours(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    const size_t colour = std::min(text.find("\x1b["), text.size());
    plain += text.substr(0, colour);
    text.remove_prefix(colour);
    const auto letter = std::ranges::find_if(text, [](unsigned char c) { return std::isalpha(c); });
    text.remove_prefix(static_cast<size_t>(letter - text.begin()) + (letter != text.end()));
  }
  return plain;
}

/// The last line with a letter or digit. If the text ends in a message between two rules, as Open MPI draws
/// them, all lines of that message.
std::string last_said(std::string_view text) {
  const auto says = [](std::string_view line) {
    return std::ranges::any_of(line, [](unsigned char c) { return std::isalnum(c) || c >= 0x80; });
  };
  const auto is_rule = [](std::string_view line) {
    return line.size() > 20 && line.find_first_not_of('-') == line.npos;
  };
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of("\r\n"), text.size());  // \r: a progress bar begins anew
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (const size_t begin = line.find_first_not_of("\t "); begin != line.npos)
      lines.emplace_back(line.substr(begin, line.find_last_not_of("\t ") + 1 - begin));
  }
  bool ruled = false;
  for (; !lines.empty() && !says(lines.back()); lines.pop_back()) ruled = is_rule(lines.back());
  const auto before = ruled ? std::find_if(lines.rbegin(), lines.rend(), is_rule) : lines.rend();
  if (before != lines.rend()) return join({before.base(), lines.end()}, " ");
  return lines.empty() ? "" : lines.back();
}

/// A job, from the start of its processes to the end of the last.
class RunningJob {
 public:
  /// Starts the job. If a start fails, the processes already started are killed.
  RunningJob(const Job& job, Channel channel, double timeout_s, const OnLine& on_line);

  /// Listens until every process has ended. Throws Interrupted when a signal ended the job.
  JobEnd run();

 private:
  using How = ChildEnd::How;

  void listen();
  /// Hands a line on, unless the job's end is settled. An exception from the listener is rethrown once the
  /// job has ended.
  bool hand_on(size_t rank, std::string_view line);
  void reap();
  /// Ends the job on an interrupt, a deadline or job_.failed(); reap() sees processes' own failures.
  void limit();
  void wait();
  void stop();
  void stop_as(How why);
  void blame(size_t process);
  JobEnd end();

  const Job& job_;
  const Channel channel_;
  const OnLine& on_line_;
  const InterruptGuard guard_;
  Orphans orphans_;
  std::vector<Stream> streams_;
  std::deque<Member> members_;  // a deque never moves its elements
  const Clock::time_point deadline_;
  Clock::time_point kill_at_ = Clock::time_point::max();
  std::optional<Clock::time_point> linger_until_;  // the deadline once the job has reported its end
  bool stopping_ = false, killed_ = false, interrupted_ = false, lingered_ = false;
  std::optional<How> how_;  // why this process ended the job
  std::optional<size_t> culprit_;
  size_t refused_ = 0;
  std::exception_ptr thrown_;
};

RunningJob::RunningJob(const Job& job, Channel channel, double timeout_s, const OnLine& on_line)
    : job_(job), channel_(channel), on_line_(on_line), streams_(job.ranks), deadline_(in_seconds(timeout_s)) {
  check(job.processes.size() == 1 || job.processes.size() == job.ranks,
        "a job is one process a rank, or a launcher");
  for (const Job::Process& process : job.processes) check(!process.command.empty(), "an empty command");
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.open()) fail("cannot open /dev/null");

  std::error_code none;
  const std::string self = std::filesystem::read_symlink("/proc/self", none);  // in /proc's own namespace
  std::vector<std::string> paths;
  for (size_t rank = 0; job.launcher && rank < job.ranks; ++rank)
    paths.push_back(
        cat("STEPLADDER_EVENTS_", rank, "=/proc/", self, "/fd/", streams_[rank].pipe.write.get()));
  for (size_t i = 0; i < job.processes.size(); ++i)
    members_.emplace_back(job.processes[i], paths, streams_[i].pipe, channel, null);
  std::vector<Fd> more_ends;
  for (Stream& stream : streams_) {
    if (job.started) more_ends.emplace_back(::fcntl(stream.pipe.write.get(), F_DUPFD_CLOEXEC, 0));
    if (job.started && !more_ends.back().open()) fail("cannot open a pipe twice");
    if (!job.launcher) stream.pipe.write.close();
    ::fcntl(stream.pipe.read.get(), F_SETFL, O_NONBLOCK);
  }
  if (job.started) job.started(std::move(more_ends));
}

JobEnd RunningJob::run() {
  for (;;) {
    reap();
    if (std::ranges::none_of(members_, &Member::running)) return end();
    limit();
    wait();
  }
}

bool RunningJob::hand_on(size_t rank, std::string_view line) try {
  // Ignore later lines: launchers report the kills that this process caused.
  const bool settled = how_ || thrown_ || (lingered_ && !(job_.failed && job_.failed()));
  return settled || on_line_(rank, line);
} catch (...) {
  thrown_ = std::current_exception();
  stop();
  return true;
}

void RunningJob::listen() {
  for (size_t rank = 0; rank < streams_.size(); ++rank) {
    auto& [pipe, pending] = streams_[rank];
    if (!pipe.read.open()) continue;
    if (!drain(pipe.read.get(), pending)) pipe.read.close();
    if (hand_over(pending, [&](std::string_view line) { return hand_on(rank, line); })) continue;
    pending.clear();
    pipe.read.close();
    if (!stopping_) refused_ = rank;
    if (!stopping_ && members_.size() > 1) culprit_ = rank;  // process i is rank i
    stop_as(How::refused);
  }
  for (Member& member : members_) member.listen(job_.passes_errors_on);
}

void RunningJob::reap() {
  // Ask whether processes have ended before emptying their pipes: their last lines are then already there.
  std::vector<bool> ended;
  for (const Member& member : members_) ended.push_back(member.running && member.ended());
  listen();
  const bool several = job_.processes.size() > 1 || job_.one_of_several;
  for (size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    if (ended[i]) {
      member.reap();
      if (!how_ && !member.end.ok()) blame(i);
    } else if (member.running && several && !stopping_ && member.stopped()) {
      member.end.how = How::stopped;
      blame(i);
    }
  }
}

void RunningJob::limit() {
  if (interrupted_by != 0) interrupted_ = true, stop();
  if (!linger_until_ && job_.finished && job_.finished()) linger_until_ = in_seconds(kLingering);
  const bool late = Clock::now() >= linger_until_.value_or(deadline_);
  if (late && linger_until_ && !stopping_) lingered_ = true, stop();
  if (job_.failed && job_.failed()) stop();
  if (late && !linger_until_) stop_as(How::timed_out);
  if (killed_ || Clock::now() < kill_at_) return;
  killed_ = true;
  for (Member& member : members_) member.kill(SIGKILL);
}

void RunningJob::wait() {
  std::vector<pollfd> fds = {{wake_pipe().read.get(), POLLIN, 0}};
  for (const Stream& stream : streams_) fds.push_back({stream.pipe.read.get(), POLLIN, 0});
  for (const Member& member : members_) fds.push_back({member.errors(), POLLIN, 0});
  auto until = stopping_ ? kill_at_ : linger_until_.value_or(deadline_);
  if (job_.failed) until = std::min(until, in_seconds(1.0));
  ::poll(fds.data(), fds.size(), killed_ ? -1 : milliseconds_until(until));
  std::string wake;
  drain(wake_pipe().read.get(), wake);
}

void RunningJob::stop() {
  if (std::exchange(stopping_, true)) return;
  kill_at_ = in_seconds(job_.grace_s);
  if (job_.grace_s > 0.0)
    for (Member& member : members_) member.kill(SIGTERM);
}

void RunningJob::stop_as(How why) {
  if (!stopping_) how_ = why;
  stop();
}

void RunningJob::blame(size_t process) {
  // A rank that a signal ended is to blame, even if others noticed its end and exited before waitid() told of
  // the signal.
  const ChildEnd& end = members_[process].end;
  const bool worse = !culprit_ || (members_[*culprit_].end.how == How::exited && end.how == How::signalled &&
                                   end.code != SIGTERM && !killed_);
  if (worse) culprit_ = process;
  stop();
}

JobEnd RunningJob::end() {
  orphans_.end();
  if (interrupted_) throw Interrupted(interrupted_by);
  // Text may end without a newline. An event without one was torn.
  if (channel_ == Channel::out && !how_)
    for (size_t rank = 0; rank < streams_.size(); ++rank)
      if (const std::string& rest = streams_[rank].pending; !rest.empty() && !hand_on(rank, rest))
        how_ = How::refused, refused_ = rank;
  if (thrown_) std::rethrow_exception(thrown_);
  const size_t process = culprit_.value_or(0);
  ChildEnd end = std::move(members_[process].end);
  if (how_) end.how = *how_;
  if (lingered_) end = {.stderr_tail = end.stderr_tail, .lingered = true};
  end.torn = channel_ == Channel::events &&
             std::ranges::any_of(streams_, [](const Stream& stream) { return !stream.pending.empty(); });
  return {process, std::move(end), refused_};
}

}  // namespace

InterruptGuard::InterruptGuard() {
  wake_pipe();
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    if (signal != SIGCHLD && before.sa_handler == SIG_IGN) continue;
    ::sigaction(signal, &action, nullptr);
    before_.emplace_back(signal, before);
  }
  sigset_t ours;
  ::sigemptyset(&ours);
  for (const auto& [signal, before] : before_) ::sigaddset(&ours, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &ours, &mask_before_);
}

InterruptGuard::~InterruptGuard() {
  ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  for (const auto& [signal, before] : before_) ::sigaction(signal, &before, nullptr);
}

void check_interrupted() {
  if (interrupted_by != 0) throw Interrupted(interrupted_by);
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name ? cat("SIG", name) : cat("signal ", signal);
}

std::string ChildEnd::killed_from_outside() const {
  if (how != How::signalled || (code != SIGKILL && code != SIGTERM)) return "";
  return cat("was killed by ", signal_name(code), code == SIGKILL ? ", as where memory runs out" : "",
             ": try again");
}

std::string ChildEnd::last_words() const {
  const std::string said = last_said(without_colours(stderr_tail));
  return said.empty() ? "" : cat(" (", printable(said, 500), ")");
}

JobEnd run_job(const Job& job, Channel channel, double timeout_s, const OnLine& on_line) {
  return RunningJob(job, channel, timeout_s, on_line).run();
}

ChildEnd run_child(const std::vector<std::string>& command, Channel channel, double timeout_s,
                   const std::function<bool(std::string_view line)>& on_line) {
  return run_job({.processes = {{command}}}, channel, timeout_s,
                 [&](size_t, std::string_view line) { return on_line(line); })
      .end;
}

ChildEnd run_for_output(const std::vector<std::string>& command, std::string& text, double timeout_s,
                        const std::string& folder) {
  constexpr size_t kMaxOutput = 8 << 20;  // bytes
  const Job job = {.processes = {{.command = command, .environment = {}, .folder = folder}}};
  return run_job(job, Channel::out, timeout_s,
                 [&](size_t, std::string_view line) {
                   if (text.size() + line.size() > kMaxOutput) return false;
                   text += (text.empty() ? "" : "\n") + std::string(line);
                   return true;
                 })
      .end;
}

std::optional<std::string> output_of(const std::vector<std::string>& command, double timeout_s,
                                     const std::string& folder) try {
  std::string text;
  return run_for_output(command, text, timeout_s, folder).ok() ? std::optional(text) : std::nullopt;
} catch (const Error&) {
  return std::nullopt;
}

std::vector<std::string> variables_of_launcher() {
  std::vector<std::string> all;
  for (char** variable = environ; *variable; ++variable)
    if (is_of_a_launcher(*variable)) all.emplace_back(*variable);
  return all;
}

void share_cores(std::vector<std::string>& environment, int64_t processes) {
  const int64_t threads = std::max<int64_t>(1, std::thread::hardware_concurrency() / processes);
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) {
    const auto sets = [&](const std::string& text) { return text.starts_with(cat(name, "=")); };
    if (!std::getenv(name) && std::ranges::none_of(environment, sets))
      environment.push_back(cat(name, "=", threads));
  }
}

void exec(const std::vector<std::string>& command) {
  const std::vector<char*> argv = pointers(command);
  ::execvp(argv[0], argv.data());
  throw Error(cat("cannot start ", command.front(), ": ", std::strerror(errno)));
}

}  // namespace stepladder
