#include "bench/run/agent.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>

#include "bench/base/text.h"
#include "bench/results/json.h"
#include "bench/results/writer.h"
#include "bench/run/child.h"
#include "bench/run/events.h"
#include "bench/run/hub.h"
#include "bench/run/machine.h"
#include "bench/run/telemetry.h"
#include "model/comm.h"
#include "model/rendezvous.h"
#include "model/socket.h"

namespace stepladder {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kConnect = 10.0, kAck = 5.0;  // seconds

struct Destination {
  std::string host;
  int port = 0;
};

Destination destination_of(const std::string& to) {
  const size_t colon = to.rfind(':');
  const auto port = number_from<int>(colon == std::string::npos ? "" : to.substr(colon + 1));
  if (!port || *port < 1 || *port > 65535)
    throw InputError(cat("--to ", to, ": not HOST:PORT, as the harness gives it to its launcher"));
  return {to.substr(0, colon), *port};
}

/// The connection to the harness, and the thread that watches it.
class Link {
 public:
  /// Where rank 0 is to be met, and how many ranks are on this machine.
  struct Go {
    std::string address, port, local_size;
  };

  /// Throws Error.
  Link(const World& world, const std::string& to)
      : name_(cat("rank ", world.rank, " on ", host_name())), to_(to) {
    const Destination harness = destination_of(to);
    const auto deadline = in_seconds(kConnect);
    sockaddr_in address{};
    try {
      address = resolve(harness.host, harness.port);
    } catch (const InputError& e) {
      unreachable(e.what());
    }
    while (!(socket_ = connect_to(address, deadline)).open()) {
      if (const int error = errno; Clock::now() >= deadline) unreachable(std::strerror(error));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    socket_.prepare(hub::kSilence_s / 2);
    socket_.send(cat(hub::kHello, '\t', version(), '\t', world.secret, '\t', world.rank, '\t', world.size,
                     '\t', free_port(), '\t', one_field(host_name())));
    if (::pipe2(wake_, O_CLOEXEC) != 0) throw Error(cat("cannot make a pipe: ", std::strerror(errno)));
    watch_ = std::thread([this] { watch(); });
  }
  ~Link() {
    [[maybe_unused]] const ssize_t woken = ::write(wake_[1], "", 1);
    watch_.join();
    for (const int fd : wake_) ::close(fd);
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Waits until all ranks are there. Throws Error where the harness hangs up.
  Go wait_for_all() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return go_ || lost_; });
    if (!go_)
      throw Error(cat(name_, ": the harness at ", to_,
                      " hung up: the job is over, or STEPLADDER_JOB_SECRET is that of another"));
    return *go_;
  }
  /// An event for the harness.
  void tell(std::string_view line) { send(cat('>', line)); }
  /// How this rank ended; waits until the harness has it all.
  void say_goodbye(const std::string& line) {
    send(line);
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, in_seconds(kAck), [this] { return acknowledged_ || lost_; });
  }
  bool lost() const {
    const std::scoped_lock lock(mutex_);
    return lost_;
  }
  [[noreturn]] void throw_lost() const {
    throw Error(cat(name_, ": the harness at ", to_, " is gone, and the trainer was ended"));
  }

 private:
  [[noreturn]] void unreachable(const std::string& why) const {
    throw Error(cat(name_, " cannot reach the harness at ", to_, " (", why,
                    "): its --interface names the network to use"));
  }
  void send(const std::string& line) {
    const std::scoped_lock lock(sending_);
    if (!socket_.send(line)) lose();
  }
  void lose() {
    const std::scoped_lock lock(mutex_);
    lost_ = true;
    changed_.notify_all();
  }

  void watch() {
    std::string pending;
    auto silent_at = in_seconds(hub::kSilence_s), next_beat = in_seconds(hub::kBeat_s);
    for (;;) {
      pollfd fds[] = {{wake_[0], POLLIN, 0}, {socket_.get(), POLLIN, 0}};
      ::poll(fds, 2, milliseconds_until(next_beat));
      if (fds[0].revents != 0) return;
      if (fds[1].revents != 0) {
        if (!socket_.receive(pending)) return lose();
        silent_at = in_seconds(hub::kSilence_s);
        for (size_t end; (end = pending.find('\n')) != std::string::npos; pending.erase(0, end + 1))
          take(fields_of(pending.substr(0, end)));
      }
      if (Clock::now() >= silent_at) return lose();
      if (Clock::now() < next_beat) continue;
      next_beat = in_seconds(hub::kBeat_s);
      send("beat");
    }
  }
  void take(const std::vector<std::string>& fields) {
    const std::scoped_lock lock(mutex_);
    if (fields[0] == "go" && fields.size() == 4) go_ = Go{fields[1], fields[2], fields[3]};
    if (fields[0] == "ack") acknowledged_ = true;
    changed_.notify_all();
  }

  const std::string name_, to_;
  Socket socket_;
  std::mutex sending_;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::optional<Go> go_;
  bool acknowledged_ = false, lost_ = false;
  int wake_[2] = {-1, -1};  // a pipe that ends the watch
  std::thread watch_;
};

/// What is read of the device while the trainer runs on it, as the harness does on its own machine.
class Measuring {
 public:
  explicit Measuring(const AgentOptions& options) : options_(options) {}

