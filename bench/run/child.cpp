#include "bench/run/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <iostream>
#include <set>
#include <thread>
#include <utility>

#include "bench/base/text.h"

namespace stepladder {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxLine = 1 << 20;  // bytes; no event is near it
constexpr size_t kMaxTail = 4096;
constexpr size_t kMaxOutput = 8 << 20;  // that is kept

[[noreturn]] void fail(const char* what) {
  throw Error(cat(what, ": ", std::strerror(errno)));
}

struct Pipe {
  Fd read, write;
  Pipe() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) fail("cannot make a pipe");
    read = Fd(fds[0]);
    const Fd low(fds[1]);
    // Above every descriptor that the child is given, so that dup2() there overwrites none of the sources.
    write = Fd(::fcntl(fds[1], F_DUPFD_CLOEXEC, 10));
    if (!write.open() && errno == EINVAL) errno = EMFILE;  // 10 are not allowed
    if (!write.open()) fail("cannot make a pipe");
  }
};

/// Signals write here, whichever thread they land on, and so wake poll().
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

/// Whether a launcher has set this variable to tell a process its rank.
bool names_a_rank(std::string_view name) {
  for (const char* one : {"RANK=", "WORLD_SIZE=", "LOCAL_RANK=", "LOCAL_WORLD_SIZE=", "MASTER_ADDR=",
                          "MASTER_PORT=", "STEPLADDER_JOB_SECRET=", "STEPLADDER_EVENTS="})
    if (name == one) return true;
  for (const char* family :
       {"SLURM_", "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "PMIX_", "PMI_", "PRTE_", "ORTE_", "TORCHELASTIC_"})
    if (name.starts_with(family)) return true;
  return false;
}

/// This process's environment with `changes` to it. A child is no rank of a job that this process may be one
/// of.
std::vector<std::string> environment_with(const std::vector<std::string>& changes) {
  std::vector<std::string> all = changes;
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    if (names_a_rank(name)) continue;
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
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // gone before the line above
    ::dup2(null, STDIN_FILENO);
    ::dup2(null, STDOUT_FILENO);
    ::dup2(errors, STDERR_FILENO);
    ::dup2(lines, channel);
    if (*folder == '\0' || ::chdir(folder) == 0) ::execvpe(argv[0], argv, environment);
    const int error = errno;
    [[maybe_unused]] const ssize_t told = ::write(failure, &error, sizeof error);
    ::_exit(127);
  }
};

/// One end of a pipe read into `text` as far as it goes without waiting. False at its end.
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

/// Hands each whole line of `text` over and removes it. False once `on_line` refuses one, or a line has no
/// end.
bool hand_over(std::string& text, const std::function<bool(std::string_view)>& on_line) {
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    if (!on_line(std::string_view(text).substr(begin, end - begin))) return false;
  text.erase(0, begin);
  return text.size() <= kMaxLine;
}

/// fork() without what libraries have registered for it: what follows is async-signal-safe. OpenBLAS would
/// end its threads before, and wait for ever where one lacks the memory to begin.
pid_t plain_fork() {
#if __GLIBC_PREREQ(2, 34)
  return ::_Fork();
#else
  return ::fork();
#endif
}

/// A started process and its group, which do not outlive it.
class Child {
 public:
  explicit Child(const Birth& birth) : pid_(plain_fork()) {
    if (pid_ < 0) fail("cannot start a process");
    if (pid_ == 0) birth.run();
    ::setpgid(pid_, pid_);  // whichever of the two comes first
  }
  ~Child() {
    kill(SIGKILL);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void kill(int signal) const {
    if (pid_ > 0) ::kill(-pid_, signal);
  }
  bool ended() const { return state() != 0 && state() != CLD_STOPPED; }
  bool stopped() const { return state() == CLD_STOPPED; }
  /// How it ended, once it has; what it left behind in its group is killed while the id is still its.
  void reap(ChildEnd& end) {
    kill(SIGKILL);
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    if (WIFSIGNALED(status) && end.how == ChildEnd::How::exited) end.how = ChildEnd::How::signalled;
    end.code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  /// 0 while it runs. Both are asked for at once: waitid() for stops alone fails where it has ended.
  int state() const {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT) != 0)
      fail("cannot wait for a process");
    return info.si_pid == pid_ ? info.si_code : 0;
  }

  pid_t pid_;
};

/// This process's children.
std::set<pid_t> children() {
  std::set<pid_t> found;
  std::ifstream list(cat("/proc/self/task/", ::getpid(), "/children"));
  for (pid_t pid = 0; list >> pid;) found.insert(pid);
  return found;
}

/// Processes that a job left behind by leaving its group: this process becomes their parent, and ends them.
class Orphans {
 public:
  Orphans() {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    before_ = children();
  }
  ~Orphans() { end(); }
  Orphans(const Orphans&) = delete;
  Orphans& operator=(const Orphans&) = delete;

  void end() const {
    for (bool any = true; any;) {  // those of one that is killed come next
      any = false;
      for (const pid_t pid : children()) {
        if (before_.contains(pid)) continue;
        any = true;
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
      }
    }
  }

 private:
  std::set<pid_t> before_;
};

/// A rank's lines, as far as they have been read.
struct Stream {
  Pipe pipe;
  std::string pending;
};

std::vector<Fd> more_ends(const std::vector<Stream>& streams) {
  std::vector<Fd> ends;
  for (const Stream& stream : streams) {
    ends.emplace_back(::fcntl(stream.pipe.write.get(), F_DUPFD_CLOEXEC, 0));
    if (!ends.back().open()) fail("cannot open a pipe twice");
  }
  return ends;
}

/// A process of a job, from its start to its end.
class Member {
 public:
  /// Throws Error when it cannot be started.
  Member(const Job::Process& process, const std::vector<std::string>& more_environment, const Pipe& lines,
         Channel channel, const Fd& null)
      : child_(birth(process, more_environment, lines, channel, null)) {
    errors_.write.close();
    failure_.write.close();
    int error = 0;
    if (::read(failure_.read.get(), &error, sizeof error) == sizeof error)
      throw CannotStart(cat("cannot start ", process.command.front(), ": ", std::strerror(error)));
    ::fcntl(errors_.read.get(), F_SETFL, O_NONBLOCK);
  }

  Child& child() { return child_; }
  int errors() const { return errors_.read.get(); }
  void listen(bool pass_on) {
    if (!errors_.read.open()) return;
    const size_t known = end.stderr_tail.size();
    if (!drain(errors_.read.get(), end.stderr_tail)) errors_.read.close();
    if (pass_on) std::cerr << without_controls(end.stderr_tail.substr(known), "\n") << std::flush;
    if (end.stderr_tail.size() > kMaxTail) end.stderr_tail.erase(0, end.stderr_tail.size() - kMaxTail);
  }

  bool running = true;
  ChildEnd end;

 private:
  Birth birth(const Job::Process& process, std::vector<std::string> more, const Pipe& lines, Channel channel,
              const Fd& null) {
    more.insert(more.end(), process.environment.begin(), process.environment.end());
    environment_ = environment_with(more);
    argv_ = pointers(process.command);
    envp_ = pointers(environment_);
    return {argv_.data(),
            envp_.data(),
            ::getpid(),
            lines.write.get(),
            static_cast<int>(channel),
            errors_.write.get(),
            null.get(),
            failure_.write.get(),
            process.folder.c_str()};
  }

  std::vector<std::string> environment_;
  std::vector<char*> argv_, envp_;
  Pipe errors_, failure_;
  Child child_;
};

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
}

