#include "bench/run/hub.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "bench/base/text.h"
#include "bench/results/json.h"
#include "bench/run/events.h"
#include "bench/run/machine.h"
#include "model/error.h"
#include "model/rendezvous.h"

namespace stepladder {
namespace {

constexpr size_t kMostCallers = 64;  // at once, of whom nothing is known
constexpr int kMostTold = 5;         // strangers that the user hears of

struct Interface {
  std::string name;
  sockaddr_in address;
};

std::vector<Interface> interfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(first, ::freeifaddrs);
  std::vector<Interface> all;
  for (const ifaddrs* one = first; one; one = one->ifa_next) {
    if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET) continue;
    Interface& interface = all.emplace_back(Interface{one->ifa_name, {}});
    std::memcpy(&interface.address, one->ifa_addr, sizeof interface.address);
    interface.address.sin_port = 0;
  }
  return all;
}

bool same(const sockaddr_in& a, const sockaddr_in& b) {
  return a.sin_addr.s_addr == b.sin_addr.s_addr;
}

/// "ranks 1, 3 and 4".
std::string list_of(const std::vector<std::string>& names) {
  const std::vector<std::string> first(names.begin(), names.end() - 1);
  return first.empty() ? names.back() : cat(join(first, ", "), " and ", names.back());
}

}  // namespace

