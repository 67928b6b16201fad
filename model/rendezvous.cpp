#include "model/rendezvous.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "model/socket.h"

namespace stepladder {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kHello = "stepladder 3";
constexpr const char* kBye = "bye";
constexpr size_t kMostCallers = 64;  // at once

/// One that has connected, and has not said who it is.
struct Caller {
  Socket socket;
  std::string pending{};
  std::chrono::steady_clock::time_point until = in_seconds(5.0);
};

/// In seconds.
double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

int64_t number(const std::string& text) {
  return std::strtoll(text.c_str(), nullptr, 10);
}

sockaddr_in address_of(const World& world) {
  try {
    return resolve(world.address, world.port);
  } catch (const InputError& e) {
    throw InputError(cat("the ranks cannot meet at '", world.address, "' (", e.what(),
                         "): set MASTER_ADDR to the host of rank 0"));
  }
}

/// Throws InputError for a port in use.
Socket listen_as_first(const World& world) {
  sockaddr_in address = address_of(world);
  // A name may be one of several of this host: only who stays on it is told by the address.
  if (!is_loopback(address)) address.sin_addr.s_addr = htonl(INADDR_ANY);
  Socket socket = listen_at(address);
  if (!socket.open())
    throw InputError(cat("the ranks cannot meet at port ", world.port, " of ", world.address, " (",
                         std::strerror(errno), "): set MASTER_PORT to a free one"));
  return socket;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

struct Rendezvous::Peer {
  Socket socket;
  int rank = 0;
  std::string host, pid;
  Identity identity;
  std::string pending{};  // read, but no line yet
  Clock::time_point heard = Clock::now();
  int64_t step = -1, progress = 0;
  bool left = false;
  int64_t last_step = 0, asked = 0;  // of one that left: the last step it was in, its calls of any()
};

Rendezvous::Rendezvous(const World& world, const Identity& identity, OnFailure on_failure,
                       const RendezvousLimits& limits)
    : world_(world), on_failure_(std::move(on_failure)), limits_(limits), moved_(Clock::now()) {
  const char* const shared = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");  // which lets ranks share a device
  const bool one_each = !shared || std::string_view(shared) != "1";
  const Identity mine{one_field(identity.source), one_field(identity.config), one_field(identity.data),
                      one_each ? one_field(identity.device) : ""};
  if (world_.rank == 0) {
    meet_as_first(mine);
  } else {
    meet(mine);
  }
  if (::pipe2(wake_, O_CLOEXEC) != 0) throw Error(cat("cannot make a pipe: ", std::strerror(errno)));
  watch_ = std::thread([this] { watch(); });
  ::pthread_setname_np(watch_.native_handle(), "rendezvous");
}

Rendezvous::~Rendezvous() {
  leave(cat(kBye, '\t', last_step_.load(), '\t', asked_));
}

void Rendezvous::meet_as_first(const Identity& identity) {
  const Socket listening = listen_as_first(world_);
  ::fcntl(listening.get(), F_SETFL, O_NONBLOCK);  // a caller may be gone before it is taken
  const auto deadline = in_seconds(limits_.meet_s);
  int strangers = 0;
  std::string wrong;
  const auto is_wrong = [&](const auto&... what) {
    if (wrong.empty()) wrong = cat(what...);
  };
  const auto admit = [&](Caller& caller, const std::vector<std::string>& fields) {
    const int rank = static_cast<int>(number(fields[1]));
    Peer& peer = peers_.emplace_back(Peer{.socket = std::move(caller.socket),
                                          .rank = rank,
                                          .host = fields[3],
                                          .pid = fields[4],
                                          .identity = {fields[5], fields[6], fields[7], fields[8]}});
    peer.pending = std::move(caller.pending);
    if (number(fields[2]) != world_.size)
      is_wrong(name(peer), " is of a world of ", fields[2], ", rank 0 of ", world_.size);
    const bool twice = std::any_of(peers_.begin(), std::prev(peers_.end()),
                                   [&](const Peer& other) { return other.rank == rank; });
    if (twice || rank <= 0 || rank >= world_.size)
      is_wrong(name(peer), " came twice: give each rank its own");
    const Identity& theirs = peer.identity;
    if (theirs.source != identity.source)
      is_wrong(name(peer), " is of another build than rank 0: build the same sources everywhere");
    if (theirs.config != identity.config)
      is_wrong(name(peer), " has another configuration than rank 0: ", theirs.config, " instead of ",
               identity.config);
    if (theirs.data != identity.data)
      is_wrong(name(peer), " has other data than rank 0: give all ranks the same --data");
    const bool shared = std::any_of(peers_.begin(), std::prev(peers_.end()), [&](const Peer& other) {
      return other.identity.device == theirs.device;
    });
    if (!theirs.device.empty() && (shared || theirs.device == identity.device))
      is_wrong(name(peer), " has the device of another rank, ", theirs.device,
               ": start one rank for each device");
  };
  /// Whether it may still say who it is.
  const auto hear = [&](Caller& caller) {
    const bool open = caller.socket.receive(caller.pending);
    const size_t end = caller.pending.find('\n');
    if (end == std::string::npos) return open;
    const auto fields = fields_of(caller.pending.substr(0, end));
    caller.pending.erase(0, end + 1);
    if (fields.size() != 10 || fields[0] != kHello || !same_secret(fields[9], one_field(world_.secret)))
      return false;
    admit(caller, fields);
    return false;
  };
  // All ranks are heard before any is sent away, so that none waits for a meeting that is over; and all
  // callers at once, so that none keeps the others waiting.
  std::list<Caller> callers;
  while (std::ssize(peers_) < world_.size - 1 && Clock::now() < deadline) {
    std::vector<pollfd> fds{{listening.get(), POLLIN, 0}};
    auto next = deadline;
    for (const Caller& caller : callers) {
      fds.push_back({caller.socket.get(), POLLIN, 0});
      next = std::min(next, caller.until);
    }
    if (::poll(fds.data(), fds.size(), milliseconds_until(next)) < 0) continue;  // a signal came
    size_t i = 1;
    for (auto caller = callers.begin(); caller != callers.end();) {
      const bool stays = fds[i++].revents != 0 ? hear(*caller) : Clock::now() < caller->until;
      if (!stays && caller->socket.open()) ++strangers;
      caller = stays ? std::next(caller) : callers.erase(caller);
    }
    if (fds[0].revents == 0) continue;
    Socket socket(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    // Where no descriptor is left, the oldest caller's is free when the next one is taken.
    const bool full = socket.open() ? callers.size() >= kMostCallers : errno == EMFILE || errno == ENFILE;
    if (full && callers.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (full && !callers.empty()) callers.pop_front(), ++strangers;
    if (!socket.open()) continue;
    socket.prepare();
    callers.push_back({std::move(socket)});
  }
  strangers += static_cast<int>(callers.size());  // that have still said nothing
  for (int rank = 1; wrong.empty() && rank < world_.size; ++rank) {
    if (std::ranges::find(peers_, rank, &Peer::rank) == peers_.end())
      is_wrong("rank ", rank, " did not come to ", world_.address, ":", world_.port, " within ",
               limits_.meet_s, " s",
               strangers > 0
                   ? cat("; sent away ", strangers, " callers without the job's STEPLADDER_JOB_SECRET")
                   : world_.stray());
  }
  tell_all(wrong.empty() ? cat("welcome\t", one_field(host_name()), '\t', ::getpid()) : "abort\t" + wrong);
  if (!wrong.empty()) throw Error(wrong);
}

void Rendezvous::meet(const Identity& identity) {
  const sockaddr_in first_rank = address_of(world_);
  const auto deadline = in_seconds(1.25 * limits_.meet_s);  // rank 0 gives up first, and says why
  Socket socket;
  while (!(socket = connect_to(first_rank, deadline)).open()) {
    if (Clock::now() >= deadline)
      throw Error(cat("rank 0 was not met at ", world_.address, ":", world_.port, " within ", limits_.meet_s,
                      " s (", std::strerror(errno), ")", world_.stray()));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  socket.prepare();
  socket.send(cat(kHello, '\t', world_.rank, '\t', world_.size, '\t', one_field(host_name()), '\t',
                  ::getpid(), '\t', identity.source, '\t', identity.config, '\t', identity.data, '\t',
                  identity.device, '\t', one_field(world_.secret)));
  std::string pending;
  const auto fields = fields_of(socket.line(pending, deadline).value_or(""));
  if (fields.size() == 2 && fields[0] == "abort") {
    failed_ = true;
    throw Error(fields[1]);
  }
  if (fields.size() != 3 || fields[0] != "welcome")
    throw Error(cat("rank 0 at ", world_.address, ":", world_.port, " ended before all ranks were there"));
  Peer& first = peers_.emplace_back(
      Peer{.socket = std::move(socket), .rank = 0, .host = fields[1], .pid = fields[2], .identity = {}});
  first.pending = std::move(pending);
}

std::string Rendezvous::name(const Peer& peer) const {
  return cat("rank ", peer.rank, " (", peer.host, ", process ", peer.pid, ")");
}

std::string Rendezvous::share(const std::string& bytes) {
  constexpr const char* kHex = "0123456789abcdef";
  std::unique_lock lock(mutex_);
  if (world_.rank == 0) {
    std::string hex;
    for (const char c : bytes) {
      hex += kHex[static_cast<unsigned char>(c) >> 4];
      hex += kHex[static_cast<unsigned char>(c) & 15];
    }
    tell_all("share\t" + hex);
    return bytes;
  }
  waits_for_share_ = shared_.empty();
  changed_.wait(lock, [this] { return !shared_.empty() || failed_; });
  waits_for_share_ = false;
  if (shared_.empty()) throw Error(reason_);
  const std::string hex = std::move(shared_.front());
  shared_.pop_front();
  std::string decoded;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    decoded += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return decoded;
}

bool Rendezvous::any(bool flag) {
  std::unique_lock lock(mutex_);
  const int64_t call = ++asked_;
  if (world_.rank == 0) {
    any_ = any_ || flag;
    ++flags_;
    answer();
  } else {
    peers_.front().socket.send(flag ? "flag\t1" : "flag\t0");
  }
  changed_.wait(lock, [&] { return answered_ >= call || failed_; });
  if (answered_ < call) throw Error(reason_);
  return answer_;
}

/// Once all ranks have asked.
void Rendezvous::answer() {
  if (flags_ < world_.size) return;
  answer_ = std::exchange(any_, false);
  flags_ = 0;
  ++answered_;
  tell_all(answer_ ? "answer\t1" : "answer\t0");
  changed_.notify_all();
}

void Rendezvous::agree(const std::string& what, const std::string& state) {
  const std::string mine = one_field(state), first = share(mine);
  if (mine != first) throw Error(cat(what, " is ", mine, ", and on rank 0 ", first));
}

void Rendezvous::begin_step(int64_t step) {
  step_begin_ = Clock::now();
  step_ = step;
  last_step_ = step;
  progress();
}

void Rendezvous::end_step() {
  longest_step_s_ = std::max(longest_step_s_.load(), since(step_begin_));
  step_ = -1;
  progress();
}

void Rendezvous::fail(const std::string& reason) {
  leave((world_.rank == 0 ? "abort\trank 0: " : "fail\t") + one_field(reason));
}

void Rendezvous::leave(const std::string& last_words) {
  if (!watch_.joinable()) return;
  [[maybe_unused]] const ssize_t woken = ::write(wake_[1], "", 1);
  watch_.join();
  tell_all(last_words);
  for (int& fd : wake_) ::close(std::exchange(fd, -1));
  // What is unread when a socket closes may cost the other side what was sent last.
  const auto deadline = in_seconds(1.0);
  for (Peer& peer : peers_) {
    ::shutdown(peer.socket.get(), SHUT_WR);
    std::string rest;
    for (pollfd fd{peer.socket.get(), POLLIN, 0}; !last_words.starts_with(kBye) &&
                                                  ::poll(&fd, 1, milliseconds_until(deadline)) > 0 &&
                                                  peer.socket.receive(rest);)
      rest.clear();
  }
  peers_.clear();
}

/// What the watching thread does.
void Rendezvous::watch() {
  auto next_beat = Clock::now();
  for (;;) {
    std::vector<pollfd> fds = {{wake_[0], POLLIN, 0}};
    for (const Peer& peer : peers_) fds.push_back({peer.left ? -1 : peer.socket.get(), POLLIN, 0});
    ::poll(fds.data(), fds.size(), milliseconds_until(next_beat));
    if (fds[0].revents != 0) return;
    size_t i = 1;
    for (Peer& peer : peers_)
      if (fds[i++].revents != 0 && !receive(peer)) return;
    if (Clock::now() < next_beat) continue;
    next_beat = in_seconds(1.0);
    {
      const std::scoped_lock lock(mutex_);
      tell_all(cat("beat\t", step_.load(), '\t', progress_.load()));
    }
    look_for_the_silent();
    look_for_the_gone();
    if (world_.rank == 0) look_for_the_stuck();
    if (failed_) return;
  }
}

/// False once the job is over.
bool Rendezvous::receive(Peer& peer) {
  const bool open = peer.socket.receive(peer.pending);
  for (size_t end; (end = peer.pending.find('\n')) != std::string::npos;) {
    const std::string line = peer.pending.substr(0, end);
    peer.pending.erase(0, end + 1);
    peer.heard = Clock::now();
    handle(peer, line);
    if (failed_) return false;
  }
  if (!open && !peer.left) lost(peer, "died");
  return !failed_;
}

void Rendezvous::handle(Peer& peer, const std::string& line) {
  const auto fields = fields_of(line);
  const std::string& kind = fields[0];
  if (kind == "beat" && fields.size() == 3) {
    peer.step = number(fields[1]);
    peer.progress = number(fields[2]);
  } else if (kind == kBye && fields.size() == 3) {
    {
      const std::scoped_lock lock(mutex_);
      peer.left = true;
    }
    peer.last_step = number(fields[1]);
    peer.asked = number(fields[2]);
    look_for_the_gone();
  } else if (kind == "fail" && fields.size() == 2) {
    lost(peer, fields[1]);
  } else if (kind == "abort" && fields.size() == 2) {
    end_job(fields[1], false);
  } else if (fields.size() == 2) {
    const std::scoped_lock lock(mutex_);
    if (kind == "flag") {
      any_ = any_ || fields[1] == "1";
      ++flags_;
      answer();
    } else if (kind == "answer") {
      answer_ = fields[1] == "1";
      ++answered_;
    } else if (kind == "share") {
      shared_.push_back(fields[1]);
    }
    changed_.notify_all();
  }
}

void Rendezvous::look_for_the_silent() {
  for (const Peer& peer : peers_) {
    if (peer.left || since(peer.heard) < limits_.silence_s) continue;
    return lost(peer, cat("hangs: no sign of life for ", limits_.silence_s, " s"));
  }
}

/// A rank that has left takes no part in a step, a call of any() or of share() that others are in.
void Rendezvous::look_for_the_gone() {
  for (const Peer& gone : peers_) {
    if (!gone.left) continue;
    bool missed = step_ > gone.last_step;
    for (const Peer& other : peers_) missed = missed || (!other.left && other.step > gone.last_step);
    {
      const std::scoped_lock lock(mutex_);
      missed = missed || (world_.rank == 0 ? flags_ > 0 && gone.asked <= answered_
                                           : asked_ > std::max(answered_, gone.asked) || waits_for_share_);
    }
    if (missed) return lost(gone, "left while others wait for it");
  }
}

/// All ranks are in a step and none gets further: the one that is behind keeps the others waiting.
void Rendezvous::look_for_the_stuck() {
  int64_t sum = progress_;
  bool waiting = step_ >= 0;
  const Peer* behind = nullptr;
  for (const Peer& peer : peers_) {
    sum += peer.progress;
    waiting = waiting && peer.step >= 0 && !peer.left;
    if (!behind || peer.progress < behind->progress) behind = &peer;
  }
  if (!waiting || sum != seen_) moved_ = Clock::now();
  seen_ = sum;
  const double longest = longest_step_s_;
  const double limit = longest > 0.0 ? std::max(limits_.step_s, 20.0 * longest) : limits_.first_step_s;
  if (since(moved_) < limit) return;
  const std::string why = cat("hangs: no progress in step ", step_.load(), " for ", limit, " s");
  if (behind && behind->progress <= progress_) return lost(*behind, why);
  end_job(cat("rank 0 (", host_name(), ", process ", ::getpid(), ") ", why), true);
}

void Rendezvous::tell_all(const std::string& line) {
  for (const Peer& peer : peers_)
    if (!peer.left) peer.socket.send(line);
}

void Rendezvous::lost(const Peer& peer, const std::string& why) {
  end_job(name(peer) + " " + why, world_.rank <= 1);  // where rank 0 is lost, rank 1 speaks
}

void Rendezvous::end_job(const std::string& reason, bool speaks) {
  {
    const std::scoped_lock lock(mutex_);
    if (failed_) return;
    if (world_.rank == 0) tell_all("abort\t" + reason);
    failed_ = true;
    reason_ = reason;
  }
  changed_.notify_all();
  on_failure_(reason, speaks);
}

}  // namespace stepladder