InterruptGuard::~InterruptGuard() {
  for (const auto& [signal, before] : before_) ::sigaction(signal, &before, nullptr);
}

void check_interrupted() {
  if (interrupted_by != 0) throw Interrupted(interrupted_by);
}

std::string ChildEnd::last_words() const {
  if (stderr_tail.find("No module named 'encodings'") != std::string::npos)
    return " (this Python has no standard library where PYTHONHOME says: unset PYTHONHOME)";
  const size_t end = stderr_tail.find_last_not_of("\n ");
  if (end == std::string::npos) return "";
  const size_t begin = stderr_tail.rfind('\n', end) + 1;  // 0 where there is no newline
  return cat(" (", printable(std::string_view(stderr_tail).substr(begin, end + 1 - begin), 500), ")");
}

JobEnd run_job(const Job& job, Channel channel, double timeout_s,
               const std::function<bool(size_t rank, std::string_view line)>& on_line) {
  const bool launcher = job.launcher || (job.processes.size() == 1 && job.ranks > 1);
  const bool several = job.processes.size() > 1 || job.one_of_several;
  check(job.processes.size() == 1 || job.processes.size() == job.ranks,
        "a job is one process a rank, or a launcher");
  for (const Job::Process& process : job.processes) check(!process.command.empty(), "an empty command");
  const InterruptGuard guard;
  Orphans orphans;
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.open()) fail("cannot open /dev/null");

  std::vector<Stream> streams(job.ranks);
  std::vector<std::string> paths;
  for (size_t rank = 0; launcher && rank < job.ranks; ++rank)
    paths.push_back(
        cat("STEPLADDER_EVENTS_", rank, "=/proc/", ::getpid(), "/fd/", streams[rank].pipe.write.get()));
  std::deque<Member> members;  // never moved
  for (size_t i = 0; i < job.processes.size(); ++i)
    members.emplace_back(job.processes[i], paths, streams[i].pipe, channel, null);
  for (Stream& stream : streams) {
    if (paths.empty()) stream.pipe.write.close();
    ::fcntl(stream.pipe.read.get(), F_SETFL, O_NONBLOCK);
  }
  if (job.started) job.started(more_ends(streams));

  std::optional<ChildEnd::How> how;  // that this process ended the job
  std::optional<size_t> culprit;
  Clock::time_point kill_at = Clock::time_point::max(), linger_until = Clock::time_point::max();
  bool stopping = false, killed = false, interrupted = false, lingered = false;
  const auto stop = [&] {
    if (stopping) return;
    stopping = true;
    kill_at = in_seconds(job.grace_s);
    if (job.grace_s > 0.0)
      for (Member& member : members) member.child().kill(SIGTERM);
  };
  const auto stop_as = [&](ChildEnd::How why) {
    if (!stopping) how = why;
    stop();
  };
  const auto listen = [&] {
    for (size_t rank = 0; rank < streams.size(); ++rank) {
      auto& [pipe, pending] = streams[rank];
      if (!pipe.read.open()) continue;
      if (!drain(pipe.read.get(), pending)) pipe.read.close();
      if (hand_over(pending, [&](std::string_view line) { return on_line(rank, line); })) continue;
      pending.clear();
      pipe.read.close();
      stop_as(ChildEnd::How::refused);
    }
    for (Member& member : members) member.listen(job.passes_errors_on);
  };
  const auto fault = [&](size_t i) {
    // A rank that a signal ended is to blame, even where others noticed and left before the system had told.
    const ChildEnd& end = members[i].end;
    const bool worse = !culprit || (members[*culprit].end.how == ChildEnd::How::exited &&
                                    end.how == ChildEnd::How::signalled && end.code != SIGTERM && !killed);
    if (worse) culprit = i;
    stop();
  };

  const auto deadline = in_seconds(timeout_s);
  std::string wake;
  std::vector<bool> ended(members.size());
  for (;;) {
    // Whether it has ended is asked before its pipes are emptied: what it wrote last is then already there.
    for (size_t i = 0; i < members.size(); ++i) ended[i] = members[i].running && members[i].child().ended();
    listen();
    for (size_t i = 0; i < members.size(); ++i) {
      Member& member = members[i];
      if (ended[i]) {
        member.running = false;
        member.child().reap(member.end);
        if (!how && (member.end.how != ChildEnd::How::exited || member.end.code != 0)) fault(i);
      } else if (member.running && several && !stopping && member.child().stopped()) {
        member.end.how = ChildEnd::How::stopped;
        fault(i);
      }
    }
    if (std::ranges::none_of(members, &Member::running)) break;
    if (interrupted_by != 0) interrupted = true, stop();
    if (linger_until == Clock::time_point::max() && job.finished && job.finished())
      linger_until = in_seconds(kLingering);
    if (Clock::now() >= linger_until && !stopping) lingered = true, stop();
    if (job.failed && job.failed()) stop();
    if (Clock::now() >= deadline) stop_as(ChildEnd::How::timed_out);
    if (!killed && Clock::now() >= kill_at) {
      killed = true;
      for (Member& member : members) member.child().kill(SIGKILL);
    }
    std::vector<pollfd> fds = {{wake_pipe().read.get(), POLLIN, 0}};
    for (const Stream& stream : streams) fds.push_back({stream.pipe.read.get(), POLLIN, 0});
    for (const Member& member : members) fds.push_back({member.errors(), POLLIN, 0});
    const auto until = stopping ? kill_at : std::min(deadline, linger_until);
    ::poll(fds.data(), fds.size(),
           killed ? -1 : milliseconds_until(job.failed ? std::min(until, in_seconds(1.0)) : until));
    drain(wake_pipe().read.get(), wake);
    wake.clear();
  }
  orphans.end();
  if (interrupted) throw Interrupted(interrupted_by);
  // Text may end without a newline. An event that does was torn.
  if (channel == Channel::out && !how)
    for (size_t rank = 0; rank < streams.size(); ++rank)
      if (const std::string& rest = streams[rank].pending; !rest.empty() && !on_line(rank, rest))
        how = ChildEnd::How::refused;
  const size_t process = culprit.value_or(0);
  JobEnd job_end{process, std::move(members[process].end)};
  if (how) job_end.end.how = *how;
  if (lingered) job_end.end = {ChildEnd::How::exited, 0, job_end.end.stderr_tail};
  return job_end;
}