  /// What is to be told after the trainer's event, or what was none; null for nothing.
  Json after(const nlohmann::json& event) {
    if (event.is_null()) return {};
    const std::string kind = event["event"];
    if (kind == "start" && !telemetry_) start(event);
    if (!telemetry_) return {};
    if (kind == "eval") energy_->after_evaluation();
    return kind == "step" ? step() : Json();
  }
  Json end() const {
    if (!telemetry_) return {{"event", "energy"}, {"unknown", unknown_}};
    const auto shared = energy_->shared();
    return {
        {"event", "energy"}, {"shared", shared ? Json(*shared) : Json()}, {"unknown", energy_->unknown()}};
  }

 private:
  void start(const nlohmann::json& event) {
    const auto text = [](const nlohmann::json& object, const char* key) {
      const auto found = object.is_object() ? object.find(key) : object.end();
      return found != object.end() && found->is_string() ? found->get<std::string>() : "";
    };
    const std::string told = text(event, "backend");
    const std::string uuid = event.contains("device") ? text(event["device"], "uuid") : "";
    const auto device = metered_device(told.empty() ? options_.backend : told, uuid);
    if (!device) {
      unknown_ = kDeviceNotTold;
      return;
    }
    telemetry_.emplace(*device);
    energy_.emplace(*telemetry_);
  }
  Json step() {
    Json measured = {{"event", "measured"}};
    if (const auto joules = energy_->after_step(options_.due.after(++steps_))) measured["energy_j"] = *joules;
    if (options_.clocks) {
      const Json state = Writer::write(telemetry_->sample());
      for (const auto& [key, value] : state.items())
        if (!value.is_null()) measured[key] = value;
    }
    return measured.size() > 1 ? measured : Json();
  }

  const AgentOptions& options_;
  std::optional<Telemetry> telemetry_;
  std::optional<EnergyMeter> energy_;
  std::string unknown_ = "the trainer did not start";
  int64_t steps_ = 0;
};

/// The trainer's own variables, and those of the launcher, through whose MPI ranks on the CPU talk.
std::vector<std::string> environment_of(const World& world, const Link::Go& go) {
  std::vector<std::string> all = {cat("RANK=", world.rank),
                                  cat("WORLD_SIZE=", world.size),
                                  cat("LOCAL_RANK=", world.local_rank),
                                  cat("LOCAL_WORLD_SIZE=", go.local_size),
                                  cat("MASTER_ADDR=", go.address),
                                  cat("MASTER_PORT=", go.port),
                                  cat("STEPLADDER_JOB_SECRET=", world.secret)};
  share_cores(all, std::max<int64_t>(1, number_from<int64_t>(go.local_size).value_or(1)));
  std::ranges::move(variables_of_launcher(), std::back_inserter(all));
  return all;
}

/// Whether only this agent may tell such an event, not the trainer.
bool is_the_agents(const nlohmann::json& event) {
  if (event.is_null()) return false;
  const std::string kind = event["event"];
  return kind == "measured" || kind == "energy" || kind == "exit";
}

/// As a shell has it.
int status_of(const ChildEnd& end) {
  switch (end.how) {
    case ChildEnd::How::signalled:
      return 128 + end.code;
    case ChildEnd::How::stopped:
      return 128 + SIGSTOP;
    case ChildEnd::How::exited:
      return end.code;
    case ChildEnd::How::timed_out:
    case ChildEnd::How::refused:
      break;
  }
  return kExitFailed;
}

}  // namespace

std::vector<std::string> AgentOptions::arguments() const {
  std::vector<std::string> words = {"--to", to, "--folder", folder, "--backend", backend};
  for (const auto& [name, value] : {std::pair("--warmup", due.warmup), std::pair("--steps", due.steps),
                                    std::pair("--eval-every", due.eval_every)})
    words.insert(words.end(), {name, std::to_string(value)});
  if (clocks) words.emplace_back("--clocks");
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

int run_as_rank(const AgentOptions& options) {
  const World world = World::identity_from_environment();
  if (world.secret.empty())
    throw InputError(
        cat("rank ", world.rank, " on ", host_name(),
            ": STEPLADDER_JOB_SECRET is missing in the environment: the launcher must pass it on, "
            "as mpirun -x STEPLADDER_JOB_SECRET does"));
  Link link(world, options.to);
  const Link::Go go = link.wait_for_all();
  const InterruptGuard guard;  // a job that is ended because this rank failed still hears why
  Job job = {.processes = {{options.command, environment_of(world, go), options.folder}},
             .one_of_several = true};
  job.failed = [&] { return link.lost(); };
  Measuring measuring(options);
  const auto tell = [&](const Json& event) {
    if (!event.is_null()) link.tell(dump(event));
  };
  ChildEnd end;
  try {
    end = run_job(job, Channel::events, /*timeout_s=*/1e9, [&](size_t, std::string_view line) {
            const nlohmann::json event = parse_event(line);
            if (is_the_agents(event)) return true;
            link.tell(line);
            tell(measuring.after(event));
            return true;
          }).end;
  } catch (const Interrupted& e) {
    link.say_goodbye(cat("killed\t", e.signal));
    throw;
  } catch (const CannotStart& e) {
    tell({{"event", "error"},
          {"status", "error"},
          {"reason", cat(e.what(), ": every machine needs the same build at the same path")}});
    end.code = 127;  // as a shell says it
  }
  if (link.lost()) link.throw_lost();
  if (end.how == ChildEnd::How::refused)
    tell({{"event", "error"}, {"status", "error"}, {"reason", "too long a line on its event stream"}});
  const int status = status_of(end);
  tell(measuring.end());
  tell({{"event", "exit"}, {"status", status}, {"stderr", end.stderr_tail}});
  link.say_goodbye(cat("bye\t", status));
  return status == kExitInconclusive ? kExitOk : status;  // it is done, and no reason to end the others
}

}  // namespace stepladder
