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
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "model/callers.h"

namespace stepladder {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kHello = "stepladder 4";
constexpr const char* kBye = "bye";
constexpr size_t kMaxLine = 2 << 20;  // bytes, of a line of a known rank
constexpr double kLate = 5.0;         // seconds to wait for the other ranks once something is wrong

/// Seconds since `begin`.
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

/// Listens where the ranks meet. Throws InputError for a port in use.
Socket listen_as_first(const World& world) {
  sockaddr_in address = address_of(world);
  // The host may have several addresses, so listen on all of them, unless the address is loopback.
  if (!is_loopback(address)) address.sin_addr.s_addr = htonl(INADDR_ANY);
  Socket socket = listen_at(address);
  if (!socket.open())
    throw InputError(cat("the ranks cannot meet at port ", world.port, " of ", world.address, " (",
                         std::strerror(errno), "): set MASTER_PORT to a free one"));
  return socket;
}

/// Ranks in words: "rank 3", "ranks 1, 3 and 4".
std::string ranks_text(const std::vector<std::string>& names) {
  std::string text = names.size() > 1 ? "ranks " : "rank ";
  for (size_t i = 0; i < names.size(); ++i)
    text += cat(i == 0 ? "" : i + 1 < names.size() ? ", " : " and ", names[i]);
  return text;
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
  std::string address{}, offer{};
  std::string pending{};  // bytes read that are not a whole line yet
  Clock::time_point heard = Clock::now();
  int64_t step = -1, progress = 0;
  bool left = false;
  int64_t last_step = 0, asked = 0;  // for a peer that left: its last step, its calls of any()
};

Rendezvous::Rendezvous(const World& world, const Identity& identity, OnFailure on_failure,
                       const RendezvousLimits& limits, std::optional<Harness> harness)
    : world_(world),
      on_failure_(std::move(on_failure)),
      limits_(limits),
      harness_(std::move(harness)),
      first_(harness_ ? Harness::kRank : 0),
      moved_(Clock::now()) {
  const char* const shared = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");  // "1" lets ranks share a device
  const bool one_each = !shared || std::string_view(shared) != "1";
  const Identity mine{one_field(identity.source), one_field(identity.config), one_field(identity.data),
                      one_each ? one_field(identity.device) : ""};
  if (is_first()) {
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
  const auto belongs_to_job = [secret = one_field(world_.secret)](const std::vector<std::string>& hello) {
    return hello.size() == 11 && hello[0] == kHello && same_secret(hello[9], secret);
  };
  Callers callers(harness_ ? std::move(harness_->listening) : listen_as_first(world_), belongs_to_job,
                  harness_ ? harness_->on_rejected : nullptr);
  auto deadline = in_seconds(limits_.meet_s), next_beat = in_seconds(1.0);
  std::string wrong;
  const auto is_wrong = [&](const auto&... what) {
    if (!wrong.empty()) return;
    wrong = cat(what...);
    deadline = std::min(deadline, in_seconds(kLate));
  };
  const auto admit = [&](Callers::Caller& caller) {
    const std::vector<std::string>& fields = caller.hello;
    const int rank = static_cast<int>(number(fields[1]));
    Peer& peer = peers_.emplace_back(Peer{.socket = std::move(caller.socket),
                                          .rank = rank,
                                          .host = fields[3],
                                          .pid = fields[4],
                                          .identity = {fields[5], fields[6], fields[7], fields[8]},
                                          .address = caller.from,
                                          .offer = fields[10]});
    peer.socket.prepare(limits_.silence_s / 2);
    peer.pending = std::move(caller.pending);
    const auto is_anothers = [&](const auto& same) {
      return std::any_of(peers_.begin(), std::prev(peers_.end()), same);
    };
    if (number(fields[2]) != world_.size)
      is_wrong(name(peer), " is of a world of ", fields[2], ", ", first_name(), " of ", world_.size,
               ": start as many ranks, and tell each");
    if (rank < 0 || rank >= world_.size)
      is_wrong(name(peer), " is no rank of this job, whose ranks are 0 to ", world_.size - 1);
    if (rank == world_.rank || is_anothers([&](const Peer& other) { return other.rank == rank; }))
      is_wrong(name(peer), " came twice: give each rank its own");
    const Identity& theirs = peer.identity;
    if (theirs.source != identity.source)
      is_wrong(name(peer), " is of another build than ", first_name(), ": build the same sources everywhere");
    if (theirs.config != identity.config)
      is_wrong(name(peer), " has another configuration than rank 0: ", theirs.config, " instead of ",
               identity.config);
    if (theirs.data != identity.data)
      is_wrong(name(peer), " has other data than rank 0: give all ranks the same --data");
    const bool shared =
        is_anothers([&](const Peer& other) { return other.identity.device == theirs.device; });
    if (!theirs.device.empty() && (shared || theirs.device == identity.device))
      is_wrong(name(peer), " has the device of another rank, ", theirs.device,
               ": start one rank for each device");
  };
  // All ranks are heard before any is sent away, so that none waits for a meeting that is over.
  const int expected = world_.size - 1 - first_;
  while (std::ssize(peers_) < expected && Clock::now() < deadline) {
    std::vector<pollfd> fds{{harness_ ? harness_->over : -1, POLLIN, 0}};
    for (const Peer& peer : peers_) fds.push_back({peer.left ? -1 : peer.socket.get(), POLLIN, 0});
    callers.add_to(fds);
    const auto until = std::min({deadline, next_beat, callers.until()});
    if (::poll(fds.data(), fds.size(), milliseconds_until(until)) < 0) continue;  // a signal came
    if (fds[0].revents != 0) {
      is_wrong("the job is over");
      break;
    }
    size_t i = 1;
    for (Peer& peer : peers_) {
      if (fds[i++].revents == 0 || peer.socket.receive(peer.pending)) continue;
      peer.left = true;
      is_wrong(name(peer), " died before all ranks were there");
    }
    for (auto& caller : callers.identified(std::span(fds).subspan(i))) admit(caller);
    if (Clock::now() >= next_beat) {
      broadcast("beat\t-1\t0");
      next_beat = in_seconds(1.0);
    }
  }
  callers.reject_all();
  std::vector<std::string> missing, here;
  for (int rank = first_ + 1; rank < world_.size; ++rank) {
    const auto found = std::ranges::find(peers_, rank, &Peer::rank);
    if (found == peers_.end())
      missing.push_back(std::to_string(rank));
    else
      here.push_back(cat(rank, " (", found->host, ")"));
  }
  if (!missing.empty())
    is_wrong(ranks_text(missing), " did not come to ", world_.address, ":", world_.port, " within ",
             limits_.meet_s, " s", here.empty() ? "" : cat("; ", ranks_text(here), " did"),
             callers.rejected() > 0
                 ? cat("; sent away ", callers.rejected(), " callers without the job's STEPLADDER_JOB_SECRET")
                 : "",
             hint());
  if (!wrong.empty() && harness_) on_failure_(wrong, true);  // the harness learns of it before the ranks end
  broadcast(wrong.empty() ? cat("welcome\t", one_field(host_name()), '\t', ::getpid()) : "abort\t" + wrong);
  if (!wrong.empty()) throw Error(wrong);
}

void Rendezvous::meet(const Identity& identity) {
  const sockaddr_in address = address_of(world_);
  const std::string where = cat(first_name(), " at ", world_.address, ":", world_.port);
  const auto deadline = in_seconds(1.25 * limits_.meet_s);  // rank 0 gives up first, and says why
  Socket socket;
  while (!(socket = connect_to(address, deadline)).open()) {
    if (const int error = errno; Clock::now() >= deadline)
      throw Error(
          cat(where, " was not met within ", limits_.meet_s, " s (", std::strerror(error), ")", hint()));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  socket.prepare(limits_.silence_s / 2);
  socket.send(cat(kHello, '\t', world_.rank, '\t', world_.size, '\t', one_field(host_name()), '\t',
                  ::getpid(), '\t', identity.source, '\t', identity.config, '\t', identity.data, '\t',
                  identity.device, '\t', one_field(world_.secret), '\t',
                  harness_ ? one_field(harness_->offer) : ""));
  std::string pending;
  std::vector<std::string> fields;
  do fields = fields_of(socket.line(pending, in_seconds(limits_.silence_s)).value_or(""));
  while (fields[0] == "beat");
  if (fields.size() == 2 && fields[0] == "abort") {
    failed_ = true;
    throw Error(fields[1]);
  }
  if (fields.size() != 3 || fields[0] != "welcome")
    throw Error(cat(where, " hung up before all ranks were there, or has another STEPLADDER_JOB_SECRET"));
  Peer& first = peers_.emplace_back(
      Peer{.socket = std::move(socket), .rank = first_, .host = fields[1], .pid = fields[2], .identity = {}});
  first.pending = std::move(pending);
}

std::string Rendezvous::first_name() const {
  return harness_ ? "the harness" : "rank 0";
}

std::vector<Rendezvous::Member> Rendezvous::members() const {
  std::vector<Member> all;
  for (const Peer& peer : peers_) all.push_back({peer.rank, peer.host, peer.address, peer.offer});
  std::ranges::sort(all, {}, &Member::rank);
  return all;
}

void Rendezvous::tell(const std::string& line) {
  const std::scoped_lock lock(mutex_);
  const Socket& first = peers_.front().socket;
  if (!first.send(">" + line)) ::shutdown(first.get(), SHUT_RDWR);  // a torn line: the watch ends the job
}

std::string Rendezvous::name(const Peer& peer) const {
  const bool rank = peer.rank >= 0 || is_first();  // otherwise `peer` is the harness
  return cat(rank ? cat("rank ", peer.rank) : first_name(), " (", peer.host, ", process ", peer.pid, ")");
}

std::string Rendezvous::share(const std::string& bytes) {
  constexpr const char* kHex = "0123456789abcdef";
  std::unique_lock lock(mutex_);
  if (is_first()) {
    std::string hex;
    for (const char c : bytes) {
      hex += kHex[static_cast<unsigned char>(c) >> 4];
      hex += kHex[static_cast<unsigned char>(c) & 15];
    }
    broadcast("share\t" + hex);
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
  if (is_first()) {
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

/// Answers any() once all ranks have called it.
void Rendezvous::answer() {
  if (flags_ < world_.size) return;
  answer_ = std::exchange(any_, false);
  flags_ = 0;
  ++answered_;
  broadcast(answer_ ? "answer\t1" : "answer\t0");
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
  leave((is_first() ? cat("abort\t", first_name(), ": ") : "fail\t") + one_field(reason));
}

void Rendezvous::leave(const std::string& last_words) {
  if (!watch_.joinable()) return;
  [[maybe_unused]] const ssize_t woken = ::write(wake_[1], "", 1);
  watch_.join();
  broadcast(last_words);
  for (int& fd : wake_) ::close(std::exchange(fd, -1));
  // Closing a socket with unread data may discard the lines that were sent last, so read to the end.
  const auto deadline = in_seconds(1.0);
  for (Peer& peer : peers_) {
    if (peer.left) continue;
    ::shutdown(peer.socket.get(), SHUT_WR);
    std::string rest;
    for (pollfd fd{peer.socket.get(), POLLIN, 0};
         ::poll(&fd, 1, milliseconds_until(deadline)) > 0 && peer.socket.receive(rest);)
      rest.clear();
  }
  peers_.clear();
}

/// Body of the watching thread.
void Rendezvous::watch() {
  auto next_beat = Clock::now();
  for (;;) {
    std::vector<pollfd> fds = {{wake_[0], POLLIN, 0}};
    for (const Peer& peer : peers_) fds.push_back({peer.socket.get(), POLLIN, 0});
    ::poll(fds.data(), fds.size(), milliseconds_until(next_beat));
    if (fds[0].revents != 0) return;
    size_t i = 1;
    for (Peer& peer : peers_)
      if (fds[i++].revents != 0 && !receive(peer)) return;
    if (Clock::now() < next_beat) continue;
    next_beat = in_seconds(1.0);
    {
      const std::scoped_lock lock(mutex_);
      broadcast(cat("beat\t", step_.load(), '\t', progress_.load()));
    }
    check_heartbeats();
    check_departed();
    if (is_first()) check_progress();
    if (failed_) return;
  }
}

/// Reads the peer's lines; false once the job has failed.
bool Rendezvous::receive(Peer& peer) {
  const bool open = peer.socket.receive(peer.pending, kMaxLine);
  size_t begin = 0;
  for (size_t end; !failed_ && (end = peer.pending.find('\n', begin)) != std::string::npos; begin = end + 1)
    handle(peer, peer.pending.substr(begin, end - begin));
  peer.pending.erase(0, begin);
  peer.heard = Clock::now();
  if (!open && !peer.left) lost(peer, "died");
  if (!open) {  // the peer's leave() waits for the socket to close
    const std::scoped_lock lock(mutex_);
    peer.socket.close();
  }
  return !failed_;
}

void Rendezvous::handle(Peer& peer, const std::string& line) {
  if (line.starts_with('>') && is_first() && harness_) return harness_->on_line(peer.rank, line.substr(1));
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
    check_departed();
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

void Rendezvous::check_heartbeats() {
  for (const Peer& peer : peers_) {
    if (peer.left || since(peer.heard) < limits_.silence_s) continue;
    return lost(peer, cat("hangs: no sign of life for ", limits_.silence_s, " s"));
  }
}

/// Ends the job if others wait for a rank that has left: in a step, or in a call of any() or share().
void Rendezvous::check_departed() {
  for (const Peer& gone : peers_) {
    if (!gone.left) continue;
    bool missed = step_ > gone.last_step;
    for (const Peer& other : peers_) missed = missed || (!other.left && other.step > gone.last_step);
    {
      const std::scoped_lock lock(mutex_);
      missed = missed || (is_first() ? flags_ > 0 && gone.asked <= answered_
                                     : asked_ > std::max(answered_, gone.asked) || waits_for_share_);
    }
    if (missed) return lost(gone, "left while others wait for it");
  }
}

/// Ends the job if all ranks are in a step and none has got further for the time limit. The reason names the
/// rank that is furthest behind, for which the others wait.
void Rendezvous::check_progress() {
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
  end_job(cat(first_name(), " (", host_name(), ", process ", ::getpid(), ") ", why), true);
}

void Rendezvous::broadcast(const std::string& line) {
  for (const Peer& peer : peers_)
    if (!peer.left) peer.socket.send(line);
}

void Rendezvous::lost(const Peer& peer, const std::string& why) {
  end_job(name(peer) + " " + why, world_.rank <= 1);  // if rank 0 is lost, rank 1 reports it
}

void Rendezvous::end_job(const std::string& reason, bool speaks) {
  const auto tell = [&] {  // the lost peer too: it may be a stopped process that resumes
    const std::scoped_lock lock(mutex_);
    broadcast("abort\t" + reason);
  };
  {
    const std::scoped_lock lock(mutex_);
    if (failed_) return;
    failed_ = true;
    reason_ = reason;
  }
  if (!harness_) tell();  // since this process ends now
  changed_.notify_all();
  on_failure_(reason, speaks);
  if (harness_) tell();  // a harness knows why before it sees ranks end
}

}  // namespace stepladder