ChildEnd run_child(const std::vector<std::string>& command, Channel channel, double timeout_s,
                   const std::function<bool(std::string_view line)>& on_line) {
  return run_job({.processes = {{command}}}, channel, timeout_s,
                 [&](size_t, std::string_view line) { return on_line(line); })
      .end;
}

std::optional<std::string> output_of(const std::vector<std::string>& command, double timeout_s,
                                     const std::string& folder) try {
  std::string text;
  const Job job = {.processes = {{.command = command, .environment = {}, .folder = folder}}};
  const ChildEnd end = run_job(job, Channel::out, timeout_s, [&](size_t, std::string_view line) {
                         if (text.size() + line.size() > kMaxOutput) return false;
                         text += (text.empty() ? "" : "\n") + std::string(line);
                         return true;
                       }).end;
  if (end.how == ChildEnd::How::refused)
    throw TooMuchOutput(cat(command.front(), " prints more than ", bytes_text(kMaxOutput), ", or than ",
                            bytes_text(kMaxLine), " on a line"));
  if (end.how != ChildEnd::How::exited || end.code != 0) return std::nullopt;
  return text;
} catch (const Interrupted&) {
  throw;
} catch (const TooMuchOutput&) {
  throw;
} catch (const Error&) {
  return std::nullopt;
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
