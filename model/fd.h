// File descriptors with an owner, and how long to wait for them.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <utility>

namespace stepladder {

/// Owns a file descriptor and closes it; -1 stands for no descriptor.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() { close(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  /// -1 with errno set where closing fails.
  int close() { return open() ? ::close(std::exchange(fd_, -1)) : 0; }

 private:
  int fd_;
};

/// Writes all of `text`, also across interruptions by signals; false, with errno set, where it can't.
inline bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0)
      text.remove_prefix(static_cast<size_t>(written));
    else if (errno != EINTR)
      return false;
  }
  return true;
}

/// The time `s` seconds from now, at most some decades.
inline std::chrono::steady_clock::time_point in_seconds(double s) {
  using Clock = std::chrono::steady_clock;
  const std::chrono::duration<double> wait(std::min(s, 1e9));
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(wait);
}

/// Milliseconds until `deadline` for poll(), rounded up; 0 where it has passed.
inline int milliseconds_until(std::chrono::steady_clock::time_point deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  return static_cast<int>(
      std::clamp<int64_t>(std::chrono::ceil<std::chrono::milliseconds>(left).count(), 0, 1'000'000'000));
}

}  // namespace stepladder
