// Connections to a port that have not identified themselves yet, and how long they may take to do so.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <list>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "model/error.h"
#include "model/socket.h"

namespace stepladder {

/// Callers that have connected to a port and not identified themselves yet. All are read at once, so that
/// none keeps the others waiting.
class Callers {
 public:
  using Clock = std::chrono::steady_clock;
  /// Whether the fields of a caller's first line show that it belongs to this job.
  using BelongsToJob = std::function<bool(const std::vector<std::string>& hello)>;
  using OnRejected = std::function<void(const std::string& from, const char* why)>;
  Callers(Socket listening, BelongsToJob belongs_to_job, OnRejected on_rejected)
      : listening_(std::move(listening)),
        belongs_to_job_(std::move(belongs_to_job)),
        on_rejected_(std::move(on_rejected)) {
    ::fcntl(listening_.get(), F_SETFL, O_NONBLOCK);  // a caller may be gone before it is taken
  }

  struct Caller {
    Socket socket;
    std::string from;  // "10.0.0.7"
    int port = 0;
    std::string pending{};
    Clock::time_point until = in_seconds(5.0);
    std::vector<std::string> hello{};
  };

  void add_to(std::vector<pollfd>& fds) const {
    fds.push_back({listening_.get(), POLLIN, 0});
    for (const Caller& caller : callers_) fds.push_back({caller.socket.get(), POLLIN, 0});
  }
  /// The first time at which a caller has to have identified itself; max() without callers.
  Clock::time_point until() const {
    const auto first = std::ranges::min_element(callers_, {}, &Caller::until);
    return first == callers_.end() ? Clock::time_point::max() : first->until;
  }
  /// The callers that have shown to belong to this job; call it after poll() on the descriptors that add_to()
  /// added.
  std::list<Caller> identified(std::span<const pollfd> fds) {
    std::list<Caller> known;
    auto fd = fds.begin() + 1;
    for (auto caller = callers_.begin(); caller != callers_.end();) {
      const auto next = std::next(caller);
      const bool stays = (fd++)->revents != 0 ? read(*caller) : Clock::now() < caller->until;
      if (!stays && !caller->hello.empty())
        known.splice(known.end(), callers_, caller);
      else if (!stays)
        reject(caller);
      caller = next;
    }
    if (fds.front().revents != 0) accept();
    return known;
  }
  void reject_all() {
    while (!callers_.empty()) reject(callers_.begin());
  }
  int rejected() const { return rejected_; }

 private:
  static constexpr size_t kMost = 64;  // callers at once

  /// Reads from `caller`; false once it has identified itself, or no longer can.
  bool read(Caller& caller) const {
    const bool open = caller.socket.receive(caller.pending);
    const size_t end = caller.pending.find('\n');
    if (end == std::string::npos) return open;
    const auto fields = fields_of(caller.pending.substr(0, end));
    if (!belongs_to_job_(fields)) return false;
    caller.pending.erase(0, end + 1);
    caller.hello = fields;
    return false;
  }
  void accept() {
    Socket socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    // When descriptors run out, the oldest caller is rejected, which frees one for the next accept().
    const bool full = socket.open() ? callers_.size() >= kMost : errno == EMFILE || errno == ENFILE;
    if (full && callers_.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (full && !callers_.empty()) reject(callers_.begin());
    if (!socket.open()) return;
    socket.prepare();
    const sockaddr_in from = peer_of(socket);
    callers_.push_back({std::move(socket), address_text(from), ntohs(from.sin_port)});
  }
  void reject(std::list<Caller>::iterator caller) {
    ++rejected_;
    if (on_rejected_)
      on_rejected_(cat(caller->from, ":", caller->port),
                   caller->pending.empty() ? "said nothing" : "does not know the job's secret");
    callers_.erase(caller);
  }

  const Socket listening_;
  const BelongsToJob belongs_to_job_;
  const OnRejected on_rejected_;
  std::list<Caller> callers_;
  int rejected_ = 0;
};

}  // namespace stepladder
