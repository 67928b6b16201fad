#include "bench/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>

#include "model/error.h"

namespace stepladder {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxLine = 1 << 20;  // bytes; no event is near it
constexpr size_t kMaxTail = 4096;

volatile std::sig_atomic_t interrupted_by = 0;

void on_interrupt(int signal) {
  interrupted_by = signal;
}
void on_child(int) {}  // only wakes ppoll()

[[noreturn]] void fail(const char* what) {
  throw Error(cat(what, ": ", std::strerror(errno)));
}

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() { close(); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
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
  sigset_t mask;

  [[noreturn]] void run() const {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // gone before the line above
    ::dup2(null, STDIN_FILENO);
    ::dup2(null, STDOUT_FILENO);
    ::dup2(errors, STDERR_FILENO);
    ::dup2(lines, channel);
    ::sigprocmask(SIG_SETMASK, &mask, nullptr);
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

timespec to_timespec(Clock::duration left) {
  const auto ns = std::max<int64_t>(0, std::chrono::nanoseconds(left).count());
  return {ns / 1'000'000'000, ns % 1'000'000'000};
}

}  // namespace

InterruptGuard::InterruptGuard() {
  sigset_t block;
  sigemptyset(&block);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&block, signal);
  ::sigprocmask(SIG_BLOCK, &block, &mask_);
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  ::sigaction(SIGINT, &action, &interrupt_);
  ::sigaction(SIGTERM, &action, &terminate_);
  ::sigaction(SIGHUP, &action, &hangup_);
  action.sa_handler = on_child;
  ::sigaction(SIGCHLD, &action, &child_);
}

InterruptGuard::~InterruptGuard() {
  ::sigaction(SIGINT, &interrupt_, nullptr);
  ::sigaction(SIGTERM, &terminate_, nullptr);
  ::sigaction(SIGHUP, &hangup_, nullptr);
  ::sigaction(SIGCHLD, &child_, nullptr);
  ::sigprocmask(SIG_SETMASK, &mask_, nullptr);
}

ChildEnd run_child(const std::vector<std::string>& command, Channel channel, double timeout_s,
                   const std::function<bool(std::string_view line)>& on_line) {
  check(!command.empty(), "an empty command");
  const InterruptGuard guard;
  Pipe lines, errors, failure;
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.open()) fail("cannot open /dev/null");

  const std::vector<char*> argv = arguments(command);
  Birth birth{argv.data(),        ::getpid(), lines.write.get(),   static_cast<int>(channel),
              errors.write.get(), null.get(), failure.write.get(), {}};
  sigemptyset(&birth.mask);
  const pid_t pid = ::fork();
  if (pid < 0) fail("cannot start a process");
  if (pid == 0) birth.run();
  ::setpgid(pid, pid);  // whichever of the two comes first
  for (Pipe* pipe : {&lines, &errors, &failure}) pipe->write.close();

  int error = 0;
  if (::read(failure.read.get(), &error, sizeof error) == sizeof error) {
    ::waitpid(pid, nullptr, 0);
    throw Error(cat("cannot start ", command.front(), ": ", std::strerror(error)));
  }

  // Signals are blocked but for the wait itself, so none is missed between a check and the wait.
  sigset_t waiting;
  ::sigprocmask(SIG_SETMASK, nullptr, &waiting);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigdelset(&waiting, signal);
  for (const Pipe* pipe : {&lines, &errors}) ::fcntl(pipe->read.get(), F_SETFL, O_NONBLOCK);

  ChildEnd end;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(std::min(timeout_s, 1e9)));
  std::string pending;
  bool killed = false;
  const auto kill_group = [&](ChildEnd::How how) {
    if (!killed) end.how = how;
    killed = true;
    ::kill(-pid, SIGKILL);
  };
  const auto listen = [&] {
    if (lines.read.open()) {
      if (!drain(lines.read.get(), pending)) lines.read.close();
      if (!killed && !hand_over(pending, on_line)) kill_group(ChildEnd::How::refused);
      if (killed) pending.clear();
    }
    if (errors.read.open()) {
      if (!drain(errors.read.get(), end.stderr_tail)) errors.read.close();
      if (end.stderr_tail.size() > kMaxTail) end.stderr_tail.erase(0, end.stderr_tail.size() - kMaxTail);
    }
  };

  int status = 0;
  pid_t ended = 0;
  for (;;) {
    // The child's end is looked at before its pipes are emptied: what it wrote last is then already there.
    ended = ::waitpid(pid, &status, WNOHANG);
    listen();
    if (ended != 0) break;
    if (interrupted_by != 0) kill_group(ChildEnd::How::interrupted);
    if (Clock::now() >= deadline) kill_group(ChildEnd::How::timed_out);
    std::array<pollfd, 2> fds{pollfd{lines.read.get(), POLLIN, 0}, pollfd{errors.read.get(), POLLIN, 0}};
    const timespec left = to_timespec(deadline - Clock::now());
    ::ppoll(fds.data(), fds.size(), killed ? nullptr : &left, &waiting);
  }
  ::kill(-pid, SIGKILL);  // whatever it left behind
  if (killed) {
    end.code = end.how == ChildEnd::How::interrupted ? interrupted_by : 0;
  } else if (ended == pid && WIFSIGNALED(status)) {
    end.how = ChildEnd::How::signalled;
    end.code = WTERMSIG(status);
  } else if (ended == pid) {
    end.code = WEXITSTATUS(status);
  } else {
    fail("cannot wait for a process");
  }
  return end;
}

std::optional<std::string> output_of(const std::vector<std::string>& command) try {
  std::string text;
  const ChildEnd end = run_child(command, Channel::out, 10.0, [&](std::string_view line) {
    text += (text.empty() ? "" : "\n") + std::string(line);
    return true;
  });
  if (end.how != ChildEnd::How::exited || end.code != 0) return std::nullopt;
  return text;
} catch (const Error&) {
  return std::nullopt;
}

void exec(const std::vector<std::string>& command) {
  std::vector<char*> argv = arguments(command);
  ::execvp(argv[0], argv.data());
  throw Error(cat("cannot start ", command.front(), ": ", std::strerror(errno)));
}

}  // namespace stepladder