sockaddr_in address_of_interface(const std::string& interface) {
  const std::vector<Interface> all = interfaces();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (interface.empty()) {
    try {
      address = resolve(host_name(), 0);
    } catch (const InputError&) {  // a name that stands for nothing
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    const auto is_it = [&](const Interface& one) { return same(one.address, address); };
    if (!is_loopback(address) && std::ranges::any_of(all, is_it)) return address;
    const auto outward =
        std::ranges::find_if(all, [](const Interface& one) { return !is_loopback(one.address); });
    if (outward != all.end()) return outward->address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  const bool numeric = ::inet_pton(AF_INET, interface.c_str(), &address.sin_addr) == 1;
  std::vector<std::string> names;
  for (const Interface& one : all) {
    if (one.name == interface || (numeric && same(one.address, address))) return one.address;
    names.push_back(cat(one.name, " (", address_text(one.address), ")"));
  }
  throw InputError(cat("--interface ", interface, ": no network interface or IPv4 address of this machine",
                       names.empty() ? "" : cat("; there are ", list_of(names))));
}

/// One that has connected, and has not said who it is.
struct Hub::Caller {
  Socket socket;
  std::string where;
  Clock::time_point until = in_seconds(hub::kHello_s);
  std::string pending{};
};

/// A rank that is here.
struct Hub::Agent {
  Socket socket;
  size_t rank = 0;
  std::string host, port;
  std::string pending{};
  Clock::time_point heard = Clock::now();
  bool ended = false;
};

Hub::Hub(size_t ranks, const std::string& interface, double meet_s)
    : ranks_(ranks),
      meet_s_(meet_s),
      secret_(random_secret()),
      address_(address_of_interface(interface)),
      listening_(listen_at(address_)),
      hosts_(ranks) {
  if (!listening_.open())
    throw InputError(cat("no rank can report to ", address_text(address_), " (", std::strerror(errno),
                         "): --interface names another network"));
  ::fcntl(listening_.get(), F_SETFL, O_NONBLOCK);  // a caller may be gone before it is taken
  if (::pipe2(wake_, O_CLOEXEC) != 0) throw Error(cat("cannot make a pipe: ", std::strerror(errno)));
}

Hub::~Hub() {
  [[maybe_unused]] const ssize_t woken = ::write(wake_[1], "", 1);
  if (watch_.joinable()) watch_.join();
  for (const int fd : wake_) ::close(fd);
}

std::string Hub::address() const {
  return cat(address_text(address_), ":", port_of(listening_));
}

std::vector<std::string> Hub::hosts() const {
  const std::scoped_lock lock(mutex_);
  return hosts_;
}

void Hub::begin(std::vector<Fd> streams) {
  check(streams.size() == ranks_, "a stream for each rank");
  streams_ = std::move(streams);
  meet_until_ = in_seconds(meet_s_);
  watch_ = std::thread([this] { watch(); });
}

/// What the watching thread does.
void Hub::watch() {
  sigset_t pipes;
  sigemptyset(&pipes);
  sigaddset(&pipes, SIGPIPE);  // of a stream that nobody reads any more
  ::pthread_sigmask(SIG_BLOCK, &pipes, nullptr);
  auto next_beat = Clock::now();
  for (;;) {
    std::vector<pollfd> fds = {{wake_[0], POLLIN, 0}, {listening_.get(), POLLIN, 0}};
    for (const Caller& caller : callers_) fds.push_back({caller.socket.get(), POLLIN, 0});
    for (const Agent& agent : agents_) fds.push_back({agent.socket.get(), POLLIN, 0});
    ::poll(fds.data(), fds.size(), milliseconds_until(next_beat));
    if (fds[0].revents != 0) return;
    size_t i = 2;
    // Those that come in meanwhile are looked at the next time.
    for (auto caller = callers_.begin(); caller != callers_.end();) {
      const bool stays = fds[i++].revents != 0 ? hear(*caller) : Clock::now() < caller->until;
      if (!stays && caller->socket.open())
        send_away(*caller, caller->pending.empty() ? "said nothing" : "does not know the job's secret");
      caller = stays ? std::next(caller) : callers_.erase(caller);
    }
    const size_t known = fds.size() - i;
    auto agent = agents_.begin();
    for (size_t n = 0; n < known; ++n, ++agent)
      if (fds[i++].revents != 0 && !hear(*agent)) agent->socket.close();
    if (fds[1].revents != 0) take_callers();
    if (Clock::now() < next_beat) continue;
    next_beat = in_seconds(hub::kBeat_s);
    for (const Agent& one : agents_)
      if (one.socket.open() && !one.ended) one.socket.send("beat");
    look_for_the_silent();
    look_for_the_missing();
  }
}

void Hub::take_callers() {
  Socket socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  // Where no descriptor is left, the oldest caller's is free when the next one is taken.
  const bool full = socket.open() ? callers_.size() >= kMostCallers : errno == EMFILE || errno == ENFILE;
  if (full && callers_.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  if (full && !callers_.empty()) {
    send_away(callers_.front(), "said nothing");
    callers_.pop_front();
  }
  if (!socket.open()) return;
  socket.prepare();
  const sockaddr_in from = peer_of(socket);
  callers_.push_back({std::move(socket), cat(address_text(from), ":", ntohs(from.sin_port))});
}

void Hub::send_away(const Caller& caller, const char* why) {
  if (++strangers_ > kMostTold) return;
  std::cerr << cat("stepladder: sent away ", caller.where, ", which ", why,
                   strangers_ == kMostTold ? "; more of them are not told\n" : "\n")
            << std::flush;
}

/// False once it is to be sent away, or has been admitted: its socket is then another's.
bool Hub::hear(Caller& caller) {
  const bool open = caller.socket.receive(caller.pending, hub::kMaxHello);
  const size_t end = caller.pending.find('\n');
  if (end == std::string::npos) return open;
  const auto fields = fields_of(caller.pending.substr(0, end));
  if (fields.size() != 7 || fields[0] != hub::kHello || !same_secret(fields[2], secret_)) return false;
  caller.pending.erase(0, end + 1);
  admit(caller, fields);
  return false;
}

void Hub::admit(Caller& caller, const std::vector<std::string>& fields) {
  const auto rank = number_from<size_t>(fields[3]).value_or(ranks_);
  const std::string &size = fields[4], &port = fields[5], &host = fields[6];
  const size_t told = std::min(rank, ranks_ - 1);  // whose stream tells what is wrong
  Socket socket = std::move(caller.socket);
  const auto name = cat("rank ", fields[3], " (", host, ")");
  if (fields[1] != version())
    fail(told,
         cat(name, " is of stepladder ", fields[1], ", this is ", version(), ": build the same everywhere"));
  else if (size != std::to_string(ranks_))
    fail(told, cat(name, " is of a world of ", size, ", --devices asks for ", ranks_,
                   ": the launcher must start as many, and tell each its rank"));
  else if (rank >= ranks_)
    fail(told, cat(name, " is no rank of this job, whose ranks are 0 to ", ranks_ - 1,
                   ": the launcher must give each its own"));
  else if (std::ranges::find(agents_, rank, &Agent::rank) != agents_.end())
    fail(told, cat(name, " came twice: the launcher must give each its own rank"));
  if (failed_) return;  // it is hung up on
  {
    const std::scoped_lock lock(mutex_);
    hosts_[rank] = host;
  }
  socket.prepare(hub::kSilence_s / 2);
  agents_.push_back({std::move(socket), rank, host, port, std::move(caller.pending)});
  if (agents_.size() == ranks_) go();
}

/// All are here: tells them where rank 0 is.
void Hub::go() {
  const Agent& first = *std::ranges::find(agents_, size_t{0}, &Agent::rank);
  const std::string master = address_text(peer_of(first.socket));
  for (const Agent& agent : agents_) {
    const auto here = std::ranges::count(agents_, agent.host, &Agent::host);
    agent.socket.send(cat("go\t", master, '\t', first.port, '\t', here));
  }
}

/// False once the connection is to be closed.
bool Hub::hear(Agent& agent) {
  const bool open = agent.socket.receive(agent.pending, hub::kMaxLine);
  size_t begin = 0;
  for (size_t end; (end = agent.pending.find('\n', begin)) != std::string::npos; begin = end + 1)
    handle(agent, agent.pending.substr(begin, end - begin));
  agent.pending.erase(0, begin);
  agent.heard = Clock::now();
  if (!open && !agent.ended)
    fail(agent.rank,
         "its connection closed before it told how it ended: was `stepladder rank` killed there?");
  return open;
}

void Hub::handle(Agent& agent, const std::string& line) {
  if (line.starts_with('>')) {
    write_all(streams_[agent.rank].get(), line.substr(1) + "\n");
    return;
  }
  const auto fields = fields_of(line);
  if (fields.size() != 2) return;  // a sign of life
  agent.ended = true;
  if (fields[0] == "killed")
    fail(agent.rank, cat("its launcher or system ended it with signal ", fields[1]));
  else if (fields[1] != "0" && fields[1] != std::to_string(kExitInconclusive))
    failed_ = true;  // as it has told; what becomes of the others follows from it
  agent.socket.send("ack");
}

void Hub::look_for_the_silent() {
  for (const Agent& agent : agents_) {
    const std::chrono::duration<double> silence = Clock::now() - agent.heard;
    if (agent.ended || !agent.socket.open() || silence.count() < hub::kSilence_s) continue;
    fail(agent.rank, cat("no sign of life for ", hub::kSilence_s, " s: is the machine still reachable?"));
  }
}

void Hub::look_for_the_missing() {
  if (failed_ || agents_.size() == ranks_ || Clock::now() < meet_until_) return;
  std::vector<std::string> here, missing;
  size_t first = ranks_;
  for (size_t rank = 0; rank < ranks_; ++rank) {
    if (std::ranges::find(agents_, rank, &Agent::rank) != agents_.end()) {
      here.push_back(cat(rank, " (", hosts_[rank], ")"));
    } else {
      first = std::min(first, rank);
      missing.push_back(std::to_string(rank));
    }
  }
  const bool one = missing.size() == 1;
  fail(first, cat(one ? "rank " : "ranks ", list_of(missing), " did not come to ", address(), " within ",
                  meet_s_, " s; ", here.empty() ? "none did" : cat("rank ", list_of(here), " did"),
                  strangers_ > 0 ? cat(", and ", strangers_, " that were sent away") : "",
                  "; --launch-timeout allows more"));
}

/// The job is over, unless it is already. The rank's stream says why.
void Hub::fail(size_t rank, const std::string& reason) {
  if (std::exchange(failed_, true)) return;
  const Json error = {{"event", "error"}, {"status", "error"}, {"reason", reason}};
  const Json exit = {{"event", "exit"}, {"status", static_cast<int>(kExitFailed)}};
  for (const Json& event : {error, exit}) write_all(streams_[rank].get(), dump(event) + "\n");
}

}  // namespace stepladder
