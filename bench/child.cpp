#include "bench/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "bench/text.h"

namespace stepladder {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxLine = 1 << 20;  // bytes; no event is near it
constexpr size_t kMaxTail = 4096;

[[noreturn]] void fail(const char* what) {
  throw Error(cat(what, ": ", std::strerror(errno)));
}

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() { close(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&&) = delete;
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void reset(int fd) {
    close();
    fd_ = fd;
  }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

struct Pipe {
  Fd read, write;
  Pipe() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) fail("cannot make a pipe");
    read.reset(fds[0]);
    // Above every descriptor that the child is given, so that dup2() there overwrites none of the sources.
    write.reset(::fcntl(fds[1], F_DUPFD_CLOEXEC, 10));
    ::close(fds[1]);
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

std::vector<char*> arguments(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  return argv;
}

/// What the child does between fork and exec: async-signal-safe calls only.
struct Birth {
  char* const* argv;
  pid_t parent;
  int lines, channel, errors, null, failure;

  [[noreturn]] void run() const {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // gone before the line above
    ::dup2(null, STDIN_FILENO);
    ::dup2(null, STDOUT_FILENO);
    ::dup2(errors, STDERR_FILENO);
    ::dup2(lines, channel);
    ::execvp(argv[0], argv);
    const int error = errno;
    [[maybe_unused]] const ssize_t told = ::write(failure, &error, sizeof error);
    ::_exit(127);
  }
};

/// One end of a pipe read into `text` as far as it goes without waiting. False at its end.
bool drain(int fd, std::string& text) {
  std::array<char, 1 << 16> buffer;
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

/// A started process and its group, which do not outlive it.
class Child {
 public:
  explicit Child(const Birth& birth) : pid_(::fork()) {
    if (pid_ < 0) fail("cannot start a process");
    if (pid_ == 0) birth.run();
    ::setpgid(pid_, pid_);  // whichever of the two comes first
  }
  ~Child() {
    kill();
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void kill() const {
    if (pid_ > 0) ::kill(-pid_, SIGKILL);
  }
  bool ended() const {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0)
      fail("cannot wait for a process");
    return info.si_pid == pid_;
  }
  /// Its wait status, once it has ended; what it left behind in its group is killed while the id is still
  /// its.
  int reap() {
    kill();
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }

 private:
  pid_t pid_;
};

/// Milliseconds until `deadline` for poll(), rounded up.
int until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000'000));
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
}

InterruptGuard::~InterruptGuard() {
  for (const auto& [signal, before] : before_) ::sigaction(signal, &before, nullptr);
}

std::string ChildEnd::last_words() const {
  const size_t end = stderr_tail.find_last_not_of("\n ");
  if (end == std::string::npos) return "";
  const size_t begin = stderr_tail.rfind('\n', end) + 1;  // 0 where there is no newline
  return cat(" (", printable(std::string_view(stderr_tail).substr(begin, end + 1 - begin), 500), ")");
}

ChildEnd run_child(const std::vector<std::string>& command, Channel channel, double timeout_s,
                   const std::function<bool(std::string_view line)>& on_line) {
  check(!command.empty(), "an empty command");
  const InterruptGuard guard;
  Pipe lines, errors, failure;
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.open()) fail("cannot open /dev/null");

  const std::vector<char*> argv = arguments(command);
  const Birth birth{argv.data(),        ::getpid(), lines.write.get(),  static_cast<int>(channel),
                    errors.write.get(), null.get(), failure.write.get()};
  Child child(birth);
  for (Pipe* pipe : {&lines, &errors, &failure}) pipe->write.close();
  int error = 0;
  if (::read(failure.read.get(), &error, sizeof error) == sizeof error)
    throw Error(cat("cannot start ", command.front(), ": ", std::strerror(error)));

  ChildEnd end;
  std::string pending;
  bool killed = false;
  const auto kill = [&](ChildEnd::How how) {
    if (!killed) end.how = how;
    killed = true;
    child.kill();
  };
  const auto listen = [&] {
    if (lines.read.open()) {
      if (!drain(lines.read.get(), pending)) lines.read.close();
      if (!killed && !hand_over(pending, on_line)) kill(ChildEnd::How::refused);
      if (killed) pending.clear();
    }
    if (errors.read.open()) {
      if (!drain(errors.read.get(), end.stderr_tail)) errors.read.close();
      if (end.stderr_tail.size() > kMaxTail) end.stderr_tail.erase(0, end.stderr_tail.size() - kMaxTail);
    }
  };

  for (const Pipe* pipe : {&lines, &errors}) ::fcntl(pipe->read.get(), F_SETFL, O_NONBLOCK);
  const auto limit = std::chrono::duration<double>(std::min(timeout_s, 1e9));
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  std::string wake;
  for (;;) {
    // Whether it has ended is asked before its pipes are emptied: what it wrote last is then already there.
    const bool ended = child.ended();
    listen();
    if (ended) break;
    if (interrupted_by != 0) throw Interrupted(interrupted_by);
    if (Clock::now() >= deadline) kill(ChildEnd::How::timed_out);
    std::array<pollfd, 3> fds{pollfd{lines.read.get(), POLLIN, 0}, pollfd{errors.read.get(), POLLIN, 0},
                              pollfd{wake_pipe().read.get(), POLLIN, 0}};
    ::poll(fds.data(), fds.size(), killed ? -1 : until(deadline));
    drain(wake_pipe().read.get(), wake);
    wake.clear();
  }

  const int status = child.reap();
  if (killed) return end;
  if (WIFSIGNALED(status)) end.how = ChildEnd::How::signalled;
  end.code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  return end;
}

std::optional<std::string> output_of(const std::vector<std::string>& command, double timeout_s) try {
  std::string text;
  const ChildEnd end = run_child(command, Channel::out, timeout_s, [&](std::string_view line) {
    text += (text.empty() ? "" : "\n") + std::string(line);
    return true;
  });
  if (end.how != ChildEnd::How::exited || end.code != 0) return std::nullopt;
  return text;
} catch (const Interrupted&) {
  throw;
} catch (const Error&) {
  return std::nullopt;
}

void exec(const std::vector<std::string>& command) {
  std::vector<char*> argv = arguments(command);
  ::execvp(argv[0], argv.data());
  throw Error(cat("cannot start ", command.front(), ": ", std::strerror(errno)));
}

}  // namespace stepladder
