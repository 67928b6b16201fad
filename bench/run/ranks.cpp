#include "bench/run/ranks.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iomanip>
#include <random>
#include <sstream>
#include <thread>

#include "model/error.h"

namespace stepladder {
namespace {

/// What mpirun starts for each rank: its executable, with its events on descriptor 3, which dies with mpirun.
/// How it ended is told here, since mpirun tells it of one rank and in words.
constexpr const char* kRankScript =
    R"(eval "exec 3>\"\$STEPLADDER_EVENTS_$OMPI_COMM_WORLD_RANK\""
setpriv --pdeathsig KILL "$@"
status=$?
echo "{\"event\":\"exit\",\"status\":$status}" >&3
exit $status)";
constexpr double kGrace = 3.0;  // seconds

/// A port that was free a moment ago.
int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const bool bound = fd >= 0 && ::bind(fd, any, size) == 0 && ::getsockname(fd, any, &size) == 0;
  if (fd >= 0) ::close(fd);
  if (!bound) throw Error(cat("no TCP port is free for the ranks to meet at: ", std::strerror(errno)));
  return ntohs(address.sin_port);
}

bool sets(const Job::Process& process, const std::string& variable) {
  return std::ranges::any_of(process.environment,
                             [&](const std::string& text) { return text.starts_with(variable + "="); });
}

/// 128 bits that nobody else on the network guesses.
std::string random_hex() {
  std::random_device random;
  std::ostringstream hex;
  for (int i = 0; i < 4; ++i) hex << std::hex << std::setw(8) << std::setfill('0') << random();
  return hex.str();
}

}  // namespace

Job job_of_ranks(const Job::Process& process, int64_t devices, Starter starter) {
  Job job{.processes = {}, .ranks = static_cast<size_t>(devices), .grace_s = kGrace};
  std::vector<std::string> environment = process.environment;
  const int64_t threads = std::max<int64_t>(1, std::thread::hardware_concurrency() / devices);
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"})
    if (!std::getenv(name) && !sets(process, name)) environment.push_back(cat(name, "=", threads));
  environment.push_back("STEPLADDER_JOB_SECRET=" + random_hex());

  if (starter == Starter::command) {
    job.processes.push_back({process.command, environment, process.folder});
    job.launcher = true;
    return job;
  }
  if (starter == Starter::mpirun) {
    std::vector<std::string> all = {"mpirun", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none"};
    all.insert(all.end(), {"-n", std::to_string(devices), "setpriv", "--pdeathsig", "KILL"});
    all.insert(all.end(), {"sh", "-c", kRankScript, "rank"});
    all.insert(all.end(), process.command.begin(), process.command.end());
    job.processes.push_back({all, environment, process.folder});
    return job;
  }
  const int port = free_port();
  for (int64_t rank = 0; rank < devices; ++rank) {
    auto of_rank = environment;
    of_rank.insert(of_rank.end(),
                   {cat("RANK=", rank), cat("LOCAL_RANK=", rank), cat("WORLD_SIZE=", devices),
                    cat("LOCAL_WORLD_SIZE=", devices), "MASTER_ADDR=127.0.0.1", cat("MASTER_PORT=", port)});
    job.processes.push_back({process.command, of_rank, process.folder});
  }
  return job;
}

void check_mpirun(int64_t devices) {
  if (!output_of({"mpirun", "--version"}))
    throw InputError(
        cat("--devices ", devices,
            ": ranks on the CPU are started by mpirun, which is not here: apt-get install openmpi-bin"));
}

}  // namespace stepladder
