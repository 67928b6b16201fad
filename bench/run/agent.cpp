#include "bench/run/agent.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <optional>

#include "bench/base/text.h"
#include "bench/results/json.h"
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

/// `world` with the address and port of the harness, from `to`, "HOST:PORT". Throws InputError for other
/// text.
World at_harness(World world, const std::string& to) {
  const size_t colon = to.rfind(':');
  const auto port = number_from<int>(colon == std::string::npos ? "" : to.substr(colon + 1));
  if (!port || *port < 1 || *port > 65535)
    throw InputError(cat("--to ", to, ": not HOST:PORT, as the harness gives it to its launcher"));
  world.address = to.substr(0, colon);
  world.port = *port;
  return world;
}

/// The trainer's environment: its rank's variables, and the launcher's, which MPI needs for ranks on the CPU.
/// `met` is what the harness shares: address and port of rank 0, then each rank's host.
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

/// The exit status that a shell would show: 128 + n for signal n.
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
    append(words, {name, std::to_string(value)});
  if (clocks) words.emplace_back("--clocks");
  append(words, command);
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
  std::mutex mutex;                 // guards `lost`
  std::optional<std::string> lost;  // why the job ended on this rank, if not by its trainer's end
  const auto why_lost = [&] {
    const std::scoped_lock lock(mutex);
    return lost;
  };
  std::optional<Rendezvous> harness;
  std::vector<std::string> met;
  try {
    harness.emplace(
        at_harness(world, options.to), Identity{version(), "", ""},
        [&](const std::string& reason, bool) {
          const std::scoped_lock lock(mutex);
          lost = reason;
        },
        RendezvousLimits{.meet_s = kConnect},
        Harness{.hint = ": its --interface names the network to use", .offer = std::to_string(free_port())});
    met = fields_of(harness->share(""));
  } catch (const Error& e) {
    throw Error(cat(name, ": ", e.what()), e.code());
  }
  const InterruptGuard guard;  // on a signal, this process still tells the harness why
  Job job = {.processes = {{options.command, environment_of(world, met), options.folder}},
             .one_of_several = true};
  job.failed = [&] { return why_lost().has_value(); };
  TelemetryOfDevices devices;
  RankMeter meter(devices, {.backend = options.backend, .clocks = options.clocks, .due = options.due});
  const auto tell = [&](const Json& event) { harness->tell(dump(event)); };
  ChildEnd end;
  try {
    end = run_job(job, Channel::events, /*timeout_s=*/1e9, [&](size_t, std::string_view line) {
            nlohmann::json event = parse_event(line);
            const std::string kind = event.is_null() ? "" : event["event"];
            if (kind == "exit") return true;  // only this process may send an exit event
            if (!event.is_null()) meter.add_to(event);
            harness->tell(kind == "step" ? dump(event) : std::string(line));
            return true;
          }).end;
  } catch (const Interrupted& e) {
    harness->fail(cat("was ended by its launcher or system with ", signal_name(e.signal)));
    throw;
  } catch (const CannotStart& e) {
    tell({{"event", "error"},
          {"status", "error"},
          {"reason", cat(e.what(), ": every machine needs the same build at the same path")}});
    end.code = 127;  // a shell's exit status for a command not found
  }
  if (const auto why = why_lost()) throw Error(cat(name, ": ", *why, ", and the trainer was ended"));
  if (end.how == ChildEnd::How::refused)
    tell({{"event", "error"}, {"status", "error"}, {"reason", "too long a line on its event stream"}});
  const int status = status_of(end);
  const auto [shared, unknown] = meter.energy();
  tell({{"event", "exit"},
        {"status", status},
        {"stderr", end.stderr_tail},
        {"shared", shared ? Json(*shared) : Json()},
        {"unknown", unknown}});
  harness.reset();                                        // hangs up once the harness has every line
  return status == kExitInconclusive ? kExitOk : status;  // a loss not reached must not end the other ranks
}

}  // namespace stepladder
