#include "bench/run/agent.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <optional>

#include "bench/base/text.h"
#include "bench/results/json.h"
#include "bench/results/writer.h"
#include "bench/run/child.h"
#include "bench/run/events.h"
#include "bench/run/machine.h"
#include "bench/run/telemetry.h"
#include "model/comm.h"
#include "model/rendezvous.h"
#include "model/socket.h"

namespace stepladder {
namespace {

constexpr double kConnect = 8.0;  // seconds

/// `world` with where the harness is to be met, "HOST:PORT".
World at_harness(World world, const std::string& to) {
  const size_t colon = to.rfind(':');
  const auto port = number_from<int>(colon == std::string::npos ? "" : to.substr(colon + 1));
  if (!port || *port < 1 || *port > 65535)
    throw InputError(cat("--to ", to, ": not HOST:PORT, as the harness gives it to its launcher"));
  world.address = to.substr(0, colon);
  world.port = *port;
  return world;
}

/// What ended the job on this rank, if anything but its own trainer did.
class Lost {
 public:
  void because(const std::string& reason) {
    const std::scoped_lock lock(mutex_);
    reason_ = reason;
  }
  std::optional<std::string> reason() const {
    const std::scoped_lock lock(mutex_);
    return reason_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<std::string> reason_;
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

/// The trainer's own variables, and those of the launcher, through whose MPI ranks on the CPU talk. `met` is
/// what the harness shares: where rank 0 is to be met, and each rank's host.
std::vector<std::string> environment_of(const World& world, const std::vector<std::string>& met) {
  const auto here = std::count(met.begin() + 2, met.end(), met.at(2 + static_cast<size_t>(world.rank)));
  std::vector<std::string> all = {cat("RANK=", world.rank),
                                  cat("WORLD_SIZE=", world.size),
                                  cat("LOCAL_RANK=", world.local_rank),
                                  cat("LOCAL_WORLD_SIZE=", here),
                                  cat("MASTER_ADDR=", met[0]),
                                  cat("MASTER_PORT=", met[1]),
                                  cat("STEPLADDER_JOB_SECRET=", world.secret)};
  share_cores(all, here);
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
  const std::string name = cat("rank ", world.rank, " on ", host_name());
  Lost lost;
  std::optional<Rendezvous> harness;
  std::vector<std::string> met;
  try {
    harness.emplace(
        at_harness(world, options.to), Identity{version(), "", ""},
        [&lost](const std::string& reason, bool) { lost.because(reason); },
        RendezvousLimits{.meet_s = kConnect},
        Harness{.hint = ": its --interface names the network to use", .offer = std::to_string(free_port())});
    met = fields_of(harness->share(""));
  } catch (const Error& e) {
    throw Error(cat(name, ": ", e.what()), e.code());
  }
  const InterruptGuard guard;  // a job that is ended because this rank failed still hears why
  Job job = {.processes = {{options.command, environment_of(world, met), options.folder}},
             .one_of_several = true};
  job.failed = [&lost] { return lost.reason().has_value(); };
  Measuring measuring(options);
  const auto tell = [&](const Json& event) {
    if (!event.is_null()) harness->tell(dump(event));
  };
  ChildEnd end;
  try {
    end = run_job(job, Channel::events, /*timeout_s=*/1e9, [&](size_t, std::string_view line) {
            const nlohmann::json event = parse_event(line);
            if (is_the_agents(event)) return true;
            harness->tell(std::string(line));
            tell(measuring.after(event));
            return true;
          }).end;
  } catch (const Interrupted& e) {
    harness->fail(cat("was ended by its launcher or system with ", signal_name(e.signal)));
    throw;
  } catch (const CannotStart& e) {
    tell({{"event", "error"},
          {"status", "error"},
          {"reason", cat(e.what(), ": every machine needs the same build at the same path")}});
    end.code = 127;  // as a shell says it
  }
  if (const auto why = lost.reason()) throw Error(cat(name, ": ", *why, ", and the trainer was ended"));
  if (end.how == ChildEnd::How::refused)
    tell({{"event", "error"}, {"status", "error"}, {"reason", "too long a line on its event stream"}});
  const int status = status_of(end);
  tell(measuring.end());
  tell({{"event", "exit"}, {"status", status}, {"stderr", end.stderr_tail}});
  harness.reset();                                        // once the harness has it all
  return status == kExitInconclusive ? kExitOk : status;  // it is done, and no reason to end the others
}

}  // namespace stepladder
